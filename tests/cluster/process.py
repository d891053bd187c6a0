"""Processes with a log file, identified by process id and start time."""

import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from os import kill
from pathlib import Path

from tests.cluster.errors import ClusterError
from tests.deadline import Deadline

DEADLINE = 60.0
_POLL = 0.02


@dataclass(frozen=True, slots=True)
class ProcessId:
    """A process id with its start time, because ids are reused."""

    pid: int
    started: int

    @classmethod
    def of(cls, pid: int) -> "ProcessId | None":
        """Return the identity of the process `pid`; None if it does not exist or has ended (a zombie)."""
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return None
        # The command name in brackets may contain anything; count the fields after it.
        fields = stat.rpartition(")")[2].split()
        return None if fields[0] in "ZX" else cls(pid, int(fields[19]))

    def is_alive(self) -> bool:
        return ProcessId.of(self.pid) == self

    def children(self) -> list["ProcessId"]:
        found = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):  # it has ended meanwhile
                if int(stat.read_text().rpartition(")")[2].split()[1]) == self.pid:
                    found.append(ProcessId.of(int(stat.parent.name)))
        return [child for child in found if child is not None]


# Keeps the Popen objects of processes started here, so that they are reaped.
_children: dict[int, subprocess.Popen[bytes]] = {}


def start(
    argv: Sequence[str | Path],
    log: Path,
    *,
    dies_with_us: bool,
    environment: Mapping[str, str] | None = None,
    stdin: int = subprocess.DEVNULL,
) -> ProcessId:
    """Start `argv` in a new session, with its output in `log`.

    With `dies_with_us`, the kernel kills it when this process ends for any reason; otherwise it keeps running.
    """
    command = [str(part) for part in argv]
    if dies_with_us:
        command = ["setpriv", "--pdeathsig", "KILL", "--", *command]
    with log.open("ab") as output:
        child = subprocess.Popen(
            command, stdin=stdin, stdout=output, stderr=output, env=environment, start_new_session=True
        )
    identity = ProcessId.of(child.pid)
    _children[child.pid] = child
    if identity is None:
        raise ClusterError(f"{command[0]} ended at once; its log {log}:\n{tail(log)}")
    return identity


def end(process: ProcessId, *, deadline: float = 10.0) -> None:
    """Kill `process`, whose data is temporary, and wait until it has ended."""
    if process.is_alive():
        kill(process.pid, signal.SIGKILL)
    child = _children.pop(process.pid, None)
    if child is not None:
        child.wait(deadline)
    wait_until(lambda: not process.is_alive(), f"process {process.pid} has ended", deadline=deadline)


def wait_until(
    condition: Callable[[], object],
    what: str,
    *,
    deadline: float = DEADLINE,
    alive: Mapping[str, tuple[ProcessId, Path]] | None = None,
) -> None:
    """Wait until `condition()` is true; fail early if one of the processes `alive` (name: identity, log) ends."""
    end_at = Deadline(deadline)
    watched = alive or {}
    while not condition():
        for name, (process, log) in watched.items():
            if not process.is_alive():
                raise ClusterError(f"{name} ended while waiting until {what}; its log {log} closes with:\n{tail(log)}")
        if end_at.passed():
            logs = ", ".join(str(log) for _, log in watched.values()) or "none"
            raise ClusterError(f"timed out after {deadline:.0f} s waiting until {what}; logs: {logs}")
        time.sleep(_POLL)


def tail(log: Path, lines: int = 15) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:]) if log.exists() else "(no log)"
