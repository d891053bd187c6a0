"""ReplicaSet: as many Pods as asked for."""

from __future__ import annotations

from random import Random
from typing import Any

from app.kube.client import Client
from app.kube.controller import Controller, Result, Watch, to_self
from app.kube.errors import NotFound
from app.kube.objects import decoder
from app.kube.reflector import Reflector
from app.kube.resources import REPLICASETS, ObjectKey
from app.kube.selectors import compile_selector
from app.kube.store import Store
from app.sandbox.controllers.objects import Workload
from app.sandbox.controllers.pods import (
    BURST,
    PodControl,
    available_in,
    is_active,
    is_ready,
    matching_workloads,
    owner_reference,
    pod_of,
    to_delete_first,
)
from app.sandbox.controllers.writing import patch_status
from app.sandbox.objects import Pod


class ReplicaSets:
    """The controller of ReplicaSets."""

    def __init__(self, client: Client, pods: Store[Pod], rng: Random) -> None:
        self._client = client
        self.sets: Store[Workload] = Store(
            {"owner": lambda one: [one.metadata.controller.uid] if one.metadata.controller is not None else []}
        )
        self._control = PodControl(client, pods, REPLICASETS, rng)
        self._reflector = Reflector(client, REPLICASETS, self.sets, decode=decoder(Workload), rng=rng)
        keys = matching_workloads(self.sets, REPLICASETS, lambda one: compile_selector(one.spec.selector))
        watches: list[Watch[Any]] = [Watch(self.sets, to_self), Watch(pods, keys)]
        self.controller = Controller("sandbox-replicasets", client.clock, watches, self._reconcile, workers=8)

    def tasks(self) -> list[Any]:
        """The coroutines to run side by side until cancelled."""
        return [self._reflector.run(), self.controller.run()]

    async def _reconcile(self, key: ObjectKey) -> Result | None:
        found = self.sets.by_key(key)
        if found is None:
            self._control.forget(key)
            return None
        if seconds := self._control.waits(key):
            return Result(requeue_after=seconds)
        pods = [
            one for one in await self._control.claim(found, compile_selector(found.spec.selector)) if is_active(one)
        ]
        if found.metadata.deletion_timestamp is None:
            await self._scale(key, found, pods)
        return await self._report(found, pods)

    async def _scale(self, key: ObjectKey, found: Workload, pods: list[Pod]) -> None:
        missing = found.spec.replicas - len(pods)
        if missing > 0:
            owner = owner_reference(REPLICASETS, found.metadata)
            template = found.spec.template
            prefix = f"{found.metadata.name}-"
            names = [self._control.new_name(prefix) for _ in range(min(missing, BURST))]
            await self._control.create(key, [pod_of(template.metadata, template.spec, name, owner) for name in names])
        elif missing < 0:
            await self._control.delete(key, sorted(pods, key=to_delete_first)[: min(-missing, BURST)])

    async def _report(self, found: Workload, pods: list[Pod]) -> Result | None:
        now = self._client.clock.now()
        labels = found.spec.template.labels.items()
        waits = [available_in(pod, found.spec.min_ready_seconds, now) for pod in pods]
        status = {
            "replicas": len(pods),
            "fullyLabeledReplicas": sum(labels <= pod.metadata.labels.items() for pod in pods),
            "readyReplicas": sum(map(is_ready, pods)),
            "availableReplicas": sum(wait == 0 for wait in waits),
            "observedGeneration": found.metadata.generation,
        }
        try:
            await patch_status(self._client, REPLICASETS, found, status)
        except NotFound:
            return None
        soon = [wait for wait in waits if 0 < wait < float("inf")]
        return Result(requeue_after=max(0.01, min(soon))) if soon else None
