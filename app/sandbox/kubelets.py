"""Kubelets of simulated nodes, and container logs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Any

from app.kube.client import Client, PatchType
from app.kube.controller import Controller, Result, Watch
from app.kube.errors import Conflict, NotFound
from app.kube.events import EventRecorder, reference
from app.kube.expectations import is_at_least
from app.kube.objects import ConfigMap, decode_config_map, decode_metadata
from app.kube.reflector import Reflector
from app.kube.resources import CONFIGMAPS, PODS, SECRETS, ObjectKey
from app.kube.store import Change, Store, key_of
from app.sandbox.kubelet.plan import PodInputs, PodPlan, PodRun, context, plan
from app.sandbox.kubelet.program import CRASH, Pace, Scripts, script_error
from app.sandbox.kubelet.status import needs
from app.sandbox.objects import Container, ContainerStatus, Pod, Secret, decode_pod, decode_secret


def log_of(pod: Pod, inputs: PodInputs, container: str = "", *, previous: bool = False) -> str:
    """Return the log of a container (the first by default) or of its previous run. Raises LookupError."""
    found, status = _find(pod, container)
    state = status.last_state if previous else status.state
    if previous and state.terminated is None:
        raise LookupError(f'previous terminated container "{found.name}" in pod "{pod.metadata.name}" not found')
    if state.running is not None:
        began, until = state.running.started_at, inputs.now
    elif state.terminated is not None and state.terminated.finished_at is not None:
        began, until = state.terminated.started_at, state.terminated.finished_at
    else:
        reason = state.waiting.reason if state.waiting is not None else "ContainerCreating"
        where = f'container "{found.name}" in pod "{pod.metadata.name}" is waiting to start'
        raise LookupError(f"{where}: {reason}")
    if began is None:
        return ""
    behaviour = context(pod, inputs).behave(found)
    lines = list(behaviour.script.log)
    if not found.command and not found.args:
        lines.append(f"{found.image} is running (simulated, no further output)")
    lines += [text for _, text in behaviour.program.printed((until - began).total_seconds())]
    return "".join(f"{line}\n" for line in lines)


def _find(pod: Pod, name: str) -> tuple[Container, ContainerStatus]:
    containers = (*pod.spec.containers, *pod.spec.init_containers)
    container = next((one for one in containers if one.name == name or not name), None)
    if container is None:
        raise LookupError(f"container {name} is not valid for pod {pod.metadata.name}")
    statuses = (*pod.status.container_statuses, *pod.status.init_container_statuses)
    status = next((one for one in statuses if one.name == container.name), ContainerStatus(container.name))
    return container, status


# One controller carries out the plans of :mod:`app.sandbox.kubelet` for the Pods on all nodes. A single patch takes a
# Pod from bound to running and a single request removes it, so that the simulation is not the bottleneck in
# measurements.

WORKERS = 32
_CONFIG_MAPS = "config maps of env"
_SECRETS = "secrets of env"


@dataclass(slots=True)
class _PodState:
    """State that the kubelet keeps per Pod."""

    #: Resource version after the kubelet's last write.
    version: str = ""
    run: PodRun | None = None
    address: str = ""


@dataclass(slots=True)
class PodAddresses:
    """Allocates Pod addresses, 10.x.y.z with a range per node. No two Pods use an address at the same time."""

    nodes: Mapping[str, int]
    in_use: set[str] = field(default_factory=set)
    _next: dict[str, count[int]] = field(default_factory=dict)

    def take(self, node: str) -> str:
        """Allocate a free address from the node's range."""
        numbers = self._next.setdefault(node, count(1))
        while True:
            number = next(numbers) % 65534 + 1
            address = f"10.{self.nodes[node] % 250 + 1}.{number >> 8}.{number & 255}"
            if address not in self.in_use:
                self.in_use.add(address)
                return address


