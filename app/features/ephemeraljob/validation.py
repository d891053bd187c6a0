"""Validates EphemeralJobs with the messages, paths and order of OpenKruise. Pure. [EJ-1, EJ-2]"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from app.api.core.containers import name_errors, security_errors
from app.api.core.env import env_errors, env_from_errors
from app.api.gocore import container_json
from app.kube.fielderrors import FieldError, Path, duplicate, forbidden, not_supported, required, too_many
from app.kube.selectors import validate_selector

_PULL_POLICIES: Final = ("Always", "IfNotPresent", "Never")
_MESSAGE_POLICIES: Final = ("File", "FallbackToLogsOnError")
_AT: Final = Path("ephemeralContainers")
#: Fields an ephemeral container may have.
_ALLOWED: Final = frozenset(
    (
        *("name", "image", "command", "args", "workingDir", "env", "envFrom", "volumeMounts", "volumeDevices"),
        *("terminationMessagePath", "terminationMessagePolicy", "imagePullPolicy", "securityContext"),
        *("stdin", "stdinOnce", "tty", "targetContainerName"),
    )
)
#: Maximum number of containers, which limits the number of errors: an empty container causes seven.
MAX_CONTAINERS: Final = 256
_NUMBERS: Final = ("replicas", "parallelism", "activeDeadlineSeconds", "ttlSecondsAfterFinished")


def container_errors(containers: Sequence[Mapping[str, Any]]) -> list[FieldError]:
    """Return all errors in the containers. Raises GoTypeError for a field of the wrong type. [EJ-1]"""
    if len(containers) > MAX_CONTAINERS:
        return [too_many(_AT, len(containers), MAX_CONTAINERS)]
    errors: list[FieldError] = []
    seen: set[str] = set()
    for index, given in enumerate(containers):
        path = _AT.index(index)
        container = container_json(
            {key: item for key, item in given.items() if key != "targetContainerName"}, str(path)
        )
        errors += _one(container, path)
        name = container.get("name") or ""
        if name and name in seen:
            errors.append(duplicate(path.child("name"), name))
        seen.add(name)
        for field in dict.fromkeys((*container, *given)):  # in the order of Go's fields
            value = given.get(field)
            # Go's zero value is an empty object for resources, and null for the other fields.
            if field not in _ALLOWED and (value if field == "resources" else value is not None):
                errors.append(forbidden(path.child(field), "cannot be set for an Ephemeral Container"))
    return errors


def _one(container: Mapping[str, Any], path: Path) -> Iterator[FieldError]:
    yield from name_errors(container, path)
    yield from _one_of(container, "terminationMessagePolicy", _MESSAGE_POLICIES, path)
    for index, port in enumerate(container.get("ports") or ()):
        if not port.get("protocol"):
            yield required(path.child("ports").index(index).child("protocol"))
    yield from env_errors(container.get("env", ()), path.child("env"))
    yield from env_from_errors(container.get("envFrom", ()), path.child("envFrom"))
    for index, mount in enumerate(container.get("volumeMounts") or ()):
        for field in ("subPath", "subPathExpr"):
            if mount.get(field):
                where = path.child("volumeMounts").index(index).child(field)
                yield forbidden(where, "cannot be set for an Ephemeral Container")
    yield from _one_of(container, "imagePullPolicy", _PULL_POLICIES, path)
    yield from security_errors(container.get("securityContext", {}), path.child("securityContext"))


def _one_of(container: Mapping[str, Any], field: str, known: Sequence[str], path: Path) -> Iterator[FieldError]:
    value = container.get(field) or ""
    if not value:
        yield required(path.child(field))
    elif value not in known:
        yield not_supported(path.child(field), value, known)


def warnings(spec: Mapping[str, Any]) -> Iterator[str]:
    """Return warnings about specs that OpenKruise accepts but that do not work as expected. [EJ-2]"""
    selector = spec.get("selector") or {}
    if not selector.get("matchLabels") and not selector.get("matchExpressions"):
        yield "spec.selector: is empty and selects all Pods in the namespace"
    for error in validate_selector(selector, Path("spec.selector")):
        yield f"{error}; the job ends in phase Error"
    if not (spec.get("template") or {}).get("ephemeralContainers"):
        yield "spec.template.ephemeralContainers: is empty; the job ends in phase Error"
    for field in _NUMBERS:
        value = spec.get(field)
        if value is not None and value < 0:
            yield f"spec.{field}: {value} is treated as 0"
    if spec.get("parallelism") == 0:
        yield "spec.parallelism: 0 adds no containers to any Pod; use 1 or more"
