"""SidecarSet: containers that are injected into Pods and updated in place. Fields, defaults, validation, conversion."""

from app.api.sidecarset.definition import SIDECAR_SET
from app.api.sidecarset.reading import MalformedSidecarSet, read_sidecar_set
from app.api.sidecarset.types import (
    InjectionStrategy,
    InjectRevision,
    PatchPodMetadata,
    SidecarContainer,
    SidecarSet,
    SidecarSetSpec,
    SidecarSetStatus,
    SidecarSetV1Alpha1,
    UpdateStrategy,
)

__all__ = [
    "SIDECAR_SET",
    "InjectRevision",
    "InjectionStrategy",
    "MalformedSidecarSet",
    "PatchPodMetadata",
    "SidecarContainer",
    "SidecarSet",
    "SidecarSetSpec",
    "SidecarSetStatus",
    "SidecarSetV1Alpha1",
    "UpdateStrategy",
    "read_sidecar_set",
]
