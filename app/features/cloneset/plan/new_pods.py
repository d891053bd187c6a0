"""The Pods and claims that a CloneSet creates. IDs and times are arguments. Pure. [CS-115 … CS-118, CS-142]"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, TypeAlias

from app.api import names
from app.pods.claims import claims_of_pod, with_claim_volumes
from app.pods.lifecycle import LifecycleState, state_members
from app.pods.predicates import Owner
from app.pods.revisions import pod_of_template, revision_labels, short_hash
from app.workloads.pods import NewPod

Json: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PodMaker:
    """Builds the Pods of one revision. ``template`` is the Pod template; ``claim_templates`` are the current
    volumeClaimTemplates [CS-74]; ``bare_hash`` is the gate CloneSetShortHash. ``ready_gate`` adds the readiness gate
    KruisePodReady to Pods, and ``managed_fields`` keeps their metadata.managedFields."""

    owner: Owner
    template: Json
    claim_templates: Sequence[Json]
    revision: str
    selector_labels: Mapping[str, str]
    bare_hash: bool = False
    ready_gate: bool = True
    managed_fields: bool = False

    def new_pod(self, instance: str, existing: Collection[str]) -> NewPod:
        """Return the Pod with that instance ID and those of its claims that do not exist yet."""
        name = pod_name(self.owner.name, instance)
        return NewPod(name, partial(self.pod, instance), self.claims(instance, existing), self.managed_fields)

    def pod(self, instance: str, now: datetime) -> Json:
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
        """Readiness gates that Pods get under every update policy [PM-4]. Including the one that admission would append
        [PM-176] saves the webhook a patch."""
        return (names.IN_PLACE_UPDATE_READY, *((names.KRUISE_POD_READY,) if self.ready_gate else ()))

    def claims(self, instance: str, existing: Collection[str]) -> list[dict[str, Any]]:
        """Return the claims of that instance ID that do not exist yet. [CS-118]"""
        return claims_of_pod(
            self.claim_templates,
            pod_name(self.owner.name, instance),
            self.owner.namespace,
            self.owner.reference,
            {**self.selector_labels, names.CLONESET_INSTANCE_ID: instance},
            existing,
        )


def pod_name(owner: str, instance: str) -> str:
    """Return the name of the Pod with that instance ID. [CS-116]"""
    return f"{owner}-{instance}"
