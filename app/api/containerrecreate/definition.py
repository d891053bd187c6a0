"""ContainerRecreateRequest as a kind: its names, versions, columns and conversions."""

from __future__ import annotations

from typing import Final

from app.api import names
from app.api.containerrecreate.conversion import to_v1alpha1, to_v1beta1
from app.api.containerrecreate.types import ContainerRecreateRequest, ContainerRecreateRequestV1Alpha1
from app.api.kind import AGE, Access, KindDefinition, PrinterColumn, Version, noted

_NODE: Final = ".metadata.labels." + names.CRR_NODE_NAME.replace(".", r"\.")
_COLUMNS: Final = (
    PrinterColumn("PHASE", "string", ".status.phase", "How far the request has come."),
    PrinterColumn("POD", "string", ".spec.podName", "The Pod."),
    PrinterColumn("NODE", "string", _NODE, "The node it runs on."),
    AGE,
)
_ANNOTATIONS: Final = noted(
    "metadata", "annotations", fields=(names.CRR_SYNC_CONTAINER_STATUSES, names.CRR_UNREADY_ACQUIRED), size=65536
)
_NOTED: Final = (
    *_ANNOTATIONS,
    *noted("status", fields=("containerStatusSnapshot", "conditions"), size=65536, depth=2),
)

CONTAINER_RECREATE_REQUEST: Final = KindDefinition(
    group=names.APPS_GROUP,
    kind="ContainerRecreateRequest",
    plural="containerrecreaterequests",
    access=Access("restarts containers of Pods in its namespace, which edit may delete", view=True, edit=True),
    short_names=("crr",),
    versions=(
        Version(names.V1BETA1, ContainerRecreateRequest, _COLUMNS, notes=_NOTED),
        Version(
            names.V1ALPHA1,
            ContainerRecreateRequestV1Alpha1,
            _COLUMNS,
            to_hub=to_v1beta1,
            from_hub=to_v1alpha1,
            notes=_ANNOTATIONS,
        ),
    ),
)
