"""Budget controller: annotates the Pods and writes the status. [PUB-50 … PUB-59]"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from app.features.podunavailablebudget.budgets import Grants, entries_of
from app.features.podunavailablebudget.index import Claims
from app.features.podunavailablebudget.kind import POD_UNAVAILABLE_BUDGET
from app.features.podunavailablebudget.plan.pods import PodFacts, facts_of, related_annotations, related_budget
from app.features.podunavailablebudget.plan.status import Observed, Recomputed, Seen, recompute, track
from app.features.podunavailablebudget.targets import Caches, Members, UnknownWorkloadError, Workloads, relevant_parts
from app.features.podunavailablebudget.types import PodUnavailableBudget, PodUnavailableBudgetStatus
from app.kube.client import Client
from app.kube.concurrency import concurrently
from app.kube.controller import Result
from app.kube.errors import Forbidden, KubeError, NotFound, message_of
from app.kube.events import EventRecorder, reference
from app.kube.expectations import ResourceVersionExpectations, is_at_least
from app.kube.objects import Pod, decode_pod
from app.kube.quantities import IntOrPercentError
from app.kube.resources import PODS, ObjectKey
from app.kube.rulings import Ruling
from app.kube.statuses import Statuses, patch_pod_metadata
from app.kube.store import Change
from app.pods.custom_workloads import HOW_TO_GRANT, GroupKind

#: Maximum number of concurrent requests for individual Pods.
MAX_CONCURRENT: Final = 16
#: Seconds over which Pod changes are coalesced.
GATHER: Final = 0.02
#: Seconds until a budget of an unwatched workload is requeued.
UNWATCHED_AGAIN: Final = 5.0
#: Seconds until discovery of an unserved kind is retried.
UNKNOWN_KIND_RETRY: Final = 30.0
#: Maximum number of Pods named in an event.
NAMED: Final = 5


@dataclass(frozen=True, slots=True)
class _LivePod:
    """A Pod read from the API server. ``facts`` is None if it is gone; ``uid`` is the UID of the cached Pod."""

    uid: str
    version: str = ""
    facts: PodFacts | None = None


class BudgetReconciler:
    """Reconciles budgets. ``statuses`` and ``grants`` are shared with the budget checks of this process. For
    ``listed``, see :class:`Workloads`."""

    def __init__(
        self,
        client: Client,
        caches: Caches,
        statuses: Statuses[PodUnavailableBudget],
        events: EventRecorder,
        listed: Callable[[], Collection[GroupKind]],
        *,
        vertical_scaling: bool,
        grants: Grants | None,
    ) -> None:
        self._client = client
        self._caches = caches
        self._statuses = statuses
        self._events = events
        self._vertical_scaling = vertical_scaling
        self._workloads = Workloads(client, caches, listed)
        self._claims = Claims(caches.budgets)
        self._grants = grants or Grants()
        self._facts: dict[str, tuple[str, PodFacts]] = {}
        self._seen: dict[ObjectKey, dict[str, Seen]] = {}
        #: Pods read from the API server that the cache has not caught up with.
        self._live_pods: dict[ObjectKey, dict[str, _LivePod]] = {}
        self._last_events: dict[ObjectKey, str] = {}
        self._annotated = ResourceVersionExpectations(client.clock)

    def of_budget(self, change: Change[PodUnavailableBudget]) -> Iterable[ObjectKey]:
        """Return the key of the budget, and if it was deleted, those of the budgets that may take over its Pods."""
        metadata = change.object.metadata
        keys = [ObjectKey(metadata.namespace, metadata.name)]
        if change.new is None:
            keys += [ObjectKey(metadata.namespace, name) for name in self._claims.names(metadata.namespace)]
        return keys

    def of_pod(self, change: Change[Pod]) -> Iterable[ObjectKey]:
        """Return the budgets affected by a relevant Pod change: the one in its annotation and those that match it.
        [PUB-122]"""
        pod = change.object
        namespace = pod.metadata.namespace
        if change.new is None:
            self._facts.pop(pod.metadata.uid, None)
            self._annotated.forget(pod.metadata.uid)
        else:
            self._annotated.observe(change.new.metadata)
        known = self._claims.names(namespace)
        if not known or (change.old is not None and change.new is not None and self._alike(change.old, change.new)):
            return ()
        found = set()
        for one in (change.old, change.new):
            if one is None:
                continue
            above = self._workloads.above(one) if self._claims.has_targets(namespace) else ()
            found |= {claim.name for claim in self._claims.matching(namespace, one.metadata.labels, above)}
            found.add(related_budget(one.metadata.annotations))
        return [ObjectKey(namespace, name) for name in sorted(found) if name in known]

    def _alike(self, old: Pod, new: Pod) -> bool:
        before = self._facts.get(old.metadata.uid)
        known = before[1] if before is not None else facts_of(old, vertical_scaling=self._vertical_scaling)
        return (
            known == self._facts_of(new)
            and old.metadata.labels == new.metadata.labels
            and related_budget(old.metadata.annotations) == related_budget(new.metadata.annotations)
        )

    def of_workload(self, kind: GroupKind) -> Callable[[Change[Any]], Iterable[ObjectKey]]:
        """Return a mapper that returns the budgets of a workload of this kind when it is created, deleted or scaled.

        Budgets with a selector are found by the labels of the Pod template. [PUB-50]
        """

        def keys(change: Change[Any]) -> Iterable[ObjectKey]:
            namespace = change.object.metadata.namespace
            if not self._claims.names(namespace):
                return ()
            workload, labels, replicas = relevant_parts(kind, change.object)
            if change.old is not None and change.new is not None:
                gone = [bool(one.metadata.deletion_timestamp) for one in (change.old, change.new)]
                if relevant_parts(kind, change.old)[2] == replicas and gone[0] == gone[1]:
                    return ()
            return [ObjectKey(namespace, one.name) for one in self._claims.matching(namespace, labels, (workload,))]

        return keys

    async def __call__(self, key: ObjectKey) -> Result | None:
        """Reconcile one budget. [PUB-51]"""
        budget = self._caches.budgets.by_key(key)
        if budget is None or budget.deleting:
            self._seen.pop(key, None)
            self._grants.keep(key, ())
            self._live_pods.pop(key, None)
            self._last_events.pop(key, None)
            return None
        try:
            members = await self._workloads.members(budget)
        except UnknownWorkloadError as error:
            # The spec is at fault, but the error disappears once the kind is installed.
            self._event_once(key, budget, "UnknownWorkload", str(error))
            return Result(requeue_after=UNKNOWN_KIND_RETRY)
        except Forbidden as error:
            said = f"The manager is not allowed to read a workload: {message_of(error)}; {HOW_TO_GRANT}"
            self._event_once(key, budget, "MissingRight", said)
            raise
        failure = await self._annotate(budget, members.pods)
        self._record_of_others(key, budget, members)
        found = await self._write(key, budget, members)
        if failure is not None:
            raise failure
        if found is None:
            return None
        waits = [seconds for seconds in (found.again_after, None if members.watched else UNWATCHED_AGAIN) if seconds]
        return Result(requeue_after=min(waits)) if waits else None

    async def _write(self, key: ObjectKey, budget: PodUnavailableBudget, members: Members) -> Recomputed | None:
        """Write the status, computed from the latest known version of the budget. [PUB-54, PUB-58]"""
        pods = {pod.metadata.name: self._facts_of(pod) for pod in members.pods}
        pods.update(self._going(self._statuses.freshest(key) or budget, pods))
        self._override_cached(key, pods)
        now = self._client.clock.now()
        seen = self._track(key, self._statuses.freshest(key) or budget, pods)
        confirmed: Mapping[str, PodFacts | None] = {}

        def decision(fresh: PodUnavailableBudget | None) -> Ruling[PodUnavailableBudget, Recomputed]:
            if fresh is None or fresh.deleting or not fresh.has_spec_of(budget):
                return Ruling(Recomputed(PodUnavailableBudgetStatus()), provisional=True)
            latest = self._grants.latest(key, seen)
            found = recompute(fresh, Observed(pods, members.expected, now, latest, confirmed))
            changed = None if found.status is fresh.status else fresh.model_copy(update={"status": found.status})
            # An unchanged status is not written.
            return Ruling(found, changed, provisional=True)

        try:
            overdue = recompute(
                self._statuses.freshest(key) or budget, Observed(pods, members.expected, now, seen)
            ).overdue
            if overdue:
                confirmed = await self._read_live(key, overdue, pods)
            found = await self._statuses.decide(key, decision)
        except IntOrPercentError as error:
            field = "minAvailable" if budget.spec.max_unavailable is None else "maxUnavailable"
            self._event(budget, "Warning", "CalculateExpectedPodCountFailed", f"spec.{field}: {error}")
            return None  # the update that fixes it requeues the budget
        for name in found.not_deleted:
            self._record_not_deleted(budget, name)
        return found

    def _going(self, budget: PodUnavailableBudget, members: Container[str]) -> dict[str, PodFacts]:
        """Return the Pods that have an entry but no longer belong to the budget and are terminating or terminated
        according to the cache. [PUB-54]"""
        found = (self._caches.pods.get(name, budget.metadata.namespace) for name in entries_of(budget))
        return {
            pod.metadata.name: facts
            for pod in found
            if pod is not None and pod.metadata.name not in members and not (facts := self._facts_of(pod)).active
        }

    def _track(self, key: ObjectKey, budget: PodUnavailableBudget, pods: Mapping[str, PodFacts]) -> dict[str, Seen]:
        entries = entries_of(budget)
        self._grants.keep(key, entries.keys())
        self._seen[key] = track(entries, pods, self._seen.get(key, {}), self._grants.of(key))
        return self._seen[key]

    async def _read_live(
        self, key: ObjectKey, names: Iterable[str], pods: Mapping[str, PodFacts]
    ) -> Mapping[str, PodFacts | None]:
        """Read the named Pods from the API server. Return None for a Pod that is gone; omit Pods that cannot be read.
        They are retried later."""

        async def read(name: str) -> tuple[str, _LivePod] | None:
            uid = pods[name].uid
            try:
                pod = await self._client.get(PODS, name, key.namespace, decode=decode_pod)
            except NotFound:
                return name, _LivePod(uid)
            except (KubeError, ValueError):
                return None
            if pod.metadata.uid != uid:
                return name, _LivePod(uid)
            facts = facts_of(pod, vertical_scaling=self._vertical_scaling)
            return name, _LivePod(uid, pod.metadata.resource_version, facts)

        found = dict([one for one in await concurrently(map(read, names), MAX_CONCURRENT) if one is not None])
        self._live_pods.setdefault(key, {}).update(found)
        return {name: one.facts for name, one in found.items()}

    def _override_cached(self, key: ObjectKey, pods: dict[str, PodFacts]) -> None:
        """Override cached Pods with those read from the API server until the cache has caught up. [PUB-54]

        Otherwise a stale cache would show an updated or deleted Pod as available.
        """
        live_pods = self._live_pods.pop(key, {})
        behind = {}
        for name, one in live_pods.items():
            cached = self._caches.pods.get(name, key.namespace)
            if cached is None or cached.metadata.uid != one.uid:
                continue
            if one.facts is not None and is_at_least(cached.metadata.resource_version, one.version):
                continue
            behind[name] = one
            if one.facts is not None and name in pods:
                pods[name] = one.facts
            else:
                pods.pop(name, None)
        if behind:
            self._live_pods[key] = behind

    def _facts_of(self, pod: Pod) -> PodFacts:
        uid, version = pod.metadata.uid, pod.metadata.resource_version
        known = self._facts.get(uid)
        if known is None or known[0] != version:
            known = self._facts[uid] = version, facts_of(pod, vertical_scaling=self._vertical_scaling)
        return known[1]

    async def _annotate(self, budget: PodUnavailableBudget, pods: Iterable[Pod]) -> KubeError | None:
        """Annotate the Pods whose annotation does not name an existing budget. Return the first error. [PUB-32,
        PUB-122]"""
        namespace, name = budget.metadata.namespace, budget.metadata.name
        known, by_target = self._claims.names(namespace), self._claims.has_targets(namespace)
        wanted = [
            pod
            for pod in pods
            if related_budget(pod.metadata.annotations) not in known
            and self._annotated.unsatisfied(pod.metadata) is None
            and self._claims.budget_for(namespace, pod.metadata.labels, self._workloads.above(pod) if by_target else ())
            in ("", name)
        ]

        async def annotate(pod: Pod) -> KubeError | None:
            try:
                written = await patch_pod_metadata(self._client, pod, {"annotations": related_annotations(name)})
            except KubeError as error:
                return error
            if written is not None:
                self._annotated.expect(written.metadata)
            return None

        failures = [one for one in await concurrently(map(annotate, wanted), MAX_CONCURRENT) if one is not None]
        return failures[0] if failures else None

    def _record_of_others(self, key: ObjectKey, budget: PodUnavailableBudget, members: Members) -> None:
        """Record an event if no Pods match or other budgets protect some of them. [PUB-52, PUB-128]"""
        if not members.pods:
            self._event_once(key, budget, "NoPods", "No matching pods found", warning=False)
            return
        known = self._claims.names(key.namespace)
        theirs: dict[str, int] = {}
        for pod in members.pods:
            name = related_budget(pod.metadata.annotations)
            if name != key.name and name in known:
                theirs[name] = theirs.get(name, 0) + 1
        if theirs:
            shown = ", ".join(f"{name} ({count})" for name, count in sorted(theirs.items())[:NAMED])
            self._event_once(key, budget, "OverlappingBudgets", f"Pods protected by other budgets: {shown}")
        else:
            self._last_events.pop(key, None)

    def _event_once(
        self, key: ObjectKey, budget: PodUnavailableBudget, reason: str, message: str, *, warning: bool = True
    ) -> None:
        if self._last_events.get(key) != f"{reason} {message}":
            self._last_events[key] = f"{reason} {message}"
            self._event(budget, "Warning" if warning else "Normal", reason, message)

    def _record_not_deleted(self, budget: PodUnavailableBudget, name: str) -> None:
        """Record that a granted deletion did not happen. [PUB-55]"""
        metadata = budget.metadata
        pod = self._caches.pods.get(name, metadata.namespace)
        if pod is not None:
            text = f"Pod was expected by PUB {metadata.namespace}/{metadata.name} to be deleted but it wasn't"
            self._events.event(reference(PODS, pod), "Warning", "NotDeleted", text)

    def _event(self, budget: PodUnavailableBudget, kind: Any, reason: str, message: str) -> None:
        self._events.event(reference(POD_UNAVAILABLE_BUDGET.resource(), budget), kind, reason, message)
