"""Rules for Pods and their subresources."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, TypeAlias

import orjson

from app.api.core.defaults import default_container, default_volume
from app.api.core.pods import pod_errors
from app.kube.fielderrors import (
    FieldError,
    Path,
    duplicate,
    forbidden,
    invalid,
    not_found,
    not_supported,
    quote,
    required,
)
from app.kube.quantities import parse
from app.kube.validation import validate_labels
from app.sandbox.apiserver.strategies import Strategy

# Pods and Pod templates: defaults, quality of service and mutable fields.
#
# Source: Kubernetes 1.34, pkg/apis/core/v1/defaults.go, pkg/apis/core/validation, pkg/registry/core/pod.

Json: TypeAlias = dict[str, Any]

SPEC: Final = Path("spec")
_POD_SPEC: Final[Mapping[str, Any]] = {
    "dnsPolicy": "ClusterFirst",
    "restartPolicy": "Always",
    "schedulerName": "default-scheduler",
}
_LISTS: Final = ("containers", "initContainers")
_UPDATABLE: Final = ",".join(
    (
        "`spec.containers[*].image`",
        "`spec.initContainers[*].image`",
        "`spec.activeDeadlineSeconds`",
        "`spec.tolerations` (only additions to existing tolerations)",
        "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)",
    )
)
_MUTABLE: Final = ("activeDeadlineSeconds", "schedulingGates", "tolerations")


# ---- defaults


def default_pod_spec(spec: Json) -> None:
    """Set the defaults of a Pod spec, whether in a Pod or in a template."""
    for key, value in _POD_SPEC.items():
        if not spec.get(key):
            spec[key] = value
    if spec.get("terminationGracePeriodSeconds") is None:
        spec["terminationGracePeriodSeconds"] = 30
    spec.setdefault("securityContext", {})
    if account := spec.get("serviceAccountName") or spec.get("serviceAccount"):
        spec["serviceAccountName"] = spec["serviceAccount"] = account
    for name in (*_LISTS, "ephemeralContainers"):
        if spec.get(name):
            spec[name] = orjson.loads(_defaulted_containers(orjson.dumps(spec[name])))
    if spec.get("volumes"):
        spec["volumes"] = orjson.loads(_defaulted_volumes(orjson.dumps(spec["volumes"])))


@lru_cache(1024)
def _defaulted_containers(raw: bytes) -> bytes:
    """Return containers with defaults. Cached, since Pods created from one template have the same containers."""
    containers = orjson.loads(raw)
    for container in containers:
        default_container(container, startup_probe=True)
        container.setdefault("resources", {})
    return orjson.dumps(containers)


@lru_cache(1024)
def _defaulted_volumes(raw: bytes) -> bytes:
    """Return volumes with defaults. Cached like containers."""
    volumes = orjson.loads(raw)
    for volume in volumes:
        default_volume(volume, every=True)
    return orjson.dumps(volumes)


def default_template(template: Json) -> None:
    """Set the defaults of a Pod template."""
    template.setdefault("metadata", {})
    default_pod_spec(template.setdefault("spec", {}))


def default_pod(pod: Json) -> None:
    """Set the defaults of a Pod: those of its spec, and requests, which default to the limits."""
    spec = pod.setdefault("spec", {})
    pod.setdefault("status", {})
    default_pod_spec(spec)
    spec.setdefault("enableServiceLinks", True)
    for name in _LISTS:
        for container in spec.get(name) or ():
            limits = container["resources"].get("limits")
            if limits:
                requests = container["resources"].setdefault("requests", {})
                for resource, quantity in limits.items():
                    requests.setdefault(resource, quantity)
            if spec.get("hostNetwork"):
                for port in container.get("ports") or ():
                    port.setdefault("hostPort", port.get("containerPort"))


def default_status(pod: Json) -> None:
    """Set the defaults of a Pod's status."""
    pod.setdefault("status", {})


# ---- create


def quality_of_service(spec: Mapping[str, Any]) -> str:
    """Return Guaranteed, Burstable or BestEffort."""
    containers = [container for name in _LISTS for container in spec.get(name) or ()]
    return _class_of(orjson.dumps([container.get("resources") or {} for container in containers]))


@lru_cache(1024)
def _class_of(resources: bytes) -> str:
    demands = orjson.loads(resources)
    seen = False
    guaranteed = True
    for demand in demands:
        requests, limits = _compute(demand.get("requests")), _compute(demand.get("limits"))
        seen = seen or bool(requests) or bool(limits)
        if limits.keys() != {"cpu", "memory"} or requests != limits:
            guaranteed = False
    if not seen:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def _compute(quantities: Mapping[str, Any] | None) -> dict[str, Any]:
    found = {}
    for name, text in (quantities or {}).items():
        if name in ("cpu", "memory") and (quantity := parse(text)) != parse("0"):
            found[name] = quantity
    return found


