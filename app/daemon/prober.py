"""Runs the probes of the node's Pods and reports their results. [KD-60 … KD-68]"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Final
from weakref import WeakValueDictionary

from app.daemon import probe_plan
from app.daemon.cri.types import ContainerDetails, ContainerState, CriError, Runtime, RuntimeUnavailable
from app.daemon.objects import NODE_POD_PROBES, NodePodProbe
from app.daemon.probe_plan import Key, ProbeProgress, Result, Wanted
from app.daemon.probes_and_hooks import Network, Outcome, ProbeError, probe_command, text_of
from app.daemon.recreate_plan import newest
from app.kube.client import Client, patch_seen_status
from app.kube.clock import TokenBucket, rfc3339
from app.kube.concurrency import cancel
from app.kube.controller import Controller, Watch, to_self
from app.kube.events import EventRecorder
from app.kube.expectations import ResourceVersionExpectations
from app.kube.objects import ObjectReference, Pod
from app.kube.queue import RateLimits
from app.kube.resources import PODS, ObjectKey
from app.kube.store import Store

logger = logging.getLogger(__name__)

LIMITS: Final = RateLimits(base_delay=0.5, max_delay=50.0, qps=10.0, burst=100)
#: Seconds to wait for more results, so that they are written together.
_TOGETHER_SECONDS: Final = 0.2
#: Writes per second, and burst. A probe may change its message every second, and the manager reads every write, which
#: contains the results of all Pods. [KD-66]
_WRITES_PER_SECOND: Final = 1.0
_WRITES_BURST: Final = 10
#: Maximum number of concurrent probes per namespace. [KD-105]
AT_ONCE: Final = 32
#: Maximum number of probes per second and namespace. More would make the probes of other namespaces time out: by
#: default, the agent may use only a twentieth of a CPU. [KD-105]
PER_SECOND: Final = 100.0
#: Seconds for which a Pod's containers are cached while all of them run.
_TRUSTED_SECONDS: Final = 10.0
#: Seconds for which a Pod's containers are cached if one of them is not running, or if the Pod has changed or is not
#: watched.
_UNSURE_SECONDS: Final = 0.5


@dataclass(slots=True)
class _Worker:
    """A running probe."""

    want: Wanted
    progress: ProbeProgress = field(default_factory=ProbeProgress)
    probed_at: str = ""
    task: asyncio.Task[None] | None = None


@dataclass(slots=True)
class _Known:
    """Cached containers of one Pod."""

    asked_at: float
    version: str
    task: asyncio.Task[dict[str, ContainerDetails]]


class Containers:
    """Caches the containers of Pods. All probes of a Pod share one request to the runtime."""

    def __init__(self, runtime: Runtime, client: Client) -> None:
        self._runtime = runtime
        self._clock = client.clock
        self._pods: dict[str, _Known] = {}

    async def newest(self, uid: str, name: str, version: str) -> ContainerDetails | None:
        """Return the newest container of this name. ``version`` is the Pod's resource version. Raises ``CriError``."""
        known, now = self._pods.get(uid), self._clock.monotonic()
        earlier: Mapping[str, ContainerDetails] = {}
        if known is not None and known.task.done():
            failed = known.task.exception() is not None
            earlier = {} if failed else known.task.result()
            running = all(one.state is ContainerState.RUNNING for one in earlier.values())
            # While all containers are running, only an update of the Pod or a failed probe indicates a change.
            trusted = _TRUSTED_SECONDS if running and version and version == known.version else _UNSURE_SECONDS
            if failed or now - known.asked_at >= trusted:
                known = None
        if known is None:
            task = asyncio.get_running_loop().create_task(self._ask(uid, earlier), name=f"containers of {uid}")
            known = self._pods[uid] = _Known(now, version, task)
        return (await asyncio.shield(known.task)).get(name)

    async def _ask(self, uid: str, earlier: Mapping[str, ContainerDetails]) -> dict[str, ContainerDetails]:
        found = {}
        for name, container in newest(await self._runtime.containers(uid)).items():
            known = earlier.get(name)
            # Details do not change while the container is in one state.
            if known is None or (known.id, known.state) != (container.id, container.state):
                known = await self._runtime.details(container.id)
            if known.is_of(uid):
                found[name] = known
        return found

    def doubt(self, uid: str) -> None:
        """Mark the Pod's cached containers as outdated, so that its next probe lists them again."""
        if (known := self._pods.get(uid)) is not None:
            known.asked_at = -math.inf

    def forget(self, uids: set[str]) -> None:
        """Drop all Pods except these."""
        self._pods = {uid: known for uid, known in self._pods.items() if uid in uids}


