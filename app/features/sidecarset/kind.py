"""Kind definition of SidecarSet: versions, conversion, columns, and the Go types of its spec."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson
from pydantic import ValidationError

from app.api import names
from app.api.gocore import CONTAINER_FIELDS, LABEL_SELECTOR, VOLUME, optional
from app.api.gojson import GoType, list_of, pointer, struct
from app.api.kind import AGE, Access, KindDefinition, PrinterColumn, Version, noted
from app.api.model import ObjectMeta
from app.api.schema import go_struct
from app.features.sidecarset.types import (
    PatchPodMetadata,
    SidecarContainer,
    SidecarSet,
    SidecarSetSpec,
    SidecarSetV1Alpha1,
    SidecarSetV1Alpha1Spec,
)
from app.kube.jsonvalues import as_object, objects
from app.kube.validation import is_label_value

# Conversion between the versions of SidecarSet, which express two fields differently. Each direction may lose data;
# app.api.conversion detects and preserves it. [SS-4]


def to_v1beta1(obj: dict[str, Any]) -> dict[str, Any]:
    """Convert ``spec.namespace`` to a selector, and move the custom version from its label to the spec. [SS-1, SS-2]"""
    spec = obj.get("spec")
    if isinstance(spec, dict):
        for secret in objects(spec.get("imagePullSecrets")):
            secret.setdefault("name", "")
        namespace = spec.pop("namespace", None)
        if namespace:
            spec["namespaceSelector"] = {"matchLabels": {names.NAMESPACE_NAME: namespace}}
    labels = _labels(obj)
    if labels.get(names.SIDECARSET_CUSTOM_VERSION):
        version = labels.pop(names.SIDECARSET_CUSTOM_VERSION)
        obj["spec"] = {**(spec or {}), "customVersion": version}
        if not labels:
            del obj["metadata"]["labels"]
    return obj


def to_v1alpha1(obj: dict[str, Any]) -> dict[str, Any]:
    """Keep the selector, and move the custom version to its label if it is a valid label value. [SS-1, SS-2, SS-A]"""
    obj = canonical_v1alpha1(obj)
    version = as_object(obj.get("spec")).pop("customVersion", None)
    if isinstance(version, str) and version and not is_label_value(version):
        # In v1alpha1, the version replaces a label with this key; conversion to v1beta1 restores that label. [SS-B]
        metadata = obj.setdefault("metadata", {})
        metadata["labels"] = {**_labels(obj), names.SIDECARSET_CUSTOM_VERSION: version}
    return obj


def canonical_v1alpha1(obj: dict[str, Any]) -> dict[str, Any]:
    """Drop empty names of pull secrets: OpenKruise returns ``{}`` in v1alpha1, and ``name: ""`` in v1beta1. [SS-3]"""
    for secret in objects(as_object(obj.get("spec")).get("imagePullSecrets")):
        if secret.get("name") == "":
            del secret["name"]
    return obj


def canary_base(annotations: Mapping[str, str]) -> str:
    """Return the base of a canary with these annotations, or "" if they do not mark a canary. [SS-77]"""
    return annotations.get(names.SIDECARSET_BASE, "") if annotations.get(names.SIDECARSET_CANARY) == "true" else ""


def _labels(obj: dict[str, Any]) -> dict[str, Any]:
    return as_object(as_object(obj.get("metadata")).get("labels"))


_COLUMNS: Final = (
    PrinterColumn("MATCHED", "integer", ".status.matchedPods", "Number of matching Pods that have the sidecars."),
    PrinterColumn("UPDATED", "integer", ".status.updatedPods", "Number of matched Pods whose sidecars are up to date."),
    PrinterColumn("READY", "integer", ".status.readyPods", "Number of matched Pods that are ready."),
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


# The Go types of the spec in both versions, derived from the models. OpenKruise's webhook stores the spec as Go
# marshals it: without empty fields, with canonical quantities. We store the same form, so that manifests and
# revisions compare equal, but keep unknown fields.

#: The fields of a core Container, then OpenKruise's own in the order of the model. The order determines the hashes.
#: [SS-12, SS-13]
SIDECAR_CONTAINER: Final = struct(*CONTAINER_FIELDS, *go_struct(SidecarContainer, {}).fields)

#: The content of a revision. A secret without a name is recorded as ``{}``; in the spec, the API server defaults
#: the name. [SS-73]
RECORDED_FIELDS: Final[Mapping[str, GoType]] = {
    "containers": list_of(SIDECAR_CONTAINER),
    "initContainers": list_of(SIDECAR_CONTAINER),
    "volumes": list_of(VOLUME),
    "imagePullSecrets": list_of(struct(optional("name"))),
    "patchPodMetadata": list_of(go_struct(PatchPodMetadata, {})),
}

#: Fields that are schemaless in the models.
_NAMED: Final[Mapping[str, GoType]] = {
    "selector": pointer(LABEL_SELECTOR),
    "namespaceSelector": pointer(LABEL_SELECTOR),
    "matchSelector": LABEL_SELECTOR,
    "containers": list_of(SIDECAR_CONTAINER),
    "initContainers": list_of(SIDECAR_CONTAINER),
    "volumes": list_of(VOLUME),
}

#: Go type of the spec, by API version.
SPECS: Final[Mapping[str, GoType]] = {
    names.V1BETA1: go_struct(SidecarSetSpec, _NAMED),
    names.V1ALPHA1: go_struct(SidecarSetV1Alpha1Spec, _NAMED),
}


# SidecarSets as stored in a cluster, including ones that violate the schema. The API server rejects most
# invalid sets, but returns unchanged those that were stored under another schema or while no webhook was running. One
# such set must not prevent the others from being read.


class MalformedSidecarSet(SidecarSet):
    """A SidecarSet of which only the metadata can be parsed; it selects nothing."""

    problem: str
    """The malformed field and the error in it."""


def read_sidecar_set(raw: bytes) -> SidecarSet:
    """Return the set, or a :class:`MalformedSidecarSet`. Raises ValueError if the metadata cannot be parsed either."""
    try:
        return SidecarSet.model_validate_json(raw)
    except ValidationError as error:
        obj: Any = orjson.loads(raw)
        metadata = ObjectMeta.model_validate(obj.get("metadata") if isinstance(obj, dict) else None)
        first = error.errors(include_url=False, include_input=False)[0]
        problem = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        return MalformedSidecarSet(metadata=metadata, problem=problem)
