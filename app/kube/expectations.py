"""Expectations: what our own writes will make the cache show, so that nobody decides on a cache that lags behind.

A controller that has just created a Pod must not count its Pods again before the cache has that one, or it would create
one too many. Two kinds (PM-95 to PM-98), in memory only: after a restart the first list is complete anyway.
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

#: Seconds. A clock that counts in floats may not notice fewer, and whoever waits for that would come back for ever.
SHORTEST_WAIT: Final = 0.001


class ScaleAction(StrEnum):
    """What is expected of an object."""

    CREATE = "create"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class Unsatisfied:
    """Something expected is not seen yet. ``waited``: seconds since this was first noticed (PM-98)."""

    waited: float
    #: Says what is outstanding. There may be thousands of names, and hardly anybody asks.
    says: Callable[[], str] = field(repr=False)

    @property
    def outstanding(self) -> str:
        """The names outstanding per action, or the resourceVersion outstanding; for messages."""
        return self.says()

    def remaining(self, timeout: float) -> float:
        """Seconds left until it should be given up; zero when that time has come."""
        left = timeout - self.waited
        return max(left, SHORTEST_WAIT) if left > 0 else 0.0


class _UnsatisfiedSince(Generic[K]):
    """Since when each key is found unsatisfied."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since: dict[K, float] = {}

    def waited(self, key: K) -> float:
        now = self._clock.monotonic()
        return now - self._since.setdefault(key, now)

    def clear(self, key: K) -> None:
        self._since.pop(key, None)


class ScaleExpectations(Generic[K]):
    """PM-95: per workload the names of objects that are being created and deleted.

    Expect before the request is sent; observe when the cache shows it, and also when the request failed.
    """

    def __init__(self, clock: Clock) -> None:
        self._names: dict[K, dict[ScaleAction, set[str]]] = {}
        self._since: _UnsatisfiedSince[K] = _UnsatisfiedSince(clock)

    def expect(self, key: K, action: ScaleAction, name: str) -> None:
        """The object of that name is about to be created or deleted."""
        self._names.setdefault(key, {}).setdefault(action, set()).add(name)

    def observe(self, key: K, action: ScaleAction, name: str) -> bool:
        """It was, or will not be. Whether that was expected."""
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
        """The workloads that expect this of the object of that name."""
        return [key for key, actions in self._names.items() if name in actions.get(action, ())]

    def unsatisfied(self, key: K) -> Unsatisfied | None:
        """What is outstanding, None when nothing is."""
        actions = self._names.get(key)
        if not actions:
            self._since.clear(key)
            return None
        return Unsatisfied(self._since.waited(key), partial(_names_of, actions))

    def forget(self, key: K) -> None:
        """The workload is gone, or its expectations are given up."""
        self._names.pop(key, None)
        self._since.clear(key)


def _names_of(actions: Mapping[ScaleAction, Collection[str]]) -> str:
    return "; ".join(f"{action} {', '.join(sorted(names))}" for action, names in sorted(actions.items()))


class ResourceVersionExpectations:
    """PM-97: per object (uid) the newest version a write of ours gave it."""

    def __init__(self, clock: Clock) -> None:
        self._versions: dict[str, str] = {}
        self._since: _UnsatisfiedSince[str] = _UnsatisfiedSince(clock)

    def expect(self, written: Meta) -> None:
        """The metadata of a write's answer; an older one than is expected already changes nothing."""
        uid, version = written.uid or "", written.resource_version or ""
        expected = self._versions.get(uid)
        if expected is None or not is_at_least(expected, version):
            self._versions[uid] = version

    def observe(self, cached: Meta) -> None:
        """The cache shows this."""
        uid = cached.uid or ""
        expected = self._versions.get(uid)
        if expected is not None and is_at_least(cached.resource_version or "", expected):
            self.forget(uid)

    def unsatisfied(self, cached: Meta) -> Unsatisfied | None:
        """Whether the cached object is older than what we wrote; one that is new enough counts as observed."""
        self.observe(cached)
        uid = cached.uid or ""
        expected = self._versions.get(uid)
        if expected is None:
            return None
        says = f"resourceVersion {expected}, have {cached.resource_version}"
        return Unsatisfied(self._since.waited(uid), lambda: says)

    def forget(self, uid: str) -> None:
        """The object is gone, or its expectation is given up."""
        self._versions.pop(uid, None)
        self._since.clear(uid)


def is_at_least(cached: str, expected: str) -> bool:
    """PM-97: compared as unsigned integers; an expectation that is no number is met, a cached version that is none
    is not."""
    if not _is_number(expected):
        return True
    return _is_number(cached) and int(cached) >= int(expected)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()
