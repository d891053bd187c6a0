"""Carries out the rollout of a SidecarSet: writes each planned Pod independently.

The result of each write is counted immediately, so that the next decision does not wait for the cache. A failure delays
only that Pod.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from app.features.sidecarset.kind import SIDECAR_SET
from app.features.sidecarset.plan.pod_state import condition_patch
from app.features.sidecarset.plan.settings import SetView
from app.features.sidecarset.plan.status import Judged, Neighbor, Neighbors, PodCounts
from app.features.sidecarset.plan.update import CannotUpdateError, PodUpdate, idled, next_pods, next_to_idle, updated
from app.features.sidecarset.types import SidecarSet
from app.kube.client import Client, PatchType, get_or_none
from app.kube.concurrency import concurrently
from app.kube.errors import UNANSWERED, Conflict, KubeError, NotFound, message_of
from app.kube.events import EventRecorder, reference
from app.kube.objects import ObjectReference, Pod, decode_pod
from app.kube.resources import PODS, ObjectKey
from app.kube.store import key_of
from app.pods.disruption_budget import RETRY_SECONDS, Disruption, DisruptionBudget

logger = logging.getLogger(__name__)

#: Pods written per batch, how many of them concurrently, and the seconds until the next batch.
MAX_AT_A_TIME: Final = 100
MAX_CONCURRENT: Final = 32
REQUEUE_DELAY: Final = 0.01
#: Initial and maximum back-off of a Pod after a failure, in seconds.
FIRST_HOLD: Final = 1.0
LONGEST_HOLD: Final = 60.0
#: Seconds until checking again whether other sets are done. [SS-131]
WAIT_FOR_OTHERS: Final = 0.5
#: Seconds within which a write reaches the cache, if it was carried out.
UNCERTAIN: Final = 30.0

UPDATED: Final = "SidecarsUpdated"
UPDATE_FAILED: Final = "FailedUpdateSidecars"
RESET: Final = "ResetContainerSucceed"
RESET_FAILED: Final = "ResetContainerFailed"
NOT_UPGRADABLE: Final = "NotUpgradablePods"

#: Receives a Pod as changed by a write.
Observe = Callable[[Pod], None]


@dataclass(slots=True)
class _Hold:
    """Back-off of a Pod until a monotonic time."""

    until: float
    delay: float
    why: str
    #: Whether the update may have been carried out despite the failure.
    uncertain: bool = False


@dataclass(slots=True)
class Progress:
    """State of one rollout, kept in memory only."""

    held: dict[str, _Hold] = field(default_factory=dict)
    #: The set's hash, and the number of Pods last reported as not upgradable. [SS-123]
    reported: tuple[str, int] = ("", 0)
    #: Whether Pods wait for another set to finish. [SS-131]
    waits: bool = False


@dataclass(frozen=True, slots=True)
class SetReconcile:
    """One reconcile of one set."""

    owner: SidecarSet
    view: SetView
    pod_counts: PodCounts
    progress: Progress
    #: The ControllerRevision of the current set.
    latest: str
    observe: Observe
    #: ``neighbor`` returns another set by name, and ``writing`` maps Pods being written to the sets that write them.
    neighbor: Callable[[str], Neighbor | None]
    writing: dict[ObjectKey, str]


#: An operation on one Pod.
Work = Callable[[SetReconcile, Pod], Awaitable[None]]


class Roller:
    """Writes Pods. Restarting a container requires permission from ``budget``; None allows every restart."""

    def __init__(self, client: Client, events: EventRecorder, budget: DisruptionBudget | None) -> None:
        self._client = client
        self._clock = client.clock
        self._events = events
        self._budget = budget

    async def carry_out(self, one: SetReconcile) -> float:
        """Carry out the pending work on the set's Pods; return the seconds until the next reconcile, or 0. [SS-83,
        SS-92 … SS-107]"""
        began = self._clock.monotonic()
        self._release(one.progress)
        if not one.view.strategy.rolling:
            return 0.0
        one.progress.waits = False
        more = await self._end_hot_upgrades(one)  # Also while the rollout is paused. [SS-83]
        if not one.view.strategy.paused:
            self._record_blocked(one)
            more |= await self._update(one)
            # Write conditions after updates, so that a Pod just updated gets its condition immediately.
            more |= await self._each(one, one.pod_counts.condition_due, self._write_condition)
        if more:
            return REQUEUE_DELAY
        if one.progress.waits:
            return WAIT_FOR_OTHERS
        # A Pod whose back-off ended during this reconcile may have been skipped just before.
        until = min((hold.until for hold in one.progress.held.values() if hold.until > began), default=None)
        # A delay below the resolution of a float clock would requeue forever.
        return 0.0 if until is None else max(REQUEUE_DELAY, until - self._clock.monotonic())

    def _release(self, progress: Progress) -> None:
        """Forget back-offs that have been over for at least as long as they lasted. Until then, another failure doubles
        them."""
        now = self._clock.monotonic()
        for uid, hold in list(progress.held.items()):
            if now >= hold.until + hold.delay:
                del progress.held[uid]

    def _holds(self, progress: Progress) -> dict[str, _Hold]:
        now = self._clock.monotonic()
        return {uid: hold for uid, hold in progress.held.items() if hold.until > now}

    async def _each(self, one: SetReconcile, due: Iterable[Judged], work: Work) -> bool:
        """Apply the operation to every Pod that is not in back-off; return whether some are left for the next
        reconcile."""
        held = self._holds(one.progress)
        pods = [judged.pod for judged in due if judged.pod.metadata.uid not in held]
        await concurrently((self._attempt(one, pod, work) for pod in pods[:MAX_AT_A_TIME]), MAX_CONCURRENT)
        return len(pods) > MAX_AT_A_TIME

    async def _end_hot_upgrades(self, one: SetReconcile) -> bool:
        """End hot upgrades. This briefly makes a ready Pod unready, which its other sets must allow. [SS-81, SS-131]"""
        beside = Neighbors(one.view.name, one.neighbor, one.writing)
        due = next_to_idle(one.view.strategy, one.pod_counts, self._holds(one.progress), beside)
        one.progress.waits |= beside.waited
        await self._written(one, due, self._idle)
        return len(due) > MAX_AT_A_TIME

    async def _update(self, one: SetReconcile) -> bool:
        """Update Pods; if one fails, another takes its place. Returns whether some are left for the next reconcile.
        [SS-95, SS-102]"""
        left = MAX_AT_A_TIME
        while left:
            holds = self._holds(one.progress)
            uncertain = sum(hold.uncertain for hold in holds.values())
            beside = Neighbors(one.view.name, one.neighbor, one.writing)
            chosen = next_pods(one.view.strategy, one.pod_counts, holds, uncertain, left, beside)
            one.progress.waits |= beside.waited
            if not chosen:
                return False
            await self._written(one, chosen, self._take)
            left -= len(chosen)
        return True

    async def _written(self, one: SetReconcile, chosen: Sequence[Judged], work: Work) -> None:
        """Write these Pods. Concurrent decisions take them into account from the moment they are chosen."""
        writing = dict.fromkeys((key_of(judged.pod) for judged in chosen), one.view.name)
        one.writing.update(writing)
        try:
            await self._each(one, chosen, work)
        finally:
            for key in writing:
                one.writing.pop(key, None)

    async def _attempt(self, one: SetReconcile, pod: Pod, work: Work) -> None:
        """Run the operation on one Pod; a failure does not affect others. [SS-102]"""
        progress, uid = one.progress, pod.metadata.uid
        try:
            await work(one, pod)
        except (NotFound, Conflict):
            # The Pod was deleted, or written by another client. The cache will reflect that.
            progress.held[uid] = _Hold(self._clock.monotonic() + FIRST_HOLD, FIRST_HOLD, "")
        except CannotUpdateError as error:
            self._put_off(one, pod, str(error))
        except UNANSWERED as error:
            self._put_off(one, pod, message_of(error), uncertain=not await self._read_back(one, pod))
        except KubeError as error:
            self._put_off(one, pod, message_of(error))
        else:
            hold = progress.held.get(uid)
            if hold is not None and hold.until <= self._clock.monotonic():
                del progress.held[uid]

    async def _read_back(self, one: SetReconcile, pod: Pod) -> bool:
        """Read the Pod after a write without a response, which may have been carried out. Return whether its state is
        known."""
        with suppress(KubeError):
            found = await get_or_none(self._client, PODS, pod.metadata.name, pod.metadata.namespace, decode=decode_pod)
            if found is not None:
                one.observe(found)
            return True
        return False

    def _put_off(self, one: SetReconcile, pod: Pod, why: str, *, uncertain: bool = False) -> None:
        known = one.progress.held.get(pod.metadata.uid)
        delay = min(LONGEST_HOLD, known.delay * 2) if known is not None else FIRST_HOLD
        if uncertain:
            delay = max(delay, UNCERTAIN)
        until = self._clock.monotonic() + delay
        one.progress.held[pod.metadata.uid] = _Hold(until, delay, why, uncertain)
        where = f"{pod.metadata.namespace}/{pod.metadata.name}"
        logger.warning("SidecarSet %s: Pod %s is not updated: %s", one.view.name, where, why)
        if known is None or known.why != why:
            self._events.event(self._regarding(one), "Warning", UPDATE_FAILED, f"Pod {where}: {why}")

    def _regarding(self, one: SetReconcile) -> ObjectReference:
        return reference(SIDECAR_SET.resource(), one.owner)

    # ---- operations on one Pod

    async def _take(self, one: SetReconcile, pod: Pod) -> None:
        """Update one Pod if its budget allows it. [SS-98]"""
        version = one.owner.metadata.resource_version
        update = updated(one.view, pod, one.latest, version, self._clock.now())
        if not await self._may(one, pod, update):
            return
        await self._write(one, pod, update)
        self._events.event(reference(PODS, pod), "Normal", UPDATED, f"SidecarSet {one.view.name}: {update}")

    async def _idle(self, one: SetReconcile, pod: Pod) -> None:
        """End a hot upgrade. [SS-81]"""
        update = idled(one.view, pod, self._clock.now())
        if not await self._may(one, pod, update):
            return
        try:
            await self._write(one, pod, update)
        except (NotFound, Conflict):
            raise
        except KubeError as error:
            why = f"reset sidecar container image empty failed: {message_of(error)}"
            self._events.event(reference(PODS, pod), "Warning", RESET_FAILED, why)
            raise
        why = "reset sidecar container image empty successfully"
        self._events.event(reference(PODS, pod), "Normal", RESET, why)

    async def _may(self, one: SetReconcile, pod: Pod, update: PodUpdate) -> bool:
        """Return whether the Pod's budget allows the update. An update of only annotations disrupts nothing.
        [PM-171]"""
        if self._budget is None or not update.images:
            return True
        verdict = await self._budget.ask(pod, Disruption.UPDATE)
        if not verdict.allowed:
            until = self._clock.monotonic() + RETRY_SECONDS
            one.progress.held[pod.metadata.uid] = _Hold(until, FIRST_HOLD, verdict.reason)
        return verdict.allowed

    async def _write(self, one: SetReconcile, pod: Pod, update: PodUpdate) -> None:
        namespace, name = pod.metadata.namespace, pod.metadata.name
        written = await self._client.patch(
            PODS, name, update.patch, namespace, kind=PatchType.STRATEGIC, decode=decode_pod
        )
        logger.info("SidecarSet %s: Pod %s/%s: %s", one.view.name, namespace, name, update)
        one.observe(written)

    # ---- conditions and events

    async def _write_condition(self, one: SetReconcile, pod: Pod) -> None:
        """Write the Pod's condition. [SS-105]"""
        facts = one.pod_counts.facts_of(pod)
        if facts is None or facts.upgradable is None:
            return
        written = await self._client.patch(
            PODS,
            pod.metadata.name,
            condition_patch(pod, one.view.name, facts.upgradable, self._clock.now()),
            pod.metadata.namespace,
            kind=PatchType.STRATEGIC,
            subresource="status",
            decode=decode_pod,
        )
        one.observe(written)

    def _record_blocked(self, one: SetReconcile) -> None:
        """Record an event if more Pods than last reported cannot be updated. [SS-93, SS-123]"""
        blocked, progress = one.pod_counts.blocked, one.progress
        if blocked and (progress.reported[0] != one.view.hash or blocked > progress.reported[1]):
            text = f"SidecarSet in-place update detected {blocked} not upgradable pod(s) in this round, will skip them."
            self._events.event(self._regarding(one), "Normal", NOT_UPGRADABLE, text)
        progress.reported = (one.view.hash, blocked)
