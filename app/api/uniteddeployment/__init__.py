"""UnitedDeployment: one workload per subset of a topology. Fields, conversion, defaults, validation."""

from app.api.uniteddeployment.definition import UNITED_DEPLOYMENT
from app.api.uniteddeployment.types import (
    Condition,
    Subset,
    SubsetStatus,
    SubsetTemplate,
    Topology,
    UnitedDeployment,
    UnitedDeploymentSpec,
    UnitedDeploymentStatus,
)

__all__ = [
    "UNITED_DEPLOYMENT",
    "Condition",
    "Subset",
    "SubsetStatus",
    "SubsetTemplate",
    "Topology",
    "UnitedDeployment",
    "UnitedDeploymentSpec",
    "UnitedDeploymentStatus",
]
