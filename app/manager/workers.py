"""Workers: the same work in several processes on one listening socket.

The parent only watches: it starts what dies again, a little later each time, and passes a stop on. Each worker makes
its own event loop and its own state; what was imported before the fork is shared.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

logger = logging.getLogger(__name__)

_FIRST_DELAY: Final = 0.5
_LONGEST_DELAY: Final = 30.0
#: A worker that lived this long was well; its next delay starts over.
_HEALTHY_SECONDS: Final = 10.0


@dataclass(slots=True)
class _Worker:
    number: int
    started: float
    delay: float


def supervise(count: int, work: Callable[[], int]) -> int:
    """Run ``work`` in ``count`` processes until SIGTERM or SIGINT; their exit codes' worst is ours.

    A worker that fails at the very start, before any lived, ends all: it would fail again.
    """
    return _Supervisor(count, work).run()


class _Supervisor:
    def __init__(self, count: int, work: Callable[[], int]) -> None:
        self._count = count
        self._work = work
        self._workers: dict[int, _Worker] = {}
        self._stopping = False
        self._worst = 0

    def run(self) -> int:
        for ending in (signal.SIGTERM, signal.SIGINT):
            signal.signal(ending, self._stop)
        # What exists now is shared with the workers as long as no collection touches it.
        gc.collect()
        gc.freeze()
        for number in range(self._count):
            self._start(number, _FIRST_DELAY)
        while self._workers:
            pid, status = os.wait()
            worker = self._workers.pop(pid, None)
            if worker is not None:
                self._ended(worker, pid, os.waitstatus_to_exitcode(status))
        return self._worst

    def _start(self, number: int, delay: float) -> None:
        pid = os.fork()
        if pid == 0:
            for ending in (signal.SIGTERM, signal.SIGINT):
                signal.signal(ending, signal.SIG_DFL)
            code = 1
            try:
                code = self._work()
            finally:
                logging.shutdown()
                sys.stdout.flush()
                os._exit(code)
        self._workers[pid] = _Worker(number, time.monotonic(), delay)
        logger.info("worker %d is process %d", number, pid)

    def _ended(self, worker: _Worker, pid: int, code: int) -> None:
        if self._stopping:
            self._worst = max(self._worst, code if code >= 0 else 1)
            return
        lived = time.monotonic() - worker.started
        if lived < _HEALTHY_SECONDS and code == 1 and worker.delay == _FIRST_DELAY:
            self._worst = 1
            self._stop(signal.SIGTERM, None)
            return
        delay = _FIRST_DELAY if lived >= _HEALTHY_SECONDS else min(_LONGEST_DELAY, worker.delay * 2)
        logger.error(
            "worker %d (process %d) ended with %d: starting it again in %.1f s", worker.number, pid, code, delay
        )
        time.sleep(delay)
        if not self._stopping:
            self._start(worker.number, delay)

    def _stop(self, _number: int, _frame: object) -> None:
        self._stopping = True
        for pid in self._workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
