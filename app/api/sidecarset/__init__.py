"""SidecarSet: containers that are injected into Pods and updated in place. Fields, defaults, validation, conversion."""

from app.api.sidecarset.definition import SIDECAR_SET
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
    "PatchPodMetadata",
    "SidecarContainer",
    "SidecarSet",
    "SidecarSetSpec",
    "SidecarSetStatus",
    "SidecarSetV1Alpha1",
    "UpdateStrategy",
]