class Kubelets:
    """Kubelets of the nodes in ``hosts`` (name → address). ``events`` records events as kubelets do."""

    def __init__(
        self,
        client: Client,
        hosts: Mapping[str, str],
        *,
        rng: Random,
        pods: Store[Pod] | None = None,
        pace: Pace | None = None,
        scripts: Scripts | None = None,
        events: bool = False,
    ) -> None:
        self._client = client
        self._clock = client.clock
        self._hosts = hosts
        self._pace = pace if pace is not None else Pace()
        self._scripts = scripts
        self._states: dict[str, _PodState] = {}
        self._images: dict[str, set[str]] = {name: set() for name in hosts}
        self._stopped: set[str] = set()
        #: Containers ended by the runtime and not reported yet: Pod UID → name → exit code.
        self._ended: dict[str, dict[str, int]] = {}
        self._addresses = PodAddresses({name: number for number, name in enumerate(hosts)})
        self._recorders = {name: EventRecorder(client, "kubelet", instance=name) for name in hosts} if events else {}
        self.pods: Store[Pod] = pods if pods is not None else Store(INDEXES)
        self.config_maps: Store[ConfigMap] = Store()
        self.secrets: Store[Secret] = Store()
        self.pods.subscribe(self._note)
        self.reflectors: list[Reflector[Any]] = [
            Reflector(client, CONFIGMAPS, self.config_maps, decode=decode_config_map, rng=rng),
            Reflector(client, SECRETS, self.secrets, decode=decode_secret, rng=rng),
        ]
        if pods is None:
            selector = "spec.nodeName!="
            self.reflectors.append(
                Reflector(client, PODS, self.pods, decode=decode_pod, rng=rng, field_selector=selector)
            )
        self.controller = Controller(
            "sandbox-kubelets",
            client.clock,
            [
                Watch(self.pods, self._keys_for_pod),
                Watch(self.config_maps, self._keys_for_data(_CONFIG_MAPS)),
                Watch(self.secrets, self._keys_for_data(_SECRETS)),
            ],
            self._reconcile,
            workers=WORKERS,
        )

    def tasks(self) -> list[Any]:
        """Return the coroutines to run concurrently until canceled."""
        recorders = [recorder.run() for recorder in self._recorders.values()]
        return [*(reflector.run() for reflector in self.reflectors), self.controller.run(), *recorders]

    def stop(self, node: str) -> None:
        """Simulate a node failure: the status of its Pods is no longer updated, and deleted Pods are not removed."""
        self._stopped.add(node)

    def start(self, node: str) -> None:
        """Restart a node. Its in-memory state of the Pods is lost."""
        self._stopped.discard(node)
        for pod in self.pods.list():
            if pod.spec.node_name == node:
                self._states.pop(pod.metadata.uid, None)
                self.controller.queue.add(key_of(pod))

    def is_stopped(self, node: str) -> bool:
        """Return whether the node was stopped."""
        return node in self._stopped

    def log(self, namespace: str, name: str, container: str = "", *, previous: bool = False) -> str:
        """Return the log as ``kubectl logs`` shows it. Raises LookupError with the reason if there is none."""
        pod = self.pods.get(name, namespace)
        if pod is None:
            raise LookupError(f'pods "{name}" not found')
        return log_of(pod, self._inputs(pod, ""), container, previous=previous)

    def images(self, node: str) -> set[str]:
        """Return the full names of the images on a node. The set is live: image pullers add to it."""
        return self._images[node]

    def end_container(self, pod: Pod, name: str, code: int) -> None:
        """End a container as the runtime would. The kubelet notices it and restarts the container if required."""
        self._ended.setdefault(pod.metadata.uid, {})[name] = code
        self.controller.queue.add(key_of(pod))

    def inputs_of(self, pod: Pod) -> PodInputs:
        """Return the inputs to a plan for the Pod."""
        return self._inputs(pod, pod.status.pod_ip)

    # ---- event mapping

    def _note(self, change: Change[Pod]) -> None:
        """Track addresses and forget deleted Pods."""
        shown = change.object
        if change.new is None:
            self._states.pop(shown.metadata.uid, None)
            self._ended.pop(shown.metadata.uid, None)
            self._addresses.in_use.discard(shown.status.pod_ip)
        elif shown.status.pod_ip:
            self._addresses.in_use.add(shown.status.pod_ip)

    def _keys_for_pod(self, change: Change[Pod]) -> Iterable[ObjectKey]:
        pod = change.new
        return (key_of(pod),) if pod is not None and self._runs(pod) else ()

    def _keys_for_data(self, index: str) -> Any:
        def keys(change: Change[Any]) -> Iterable[ObjectKey]:
            return [key_of(pod) for pod in self.pods.by_index(index, str(key_of(change.object)))]

        return keys

    def _runs(self, pod: Pod) -> bool:
        return pod.spec.node_name in self._hosts and pod.spec.node_name not in self._stopped

    # ---- reconcile

    async def _reconcile(self, key: ObjectKey) -> Result | None:
        pod = self.pods.by_key(key)
        if pod is None or not self._runs(pod):
            return None
        state = self._states.setdefault(pod.metadata.uid, _PodState())
        if state.version and not is_at_least(pod.metadata.resource_version, state.version):
            return None  # the cache does not show our own write yet; its event follows
        try:
            return await self._carry_out(pod, state)
        except (NotFound, Conflict):
            return None  # gone or replaced; the events of its replacement follow

    async def _carry_out(self, pod: Pod, state: _PodState) -> Result | None:
        metadata = pod.metadata
        todo = plan(pod, self._inputs(pod, self._address(pod, state)), state.run)
        if todo.status:
            await self._patch_status(pod, todo.status, state)
        self._ended.pop(metadata.uid, None)
        # Keep the new state only after the write, so that a failed write is planned again.
        is_new, state.run = state.run is None, todo.run
        self._images[pod.spec.node_name].update(todo.pulled)
        self._record_events(pod, todo, is_new=is_new)
        if todo.clear_crash:
            gone = {"metadata": {"uid": metadata.uid, "annotations": {CRASH: None}}}
            await self._client.patch(PODS, metadata.name, gone, metadata.namespace)
        if todo.remove:
            await self._client.delete(PODS, metadata.name, metadata.namespace, grace_period_seconds=0, uid=metadata.uid)
        return Result(requeue_after=todo.again_after)

    def _inputs(self, pod: Pod, address: str) -> PodInputs:
        node = pod.spec.node_name
        return PodInputs(
            host_ip=self._hosts.get(node, ""),
            pod_ip=address,
            now=self._clock.now(),
            config_maps=self._config_map_data,
            secrets=self._secret_data,
            pace=self._pace,
            scripts=self._scripts,
            has_image=self._images.get(node, set()).__contains__,
            ended=self._ended.get(pod.metadata.uid, {}),
        )

    async def _patch_status(self, pod: Pod, status: Mapping[str, Any], state: _PodState) -> None:
        metadata = pod.metadata
        written = await self._client.patch(
            PODS,
            metadata.name,
            {"metadata": {"uid": metadata.uid}, "status": status},
            metadata.namespace,
            kind=PatchType.STRATEGIC,
            subresource="status",
            decode=decode_metadata,
        )
        state.version = written.metadata.resource_version

    def _record_events(self, pod: Pod, todo: PodPlan, *, is_new: bool) -> None:
        recorder = self._recorders.get(pod.spec.node_name)
        if recorder is None:
            return
        if is_new and (wrong := script_error(pod)):
            recorder.event(reference(PODS, pod), "Warning", "BehaviourIgnored", wrong)
        inits = {one.name for one in pod.spec.init_containers}
        for event in todo.events:
            part = "initContainers" if event.container in inits else "containers"
            regarding = reference(PODS, pod, f"spec.{part}{{{event.container}}}")
            recorder.event(regarding, event.type, event.reason, event.message)

    def _config_map_data(self, namespace: str, name: str) -> Mapping[str, str] | None:
        found = self.config_maps.get(name, namespace)
        return found.data if found is not None else None

    def _secret_data(self, namespace: str, name: str) -> Mapping[str, str] | None:
        found = self.secrets.get(name, namespace)
        return found.data if found is not None else None

    def _address(self, pod: Pod, state: _PodState) -> str:
        """Return the Pod's address, or allocate one if it is about to start."""
        if pod.status.start_time is not None or pod.spec.host_network or pod.metadata.deletion_timestamp is not None:
            return pod.status.pod_ip
        if not state.address:
            state.address = self._addresses.take(pod.spec.node_name)
        return state.address


def _config_maps_of(pod: Pod) -> list[str]:
    return [str(ObjectKey(pod.metadata.namespace, name)) for name in needs(pod, "configmap")]


def _secrets_of(pod: Pod) -> list[str]:
    return [str(ObjectKey(pod.metadata.namespace, name)) for name in needs(pod, "secret")]


#: Indexes of Pods that the kubelets need.
INDEXES = {_CONFIG_MAPS: _config_maps_of, _SECRETS: _secrets_of}
