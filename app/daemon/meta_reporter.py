"""Reports how the containers of the node's Pods were started and restarts those with an outdated environment. [KD-70 …
KD-75]"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from app.api import names
from app.daemon import meta_plan
from app.daemon.cri.types import ContainerState, CriError, NoSuchContainer, Runtime
from app.daemon.meta_plan import Outdated, Seen
from app.daemon.probes_and_hooks import WORKERS, Stopper, container_reference
from app.daemon.recreate_plan import newest
from app.kube.client import Client, PatchType
from app.kube.controller import Controller, Result, Watch
from app.kube.errors import Conflict, NotFound
from app.kube.expectations import ResourceVersionExpectations
from app.kube.objects import Container, Pod, decode_metadata
from app.kube.queue import RateLimits
from app.kube.resources import PODS, ObjectKey
from app.kube.store import Change, Store, key_of
from app.pods.container_meta import RuntimeMeta, env_from_metadata, runtime_meta

logger = logging.getLogger(__name__)

#: Seconds by which a report is delayed, because Pod changes come in bursts. [KD-71]
_DELAY_SECONDS: Final = 1.0
#: Seconds before a failed read of the environment is retried. [KD-73]
_AGAIN_SECONDS: Final = 3.0
_ENV_SECONDS: Final = 3.0
#: Back-off of restarts. [KD-74]
RESTART_LIMITS: Final = RateLimits(base_delay=3.0, max_delay=600.0, qps=10.0, burst=100)


class MetaReporter:
    """Metadata reporter of one node. Start ``run`` as a task."""

    def __init__(
        self,
        pods: Store[Pod],
        client: Client,
        runtimes: Sequence[Runtime],
        stopper: Stopper,
        *,
        env_from_metadata: bool,
        controller: Callable[..., Controller],
    ) -> None:
        self._pods = pods
        self._client = client
        self._runtimes = {runtime.name: runtime for runtime in reversed(runtimes)}
        self._stopper = stopper
        self._env_from_metadata = env_from_metadata
        self._written = ResourceVersionExpectations(client.clock)
        self.controller = controller(
            "runtime_container_meta",
            watches=[Watch(pods, self._keys, _DELAY_SECONDS)],
            reconcile=self._report,
            workers=WORKERS,
        )
        self.restarter = controller(
            "runtime_container_meta_restarter",
            watches=[],
            reconcile=self._restart,
            workers=WORKERS,
            limits=RESTART_LIMITS,
        )

    def _keys(self, change: Change[Pod]) -> Iterable[ObjectKey]:
        pod = change.new
        if pod is None:
            self._written.forget(change.object.metadata.uid)
            return ()
        is_new = change.old is None
        # At start-up, Pods without a report are not processed until their next change. [KD-71]
        if is_new and names.RUNTIME_CONTAINERS_META not in pod.metadata.annotations:
            return ()
        return (key_of(pod),) if meta_plan.is_due(pod, with_env=self._env_from_metadata) else ()

    def _runtime_of(self, pod: Pod) -> Runtime | None:
        for status in pod.status.container_statuses:
            name, separator, _ = status.container_id.partition("://")
            if separator:
                return self._runtimes.get(name)
        return None

    async def _report(self, key: ObjectKey) -> Result | None:
        pod = self._pods.by_key(key)
        if pod is None or not meta_plan.is_reported(pod) or self._written.unsatisfied(pod.metadata) is not None:
            return None
        runtime = self._runtime_of(pod)
        if runtime is None:
            return None
        seen, unread = await self._look(pod, runtime)
        meta = meta_plan.reported(pod, runtime.name, seen, with_env=self._env_from_metadata)
        if meta.containers and meta != runtime_meta(pod):
            await self._write(pod, meta)
        if self._env_from_metadata and meta_plan.outdated(pod, meta):
            self.restarter.queue.add_after(key, RESTART_LIMITS.base_delay)
        return Result(requeue_after=_AGAIN_SECONDS) if unread else None

    async def _look(self, pod: Pod, runtime: Runtime) -> tuple[dict[str, Seen], list[str]]:
        """Return the Pod's containers in the runtime, and the names of those whose environment could not be read."""
        meta, seen, unread = runtime_meta(pod), {}, []
        containers = {container.name: container for container in pod.spec.containers}
        for name, one in newest(await runtime.containers(pod.metadata.uid)).items():
            container = containers.get(name)
            if container is None:
                continue
            details = await runtime.details(one.id)
            if not details.is_of(pod.metadata.uid):
                continue
            known = meta_plan.known_of(meta, f"{runtime.name}://{details.id}")
            env = None
            if self._env_from_metadata and meta_plan.needs_env(pod, container, details, known):
                env = await self._env(runtime, details.id, pod, container)
                if env is None:
                    unread.append(name)
            seen[name] = Seen(details, env)
        return seen, unread

    async def _env(
        self, runtime: Runtime, container_id: str, pod: Pod, container: Container
    ) -> Mapping[str, str] | None:
        """Read the environment of a container by running ``env`` in it; None if that fails. [KD-73]"""
        try:
            result = await runtime.execute(container_id, ("env",), _ENV_SECONDS)
        except CriError as error:
            logger.warning("%s: cannot read the environment of container %s: %s", key_of(pod), container.name, error)
            return None
        if result.code != 0:
            logger.warning("%s: env in container %s exited with code %d", key_of(pod), container.name, result.code)
            return None
        return meta_plan.parse_env(result.stdout, env_from_metadata(container, pod))

    async def _write(self, pod: Pod, meta: RuntimeMeta) -> None:
        """Patch the annotation through the status subresource, which nodes are allowed to write. [KD-75]"""
        metadata = pod.metadata
        annotations = {names.RUNTIME_CONTAINERS_META: meta_plan.annotation(meta)}
        try:
            written = await self._client.patch(
                PODS,
                metadata.name,
                {"metadata": {"uid": metadata.uid, "annotations": annotations}},
                metadata.namespace,
                kind=PatchType.STRATEGIC,
                subresource="status",
                decode=decode_metadata,
            )
        except (NotFound, Conflict):
            return  # deleted or replaced by a Pod of the same name
        self._written.expect(written.metadata)

    # ---- restarting

    async def _restart(self, key: ObjectKey) -> Result | None:
        pod = self._pods.by_key(key)
        if pod is None or not meta_plan.is_reported(pod):
            return None
        meta, runtime = runtime_meta(pod), self._runtime_of(pod)
        if meta is None or runtime is None:
            return None
        found = meta_plan.outdated(pod, meta)
        for one in found:
            await self._restart_one(pod, one, runtime)
        # Repeat: the report may not show the new containers yet, or containers with the next priority may follow.
        return Result(requeue=True) if found else None

    async def _restart_one(self, pod: Pod, one: Outdated, runtime: Runtime) -> None:
        """Restart the reported container if it is still running. [KD-74]"""
        metadata, container_id = pod.metadata, one.container_id.partition("://")[2]
        try:
            details = await runtime.details(container_id)
        except NoSuchContainer:
            return
        if details.state is not ContainerState.RUNNING or not details.is_of(metadata.uid):
            return
        await self._stopper.stop(
            runtime,
            details,
            container_reference(metadata.namespace, metadata.name, metadata.uid, one.name),
            f"Stopping containerID {one.container_id} by container meta restarter",
            grace=meta_plan.grace_of(details.annotations),
            pod_ip=pod.status.pod_ip,
        )

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.controller.run(), name="container meta")
            tasks.create_task(self.restarter.run(), name="container meta restarter")
