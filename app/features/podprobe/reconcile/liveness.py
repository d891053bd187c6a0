"""Liveness controller: writes each node's liveness probes and restarts containers that fail them. [PPM-50 … PPM-55]"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from app.api import names
from app.features.containerrecreate.kind import REQUESTS, decode_request
from app.features.containerrecreate.types import ContainerRecreateRequest
from app.features.podprobe.objects import NodePodProbe
from app.features.podprobe.plan.liveness import (
    OWNER,
    Failure,
    failures,
    is_available,
    is_open,
    pod_entry,
    recreate_request,
    request_name,
)
from app.features.podprobe.plan.probes import MAX_BYTES, is_probed, present_probes, replace_probes
from app.features.podprobe.reconcile.markers import change_probes
from app.kube.client import Client, get_or_none
from app.kube.controller import Result
from app.kube.errors import AlreadyExists, ApiError, KubeError
from app.kube.events import EventRecorder, reference
from app.kube.objects import Pod, decode_metadata, decode_pod
from app.kube.resources import PODS, ObjectKey
from app.kube.store import Change, Store, key_of
from app.pods.disruption_budget import Disruption, DisruptionBudget, LeastAvailable
from app.pods.predicates import BY_CONTROLLER, owner_key

logger = logging.getLogger(__name__)

#: Seconds until a postponed restart is retried.
RETRY_SECONDS: Final = 2.0
#: Maximum delay between attempts to create a request if they keep failing while other restarts are postponed.
MAX_RETRY_SECONDS: Final = 300.0
#: The time of the first attempt, and the delay after it.
_NOW: Final = (0.0, RETRY_SECONDS)
#: Seconds for which a workload that cannot afford a restart is not examined again. Without this, its Pods would
#: be counted again for each failing container.
REFUSED_SECONDS: Final = 1.0
#: Seconds to wait for the watch to deliver a created request before the API server is asked whether it exists.
UNSEEN_SECONDS: Final = 30.0
FAILED_REASON: Final = "LivenessProbeFailed"
HELD_REASON: Final = "LivenessRestartHeldBack"
_NO_ROOM: Final = "LivenessProbesWithoutRoom"
BY_LIVENESS_NODE: Final = "liveness-node"
BY_REQUESTED_POD: Final = "requested-pod"


def liveness_nodes(pod: Pod) -> list[str]:
    """Index Pods by node name if the node agent runs their liveness probes."""
    node = pod.spec.node_name
    return [node] if node and names.CONTAINER_PROBE_CONTEXT in pod.metadata.annotations else []


def requested_pods(request: ContainerRecreateRequest) -> list[str]:
    """Index open requests by namespace and UID of the Pod, which is always in the request's namespace."""
    uid = request.metadata.labels.get(names.CRR_POD_UID, "")
    return [f"{request.metadata.namespace}/{uid}"] if is_open(request) else []


@dataclass(frozen=True, slots=True)
class Caches:
    """Caches the controller reads."""

    pods: Store[Pod]
    node_pod_probes: Store[NodePodProbe]
    requests: Store[ContainerRecreateRequest]


