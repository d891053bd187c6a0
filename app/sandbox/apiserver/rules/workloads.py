"""Rules for workloads and related kinds: defaults that depend on other fields, and validation.

Source: Kubernetes 1.34, pkg/apis/{apps,batch,core}/v1/defaults.go and validation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from app.kube.fielderrors import FieldError, GoLiteral, Path, forbidden, invalid, not_supported, required
from app.kube.selector_query import SelectorError
from app.kube.selectors import compile_selector, validate_selector
from app.kube.validation import validate_labels
from app.sandbox.apiserver.rules.pods import default_template, spec_errors

Json: TypeAlias = dict[str, Any]

SPEC: Final = Path("spec")
_IMMUTABLE: Final = "field is immutable"
_ROLLING: Final = {"maxUnavailable": "25%", "maxSurge": "25%"}


def default_deployment(obj: Json) -> None:
    """Set maxSurge and maxUnavailable of a rolling update."""
    strategy = obj["spec"]["strategy"]
    if strategy["type"] == "RollingUpdate":
        strategy["rollingUpdate"] = {**_ROLLING, **(strategy.get("rollingUpdate") or {})}


def default_stateful_set(obj: Json) -> None:
    """Set the partition of a rolling update."""
    strategy = obj["spec"]["updateStrategy"]
    if strategy["type"] == "RollingUpdate":
        strategy.setdefault("rollingUpdate", {}).setdefault("partition", 0)


def default_daemon_set(obj: Json) -> None:
    """Set maxUnavailable and maxSurge of a rolling update."""
    strategy = obj["spec"]["updateStrategy"]
    if strategy["type"] == "RollingUpdate":
        strategy["rollingUpdate"] = {"maxUnavailable": 1, "maxSurge": 0} | (strategy.get("rollingUpdate") or {})


def default_job(obj: Json) -> None:
    """Default to one Pod if neither completions nor parallelism is set."""
    spec = obj["spec"]
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)


def default_replication_controller(obj: Json) -> None:
    """Default the selector and labels to the template's labels."""
    spec = obj["spec"]
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels")
    if labels and not spec.get("selector"):
        spec["selector"] = dict(labels)
    if labels and not obj["metadata"].get("labels"):
        obj["metadata"]["labels"] = dict(labels)


def default_limit_range(obj: Json) -> None:
    """Derive default limits and requests of containers from one another."""
    for item in (obj.get("spec") or {}).get("limits") or ():
        if item.get("type") == "Container":
            limits = {**(item.get("max") or {}), **(item.get("default") or {})}
            requests = {**(item.get("min") or {}), **limits, **(item.get("defaultRequest") or {})}
            item |= {name: found for name, found in (("default", limits), ("defaultRequest", requests)) if found}


def default_role_binding(obj: Json) -> None:
    """Set the API groups of the subjects and the role."""
    group = "rbac.authorization.k8s.io"
    reference = obj.get("roleRef")
    if isinstance(reference, dict):
        reference.setdefault("apiGroup", group)
    for subject in obj.get("subjects") or ():
        if subject.get("kind") in ("User", "Group"):
            subject.setdefault("apiGroup", group)


def default_crd(obj: Json) -> None:
    """Derive the missing names from the kind."""
    names = obj.get("spec", {}).get("names") or {}
    kind = names.get("kind")
    if kind:
        names.setdefault("singular", kind.lower())
        names.setdefault("listKind", f"{kind}List")


def with_template(place: tuple[str, ...], more: Callable[[Json], None] | None) -> Callable[[Json], None]:
    """Return a function that sets the defaults of the template at ``place``, then calls ``more``."""

    def default(obj: Json) -> None:
        holder: Any = obj
        for key in place[:-1]:
            holder = holder.get(key) if isinstance(holder, dict) else None
        if isinstance(holder, dict):
            default_template(holder.setdefault(place[-1], {}))
        if more is not None:
            more(obj)

    return default


# ---- validation


def workload_errors(*, selector: bool = True) -> Callable[[Json], list[FieldError]]:
    """Return a function that validates a workload: replicas, template, and a required selector that matches the
    template."""

    def errors(obj: Json) -> list[FieldError]:
        spec = obj.get("spec") or {}
        found: list[FieldError] = []
        replicas = spec.get("replicas")
        if replicas is not None and replicas < 0:
            found.append(invalid(SPEC.child("replicas"), replicas, "must be greater than or equal to 0"))
        found += _selector_errors(spec, demanded=selector)
        template = spec.get("template") or {}
        found += template_errors(template, SPEC.child("template"), ("Always",))
        return found

    return errors


