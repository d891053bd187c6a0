"""Node agents for simulated nodes, on top of a simulated container runtime."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from random import Random
from typing import Any, Final, TypeVar

import msgspec

from app.api import names
from app.daemon import meta_plan as meta
from app.daemon.agent import Agent
from app.daemon.cri.types import (
    RESTART_COUNT,
    Auth,
    Container,
    ContainerDetails,
    ContainerState,
    CriError,
    DeadlineExceeded,
    ExecResult,
    Image,
    NoSuchContainer,
)
from app.daemon.main import USER_AGENT
from app.daemon.objects import (
    NODE_IMAGES,
    NODE_POD_PROBES,
    RECREATE_REQUESTS,
    HttpGetAction,
    NodeImage,
    NodePodProbe,
    RecreateRequest,
    TcpSocketAction,
    decode_node_image,
    decode_node_pod_probe,
    decode_recreate_request,
)
from app.daemon.probes_and_hooks import PORTS, PRE_STOP, Network, Outcome
from app.daemon.recreator import BY_POD, pods_of
from app.kube.client import Client
from app.kube.clock import Clock
from app.kube.errors import KubeError, NotFound
from app.kube.images import familiar_image
from app.kube.objects import Object, decode_pod
from app.kube.objects import Pod as WatchedPod
from app.kube.reflector import Reflector
from app.kube.resources import PODS
from app.kube.store import Change, Store, key_of
from app.pods.container_meta import plain_hash
from app.sandbox.kubelet.containers import term_of
from app.sandbox.kubelet.plan import context
from app.sandbox.kubelet.program import KILLED, answer_of, unreachable
from app.sandbox.kubelet.status import environment, full_name
from app.sandbox.kubelets import Kubelets
from app.sandbox.objects import Container as PodContainer
from app.sandbox.objects import ContainerStatus, Pod

_NANO: Final = 10**9
_POLL_SECONDS: Final = 0.02
#: Maximum seconds that a ``sleep`` command takes.
_LONGEST_SLEEP: Final = 3600.0


class _Started(msgspec.Struct, frozen=True):
    """A container's environment, and the hash of its name and image, at the time it was started."""

    env: Mapping[str, str]
    plain_hash: int


class PodRuntimes:
    """Runtimes of all simulated nodes. ``pull_seconds`` is the duration of an image pull."""

    def __init__(self, kubelets: Kubelets, clock: Clock, *, pull_seconds: float = 0.5) -> None:
        self.kubelets = kubelets
        self.clock = clock
        self.pull_seconds = pull_seconds
        self._by_uid: dict[str, Pod] = {}
        #: Container ID → UID of its Pod.
        self._owners: dict[str, str] = {}
        self._started: dict[str, _Started] = {}
        kubelets.pods.subscribe(self._note)

    def runtime(self, node: str) -> PodRuntime:
        """Return the runtime of a node."""
        return PodRuntime(self, node)

    def pod(self, uid: str) -> Pod | None:
        """Return the Pod with this UID, or None if it does not exist."""
        return self._by_uid.get(uid)

    def owner(self, full_id: str) -> Pod | None:
        """Return the Pod that a container belongs to."""
        return self._by_uid.get(self._owners.get(full_id, ""))

    def started_with(self, full_id: str) -> _Started | None:
        """Return the environment and hash recorded when the container started."""
        return self._started.get(full_id)

    def _note(self, change: Change[Pod]) -> None:
        """Record a container's environment when the container is first seen; later changes to the Pod do not affect
        it."""
        old, pod = change.old, change.new
        before = {one.container_id for one in old.status.container_statuses} if old is not None else set()
        now = {one.container_id: one.name for one in pod.status.container_statuses} if pod is not None else {}
        for gone in before - now.keys():
            self._started.pop(gone, None)
            self._owners.pop(gone, None)
        if pod is None:
            self._by_uid.pop(change.object.metadata.uid, None)
            return
        self._by_uid[pod.metadata.uid] = pod
        containers = {container.name: container for container in pod.spec.containers}
        for full_id, name in now.items():
            if full_id:
                self._owners[full_id] = pod.metadata.uid
            container = containers.get(name)
            if full_id and full_id not in self._started and container is not None:
                self._started[full_id] = _Started(self._env(pod, container), plain_hash(name, container.image))

    def _env(self, pod: Pod, container: PodContainer) -> dict[str, str]:
        if not container.env and not container.env_from:
            return {}
        inputs = self.kubelets.inputs_of(pod)
        return environment(pod, container, inputs.config_maps, inputs.secrets, (inputs.pod_ip, inputs.host_ip))


