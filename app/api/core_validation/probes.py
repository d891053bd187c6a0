"""Probes and lifecycle handlers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from app.kube.fielderrors import FieldError, Path, forbidden, invalid, not_supported, required
from app.kube.validation import is_port_name, is_port_number, regex_message

Json = Mapping[str, Any]

_HANDLERS: Final = ("exec", "httpGet", "tcpSocket", "grpc", "sleep")
_NUMBERS: Final = (
    "initialDelaySeconds",
    "timeoutSeconds",
    "periodSeconds",
    "successThreshold",
    "failureThreshold",
)
#: The longest grace period. That of the Pods a container will run in is not known, so it must not limit a sleep.
LONGEST_GRACE_PERIOD_SECONDS: Final = 2**31 - 1
_HEADER: Final = "[-A-Za-z0-9]+"
_HEADER_MESSAGE: Final = "a valid HTTP header must consist of alphanumeric characters or '-'"
NEGATIVE: Final = "must be greater than or equal to 0"


def probe_errors(container: Json, path: Path) -> list[FieldError]:
    """The three probes of a container that has been defaulted."""
    errors: list[FieldError] = []
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        if name not in container:
            continue
        probe, at = container[name], path.child(name)
        errors += _probe_errors(probe, at)
        grace = probe.get("terminationGracePeriodSeconds")
        if name == "readinessProbe":
            if grace is not None:
                detail = "must not be set for readinessProbes"
                errors.append(invalid(at.child("terminationGracePeriodSeconds"), grace, detail))
        elif probe.get("successThreshold", 0) != 1:
            errors.append(invalid(at.child("successThreshold"), probe.get("successThreshold", 0), "must be 1"))
    return errors


def _probe_errors(probe: Json, path: Path) -> list[FieldError]:
    errors = handler_errors(probe, path)
    for name in _NUMBERS:
        if probe.get(name, 0) < 0:
            errors.append(invalid(path.child(name), probe[name], NEGATIVE))
    grace = probe.get("terminationGracePeriodSeconds")
    if grace is not None and grace <= 0:
        errors.append(invalid(path.child("terminationGracePeriodSeconds"), grace, "must be greater than 0"))
    return errors


def lifecycle_errors(container: Json, path: Path) -> list[FieldError]:
    """``lifecycle``: its hooks each have one handler."""
    lifecycle = container.get("lifecycle", {})
    errors: list[FieldError] = []
    for hook in ("postStart", "preStop"):
        if hook in lifecycle:
            errors += handler_errors(lifecycle[hook], path.child("lifecycle", hook))
    return errors


def handler_errors(handler: Json, path: Path) -> list[FieldError]:
    """Exactly one handler, and what is wrong with it."""
    given = [name for name in _HANDLERS if name in handler]
    if not given:
        return [required(path, "must specify a handler type")]
    first, *others = given
    errors = _action_errors(first, handler[first], path.child(first))
    return errors + [forbidden(path.child(name), "may not specify more than 1 handler type") for name in others]


def _action_errors(name: str, action: Json, path: Path) -> list[FieldError]:
    match name:
        case "exec":
            return [] if action.get("command") else [required(path.child("command"))]
        case "httpGet":
            errors = _port_errors(action["port"], path.child("port"))
            if action.get("scheme") not in ("HTTP", "HTTPS"):
                errors.append(not_supported(path.child("scheme"), action.get("scheme", ""), ("HTTP", "HTTPS")))
            return errors + _header_errors(action, path.child("httpHeaders"))
        case "sleep":
            limit = LONGEST_GRACE_PERIOD_SECONDS
            if 0 <= action["seconds"] <= limit:
                return []
            detail = f"must be non-negative and less than terminationGracePeriodSeconds ({limit})"
            return [invalid(path, action["seconds"], detail)]
        case _:
            return _port_errors(action["port"], path.child("port"))


def _header_errors(action: Json, path: Path) -> list[FieldError]:
    wrong = [h["name"] for h in action.get("httpHeaders", ()) if not re.fullmatch(_HEADER, h["name"])]
    return [invalid(path, name, regex_message(_HEADER_MESSAGE, _HEADER, "X-Header-Name")) for name in wrong]


def _port_errors(port: int | str, path: Path) -> list[FieldError]:
    messages = is_port_name(port) if isinstance(port, str) else is_port_number(port)
    return [invalid(path, port, message) for message in messages]
