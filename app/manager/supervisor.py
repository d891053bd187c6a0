"""Supervisor: starts the processes of a replica and restarts those that die or hang.

It imports all code, exempts it from garbage collection and forks, so that the processes share its memory. Then it only
waits for signals: it has no event loop and serves no requests that could fail. Heartbeats arrive through shared
memory, where a stopped process cannot block others.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from app.manager.shared_state import STABLE_SECONDS, Life, Replica

logger = logging.getLogger(__name__)

#: Exit code of a process that cannot start: an invalid setting, a port in use, no certificate.
CANNOT_START: Final = 3
#: Seconds between checks if no signal arrives.
LOOK_SECONDS: Final = 1.0
#: A process that ran this long is restarted at once, and its restart delay is reset.
HEALTHY_SECONDS: Final = 10.0
FIRST_DELAY: Final = 0.5
LONGEST_DELAY: Final = 30.0
#: Seconds a hanging process has to print its stack.
TRACE_SECONDS: Final = 1.0
_ENDING: Final = (signal.SIGTERM, signal.SIGINT)
_AWAITED: Final = (*_ENDING, signal.SIGCHLD)


def after_exit(ran: float, delay: float, failing_since: float, now: float) -> tuple[float, float]:
    """Return the delay before the next start, and ``failing_since`` (see Life).

    ``ran`` is how long the process ran. ``delay`` and ``failing_since`` are the values returned for its previous exit,
    or 0 if there was none.
    """
    backoff = min(LONGEST_DELAY, max(FIRST_DELAY, delay * 2))
    return (
        0.0 if ran >= HEALTHY_SECONDS else backoff,
        failing_since if failing_since and ran < STABLE_SECONDS else now,
    )


class _Child:
    """One of the replica's process slots, and its current process."""

    def __init__(self, name: str, work: Callable[[], int]) -> None:
        self.name = name
        self.work = work
        self.pid = 0
        self.started = 0.0
        self.delay = 0.0
        self.due: float | None = 0.0
        self.kill_at: float | None = None
        self.starts = 0
        self.hangs = 0
        self.failing_since = 0.0


