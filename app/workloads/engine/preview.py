"""What a roll-out would do to each Pod, in which order and why: the words in which every workload's preview says it.
Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Action(StrEnum):
    """What would happen to a Pod."""

    IN_PLACE = "update in place"
    RECREATE = "recreate"
    CREATE = "create"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class PreviewStep:
    """One Pod's turn. ``step`` counts from 1; what has the same number happens together."""

    step: int
    action: Action
    pod: str
    reason: str = ""
    #: The short hash of the revision it has afterwards, and its node, where the workload's preview tells them.
    revision: str = ""
    node: str = ""


@dataclass(frozen=True, slots=True)
class Preview:
    """All turns. ``rest``: who keeps another revision, Pods or, of a DaemonSet, nodes; ``ends``: why it ends before
    all are updated."""

    steps: tuple[PreviewStep, ...]
    rest: tuple[str, ...]
    ends: str

    def of(self, pod: str) -> PreviewStep | None:
        """The turn of this Pod."""
        return next((one for one in self.steps if one.pod == pod), None)
