"""ReplicaSet: as many Pods as asked for."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from app.kube.client import Client
from app.kube.controller import Result
from app.kube.resources import REPLICASETS, ObjectKey
from app.kube.store import Store
from app.sandbox.controllers.objects import Workload
from app.sandbox.controllers.pods import (
    BURST,
    available_in,
    is_active,
    is_ready,
    owner_reference,
    pod_of,
    to_delete_first,
)
from app.sandbox.controllers.workloads import WorkloadController
from app.sandbox.controllers.writing import patch_status
from app.sandbox.objects import Pod


class ReplicaSets(WorkloadController):
    """The controller of ReplicaSets."""

    def __init__(self, client: Client, pods: Store[Pod], rng: Random) -> None:
        indexes = {"owner": lambda one: [one.metadata.controller.uid] if one.metadata.controller is not None else []}
        super().__init__(client, pods, REPLICASETS, rng, workers=8, indexes=indexes)

    async def reconcile(self, key: ObjectKey, found: Workload, pods: Sequence[Pod]) -> Result | None:
        """Make what is missing, or take away what is too much."""
        active = [pod for pod in pods if is_active(pod)]
        if found.metadata.deletion_timestamp is None:
            await self._scale(key, found, active)
        return await self._report(found, active)

    async def _scale(self, key: ObjectKey, found: Workload, pods: list[Pod]) -> None:
        missing = found.spec.replicas - len(pods)
        if missing > 0:
            owner = owner_reference(REPLICASETS, found.metadata)
            template = found.spec.template
            prefix = f"{found.metadata.name}-"
            names = [self.control.new_name(prefix) for _ in range(min(missing, BURST))]
            await self.control.create(key, [pod_of(template.metadata, template.spec, name, owner) for name in names])
        elif missing < 0:
            await self.control.delete(key, sorted(pods, key=to_delete_first)[: min(-missing, BURST)])

    async def _report(self, found: Workload, pods: list[Pod]) -> Result | None:
        now = self.client.clock.now()
        labels = found.spec.template.labels.items()
        waits = [available_in(pod, found.spec.min_ready_seconds, now) for pod in pods]
        status = {
            "replicas": len(pods),
            "fullyLabeledReplicas": sum(labels <= pod.metadata.labels.items() for pod in pods),
            "readyReplicas": sum(map(is_ready, pods)),
            "availableReplicas": sum(wait == 0 for wait in waits),
            "observedGeneration": found.metadata.generation,
        }
        await patch_status(self.client, REPLICASETS, found, status)
        soon = [wait for wait in waits if 0 < wait < float("inf")]
        return Result(requeue_after=max(0.01, min(soon))) if soon else None