def _prepare_create(pod: Json) -> None:
    pod["status"] = {"phase": "Pending", "qosClass": quality_of_service(pod["spec"])}


def _prepare_status(pod: Json, old: Json) -> None:
    """Keep the quality of service, and fill in the required fields of conditions and container statuses."""
    status = pod.setdefault("status", {})
    if quality := (old.get("status") or {}).get("qosClass"):
        status["qosClass"] = quality
    for condition in status.get("conditions") or ():
        condition.setdefault("lastProbeTime", None)
        condition.setdefault("lastTransitionTime", None)
    for name in ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"):
        for container in status.get(name) or ():
            container.setdefault("state", {})
            container.setdefault("lastState", {})


def grace_period(pod: Json, asked: int | None) -> int:
    """Return a Pod's grace period in seconds, or 0 if none of its containers can be running."""
    spec = pod.get("spec") or {}
    period = asked if asked is not None else spec.get("terminationGracePeriodSeconds")
    if not spec.get("nodeName") or (pod.get("status") or {}).get("phase") in ("Failed", "Succeeded"):
        return 0
    if period is None:
        return 0
    return period if period >= 0 else 1


# ---- validation


def spec_errors(spec: Json, path: Path) -> list[FieldError]:
    """Validate a Pod spec. Containers and volumes are validated in full, other fields only as scenarios require."""
    parts = [spec.get("containers") or [], spec.get("initContainers") or [], spec.get("volumes") or []]
    # Cached, since Pods created from one template have the same containers.
    errors = list(_container_errors(orjson.dumps(parts), path))
    if not parts[0]:
        errors.append(required(path.child("containers")))
    policy = spec.get("restartPolicy")
    if policy not in ("Always", "OnFailure", "Never"):
        errors.append(not_supported(path.child("restartPolicy"), policy or "", ("Always", "OnFailure", "Never")))
    dns = spec.get("dnsPolicy")
    known = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
    if dns not in known:
        errors.append(not_supported(path.child("dnsPolicy"), dns or "", known))
    if selector := spec.get("nodeSelector"):
        errors += validate_labels(selector, path.child("nodeSelector"))
    return errors


@lru_cache(1024)
def _container_errors(parts: bytes, path: Path) -> tuple[FieldError, ...]:
    containers, init_containers, volumes = orjson.loads(parts)
    return tuple(pod_errors(containers, init_containers, volumes, path))


def _errors(pod: Json) -> list[FieldError]:
    return spec_errors(pod["spec"], SPEC)


def _update_errors(pod: Json, old: Json) -> list[FieldError]:
    """Reject changes to immutable fields in a Pod's spec."""
    new, before = pod["spec"], old.get("spec") or {}
    if new == before:
        return []
    errors: list[FieldError] = []
    for name in _LISTS:
        if len(new.get(name) or ()) != len(before.get(name) or ()):
            return [forbidden(SPEC.child(name), "pod updates may not add or remove containers")]
        for index, container in enumerate(new.get(name) or ()):
            image = container.get("image", "")
            if image != image.strip():
                at = SPEC.child(name).index(index).child("image")
                errors.append(invalid(at, image, "must not have leading or trailing whitespace"))
    errors += _deadline_errors(new.get("activeDeadlineSeconds"), before.get("activeDeadlineSeconds"))
    errors += _toleration_errors(new.get("tolerations") or [], before.get("tolerations") or [])
    errors += _gate_errors(new.get("schedulingGates") or [], before.get("schedulingGates") or [])
    munged = _munged(new, before)
    if munged != before:
        shown = "\n".join(differences(before, munged))
        message = f"pod updates may not change fields other than {_UPDATABLE}\n{shown}"
        errors.append(forbidden(SPEC, message))
    return errors


def _munged(new: Json, before: Json) -> Json:
    """Return the new spec with all mutable fields reset to their old values."""
    munged = dict(new)
    for name in _LISTS:
        if name in munged:
            munged[name] = [
                {**container, "image": previous.get("image")}
                for container, previous in zip(new[name], before[name], strict=True)
            ]
    for name in _MUTABLE:
        munged.pop(name, None)
        if name in before:
            munged[name] = before[name]
    grace = before.get("terminationGracePeriodSeconds")
    if grace is not None and grace < 0 and new.get("terminationGracePeriodSeconds") == 1:
        munged["terminationGracePeriodSeconds"] = grace
    if before.get("schedulingGates"):
        # The node selector and affinity of a gated Pod are mutable.
        if "nodeSelector" in before:
            munged["nodeSelector"] = before["nodeSelector"]
        else:
            munged.pop("nodeSelector", None)
        if "affinity" in before:
            munged["affinity"] = before["affinity"]
        else:
            munged.pop("affinity", None)
    return munged


