"""Budgets on the dashboard: what each would say to the next deletion."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from app.api.podunavailablebudget import POD_UNAVAILABLE_BUDGET
from app.kube.resources import ObjectKey
from app.slices.dashboard import DashboardSection, Row, Shown, Stored, mapping, number, text


class BudgetRow(Row):
    """A PodUnavailableBudget, and what it would say to the next deletion."""

    available: int
    desired: int
    total: int
    allowed: int
    verdict: str


def row(stored: Stored, _lacking: Collection[ObjectKey]) -> BudgetRow:
    """A budget's row, with what it would say to the next deletion."""
    metadata, status = mapping(stored, "metadata"), mapping(stored, "status")
    allowed = number(status, "unavailableAllowed")
    available, desired = number(status, "currentAvailable"), number(status, "desiredAvailable")
    total, namespace = number(status, "totalReplicas"), text(metadata, "namespace")
    if number(status, "observedGeneration") < number(metadata, "generation"):
        verdict = "not computed yet"
    elif allowed > 0:
        verdict = f"lets {allowed} more go"
    else:
        verdict = f"refuses the next: {available} available, {desired} must stay"
    return BudgetRow(
        namespace=namespace,
        name=text(metadata, "name"),
        shown=Shown(
            about=namespace,
            tone="good" if allowed > 0 else "busy",
            message=verdict,
            detail=f"{available} available of {total}, {desired} must stay",
        ),
        available=available,
        desired=desired,
        total=total,
        allowed=allowed,
        verdict=verdict,
    )


#: Those that allow nothing come first.
SECTION: Final = DashboardSection(
    "budgets",
    "Budgets",
    POD_UNAVAILABLE_BUDGET,
    BudgetRow,
    row,
    place=lambda one: (one.allowed > 0, one.namespace, one.name),
)
