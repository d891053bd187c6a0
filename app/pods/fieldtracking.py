"""Pods without managed fields: what nobody looks at need not be worked out with every write.

An API server notes in ``metadata.managedFields`` who wrote which field, for server-side apply. With each write of a
Pod it converts and compares the fields of every manager: more than half of its work in a roll-out (bench/RESULTS.md).
An object whose account is empty is left without one by all later writes; who applies to it finds all that is there
owned by ``before-first-apply``, as on objects older than server-side apply.

On creation only admission can empty the account. The controller that creates a Pod asks for it by its field manager,
so that no other Pod is touched, and the account of Pods created while no webhook answers says nothing untrue.
"""

from __future__ import annotations

from typing import Final

from app.kube.admission import Review
from app.kube.wire import USER_AGENT
from app.pods.draft import PodDraft
from app.pods.steps import StepOrder

#: The feature gate that keeps the managed fields of a CloneSet's Pods.
GATE: Final = "CloneSetPodManagedFields"
#: The field manager of a creation that asks for a Pod without managed fields.
UNTRACKED: Final = f"{USER_AGENT}-untracked"


class FieldTrackingStep:
    """Empties the account of Pods whose creator asks for it."""

    order = StepOrder.FIELD_TRACKING

    __slots__ = ()

    def __call__(self, draft: PodDraft, review: Review) -> None:  # noqa: ARG002
        """Take the managed fields away where their only entry is the asking creator's."""
        fields = draft.managed_fields
        if len(fields) == 1 and fields[0].get("manager") == UNTRACKED:
            draft.remove_managed_fields(GATE)
