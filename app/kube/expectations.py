"""Expectations: the effects of our own writes that the cache must reflect before the next decision.

A controller that has just created a Pod must not count its Pods again before the cache contains it, or it would create
one too many. Both kinds of expectations are kept only in memory: after a restart, the first list includes all writes.
[PM-95, PM-96, PM-97, PM-98]
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Final, Generic, TypeVar

from app.kube.clock import Clock
from app.kube.objects import Meta

K = TypeVar("K", bound=Hashable)

#: Minimum delay in seconds. With a float clock, a shorter delay may not advance the time, and the caller would requeue
#: forever.
SHORTEST_WAIT: Final = 0.001


class ScaleAction(StrEnum):
    """The expected change to an object."""

    CREATE = "create"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class Unsatisfied:
    """An unmet expectation. ``waited`` is the time in seconds since it was first noticed. [PM-98]"""

    waited: float
    #: Describes what is outstanding. Computed on demand: there may be thousands of names.
    says: Callable[[], str] = field(repr=False)

    @property
    def outstanding(self) -> str:
        """The outstanding names per action, or the outstanding resourceVersion, for messages."""
        return self.says()

    def remaining(self, timeout: float) -> float:
        """Return the seconds until the expectation times out; zero if it has."""
        left = timeout - self.waited
        return max(left, SHORTEST_WAIT) if left > 0 else 0.0


class _UnsatisfiedSince(Generic[K]):
    """Tracks how long each key has been unsatisfied."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since: dict[K, float] = {}

    def waited(self, key: K) -> float:
        now = self._clock.monotonic()
        return now - self._since.setdefault(key, now)

    def clear(self, key: K) -> None:
        self._since.pop(key, None)


class ScaleExpectations(Generic[K]):
    """Names of the objects that each workload is creating and deleting. [PM-95]

    Call ``expect`` before sending the request, and ``observe`` when the cache reflects the change or the request fails.
    """

    def __init__(self, clock: Clock) -> None:
        self._names: dict[K, dict[ScaleAction, set[str]]] = {}
        self._since: _UnsatisfiedSince[K] = _UnsatisfiedSince(clock)

    def expect(self, key: K, action: ScaleAction, name: str) -> None:
        """Record that the named object is about to be created or deleted."""
        self._names.setdefault(key, {}).setdefault(action, set()).add(name)

    def observe(self, key: K, action: ScaleAction, name: str) -> bool:
        """Record that the action happened or failed. Returns whether it was expected."""
        actions = self._names.get(key)
        if actions is None or name not in actions.get(action, ()):
            return False
        actions[action].discard(name)
        if not actions[action]:
            del actions[action]
        if not actions:
            self.forget(key)
        return True

    def awaiting(self, action: ScaleAction, name: str) -> list[K]:
        """Return the workloads that expect this action for the named object."""
        return [key for key, actions in self._names.items() if name in actions.get(action, ())]

    def unsatisfied(self, key: K) -> Unsatisfied | None:
        """Return the unmet expectation of a workload, or None."""
        actions = self._names.get(key)
        if not actions:
            return None
        return Unsatisfied(self._since.waited(key), partial(_names_of, actions))

    def forget(self, key: K) -> None:
        """Drop the expectations of a workload, because it is gone or the expectations timed out."""
        self._names.pop(key, None)
        self._since.clear(key)


def _names_of(actions: Mapping[ScaleAction, Collection[str]]) -> str:
    return "; ".join(f"{action} {', '.join(sorted(names))}" for action, names in sorted(actions.items()))


class ResourceVersionExpectations:
    """The newest resourceVersion that our writes gave each object (by uid). [PM-97]"""

    def __init__(self, clock: Clock) -> None:
        self._versions: dict[str, str] = {}
        self._since: _UnsatisfiedSince[str] = _UnsatisfiedSince(clock)

    def expect(self, written: Meta) -> None:
        """Record the metadata returned by a write. A version older than the expected one is ignored."""
        uid, version = written.uid or "", written.resource_version or ""
        expected = self._versions.get(uid)
        if expected is None or not is_at_least(expected, version):
            self._versions[uid] = version

    def observe(self, cached: Meta) -> None:
        """Drop the expectation if the cached version meets it."""
        uid = cached.uid or ""
        expected = self._versions.get(uid)
        if expected is not None and is_at_least(cached.resource_version or "", expected):
            self.forget(uid)

    def unsatisfied(self, cached: Meta) -> Unsatisfied | None:
        """Return the expectation if the cached object is older than our last write; otherwise drop it."""
        self.observe(cached)
        uid = cached.uid or ""
        expected = self._versions.get(uid)
        if expected is None:
            return None
        says = f"resourceVersion {expected}, have {cached.resource_version}"
        return Unsatisfied(self._since.waited(uid), lambda: says)

    def forget(self, uid: str) -> None:
        """Drop the expectation for an object, because the object is gone or the expectation timed out."""
        self._versions.pop(uid, None)
        self._since.clear(uid)


def is_at_least(cached: str, expected: str) -> bool:
    """Compare versions as unsigned integers: return whether the cached one is at least the expected one. A non-numeric
    expected version is always satisfied; a non-numeric cached version never satisfies a numeric one. [PM-97]"""
    if not _is_number(expected):
        return True
    return _is_number(cached) and int(cached) >= int(expected)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()
