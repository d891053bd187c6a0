"""Workers: the same work in several processes on one listening socket.

The parent only watches: it starts what dies again, a little later each time, and passes a stop on. Each worker makes
its own event loop and its own state; what was imported before the fork is shared.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

logger = logging.getLogger(__name__)

_FIRST_DELAY: Final = 0.5
_LONGEST_DELAY: Final = 30.0
#: A worker that lived this long was well; its next delay starts over.
_HEALTHY_SECONDS: Final = 10.0
_ENDING: Final = (signal.SIGTERM, signal.SIGINT)


@dataclass(slots=True)
class _Worker:
    number: int
    started: float
    delay: float


def supervise(count: int, work: Callable[[], int]) -> int:
    """Run ``work`` in ``count`` processes until SIGTERM or SIGINT; their exit codes' worst is ours.

    A worker that fails at the very start ends all: it would fail again.
    """
    return _Supervisor(count, work).run()


class _Supervisor:
    def __init__(self, count: int, work: Callable[[], int]) -> None:
        self._count = count
        self._work = work
        self._running: dict[int, _Worker] = {}
        #: Workers to start again, and when.
        self._due: list[tuple[float, int, float]] = []
        self._stopping = False
        self._worst = 0

    def run(self) -> int:
        # What exists now is shared with the workers as long as no collection touches it.
        gc.collect()
        gc.freeze()
        with self._woken_by_signals() as bell:
            for number in range(self._count):
                self._start(number, _FIRST_DELAY)
            while self._running or (self._due and not self._stopping):
                wait = max(0.0, min((due for due, _, _ in self._due), default=3600.0) - time.monotonic())
                if select.select([bell], [], [], wait)[0]:
                    self._heed(bell.recv(64))
                self._reap()
                self._start_due()
        return self._worst

    @contextlib.contextmanager
    def _woken_by_signals(self) -> Iterator[socket.socket]:
        """A socket that becomes readable with the number of each signal, so that none comes at a bad moment."""
        bell, rope = socket.socketpair()
        bell.setblocking(False)
        rope.setblocking(False)
        before = {number: signal.signal(number, _noted) for number in (*_ENDING, signal.SIGCHLD)}
        fd = signal.set_wakeup_fd(rope.fileno(), warn_on_full_buffer=False)
        try:
            yield bell
        finally:
            signal.set_wakeup_fd(fd)
            for number, handler in before.items():
                signal.signal(number, handler)
            bell.close()
            rope.close()

    def _heed(self, numbers: bytes) -> None:
        if any(number in numbers for number in _ENDING):
            self._stop()

    def _start(self, number: int, delay: float) -> None:
        pid = os.fork()
        if pid == 0:
            self._be_worker()
        self._running[pid] = _Worker(number, time.monotonic(), delay)
        logger.info("worker %d is process %d", number, pid)

    def _be_worker(self) -> None:
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            for number in (*_ENDING, signal.SIGCHLD):
                signal.signal(number, signal.SIG_DFL)
            code = self._work()
        finally:
            logging.shutdown()
            sys.stdout.flush()
            os._exit(code)

    def _reap(self) -> None:
        for pid in list(self._running):
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                self._ended(self._running.pop(pid), pid, os.waitstatus_to_exitcode(status))

    def _ended(self, worker: _Worker, pid: int, code: int) -> None:
        if self._stopping:
            # Told to stop before it could listen for that, a worker ends by the signal itself.
            self._worst = max(self._worst, 0 if code in (0, -signal.SIGTERM) else 1)
            return
        lived = time.monotonic() - worker.started
        if code == 1 and lived < _HEALTHY_SECONDS and worker.delay == _FIRST_DELAY:
            self._worst = 1
            self._stop()
            return
        delay = _FIRST_DELAY if lived >= _HEALTHY_SECONDS else min(_LONGEST_DELAY, worker.delay * 2)
        logger.error(
            "worker %d (process %d) ended with %d: starting it again in %.1f s", worker.number, pid, code, delay
        )
        self._due.append((time.monotonic() + delay, worker.number, delay))

    def _start_due(self) -> None:
        if self._stopping:
            return
        now = time.monotonic()
        for item in [item for item in self._due if item[0] <= now]:
            self._due.remove(item)
            self._start(item[1], item[2])

    def _stop(self) -> None:
        self._stopping = True
        for pid in self._running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)


def _noted(_number: int, _frame: object) -> None:
    """Signals are read from the socket they wake."""