class Supervisor:
    """Runs each work function in its own process until SIGTERM or SIGINT.

    Call ``run`` only once, and outside of an event loop.
    """

    def __init__(
        self,
        replica: Replica,
        works: Mapping[str, Callable[[], int]],
        *,
        hang_seconds: float = 10.0,
        stop_seconds: float = 9.0,
    ) -> None:
        self._replica = replica
        self._children = [_Child(name, work) for name, work in works.items()]
        self._hang_seconds = hang_seconds
        self._stop_seconds = stop_seconds
        self._deadline: float | None = None
        self._code = 0

    def run(self) -> int:
        """Run the processes. Returns 0 if all stopped on request, 1 if one could not start or had to be killed."""
        # Exempt existing objects from garbage collection, so that the processes share their memory.
        gc.collect()
        gc.freeze()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
        looked = time.monotonic()
        try:
            while True:
                now = time.monotonic()
                away = now - looked
                looked = now
                self._start_due(now)
                self._end_hanging(now, away)
                running = [child for child in self._children if child.pid]
                if self._deadline is not None and not running:
                    return self._code
                self._kill_overdue(now, running)
                received = signal.sigtimedwait(_AWAITED, self._wait_seconds(now))
                if received is not None and received.si_signo in _ENDING:
                    self._stop()
                self._reap()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    # ---- starting

    def _start_due(self, now: float) -> None:
        for child in self._children:
            if child.due is not None and child.due <= now and self._deadline is None:
                self._start(child)

    def _start(self, child: _Child) -> None:
        child.due, child.kill_at = None, None
        child.started = time.monotonic()
        child.starts += 1
        self._replica.beat(child.name)
        parent = os.getpid()
        for handler in logging.getLogger().handlers:
            handler.flush()
        child.pid = os.fork()
        if child.pid == 0:
            _become(child.name, child.work, parent)
        logger.info("%s is process %d", child.name, child.pid)
        self._note(child)

    def _note(self, child: _Child) -> None:
        life = Life(child.pid, max(0, child.starts - 1), child.hangs, time.time(), child.failing_since)
        self._replica.lives[child.name].write(life)

    # ---- watching

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)  # as PID 1 in a container, also reap orphans
            except ChildProcessError:
                return
            if pid == 0:
                return
            child = next((one for one in self._children if one.pid == pid), None)
            if child is not None:
                self._ended(child, os.waitstatus_to_exitcode(status))

    def _ended(self, child: _Child, code: int) -> None:
        now = time.monotonic()
        pid, child.pid = child.pid, 0
        if self._deadline is not None:
            # A process stopped before it installed its signal handler is killed by the signal itself.
            if code not in (0, -signal.SIGTERM, -signal.SIGINT):
                self._code = 1
            return
        if code == CANNOT_START and not self._replica.state(child.name).ready and child.starts == 1:
            # The process would fail again, and it has logged the cause.
            self._code = 1
            self._stop()
            return
        ran = now - child.started
        child.delay, child.failing_since = after_exit(ran, child.delay, child.failing_since, time.time())
        child.due = now + child.delay
        self._note(child)
        logger.error("%s (process %d) %s: restarting in %.1f s", child.name, pid, _end(code), child.delay)

    def _end_hanging(self, now: float, away: float) -> None:
        if away > self._hang_seconds / 2:
            # The supervisor was suspended too (with the machine or container), so missing heartbeats mean nothing.
            for child in self._children:
                self._replica.beat(child.name)
            return
        for child in self._children:
            silent = now - self._replica.last_beat(child.name)
            if child.pid and child.kill_at is None and self._deadline is None and silent > self._hang_seconds:
                child.hangs += 1
                logger.error("%s (process %d) hangs: no heartbeat for %.1f s", child.name, child.pid, silent)
                self._send(child, signal.SIGABRT)  # prints the stack if the process still can
                child.kill_at = now + TRACE_SECONDS
            elif child.pid and child.kill_at is not None and child.kill_at <= now:
                self._send(child, signal.SIGKILL)

    def _wait_seconds(self, now: float) -> float:
        moments = [now + min(LOOK_SECONDS, self._hang_seconds / 4)]
        moments += [child.due for child in self._children if child.due is not None and self._deadline is None]
        moments += [child.kill_at for child in self._children if child.kill_at is not None and child.pid]
        if self._deadline is not None:
            moments.append(self._deadline)
        return max(0.0, min(moments) - now)

    # ---- ending

    def _stop(self) -> None:
        if self._deadline is None:
            self._deadline = time.monotonic() + self._stop_seconds
            for child in self._children:
                self._send(child, signal.SIGTERM)

    def _kill_overdue(self, now: float, running: list[_Child]) -> None:
        if self._deadline is None or now < self._deadline:
            return
        for child in running:
            logger.error("%s (process %d) did not stop in time: killed", child.name, child.pid)
            self._send(child, signal.SIGKILL)
        self._deadline = now + self._stop_seconds

    @staticmethod
    def _send(child: _Child, number: signal.Signals) -> None:
        if child.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child.pid, number)


def _become(name: str, work: Callable[[], int], parent: int) -> None:
    """Run a work function in the child process. Never returns."""
    code = 1
    try:
        for number in _ENDING:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _AWAITED)
        faulthandler.enable()
        with contextlib.suppress(OSError):
            Path("/proc/self/comm").write_text(name[:15], "ascii")  # the name shown by ps and top
        if os.getppid() == parent:
            code = work()
    except BaseException:
        logger.exception("%s failed", name)
    finally:
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _end(code: int) -> str:
    if code >= 0:
        return f"exited with code {code}"
    with contextlib.suppress(ValueError):
        return f"was killed by {signal.Signals(-code).name}"
    return f"was killed by signal {-code}"
