"""ImagePullJob, ImageListPullJob and NodeImage as kinds: their names, versions and columns."""

from __future__ import annotations

from typing import Any, Final

from app.api import names
from app.api.imagepull.types import ImageListPullJob, ImagePullJob, NodeImage, NodeImageV1Alpha1
from app.api.kind import AGE, ANY_KEY, Access, KindDefinition, PrinterColumn, Version, noted


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
