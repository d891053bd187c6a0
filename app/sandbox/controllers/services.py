"""Service and service account controllers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from typing import Any, Final

from app.kube.client import Client
from app.kube.controller import Controller, Watch, to_self
from app.kube.errors import AlreadyExists, Forbidden, NotFound
from app.kube.objects import ConfigMap, Namespace, ObjectMeta, Struct, decode_config_map, decode_namespace, decoder
from app.kube.reflector import Reflector
from app.kube.resources import CONFIGMAPS, ENDPOINTSLICES, NAMESPACES, SERVICEACCOUNTS, SERVICES, ObjectKey, Resource
from app.kube.store import Change, Store, key_of
from app.sandbox.controllers.objects import ENDPOINTS, Service, ServicePort, Slice
from app.sandbox.controllers.pods import is_ready, owner_reference
from app.sandbox.kubelet.plan import FINISHED
from app.sandbox.objects import Pod

_NAME: Final = "kubernetes.io/service-name"
_MANAGED_BY: Final = "endpointslice.kubernetes.io/managed-by"


def selected(service: Service, pods: Iterable[Pod]) -> list[Pod]:
    """Return the Service's Pods that have an address and are not finished, sorted by name."""
    wanted = service.spec.selector.items()
    found = [
        pod
        for pod in pods
        if wanted <= pod.metadata.labels.items() and pod.status.pod_ip and pod.status.phase not in FINISHED
    ]
    return sorted(found, key=lambda pod: pod.metadata.name)


def endpoint(pod: Pod, service: Service) -> dict[str, Any]:
    """Return a Pod as an EndpointSlice entry."""
    terminating = pod.metadata.deletion_timestamp is not None
    ready = is_ready(pod) or service.spec.publish_not_ready_addresses
    target = {"kind": "Pod", "namespace": pod.metadata.namespace, "name": pod.metadata.name, "uid": pod.metadata.uid}
    return {
        "addresses": [pod.status.pod_ip],
        "conditions": {"ready": ready and not terminating, "serving": ready, "terminating": terminating},
        "nodeName": pod.spec.node_name,
        "targetRef": target,
    }


def port_of(port: ServicePort, pods: Sequence[Pod]) -> dict[str, Any] | None:
    """Resolve a Service port to a port number of its Pods. Returns None if no Pod has a port of that name."""
    target = port.target_port or port.port
    if isinstance(target, str):
        numbers = (
            one.container_port
            for pod in pods
            for container in pod.spec.containers
            for one in container.ports
            if one.name == target
        )
        found = next(numbers, None)
        if found is None:
            return None
        target = found
    return {"name": port.name, "port": target, "protocol": port.protocol}


