"""Restarts containers as the node's ContainerRecreateRequests ask, one Pod at a time (CRR-30 … CRR-43)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from app.daemon import recreate_plan
from app.daemon.actions import Stopper, container_reference, recorded_hook
from app.daemon.cri.types import ContainerState, CriError, Runtime, RuntimeUnavailable
from app.daemon.objects import (
    RECREATE_REQUESTS,
    RecreateContainer,
    RecreateRequest,
    RecreateState,
    decode_recreate_request,
)
from app.daemon.recreate_plan import Found
from app.kube.client import Client
from app.kube.clock import CONFLICT_ATTEMPTS, conflict_wait
from app.kube.controller import Controller, ControllerMetrics, Result, Watch
from app.kube.errors import Conflict, KubeError, NotFound
from app.kube.expectations import is_at_least
from app.kube.objects import Pod, decode_metadata, decode_pod
from app.kube.queue import QueueMetrics, RateLimits
from app.kube.resources import PODS, ObjectKey
from app.kube.store import Change, Store, key_of

logger = logging.getLogger(__name__)

WORKERS: Final = 32
#: CRR-67: of these so many for the Pods of one namespace; a hook may take as long as whoever asked for it likes.
SHARE: Final = 24
#: CRR-30: the back-off of a Pod that failed.
LIMITS: Final = RateLimits(base_delay=0.5, max_delay=50.0, qps=50.0, burst=200)
#: CRR-31: how long an own write may stay unseen.
_UNSEEN_SECONDS: Final = 10.0
#: How often a container is looked at that is expected to change.
_LOOK_SECONDS: Final = 3.0
BY_POD: Final = "pod"
POD_NAMESPACE: Final = "io.kubernetes.pod.namespace"
RESTART_COUNT: Final = "io.kubernetes.container.restartCount"


def pods_of(request: RecreateRequest) -> Iterable[str]:
    """The index that the store of requests needs."""
    return (str(ObjectKey(request.metadata.namespace, request.spec.pod_name)),)


class Recreator:
    """One per node. ``run`` it as a task. ``pods``: the node's Pods, if they are watched."""

    def __init__(
        self,
        requests: Store[RecreateRequest],
        client: Client,
        runtimes: Sequence[Runtime],
        stopper: Stopper,
        pods: Store[Pod] | None,
        *,
        metrics: ControllerMetrics | None = None,
        queue_metrics: QueueMetrics | None = None,
    ) -> None:
        self._requests = requests
        self._client = client
        self._clock = client.clock
        self._runtimes = {runtime.name: runtime for runtime in reversed(runtimes)}
        self._stopper = stopper
        self._pods = pods
        #: The version our last write gave a request, and when.
        self._written: dict[ObjectKey, tuple[str, float]] = {}
        self.controller = Controller(
            "crr",
            client.clock,
            [Watch(requests, self._keys)],
            self._reconcile,
            workers=WORKERS,
            limits=LIMITS,
            share=SHARE,
            metrics=metrics,
            queue_metrics=queue_metrics,
            sync_timeout=float("inf"),
        )

    async def run(self) -> None:
        """Work until cancelled."""
        await self.controller.run()

    def _keys(self, change: Change[RecreateRequest]) -> Iterable[ObjectKey]:
        request = change.object
        if change.new is None:
            self._written.pop(key_of(request), None)
        # A request that is over lets the next one of the Pod begin.
        return (ObjectKey(request.metadata.namespace, request.spec.pod_name),)

    async def _reconcile(self, key: ObjectKey) -> Result | None:
        choice = recreate_plan.choose(self._requests.by_index(BY_POD, str(key)), self._is_current)
        for waiting in choice.waiting:
            await self._write(waiting, {"phase": recreate_plan.PENDING})
        request = choice.request
        if request is None:
            return None
        if request.status.phase != recreate_plan.RECREATING:
            await self._write(request, {"phase": recreate_plan.RECREATING})
            return None
        left = recreate_plan.grace_left(request, self._clock.now())
        if left is None:
            return None  # whoever makes the Pod unready says so in the request
        if left > 0:
            return Result(requeue_after=left)
        try:
            name = recreate_plan.runtime_name(request)
            runtime = self._runtimes.get(name)
            if runtime is None:
                raise ValueError(f"no runtime {name} on this node")  # noqa: TRY301 - one message for all of it
        except ValueError as error:
            await self._complete(request, f"failed to find runtime service: {error}")
            return None
        return await self._recreate(request, runtime)

    async def _recreate(self, request: RecreateRequest, runtime: Runtime) -> Result | None:
        pod = self._pod(request)
        found = await self._found(request, runtime, pod)
        stored = request.status.container_recreate_states
        current = recreate_plan.states(request, runtime.name, found, self._clock.now())
        if current != stored:
            # CRR-36: what is done next follows from what everybody can see.
            await self._write_states(request, stored, current)
            return None
        walk = recreate_plan.walk(request, current, found)
        current = walk.states
        if walk.kill is not None:
            stored, current = await self._kill(request, walk.kill, current, found[walk.kill.name], runtime, pod)
        if current != stored:
            await self._write_states(request, stored, current)
        elif walk.ended:
            await self._complete(request, "")
        elif request.spec.strategy.min_started_seconds > 0:
            return Result(requeue_after=float(request.spec.strategy.min_started_seconds))
        else:
            # The manager's word about readiness is an event; what happens on the node itself is told by nobody.
            return Result(requeue_after=_LOOK_SECONDS)
        return None

    async def _found(self, request: RecreateRequest, runtime: Runtime, pod: Pod | None) -> dict[str, Found]:
        """By its uid, never by its name: a Pod may have taken the name of another."""
        wanted, namespace = {container.name for container in request.spec.containers}, request.metadata.namespace
        containers = await runtime.containers(request.pod_uid) if request.pod_uid else ()
        found = {}
        for name, container in recreate_plan.newest(containers).items():
            if name in wanted:
                details = await runtime.details(container.id)
                # The uid is a label, which an admission webhook vouches for: without one a tenant could name any Pod.
                if details.labels.get(POD_NAMESPACE, namespace) != namespace or not details.is_of(request.pod_uid):
                    continue
                count = _integer(details.annotations.get(RESTART_COUNT, ""))
                found[name] = Found(details, count, _is_restarted(pod, details.exit_code))
        return found

    async def _kill(
        self,
        request: RecreateRequest,
        container: RecreateContainer,
        current: tuple[RecreateState, ...],
        found: Found,
        runtime: Runtime,
        pod: Pod | None,
    ) -> tuple[tuple[RecreateState, ...], tuple[RecreateState, ...]]:
        """CRR-37: stop one container. The states as they are stored by then, and as they are."""
        details, metadata = found.details, request.metadata
        announced = current
        if request.spec.strategy.force_recreate and details.state is not ContainerState.EXITED:
            # Its id alone would not tell an agent that is ended in the middle of it that it has been stopped.
            announced = recreate_plan.announced(current, container.name, f"{runtime.name}://{details.id}")
            if announced != current and not await self._write_states(request, current, announced):
                return current, current
        if pod is None and recorded_hook(details) is not None:
            pod = await self._live_pod(request)
        regarding = container_reference(metadata.namespace, request.spec.pod_name, request.pod_uid, container.name)
        message = f"Stopping container {container.name} by ContainerRecreateRequest {metadata.name}"
        try:
            await self._stopper.stop(
                runtime,
                details,
                regarding,
                message,
                grace=request.spec.strategy.termination_grace_period_seconds,
                pod_ip=pod.status.pod_ip if pod is not None else "",
            )
        except RuntimeUnavailable:
            raise  # whether it was stopped shows when the runtime is back
        except CriError as error:
            return announced, recreate_plan.killed(current, container.name, str(error))
        return announced, recreate_plan.killed(current, container.name)

    def _pod(self, request: RecreateRequest) -> Pod | None:
        """Return the Pod from the cache, if there is one and it is the Pod of the request."""
        name, namespace = request.spec.pod_name, request.metadata.namespace
        pod = self._pods.get(name, namespace) if self._pods is not None else None
        return pod if pod is not None and pod.metadata.uid == request.pod_uid else None

    async def _live_pod(self, request: RecreateRequest) -> Pod | None:
        """Return the Pod from the API server, if it is the Pod of the request."""
        name, namespace = request.spec.pod_name, request.metadata.namespace
        try:
            pod = await self._client.get(PODS, name, namespace, decode=decode_pod)
        except KubeError as error:
            logger.warning("Pod %s/%s cannot be read: %s", namespace, name, error)
            return None
        return pod if pod.metadata.uid == request.pod_uid else None

    # ---- writing

    def _is_current(self, request: RecreateRequest) -> bool:
        version, since = self._written.get(key_of(request), ("", 0.0))
        if not version or is_at_least(request.metadata.resource_version, version):
            return True
        return self._clock.monotonic() - since > _UNSEEN_SECONDS

    async def _complete(self, request: RecreateRequest, message: str) -> None:
        await self._write(request, recreate_plan.completed_patch(self._clock.now(), message))

    async def _write_states(
        self, request: RecreateRequest, stored: Sequence[RecreateState], states: Sequence[RecreateState]
    ) -> bool:
        """CRR-41, CRR-63: only in place of those that were looked at, and unless the request has ended meanwhile: what
        the manager said of them then stays. Whether it goes on.

        Whoever decides on older ones, as a cache shows them that is behind, would forget that a container was stopped,
        and stop the next one too.
        """
        patch, seen = recreate_plan.states_patch(states), request
        for attempt in range(CONFLICT_ATTEMPTS):
            try:
                await self._write(seen, patch)
            except Conflict:
                if attempt == CONFLICT_ATTEMPTS - 1:
                    raise
                await self._clock.sleep(conflict_wait(attempt))
                live = await self._live(request)
                if live is None:
                    return False
                if live.status.container_recreate_states == tuple(states):
                    return True  # only the answer was lost
                if live.status.container_recreate_states != tuple(stored):
                    raise
                seen = live  # the manager's word about readiness is no reason to begin anew
            else:
                return True
        return False

    async def _live(self, request: RecreateRequest) -> RecreateRequest | None:
        """The very request as it is now; None if it is over or gone."""
        metadata = request.metadata
        try:
            live = await self._client.get(
                RECREATE_REQUESTS, metadata.name, metadata.namespace, decode=decode_recreate_request
            )
        except NotFound:
            return None
        return live if live.metadata.uid == metadata.uid and not recreate_plan.is_over(live) else None

    async def _write(self, request: RecreateRequest, status: Mapping[str, Any]) -> None:
        """CRR-63: only what is meant, and only if nobody has written to this very request meanwhile, so that what
        others say stays; by the version, for on ``/status`` an API server overlooks a uid."""
        metadata = request.metadata
        try:
            written = await self._client.patch(
                RECREATE_REQUESTS,
                metadata.name,
                {
                    "metadata": {"uid": metadata.uid, "resourceVersion": metadata.resource_version},
                    "status": status,
                },
                metadata.namespace,
                subresource="status",
                decode=decode_metadata,
            )
        except NotFound:
            return
        self._written[key_of(request)] = (written.metadata.resource_version, self._clock.monotonic())


def _integer(text: str) -> int:
    """KD-14: what cannot be read is 0."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def _is_restarted(pod: Pod | None, exit_code: int) -> bool:
    """CRR-60: whether the kubelet starts a container again that has ended."""
    policy = pod.spec.restart_policy if pod is not None else "Always"
    return policy != "Never" and not (policy == "OnFailure" and exit_code == 0)
