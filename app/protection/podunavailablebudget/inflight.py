"""What was granted and is not seen done yet: when an entry holds, and when it leaves (PUB-54 … PUB-57). Pure.

The status has two maps, Pod → time of the grant: ``disruptedPods`` for deletions and evictions, ``unavailablePods`` for
updates and resizes. A Pod in one of them does not count as available, and is not charged again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

import msgspec

from app.protection.podunavailablebudget.podstate import PodFacts, RunningContainer, runs_other_images

#: PUB-55, PUB-56: how long a grant is waited for.
DISRUPTED_FOR: Final = timedelta(seconds=20)
UNAVAILABLE_FOR: Final = timedelta(seconds=10)
#: Clocks of replicas differ; what is noted for later than this is nothing that was granted.
CLOCK_SKEW: Final = timedelta(seconds=60)
#: PUB-67: more are not granted at once.
MAX_ENTRIES: Final = 2_000

_time: Final = msgspec.json.Decoder(datetime)


def parse_time(text: object) -> datetime | None:
    """A time as the API has it; None for anything else."""
    if not isinstance(text, str) or len(text) > 40:
        return None
    try:
        found = msgspec.convert(text, datetime)
    except msgspec.ValidationError:
        return None
    return found if found.tzinfo is not None else None


def holds(noted: object, now: datetime, lasts: timedelta) -> bool:
    """Whether an entry still stands for a grant."""
    at = parse_time(noted)
    return at is not None and now - lasts <= at <= now + CLOCK_SKEW


@dataclass(frozen=True, slots=True)
class Seen:
    """What the controller has seen of a Pod since it first saw its entry, or since it was granted in this process."""

    noted: str
    uid: str
    spec: tuple[int, tuple[str, ...]]
    #: What ran at first.
    running: tuple[RunningContainer, ...] = ()
    #: Which grant of this process it is since; 0 for one of another.
    grant: int = 0
    #: Since when the Pod was ready when its spec was first seen changed.
    changed: bool = False
    ready_since: datetime | None = None
    #: Whether it was not healthy, or became ready anew, since then.
    dipped: bool = False

    def after(self, pod: PodFacts) -> Seen:
        """The same with what is to be seen now."""
        if pod.spec != self.spec and not self.changed:
            return replace(self, spec=pod.spec, changed=True, ready_since=pod.ready_since, dipped=not pod.healthy)
        if not self.changed or self.dipped:
            return self
        return replace(self, spec=pod.spec, dipped=not pod.healthy or pod.ready_since != self.ready_since)

    def is_back(self, pod: PodFacts) -> bool:
        """PUB-56: whether the update came, and the Pod with it is healthy again. It may be so soon that nobody saw it
        unhealthy, and within the second since when it was ready before; what runs tells it then."""
        return self.changed and pod.healthy and (self.dipped or runs_other_images(self.running, pod))


def first_seen(noted: str, pod: PodFacts) -> Seen:
    """A Pod whose entry is new to us."""
    return Seen(noted, pod.uid, pod.spec, pod.running)


class EntryState(StrEnum):
    """What becomes of an entry."""

    STAYS = "stays"
    #: Done, or about a Pod that there is no more.
    DONE = "done"
    #: Its time is over; the Pod has to be looked at before it counts again.
    OVERDUE = "overdue"


def entry_state(noted: str, pod: PodFacts | None, seen: Seen | None, now: datetime, lasts: timedelta) -> EntryState:
    """PUB-54 … PUB-56. ``pod``: as the cache has it, None where it has none; ``seen``: what was seen of it before.

    An entry about a Pod that the cache has never shown stays its time: it may be the cache that is behind.
    """
    if not holds(noted, now, lasts):
        return EntryState.OVERDUE if pod is not None and pod.active else EntryState.DONE
    if seen is not None and seen.noted == noted and (pod is None or pod.uid != seen.uid):
        return EntryState.DONE
    if pod is not None and not pod.active:
        return EntryState.DONE
    return EntryState.STAYS


def seconds_left(noted: str, now: datetime, lasts: timedelta) -> float:
    """How long an entry that holds will hold yet."""
    at = parse_time(noted)
    return max(0.0, (min(at, now) + lasts - now).total_seconds()) if at is not None else 0.0


def track(
    entries: Mapping[str, str],
    pods: Mapping[str, PodFacts],
    before: Mapping[str, Seen],
    granted: Mapping[str, Seen] | None = None,
) -> dict[str, Seen]:
    """What is seen of the Pods that have an entry, entry by entry.

    ``granted``: Pods as they were when this process granted it; of others what is seen first may be the update already.
    """
    found = {}
    for name, noted in entries.items():
        pod, known, origin = pods.get(name), before.get(name), (granted or {}).get(name)
        if origin is not None and (pod is None or (origin.noted, origin.uid) != (noted, pod.uid)):
            origin = None
        if pod is not None and origin is not None and (known is None or known.grant != origin.grant):
            found[name] = origin.after(pod)
        elif known is None or known.noted != noted:
            if pod is not None:
                found[name] = first_seen(noted, pod)
        else:
            found[name] = known.after(pod) if pod is not None and pod.uid == known.uid else known
    return found