def subsets(pods: Sequence[Pod], service: Service, ports: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the Pods and ports as the subsets of an Endpoints object."""
    ready: list[dict[str, Any]] = []
    waiting: list[dict[str, Any]] = []
    for pod in pods:
        if pod.metadata.deletion_timestamp is not None:
            continue
        one = endpoint(pod, service)
        address = {"ip": pod.status.pod_ip, "nodeName": pod.spec.node_name, "targetRef": one["targetRef"]}
        (ready if one["conditions"]["ready"] else waiting).append(address)
    subset: dict[str, Any] = {}
    if ready:
        subset["addresses"] = ready
    if waiting:
        subset["notReadyAddresses"] = waiting
    if not subset:
        return []
    if named := [{key: value for key, value in port.items() if value} for port in ports]:
        subset["ports"] = named
    return [subset]


class Services:
    """Controller of EndpointSlices and Endpoints."""

    def __init__(self, client: Client, pods: Store[Pod], rng: Random) -> None:
        self._client = client
        self._pods = pods
        self.services: Store[Service] = Store()
        self.slices: Store[Slice] = Store()
        self.endpoints: Store[Slice] = Store()
        self._reflectors: list[Reflector[Any]] = [
            Reflector(client, SERVICES, self.services, decode=decoder(Service), rng=rng),
            Reflector(client, ENDPOINTSLICES, self.slices, decode=decoder(Slice), rng=rng),
            Reflector(client, ENDPOINTS, self.endpoints, decode=decoder(Slice), rng=rng),
        ]
        watches: list[Watch[Any]] = [
            Watch(self.services, to_self),
            Watch(pods, self._keys_for_pod, delay=0.05),
            Watch(self.slices, lambda _change: ()),
            Watch(self.endpoints, lambda _change: ()),
        ]
        self.controller = Controller("sandbox-endpoints", client.clock, watches, self._reconcile, workers=2)

    def tasks(self) -> list[Any]:
        """Return the coroutines to run concurrently until canceled."""
        return [*(reflector.run() for reflector in self._reflectors), self.controller.run()]

    def _keys_for_pod(self, change: Change[Pod]) -> Iterable[ObjectKey]:
        pods = [pod for pod in (change.old, change.new) if pod is not None]
        return {
            key_of(service): None
            for service in self.services.list(change.object.metadata.namespace)
            if service.spec.selector and any(service.spec.selector.items() <= p.metadata.labels.items() for p in pods)
        }

    async def _reconcile(self, key: ObjectKey) -> None:
        service = self.services.by_key(key)
        if service is None or not service.spec.selector or service.metadata.deletion_timestamp is not None:
            return
        pods = selected(service, self._pods.list(key.namespace))
        ports = [one for one in (port_of(port, pods) for port in service.spec.ports) if one is not None]
        owner = [owner_reference(SERVICES, service.metadata)]
        labels = {**service.metadata.labels, _NAME: key.name, _MANAGED_BY: "endpointslice-controller.k8s.io"}
        wanted = {"endpoints": [endpoint(pod, service) for pod in pods], "ports": ports}
        old = self.slices.by_key(key)
        if old is None or (old.endpoints or [], old.ports or []) != (wanted["endpoints"], wanted["ports"]):
            await self._write(ENDPOINTSLICES, key, {"labels": labels, "ownerReferences": owner}, wanted)
        groups = subsets(pods, service, ports)
        legacy = self.endpoints.by_key(key)
        if legacy is None or (legacy.subsets or []) != groups:
            await self._write(ENDPOINTS, key, {"labels": dict(service.metadata.labels)}, {"subsets": groups})

    async def _write(self, resource: Resource, key: ObjectKey, metadata: dict[str, Any], body: dict[str, Any]) -> None:
        try:
            await self._client.patch(resource, key.name, body, key.namespace)
        except NotFound:
            kind: dict[str, Any] = {"addressType": "IPv4"} if resource is ENDPOINTSLICES else {}
            try:
                whole = {"metadata": {"name": key.name, **metadata}, **kind, **body}
                await self._client.create(resource, whole, key.namespace)
            except AlreadyExists:
                await self._client.patch(resource, key.name, body, key.namespace)


ROOT = "kube-root-ca.crt"


class ServiceAccount(Struct, frozen=True):
    """A ServiceAccount."""

    metadata: ObjectMeta = ObjectMeta()


class Accounts:
    """Creates the default objects in each namespace. ``authority`` is the PEM-encoded CA certificate of the cluster."""

    def __init__(self, client: Client, rng: Random, authority: str = "") -> None:
        self._client = client
        self._authority = authority
        self.namespaces: Store[Namespace] = Store()
        self.accounts: Store[ServiceAccount] = Store()
        self.config_maps: Store[ConfigMap] = Store()
        named = f"metadata.name={ROOT}"
        self._reflectors: list[Reflector[Any]] = [
            Reflector(client, NAMESPACES, self.namespaces, decode=decode_namespace, rng=rng),
            Reflector(client, SERVICEACCOUNTS, self.accounts, decode=decoder(ServiceAccount), rng=rng),
            Reflector(client, CONFIGMAPS, self.config_maps, decode=decode_config_map, rng=rng, field_selector=named),
        ]
        watches: list[Watch[Any]] = [
            Watch(self.namespaces, to_self),
            Watch(self.accounts, _keys_for_namespace),
            Watch(self.config_maps, _keys_for_namespace),
        ]
        self.controller = Controller("sandbox-accounts", client.clock, watches, self._reconcile, workers=1)

    def tasks(self) -> list[Any]:
        """Return the coroutines to run concurrently until canceled."""
        return [*(reflector.run() for reflector in self._reflectors), self.controller.run()]

    async def _reconcile(self, key: ObjectKey) -> None:
        namespace = self.namespaces.by_key(key)
        if namespace is None or namespace.metadata.deletion_timestamp is not None:
            return
        try:
            if self.accounts.get("default", key.name) is None:
                await self._client.create(SERVICEACCOUNTS, {"metadata": {"name": "default"}}, key.name)
            if self.config_maps.get(ROOT, key.name) is None:
                body = {"metadata": {"name": ROOT}, "data": {"ca.crt": self._authority}}
                await self._client.create(CONFIGMAPS, body, key.name)
        except AlreadyExists:
            return
        except (Forbidden, NotFound):
            return  # the namespace is being deleted


def _keys_for_namespace(change: Change[Any]) -> tuple[ObjectKey, ...]:
    return (ObjectKey("", change.object.metadata.namespace),)
