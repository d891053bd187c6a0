"""Restarts containers for the node's ContainerRecreateRequests, one Pod at a time. [CRR-30 … CRR-42]"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from app.daemon import recreate_plan
from app.daemon.cri.types import ContainerState, CriError, Runtime, RuntimeUnavailable
from app.daemon.objects import (
    RECREATE_REQUESTS,
    RecreateContainer,
    RecreateRequest,
    RecreateState,
    decode_recreate_request,
)
from app.daemon.probes_and_hooks import WORKERS, Stopper, container_reference, recorded_hook
from app.daemon.recreate_plan import Found
from app.kube.client import Client, patch_seen_status
from app.kube.clock import CONFLICT_ATTEMPTS, conflict_wait
from app.kube.controller import Controller, Result, Watch
from app.kube.errors import Conflict, KubeError, NotFound
from app.kube.expectations import ResourceVersionExpectations
from app.kube.objects import Pod, decode_pod
from app.kube.queue import RateLimits
from app.kube.resources import PODS, ObjectKey
from app.kube.store import Change, Store

logger = logging.getLogger(__name__)

#: Back-off of failed Pods. [CRR-30]
LIMITS: Final = RateLimits(base_delay=0.5, max_delay=50.0, qps=50.0, burst=200)
#: Seconds between checks of a container that is expected to change.
_LOOK_SECONDS: Final = 3.0
BY_POD: Final = "pod"
POD_NAMESPACE: Final = "io.kubernetes.pod.namespace"


def pods_of(request: RecreateRequest) -> Iterable[str]:
    """Index function for the store of requests: return the key of the Pod."""
    return (str(ObjectKey(request.metadata.namespace, request.spec.pod_name)),)


class Recreator:
    """Recreator of one node. Start ``run`` as a task. ``pods`` contains the node's Pods; None if not watched."""

    def __init__(
        self,
        requests: Store[RecreateRequest],
        client: Client,
        runtimes: Sequence[Runtime],
        stopper: Stopper,
        pods: Store[Pod] | None,
        *,
        controller: Callable[..., Controller],
    ) -> None:
        self._requests = requests
        self._client = client
        self._clock = client.clock
        self._runtimes = {runtime.name: runtime for runtime in reversed(runtimes)}
        self._stopper = stopper
        self._pods = pods
        self._written = ResourceVersionExpectations(client.clock)
        self.controller = controller(
            "crr",
            watches=[Watch(requests, self._keys)],
            reconcile=self._reconcile,
            workers=WORKERS,
            limits=LIMITS,
        )

    async def run(self) -> None:
        await self.controller.run()

    def _keys(self, change: Change[RecreateRequest]) -> Iterable[ObjectKey]:
        request = change.object
        if change.new is None:
            self._written.forget(request.metadata.uid)
        # Once a request completes, the next one for the same Pod can start.
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
            return None  # the manager updates the request when it marks the Pod unready
        if left > 0:
            return Result(requeue_after=left)
        try:
            name = recreate_plan.runtime_name(request)
            runtime = self._runtimes.get(name)
            if runtime is None:
                raise ValueError(f"no runtime {name} on this node")  # noqa: TRY301 - same message as other errors
        except ValueError as error:
            await self._complete(request, f"failed to find runtime service: {error}")
            return None
        return await self._recreate(request, runtime)

    async def _recreate(self, request: RecreateRequest, runtime: Runtime) -> Result | None:
        pod = self._pod(request)
        found = await self._found(request, runtime, pod)
        current = recreate_plan.states(request, runtime.name, found, self._clock.now())
        if current != request.status.container_recreate_states:
            # Base the next step only on states that are stored. [CRR-36]
            await self._write_states(request, current)
            return None
        walk = recreate_plan.walk(request, current, found)
        current = walk.states
        if walk.kill is not None:
            request, current = await self._kill(request, walk.kill, current, found[walk.kill.name], runtime, pod)
        if current != request.status.container_recreate_states:
            await self._write_states(request, current)
        elif walk.ended:
            await self._complete(request, "")
        elif request.spec.strategy.min_started_seconds > 0:
            return Result(requeue_after=float(request.spec.strategy.min_started_seconds))
        else:
            # Readiness set by the manager arrives as an event; changes on the node must be polled.
            return Result(requeue_after=_LOOK_SECONDS)
        return None

    async def _found(self, request: RecreateRequest, runtime: Runtime, pod: Pod | None) -> dict[str, Found]:
        """Return the requested containers by name. The Pod is found by UID, since names are reused."""
        wanted, namespace = {container.name for container in request.spec.containers}, request.metadata.namespace
        containers = await runtime.containers(request.pod_uid) if request.pod_uid else ()
        found = {}
        for name, container in recreate_plan.newest(containers).items():
            if name in wanted:
                details = await runtime.details(container.id)
                # Without this check, only an admission webhook would verify the UID label, and a tenant who bypasses
                # the webhook could name any Pod.
                if details.labels.get(POD_NAMESPACE, namespace) != namespace or not details.is_of(request.pod_uid):
                    continue
                found[name] = Found(details, details.restart_count, _is_restarted(pod, details.exit_code))
        return found

    async def _kill(
        self,
        request: RecreateRequest,
        container: RecreateContainer,
        current: tuple[RecreateState, ...],
        found: Found,
        runtime: Runtime,
        pod: Pod | None,
    ) -> tuple[RecreateRequest, tuple[RecreateState, ...]]:
        """Stop one container. Return the request as last stored, and the current states. [CRR-37]"""
        details, metadata = found.details, request.metadata
        if request.spec.strategy.force_recreate and details.state is not ContainerState.EXITED:
            # If the agent exits before recording the stop, the container ID alone does not show that the container was
            # stopped.
            announced = recreate_plan.announced(current, container.name, f"{runtime.name}://{details.id}")
            if announced != current:
                written = await self._write_states(request, announced)
                if written is None:
                    return request, request.status.container_recreate_states
                request = written
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
            raise  # the container may have been stopped: check again when the runtime is back
        except CriError as error:
            return request, recreate_plan.killed(current, container.name, str(error))
        return request, recreate_plan.killed(current, container.name)

    def _pod(self, request: RecreateRequest) -> Pod | None:
        """Return the request's Pod from the cache; None if it is not cached."""
        name, namespace = request.spec.pod_name, request.metadata.namespace
        pod = self._pods.get(name, namespace) if self._pods is not None else None
        return pod if pod is not None and pod.metadata.uid == request.pod_uid else None

    async def _live_pod(self, request: RecreateRequest) -> Pod | None:
        """Return the Pod from the API server, if it is the Pod of the request."""
        name, namespace = request.spec.pod_name, request.metadata.namespace
        try:
            pod = await self._client.get(PODS, name, namespace, decode=decode_pod)
        except KubeError as error:
            logger.warning("cannot read Pod %s/%s: %s", namespace, name, error)
            return None
        return pod if pod.metadata.uid == request.pod_uid else None

    # ---- writing

    def _is_current(self, request: RecreateRequest) -> bool:
        return self._written.unsatisfied(request.metadata) is None

    async def _complete(self, request: RecreateRequest, message: str) -> None:
        await self._write(request, recreate_plan.completed_patch(self._clock.now(), message))

    async def _write_states(
        self, request: RecreateRequest, states: tuple[RecreateState, ...]
    ) -> RecreateRequest | None:
        """Write the states if the decision was based on the stored ones and the request is still open. Return the
        request as written, or None to stop. [CRR-41, CRR-63]

        A decision based on older states, such as those in a stale cache, would miss that a container was stopped and
        stop the next one too. If the request has completed, the manager's states are kept.
        """
        patch, seen = recreate_plan.states_patch(states), request
        for attempt in range(CONFLICT_ATTEMPTS):
            try:
                version = await self._write(seen, patch)
            except Conflict:
                if attempt == CONFLICT_ATTEMPTS - 1:
                    raise
                await self._clock.sleep(conflict_wait(attempt))
                live = await self._live(request)
                if live is None:
                    return None
                if live.status.container_recreate_states == states:
                    return live  # only the response was lost
                if live.status.container_recreate_states != request.status.container_recreate_states:
                    raise
                seen = live  # a readiness change by the manager does not affect the decision
            else:
                return replace(
                    seen,
                    metadata=replace(seen.metadata, resource_version=version),
                    status=replace(seen.status, container_recreate_states=states),
                )
        return None

    async def _live(self, request: RecreateRequest) -> RecreateRequest | None:
        """Return the request as stored now; None if it has ended or was replaced."""
        metadata = request.metadata
        try:
            live = await self._client.get(
                RECREATE_REQUESTS, metadata.name, metadata.namespace, decode=decode_recreate_request
            )
        except NotFound:
            return None
        return live if live.metadata.uid == metadata.uid and not recreate_plan.is_over(live) else None

    async def _write(self, request: RecreateRequest, status: Mapping[str, Any]) -> str:
        """Patch the status if the request has not changed, so that updates by other clients are kept, and return the
        new version. The check uses the resource version: the API server ignores the UID on ``/status``. [CRR-63]"""
        try:
            written = await patch_seen_status(self._client, RECREATE_REQUESTS, request.metadata, status)
        except NotFound:
            return request.metadata.resource_version
        self._written.expect(written)
        return written.resource_version


def _is_restarted(pod: Pod | None, exit_code: int) -> bool:
    """Return whether the kubelet restarts a container after it exits. [CRR-40]"""
    policy = pod.spec.restart_policy if pod is not None else "Always"
    return policy != "Never" and not (policy == "OnFailure" and exit_code == 0)
