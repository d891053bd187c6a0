"""Determine whether a Pod can move from one revision to another in place, and what changes. Pure.

This module compares two revisions, not a template and a live Pod, so it ignores what admission injected. The result
depends only on the arguments and may be cached as long as both revisions exist. [PM-10 … PM-21]
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from app.api import names
from app.kube.jsonvalues import as_object
from app.kube.objects import Pod, ResourceRequirements
from app.kube.patches import PatchError, diff
from app.kube.quantities import Quantity, QuantityError, parse
from app.pods.container_meta import FIELD_PATH, NO_REFERENCE, runtime_meta
from app.pods.inplace.state import RefMetadata, UpdateSpec, metadata_patch_bytes
from app.pods.revisions import Revision

_TEMPLATE: Final = "/spec/template"
#: Maximum total length of the changed values that containers read. An annotation of the Pod records each value once per
#: waiting container, and thousands of containers may read one value of 256 KB.
_MAX_READ: Final = 1024 * 1024
_IMAGE: Final = re.compile(r"/spec/(containers|initContainers)/(\d+)/image")
_RESOURCE: Final = re.compile(r"/spec/containers/(\d+)/resources/(limits|requests)/(cpu|memory)")


@dataclass(frozen=True, slots=True)
class InPlaceOptions:
    """The feature gates that extend what can be updated in place."""

    #: Gate InPlaceUpdateEnvFromMetadata.
    env_from_metadata: bool = True
    #: Gate InPlaceWorkloadVerticalScaling.
    vertical_scaling: bool = False
    #: Gate RecreatePodWhenChangeVCTInCloneSetGate.
    compare_claim_templates: bool = False


@dataclass(frozen=True, slots=True)
class Blocked:
    """What prevents an in-place update: the first difference that cannot be applied in place, or another reason, which
    has no path."""

    reason: str
    op: str = ""
    path: str = ""

    def __str__(self) -> str:
        return f"{self.op} {self.path}: {self.reason}" if self.path else self.reason


class _BlockedError(Exception):
    def __init__(self, blocked: Blocked) -> None:
        self.blocked = blocked


def update_spec(
    old: Revision | None, new: Revision | None, options: InPlaceOptions, *, grace_seconds: int = 0, revision: str = ""
) -> UpdateSpec | Blocked:
    """Return what an in-place update from ``old`` to ``new`` changes, or what prevents it.

    ``revision`` is the revision name to write to the Pod, if not that of ``new``. [PM-20]
    """
    try:
        return _update_spec(old, new, options, grace_seconds, revision)
    except _BlockedError as error:
        return error.blocked


def _update_spec(
    old: Revision | None, new: Revision | None, options: InPlaceOptions, grace_seconds: int, revision: str
) -> UpdateSpec:
    if old is None or new is None:  # [PM-10]
        raise _BlockedError(Blocked("the revision of the Pod is no longer recorded"))
    documents = _document(old), _document(new)
    before, after = (_template(document) for document in documents)
    if options.compare_claim_templates:
        _compare_claim_templates(old, new)
    images: dict[str, str] = {}
    resources: dict[str, ResourceRequirements] = {}
    metadata_differs = False
    try:
        operations = diff(*documents)
    except PatchError as error:
        raise _BlockedError(Blocked(str(error))) from error
    for operation in operations:
        inside = operation.path.startswith(f"{_TEMPLATE}/")
        path = operation.path.removeprefix(_TEMPLATE) if inside else operation.path
        if inside and (path == "/metadata" or path.startswith("/metadata/")):
            metadata_differs = True
        elif inside and operation.op == "replace" and (found := _IMAGE.fullmatch(path)):
            name = _container_name(before, int(found[2]), path, found[1])
            if found[1] == "initContainers" and not _is_native_sidecar(before, after, int(found[2])):
                raise _BlockedError(Blocked("an init container that has run does not run again", "replace", path))
            images[name] = _image(operation.value, path)
        elif inside and operation.op == "replace" and (found := _RESOURCE.fullmatch(path)):
            if not options.vertical_scaling:
                raise _BlockedError(
                    Blocked(
                        "resources can change in place only with gate InPlaceWorkloadVerticalScaling", "replace", path
                    )
                )
            name = _container_name(before, int(found[1]), path)
            _note_resource(
                resources.setdefault(name, ResourceRequirements({}, {})), found[2], found[3], operation.value, path
            )
        else:
            raise _BlockedError(Blocked("cannot be changed in a running Pod", operation.op, path))
    if resources:
        resources = _with_implied_requests(resources, after)
        if _qos_class(before) != _qos_class(after):  # [PM-14]
            raise _BlockedError(Blocked(f"the QoS class would change from {_qos_class(before)} to {_qos_class(after)}"))
    refs: dict[str, RefMetadata] = {}
    patch = b""
    if metadata_differs:
        refs, metadata = _metadata_changes(before, after, options.env_from_metadata)
        patch = metadata_patch_bytes(metadata)
    return UpdateSpec(revision or new.name, images, refs, resources, patch, bool(refs), max(0, grace_seconds))


def blocked_on_pod(pod: Pod, spec: UpdateSpec) -> Blocked | None:
    """Return what prevents an in-place update of this Pod although its revisions allow it, or None.

    Only the node agent restarts containers after a label or an annotation changed. If no agent reports the Pod's
    containers, the Pod would stay out of service forever.
    """
    started = {status.name for status in pod.status.container_statuses if status.container_id}
    waiting = sorted(started.intersection(spec.container_ref_metadata))
    if not waiting or runtime_meta(pod) is not None:
        return None
    return Blocked(
        "no node agent reports the Pod's containers, so none would restart "
        f"{', '.join(waiting)} with the new labels and annotations"
    )


# --- Reading revisions


def _document(revision: Revision) -> Mapping[str, Any]:
    try:
        document = orjson.loads(revision.data)
    except orjson.JSONDecodeError as error:
        raise _BlockedError(Blocked(f"ControllerRevision {revision.name} is not valid JSON: {error}")) from error
    if not isinstance(document, dict):
        raise _BlockedError(Blocked(f"ControllerRevision {revision.name} contains no template"))
    return document


def _template(document: Mapping[str, Any]) -> Mapping[str, Any]:
    return as_object(as_object(document.get("spec")).get("template"))


def _containers(template: Mapping[str, Any], field: str = "containers") -> Sequence[Mapping[str, Any]]:
    found = as_object(template.get("spec")).get(field)
    return [as_object(item) for item in found] if isinstance(found, list) else ()


def _is_native_sidecar(before: Mapping[str, Any], after: Mapping[str, Any], index: int) -> bool:
    """Return whether the init container at that index is a native sidecar, which kubelets restart. [PM-12]"""
    found = (_containers(template, "initContainers")[index : index + 1] for template in (before, after))
    return all(one and one[0].get("restartPolicy") == "Always" for one in found)


def _container_name(template: Mapping[str, Any], index: int, path: str, field: str = "containers") -> str:
    containers = _containers(template, field)
    name = containers[index].get("name") if index < len(containers) else None
    if not isinstance(name, str) or not name:
        raise _BlockedError(Blocked("the container has no name", "replace", path))
    return name


def _image(value: Any, path: str) -> str:
    if not isinstance(value, str):
        raise _BlockedError(Blocked("is not an image", "replace", path))
    return value


# --- Resources


def _note_resource(found: ResourceRequirements, kind: str, resource: str, value: Any, path: str) -> None:
    if _quantity(value) is None:  # [PM-13]
        raise _BlockedError(Blocked("is not a quantity", "replace", path))
    (found.limits if kind == "limits" else found.requests)[resource] = str(value)


def _quantity(value: Any) -> Quantity | None:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        return parse(value)
    except QuantityError:
        return None


def _with_implied_requests(
    resources: Mapping[str, ResourceRequirements], after: Mapping[str, Any]
) -> dict[str, ResourceRequirements]:
    """Use a resource's limit as its request if the request is missing, as the API server did when it defaulted the
    Pod."""
    requests_of = {
        container.get("name"): as_object(as_object(container.get("resources")).get("requests"))
        for container in _containers(after)
    }
    complete = {}
    for name, found in resources.items():
        own = requests_of.get(name, {})
        implied = {resource: limit for resource, limit in found.limits.items() if resource not in own}
        complete[name] = ResourceRequirements(found.limits, {**implied, **found.requests})
    return complete


def _qos_class(template: Mapping[str, Any]) -> str:
    """Return the QoS class of a Pod created from the template. [PM-14]"""
    guaranteed, any_set = True, False
    for container in (*_containers(template), *_containers(template, "initContainers")):
        resources = as_object(container.get("resources"))
        limits = _counted(resources.get("limits"))
        requests = {**limits, **_counted(resources.get("requests"))}
        any_set = any_set or bool(requests)
        guaranteed = guaranteed and len(limits) == 2 and requests == limits
    if not any_set:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def _counted(quantities: Any) -> dict[str, Quantity]:
    found = ((name, _quantity(as_object(quantities).get(name))) for name in ("cpu", "memory"))
    return {name: quantity for name, quantity in found if quantity is not None and not quantity.is_zero}


def _compare_claim_templates(old: Revision, new: Revision) -> None:
    """Compare the claim templates, unless one of the revisions records none. [PM-15]"""
    before, after = (revision.annotations.get(names.CLAIM_TEMPLATES_HASH) for revision in (old, new))
    if before is not None and after is not None and before != after:
        raise _BlockedError(Blocked("the volume claim templates differ"))


# --- Metadata


def _metadata_changes(
    before: Mapping[str, Any], after: Mapping[str, Any], env_from_metadata: bool
) -> tuple[dict[str, RefMetadata], dict[str, Any]]:
    """Return the changes that containers read through their env, and the patch for the rest. [PM-16 … PM-19]"""
    old, new = as_object(before.get("metadata")), as_object(after.get("metadata"))
    readers = _readers(after) if env_from_metadata else {}
    refs: dict[str, RefMetadata] = {}
    patch: dict[str, Any] = {}
    for field in ("labels", "annotations"):
        rest: dict[str, str | None] = {}
        for key, value in _changed(as_object(old.get(field)), as_object(new.get(field))):
            containers = readers.get((field, key), ())
            for container in containers:
                ref = refs.setdefault(container, RefMetadata({}, {}))
                # An env variable that reads a removed key becomes empty.
                (ref.labels if field == "labels" else ref.annotations)[key] = value or ""
            if not containers:
                rest[key] = value
        if rest:
            patch[field] = rest
    count = sum(len(value) for ref in refs.values() for value in (*ref.labels.values(), *ref.annotations.values()))
    if count > _MAX_READ:
        raise _BlockedError(
            Blocked(f"its containers read {count} characters of changed labels and annotations, more than {_MAX_READ}")
        )
    patch.update(_finalizer_changes(_texts(old.get("finalizers")), _texts(new.get("finalizers"))))
    return refs, patch


def _changed(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[tuple[str, str | None]]:
    """Yield each key that differs with its new value, or with None if it was removed."""
    for key in sorted({*old, *new}):
        if old.get(key) != new.get(key):
            yield key, None if new.get(key) is None else str(new[key])


def _finalizer_changes(old: Sequence[str], new: Sequence[str]) -> dict[str, Any]:
    """Return the patch for finalizers that the old or new template lists; others on the Pod are kept."""
    before, after = set(old), set(new)
    removed = [name for name in old if name not in after]
    added = [name for name in new if name not in before]
    changes: dict[str, Any] = {}
    if removed:
        changes["$deleteFromPrimitiveList/finalizers"] = removed
    if (removed or added) and new:
        changes["$setElementOrder/finalizers"] = list(new)
    if added:
        changes["finalizers"] = added
    return changes


def _texts(value: Any) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def _readers(template: Mapping[str, Any]) -> Mapping[tuple[str, str], Iterable[str]]:
    """Return ("labels" or "annotations", key) → the containers with an env variable that reads it."""
    found: dict[tuple[str, str], dict[str, None]] = {}
    for container in _containers(template):
        env = container.get("env")
        for entry in env if isinstance(env, list) else ():
            path = as_object(as_object(as_object(entry).get("valueFrom")).get("fieldRef")).get("fieldPath")
            match = FIELD_PATH.fullmatch(path) if isinstance(path, str) else None
            if match is None or as_object(entry).get("name") in NO_REFERENCE:
                continue
            found.setdefault((match[1], match[2]), {})[str(container.get("name"))] = None
    return found
