"""Kind definitions of ImagePullJob, ImageListPullJob and NodeImage: versions, conversion, columns and Go types."""

from __future__ import annotations

from typing import Any, Final

from app.api import names
from app.api.gocore import LABEL_SELECTOR, optional
from app.api.gojson import STRING, GoType, list_of, pointer, struct
from app.api.kind import AGE, ANY_KEY, Access, KindDefinition, PrinterColumn, Version, noted, unchanged
from app.api.schema import go_struct
from app.features.imagepull.types import (
    ImageListPullJob,
    ImageListPullJobSpec,
    ImagePullJob,
    NodeImage,
    NodeImageV1Alpha1,
)


def _without_modes(obj: dict[str, Any]) -> dict[str, Any]:
    """Drop the mode of pull secrets, which v1alpha1 lacks. Conversion preserves it in an annotation. [IMG-1]"""
    spec = obj.get("spec")
    images = spec.get("images") if isinstance(spec, dict) else None
    for image in images.values() if isinstance(images, dict) else ():
        secrets = image.get("pullSecrets") if isinstance(image, dict) else None
        for secret in secrets if isinstance(secrets, list) else ():
            if isinstance(secret, dict):
                secret.pop("mode", None)
    return obj


_PULL_COLUMNS: Final = (
    PrinterColumn("TOTAL", "integer", ".status.desired", "Number of nodes that must have the image."),
    PrinterColumn("ACTIVE", "integer", ".status.active", "Number of nodes that are pulling the image."),
    PrinterColumn("SUCCEED", "integer", ".status.succeeded", "Number of nodes that have the image."),
    PrinterColumn("FAILED", "integer", ".status.failed", "Number of nodes where the pull failed."),
    AGE,
)
_MESSAGE: Final = PrinterColumn("MESSAGE", "string", ".status.message", "Summary of the progress.")

IMAGE_PULL_JOB: Final = KindDefinition(
    group=names.APPS_GROUP,
    kind="ImagePullJob",
    plural="imagepulljobs",
    access=Access(
        "pulls an image on nodes with pull secrets of its namespace, as Pods there can", view=True, edit=True
    ),
    versions=(
        Version(names.V1BETA1, ImagePullJob, _PULL_COLUMNS),
        Version(names.V1ALPHA1, ImagePullJob, (*_PULL_COLUMNS, _MESSAGE), to_hub=unchanged, from_hub=unchanged),
    ),
)

_LIST_COLUMNS: Final = (
    PrinterColumn("TOTAL", "integer", ".status.desired", "Number of images to pull."),
    PrinterColumn("SUCCEEDED", "integer", ".status.succeeded", "Number of images that were pulled on every node."),
    PrinterColumn(
        "COMPLETED",
        "integer",
        ".status.completed",
        "Number of images whose pull has finished on every node, successfully or not.",
    ),
    AGE,
)

IMAGE_LIST_PULL_JOB: Final = KindDefinition(
    group=names.APPS_GROUP,
    kind="ImageListPullJob",
    plural="imagelistpulljobs",
    access=Access("pulls images on nodes with pull secrets of its namespace, as Pods there can", view=True, edit=True),
    versions=(
        Version(names.V1BETA1, ImageListPullJob, _LIST_COLUMNS),
        Version(names.V1ALPHA1, ImageListPullJob, _LIST_COLUMNS, to_hub=unchanged, from_hub=unchanged),
    ),
)

_NODE_COLUMNS: Final = (
    PrinterColumn("DESIRED", "integer", ".status.desired", "Number of tags the node must pull."),
    PrinterColumn("PULLING", "integer", ".status.pulling", "Number of tags that are being pulled."),
    PrinterColumn("SUCCEED", "integer", ".status.succeeded", "Number of tags that were pulled."),
    PrinterColumn("FAILED", "integer", ".status.failed", "Number of tags whose pull failed."),
    AGE,
)
_SECRETS: Final = ("spec", "images", ANY_KEY, "pullSecrets")
_NOTED: Final = (
    *noted(*_SECRETS, ANY_KEY, fields=("mode",), count=5000),
    # If names repeat, the whole list is preserved.
    *noted(*_SECRETS[:-1], fields=_SECRETS[-1:], size=16384, depth=2, count=5000),
)

NODE_IMAGE: Final = KindDefinition(
    group=names.APPS_GROUP,
    kind="NodeImage",
    plural="nodeimages",
    access=Access("pulls images on a node with pull secrets of any namespace; written by the controllers", view=True),
    namespaced=False,
    versions=(
        Version(names.V1BETA1, NodeImage, _NODE_COLUMNS, notes=_NOTED),
        Version(names.V1ALPHA1, NodeImageV1Alpha1, _NODE_COLUMNS, to_hub=unchanged, from_hub=_without_modes),
    ),
)


_NODES: Final = struct(optional("names", list_of(STRING)), *LABEL_SELECTOR.fields)
LIST_SPEC: Final[GoType] = go_struct(
    ImageListPullJobSpec, {"selector": pointer(_NODES), "podSelector": pointer(LABEL_SELECTOR)}
)
