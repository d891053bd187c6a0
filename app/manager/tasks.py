"""Tasks: the long-lived coroutines of a process, named; one that fails stops all, and is told why."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from app.kube.errors import KubeError

logger = logging.getLogger(__name__)


class Tasks:
    """Runs coroutines until ``stop`` is set; sets it itself when one of them fails."""

    def __init__(self, stop: asyncio.Event) -> None:
        self._stop = stop
        self._tasks: list[asyncio.Task[Any]] = []
        #: Tasks that end by themselves when asked, and how to ask.
        self._finishing: dict[asyncio.Task[Any], Callable[[], None]] = {}
        self._failure: BaseException | None = None

    def start(
        self, coroutine: Coroutine[Any, Any, Any], name: str, *, finish: Callable[[], None] | None = None
    ) -> asyncio.Task[Any]:
        """Run it in the background. ``finish`` asks it to end by itself; without, it is cancelled at the end."""
        task = asyncio.create_task(coroutine, name=name)
        task.add_done_callback(self._ended)
        self._tasks.append(task)
        if finish is not None:
            self._finishing[task] = finish
        return task

    @property
    def all(self) -> tuple[asyncio.Task[Any], ...]:
        """Every task that was started, ended or not."""
        return tuple(self._tasks)

    async def until_stopped(self, coroutine: Coroutine[Any, Any, Any]) -> bool:
        """Run it in the foreground. True if it finished, False if the stop came first; raises what it raises."""
        work = asyncio.create_task(coroutine)
        stopping = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait({work, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                await work
                return True
            return False
        finally:
            for task in (work, stopping):
                task.cancel()
            await asyncio.gather(work, stopping, return_exceptions=True)

    async def end(self, grace_seconds: float) -> None:
        """Let finish what can, for so long; then cancel what still runs."""
        self._stop.set()
        for finish in self._finishing.values():
            finish()
        if self._finishing:
            await asyncio.wait(self._finishing, timeout=grace_seconds)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def raise_failure(self) -> None:
        """Raise what made a task fail, if one did."""
        if self._failure is not None:
            raise self._failure

    def _ended(self, task: asyncio.Task[Any]) -> None:
        if task.cancelled() or (error := task.exception()) is None:
            return
        if self._failure is None:
            self._failure = error
        if isinstance(error, KubeError):  # it says what happened
            logger.error("%s ended: %s", task.get_name(), error)
        else:
            logger.error("%s failed", task.get_name(), exc_info=error)
        self._stop.set()
