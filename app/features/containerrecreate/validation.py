"""Validates ContainerRecreateRequests. Pure; errors name their field. [CRR-2, CRR-3]"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from app.api import names
from app.features.containerrecreate.types import FAILURE_POLICIES
from app.kube.fielderrors import (
    FieldError,
    Path,
    duplicate,
    forbidden,
    invalid,
    not_found,
    not_supported,
    required,
    shortened,
)
from app.kube.jsonvalues import objects

_SPEC: Final = Path("spec")
SHORTEST_DEADLINE: Final = 3
#: Maximum length of the list of the Pod's containers in an error.
_LONGEST_LIST: Final = 1024
_FILLED_IN: Final = ("preStop", "ports", "statusContext")


def spec_errors(spec: Mapping[str, Any]) -> list[FieldError]:
    """Return the errors in the defaulted spec of a new request that do not depend on the Pod. [CRR-3]"""
    errors = []
    if not spec.get("podName"):
        errors.append(required(_SPEC.child("podName"), "the name of the Pod"))
    containers, path = spec.get("containers") or [], _SPEC.child("containers")
    if not containers:
        errors.append(required(path, "name at least one container"))
    seen = set()
    for index, container in enumerate(containers):
        at, name = path.index(index), container.get("name") or ""
        if not name:
            errors.append(required(at.child("name")))
        elif name in seen:
            errors.append(duplicate(at.child("name"), name))
        seen.add(name)
        for field in _FILLED_IN:
            if container.get(field) is not None:
                errors.append(forbidden(at.child(field), "is filled in from the Pod; leave it out"))
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and deadline < SHORTEST_DEADLINE:
        detail = f"must be greater than or equal to {SHORTEST_DEADLINE}"
        errors.append(invalid(_SPEC.child("activeDeadlineSeconds"), deadline, detail))
    return errors + _strategy_errors(spec.get("strategy") or {})


def _strategy_errors(strategy: Mapping[str, Any]) -> list[FieldError]:
    path, errors = _SPEC.child("strategy"), []
    if (policy := strategy.get("failurePolicy") or "") not in FAILURE_POLICIES:
        errors.append(not_supported(path.child("failurePolicy"), policy, FAILURE_POLICIES))
    for field in ("terminationGracePeriodSeconds", "unreadyGracePeriodSeconds"):
        value = strategy.get(field)
        if value is not None and value < 0:
            errors.append(invalid(path.child(field), value, "must be greater than or equal to 0"))
    return errors


def pod_errors(spec: Mapping[str, Any], pod: Mapping[str, Any]) -> list[FieldError]:
    """Return why containers of this Pod (JSON) cannot be restarted. The caller checks that its Node exists. [CRR-3]"""
    path, status = _SPEC.child("podName"), pod.get("status") or {}
    name, pod_spec = spec.get("podName") or "", pod.get("spec") or {}
    if not is_active(pod):
        return [invalid(path, name, "the Pod has ended or is being deleted, so its containers cannot be restarted")]
    if not pod_spec.get("nodeName"):
        return [invalid(path, name, "the Pod is not assigned to a node yet")]
    known = {
        container.get("name")
        for container in objects([*(pod_spec.get("initContainers") or ()), *(pod_spec.get("containers") or ())])
    }
    ids = {one.get("name"): one.get("containerID") or "" for one in objects(status.get("containerStatuses"))}
    there = shortened(", ".join(str(one.get("name")) for one in objects(pod_spec.get("containers"))), _LONGEST_LIST)
    detail = f"Pod {name} has {there}"
    errors = []
    for index, container in enumerate(spec.get("containers") or ()):
        at, wanted = _SPEC.child("containers").index(index).child("name"), container.get("name") or ""
        if wanted not in known:
            errors.append(not_found(at, wanted, detail))
        elif wanted not in ids:
            errors.append(invalid(at, wanted, "has no status in the Pod; init containers cannot be restarted"))
        elif not ids[wanted]:
            errors.append(invalid(at, wanted, "has not started yet"))
    return errors


def is_active(pod: Mapping[str, Any]) -> bool:
    """Return whether containers of the Pod can be restarted: it is running, or was ended by the sidecar terminator."""
    status = pod.get("status") or {}
    if any(one.get("type") == names.SIDECAR_TERMINATED_CONDITION for one in objects(status.get("conditions"))):
        return True
    return status.get("phase") not in ("Succeeded", "Failed") and not (pod.get("metadata") or {}).get(
        "deletionTimestamp"
    )


def update_errors(obj: Mapping[str, Any], former: Mapping[str, Any]) -> list[FieldError]:
    """Return the errors in an update. Both objects have the same version; the annotation is compared only in v1alpha1,
    where it is visible. [CRR-2]"""
    errors = []
    if obj.get("spec") != former.get("spec"):
        errors.append(forbidden(_SPEC, "a request is immutable; create a new one"))
    metadata, before = obj.get("metadata") or {}, former.get("metadata") or {}
    labels, old_labels = metadata.get("labels") or {}, before.get("labels") or {}
    for key in (names.CRR_POD_UID, names.CRR_NODE_NAME):
        if labels.get(key) != old_labels.get(key):
            errors.append(forbidden(Path("metadata").child("labels").key(key), "cannot be changed"))
    acquired = (before.get("annotations") or {}).get(names.CRR_UNREADY_ACQUIRED)
    if acquired and (metadata.get("annotations") or {}).get(names.CRR_UNREADY_ACQUIRED) != acquired:
        path = Path("metadata").child("annotations").key(names.CRR_UNREADY_ACQUIRED)
        errors.append(forbidden(path, "cannot be changed"))
    return errors
