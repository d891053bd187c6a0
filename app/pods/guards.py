"""Guards of Pods: who is asked before a Pod is deleted, evicted or changed. Each looks; the first refusal ends it.

All answer in one place (PW-20), so that a Pod costs one call whoever cares for it. The API server asks only about Pods
that carry the annotation of one of them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Any, Protocol

from app.kube.admission import Denied, Review


class GuardOrder(IntEnum):
    """PW-20: who is asked first. Who only keeps books comes last: what was refused before is not written down."""

    JUDGING = 20
    COUNTING = 30


@dataclass(frozen=True, slots=True)
class Guarded:
    """Which Pods a guard is asked about. ``whose``: theirs, in plain words; ``annotations``: a Pod of theirs has one of
    these."""

    whose: str
    annotations: tuple[str, ...]
    #: The gate with which it is asked before a Pod goes, and the one with which it is asked before a Pod changes: its
    #: spec, or labels that begin with these words (empty: never).
    removal_gate: str
    change_gate: str = ""
    label_prefix: str = ""


class PodRequestKind(StrEnum):
    """What is to be done to a Pod."""

    DELETE = "DELETE"
    EVICT = "EVICT"
    UPDATE = "UPDATE"


@dataclass(slots=True)
class PodRequest:
    """A Pod that is to go, or to change. ``dry_run``: nothing may be written down."""

    review: Review
    kind: PodRequestKind
    name: str
    namespace: str
    dry_run: bool
    fetch: Callable[[str, str], Awaitable[Mapping[str, Any] | None]]
    _fetched: list[Mapping[str, Any] | None] = field(default_factory=list)

    async def pod(self) -> Mapping[str, Any] | None:
        """The Pod as it is now, as raw JSON; None where there is none. The old one where it is to change. That of an
        eviction is read from the API server, once. Raises ``KubeError``."""
        if self.kind is not PodRequestKind.EVICT:
            return self.review.old_object
        if not self._fetched:
            self._fetched.append(await self.fetch(self.namespace, self.name))
        return self._fetched[0]


class PodGuard(Protocol):
    """One who is asked."""

    @property
    def order(self) -> int:
        """When it is asked: of :class:`GuardOrder`, or between two of them."""
        ...

    async def __call__(self, request: PodRequest) -> Denied | None:
        """A refusal, or nothing. Raises ``KubeError`` where it cannot say, which refuses with 400 (PW-21)."""
        ...
