"""Hot-upgradable sidecars at injection: two containers for one, and the annotations that say which of them works."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from app.api import names
from app.api.gojson import dumps_go


def twins(container: Mapping[str, Any], empty_image: str) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """SS-78: the working container ``<name>-1`` and the idle one ``<name>-2``, which runs ``empty_image``."""
    name = container["name"]
    return _twin(container, f"{name}-1", container.get("image")), _twin(container, f"{name}-2", empty_image)


def _twin(container: Mapping[str, Any], name: str, image: Any) -> Mapping[str, Any]:
    version = f"{names.SIDECARSET_VERSION_PREFIX}{name}"
    version_alt = f"{names.SIDECARSET_VERSION_ALT_PREFIX}{name}"
    env = [
        *(container.get("env") or ()),
        _from_annotation(names.ENV_SIDECARSET_VERSION, version),
        _from_annotation(names.ENV_SIDECARSET_VERSION_ALT, version_alt),
    ]
    return {**container, "name": name, "image": image, "env": env}


def _from_annotation(env_name: str, key: str) -> Mapping[str, Any]:
    field = {"apiVersion": "v1", "fieldPath": f"metadata.annotations['{key}']"}
    return {"name": env_name, "valueFrom": {"fieldRef": field}}


def version_annotations(hot: Iterable[str], present: Mapping[str, str]) -> dict[str, str]:
    """SS-79: what a Pod with annotations ``present`` gets for the hot-upgradable sidecars ``hot``; else nothing."""
    annotations: dict[str, str] = {}
    working = _working(present.get(names.SIDECARSET_WORKING_HOT_UPGRADE_CONTAINER, ""))
    for name in hot:
        # "1" and "0": just injected; "0" and "1": the idle twin of that one.
        annotations[f"{names.SIDECARSET_VERSION_PREFIX}{name}-1"] = "1"
        annotations[f"{names.SIDECARSET_VERSION_ALT_PREFIX}{name}-1"] = "0"
        annotations[f"{names.SIDECARSET_VERSION_PREFIX}{name}-2"] = "0"
        annotations[f"{names.SIDECARSET_VERSION_ALT_PREFIX}{name}-2"] = "1"
        working[name] = f"{name}-1"
    if annotations:
        annotations[names.SIDECARSET_WORKING_HOT_UPGRADE_CONTAINER] = dumps_go(working, sort_keys=True)
    return annotations


def _working(text: str) -> dict[str, str]:
    """The annotation's entries. An unreadable one says nothing (SS-80) and is written anew."""
    try:
        value = orjson.loads(text) if text else None
    except orjson.JSONDecodeError:
        return {}
    if not isinstance(value, dict):
        return {}
    return {name: twin for name, twin in value.items() if isinstance(twin, str)}
