"""Named random streams, so that no draw depends on how often others draw.

With one shared stream, an additional request from one controller would change every later draw, and a seed would no
longer reproduce the bug it found. A stream is created from the seed and a name.
"""

from __future__ import annotations

import asyncio
from random import Random

#: The prefix that asyncio gives to unnamed tasks.
_UNNAMED = "Task-"


class Streams:
    def __init__(self, seed: str) -> None:
        self._seed = seed
        self._made: dict[str, Random] = {}

    def __call__(self, name: str) -> Random:
        """Return the stream of a name; it continues where it stopped."""
        found = self._made.get(name)
        if found is None:
            found = self._made[name] = Random(f"{self._seed} {name}")
        return found


class RandomByTask(Random):
    """A Random for code that shares one: each named task draws from its own stream."""

    def __init__(self, seed: str) -> None:
        self._streams = Streams(seed)
        super().__init__(0)

    def random(self) -> float:
        return self._stream().random()

    def getrandbits(self, k: int, /) -> int:
        return self._stream().getrandbits(k)

    def _stream(self) -> Random:
        task = asyncio.current_task()
        name = task.get_name() if task is not None else ""
        return self._streams("" if name.startswith(_UNNAMED) else name)
