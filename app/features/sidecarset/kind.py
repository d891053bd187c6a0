"""The definition of SidecarSet: conversion, defaults, hashes, and Go's view of its spec."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import orjson
from pydantic import ValidationError

from app.api import names
from app.api.core.defaults import default_container, default_field_ref, default_volume, objects
from app.api.gocore import CONTAINER_FIELDS, LABEL_SELECTOR, VOLUME, optional
from app.api.gojson import GoType, dumps_go, go_value, list_of, pointer, struct
from app.api.kind import AGE, Access, KindDefinition, PrinterColumn, Version, noted
from app.api.model import ObjectMeta
from app.api.schema import go_struct
from app.features.sidecarset.types import (
    AFTER_APP_CONTAINER,
    ALWAYS,
    BEFORE_APP_CONTAINER,
    COLD_UPGRADE,
    MATCH_ALL_NAMES,
    RETAIN,
    ROLLING_UPDATE,
    SHARE_DISABLED,
    PatchPodMetadata,
    SidecarContainer,
    SidecarSet,
    SidecarSetSpec,
    SidecarSetV1Alpha1,
    SidecarSetV1Alpha1Spec,
)
from app.kube.jsonvalues import json_copy, part
from app.kube.validation import is_label_value
from app.pods.hashes import safe_encode

# SidecarSet between its versions: the two fields that v1alpha1 says in another way.
#
# Each direction may lose something; app.api.conversion notices and remembers it (SS-4, D-1).


def to_v1beta1(obj: dict[str, Any]) -> dict[str, Any]:
    """SS-1, SS-2: ``spec.namespace`` becomes a selector, the custom version moves from its label into the spec."""
    spec = obj.get("spec")
    if isinstance(spec, dict):
        for secret in objects(spec.get("imagePullSecrets")):
            secret.setdefault("name", "")
        namespace = spec.pop("namespace", None)
        if namespace:
            spec["namespaceSelector"] = {"matchLabels": {names.NAMESPACE_NAME: namespace}}
    labels = _labels(obj)
    if labels and labels.get(names.SIDECARSET_CUSTOM_VERSION):
        version = labels.pop(names.SIDECARSET_CUSTOM_VERSION)
        obj["spec"] = {**(spec or {}), "customVersion": version}
        if not labels:
            del obj["metadata"]["labels"]
    return obj


def to_v1alpha1(obj: dict[str, Any]) -> dict[str, Any]:
    """SS-1, SS-2: the selector stays a selector; the custom version is shown as a label, where it can be one (SS-A)."""
    obj = canonical_v1alpha1(obj)
    spec = obj.get("spec")
    version = spec.pop("customVersion", None) if isinstance(spec, dict) else None
    if isinstance(version, str) and version and not is_label_value(version):
        # SS-B: a label of that key beside it is hidden by the field, and comes back with v1beta1.
        metadata = obj.setdefault("metadata", {})
        metadata["labels"] = {**(_labels(obj) or {}), names.SIDECARSET_CUSTOM_VERSION: version}
    return obj


def canonical_v1alpha1(obj: dict[str, Any]) -> dict[str, Any]:
    """SS-3: OpenKruise shows a pull secret without a name as ``{}`` in v1alpha1; v1beta1 has ``name: ""`` there."""
    spec = obj.get("spec")
    for secret in objects(spec.get("imagePullSecrets") if isinstance(spec, dict) else None):
        if secret.get("name") == "":
            del secret["name"]
    return obj


def _labels(obj: dict[str, Any]) -> dict[str, Any] | None:
    metadata = obj.get("metadata")
    labels = metadata.get("labels") if isinstance(metadata, dict) else None
    return labels if isinstance(labels, dict) else None


_COLUMNS: Final = (
    PrinterColumn("MATCHED", "integer", ".status.matchedPods", "Pods that match and carry the sidecars."),
    PrinterColumn("UPDATED", "integer", ".status.updatedPods", "Those of them whose sidecars are up to date."),
    PrinterColumn("READY", "integer", ".status.readyPods", "Those of them that are ready."),
    AGE,
)

_LINKED: Final = (
    (("spec", "namespace"), ("spec", "namespaceSelector")),
    (("metadata", "labels", names.SIDECARSET_CUSTOM_VERSION), ("spec", "customVersion")),
)
_LABEL: Final = noted("metadata", "labels", fields=(names.SIDECARSET_CUSTOM_VERSION,))
_NOTED: Final = (
    *_LABEL,
    *noted("spec", fields=("customVersion",)),
    *noted("spec", fields=("imagePullSecrets",), size=65536, depth=2),
)
_NOTED_V1ALPHA1: Final = (
    *_LABEL,
    *noted("spec", fields=("namespace",)),
    *noted("spec", fields=("namespaceSelector",), size=65536, depth=4),
)

SIDECAR_SET: Final = KindDefinition(
    group=names.APPS_GROUP,
    kind="SidecarSet",
    plural="sidecarsets",
    access=Access("adds containers to Pods of other namespaces", view=True),
    namespaced=False,
    versions=(
        Version(names.V1BETA1, SidecarSet, _COLUMNS, notes=_NOTED),
        Version(
            names.V1ALPHA1,
            SidecarSetV1Alpha1,
            _COLUMNS,
            to_hub=to_v1beta1,
            from_hub=to_v1alpha1,
            canonical=canonical_v1alpha1,
            linked=_LINKED,
            notes=_NOTED_V1ALPHA1,
        ),
    ),
)


# What a SidecarSet means where it says nothing (SS-5 … SS-7). Pure; the same in both versions.

REVISION_HISTORY_LIMIT: Final = 10
MAX_UNAVAILABLE: Final = 1


def with_defaults(obj: Mapping[str, Any]) -> dict[str, Any]:
    """The SidecarSet (JSON of either version) with every default filled in, as a copy. Doing it twice changes nothing.

    What has another type than the schema says is left alone, for validation to name.
    """
    defaulted: dict[str, Any] = json_copy(dict(obj))
    spec = part(defaulted, "spec")
    if spec is None:
        return defaulted
    for container in objects(spec.get("initContainers")):
        _default_sidecar(container, AFTER_APP_CONTAINER)
    for container in objects(spec.get("containers")):
        _default_sidecar(container, BEFORE_APP_CONTAINER)
    for volume in objects(spec.get("volumes")):
        default_volume(volume)
    _default_strategies(spec)
    return defaulted


def _default_strategies(spec: dict[str, Any]) -> None:
    update = part(spec, "updateStrategy")
    if update is not None:
        _default(update, "type", ROLLING_UPDATE)
        if update.get("maxUnavailable") is None:
            update["maxUnavailable"] = MAX_UNAVAILABLE
        if update.get("partition") is None:
            update["partition"] = 0
    injection = part(spec, "injectionStrategy")
    revision = injection.get("revision") if injection is not None else None
    if isinstance(revision, dict):
        _default(revision, "policy", ALWAYS)
    if spec.get("revisionHistoryLimit") is None:
        spec["revisionHistoryLimit"] = REVISION_HISTORY_LIMIT
    for patch in objects(spec.get("patchPodMetadata")):
        _default(patch, "patchPolicy", RETAIN)


def _default_sidecar(container: dict[str, Any], position: str) -> None:
    part(container, "resources")
    default_container(container)
    _default(container, "podInjectPolicy", position)
    upgrade, sharing = part(container, "upgradeStrategy"), part(container, "shareVolumePolicy")
    if upgrade is not None:
        _default(upgrade, "upgradeType", COLD_UPGRADE)
    if sharing is not None:
        _default(sharing, "type", SHARE_DISABLED)
    policy = container.get("resourcesPolicy")
    if isinstance(policy, dict):
        # SS-23: an empty pattern is the default one too, and is so before hashes are made of it.
        _default(policy, "targetContainersNameRegex", MATCH_ALL_NAMES)
    for transfer in objects(container.get("transferEnv")):
        source = transfer.get("sourceContainerNameFrom")
        # SS-9: without fieldRef it names no source; there is nothing to default.
        reference = source.get("fieldRef") if isinstance(source, dict) else None
        default_field_ref(reference if isinstance(reference, dict) else None)


def _default(target: dict[str, Any], key: str, value: str) -> None:
    if target.get(key) in (None, ""):
        target[key] = value


# The spec of a SidecarSet as Go reads and prints it, in both versions, made from the models.
#
# OpenKruise's webhook stores what its Go types print: without what is empty, with canonical quantities. We store the
# same, so that manifests, revisions and what is compared with them look alike, but keep fields we do not know.

#: SS-12, SS-13: the core Container inline, then OpenKruise's own fields in the model's order, which the hashes are
#: made in.
SIDECAR_CONTAINER: Final = struct(*CONTAINER_FIELDS, *go_struct(SidecarContainer, {}).fields)

#: What a revision records (SS-73). Here a secret without a name is empty; in the spec the API server fills it in.
RECORDED_FIELDS: Final[Mapping[str, GoType]] = {
    "containers": list_of(SIDECAR_CONTAINER),
    "initContainers": list_of(SIDECAR_CONTAINER),
    "volumes": list_of(VOLUME),
    "imagePullSecrets": list_of(struct(optional("name"))),
    "patchPodMetadata": list_of(go_struct(PatchPodMetadata, {})),
}

#: What the models leave schemaless.
_NAMED: Final[Mapping[str, GoType]] = {
    "selector": pointer(LABEL_SELECTOR),
    "namespaceSelector": pointer(LABEL_SELECTOR),
    "matchSelector": LABEL_SELECTOR,
    "containers": list_of(SIDECAR_CONTAINER),
    "initContainers": list_of(SIDECAR_CONTAINER),
    "volumes": list_of(VOLUME),
}

#: API version → its spec.
SPECS: Final[Mapping[str, GoType]] = {
    names.V1BETA1: go_struct(SidecarSetSpec, _NAMED),
    names.V1ALPHA1: go_struct(SidecarSetV1Alpha1Spec, _NAMED),
}


# SidecarSets as a cluster stores them: one that is not what the schema says is read too, as one that says so.
#
# An API server refuses most of them; what was stored under another schema, or while no webhook answered, it gives out
# as it is. One such object must not keep the others from being read.


class MalformedSidecarSet(SidecarSet):
    """A SidecarSet of which only the metadata can be read: it selects nothing."""

    problem: str
    """Which field does not hold what it must."""


def read_sidecar_set(raw: bytes) -> SidecarSet:
    """The set, or a :class:`MalformedSidecarSet`. Raises ValueError for what has no readable metadata either."""
    try:
        return SidecarSet.model_validate_json(raw)
    except ValidationError as error:
        obj: Any = orjson.loads(raw)
        metadata = ObjectMeta.model_validate(obj.get("metadata") if isinstance(obj, dict) else None)
        first = error.errors(include_url=False, include_input=False)[0]
        problem = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        return MalformedSidecarSet(metadata=metadata, problem=problem)


# The two hashes of a SidecarSet: what tells Pods with its present containers from those with former ones.
#
# They are recorded on the set, its revisions and every Pod it was injected into, and compared by every OpenKruise
# component, so they agree with OpenKruise's to the byte (SS-10 … SS-15). The input is the set's defaulted containers
# as JSON.

_CONTAINERS = list_of(SIDECAR_CONTAINER)


class SidecarSetHashes(NamedTuple):
    """The values of kruise.io/sidecarset-hash and kruise.io/sidecarset-hash-without-image."""

    hash: str
    without_image: str


def sidecarset_hashes(
    containers: Sequence[Mapping[str, Any]] | None, init_containers: Sequence[Mapping[str, Any]] | None
) -> SidecarSetHashes:
    """Both hashes of the set with these defaulted containers (JSON, with every field they came with).

    Raises :class:`app.api.gojson.GoTypeError` for a field of another type than Kubernetes gives it.
    """
    spec: dict[str, list[dict[str, Any]] | None] = {"containers": _printed(containers, "spec.containers")}
    inits = _printed(init_containers, "spec.initContainers") or []
    # SS-10: only containers that keep running are updated in place, so plain init containers do not count.
    if any(init.get("restartPolicy") == "Always" for init in inits):
        spec["initContainers"] = inits
    full = _hash(spec)
    for listed in spec.values():
        for container in listed or ():
            container.pop("image", None)
    return SidecarSetHashes(full, _hash(spec))


def _printed(containers: Sequence[Mapping[str, Any]] | None, path: str) -> list[dict[str, Any]] | None:
    printed: list[dict[str, Any]] | None = go_value(_CONTAINERS, containers, path)
    for container in printed or ():
        policy = container.get("resourcesPolicy")
        if policy is not None:
            container["resourcesPolicy"] = _with_regex(policy)
    return printed


def _with_regex(policy: Mapping[str, Any]) -> dict[str, Any]:
    """SS-12, corrected: the default pattern counts even where it was left empty, so a second write changes no hash."""
    pattern = policy.get("targetContainersNameRegex") or ".*"
    mode = policy["targetContainersMode"]
    return {
        "targetContainersMode": mode,
        "targetContainersNameRegex": pattern,
        "resourcesExpr": policy["resourcesExpr"],
    }


def _hash(spec: Mapping[str, Any]) -> str:
    # SS-11: the hexadecimal SHA-256, spelled in the alphabet of generated names.
    return safe_encode(hashlib.sha256(dumps_go(spec).encode()).hexdigest())
