"""What a CloneSet creates: a Pod and its claims (CS-115 … CS-118, CS-142). Pure: ids and times are arguments."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, TypeAlias

from app.api import names
from app.pods.claims import claims_of_pod, with_claim_volumes
from app.pods.lifecycle import LifecycleState, state_members
from app.pods.revisions import short_hash
from app.pods.templates import pod_of_template, revision_labels
from app.workloads.engine.creation import NewPod
from app.workloads.engine.kind import Owner

Json: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PodMaker:
    """Makes the Pods of one revision. ``template``: the Pod template; ``claims``: the volumeClaimTemplates of today
    (CS-74); ``bare_hash``: gate CloneSetShortHash; ``ready_gate``: whether Pods wait for KruisePodReady;
    ``managed_fields``: whether they are to have such."""

    owner: Owner
    template: Json
    claim_templates: Sequence[Json]
    revision: str
    selector_labels: Mapping[str, str]
    bare_hash: bool = False
    ready_gate: bool = True
    managed_fields: bool = False

    def new_pod(self, instance: str, existing: Collection[str]) -> NewPod:
        """The Pod of that instance id with its claims, without those that exist."""
        name = pod_name(self.owner.name, instance)
        return NewPod(name, partial(self.pod, instance), self.claims(instance, existing), self.managed_fields)

    def pod(self, instance: str, now: datetime) -> Json:
        """The Pod of that instance id."""
        name = pod_name(self.owner.name, instance)
        state_labels, annotations = state_members(LifecycleState.PREPARING_NORMAL, now)
        body = pod_of_template(
            self.template,
            name,
            self.owner.namespace,
            self.owner.reference,
            generate_name=f"{self.owner.name}-",
            labels={
                **revision_labels(self.revision, short_hash(self.revision), bare_hash=self.bare_hash),
                **state_labels,
                names.CLONESET_INSTANCE_ID: instance,
            },
            annotations=annotations,
            readiness_gates=self._readiness_gates,
        )
        if self.claim_templates:
            spec = body["spec"]
            spec["volumes"] = with_claim_volumes(spec.get("volumes"), self.claim_templates, name)
        return body

    @property
    def _readiness_gates(self) -> tuple[str, ...]:
        """PM-4, whatever the update policy; and the one that admission would append (PM-176), so that it has less to
        change."""
        return (names.IN_PLACE_UPDATE_READY, *((names.KRUISE_POD_READY,) if self.ready_gate else ()))

    def claims(self, instance: str, existing: Collection[str]) -> list[dict[str, Any]]:
        """CS-118: the claims of that instance id, without those that exist."""
        return claims_of_pod(
            self.claim_templates,
            pod_name(self.owner.name, instance),
            self.owner.namespace,
            self.owner.reference,
            {**self.selector_labels, names.CLONESET_INSTANCE_ID: instance},
            existing,
        )


def pod_name(owner: str, instance: str) -> str:
    """CS-116: the name of the Pod with that instance id."""
    return f"{owner}-{instance}"
