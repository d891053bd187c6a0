"""Validation of containers: names, images, ports, probes, lifecycle handlers and resources."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from app.api.core.env import device_errors, env_errors, env_from_errors, mount_errors
from app.kube.fielderrors import FieldError, Path, duplicate, forbidden, invalid, not_found, not_supported, required
from app.kube.quantities import Quantity, parse
from app.kube.validation import is_dns1123_label, is_port_name, is_port_number, is_qualified_name, regex_message

Json = Mapping[str, Any]

_HANDLERS: Final = ("exec", "httpGet", "tcpSocket", "grpc", "sleep")
_NUMBERS: Final = (
    "initialDelaySeconds",
    "timeoutSeconds",
    "periodSeconds",
    "successThreshold",
    "failureThreshold",
)
#: The maximum grace period. The Pods' actual grace period is unknown during validation, so it cannot limit a sleep.
LONGEST_GRACE_PERIOD_SECONDS: Final = 2**31 - 1
_HEADER: Final = "[-A-Za-z0-9]+"
_HEADER_MESSAGE: Final = "a valid HTTP header must consist of alphanumeric characters or '-'"
NEGATIVE: Final = "must be greater than or equal to 0"


def probe_errors(container: Json, path: Path) -> Iterator[FieldError]:
    """Validate the three probes of a defaulted container."""
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        if name not in container:
            continue
        probe, at = container[name], path.child(name)
        yield from _probe_errors(probe, at)
        grace = probe.get("terminationGracePeriodSeconds")
        if name == "readinessProbe":
            if grace is not None:
                detail = "must not be set for readinessProbes"
                yield invalid(at.child("terminationGracePeriodSeconds"), grace, detail)
        elif probe.get("successThreshold", 0) != 1:
            yield invalid(at.child("successThreshold"), probe.get("successThreshold", 0), "must be 1")


def _probe_errors(probe: Json, path: Path) -> Iterator[FieldError]:
    yield from handler_errors(probe, path)
    for name in _NUMBERS:
        if probe.get(name, 0) < 0:
            yield invalid(path.child(name), probe[name], NEGATIVE)
    grace = probe.get("terminationGracePeriodSeconds")
    if grace is not None and grace <= 0:
        yield invalid(path.child("terminationGracePeriodSeconds"), grace, "must be greater than 0")


def lifecycle_errors(container: Json, path: Path) -> Iterator[FieldError]:
    """Validate ``lifecycle``: each hook has exactly one handler."""
    lifecycle = container.get("lifecycle", {})
    for hook in ("postStart", "preStop"):
        if hook in lifecycle:
            yield from handler_errors(lifecycle[hook], path.child("lifecycle", hook))


def handler_errors(handler: Json, path: Path) -> Iterator[FieldError]:
    """Validate that there is exactly one handler, and the handler itself."""
    given = [name for name in _HANDLERS if name in handler]
    if not given:
        yield required(path, "must specify a handler type")
    for name in given[:1]:
        yield from _action_errors(name, handler[name], path.child(name))
    for name in given[1:]:
        yield forbidden(path.child(name), "may not specify more than 1 handler type")


def _action_errors(name: str, action: Json, path: Path) -> Iterator[FieldError]:
    if name == "exec":
        if not action.get("command"):
            yield required(path.child("command"))
    elif name == "sleep":
        limit = LONGEST_GRACE_PERIOD_SECONDS
        if not 0 <= action["seconds"] <= limit:
            detail = f"must be non-negative and less than terminationGracePeriodSeconds ({limit})"
            yield invalid(path, action["seconds"], detail)
    else:
        yield from action_port_errors(action["port"], path.child("port"))
    if name == "httpGet":
        if action.get("scheme") not in ("HTTP", "HTTPS"):
            yield not_supported(path.child("scheme"), action.get("scheme", ""), ("HTTP", "HTTPS"))
        for header in action.get("httpHeaders", ()):
            yield from header_errors(header["name"], path.child("httpHeaders"))


def header_errors(name: str, path: Path) -> list[FieldError]:
    """Validate the name of an HTTP header."""
    valid = re.fullmatch(_HEADER, name)
    return [] if valid else [invalid(path, name, regex_message(_HEADER_MESSAGE, _HEADER, "X-Header-Name"))]


def action_port_errors(port: int | str, path: Path) -> list[FieldError]:
    """Validate a port given by number or name."""
    messages = is_port_name(port) if isinstance(port, str) else is_port_number(port)
    return [invalid(path, port, message) for message in messages]


_STANDARD: Final = frozenset({"cpu", "memory", "ephemeral-storage"})
_HUGE_PAGES: Final = "hugepages-"


def resource_errors(resources: Json, path: Path) -> Iterator[FieldError]:
    """Validate ``resources`` in alphabetical order. Quantities have already been parsed."""
    limits, requests = _parsed(resources.get("limits", {})), _parsed(resources.get("requests", {}))
    for name, quantity in limits.items():
        yield from _quantity_errors(name, quantity, path.child("limits").key(name))
    for name, quantity in requests.items():
        yield from _quantity_errors(name, quantity, path.child("requests").key(name))
        yield from _limit_errors(name, quantity, limits.get(name), path)
    for index, claim in enumerate(resources.get("claims", ())):
        # The Pod's resourceClaims are not available here, and a container cannot define claims.
        yield not_found(path.child("claims").index(index), claim["name"])


def _parsed(quantities: Mapping[str, str]) -> dict[str, Quantity]:
    return {name: parse(quantities[name]) for name in sorted(quantities)}


def _quantity_errors(name: str, quantity: Quantity, path: Path) -> list[FieldError]:
    errors = [invalid(path, name, message) for message in is_qualified_name(name)]
    if not errors and "/" not in name and name not in _STANDARD and not name.startswith(_HUGE_PAGES):
        errors = [
            invalid(path, name, "must be a standard resource type or fully qualified"),
            invalid(path, name, "must be a standard resource for containers"),
        ]
    if quantity.sign < 0:
        errors.append(invalid(path, str(quantity), NEGATIVE))
    if _is_extended(name) and quantity.milli_value() % 1000:
        errors.append(invalid(path, str(quantity), "must be an integer"))
    return errors


def _is_extended(name: str) -> bool:
    return "/" in name and "kubernetes.io/" not in name


def _limit_errors(name: str, request: Quantity, limit: Quantity | None, path: Path) -> list[FieldError]:
    # Resources that cannot be overcommitted need equal requests and limits.
    exact = _is_extended(name) or name.startswith(_HUGE_PAGES)
    if limit is None:
        detail = "Limit must be set for non overcommitable resources"
        return [required(path.child("limits"), detail)] if exact else []
    if exact and request != limit:
        return [invalid(path.child("requests"), str(request), f"must be equal to {name} limit of {limit}")]
    if request > limit:
        detail = f"must be less than or equal to {name} limit of {limit}"
        return [invalid(path.child("requests"), str(request), detail)]
    return []


_PULL_POLICIES: Final = ("Always", "IfNotPresent", "Never")
_MESSAGE_POLICIES: Final = ("File", "FallbackToLogsOnError")
_PROTOCOLS: Final = ("SCTP", "TCP", "UDP")
_RESTART_POLICIES: Final = ("Always", "Never", "OnFailure")
_LARGEST_ID: Final = 2**31 - 1
_FOR_NATIVE_SIDECARS: Final = ("lifecycle", "livenessProbe", "readinessProbe", "startupProbe")


def container_errors(container: Json, volumes: Mapping[str, Json], path: Path) -> Iterator[FieldError]:
    """Validate one of ``spec.containers``. ``volumes`` are the valid volumes by name."""
    yield from _common_errors(container, volumes, path)
    yield from lifecycle_errors(container, path)
    yield from probe_errors(container, path)


def init_container_errors(container: Json, volumes: Mapping[str, Json], path: Path) -> Iterator[FieldError]:
    """Validate one of ``spec.initContainers``."""
    yield from _common_errors(container, volumes, path)
    policy = container.get("restartPolicy")
    if policy is not None and policy not in _RESTART_POLICIES:
        yield not_supported(path.child("restartPolicy"), policy, _RESTART_POLICIES)
    if policy == "Always":
        yield from lifecycle_errors(container, path)
        yield from probe_errors(container, path)
        return
    detail = "may not be set for init containers without restartPolicy=Always"
    for name in _FOR_NATIVE_SIDECARS:
        if name in container:
            yield forbidden(path.child(name), detail)


def name_errors(container: Json, path: Path) -> Iterator[FieldError]:
    """Validate the name and the image of a container."""
    name, image = container.get("name") or "", container.get("image") or ""
    if name:
        yield from (invalid(path.child("name"), name, message) for message in is_dns1123_label(name))
    else:
        yield required(path.child("name"))
    if not image:
        yield required(path.child("image"))
    elif image != image.strip():
        yield invalid(path.child("image"), image, "must not have leading or trailing whitespace")


def _common_errors(container: Json, volumes: Mapping[str, Json], path: Path) -> Iterator[FieldError]:
    yield from name_errors(container, path)
    message_policy = container.get("terminationMessagePolicy", "File")
    if message_policy not in _MESSAGE_POLICIES:
        yield not_supported(path.child("terminationMessagePolicy"), message_policy, _MESSAGE_POLICIES)
    yield from _port_errors(container.get("ports", ()), path.child("ports"))
    yield from env_errors(container.get("env", ()), path.child("env"))
    yield from env_from_errors(container.get("envFrom", ()), path.child("envFrom"))
    yield from mount_errors(container, volumes, path.child("volumeMounts"))
    yield from device_errors(container, volumes, path.child("volumeDevices"))
    if container["imagePullPolicy"] not in _PULL_POLICIES:
        yield not_supported(path.child("imagePullPolicy"), container["imagePullPolicy"], _PULL_POLICIES)
    yield from resource_errors(container.get("resources", {}), path.child("resources"))
    yield from security_errors(container.get("securityContext", {}), path.child("securityContext"))


def _port_errors(ports: Sequence[Json], path: Path) -> Iterator[FieldError]:
    names: set[str] = set()
    for index, port in enumerate(ports):
        at = path.index(index)
        name, number, host_port = port.get("name", ""), port["containerPort"], port.get("hostPort", 0)
        if name:
            messages = is_port_name(name)
            yield from [invalid(at.child("name"), name, message) for message in messages]
            if not messages and name in names:
                yield duplicate(at.child("name"), name)
            names.add(name)
        if number:
            yield from [invalid(at.child("containerPort"), number, message) for message in is_port_number(number)]
        else:
            yield required(at.child("containerPort"))
        if host_port:
            yield from [invalid(at.child("hostPort"), host_port, message) for message in is_port_number(host_port)]
        if port["protocol"] not in _PROTOCOLS:
            yield not_supported(at.child("protocol"), port["protocol"], _PROTOCOLS)


def host_port_errors(containers: Sequence[Json], path: Path) -> Iterator[FieldError]:
    """Validate that no two containers use the same host port."""
    taken: set[str] = set()
    for index, container in enumerate(containers):
        for position, port in enumerate(container.get("ports", ())):
            if port.get("hostPort"):
                name = f"{port['protocol']}/{port.get('hostIP', '')}/{port['hostPort']}"
                if name in taken:
                    yield duplicate(path.index(index).child("ports").index(position).child("hostPort"), name)
                taken.add(name)


def security_errors(context: Json, path: Path) -> Iterator[FieldError]:
    """Validate ``securityContext``."""
    for name in ("runAsUser", "runAsGroup"):
        number = context.get(name, 0)
        if not 0 <= number <= _LARGEST_ID:
            yield invalid(path.child(name), number, f"must be between 0 and {_LARGEST_ID}, inclusive")
    if context.get("allowPrivilegeEscalation") is False and context.get("privileged"):
        detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"
        yield invalid(path, context, detail)
