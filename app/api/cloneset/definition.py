"""CloneSet as a kind: its names, versions, columns and conversions."""

from __future__ import annotations

from typing import Final

from app.api import names
from app.api.cloneset.conversion import canonical_v1alpha1, to_v1alpha1, to_v1beta1
from app.api.cloneset.types import CloneSet, CloneSetV1Alpha1
from app.api.kind import AGE, Access, KindDefinition, PrinterColumn, Scale, Version, noted

_COLUMNS: Final = (
    PrinterColumn("DESIRED", "integer", ".spec.replicas", "Pods there should be."),
    PrinterColumn("UPDATED", "integer", ".status.updatedReplicas", "Pods at the update revision."),
    PrinterColumn("UPDATED_READY", "integer", ".status.updatedReadyReplicas", "Those of them that are ready."),
    PrinterColumn(
        "UPDATED_AVAILABLE", "integer", ".status.updatedAvailableReplicas", "Those of them that are available."
    ),
    PrinterColumn("READY", "integer", ".status.readyReplicas", "Pods that are ready."),
    PrinterColumn("TOTAL", "integer", ".status.replicas", "Pods there are."),
    AGE,
    PrinterColumn(
        "CONTAINERS", "string", ".spec.template.spec.containers[*].name", "The template's containers.", priority=1
    ),
    PrinterColumn(
        "IMAGES", "string", ".spec.template.spec.containers[*].image", "The images of these containers.", priority=1
    ),
    PrinterColumn("SELECTOR", "string", ".status.labelSelector", "The selector of the Pods.", priority=1),
)
_SCALE: Final = Scale(label_selector=".status.labelSelector")
_STRATEGY: Final = ("spec", "updateStrategy")
_ROLLING: Final = (*_STRATEGY, "rollingUpdate")
_PRE_DOWNLOAD: Final = (
    names.PRE_DOWNLOAD_PARALLELISM,
    names.PRE_DOWNLOAD_TIMEOUT_SECONDS,
    names.PRE_DOWNLOAD_MIN_UPDATED_READY_PODS,
)
_NOTED_ANNOTATIONS: Final = noted("metadata", "annotations", fields=_PRE_DOWNLOAD)
_NOTED: Final = (
    *_NOTED_ANNOTATIONS,
    *noted("metadata", "labels", fields=(names.CLONE_SET_EXCLUDE_PREPARING_DELETE,)),
    *noted("spec", "scaleStrategy", fields=("enablePVCReuse", "excludePreparingDelete")),
    *noted(*_STRATEGY, fields=("type",)),
    *noted(*_ROLLING, fields=("podUpdatePolicy",)),
    *noted(
        *_ROLLING,
        "inPlaceUpdateStrategy",
        fields=(
            "gracePeriodSeconds",
            "imagePreDownloadParallelism",
            "imagePreDownloadTimeoutSeconds",
            "imagePreDownloadMinUpdatedReadyPods",
        ),
    ),
)

CLONE_SET: Final = KindDefinition(
    group=names.APPS_GROUP,
    kind="CloneSet",
    plural="clonesets",
    access=Access("creates Pods in its namespace, as a Deployment does", view=True, edit=True),
    short_names=("clone",),
    versions=(
        Version(names.V1BETA1, CloneSet, _COLUMNS, scale=_SCALE, notes=_NOTED),
        Version(
            names.V1ALPHA1,
            CloneSetV1Alpha1,
            _COLUMNS,
            scale=_SCALE,
            to_hub=to_v1beta1,
            from_hub=to_v1alpha1,
            canonical=canonical_v1alpha1,
            notes=(*_NOTED_ANNOTATIONS, *noted(*_STRATEGY, fields=("type",))),
        ),
    ),
)
