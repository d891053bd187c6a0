"""The containers of a Pod's spec."""

from __future__ import annotations

from typing import Final

import msgspec

from app.kube.objects.base import Struct
from app.kube.objects.resources import NO_RESOURCES, ResourceRequirements, shared, shared_resources


class ConfigMapKeySelector(Struct, frozen=True):
    """A key of a ConfigMap in the Pod's namespace."""

    name: str = ""
    key: str = ""


class ObjectFieldSelector(Struct, frozen=True):
    """A field of the Pod itself, such as ``metadata.labels['app']``."""

    field_path: str = ""


class EnvVarSource(Struct, frozen=True):
    """Where the value of an environment variable comes from, if from a ConfigMap or a field of the Pod."""

    config_map_key_ref: ConfigMapKeySelector | None = None
    field_ref: ObjectFieldSelector | None = None


class EnvVar(Struct, frozen=True):
    """An environment variable, without its value."""

    name: str = ""
    value_from: EnvVarSource | None = None


class ContainerResizePolicy(Struct, frozen=True):
    """Whether a container restarts when this resource of it changes in place."""

    resource_name: str = ""
    restart_policy: str = ""


class ContainerPort(Struct, frozen=True):
    """A port of a container that has a name."""

    name: str = ""
    container_port: int = 0


class Container(Struct, frozen=True):
    """A container of a Pod's spec: who it is, what it runs and uses. Of its env only what comes from ConfigMaps, labels
    and annotations is kept: without the first it cannot start, by the others it is updated in place."""

    name: str = ""
    image: str = ""
    restart_policy: str = ""
    env: tuple[EnvVar, ...] = ()
    resources: ResourceRequirements = NO_RESOURCES
    resize_policy: tuple[ContainerResizePolicy, ...] = ()
    #: Those with a name.
    ports: tuple[ContainerPort, ...] = ()

    def __post_init__(self) -> None:
        # Plain values are most of a Pod's env, read by nobody, and would double what a cached Pod costs. The rest is
        # mostly the same in all Pods of a workload, and then kept once.
        if self.env:
            msgspec.structs.force_setattr(self, "env", shared(tuple(entry for entry in self.env if _is_read(entry))))
        if self.resize_policy:
            msgspec.structs.force_setattr(self, "resize_policy", shared(self.resize_policy))
        if self.ports:
            named = shared(tuple(port for port in self.ports if port.name))
            msgspec.structs.force_setattr(self, "ports", named)
        msgspec.structs.force_setattr(self, "resources", shared_resources(self.resources))


def _is_read(entry: EnvVar) -> bool:
    source = entry.value_from
    if source is None:
        return False
    return source.config_map_key_ref is not None or (
        source.field_ref is not None and source.field_ref.field_path.startswith(_METADATA_MAPS)
    )


_METADATA_MAPS: Final = ("metadata.labels[", "metadata.annotations[")


class PlainEnvVar(Struct, frozen=True):
    """An environment variable with its value."""

    name: str = ""
    value: str = ""


class EphemeralContainer(Struct, frozen=True):
    """A container that was put into a running Pod."""

    name: str = ""
    env: tuple[PlainEnvVar, ...] = ()
