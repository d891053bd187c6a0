"""The Pod that a StatefulSet creates for an ordinal (AS-40, AS-66, AS-95). Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Final, TypeAlias

from app.api import names
from app.pods.claims import with_claim_volumes
from app.pods.lifecycle import first_state, state_members
from app.pods.templates import pod_of_template
from app.workloads.engine.creation import NewPod
from app.workloads.statefulset.plan.resolved import ResolvedSpec

Json: TypeAlias = Mapping[str, Any]
POD_NAME: Final = "statefulset.kubernetes.io/pod-name"
POD_INDEX: Final = "apps.kubernetes.io/pod-index"


def pod_name(owner: str, ordinal: int) -> str:
    """The name of the Pod of that ordinal."""
    return f"{owner}-{ordinal}"


def identity(owner: str, ordinal: int, *, index_label: bool) -> dict[str, str]:
    """AS-40: the labels that say which Pod it is."""
    index = {POD_INDEX: str(ordinal)} if index_label else {}
    return {POD_NAME: pod_name(owner, ordinal), **index}


@dataclass(frozen=True, slots=True)
class PodMaker:
    """Makes the Pods of one revision. ``template``: the Pod template it records."""

    resolved: ResolvedSpec
    template: Json
    revision: str

    def new_pod(self, ordinal: int, claims: Sequence[Json]) -> NewPod:
        """The Pod of that ordinal; ``claims``: those to create before it."""
        gates = self.resolved.settings.gates
        name = pod_name(self.resolved.owner.name, ordinal)
        return NewPod(name, partial(self.pod, ordinal), claims, gates.managed_fields)

    def pod(self, ordinal: int, now: datetime) -> Json:
        """The Pod of that ordinal."""
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
            # The one that admission would append, so that it has less to change.
            readiness_gates=(names.KRUISE_POD_READY,) if settings.gates.ready_gate else (),
        )
        spec = body["spec"]
        spec["hostname"] = name
        if resolved.service_name:
            spec["subdomain"] = resolved.service_name
        if resolved.claim_templates:
            spec["volumes"] = with_claim_volumes(spec.get("volumes"), resolved.claim_templates, name)
        return body