class LivenessReconciler:
    """Reconciles the liveness probes of one node per key."""

    def __init__(
        self,
        client: Client,
        caches: Caches,
        events: EventRecorder,
        budget: DisruptionBudget,
        workloads: Sequence[LeastAvailable],
    ) -> None:
        self._client = client
        self._clock = client.clock
        self._caches = caches
        self._events = events
        self._budget = budget
        self._workloads = workloads
        #: Restarts are decided one at a time; otherwise, two restarts could rely on the same available Pods.
        self._deciding = asyncio.Lock()
        #: Recently created requests: the UID of the Pod and the creation time.
        self._made: dict[ObjectKey, tuple[str, float]] = {}
        #: Workloads that cannot afford a restart, with the expiry of this entry and the reason.
        self._refused: dict[str, tuple[float, str]] = {}
        #: The last message recorded for each postponed request, by Pod UID.
        self._last_events: dict[str, dict[str, str]] = {}
        #: The time of the next attempt of each failed request, and the delay after it, by Pod UID and request name.
        self._attempts: dict[str, dict[str, tuple[float, float]]] = {}

    # ---- event mapping

    def keys_for_pod(self, change: Change[Pod]) -> Iterable[ObjectKey]:
        """Return the node of a Pod that has saved probes."""
        old, new = change.old, change.new
        if new is None:
            self._last_events.pop(change.object.metadata.uid, None)
            self._attempts.pop(change.object.metadata.uid, None)
        if old is not None and new is not None and _same(old, new):
            return ()
        return {ObjectKey("", node) for pod in (old, new) if pod is not None for node in liveness_nodes(pod)}

    def keys_for_node_pod_probe(self, change: Change[NodePodProbe]) -> Iterable[ObjectKey]:
        """Return the node if it has, or had, Pods with saved probes."""
        new = change.new
        if new is None or (change.old is not None and change.old == new):
            return ()
        name = new.metadata.name
        if self._caches.pods.by_index(BY_LIVENESS_NODE, name) or present_probes(new, OWNER):
            return (ObjectKey("", name),)
        return ()

    def keys_for_request(self, change: Change[ContainerRecreateRequest]) -> Iterable[ObjectKey]:
        """Return the node of a deleted request, which may have to be recreated."""
        self._made.pop(key_of(change.object), None)
        node = change.object.metadata.labels.get(names.CRR_NODE_NAME, "")
        if change.new is not None or not self._caches.pods.by_index(BY_LIVENESS_NODE, node):
            return ()
        return (ObjectKey("", node),)

    # ---- reconcile

    async def __call__(self, key: ObjectKey) -> Result | None:
        node_pod_probe = self._caches.node_pod_probes.get(key.name)
        if node_pod_probe is None or node_pod_probe.deleting:
            return None  # Either its creation event is still to come, or nothing is probed on this node.
        pods = [pod for pod in self._caches.pods.by_index(BY_LIVENESS_NODE, key.name) if is_probed(pod)]
        await self._probe(node_pod_probe, pods)
        states = {one.uid: one.probe_states for one in node_pod_probe.status.pod_probe_statuses}
        waits: list[float] = []
        failed: list[tuple[str, str, KubeError]] = []
        for pod in pods:
            await self._clock.sleep(0)  # reading the probes of hundreds of Pods at once would delay everything else
            for failure in failures(pod, states.get(pod.metadata.uid, ())):
                uid, name = pod.metadata.uid, request_name(pod, failure)
                due, _ = self._attempts.get(uid, {}).get(name, _NOW)
                if (wait := due - self._clock.monotonic()) > 0:
                    waits.append(wait)
                    continue
                try:
                    if not await self._restart(pod, failure):
                        waits.append(RETRY_SECONDS)
                except KubeError as error:
                    # An error for one Pod must not block the others.
                    logger.warning("Pod %s: %s cannot be restarted: %s", key_of(pod), failure.container, error)
                    failed.append((uid, name, error))
        if not waits and failed:
            raise failed[0][2]
        # The back-off after an error for one Pod, such as an exceeded quota, must not delay the others.
        for uid, name, _ in failed:
            attempts = self._attempts.setdefault(uid, {})
            _, delay = attempts.get(name, _NOW)
            attempts[name] = (self._clock.monotonic() + delay, min(2 * delay, MAX_RETRY_SECONDS))
        return Result(requeue_after=min(waits)) if waits else None

    async def _probe(self, node_pod_probe: NodePodProbe, pods: Sequence[Pod]) -> None:
        """Write the Pods' liveness probes to the NodePodProbe. [PPM-50]"""
        present = present_probes(node_pod_probe, OWNER)
        running: dict[str, set[str]] = defaultdict(set)
        for uid, (_, probes) in present.items():
            running[uid] = {one["name"] for one in probes}
        wanted = {}
        for pod in pods:
            await self._clock.sleep(0)
            wanted[pod.metadata.uid] = pod_entry(pod, running[pod.metadata.uid])
        asked = {uid: (one["IP"], one["probes"]) for uid, one in wanted.items() if one["probes"]}
        if asked != present:
            name = node_pod_probe.metadata.name
            without: set[str] = set()

            def edit(spec: dict[str, Any]) -> None:
                without.clear()
                if replace_probes(spec, None, OWNER, wanted):
                    fit = msgspec.convert({"spec": spec}, NodePodProbe)
                    without.update(asked.keys() - present_probes(fit, OWNER).keys())

            await change_probes(self._client, name, edit)
            self._record_without(pods, without)

    def _record_without(self, pods: Iterable[Pod], without: Collection[str]) -> None:
        """Record an event, once per Pod, for Pods whose probes do not run. [PPM-46]"""
        for pod in pods:
            told = self._last_events.setdefault(pod.metadata.uid, {})
            if pod.metadata.uid not in without or told.get(_NO_ROOM):
                continue
            told[_NO_ROOM] = message = (
                f"liveness probes do not run: of a node's {MAX_BYTES} bytes for probes, one namespace may use half of "
                "what other namespaces leave free; use shorter or fewer probes"
            )
            self._events.event(reference(PODS, pod), "Warning", _NO_ROOM, message)

    # ---- restarts

    async def _restart(self, pod: Pod, failure: Failure) -> bool:
        """Request the restart if possible. Return whether it has been requested, now or earlier. [PPM-52 … PPM-55]"""
        key = ObjectKey(pod.metadata.namespace, request_name(pod, failure))
        async with self._deciding:
            await self._look_up_unseen()
            if key in self._made or self._caches.requests.by_key(key) is not None:
                return True
            if (reason := self._held_back(pod)) is None:
                live = await self._live(pod, failure)
                if live is None:
                    return True  # that container is no longer running
                # The cache may not reflect yet that the Pod is ready.
                reason = self._held_back(live)
                if reason is None:
                    verdict = await self._budget.ask(live, Disruption.UPDATE)
                    reason = None if verdict.allowed else verdict.reason
            if reason is not None:
                self._record_held(pod, failure, reason)
                return False
            # The request may exist even if no response arrives.
            self._made[key] = (pod.metadata.uid, self._clock.monotonic())
            try:
                body = recreate_request(pod, failure)
                await self._client.create(REQUESTS, body, key.namespace, decode=decode_metadata)
            except AlreadyExists:
                return True
            except ApiError:
                self._made.pop(key, None)
                raise
        self._last_events.get(pod.metadata.uid, {}).pop(key.name, None)
        said = f": {failure.message}" if failure.message else ""
        message = f"Container {failure.container} failed its liveness probe and will be restarted{said}"
        self._events.event(reference(PODS, pod), "Warning", FAILED_REASON, message)
        return True

    async def _look_up_unseen(self) -> None:
        """Look up requests that the watch has not delivered in time. Otherwise, a stalled watch would allow too many
        restarts. [PPM-53]"""
        now = self._clock.monotonic()
        for key, (uid, made_at) in [*self._made.items()]:
            if now - made_at < UNSEEN_SECONDS:
                continue
            found = await get_or_none(self._client, REQUESTS, key.name, key.namespace, decode=decode_request)
            if found is not None and is_open(found):
                self._made[key] = (uid, now)
            else:
                self._made.pop(key, None)

    def _held_back(self, pod: Pod) -> str | None:
        """Return why the workload cannot afford a restart now, or None if it can. [PPM-53]"""
        owner, namespace = pod.metadata.controller, pod.metadata.namespace
        if owner is None or not is_available(pod, self._disrupted((pod,))):
            return None  # restarting an unavailable Pod does not reduce availability
        key, now = owner_key(owner, namespace), self._clock.monotonic()
        until, reason = self._refused.get(key, (0.0, ""))
        if now < until:
            return reason
        for least_available in self._workloads:
            try:
                least = least_available(owner, namespace)
            except LookupError as unknown:
                return str(unknown)
            if least is None:
                continue
            pods = self._caches.pods.by_index(BY_CONTROLLER, key)
            disrupted = self._disrupted(pods)
            available = sum(is_available(one, disrupted) for one in pods)
            if available <= least:
                reason = (
                    f"{owner.kind} {owner.name} has {available} Pods available, and its maxUnavailable "
                    f"allows no fewer than {least}"
                )
                self._refuse(key, reason, now)
                return reason
        return None

    def _disrupted(self, pods: Iterable[Pod]) -> set[str]:
        """Return the UIDs of the Pods whose containers are being restarted."""
        unseen = {uid for uid, _ in self._made.values()}
        requested = self._caches.requests.by_index
        return {
            one.metadata.uid
            for one in pods
            if one.metadata.uid in unseen or requested(BY_REQUESTED_POD, f"{one.metadata.namespace}/{one.metadata.uid}")
        }

    def _refuse(self, key: str, reason: str, now: float) -> None:
        """Remember the reason for a short time, and drop expired entries."""
        self._refused.pop(key, None)
        self._refused[key] = now + REFUSED_SECONDS, reason
        while self._refused[first := next(iter(self._refused))][0] <= now:
            del self._refused[first]

    async def _live(self, pod: Pod, failure: Failure) -> Pod | None:
        """Return the live Pod, or None if the same container is no longer running."""
        live = await get_or_none(self._client, PODS, pod.metadata.name, pod.metadata.namespace, decode=decode_pod)
        if live is None or live.metadata.uid != pod.metadata.uid or not is_probed(live):
            return None
        same = any(
            one.name == failure.container and one.container_id == failure.container_id and one.state.running is not None
            for one in live.status.container_statuses
        )
        return live if same else None

    def _record_held(self, pod: Pod, failure: Failure, reason: str) -> None:
        """Record an event, once per reason. [PPM-55]"""
        told, name = self._last_events.setdefault(pod.metadata.uid, {}), request_name(pod, failure)
        if told.get(name) != reason:
            told[name] = reason
            message = f"Container {failure.container} failed its liveness probe and is not restarted yet: {reason}"
            self._events.event(reference(PODS, pod), "Warning", HELD_REASON, message)


def _same(old: Pod, new: Pod) -> bool:
    """Return whether nothing that affects the node's probes has changed."""
    key = names.CONTAINER_PROBE_CONTEXT
    return (
        old.metadata.annotations.get(key) == new.metadata.annotations.get(key)
        and old.spec.node_name == new.spec.node_name
        and old.status.pod_ip == new.status.pod_ip
        and old.status.container_statuses == new.status.container_statuses
        and is_probed(old) == is_probed(new)
    )
