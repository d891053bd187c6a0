"""What the page shows of workloads, and how many rows of a section. Pure; objects are as they are stored."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

from app.dashboard.model import Revision, Workload
from app.kube.text import one_line
from app.slices.commands import Commands
from app.slices.dashboard import LONGEST, SHOWN, mapping, text

T = TypeVar("T")


def workload(commands: Commands, stored: Mapping[str, Any], revisions: Sequence[Revision]) -> Workload:
    """A workload's row. One that cannot be read is shown with the reason."""
    metadata = mapping(stored, "metadata")
    named = {
        "kind": commands.kind.kind,
        "namespace": text(metadata, "namespace"),
        "name": text(metadata, "name"),
        "revisions": list(revisions),
    }
    try:
        progress = commands.progress(stored) if commands.progress is not None else None
    except Exception as error:  # noqa: BLE001 - whatever was written past admission must not end the page
        return Workload(**named, state="unknown", message=one_line(f"cannot be read: {error}"[:LONGEST]), part=0.0)
    if progress is None:
        return Workload(**named, state="unknown", message="", part=0.0)
    state = "failed" if progress.failed else "done" if progress.done else "under way"
    return Workload(
        **named, state=state, message=one_line((progress.failed or progress.text)[:LONGEST]), part=progress.part
    )


def target_revision(stored: Mapping[str, Any]) -> str:
    """The revision that new Pods get, as the status names it."""
    status = mapping(stored, "status")
    return text(status, "updateRevision") or text(status, "daemonSetHash")


def shown(rows: Collection[T], place: Callable[[T], Any]) -> dict[str, Any]:
    """The fields of a section with these rows, of which ``place`` says which come first."""
    return {"total": len(rows), "more": max(0, len(rows) - SHOWN), "items": heapq.nsmallest(SHOWN, rows, key=place)}
