"""Validation of environment variables, volume mounts and their paths."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from app.kube.fielderrors import FieldError, Path, forbidden, invalid, not_found, not_supported, required
from app.kube.validation import is_config_map_key, is_dns1123_subdomain, is_env_var_name, is_qualified_name

Json = Mapping[str, Any]

ENV_FIELDS: Final = (
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
)
_CONVERTIBLE: Final = frozenset(
    (
        *ENV_FIELDS,
        "metadata.annotations",
        "metadata.labels",
        "spec.host",
        "spec.restartPolicy",
        "spec.schedulerName",
        "status.phase",
    )
)
_RESOURCES: Final = (
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
)
_SOURCES: Final = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")
_NO_SOURCE: Final = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`"
_TWO_SOURCES: Final = "may not have more than one field specified at a time"


def env_errors(variables: Sequence[Json], path: Path) -> Iterator[FieldError]:
    """Validate ``env``. Names may occur twice: the last one wins, and tools rely on this."""
    for index, variable in enumerate(variables):
        at = path.index(index)
        if variable["name"]:
            name = variable["name"]
            yield from [invalid(at.child("name"), name, message) for message in is_env_var_name(name)]
        else:
            yield required(at.child("name"))
        if "valueFrom" in variable:
            yield from _source_errors(variable, at.child("valueFrom"))


def _source_errors(variable: Json, path: Path) -> Iterator[FieldError]:
    source = variable["valueFrom"]
    if "fieldRef" in source:
        yield from field_ref_errors(source["fieldRef"], ENV_FIELDS, path.child("fieldRef"))
    if "resourceFieldRef" in source:
        yield from resource_ref_errors(source["resourceFieldRef"], path.child("resourceFieldRef"))
    for kind in ("configMapKeyRef", "secretKeyRef"):
        if kind in source:
            yield from _key_errors(source[kind], path.child(kind))
    given = sum(kind in source for kind in _SOURCES)
    if not given:
        yield invalid(path, "", _NO_SOURCE)
    elif variable.get("value"):
        yield invalid(path, "", "may not be specified when `value` is not empty")
    elif given > 1:
        yield invalid(path, "", _TWO_SOURCES)


def _key_errors(selector: Json, path: Path) -> list[FieldError]:
    name, key = selector.get("name", ""), selector["key"]
    errors = [invalid(path.child("name"), name, message) for message in is_dns1123_subdomain(name)]
    if not key:
        return [*errors, required(path.child("key"))]
    return errors + [invalid(path.child("key"), key, message) for message in is_config_map_key(key)]


def field_ref_errors(reference: Json, fields: Sequence[str], path: Path) -> list[FieldError]:
    """Validate a reference to a field of the Pod: one of ``fields``, a label or an annotation."""
    version, label = reference.get("apiVersion") or "", reference.get("fieldPath") or ""
    if not version or not label:
        return [required(path.child("fieldPath" if version else "apiVersion"))]
    if version != "v1":
        return [_unconvertible(label, f"unsupported pod version: {version}", path)]
    name, bracket, rest = label.partition("['")
    if not (bracket and name and rest.endswith("']")):
        if label not in _CONVERTIBLE:
            return [_unconvertible(label, f"field label not supported: {label}", path)]
        known = "spec.nodeName" if label == "spec.host" else label
        return [] if known in fields else [not_supported(path.child("fieldPath"), known, fields)]
    key = rest.removesuffix("']")
    if name == "metadata.labels":
        return [invalid(path, key, message) for message in is_qualified_name(key)]
    if name == "metadata.annotations":
        return [invalid(path, key.lower(), message) for message in is_qualified_name(key.lower())]
    return [_unconvertible(label, f"field label does not support subscript: {label}", path)]


def _unconvertible(label: str, reason: str, path: Path) -> FieldError:
    return invalid(path.child("fieldPath"), label, f"error converting fieldPath: {reason}")


def resource_ref_errors(reference: Json, path: Path, *, of_volume: bool = False) -> list[FieldError]:
    """Validate a reference to a container's resources; in a volume, it must name the container."""
    resource = reference.get("resource", "")
    if of_volume and not reference.get("containerName"):
        return [required(path.child("containerName"))]
    if not resource:
        return [required(path.child("resource"))]
    if resource in _RESOURCES or resource.startswith(("limits.hugepages-", "requests.hugepages-")):
        return []
    return [not_supported(path.child("resource"), resource, _RESOURCES)]


def env_from_errors(sources: Sequence[Json], path: Path) -> Iterator[FieldError]:
    """Validate ``envFrom``. Errors about the number of sources are reported at the list, as in Kubernetes."""
    for index, source in enumerate(sources):
        at = path.index(index)
        prefix = source.get("prefix")
        if prefix:
            yield from [invalid(at.child("prefix"), prefix, message) for message in is_env_var_name(prefix)]
        given = [kind for kind in ("configMapRef", "secretRef") if kind in source]
        for kind in given:
            name = source[kind].get("name", "")
            if name:
                yield from [invalid(at.child(kind, "name"), name, message) for message in is_dns1123_subdomain(name)]
            else:
                yield required(at.child(kind, "name"))
        if not given:
            yield invalid(path, "", "must specify one of: `configMapRef` or `secretRef`")
        elif len(given) > 1:
            yield invalid(path, "", _TWO_SOURCES)


def backstep_errors(text: str, path: Path) -> list[FieldError]:
    """Validate that a path has no ``..`` element."""
    return [invalid(path, text, "must not contain '..'")] if ".." in text.split("/") else []


