"""WorkloadSpreads on the dashboard: the Pods in each subset, and for how many there is room."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from app.api.workloadspread import WORKLOAD_SPREAD
from app.kube.resources import ObjectKey
from app.slices.dashboard import SHOWN, DashboardModel, DashboardSection, Row, Shown, Stored, mapping, number, text


class SubsetRow(DashboardModel):
    """A subset of a WorkloadSpread; ``missing`` is -1 where it takes any number."""

    name: str
    replicas: int
    missing: int

    def __str__(self) -> str:
        """As the page shows it."""
        return f"{self.name}: {self.replicas}" + ("" if self.missing < 0 else f" (room for {self.missing})")


class SpreadRow(Row):
    """A WorkloadSpread."""

    target: str
    subsets: list[SubsetRow]


def row(stored: Stored, _lacking: Collection[ObjectKey]) -> SpreadRow:
    """A WorkloadSpread's row."""
    metadata, target = mapping(stored, "metadata"), mapping(mapping(stored, "spec"), "targetRef")
    statuses = mapping(stored, "status").get("subsetStatuses")
    found = [one for one in statuses if isinstance(one, Mapping)] if isinstance(statuses, list) else []
    subsets = [
        SubsetRow(name=text(one, "name"), replicas=number(one, "replicas"), missing=number(one, "missingReplicas"))
        for one in found[:SHOWN]
    ]
    namespace, named = text(metadata, "namespace"), f"{text(target, 'kind')} {text(target, 'name')}".strip()
    listed = " · ".join(map(str, subsets)) or "no subset yet"
    return SpreadRow(
        namespace=namespace,
        name=text(metadata, "name"),
        shown=Shown(about=f"{named} in {namespace}", message=listed),
        target=named,
        subsets=subsets,
    )


SECTION: Final = DashboardSection("spreads", "Spreads", WORKLOAD_SPREAD, SpreadRow, row)