def differences(before: Any, after: Any, path: str = "spec") -> Iterator[str]:
    """Yield the differences between two specs as lines: the old and the new value."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted(before.keys() | after.keys()):
            if before.get(key) != after.get(key):
                yield from differences(before.get(key), after.get(key), f"{path}.{key}")
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (one, other) in enumerate(zip(before, after, strict=True)):
            if one != other:
                yield from differences(one, other, f"{path}[{index}]")
    else:
        yield f"- {path}: {orjson.dumps(before).decode()}"
        yield f"+ {path}: {orjson.dumps(after).decode()}"


def _deadline_errors(new: int | None, before: int | None) -> list[FieldError]:
    at = SPEC.child("activeDeadlineSeconds")
    if new is None:
        message = "must not update from a positive integer to nil value"
        return [invalid(at, None, message)] if before is not None else []
    if not 0 <= new < 2**31:
        return [invalid(at, new, f"must be between 0 and {2**31 - 1}, inclusive")]
    if before is not None and new > before:
        return [invalid(at, new, "must be less than or equal to previous value")]
    return []


def _toleration_errors(new: list[Json], before: list[Json]) -> list[FieldError]:
    def without_seconds(toleration: Json) -> Json:
        return {key: value for key, value in toleration.items() if key != "tolerationSeconds"}

    kept = [without_seconds(one) for one in new]
    if any(without_seconds(one) not in kept for one in before):
        message = "existing toleration can not be modified except its tolerationSeconds"
        return [forbidden(SPEC.child("tolerations"), message)]
    return []


def _gate_errors(new: list[Json], before: list[Json]) -> list[FieldError]:
    names = {gate.get("name") for gate in before}
    return [
        forbidden(SPEC.child("schedulingGates").index(index), "only deletion is allowed, but found new scheduling gate "
                  f"'{gate.get('name')}'")
        for index, gate in enumerate(new)
        if gate.get("name") not in names
    ]  # fmt: skip


def _create_errors(pod: Json) -> list[FieldError]:
    if pod["spec"].get("ephemeralContainers"):
        return [forbidden(SPEC.child("ephemeralContainers"), "cannot be set on create")]
    return []


STRATEGY: Final = Strategy(
    default=default_pod,
    default_status=default_status,
    create_errors=_create_errors,
    prepare_create=_prepare_create,
    prepare_status=_prepare_status,
    errors=_errors,
    update_errors=_update_errors,
    grace=grace_period,
    keeps_status=True,
)


# Writes through subresources of a Pod: ephemeral containers and resize.
#
# Source: Kubernetes 1.34, pkg/apis/core/validation: ValidatePodEphemeralContainersUpdate, ValidatePodResize.

_EPHEMERAL: Final = Path("spec").child("ephemeralContainers")
#: Fields that ephemeral containers do not support.
_NOT_EPHEMERAL: Final = ("ports", "livenessProbe", "readinessProbe", "startupProbe", "lifecycle", "resizePolicy")


def ephemeral_errors(pod: Json, old: Json) -> list[FieldError]:
    """Validate the ephemeral containers of a Pod. Existing ones are immutable."""
    spec = pod.get("spec") or {}
    others = [one.get("name") for key in ("containers", "initContainers") for one in spec.get(key) or ()]
    found: list[FieldError] = []
    names = list(others)
    for index, container in enumerate(spec.get("ephemeralContainers") or ()):
        at = _EPHEMERAL.index(index)
        if container.get("name") in names:
            found.append(duplicate(at.child("name"), container.get("name")))
        names.append(container.get("name"))
        target = container.get("targetContainerName")
        if target and target not in others:
            found.append(not_found(at.child("targetContainerName"), target))
        for field in _NOT_EPHEMERAL:
            if container.get(field):
                found.append(forbidden(at.child(field), "cannot be set for an Ephemeral Container"))
    given = {one.get("name"): one for one in spec.get("ephemeralContainers") or ()}
    for before in (old.get("spec") or {}).get("ephemeralContainers") or ():
        name = before.get("name")
        if name in given and given[name] != before:
            shown = "\n".join(differences(before, given[name], name))
            found.append(
                forbidden(_EPHEMERAL, f"existing ephemeral containers {quote(name)} may not be changed\n{shown}")
            )
    return found


def resize_errors(pod: Json, old: Json) -> list[FieldError]:
    """Reject a resize that changes the Pod's quality of service."""
    before = quality_of_service(old["spec"])
    if quality_of_service(pod["spec"]) != before:
        return [invalid("spec", before, "Pod QOS Class may not change as a result of resizing")]
    return []
