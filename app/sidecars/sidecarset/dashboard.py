"""SidecarSets on the dashboard: how far they are, and which Pods should have their containers and have not."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from heapq import nsmallest
from typing import Final

from app.api.sidecarset import SIDECAR_SET
from app.kube.objects import Pod
from app.kube.resources import ObjectKey
from app.sidecars.sidecarset.bypassed import lacking_sets
from app.sidecars.sidecarset.selection import SidecarSetIndex
from app.slices.dashboard import NAMED, DashboardSection, Row, Shown, Stored, mapping, number, pods, text


class SidecarSetRow(Row):
    """A SidecarSet, and who should have its containers and has not."""

    matched: int
    updated: int
    ready: int
    lacking: int
    #: Some of the Pods that lack them.
    lacking_pods: list[str]


class LackingSets:
    """Which sets a Pod lacks, by an index of all."""

    def __init__(self) -> None:
        """None so far."""
        self._index = SidecarSetIndex()

    def update(self, stored: Stored) -> None:
        """A set is new or changed."""
        self._index.update(stored)

    def remove(self, name: str) -> None:
        """A set is gone."""
        self._index.remove(name)

    def lacking(self, pod: Pod, namespace_labels: Mapping[str, str]) -> Sequence[str]:
        """The names of the sets whose containers the Pod lacks."""
        return lacking_sets(pod, self._index, namespace_labels)


def row(stored: Stored, lacking: Collection[ObjectKey]) -> SidecarSetRow:
    """A SidecarSet's row; ``lacking``: the Pods that should have its containers and have not."""
    status = mapping(stored, "status")
    matched, updated, ready = (number(status, field) for field in ("matchedPods", "updatedPods", "readyPods"))
    named = [f"{key.namespace}/{key.name}" for key in nsmallest(NAMED, lacking)]
    about = f"{updated} of {pods(matched)} updated, {ready} ready"
    if lacking:
        listed = ", ".join(named) + (" …" if len(lacking) > len(named) else "")
        shown = Shown(about=about, tone="bad", message=f"{pods(len(lacking))} without its containers: {listed}")
    else:
        shown = Shown(about=about, tone="good", message="no Pod lacks it")
    return SidecarSetRow(
        name=text(mapping(stored, "metadata"), "name"),
        shown=shown,
        matched=matched,
        updated=updated,
        ready=ready,
        lacking=len(lacking),
        lacking_pods=named,
    )


#: Those that Pods lack come first.
SECTION: Final = DashboardSection(
    "sidecar_sets",
    "SidecarSets",
    SIDECAR_SET,
    SidecarSetRow,
    row,
    place=lambda one: (-one.lacking, one.name),
    judge=LackingSets,
)
