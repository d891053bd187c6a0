"""The history of a run: its writes in order. Two runs of one seed must have the same history."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable
from typing import Any

from app.kube.resources import Resource

Json = dict[str, Any]


class History:
    """Keeps a digest of all writes and the text of the last ones."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self.count = 0
        self.last: deque[str] = deque(maxlen=60)
        self.broken: list[str] = []
        #: Called when an invariant does not hold.
        self.told: Callable[[], object] = lambda: None

    def note(self, at: float, verb: str, resource: Resource, obj: Json, detail: str = "") -> None:
        metadata = obj.get("metadata") or {}
        line = f"{at:10.3f} {verb} {resource.kind} {metadata.get('namespace', '')}/{metadata.get('name')} {detail}"
        self.say(line.rstrip())
        self.count += 1

    def say(self, line: str) -> None:
        self._digest.update(line.encode())
        self.last.append(line)

    def breaks(self, at: float, what: str) -> None:
        line = f"{at:10.3f} BROKEN: {what}"
        self.broken.append(line)
        self.say(line)
        self.told()

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()[:16]
