"""What each section shows of the objects of its kind. Pure; objects are as they are stored, whatever they hold."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from heapq import nsmallest
from typing import Any, Final, TypeVar

from app.dashboard.model import Budget, Revision, SidecarSet, Spread, Subset, Workload
from app.kube.resources import ObjectKey
from app.kube.text import one_line
from app.slices.commands import Commands

T = TypeVar("T")

#: How many objects a section shows, and how many Pods are named.
SHOWN: Final = 500
NAMED: Final = 5
#: Characters of a message that are shown.
_LONGEST: Final = 300


def workload(commands: Commands, stored: Mapping[str, Any], revisions: Sequence[Revision]) -> Workload:
    """A workload's row. One that cannot be read is shown with the reason."""
    metadata = _mapping(stored, "metadata")
    named = {
        "kind": commands.kind.kind,
        "namespace": _text(metadata, "namespace"),
        "name": _text(metadata, "name"),
        "revisions": list(revisions),
    }
    try:
        progress = commands.progress(stored) if commands.progress is not None else None
    except Exception as error:  # noqa: BLE001 - whatever was written past admission must not end the page
        return Workload(**named, state="unknown", message=one_line(f"cannot be read: {error}"[:_LONGEST]), part=0.0)
    if progress is None:
        return Workload(**named, state="unknown", message="", part=0.0)
    state = "failed" if progress.failed else "done" if progress.done else "under way"
    return Workload(
        **named, state=state, message=one_line((progress.failed or progress.text)[:_LONGEST]), part=progress.part
    )


def target_revision(stored: Mapping[str, Any]) -> str:
    """The revision that new Pods get, as the status names it."""
    status = _mapping(stored, "status")
    return _text(status, "updateRevision") or _text(status, "daemonSetHash")


def sidecar_set(stored: Mapping[str, Any], lacking: Collection[ObjectKey]) -> SidecarSet:
    """A SidecarSet's row; ``lacking``: the Pods that should have its containers and have not."""
    status = _mapping(stored, "status")
    return SidecarSet(
        name=_text(_mapping(stored, "metadata"), "name"),
        matched=_number(status, "matchedPods"),
        updated=_number(status, "updatedPods"),
        ready=_number(status, "readyPods"),
        lacking=len(lacking),
        lacking_pods=[f"{key.namespace}/{key.name}" for key in nsmallest(NAMED, lacking)],
    )


def budget(stored: Mapping[str, Any]) -> Budget:
    """A budget's row, with what it would say to the next deletion."""
    metadata, status = _mapping(stored, "metadata"), _mapping(stored, "status")
    allowed = _number(status, "unavailableAllowed")
    available, desired = _number(status, "currentAvailable"), _number(status, "desiredAvailable")
    if _number(status, "observedGeneration") < _number(metadata, "generation"):
        verdict = "not computed yet"
    elif allowed > 0:
        verdict = f"lets {allowed} more go"
    else:
        verdict = f"refuses the next: {available} available, {desired} must stay"
    return Budget(
        namespace=_text(metadata, "namespace"),
        name=_text(metadata, "name"),
        available=available,
        desired=desired,
        total=_number(status, "totalReplicas"),
        allowed=allowed,
        verdict=verdict,
    )


def spread(stored: Mapping[str, Any]) -> Spread:
    """A WorkloadSpread's row."""
    metadata, target = _mapping(stored, "metadata"), _mapping(_mapping(stored, "spec"), "targetRef")
    statuses = _mapping(stored, "status").get("subsetStatuses")
    found = [one for one in statuses if isinstance(one, Mapping)] if isinstance(statuses, list) else []
    return Spread(
        namespace=_text(metadata, "namespace"),
        name=_text(metadata, "name"),
        target=f"{_text(target, 'kind')} {_text(target, 'name')}".strip(),
        subsets=[
            Subset(name=_text(one, "name"), replicas=_number(one, "replicas"), missing=_number(one, "missingReplicas"))
            for one in found[:SHOWN]
        ],
    )


def shown(rows: Iterable[T]) -> dict[str, Any]:
    """The fields of a section with these rows."""
    found = list(rows)
    return {"total": len(found), "more": max(0, len(found) - SHOWN), "items": found[:SHOWN]}


def _mapping(obj: Mapping[str, Any], field: str) -> Mapping[str, Any]:
    found = obj.get(field)
    return found if isinstance(found, Mapping) else {}


def _text(obj: Mapping[str, Any], field: str) -> str:
    found = obj.get(field)
    return one_line(found[:_LONGEST]) if isinstance(found, str) else ""


def _number(obj: Mapping[str, Any], field: str) -> int:
    found = obj.get(field)
    return found if isinstance(found, int) and not isinstance(found, bool) else 0
