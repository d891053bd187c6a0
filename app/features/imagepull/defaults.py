"""Defaults of ImagePullJob, ImageListPullJob and NodeImage, the same in both versions. Pure. [IMG-4 … IMG-6]

Values of the wrong type are left for validation to reject.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from app.features.imagepull.types import ALWAYS, PULL_IF_NOT_PRESENT
from app.kube.jsonvalues import fill, json_copy, objects, part

TIMEOUT_SECONDS: Final = 600
BACKOFF_LIMIT: Final = 3
#: Default of parallelism. It is not written to the object.
PARALLELISM: Final = 1


def job_with_defaults(obj: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of the ImagePullJob (JSON) with all defaults. Idempotent. [IMG-4]"""
    defaulted = list_job_with_defaults(obj)
    spec = defaulted.get("spec")
    if isinstance(spec, dict) and spec.get("imagePullPolicy") in (None, ""):
        spec["imagePullPolicy"] = PULL_IF_NOT_PRESENT
    return defaulted


def list_job_with_defaults(obj: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of the ImageListPullJob (JSON) with all defaults except that of imagePullPolicy, which its
    ImagePullJobs get. [IMG-5]"""
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
    """Return a copy of the NodeImage (JSON) with all defaults and sorted tags. ``now`` is an RFC 3339 time. [IMG-6]"""
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
        fill(policy, {"timeoutSeconds": TIMEOUT_SECONDS, "backoffLimit": BACKOFF_LIMIT})
