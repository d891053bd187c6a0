"""Records what each reconcile knew when it began, and which writes it made.

A controller decides from its caches, which may be minutes old. Judges therefore check a write against that state: a
reconcile need not know of later changes by others, but must know its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import msgspec

from app.api.model import KubeObject
from app.features.sidecarset.writes import Roller, SetReconcile
from app.kube.clock import Clock
from app.kube.controller import Result
from app.kube.errors import KubeError
from app.kube.objects import PersistentVolumeClaim, Pod
from app.kube.resources import ObjectKey
from app.kube.selectors import Selector
from app.workloads.pods import NewPod
from app.workloads.reconciler import WorkloadReconciler
from app.workloads.settings import OWNER
from app.workloads.writer import Writer

#: The API server deletes dependents in its own task, which inherits the context of the request.
_COLLECTOR = "sandbox: garbage collector"


@dataclass(frozen=True, slots=True, eq=False)
class Pass:
    """One reconcile. ``at``: its start in virtual seconds; ``term``: the controller of that term of leadership."""

    at: float
    uid: str
    generation: int
    pods: tuple[Pod, ...]
    claims: tuple[PersistentVolumeClaim, ...]
    term: object
    #: The names of the Pods that it is creating.
    wanted: set[str] = field(default_factory=set)

    def version_of(self, pod_uid: str) -> int:
        """Return the resourceVersion of a Pod that the reconcile saw; 0 if it saw none."""
        return next((int(pod.metadata.resource_version) for pod in self.pods if pod.metadata.uid == pod_uid), 0)

    def pod(self, pod_uid: str) -> dict[str, Any] | None:
        found = next((pod for pod in self.pods if pod.metadata.uid == pod_uid), None)
        return msgspec.to_builtins(found) if found is not None else None


#: By controller type: the controller of the last reconcile.
_last: dict[type, object] = {}
_NOW: ContextVar[Pass | None] = ContextVar("pass of a workload's controller", default=None)


def current() -> Pass | None:
    """Return the reconcile that the current task belongs to; None for another actor."""
    known = _NOW.get()
    if known is None:
        return None
    task = asyncio.current_task()
    return None if task is not None and task.get_name() == _COLLECTOR else known


def works(controller: object) -> bool:
    """Return whether this was the last controller of its type to reconcile; a new leader reconciles every workload."""
    return _last.get(type(controller)) is controller


def leave() -> None:
    """Detach the current task from the reconcile whose write started it."""
    _NOW.set(None)


@contextmanager
def observed() -> Iterator[None]:
    """Track the reconciles of all controllers that write Pods."""
    _last.clear()
    reconcile, create, carry_out = WorkloadReconciler.__call__, Writer.create_pods, Roller.carry_out

    async def reconciled(self: WorkloadReconciler[Any, Any, Any], key: ObjectKey) -> Result | None:
        workload = self.caches.workloads.by_key(key)
        if workload is None:
            return await reconcile(self, key)
        metadata, caches = workload.metadata, self.caches
        owned = self.kind.owner(metadata).index_key
        claims = caches.claims.by_index(OWNER, owned) if caches.claims is not None else ()
        with _pass(self, self.clock, metadata, caches.pods.by_index(OWNER, owned), claims):
            return await reconcile(self, key)

    async def created(
        self: Writer, workload: KubeObject, wanted: Sequence[NewPod], selector: Selector
    ) -> tuple[int, dict[str, KubeError]]:
        if (known := _NOW.get()) is not None:
            known.wanted.update(one.name for one in wanted)
        return await create(self, workload, wanted, selector)

    async def carried_out(self: Roller, one: SetReconcile) -> float:
        pods = [judged.pod for judged in one.pod_counts.all()]
        with _pass(self, self._client.clock, one.owner.metadata, pods):
            return await carry_out(self, one)

    with (
        patch.object(WorkloadReconciler, "__call__", reconciled),
        patch.object(Writer, "create_pods", created),
        patch.object(Roller, "carry_out", carried_out),
    ):
        yield


@contextmanager
def _pass(
    term: object, clock: Clock, metadata: Any, pods: Iterable[Pod], claims: Iterable[PersistentVolumeClaim] = ()
) -> Iterator[None]:
    """Attribute this task's writes to a new reconcile."""
    _last[type(term)] = term
    _NOW.set(Pass(clock.monotonic(), metadata.uid, metadata.generation, tuple(pods), tuple(claims), term))
    try:
        yield
    finally:
        _NOW.set(None)
