"""The definitions of ImagePullJob, ImageListPullJob and NodeImage: defaults, and Go's view of their specs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from app.api import names
from app.api.core.defaults import objects
from app.api.gocore import LABEL_SELECTOR, optional
from app.api.gojson import STRING, GoType, list_of, pointer, struct
from app.api.kind import AGE, ANY_KEY, Access, KindDefinition, PrinterColumn, Version, noted
from app.api.schema import go_struct
from app.features.imagepull.types import (
    ALWAYS,
    PULL_IF_NOT_PRESENT,
    ImageListPullJob,
    ImageListPullJobSpec,
    ImagePullJob,
    NodeImage,
    NodeImageV1Alpha1,
)
from app.kube.jsonvalues import json_copy, part


def _same(obj: dict[str, Any]) -> dict[str, Any]:
    """IMG-1: both versions say the same in the same words."""
    return obj


def _without_modes(obj: dict[str, Any]) -> dict[str, Any]:
    """IMG-1: v1alpha1 has no mode of a pull secret; conversion remembers it."""
    spec = obj.get("spec")
    images = spec.get("images") if isinstance(spec, dict) else None
    for image in images.values() if isinstance(images, dict) else ():
        secrets = image.get("pullSecrets") if isinstance(image, dict) else None
        for secret in secrets if isinstance(secrets, list) else ():
            if isinstance(secret, dict):
                secret.pop("mode", None)
    return obj


_PULL_COLUMNS: Final = (
    PrinterColumn("TOTAL", "integer", ".status.desired", "Nodes that shall have the image."),
    PrinterColumn("ACTIVE", "integer", ".status.active", "Those of them that pull now."),
    PrinterColumn("SUCCEED", "integer", ".status.succeeded", "Those of them that have it."),
    PrinterColumn("FAILED", "integer", ".status.failed", "Those of them that have given up."),
    AGE,
)
_MESSAGE: Final = PrinterColumn("MESSAGE", "string", ".status.message", "The same in a sentence.")

IMAGE_PULL_JOB: Final = KindDefinition(
    group=names.APPS_GROUP,
    kind="ImagePullJob",
    plural="imagepulljobs",
    access=Access(
        "pulls an image on nodes with pull secrets of its namespace, as starting Pods there does", view=True, edit=True
    ),
    versions=(
        Version(names.V1BETA1, ImagePullJob, _PULL_COLUMNS),
        Version(names.V1ALPHA1, ImagePullJob, (*_PULL_COLUMNS, _MESSAGE), to_hub=_same, from_hub=_same),
    ),
)

_LIST_COLUMNS: Final = (
    PrinterColumn("TOTAL", "integer", ".status.desired", "Images to pull."),
    PrinterColumn("SUCCEEDED", "integer", ".status.succeeded", "Those of them that every node has."),
    PrinterColumn("COMPLETED", "integer", ".status.completed", "Those of them that are done, with success or not."),
    AGE,
)

IMAGE_LIST_PULL_JOB: Final = KindDefinition(
    group=names.APPS_GROUP,
    kind="ImageListPullJob",
    plural="imagelistpulljobs",
    access=Access(
        "pulls images on nodes with pull secrets of its namespace, as starting Pods there does", view=True, edit=True
    ),
    versions=(
        Version(names.V1BETA1, ImageListPullJob, _LIST_COLUMNS),
        Version(names.V1ALPHA1, ImageListPullJob, _LIST_COLUMNS, to_hub=_same, from_hub=_same),
    ),
)

_NODE_COLUMNS: Final = (
    PrinterColumn("DESIRED", "integer", ".status.desired", "Tags the node shall have."),
    PrinterColumn("PULLING", "integer", ".status.pulling", "Those of them it pulls now."),
    PrinterColumn("SUCCEED", "integer", ".status.succeeded", "Those of them it has."),
    PrinterColumn("FAILED", "integer", ".status.failed", "Those of them it has given up."),
    AGE,
)
_SECRETS: Final = ("spec", "images", ANY_KEY, "pullSecrets")
_NOTED: Final = (
    *noted(*_SECRETS, ANY_KEY, fields=("mode",), count=5000),
    # Where names repeat, the list as a whole.
    *noted(*_SECRETS[:-1], fields=_SECRETS[-1:], size=16384, depth=2, count=5000),
)

NODE_IMAGE: Final = KindDefinition(
    group=names.APPS_GROUP,
    kind="NodeImage",
    plural="nodeimages",
    access=Access("pulls images on a node with pull secrets of any namespace; the controllers write it", view=True),
    namespaced=False,
    versions=(
        Version(names.V1BETA1, NodeImage, _NODE_COLUMNS, notes=_NOTED),
        Version(names.V1ALPHA1, NodeImageV1Alpha1, _NODE_COLUMNS, to_hub=_same, from_hub=_without_modes),
    ),
)


# What ImagePullJob, ImageListPullJob and NodeImage mean where they say nothing (IMG-4 … IMG-6). Pure; the same in both
# versions. What has another type than the schema says is left alone, for validation to name.

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


_NODES: Final = struct(optional("names", list_of(STRING)), *LABEL_SELECTOR.fields)
LIST_SPEC: Final[GoType] = go_struct(
    ImageListPullJobSpec, {"selector": pointer(_NODES), "podSelector": pointer(LABEL_SELECTOR)}
)
