"""PodUnavailableBudget: how many Pods of an application may be out of service at once. Fields and conversion."""

from app.api.podunavailablebudget.definition import POD_UNAVAILABLE_BUDGET
from app.api.podunavailablebudget.settings import (
    DEFAULT_OPERATIONS,
    OPERATIONS,
    ProtectedOperation,
    protected_operations,
    protected_total,
)
from app.api.podunavailablebudget.types import (
    PodUnavailableBudget,
    PodUnavailableBudgetSpec,
    PodUnavailableBudgetStatus,
    PodUnavailableBudgetV1Alpha1,
    TargetReference,
)

__all__ = [
    "DEFAULT_OPERATIONS",
    "OPERATIONS",
    "POD_UNAVAILABLE_BUDGET",
    "PodUnavailableBudget",
    "PodUnavailableBudgetSpec",
    "PodUnavailableBudgetStatus",
    "PodUnavailableBudgetV1Alpha1",
    "ProtectedOperation",
    "TargetReference",
    "protected_operations",
    "protected_total",
]
