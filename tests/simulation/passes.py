"""What a pass of a workload's controller knew when it began, and which writes are its doing.

A controller decides on what its caches show, which may be minutes old. So what it does is held against exactly that:
whatever others did since is no fault of the pass; what it did itself, it has to know.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import msgspec

from app.kube.objects import PersistentVolumeClaim, Pod
from app.pods.passes import Begun

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
    #: The names of the Pods it set out to create.
    wanted: set[str] = field(default_factory=set)

    def version_of(self, pod_uid: str) -> int:
        """The version of the Pod that it saw; 0: it did not see it."""
        return next((int(pod.metadata.resource_version) for pod in self.pods if pod.metadata.uid == pod_uid), 0)

    def pod(self, pod_uid: str) -> dict[str, Any] | None:
        """The Pod as it saw it, in its JSON form."""
        found = next((pod for pod in self.pods if pod.metadata.uid == pod_uid), None)
        return msgspec.to_builtins(found) if found is not None else None


#: The controller of the last pass that began, of each kind of controller.
_last: dict[type, object] = {}
_NOW: ContextVar[Pass | None] = ContextVar("pass of a workload's controller", default=None)


def current() -> Pass | None:
    """Whose doing a write is; None: not a workload's controller's."""
    known = _NOW.get()
    if known is None:
        return None
    task = asyncio.current_task()
    return None if task is not None and task.get_name() == _COLLECTOR else known


def works(controller: object) -> bool:
    """Whether it is the controller of its kind that works now: whoever begins a term looks at every workload."""
    return _last.get(type(controller)) is controller


def leave() -> None:
    """What this task does from now on is nobody's pass: it was only begun by a write of one."""
    _NOW.set(None)


@contextmanager
def forgotten() -> Iterator[None]:
    """Inside, no controller has worked before."""
    _last.clear()
    yield


class Observer:
    """Makes passes known to :func:`current`."""

    def begins(self, begun: Begun) -> None:
        """From now on this task's writes are those of this pass."""
        _last[type(begun.term)] = begun.term
        pods, claims = tuple(begun.pods), tuple(begun.claims)
        _NOW.set(Pass(begun.at, begun.uid, begun.generation, pods, claims, begun.term))

    def creates(self, names: Iterable[str]) -> None:
        """Remember them."""
        if (known := _NOW.get()) is not None:
            known.wanted.update(names)

    def ends(self) -> None:
        """Nobody's pass any more."""
        _NOW.set(None)
