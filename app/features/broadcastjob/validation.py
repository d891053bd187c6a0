"""Validates BroadcastJobs. Pure; messages, paths and their order are OpenKruise's. [BJ-3, BJ-25]"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from app.api.names import BROADCAST_JOB_CONTROLLER_UID, BROADCAST_JOB_NAME
from app.features.broadcastjob.types import COMPLETION_TYPES, FAILURE_TYPES, NEVER
from app.kube.fielderrors import FieldError, Path, invalid, quote
from app.pods.node_fit import placement_errors

RESTART_POLICIES: Final = ("Never", "OnFailure")
_METADATA: Final = Path("metadata")
_SPEC: Final = Path("spec")
_NAME: Final = r"^[a-zA-Z0-9\-]+$"
_is_name = re.compile(r"[a-zA-Z0-9\-]{1,63}", re.ASCII).fullmatch
_is_percent = re.compile(r"[0-9]{1,9}%", re.ASCII).fullmatch


def name_errors(metadata: Mapping[str, Any], path: Path = _METADATA) -> list[FieldError]:
    """Validate the name, which becomes part of labels and Pod names. [BJ-3, ACJ-3]"""
    name = metadata.get("name") or ""
    if not name or _is_name(name):
        return []
    return [invalid(path.child("name"), name, f"must be no more than 63 characters of {_NAME}")]


def spec_errors(
    spec: Mapping[str, Any], template: Sequence[FieldError | str], path: Path = _SPEC
) -> list[FieldError | str]:
    """Return all errors in a spec, in OpenKruise's order. ``template`` holds the errors that Kubernetes reports for the
    Pod template."""
    errors: list[FieldError | str] = []
    policy, at = spec.get("completionPolicy") or {}, path.child("completionPolicy")
    if policy.get("type") == NEVER:
        for field in ("ttlSecondsAfterFinished", "activeDeadlineSeconds", "backoffLimit"):
            if policy.get(field) is not None:
                detail = f"{field} can just work with Always CompletionPolicyType"
                errors.append(invalid(at.child(field), policy[field], detail))
    pod_template = spec.get("template") or {}
    errors += restart_policy_errors(pod_template, path.child("template"))
    errors += placement_errors(pod_template.get("spec") or {}, path.child("template", "spec"))
    labels = (pod_template.get("metadata") or {}).get("labels") or {}
    for key in (BROADCAST_JOB_NAME, BROADCAST_JOB_CONTROLLER_UID):
        if key in labels:
            where = path.child("template", "metadata", "labels").key(key)
            errors.append(invalid(where, labels[key], "is set by the controller and must not be in the template"))
    return [*errors, *template]


def restart_policy_errors(template: Mapping[str, Any], path: Path) -> list[FieldError]:
    """Require a restartPolicy that lets Pods complete. [BJ-3, U-55]"""
    policy = (template.get("spec") or {}).get("restartPolicy") or "Always"
    if policy in RESTART_POLICIES:
        return []
    where = path.child("spec", "restartPolicy")
    return [invalid(where, policy, "pod restartPolicy can only be Never or OnFailure")]


def warnings(spec: Mapping[str, Any], path: Path = _SPEC) -> Iterator[str]:
    """Return warnings about values that OpenKruise accepts although they are likely mistakes or have no effect.
    [BJ-25]"""
    parallelism = spec.get("parallelism")
    if parallelism is not None and not is_readable(parallelism):
        yield (
            f"{path}.parallelism: {quote(str(parallelism))} is neither a non-negative number nor a percentage; "
            "no Pod is created; use 10 or 10%"
        )
    policy, failure = spec.get("completionPolicy") or {}, spec.get("failurePolicy") or {}
    completion = policy.get("type") or COMPLETION_TYPES[0]
    if completion not in COMPLETION_TYPES:
        yield f"{path}.completionPolicy.type: {quote(completion)} is unknown and treated as Always; use Always or Never"
    kind = failure.get("type") or FAILURE_TYPES[0]
    if kind not in FAILURE_TYPES:
        yield (
            f"{path}.failurePolicy.type: {quote(kind)} is unknown and treated as Continue; use Continue, FailFast or "
            "Pause"
        )
    if (deadline := policy.get("activeDeadlineSeconds")) is not None and deadline <= 0:
        yield f"{path}.completionPolicy.activeDeadlineSeconds: {deadline} fails the job at once; use 1 or more"
    for part, name in (
        ("completionPolicy", "ttlSecondsAfterFinished"),
        ("failurePolicy", "restartLimit"),
        ("completionPolicy", "backoffLimit"),
    ):
        number = (failure if part == "failurePolicy" else policy).get(name) or 0
        if number < 0:
            yield f"{path}.{part}.{name}: {number} is treated as 0; use 0 or more"
    if failure.get("restartLimit") and policy.get("backoffLimit") is not None:
        yield f"{path}.completionPolicy.backoffLimit: is ignored if failurePolicy.restartLimit is set; leave it out"
    restart = ((spec.get("template") or {}).get("spec") or {}).get("restartPolicy")
    restarts = (failure.get("restartLimit") or 0) > 0
    if restart == "Never" and (restarts or (policy.get("backoffLimit") or 0) > 0):
        limit = "failurePolicy.restartLimit" if restarts else "completionPolicy.backoffLimit"
        yield f"{path}.{limit}: has no effect with restartPolicy Never; use OnFailure"


def is_readable(value: int | str) -> bool:
    """Return whether parallelism is valid: a non-negative number or a percentage."""
    return _is_percent(value) is not None if isinstance(value, str) else value >= 0