class PodRuntime:
    """Runtime of one simulated node (:class:`app.daemon.cri.types.Runtime`)."""

    name = "sandbox"

    def __init__(self, all_of_them: PodRuntimes, node: str) -> None:
        self._all = all_of_them
        self._node = node

    async def images(self, seconds: float) -> Sequence[Image]:  # noqa: ARG002 - required by the protocol
        """Return the images on the node."""
        found = []
        for name in sorted(self._all.kubelets.images(self._node)):
            digest = "sha256:" + hashlib.sha256(name.encode()).hexdigest()
            repository, _, by_digest = name.partition("@")
            if by_digest:
                found.append(Image(by_digest, (), (name,)))
            else:
                found.append(Image(digest, (name,), (f"{repository.rpartition(':')[0]}@{digest}",)))
        return found

    async def pull(
        self,
        reference: str,
        auth: Auth | None,  # noqa: ARG002 - registries require no credentials
        labels: Mapping[str, str],  # noqa: ARG002 - required by the protocol
        annotations: Mapping[str, str],  # noqa: ARG002 - required by the protocol
        seconds: float,  # noqa: ARG002 - required by the protocol
    ) -> None:
        """Pull an image. Images of ``.invalid`` registries cannot be pulled."""
        if familiar_image(reference) is None:
            raise CriError(f"failed to parse image reference {reference!r}: invalid reference format")
        await self._all.clock.sleep(self._all.pull_seconds)
        name = full_name(reference)
        if why := unreachable(reference):
            raise CriError(f'failed to pull and unpack image "{name}": {why}')
        self._all.kubelets.images(self._node).add(name)

    async def containers(self, pod_uid: str) -> Sequence[Container]:
        """Return the containers of a Pod on this node."""
        pod = self._all.pod(pod_uid)
        if pod is None or pod.spec.node_name != self._node:
            return []
        return [_listed(one) for one in _statuses(pod)]

    async def details(self, container_id: str) -> ContainerDetails:
        """Return a container with its start and finish times and the annotations that a kubelet sets."""
        pod, status = self._get(container_id)
        state, started_at, finished_at, code = _state(status)
        started = self._all.started_with(status.container_id)
        annotations = {
            RESTART_COUNT: str(status.restart_count),
            meta.GRACE: str(pod.spec.termination_grace_period_seconds),
        }
        if started is not None:
            annotations[meta.HASH] = f"{started.plain_hash:x}"
        container = next((one for one in pod.spec.containers if one.name == status.name), None)
        if container is not None:
            annotations[PORTS] = msgspec.json.encode(container.ports).decode()
            hook = container.lifecycle.pre_stop if container.lifecycle is not None else None
            if hook is not None and hook.exec is not None:
                annotations[PRE_STOP] = msgspec.json.encode(hook).decode()
        return ContainerDetails(
            container_id,
            status.name,
            state,
            started_at or 1,
            started_at,
            finished_at,
            code,
            {"io.kubernetes.pod.uid": pod.metadata.uid},
            annotations,
        )

    async def stop(self, container_id: str, grace: int) -> None:
        """Stop a container and wait until it has exited."""
        pod, status = self._get(container_id)
        if _state(status)[0] is not ContainerState.RUNNING:
            return
        container = next(one for one in pod.spec.containers if one.name == status.name)
        seconds, code = term_of(context(pod, self._all.kubelets.inputs_of(pod)), container)
        await self._all.clock.sleep(min(seconds, grace))
        self._all.kubelets.end_container(pod, status.name, code if seconds <= grace else KILLED)
        end = self._all.clock.monotonic() + grace
        while self._all.clock.monotonic() < end:
            found = self._find(container_id)
            if found is None or _state(found[1])[0] is not ContainerState.RUNNING:
                return
            await self._all.clock.sleep(_POLL_SECONDS)

    async def execute(self, container_id: str, command: Sequence[str], seconds: float) -> ExecResult:
        """Simulate a command. ``env``, ``echo`` and ``sleep`` behave as usual; for other commands see ``answer_of``."""
        pod, status = self._get(container_id)
        state, started_at, _, _ = _state(status)
        if state is not ContainerState.RUNNING:
            raise CriError(f"container {container_id} is not running")
        match list(command):
            case ["env"]:
                started = self._all.started_with(status.container_id)
                lines = (started.env if started is not None else {}).items()
                return ExecResult(0, "".join(f"{name}={value}\n" for name, value in lines).encode())
            case ["echo", *words]:
                return ExecResult(0, (" ".join(words) + "\n").encode())
            case ["sleep", number] if number.isdigit():
                wanted = min(float(number), _LONGEST_SLEEP)
                await self._all.clock.sleep(min(wanted, seconds or wanted))
                if seconds and wanted > seconds:
                    raise DeadlineExceeded(f"timeout {seconds:g}s exceeded")
                return ExecResult(0)
        container = next(one for one in pod.spec.containers if one.name == status.name)
        behaviour = context(pod, self._all.kubelets.inputs_of(pod)).behave(container)
        since = self._all.clock.now().timestamp() - started_at / _NANO
        return ExecResult(0 if answer_of(command, behaviour.program, since)[0] else 1)

    async def close(self) -> None:
        """Do nothing: there is no connection to close."""

    def _get(self, container_id: str) -> tuple[Pod, ContainerStatus]:
        found = self._find(container_id)
        if found is None:
            raise NoSuchContainer(f"container {container_id} not found")
        return found

    def _find(self, container_id: str) -> tuple[Pod, ContainerStatus] | None:
        full_id = f"{self.name}://{container_id}"
        pod = self._all.owner(full_id)
        if pod is None or pod.spec.node_name != self._node:
            return None
        return next(((pod, status) for status in _statuses(pod) if status.container_id == full_id), None)


