"""Actions of users in a run, drawn by its subject. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]

NAMESPACE = "shop"
APPS = ("web", "api")
#: The faults of squalls.
SQUALLS = ("conflict", "error", "lost_request", "lost_answer", "slow", "watch_ends")
#: Maximum number of Pods with which a workload is created.
SMALL, LARGE = 6, 40


@dataclass(frozen=True, slots=True)
class Action:
    """An action, ``at`` virtual seconds after the start."""

    at: float
    what: str
    arguments: Json

    def __str__(self) -> str:
        details = " ".join(f"{key}={value}" for key, value in self.arguments.items())
        return f"{self.at:7.1f} s  {self.what} {details}".rstrip()