def _selector_errors(spec: Json, *, demanded: bool) -> list[FieldError]:
    at = SPEC.child("selector")
    selector = spec.get("selector")
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    if selector is None:
        place = SPEC.child("template").child("metadata").child("labels")
        mismatch = invalid(place, labels or GoLiteral("null"), "`selector` does not match template `labels`")
        return [required(at), mismatch] if demanded else [mismatch]
    found = validate_selector(selector, at)
    if found:
        return found
    if not selector.get("matchLabels") and not selector.get("matchExpressions"):
        return [invalid(at, selector, "empty selector is invalid for deployment")]
    try:
        matches = compile_selector(selector).matches(labels)
    except SelectorError:
        return []
    if not matches:
        place = SPEC.child("template").child("metadata").child("labels")
        return [invalid(place, labels or None, "`selector` does not match template `labels`")]
    return []


def template_errors(template: Json, path: Path, policies: tuple[str, ...]) -> list[FieldError]:
    """Validate a Pod template."""
    found: list[FieldError] = []
    labels = (template.get("metadata") or {}).get("labels") or {}
    found += validate_labels(labels, path.child("labels"))  # real servers omit ``metadata`` from this path
    spec = template.get("spec") or {}
    found += spec_errors(spec, path.child("spec"))
    policy = spec.get("restartPolicy")
    if policy not in policies and policy in ("Always", "OnFailure", "Never"):
        found.append(not_supported(path.child("spec").child("restartPolicy"), policy, policies))
    return found


def pod_template_errors(obj: Json) -> list[FieldError]:
    """Validate a PodTemplate. Its Pods may have any restart policy."""
    return template_errors(obj.get("template") or {}, Path("template"), ("Always", "OnFailure", "Never"))


def deployment_errors(obj: Json) -> list[FieldError]:
    """Validate a Deployment."""
    found = workload_errors()(obj)
    strategy = obj["spec"]["strategy"]
    rolling = strategy.get("rollingUpdate") or {}
    if strategy["type"] == "RollingUpdate" and not any(_counts(rolling.get(name)) for name in _ROLLING):
        at = SPEC.child("strategy").child("rollingUpdate").child("maxUnavailable")
        found.append(invalid(at, rolling.get("maxUnavailable"), "may not be 0 when `maxSurge` is 0"))
    if strategy["type"] == "Recreate" and strategy.get("rollingUpdate") is not None:
        at = SPEC.child("strategy").child("rollingUpdate")
        found.append(forbidden(at, "may not be specified when strategy `type` is 'Recreate'"))
    return found


def _counts(value: Any) -> bool:
    return value not in (0, "0", "0%", None)


def selector_stays(obj: Json, old: Json) -> list[FieldError]:
    """Reject changes to a workload's selector."""
    new, before = obj["spec"].get("selector"), (old.get("spec") or {}).get("selector")
    return [invalid(SPEC.child("selector"), new, _IMMUTABLE)] if new != before else []


def stateful_set_stays(obj: Json, old: Json) -> list[FieldError]:
    """Reject changes to a StatefulSet's immutable fields."""
    may = ("replicas", "ordinals", "template", "updateStrategy", "revisionHistoryLimit",
           "persistentVolumeClaimRetentionPolicy", "minReadySeconds")  # fmt: skip
    new = {key: value for key, value in obj["spec"].items() if key not in may}
    before = {key: value for key, value in (old.get("spec") or {}).items() if key not in may}
    if new == before:
        return []
    message = (
        "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', "
        "'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden"
    )
    return [forbidden(SPEC, message)]


def job_stays(obj: Json, old: Json) -> list[FieldError]:
    """Reject changes to a Job's selector, template and completions."""
    found = []
    before = old.get("spec") or {}
    for name in ("selector", "template", "completionMode"):
        if obj["spec"].get(name) != before.get(name):
            found.append(invalid(SPEC.child(name), obj["spec"].get(name), _IMMUTABLE))
    return found


def role_reference_stays(obj: Json, old: Json) -> list[FieldError]:
    """Reject changes to a binding's role."""
    if obj.get("roleRef") == old.get("roleRef"):
        return []
    return [invalid(Path("roleRef"), obj.get("roleRef"), "cannot change roleRef")]


def priority_stays(obj: Json, old: Json) -> list[FieldError]:
    """Reject changes to a PriorityClass's value."""
    found = []
    for name in ("value", "preemptionPolicy"):
        if obj.get(name) != old.get(name):
            message = "may not be changed in an update." if name == "value" else _IMMUTABLE
            found.append(forbidden(Path(name), message) if name == "value" else invalid(name, obj.get(name), message))
    return found


def default_autoscaler(scaler: Json) -> None:
    """Default to CPU utilization if no metrics are set."""
    spec = scaler.setdefault("spec", {})
    if scaler.get("apiVersion") == "autoscaling/v1":
        return
    scaler["status"] = {"desiredReplicas": 0, "currentMetrics": None, **(scaler.get("status") or {})}
    if not spec.get("metrics"):
        target = {"type": "Utilization", "averageUtilization": 80}
        spec["metrics"] = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