def _statuses(pod: Pod) -> Iterator[ContainerStatus]:
    return (one for one in pod.status.container_statuses if one.container_id)


def _listed(status: ContainerStatus) -> Container:
    state, started_at, _, _ = _state(status)
    return Container(status.container_id.partition("://")[2], status.name, state, started_at or 1)


def _state(status: ContainerStatus) -> tuple[ContainerState, int, int, int]:
    """Return the state, start and finish times (in nanoseconds since the epoch) and exit code."""
    running, terminated = status.state.running, status.state.terminated
    if running is not None:
        return ContainerState.RUNNING, _nano(running.started_at), 0, 0
    if terminated is not None:
        ended = _nano(terminated.finished_at)
        return ContainerState.EXITED, _nano(terminated.started_at), ended, terminated.exit_code
    return ContainerState.EXITED, 0, 0, 0


def _nano(moment: datetime | None) -> int:
    return int(moment.timestamp() * _NANO) if moment is not None else 0


class SimulatedNetwork(Network):
    """Network of simulated Pods. Nothing listens on their addresses, so every probe and hook is reported as
    successful."""

    async def connection(self, action: TcpSocketAction, pod_ip: str, seconds: float) -> Outcome:  # noqa: ARG002
        """Return success."""
        return Outcome(succeeded=True)

    async def request(self, action: HttpGetAction, pod_ip: str, seconds: float) -> Outcome:  # noqa: ARG002
        """Return success."""
        return Outcome(succeeded=True)

    async def hook(self, action: HttpGetAction, host: str, port: int) -> int:  # noqa: ARG002
        """Return success."""
        return 200


logger = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 1.0
T = TypeVar("T", bound=Object)


class Agents:
    """Runs one agent per node."""

    def __init__(self, client: Client, nodes: Sequence[str], kubelets: Kubelets, rng: Random) -> None:
        self._client = Client(client.transport, client.clock, user_agent=USER_AGENT)
        runtimes = PodRuntimes(kubelets, client.clock)
        self.by_node = {
            node: Agent(
                node,
                self._client,
                [runtimes.runtime(node)],
                rng,
                network=SimulatedNetwork(),
                watches=False,
            )
            for node in nodes
        }
        # The agents share their watches; otherwise there would be four watches per node.
        self._node_images: Store[NodeImage] = Store()
        self._requests: Store[RecreateRequest] = Store({BY_POD: pods_of})
        self._probes: Store[NodePodProbe] = Store()
        self._pods: Store[WatchedPod] = Store()
        self._reflectors: list[Reflector[Any]] = [
            Reflector(self._client, NODE_IMAGES, self._node_images, decode=decode_node_image, rng=rng),
            Reflector(
                self._client,
                RECREATE_REQUESTS,
                self._requests,
                decode=decode_recreate_request,
                rng=rng,
                label_selector=f"{names.CRR_ACTIVE}=true",
            ),
            Reflector(self._client, NODE_POD_PROBES, self._probes, decode=decode_node_pod_probe, rng=rng),
            Reflector(self._client, PODS, self._pods, decode=decode_pod, rng=rng, field_selector="spec.nodeName!="),
        ]

    async def run(self) -> None:
        """Run until canceled. Waits until the CRDs are installed."""
        await self._until_served()
        self._node_images.subscribe(lambda change: self._route(change, change.object.metadata.name, "node_images"))
        self._probes.subscribe(lambda change: self._route(change, change.object.metadata.name, "node_pod_probes"))
        self._requests.subscribe(
            lambda change: self._route(change, change.object.metadata.labels.node_name, "requests")
        )
        self._pods.subscribe(lambda change: self._route(change, change.object.spec.node_name, "pods"))
        async with asyncio.TaskGroup() as tasks:
            for reflector in self._reflectors:
                tasks.create_task(reflector.run(), name=f"agents: reflector {reflector.resource.kind}")
            for store in (self._node_images, self._requests, self._probes, self._pods):
                await store.wait_until_ready()
            for agent in self.by_node.values():
                stores: list[Store[Any] | None] = [agent.node_images, agent.requests, agent.node_pod_probes, agent.pods]
                for own in stores:
                    if own is not None:
                        own.replace(own.list())  # marks the store as complete
                tasks.create_task(agent.run(), name=f"agent of {agent.node}")

    async def _until_served(self) -> None:
        while True:
            try:
                for resource in (NODE_IMAGES, RECREATE_REQUESTS, NODE_POD_PROBES):
                    await self._client.list_page(resource, limit=1)
            except NotFound:
                pass
            except KubeError as error:
                logger.info("node agents are waiting for the API server: %s", error)
            else:
                return
            await self._client.clock.sleep(_LOOK_SECONDS)

    def _route(self, change: Change[Any], node: str, store: str) -> None:
        """Route a change to the agent of its node."""
        agent = self.by_node.get(node)
        own: Store[Any] | None = getattr(agent, store) if agent is not None else None
        if own is None:
            return
        if change.new is None:
            own.remove(key_of(change.object), change.object)
        else:
            own.put(change.new)