def descending_errors(text: str, path: Path) -> list[FieldError]:
    """Validate that a path is relative and has no ``..`` element."""
    absolute = [invalid(path, text, "must be a relative path")] if text.startswith("/") else []
    return absolute + backstep_errors(text, path)


def local_file_errors(text: str, path: Path) -> list[FieldError]:
    """Validate a relative path without ``..`` elements and without the prefix ``..``, which the kubelet reserves."""
    errors = descending_errors(text, path)
    if text.startswith("..") and not text.startswith("../") and text != "..":
        errors.append(invalid(path, text, "must not start with '..'"))
    return errors


def mode_errors(mode: int | None, path: Path) -> list[FieldError]:
    """Validate permission bits of a file."""
    if mode is None or 0 <= mode <= 0o777:
        return []
    return [invalid(path, mode, "must be a number between 0 and 0777 (octal), both inclusive")]


_PROPAGATIONS: Final = ("Bidirectional", "HostToContainer", "None")
_RECURSIVE: Final = ("Disabled", "Enabled", "IfPossible")
_NO_BLOCK: Final = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"


def mount_errors(container: Json, volumes: Mapping[str, Json], path: Path) -> Iterator[FieldError]:
    """Validate ``volumeMounts``. ``volumes`` are the valid volumes by name."""
    devices = {device["name"]: device["devicePath"] for device in container.get("volumeDevices", ())}
    device_paths = set(devices.values())
    taken: set[str] = set()
    for index, mount in enumerate(container.get("volumeMounts", ())):
        at = path.index(index)
        name, mount_path = mount["name"], mount["mountPath"]
        if not name:
            yield required(at.child("name"))
        if name not in volumes:
            yield not_found(at.child("name"), name)
        if not mount_path:
            yield required(at.child("mountPath"))
        if mount_path in taken:
            yield invalid(at.child("mountPath"), mount_path, "must be unique")
        taken.add(mount_path)
        if name in devices:
            yield invalid(at.child("name"), name, "must not already exist in volumeDevices")
        if mount_path in device_paths:
            detail = "must not already exist as a path in volumeDevices"
            yield invalid(at.child("mountPath"), mount_path, detail)
        # Kubernetes reports these errors at the list instead of the item.
        yield from _sub_path_errors(mount, path, at)
        yield from _mode_errors(mount, container, path)


def _sub_path_errors(mount: Json, path: Path, at: Path) -> Iterator[FieldError]:
    plain, expression = mount.get("subPath", ""), mount.get("subPathExpr", "")
    yield from descending_errors(plain, path.child("subPath"))
    if expression:
        if plain:
            yield invalid(at.child("subPathExpr"), expression, "subPathExpr and subPath are mutually exclusive")
        yield from descending_errors(expression, path.child("subPathExpr"))


def _mode_errors(mount: Json, container: Json, path: Path) -> Iterator[FieldError]:
    propagation, recursive = mount.get("mountPropagation"), mount.get("recursiveReadOnly")
    if propagation is not None:
        at = path.child("mountPropagation")
        if propagation not in _PROPAGATIONS:
            yield not_supported(at, propagation, _PROPAGATIONS)
        if propagation == "Bidirectional" and not container.get("securityContext", {}).get("privileged"):
            detail = "Bidirectional mount propagation is available only to privileged containers"
            yield forbidden(at, detail)
    if recursive is not None:
        at = path.child("recursiveReadOnly")
        if recursive not in _RECURSIVE:
            yield not_supported(at, recursive, _RECURSIVE)
        elif recursive != "Disabled":
            if not mount.get("readOnly"):
                yield forbidden(at, "may only be specified when readOnly is true")
            if propagation not in (None, "None"):
                detail = "may only be specified when mountPropagation is None or not specified"
                yield forbidden(at, detail)


def device_errors(container: Json, volumes: Mapping[str, Json], path: Path) -> Iterator[FieldError]:
    """Validate ``volumeDevices``: volumes exposed as raw block devices. Only claims are allowed."""
    mounts = {mount["name"]: mount["mountPath"] for mount in container.get("volumeMounts", ())}
    mounted = set(mounts.values())
    names: set[str] = set()
    taken: set[str] = set()
    for index, device in enumerate(container.get("volumeDevices", ())):
        at = path.index(index)
        name, device_path = device["name"], device["devicePath"]
        if not name:
            yield required(at.child("name"))
        if name in names:
            yield invalid(at.child("name"), name, "must be unique")
        yield from _claim_errors(name, volumes, at.child("name"))
        if not device_path:
            yield required(at.child("devicePath"))
        if device_path in taken:
            yield invalid(at.child("devicePath"), device_path, "must be unique")
        if backstep_errors(device_path, at):
            yield invalid(at.child("devicePath"), device_path, "can not contain backsteps ('..')")
        else:
            taken.add(device_path)
        if name in mounts:
            yield invalid(at.child("name"), name, "must not already exist in volumeMounts")
        if device_path in mounted:
            detail = "must not already exist as a path in volumeMounts"
            yield invalid(at.child("devicePath"), device_path, detail)
        if name:
            names.add(name)


def _claim_errors(name: str, volumes: Mapping[str, Json], path: Path) -> list[FieldError]:
    if name not in volumes:
        return [not_found(path, name)]
    claims = any(volumes[name].get(source) is not None for source in ("persistentVolumeClaim", "ephemeral"))
    return [] if claims else [invalid(path, name, _NO_BLOCK)]
