"""SidecarSet between its versions: the two fields that v1alpha1 says in another way.

Each direction may lose something; app.api.conversion notices and remembers it (SS-4, D-1).
"""

from __future__ import annotations

from typing import Any

from app.api import names
from app.api.core_defaults import objects
from app.kube.validation import is_label_value


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
