"""Environment variables and references to fields of the Pod."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from app.kube.fielderrors import FieldError, Path, invalid, not_supported, required
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


def env_errors(variables: Sequence[Json], path: Path) -> list[FieldError]:
    """``env``. Names may occur twice: the last one wins, and tools rely on it."""
    errors: list[FieldError] = []
    for index, variable in enumerate(variables):
        at = path.index(index)
        if variable["name"]:
            name = variable["name"]
            errors += [invalid(at.child("name"), name, message) for message in is_env_var_name(name)]
        else:
            errors.append(required(at.child("name")))
        if "valueFrom" in variable:
            errors += _source_errors(variable, at.child("valueFrom"))
    return errors


def _source_errors(variable: Json, path: Path) -> list[FieldError]:
    source = variable["valueFrom"]
    errors: list[FieldError] = []
    if "fieldRef" in source:
        errors += field_ref_errors(source["fieldRef"], ENV_FIELDS, path.child("fieldRef"))
    if "resourceFieldRef" in source:
        errors += resource_ref_errors(source["resourceFieldRef"], path.child("resourceFieldRef"))
    for kind in ("configMapKeyRef", "secretKeyRef"):
        if kind in source:
            errors += _key_errors(source[kind], path.child(kind))
    given = sum(kind in source for kind in _SOURCES)
    if not given:
        errors.append(invalid(path, "", _NO_SOURCE))
    elif variable.get("value"):
        errors.append(invalid(path, "", "may not be specified when `value` is not empty"))
    elif given > 1:
        errors.append(invalid(path, "", _TWO_SOURCES))
    return errors


def _key_errors(selector: Json, path: Path) -> list[FieldError]:
    name, key = selector.get("name", ""), selector["key"]
    errors = [invalid(path.child("name"), name, message) for message in is_dns1123_subdomain(name)]
    if not key:
        return [*errors, required(path.child("key"))]
    return errors + [invalid(path.child("key"), key, message) for message in is_config_map_key(key)]


def field_ref_errors(reference: Json, fields: Sequence[str], path: Path) -> list[FieldError]:
    """A reference to a field of the Pod: one of ``fields``, a label or an annotation."""
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
    """A reference to a container's resources; in a volume it has to say whose."""
    resource = reference.get("resource", "")
    if of_volume and not reference.get("containerName"):
        return [required(path.child("containerName"))]
    if not resource:
        return [required(path.child("resource"))]
    if resource in _RESOURCES or resource.startswith(("limits.hugepages-", "requests.hugepages-")):
        return []
    return [not_supported(path.child("resource"), resource, _RESOURCES)]


def env_from_errors(sources: Sequence[Json], path: Path) -> list[FieldError]:
    """``envFrom``. What is wrong with the number of sources is reported at the list, as Kubernetes does."""
    errors: list[FieldError] = []
    for index, source in enumerate(sources):
        at = path.index(index)
        prefix = source.get("prefix")
        if prefix:
            errors += [invalid(at.child("prefix"), prefix, message) for message in is_env_var_name(prefix)]
        given = [kind for kind in ("configMapRef", "secretRef") if kind in source]
        for kind in given:
            name = source[kind].get("name", "")
            if name:
                errors += [invalid(at.child(kind, "name"), name, message) for message in is_dns1123_subdomain(name)]
            else:
                errors.append(required(at.child(kind, "name")))
        if not given:
            errors.append(invalid(path, "", "must specify one of: `configMapRef` or `secretRef`"))
        elif len(given) > 1:
            errors.append(invalid(path, "", _TWO_SOURCES))
    return errors
