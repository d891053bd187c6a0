"""A container's environment: what its entries resolve to, and what keeps the container from being created. Pure."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias

from app.sandbox.objects import Container, Pod

#: The data of a ConfigMap or Secret, or None if there is none of that namespace and name.
Data: TypeAlias = Callable[[str, str], Mapping[str, str] | None]

_MAP_FIELD: Final = re.compile(r"metadata\.(labels|annotations)\['(.+)'\]")


class Source(NamedTuple):
    """Something the environment needs: ``key`` is '' where all keys are meant."""

    kind: str
    name: str
    key: str
    optional: bool


def nothing(_namespace: str, _name: str) -> Mapping[str, str] | None:
    """No ConfigMap, no Secret."""
    return None


def sources(container: Container) -> Iterator[Source]:
    """The ConfigMaps and Secrets the environment is made of."""
    for many in container.env_from:
        if many.config_map_ref is not None:
            yield Source("configmap", many.config_map_ref.name, "", many.config_map_ref.optional)
        if many.secret_ref is not None:
            yield Source("secret", many.secret_ref.name, "", many.secret_ref.optional)
    for entry in container.env:
        origin = entry.value_from
        if origin is not None and origin.config_map_key_ref is not None:
            selector = origin.config_map_key_ref
            yield Source("configmap", selector.name, selector.key, selector.optional)
        if origin is not None and origin.secret_key_ref is not None:
            selector = origin.secret_key_ref
            yield Source("secret", selector.name, selector.key, selector.optional)


def needs(pod: Pod, kind: str) -> frozenset[str]:
    """The names of the ConfigMaps (``configmap``) or Secrets (``secret``) that the Pod's containers take env from."""
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    return frozenset(source.name for one in containers for source in sources(one) if source.kind == kind)


def environment(
    pod: Pod, container: Container, config_maps: Data, secrets: Data, addresses: tuple[str, str] = ("", "")
) -> dict[str, str]:
    """Name → value. ``addresses``: of the Pod and of its node. What is missing is left out; see ``hindrance``."""
    namespace = pod.metadata.namespace
    found: dict[str, str] = {}
    for many in container.env_from:
        for source in sources(Container(env_from=(many,))):
            data = _data(source, namespace, config_maps, secrets) or {}
            found |= {f"{many.prefix}{key}": value for key, value in data.items()}
    for entry in container.env:
        origin = entry.value_from
        if origin is None:
            found[entry.name] = entry.value
        elif origin.field_ref is not None:
            found[entry.name] = field_value(pod, origin.field_ref.field_path, addresses)
        for source in sources(Container(env=(entry,))):
            data = _data(source, namespace, config_maps, secrets) or {}
            if source.key in data:
                found[entry.name] = data[source.key]
    return found


def hindrance(container: Container, namespace: str, config_maps: Data, secrets: Data) -> str:
    """What keeps the container from being created, in the kubelet's words; '' if nothing does."""
    for source in sources(container):
        if source.optional:
            continue
        data = (secrets if source.kind == "secret" else config_maps)(namespace, source.name)
        if data is None:
            return f'{source.kind} "{source.name}" not found'
        if source.key and source.key not in data:
            kind = "Secret" if source.kind == "secret" else "ConfigMap"
            return f"couldn't find key {source.key} in {kind} {namespace}/{source.name}"
    return ""


def _data(source: Source, namespace: str, config_maps: Data, secrets: Data) -> Mapping[str, str] | None:
    if source.kind == "configmap":
        return config_maps(namespace, source.name)
    data = secrets(namespace, source.name)
    return {key: _plain(value) for key, value in data.items()} if data is not None else None


def _plain(value: str) -> str:
    try:
        return base64.b64decode(value).decode()
    except (binascii.Error, UnicodeDecodeError):
        return value


def field_value(pod: Pod, path: str, addresses: tuple[str, str] = ("", "")) -> str:
    """A field of the Pod as the downward API gives it; '' for one that it does not have."""
    if found := _MAP_FIELD.fullmatch(path):
        values = pod.metadata.labels if found[1] == "labels" else pod.metadata.annotations
        return values.get(found[2], "")
    pod_ip, host_ip = addresses
    return {
        "metadata.name": pod.metadata.name,
        "metadata.namespace": pod.metadata.namespace,
        "metadata.uid": pod.metadata.uid,
        "spec.nodeName": pod.spec.node_name,
        "spec.serviceAccountName": pod.spec.service_account_name,
        "status.podIP": pod.status.pod_ip or pod_ip,
        "status.podIPs": pod.status.pod_ip or pod_ip,
        "status.hostIP": host_ip,
        "status.hostIPs": host_ip,
    }.get(path, "")
