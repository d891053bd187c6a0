"""ResourceDistribution: one ConfigMap or Secret in many namespaces. Fields, conversion, validation."""

from app.api.resourcedistribution.definition import RESOURCE_DISTRIBUTION
from app.api.resourcedistribution.types import (
    CONDITION_TYPES,
    DistributionCondition,
    DistributionTargets,
    NamespaceList,
    ResourceDistribution,
    ResourceDistributionSpec,
    ResourceDistributionStatus,
    TargetNamespace,
)

__all__ = [
    "CONDITION_TYPES",
    "RESOURCE_DISTRIBUTION",
    "DistributionCondition",
    "DistributionTargets",
    "NamespaceList",
    "ResourceDistribution",
    "ResourceDistributionSpec",
    "ResourceDistributionStatus",
    "TargetNamespace",
]
