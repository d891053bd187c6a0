"""One container or init container."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from app.api.core_validation.env import env_errors, env_from_errors
from app.api.core_validation.mounts import device_errors, mount_errors
from app.api.core_validation.probes import lifecycle_errors, probe_errors
from app.api.core_validation.resources import resource_errors
from app.kube.fielderrors import FieldError, Path, duplicate, forbidden, invalid, not_supported, required
from app.kube.validation import is_dns1123_label, is_port_name, is_port_number

Json = Mapping[str, Any]

_PULL_POLICIES: Final = ("Always", "IfNotPresent", "Never")
_MESSAGE_POLICIES: Final = ("File", "FallbackToLogsOnError")
_PROTOCOLS: Final = ("SCTP", "TCP", "UDP")
_RESTART_POLICIES: Final = ("Always", "Never", "OnFailure")
_LARGEST_ID: Final = 2**31 - 1
_FOR_NATIVE_SIDECARS: Final = ("lifecycle", "livenessProbe", "readinessProbe", "startupProbe")


def container_errors(container: Json, volumes: Mapping[str, Json], path: Path) -> list[FieldError]:
    """One of ``spec.containers``. ``volumes``: the valid volumes by name."""
    errors = _common_errors(container, volumes, path)
    return errors + lifecycle_errors(container, path) + probe_errors(container, path)


def init_container_errors(container: Json, volumes: Mapping[str, Json], path: Path) -> list[FieldError]:
    """One of ``spec.initContainers``."""
    errors = _common_errors(container, volumes, path)
    policy = container.get("restartPolicy")
    if policy is not None and policy not in _RESTART_POLICIES:
        errors.append(not_supported(path.child("restartPolicy"), policy, _RESTART_POLICIES))
    if policy == "Always":
        return errors + lifecycle_errors(container, path) + probe_errors(container, path)
    detail = "may not be set for init containers without restartPolicy=Always"
    return errors + [forbidden(path.child(name), detail) for name in _FOR_NATIVE_SIDECARS if name in container]


def _common_errors(container: Json, volumes: Mapping[str, Json], path: Path) -> list[FieldError]:
    name, image = container["name"], container.get("image", "")
    if name:
        errors = [invalid(path.child("name"), name, message) for message in is_dns1123_label(name)]
    else:
        errors = [required(path.child("name"))]
    if not image:
        errors.append(required(path.child("image")))
    elif image != image.strip():
        errors.append(invalid(path.child("image"), image, "must not have leading or trailing whitespace"))
    message_policy = container.get("terminationMessagePolicy", "File")
    if message_policy not in _MESSAGE_POLICIES:
        errors.append(not_supported(path.child("terminationMessagePolicy"), message_policy, _MESSAGE_POLICIES))
    errors += _port_errors(container.get("ports", ()), path.child("ports"))
    errors += env_errors(container.get("env", ()), path.child("env"))
    errors += env_from_errors(container.get("envFrom", ()), path.child("envFrom"))
    errors += mount_errors(container, volumes, path.child("volumeMounts"))
    errors += device_errors(container, volumes, path.child("volumeDevices"))
    if container["imagePullPolicy"] not in _PULL_POLICIES:
        errors.append(not_supported(path.child("imagePullPolicy"), container["imagePullPolicy"], _PULL_POLICIES))
    errors += resource_errors(container.get("resources", {}), path.child("resources"))
    return errors + _security_errors(container.get("securityContext", {}), path.child("securityContext"))


def _port_errors(ports: Sequence[Json], path: Path) -> list[FieldError]:
    errors: list[FieldError] = []
    names: set[str] = set()
    for index, port in enumerate(ports):
        at = path.index(index)
        name, number, host_port = port.get("name", ""), port["containerPort"], port.get("hostPort", 0)
        if name:
            messages = is_port_name(name)
            errors += [invalid(at.child("name"), name, message) for message in messages]
            if not messages and name in names:
                errors.append(duplicate(at.child("name"), name))
            names.add(name)
        if number:
            errors += [invalid(at.child("containerPort"), number, message) for message in is_port_number(number)]
        else:
            errors.append(required(at.child("containerPort")))
        if host_port:
            errors += [invalid(at.child("hostPort"), host_port, message) for message in is_port_number(host_port)]
        if port["protocol"] not in _PROTOCOLS:
            errors.append(not_supported(at.child("protocol"), port["protocol"], _PROTOCOLS))
    return errors


def host_port_errors(containers: Sequence[Json], path: Path) -> list[FieldError]:
    """No two containers may take one port of the node."""
    errors: list[FieldError] = []
    taken: set[str] = set()
    for index, container in enumerate(containers):
        for position, port in enumerate(container.get("ports", ())):
            if port.get("hostPort"):
                name = f"{port['protocol']}/{port.get('hostIP', '')}/{port['hostPort']}"
                if name in taken:
                    errors.append(duplicate(path.index(index).child("ports").index(position).child("hostPort"), name))
                taken.add(name)
    return errors


def _security_errors(context: Json, path: Path) -> list[FieldError]:
    errors: list[FieldError] = []
    for name in ("runAsUser", "runAsGroup"):
        number = context.get(name, 0)
        if not 0 <= number <= _LARGEST_ID:
            errors.append(invalid(path.child(name), number, f"must be between 0 and {_LARGEST_ID}, inclusive"))
    if context.get("allowPrivilegeEscalation") is False and context.get("privileged"):
        detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"
        errors.append(invalid(path, context, detail))
    return errors
