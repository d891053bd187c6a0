"""How far the roll-out of a workload is, by what its status counts: in the words that all workloads use. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from app.slices.commands import Progress, counted


class CountedStatus(Protocol):
    """Of a status the counts that are asked."""

    @property
    def replicas(self) -> int: ...
    @property
    def updated_replicas(self) -> int: ...
    @property
    def updated_available_replicas(self) -> int: ...


def unseen(replicas: int) -> Progress:
    """Of a workload whose present generation no controller has seen."""
    return Progress(0, 0, replicas, False, "", "waiting for the change to be seen")


def progress_by_counts(
    name: str,
    status: CountedStatus,
    *,
    replicas: int,
    expected: int,
    done: bool,
    on_delete: bool,
    paused: bool,
    failed: str | None = None,
    failures: Sequence[str] = (),
) -> Progress:
    """Of a workload with replicas. ``name``: as the command line takes it; ``expected``: how many Pods are wanted at
    the update revision; ``failed``: why it will not end by itself; ``failures``: what its conditions say went wrong."""
    updated, available = status.updated_replicas, status.updated_available_replicas
    text = f"{counted(updated, expected, 'Pods', status.replicas)}, {available} available"
    if done:
        kept = status.replicas - updated
        text += f"; the partition keeps {kept} at the old revision" if kept > 0 else ""
        return Progress(updated, available, expected, done, "", text)
    if failed is not None:
        pass  # it is said apart
    elif on_delete:
        text += "; OnDelete: Pods are updated when somebody deletes them"
    elif paused and updated < expected:
        text += f"; paused: pykruise rollout resume {name}"
    elif status.replicas != replicas:
        text += f"; {status.replicas} Pods for {replicas} replicas"
    if failures:
        text += f"; {failures[0]}"
    return Progress(updated, available, expected, done, failed or "", text)
