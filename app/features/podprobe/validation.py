"""Validation of PodProbeMarkers. Pure. [PPM-1 … PPM-4]"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from app.api.core.containers import action_port_errors, header_errors
from app.features.podprobe.types import MARKED_STATES, SEPARATOR
from app.kube.fielderrors import FieldError, Path, duplicate, forbidden, invalid, not_supported, required, too_many
from app.kube.selectors import go_label_selector, validate_selector
from app.kube.validation import is_qualified_name, validate_annotations, validate_labels

_SPEC: Final = Path("spec")
#: Conditions that other components act on. A user who may only create markers must not be able to write them.
RESERVED: Final = frozenset(
    (
        *("PodScheduled", "Initialized", "Ready", "ContainersReady", "PodReadyToStartContainers", "DisruptionTarget"),
        *("PodResizePending", "PodResizeInProgress", "KruisePodReady", "InPlaceUpdateReady"),
        *("SidecarSetUpgradable", "SidecarTerminated", "SidecarsMissing"),
    )
)
#: Probe names that OpenKruise rejects, although a probe name is not a condition type.
_RESERVED_NAMES: Final = frozenset(
    ("PodScheduled", "Initialized", "Ready", "ContainersReady", "KruisePodReady", "InPlaceUpdateReady")
)
_NUMBERS: Final = ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold")
_is_control: Final = re.compile(r"[\x00-\x1f\x7f]").search
_is_bad_escape: Final = re.compile(r"%(?![0-9a-fA-F]{2})").search
_is_scheme: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:").match
_HANDLERS: Final = ("exec", "httpGet", "tcpSocket")
#: Maximum number of probes. Longer lists are rejected without validating their entries.
MAX_PROBES: Final = 256
#: Maximum number of labels and annotations of one probe. The controller sets them on every probed Pod.
MAX_MARKS: Final = 256


def spec_errors(spec: Mapping[str, Any], former: Mapping[str, Any] | None = None) -> list[FieldError]:
    """Return all errors in a defaulted spec. ``former`` is the stored spec, if any."""
    errors = _selector_errors(spec.get("selector"))
    probes, path = spec.get("probes") or [], _SPEC.child("probes")
    if not probes:
        errors.append(required(path, "empty probes is not valid for PodProbeMarker."))
    if len(probes) > MAX_PROBES:
        return [*errors, invalid(path, len(probes), f"must have at most {MAX_PROBES} items")]
    names: set[str] = set()
    conditions: set[str] = set()
    for index, probe in enumerate(probes):
        errors += _entry_errors(probe, path.index(index), names, conditions)
    if former is not None and spec.get("selector") != former.get("selector"):
        shown = go_label_selector(spec.get("selector"))
        errors.append(invalid(_SPEC.child("selector"), shown, "selector must be immutable"))
    return errors


def _selector_errors(selector: Mapping[str, Any] | None) -> list[FieldError]:
    path = _SPEC.child("selector")
    if selector is None:
        return [required(path, "no selector defined in PodProbeMarker")]
    if not selector.get("matchLabels") and not selector.get("matchExpressions"):
        return [invalid(path, go_label_selector(selector), "empty selector is not valid for podProbeMarker.")]
    return validate_selector(selector, path)


def _entry_errors(probe: Mapping[str, Any], path: Path, names: set[str], conditions: set[str]) -> list[FieldError]:
    """Validate one entry. Like OpenKruise, check the probe and its policies only if the rest is valid. [PPM-2]"""
    name, condition = probe.get("name") or "", probe.get("podConditionType") or ""
    policies = probe.get("markerPolicy") or []
    found = _name_error(probe, path, names)
    names.add(name)
    if found is None and not policies and not condition:
        detail = "podConditionType and markerPolicy cannot be empty at the same time"
        found = required(path.child("markerPolicy"), detail)
    if found is None and condition:
        found = _condition_error(condition, path.child("podConditionType"), conditions)
    conditions.add(condition)
    if found is not None:
        return [found]
    return [
        *probe_errors(probe.get("probe") or {}, path.child("probe")),
        *_policies_errors(policies, path.child("markerPolicy")),
    ]


def _name_error(probe: Mapping[str, Any], path: Path, names: set[str]) -> FieldError | None:
    name = probe.get("name") or ""
    if not name:
        return required(path.child("name"), "probe name can't be empty in PodProbeMarker.")
    if SEPARATOR in name:
        return invalid(path.child("name"), name, f"probe name can't contains '{SEPARATOR}'")
    if not probe.get("containerName"):
        return required(path.child("containerName"), "probe containerName can't be empty in PodProbeMarker.")
    if name in _RESERVED_NAMES:
        return invalid(path.child("name"), name, "is the type of a Pod condition managed by another component")
    if name in names:
        return invalid(path.child("name"), name, "probe name must be unique in PodProbeMarker.")
    return None


def _condition_error(condition: str, path: Path, conditions: set[str]) -> FieldError | None:
    if condition in RESERVED:
        # The probe would affect whether the Pod is ready. [PPM-44]
        return invalid(path, condition, "is managed by another component")
    if condition in conditions:
        return duplicate(path, condition)
    messages = is_qualified_name(condition)
    return invalid(path, condition, "; ".join(messages)) if messages else None


def probe_errors(probe: Mapping[str, Any], path: Path) -> list[FieldError]:
    """Validate a probe: exactly one valid handler, and the numeric fields. [PPM-3]"""
    given = [name for name in _HANDLERS if probe.get(name) is not None]
    errors: list[FieldError] = []
    if probe.get("grpc") is not None:
        errors.append(forbidden(path.child("grpc"), "is not supported; use exec, httpGet or tcpSocket"))
    elif not given:
        errors.append(required(path, "must specify a handler type"))
    for name in given[1:]:
        errors.append(forbidden(path.child(name), "may not specify more than 1 handler type"))
    if given:
        errors += _action_errors(given[0], probe[given[0]], path.child(given[0]))
    for field in _NUMBERS:
        if (value := probe.get(field) or 0) < 0:
            errors.append(invalid(path.child(field), value, "must be greater than or equal to 0"))
    return errors


def _action_errors(name: str, action: Mapping[str, Any], path: Path) -> list[FieldError]:
    if name == "exec":
        return [] if action.get("command") else [required(path.child("command"))]
    errors = []
    if action.get("host"):
        errors.append(forbidden(path.child("host"), "may not be set in probe"))
    errors += action_port_errors(action.get("port") or 0, path.child("port"))
    return errors + (_request_errors(action, path) if name == "httpGet" else [])


def _request_errors(action: Mapping[str, Any], path: Path) -> list[FieldError]:
    errors = []
    target = action.get("path") or ""
    if not target:
        errors.append(required(path.child("path")))
    elif not _is_request_path(target):
        errors.append(invalid(path.child("path"), target, "must be a URL path"))
    if (scheme := action.get("scheme") or "") not in ("HTTP", "HTTPS"):
        errors.append(not_supported(path.child("scheme"), scheme, ("HTTP", "HTTPS")))
    for index, header in enumerate(action.get("httpHeaders") or ()):
        errors += header_errors(header.get("name") or "", path.child("httpHeaders").index(index).child("name"))
    return errors


def _is_request_path(text: str) -> bool:
    """Return whether Go's ``url.Parse`` accepts the path."""
    target, _, fragment = text.partition("#")
    path = target.partition("?")[0]
    segment = path.partition("/")[0]
    if _is_control(text) or _is_bad_escape(path) or _is_bad_escape(fragment):
        return False
    if ":" in segment and not _is_scheme(segment):
        return False
    try:
        urlsplit(text)
    except ValueError:
        return False
    return True


def _policies_errors(policies: list[Mapping[str, Any]], path: Path) -> list[FieldError]:
    """Validate the policies: one entry per result, each with labels or annotations. [PPM-4]"""
    marks = sum(len(policy.get(field) or ()) for policy in policies for field in ("labels", "annotations"))
    if len(policies) + marks > MAX_MARKS:
        return [too_many(path, len(policies) + marks, MAX_MARKS)]
    errors: list[FieldError] = []
    states: set[str] = set()
    for index, policy in enumerate(policies):
        at, state = path.index(index), policy.get("state") or ""
        labels, annotations = policy.get("labels") or {}, policy.get("annotations") or {}
        if state not in MARKED_STATES:
            errors.append(not_supported(at.child("state"), state, MARKED_STATES))
        elif state in states:
            errors.append(duplicate(at.child("state"), state))
        states.add(state)
        if not labels and not annotations:
            errors.append(required(at.child("labels"), "labels and annotations cannot be empty at the same time"))
        errors += validate_labels(labels, at.child("labels"))
        errors += validate_annotations(annotations, at.child("annotations"))
    return errors
