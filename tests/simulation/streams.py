"""Randomness by name: whoever draws has a stream of its own, so that no draw depends on how many others draw.

With one stream for all, a request more of one controller changes what happens to every request after it, and a seed
that found a mistake finds it no more. Here a stream is made from the seed and a name.
"""

from __future__ import annotations

import asyncio
from random import Random

#: What asyncio calls a task that nobody gave a name, followed by a number.
_UNNAMED = "Task-"


class Streams:
    def __init__(self, seed: str) -> None:
        self._seed = seed
        self._made: dict[str, Random] = {}

    def __call__(self, name: str) -> Random:
        """Return the stream of a name; it continues where it was."""
        found = self._made.get(name)
        if found is None:
            found = self._made[name] = Random(f"{self._seed} {name}")
        return found


class RandomByTask(Random):
    """For code that takes one source for all it does: each task that has a name draws from the stream of that name."""

    def __init__(self, seed: str) -> None:
        self._streams = Streams(seed)
        super().__init__(0)

    def random(self) -> float:
        """A number between zero and one."""
        return self._stream().random()

    def getrandbits(self, k: int, /) -> int:
        return self._stream().getrandbits(k)

    def _stream(self) -> Random:
        task = asyncio.current_task()
        name = task.get_name() if task is not None else ""
        return self._streams("" if name.startswith(_UNNAMED) else name)
