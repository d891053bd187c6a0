"""The Pods that a DaemonSet creates, and the taints they tolerate. Names and times are arguments. Pure. [DS-17, DS-34 …
DS-36]"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from app.api import names
from app.pods.node_fit import NO_EXECUTE, NO_SCHEDULE, pinned, with_tolerations
from app.pods.revisions import Revision, pod_of_template, short_hash
from app.workloads.pods import NewPod

if TYPE_CHECKING:
    from app.features.daemonset.plan.settings import ResolvedSpec

#: Length to which the DaemonSet's name is truncated in Pod names, as the API server does with generateName.
MAX_NAME_BASE: Final = 58
SCHEDULER: Final = "kubernetes.io/daemonset-controller"
#: Taints that every DaemonSet Pod tolerates. [DS-17]
_TOLERATED: Final = (
    ("node.kubernetes.io/not-ready", NO_EXECUTE),
    ("node.kubernetes.io/unreachable", NO_EXECUTE),
    ("node.kubernetes.io/disk-pressure", NO_SCHEDULE),
    ("node.kubernetes.io/memory-pressure", NO_SCHEDULE),
    ("node.kubernetes.io/pid-pressure", NO_SCHEDULE),
    ("node.kubernetes.io/unschedulable", NO_SCHEDULE),
)
#: Taint that Pods on the host network also tolerate.
_NETWORK: Final = ("node.kubernetes.io/network-unavailable", NO_SCHEDULE)


def daemon_tolerations(pod: Mapping[str, Any]) -> list[Any]:
    """Return the tolerations in the template's spec and those that every DaemonSet Pod gets. [DS-17]"""
    added = (*_TOLERATED, *((_NETWORK,) if pod.get("hostNetwork") is True else ()))
    return with_tolerations(pod, [{"key": key, "operator": "Exists", "effect": effect} for key, effect in added])


@dataclass(frozen=True, slots=True)
class PodMaker:
    """Builds Pods of the current template."""

    resolved: ResolvedSpec
    revision: Revision

    @property
    def name_base(self) -> str:
        return f"{self.resolved.owner.name}-"[:MAX_NAME_BASE]

    def new_pod(self, name: str, node: str) -> NewPod:
        return NewPod(name, partial(self.pod, name, node), managed_fields=self.resolved.settings.gates.managed_fields)

    def pod(self, name: str, node: str, now: datetime) -> Mapping[str, Any]:  # noqa: ARG002  # not used
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
        spec = {**body["spec"], "tolerations": resolved.tolerations}
        if resolved.settings.gates.by_scheduler:  # [DS-35]
            return {**body, "spec": pinned(spec, node)}
        return {**body, "spec": {**spec, "nodeName": node, "schedulerName": SCHEDULER}}

    @property
    def _readiness_gates(self) -> tuple[str, ...]:
        """Return the readiness gates, including the one that admission would otherwise append by a patch. [DS-36]"""
        settings = self.resolved.settings
        return (
            *((names.IN_PLACE_UPDATE_READY,) if settings.in_place else ()),
            *((names.KRUISE_POD_READY,) if settings.gates.ready_gate else ()),
        )
