"""Actions of users in a run. Subjects decide, by seed, which happen when. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]

NAMESPACE = "shop"
APPS = ("web", "api")
#: The faults that may be frequent for a while.
SQUALLS = ("conflict", "error", "lost_request", "lost_answer", "slow", "watch_ends")
#: Pods that a workload is created with at most.
SMALL, LARGE = 6, 40


@dataclass(frozen=True, slots=True)
class Action:
    """An action ``at`` so many virtual seconds after the start."""

    at: float
    what: str
    arguments: Json

    def __str__(self) -> str:
        details = " ".join(f"{key}={value}" for key, value in self.arguments.items())
        return f"{self.at:7.1f} s  {self.what} {details}".rstrip()
