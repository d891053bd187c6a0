"""What a pass of the CloneSet controller knew when it began, and which writes are its doing.

A controller decides on what its caches show, which may be minutes old. So what it does is held against exactly that:
whatever others did since is no fault of the pass; what it did itself, it has to know.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import msgspec

from app.kube.controller import Result
from app.kube.objects import PersistentVolumeClaim, Pod
from app.kube.resources import ObjectKey
from app.workloads.cloneset.reconcile import CloneSetReconciler
from app.workloads.engine.kind import OWNER
from app.workloads.engine.writer import Writer

#: The API server deletes dependents in a task of its own, begun in the context of whoever gave it work.
_COLLECTOR = "sandbox: garbage collector"


@dataclass(frozen=True, slots=True, eq=False)
class Pass:
    """One pass. ``at``: when it began, virtual seconds; ``term``: the controller, made anew for each term of
    leadership."""

    at: float
    uid: str
    generation: int
    pods: tuple[Pod, ...]
    claims: tuple[PersistentVolumeClaim, ...]
    term: object
    #: The instance ids of the Pods it set out to create.
    wanted: set[str] = field(default_factory=set)

    def version_of(self, pod_uid: str) -> int:
        """The version of the Pod that it saw; 0: it did not see it."""
        return next((int(pod.metadata.resource_version) for pod in self.pods if pod.metadata.uid == pod_uid), 0)

    def pod(self, pod_uid: str) -> dict[str, Any] | None:
        """The Pod as it saw it, in its JSON form."""
        found = next((pod for pod in self.pods if pod.metadata.uid == pod_uid), None)
        return msgspec.to_builtins(found) if found is not None else None


#: The controller of the last pass that began.
_last: list[object] = []
_NOW: ContextVar[Pass | None] = ContextVar("pass of the CloneSet controller", default=None)


def current() -> Pass | None:
    """Whose doing a write is; None: not the CloneSet controller's."""
    known = _NOW.get()
    if known is None:
        return None
    task = asyncio.current_task()
    return None if task is not None and task.get_name() == _COLLECTOR else known


def term() -> object:
    """The controller that works now: whoever begins a term looks at every CloneSet."""
    return _last[-1] if _last else None


def leave() -> None:
    """What this task does from now on is nobody's pass: it was only begun by a write of one."""
    _NOW.set(None)


@contextmanager
def watched() -> Iterator[None]:
    """Inside, passes are known to :func:`current`."""
    original, create_pods = CloneSetReconciler.__call__, Writer.create_pods

    async def followed(self: Any, key: ObjectKey) -> Result | None:
        _last[:] = [self]
        token = _NOW.set(_begun(self, key))
        try:
            return await original(self, key)
        finally:
            _NOW.reset(token)

    async def noted(self: Writer, workload: Any, wanted: Any) -> Any:
        if (known := _NOW.get()) is not None:
            known.wanted.update(pod.name.removeprefix(f"{workload.name}-") for pod in wanted)
        return await create_pods(self, workload, wanted)

    _last.clear()
    with (
        patch.object(CloneSetReconciler, "__call__", followed),
        patch.object(Writer, "create_pods", noted),
    ):
        yield


def _begun(reconciler: Any, key: ObjectKey) -> Pass | None:
    caches = reconciler.caches
    owner = caches.workloads.by_key(key)
    if owner is None:
        return None
    uid = owner.metadata.uid
    pods, claims = (tuple(store.by_index(OWNER, uid)) for store in (caches.pods, caches.claims))
    return Pass(reconciler.clock.monotonic(), uid, owner.metadata.generation, pods, claims, reconciler)
