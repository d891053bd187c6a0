"""A built-in workload as one of ours: the same object under another apiVersion. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from app.kube.resources import Resource

_KEPT: Final = ("name", "namespace", "labels", "annotations")
#: What the controller of native DaemonSets writes for itself.
_OF_ITS_CONTROLLER: Final = "deprecated.daemonset.template.generation"


def moved_manifest(native: Mapping[str, Any], resource: Resource) -> dict[str, Any]:
    """The object of ours that a built-in one becomes: its name, labels, annotations and spec."""
    metadata = {key: native["metadata"][key] for key in _KEPT if key in native["metadata"]}
    if annotations := metadata.pop("annotations", None):
        kept = {key: value for key, value in annotations.items() if key != _OF_ITS_CONTROLLER}
        metadata |= {"annotations": kept} if kept else {}
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, "spec": native["spec"]}
