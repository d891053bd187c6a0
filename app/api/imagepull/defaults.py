"""What ImagePullJob, ImageListPullJob and NodeImage mean where they say nothing (IMG-4 … IMG-6). Pure; the same in
both versions. What has another type than the schema says is left alone, for validation to name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from app.api.core_defaults import objects
from app.api.imagepull.types import ALWAYS, PULL_IF_NOT_PRESENT
from app.api.jsonvalue import json_copy, part

TIMEOUT_SECONDS: Final = 600
BACKOFF_LIMIT: Final = 3


def job_with_defaults(obj: Mapping[str, Any]) -> dict[str, Any]:
    """IMG-4: the ImagePullJob (JSON) with every default filled in, as a copy. Doing it twice changes nothing."""
    defaulted = list_job_with_defaults(obj)
    spec = defaulted.get("spec")
    if isinstance(spec, dict) and spec.get("imagePullPolicy") in (None, ""):
        spec["imagePullPolicy"] = PULL_IF_NOT_PRESENT
    return defaulted


def list_job_with_defaults(obj: Mapping[str, Any]) -> dict[str, Any]:
    """IMG-5: the ImageListPullJob likewise; imagePullPolicy is left to the jobs made from it."""
    defaulted: dict[str, Any] = json_copy(dict(obj))
    spec = defaulted.get("spec")
    if not isinstance(spec, dict):
        return defaulted
    completion = part(spec, "completionPolicy")
    if completion is not None and completion.get("type") in (None, ""):
        completion["type"] = ALWAYS
    _default_pull_policy(spec)
    return defaulted


def node_image_with_defaults(obj: Mapping[str, Any], now: str) -> dict[str, Any]:
    """IMG-6: the NodeImage with every default filled in and its tags sorted, as a copy. ``now``: as the API writes
    times."""
    defaulted: dict[str, Any] = json_copy(dict(obj))
    for image in _values(defaulted.get("spec"), "images"):
        for tag in objects(image.get("tags")):
            if tag.get("createdAt") in (None, ""):
                tag["createdAt"] = now
            _default_pull_policy(tag)
        _sort_tags(image)
    for image in _values(defaulted.get("status"), "imageStatuses"):
        _sort_tags(image)
    return defaulted


def _values(parent: Any, key: str) -> list[dict[str, Any]]:
    found = parent.get(key) if isinstance(parent, dict) else None
    return [value for value in found.values() if isinstance(value, dict)] if isinstance(found, dict) else []


def _sort_tags(image: dict[str, Any]) -> None:
    tags = image.get("tags")
    if isinstance(tags, list) and all(isinstance(tag, dict) and isinstance(tag.get("tag"), str) for tag in tags):
        tags.sort(key=lambda tag: tag["tag"].encode("utf-8", "surrogatepass"))


def _default_pull_policy(parent: dict[str, Any]) -> None:
    policy = part(parent, "pullPolicy")
    if policy is not None:
        for field, value in (("timeoutSeconds", TIMEOUT_SECONDS), ("backoffLimit", BACKOFF_LIMIT)):
            if policy.get(field) is None:
                policy[field] = value
