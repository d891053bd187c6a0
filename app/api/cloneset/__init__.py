"""CloneSet: equal Pods, scaled and updated by replacing them or in place. Fields, defaults, conversion."""

from app.api.cloneset.definition import CLONE_SET
from app.api.cloneset.types import (
    CloneSet,
    CloneSetCondition,
    CloneSetSpec,
    CloneSetStatus,
    CloneSetV1Alpha1,
    InPlaceUpdateStrategy,
    RollingUpdate,
    ScaleStrategy,
    UpdateStrategy,
)

__all__ = [
    "CLONE_SET",
    "CloneSet",
    "CloneSetCondition",
    "CloneSetSpec",
    "CloneSetStatus",
    "CloneSetV1Alpha1",
    "InPlaceUpdateStrategy",
    "RollingUpdate",
    "ScaleStrategy",
    "UpdateStrategy",
]
