"""What a DaemonSet creates: a Pod for one node (DS-34 … DS-36). Pure: names and times are arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Final

from app.api import names
from app.pods.revisions import Revision, short_hash
from app.pods.templates import pod_of_template
from app.workloads.daemonset.plan.resolved import ResolvedSpec
from app.workloads.engine.creation import NewPod

#: So much of the DaemonSet's name is in those of its Pods, as the API server cuts a generateName.
MAX_NAME_BASE: Final = 58
SCHEDULER: Final = "kubernetes.io/daemonset-controller"


@dataclass(frozen=True, slots=True)
class PodMaker:
    """Makes the Pods of the present template."""

    resolved: ResolvedSpec
    revision: Revision

    @property
    def name_base(self) -> str:
        """What the names of Pods begin with."""
        return f"{self.resolved.owner.name}-"[:MAX_NAME_BASE]

    def new_pod(self, name: str, node: str) -> NewPod:
        """The Pod for that node."""
        return NewPod(name, partial(self.pod, name, node), managed_fields=self.resolved.settings.gates.managed_fields)

    def pod(self, name: str, node: str, now: datetime) -> Mapping[str, Any]:  # noqa: ARG002  # the time is not in it
        """Its JSON form."""
        resolved, owner = self.resolved, self.resolved.owner
        labels = {names.CONTROLLER_REVISION_HASH: short_hash(self.revision.name)}
        if resolved.template_generation:
            labels[names.POD_TEMPLATE_GENERATION] = resolved.template_generation
        body = pod_of_template(
            resolved.template,
            name,
            owner.namespace,
            owner.reference,
            generate_name=f"{owner.name}-",
            labels=labels,
            readiness_gates=self._readiness_gates,
        )
        body["spec"] |= {"tolerations": resolved.tolerations, **self._place(body["spec"], node)}
        return body

    @property
    def _readiness_gates(self) -> tuple[str, ...]:
        """DS-36, and the one that admission would append, so that it has less to change."""
        settings = self.resolved.settings
        return (
            *((names.IN_PLACE_UPDATE_READY,) if settings.in_place else ()),
            *((names.KRUISE_POD_READY,) if settings.gates.ready_gate else ()),
        )

    def _place(self, spec: Mapping[str, Any], node: str) -> dict[str, Any]:
        """DS-35."""
        if not self.resolved.settings.gates.by_scheduler:
            return {"nodeName": node, "schedulerName": SCHEDULER}
        term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
        affinity = spec.get("affinity") or {}
        node_affinity = {
            **(affinity.get("nodeAffinity") or {}),
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]},
        }
        return {"affinity": {**affinity, "nodeAffinity": node_affinity}}
