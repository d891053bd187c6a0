"""The Pods that a StatefulSet creates, and their revisions. Pure. [AS-40, AS-41, AS-66, PM-68]"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Final, TypeAlias

from app.api import names
from app.features.statefulset.plan.settings import Replicas, ResolvedSpec
from app.pods.claims import with_claim_volumes
from app.pods.lifecycle import first_state, state_members
from app.pods.revisions import pod_of_template
from app.workloads.pods import NewPod

Json: TypeAlias = Mapping[str, Any]
POD_NAME: Final = "statefulset.kubernetes.io/pod-name"
POD_INDEX: Final = "apps.kubernetes.io/pod-index"


def pod_name(owner: str, ordinal: int) -> str:
    """Return the name of the Pod with that ordinal."""
    return f"{owner}-{ordinal}"


def identity(owner: str, ordinal: int, *, index_label: bool) -> dict[str, str]:
    """Return the labels that identify the Pod with that ordinal. [AS-40]"""
    index = {POD_INDEX: str(ordinal)} if index_label else {}
    return {POD_NAME: pod_name(owner, ordinal), **index}


@dataclass(frozen=True, slots=True)
class PodMaker:
    """Builds the Pods of one revision. ``template`` is the Pod template recorded in the revision."""

    resolved: ResolvedSpec
    template: Json
    revision: str

    def new_pod(self, ordinal: int, claims: Sequence[Json]) -> NewPod:
        """Return the Pod to create for that ordinal. ``claims`` are created before it."""
        gates = self.resolved.settings.gates
        name = pod_name(self.resolved.owner.name, ordinal)
        return NewPod(name, partial(self.pod, ordinal), claims, gates.managed_fields)

    def pod(self, ordinal: int, now: datetime) -> Json:
        resolved, owner = self.resolved, self.resolved.owner
        name, settings = pod_name(owner.name, ordinal), resolved.settings
        labels, annotations = state_members(first_state(settings.lifecycle, self.template), now)
        body = pod_of_template(
            self.template,
            name,
            owner.namespace,
            owner.reference,
            generate_name=f"{owner.name}-",
            labels={
                **identity(owner.name, ordinal, index_label=settings.gates.pod_index_label),
                names.CONTROLLER_REVISION_HASH: self.revision,
                **labels,
            },
            annotations=annotations,
            # Admission would append this readiness gate; adding it here saves the webhook a patch.
            readiness_gates=(names.KRUISE_POD_READY,) if settings.gates.ready_gate else (),
        )
        spec = body["spec"]
        spec["hostname"] = name
        spec.pop("subdomain", None)  # the template's value is never used
        if resolved.service_name:
            spec["subdomain"] = resolved.service_name
        if resolved.claim_templates:
            spec["volumes"] = with_claim_volumes(spec.get("volumes"), resolved.claim_templates, name)
        return body


class NewRevisions:
    """Chooses the revision of each new Pod. [AS-41]"""

    def __init__(self, replicas: Replicas, *, current: str, update: str) -> None:
        self._settings = replicas.settings
        self._same = current == update
        self._not_updated = sum(not replicas.is_updated(one, update) for one in replicas.wanted)

    def old_ones(self, missing: int) -> int:
        """Return how many of the missing Pods would be created at the current revision in an unordered update."""
        return min(missing, max(0, self._settings.partition - self._not_updated))

    def next(self, ordinal: int) -> bool:
        """Return whether the Pod with that ordinal is created at the update revision."""
        settings = self._settings
        if settings.on_delete or self._same:
            return True
        if not settings.unordered:
            return settings.slots.rank(ordinal) > settings.partition
        if self._not_updated < settings.partition:
            self._not_updated += 1
            return False
        return True
