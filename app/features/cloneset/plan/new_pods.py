"""The Pods and claims that a CloneSet creates. IDs and times are arguments. Pure. [CS-115 … CS-118, CS-142]"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, TypeAlias

from app.api import names
from app.features.cloneset.plan.settings import ResolvedSpec
from app.pods.claims import claims_of_pod, with_claim_volumes
from app.pods.lifecycle import LifecycleState, state_members
from app.pods.revisions import pod_of_template, revision_labels, short_hash
from app.workloads.pods import NewPod

Json: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PodMaker:
    """Builds the Pods of one revision. ``template`` is the Pod template recorded in the revision; the claim templates
    are the current ones. [CS-74]"""

    resolved: ResolvedSpec
    template: Json
    revision: str

    def new_pod(self, instance: str, existing: Collection[str]) -> NewPod:
        """Return the Pod with that instance ID and those of its claims that do not exist yet."""
        name, gates = pod_name(self.resolved.owner.name, instance), self.resolved.settings.gates
        return NewPod(name, partial(self.pod, instance), self.claims(instance, existing), gates.managed_fields)

    def pod(self, instance: str, now: datetime) -> Json:
        resolved, owner, gates = self.resolved, self.resolved.owner, self.resolved.settings.gates
        name = pod_name(owner.name, instance)
        state_labels, annotations = state_members(LifecycleState.PREPARING_NORMAL, now)
        body = pod_of_template(
            self.template,
            name,
            owner.namespace,
            owner.reference,
            generate_name=f"{owner.name}-",
            labels={
                **revision_labels(self.revision, short_hash(self.revision), bare_hash=gates.short_hash),
                **state_labels,
                names.CLONESET_INSTANCE_ID: instance,
            },
            annotations=annotations,
            # Pods get InPlaceUpdateReady under every update policy [PM-4]. Admission would append KruisePodReady
            # [PM-176]; adding it here saves the webhook a patch.
            readiness_gates=(names.IN_PLACE_UPDATE_READY, *((names.KRUISE_POD_READY,) if gates.ready_gate else ())),
        )
        if resolved.claim_templates:
            spec = body["spec"]
            spec["volumes"] = with_claim_volumes(spec.get("volumes"), resolved.claim_templates, name)
        return body

    def claims(self, instance: str, existing: Collection[str]) -> list[dict[str, Any]]:
        """Return the claims of that instance ID that do not exist yet. [CS-118]"""
        resolved, owner = self.resolved, self.resolved.owner
        return claims_of_pod(
            resolved.claim_templates,
            pod_name(owner.name, instance),
            owner.namespace,
            owner.reference,
            {**resolved.selector_labels, names.CLONESET_INSTANCE_ID: instance},
            existing,
        )


def pod_name(owner: str, instance: str) -> str:
    """Return the name of the Pod with that instance ID. [CS-116]"""
    return f"{owner}-{instance}"
