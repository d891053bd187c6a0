"""The step of Pod creation that sends a Pod back to where it ran (PPS-31 … PPS-37)."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from app.api import names
from app.api.persistentpodstate import PersistentPodState
from app.api.persistentpodstate.validation import KNOWN_TARGETS
from app.kube.admission import Denied, Review
from app.kube.store import Store
from app.placement.persistentpodstate.plan.injection import affinity_with, node_selector_with, restored_annotations
from app.placement.persistentpodstate.states import state_of
from app.pods.customworkloads import GroupKind
from app.pods.draft import PodDraft
from app.pods.owners import controller_of
from app.pods.steps import StepOrder


class PersistentPodStateStep:
    """Writes nothing but the draft: what is remembered is in the cache."""

    order: Final = StepOrder.FORMER_NODE

    def __init__(self, states: Store[PersistentPodState], listed: Callable[[], Collection[GroupKind]]) -> None:
        """``listed``: further kinds, as the operator lists them now."""
        self._states = states
        self._listed = listed

    def __call__(self, draft: PodDraft, review: Review) -> Denied | None:  # noqa: ARG002
        """A Pod without a name of its own, or with a node already, goes where it will."""
        if not draft.name or draft.spec.get("nodeName"):
            return None
        controller = controller_of(draft.owner_references)
        if controller is None:
            return None
        kind = controller.group, controller.kind
        if kind not in KNOWN_TARGETS and kind not in self._listed():
            return None
        state = state_of(self._states, draft.namespace, (*kind, controller.name))
        if state is not None:
            inject(draft, state)
        return None


def inject(draft: PodDraft, state: PersistentPodState) -> None:
    """PPS-32 … PPS-36."""
    record = ((state.status.pod_states if state.status is not None else None) or {}).get(draft.name)
    if record is None:
        return
    if restored := restored_annotations(state, record, draft.annotations):
        draft.set_annotations(restored, "PPS-36")
    selector, affinity = node_selector_with(state, record, draft.spec), affinity_with(state, record, draft.spec)
    if selector is not None:
        draft.change_field("spec", "nodeSelector", selector, "PPS-33")
    if affinity is not None:
        draft.change_field("spec", "affinity", affinity, "PPS-34")
    if selector is not None or affinity is not None:
        draft.set_annotations({names.INJECTED_PERSISTENT_POD_STATE: state.name}, "PPS-35")