class Prober:
    """Prober of one node. Start ``run`` as a task. ``pods`` provides the addresses of the node's Pods; None if
    Pods are not watched."""

    def __init__(
        self,
        node: str,
        store: Store[NodePodProbe],
        client: Client,
        runtime: Runtime,
        recorder: EventRecorder,
        rng: Random,
        pods: Store[Pod] | None,
        *,
        network: Network,
        controller: Callable[..., Controller],
    ) -> None:
        self._key = ObjectKey("", node)
        self._store = store
        self._client = client
        self._clock = client.clock
        self._runtime = runtime
        self._recorder = recorder
        self._rng = rng
        self._pods = pods
        self._network = network
        self._began = client.clock.monotonic()
        self._workers: dict[Key, _Worker] = {}
        self._containers = Containers(runtime, client)
        #: Semaphores and rate limiters by namespace; each is dropped with the last probe that uses it.
        self._made: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._rates: WeakValueDictionary[str, TokenBucket] = WeakValueDictionary()
        self._written = ResourceVersionExpectations(client.clock)
        self._writes = TokenBucket(client.clock, qps=_WRITES_PER_SECOND, burst=_WRITES_BURST)
        #: Time of the next write.
        self._next_write = 0.0
        # Two queues, as in OpenKruise: probes to run and results to report. [KD-4]
        self.controller = controller(
            "sync_node_pod_probe", watches=[Watch(store, to_self)], reconcile=self._sync, workers=1, limits=LIMITS
        )
        self.teller = controller(
            "update_node_pod_probe_status", watches=[], reconcile=self._tell, workers=1, limits=LIMITS
        )

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.controller.run(), name="probes to run")
                group.create_task(self.teller.run(), name="probe results")
        finally:
            await cancel(*(worker.task for worker in self._workers.values() if worker.task is not None))

    @property
    def results(self) -> dict[Key, str]:
        """Return the latest probe results."""
        return {key: worker.progress.state for key, worker in self._workers.items()}

    # ---- syncing the NodePodProbe

    async def _sync(self, key: ObjectKey) -> None:
        self._update(probe_plan.wanted(self._store.by_key(key)))
        self.teller.queue.add(key)

    async def _tell(self, key: ObjectKey) -> None:
        node_pod_probe = self._store.by_key(key)
        if node_pod_probe is None or self._written.unsatisfied(node_pod_probe.metadata) is not None:
            return
        if (early := self._next_write - self._clock.monotonic()) > 0:
            self.teller.queue.add_after(key, early)
            return
        results = {
            key: Result(worker.progress.state, worker.progress.message, worker.probed_at)
            for key, worker in self._workers.items()
            if worker.progress.state
        }
        report = probe_plan.report(node_pod_probe, results)
        if report.status is None:
            return
        self._next_write = self._clock.monotonic() + self._writes.reserve()
        written = await patch_seen_status(self._client, NODE_POD_PROBES, node_pod_probe.metadata, report.status)
        self._written.expect(written)
        for key_of_probe, result in report.news:
            self._record_events(key_of_probe, result)

    def _update(self, wanted: dict[Key, Wanted]) -> None:
        """Start, update and stop probes. [KD-60]"""
        for key in self._workers.keys() - wanted.keys():
            task = self._workers.pop(key).task
            if task is not None:
                task.cancel()
        for key, want in wanted.items():
            worker = self._workers.get(key)
            if worker is None:
                worker = self._workers[key] = _Worker(want)
                worker.task = asyncio.get_running_loop().create_task(
                    self._work(key, worker), name=f"probe {key.namespace}/{key.pod} {key.probe}"
                )
            elif worker.want != want:
                if not worker.want.asks_the_same_as(want):
                    container_id = worker.progress.container_id
                    state = probe_plan.UNKNOWN if container_id else ""
                    worker.progress = ProbeProgress(container_id, state=state, recorded_at=self._clock.monotonic())
                    worker.probed_at = rfc3339(self._clock.now())
                worker.want = want
        self._containers.forget({key.uid for key in wanted})

    def _record_events(self, key: Key, result: Result) -> None:
        """Record an event on the Pod. [KD-68]"""
        regarding = ObjectReference(
            api_version=PODS.api_version, kind=PODS.kind, namespace=key.namespace, name=key.pod, uid=key.uid
        )
        reason = "KruiseProbeSucceeded" if result.state == probe_plan.SUCCEEDED else "KruiseProbeFailed"
        self._recorder.event(regarding, "Normal", reason, result.message)

    # ---- one probe

    async def _work(self, key: Key, worker: _Worker) -> None:
        period = worker.want.period
        rate = self._rates.setdefault(key.namespace, TokenBucket(self._clock, qps=PER_SECOND, burst=AT_ONCE))
        if self._clock.monotonic() - self._began < period:
            # Spread the probes of a node over the first period to avoid a load spike. [KD-62]
            await self._clock.sleep(self._rng.random() * period)
        due = self._clock.monotonic()
        while True:
            try:
                await self._once(key, worker, rate)
            except (CriError, ProbeError) as error:
                logger.info("probe %s of Pod %s/%s could not be run: %s", key.probe, key.namespace, key.pod, error)
            except Exception:  # one probe must not stop the others
                logger.exception("probe %s of Pod %s/%s failed unexpectedly", key.probe, key.namespace, key.pod)
            # A slow probe delays the next one; missed probes are skipped.
            now = self._clock.monotonic()
            due = max(due + period, now)
            await self._clock.sleep(due - now)

    async def _once(self, key: Key, worker: _Worker, rate: TokenBucket) -> None:
        pod = self._cached(key)
        version = pod.metadata.resource_version if pod is not None else ""
        container = await self._containers.newest(key.uid, key.container, version)
        want = worker.want
        step = probe_plan.before(
            worker.progress, container, want, self._clock.monotonic(), self._clock.now().timestamp()
        )
        self._note(worker, step)
        if not step.probe or container is None:
            return
        try:
            async with self._made.setdefault(key.namespace, asyncio.Semaphore(AT_ONCE)):
                await rate.take()
                pod = self._cached(key)  # its address may have changed [KD-91]
                address = pod.status.pod_ip if pod is not None and pod.status.pod_ip else want.ip
                outcome = await self._probe(want, container.id, address)
        except ProbeError as error:
            self._containers.doubt(key.uid)
            # If the runtime is unavailable, the probe keeps its state.
            if worker.want.asks_the_same_as(want) and not isinstance(error.__cause__, RuntimeUnavailable):
                why = text_of(str(error).encode("utf-8", "replace"))
                self._note(worker, probe_plan.not_made(worker.progress, why, self._clock.monotonic()))
            raise
        if not outcome.succeeded:
            self._containers.doubt(key.uid)
        if worker.want.asks_the_same_as(want):
            self._note(worker, probe_plan.after(worker.progress, outcome, want, self._clock.monotonic()))

    def _note(self, worker: _Worker, step: probe_plan.Step) -> None:
        worker.progress = step.progress
        if step.changed:
            worker.probed_at = rfc3339(self._clock.now())
            self.teller.queue.add_after(self._key, _TOGETHER_SECONDS)

    async def _probe(self, want: Wanted, container_id: str, address: str) -> Outcome:
        probe = want.probe
        if probe.exec is not None:
            return await probe_command(self._runtime, container_id, probe.exec, want.timeout)
        if probe.http_get is not None:
            return await self._network.request(probe.http_get, address, want.timeout)
        if probe.tcp_socket is not None:
            return await self._network.connection(probe.tcp_socket, address, want.timeout)
        raise ProbeError("one of exec, httpGet and tcpSocket is required")

    def _cached(self, key: Key) -> Pod | None:
        """Return the Pod from the cache, if Pods are watched and it is the one being probed."""
        pod = self._pods.get(key.pod, key.namespace) if self._pods is not None else None
        return pod if pod is not None and pod.metadata.uid == key.uid else None
