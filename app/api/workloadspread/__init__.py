"""WorkloadSpread: the Pods of one workload in subsets. Fields, conversion, validation."""

from app.api.workloadspread.definition import WORKLOAD_SPREAD
from app.api.workloadspread.types import (
    ADAPTIVE,
    FIXED,
    SCHEDULABLE,
    SCHEDULABLE_REASON,
    UNSCHEDULABLE_REASON,
    SubsetCondition,
    SubsetStatus,
    TargetReference,
    WorkloadSpread,
    WorkloadSpreadSpec,
    WorkloadSpreadStatus,
    WorkloadSpreadSubset,
)

__all__ = [
    "ADAPTIVE",
    "FIXED",
    "SCHEDULABLE",
    "SCHEDULABLE_REASON",
    "UNSCHEDULABLE_REASON",
    "WORKLOAD_SPREAD",
    "SubsetCondition",
    "SubsetStatus",
    "TargetReference",
    "WorkloadSpread",
    "WorkloadSpreadSpec",
    "WorkloadSpreadStatus",
    "WorkloadSpreadSubset",
]
