"""The strategies of built-in kinds, by resource."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from app.sandbox.apiserver import metadata
from app.sandbox.apiserver.rules import pods
from app.sandbox.apiserver.strategies import Strategy

Json: TypeAlias = dict[str, Any]


def _prepare_namespace(obj: Json) -> None:
    obj["status"] = {"phase": "Active"}
    spec = obj.setdefault("spec", {})
    finalizers = spec.setdefault("finalizers", [])
    if "kubernetes" not in finalizers:
        finalizers.append("kubernetes")


def _default_namespace(obj: Json) -> None:
    name = obj["metadata"].get("name")
    if name:
        # A selector can name a namespace by this label.
        obj["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = name


def _keep_namespace_finalizers(obj: Json, old: Json) -> None:
    obj["spec"] = old.get("spec", {})


STRATEGIES: Final[Mapping[str, Strategy]] = {
    "pods": pods.STRATEGY,
    "nodes": Strategy(keeps_status=True),
    "namespaces": Strategy(
        default=_default_namespace,
        prepare_create=_prepare_namespace,
        prepare_update=_keep_namespace_finalizers,
        name_rule=metadata.label_rule,
    ),
}
