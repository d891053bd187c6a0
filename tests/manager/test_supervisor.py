"""The supervisor with real processes: those that die or hang are restarted, and all end on request."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from app.manager.shared_state import Replica
from app.manager.supervisor import CANNOT_START, Supervisor, after_exit
from tests.deadline import Deadline, slowness

#: Starts two processes that write their pid into a file and send heartbeats until SIGTERM; ``{body}`` is what else they
#: do.
PROGRAM = """
import logging, os, signal, sys, time
from pathlib import Path
from app.manager.shared_state import Replica, State
from app.manager.supervisor import Supervisor

logging.basicConfig(level=logging.INFO)
folder = Path(sys.argv[1])
replica = Replica(("one", "two"))

def work(name):
    def run():
        stopped = []
        signal.signal(signal.SIGTERM, lambda *_: stopped.append(1))
        replica.states[name].write(State(pid=os.getpid()))
        with (folder / name).open("a") as file:
            file.write(f"{{os.getpid()}}\\n")
        while not stopped:
            replica.beat(name)
            time.sleep(0.05)
{body}
        return 0
    return run

works = {{name: work(name) for name in replica.processes}}
sys.exit(Supervisor(replica, works, hang_seconds={hang_seconds}, stop_seconds={stop_seconds}).run())
"""


def pids(folder: Path, name: str) -> list[int]:
    """Return the process ids of a slot, oldest first."""
    file = folder / name
    return [int(line) for line in file.read_text().split()] if file.exists() else []


def until(condition: Callable[[], object], what: str, seconds: float = 60.0) -> None:
    deadline = Deadline(seconds)
    while not condition():
        assert not deadline.passed(), f"not within {seconds} s: {what}"
        time.sleep(0.02)


@contextmanager
def supervised(
    folder: Path, body: str = "", *, hang_seconds: float = 60.0, stop_seconds: float = 60.0
) -> Iterator[subprocess.Popen[str]]:
    program = PROGRAM.format(body=textwrap.indent(body, " " * 12), hang_seconds=hang_seconds, stop_seconds=stop_seconds)
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        # Processes left by a failed test hold its output open, even if they are stopped.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def started(folder: Path) -> bool:
    return bool(pids(folder, "one") and pids(folder, "two"))


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.parametrize("both", [False, True])
def test_a_killed_process_is_restarted_while_the_other_continues(tmp_path: Path, both: bool) -> None:
    with supervised(tmp_path) as supervisor:
        until(lambda: started(tmp_path), "both run")
        for name in ("one", "two")[: 1 + both]:
            os.kill(pids(tmp_path, name)[0], signal.SIGKILL)
        until(lambda: len(pids(tmp_path, "one")) == 2, "it is started again")
        if both:
            until(lambda: len(pids(tmp_path, "two")) == 2, "so is the other")
        assert len(pids(tmp_path, "two")) == 1 + both
        assert not gone(pids(tmp_path, "two")[-1])
        supervisor.terminate()
        output, _ = supervisor.communicate(timeout=120)
    assert supervisor.returncode == 0
    assert all(gone(pid) for name in ("one", "two") for pid in pids(tmp_path, name))
    assert "was killed by SIGKILL: restarting in 0.5 s" in output


def test_a_hanging_process_is_killed_and_restarted(tmp_path: Path) -> None:
    with supervised(tmp_path, hang_seconds=3 * slowness()) as supervisor:
        until(lambda: started(tmp_path), "both run")
        os.kill(pids(tmp_path, "one")[0], signal.SIGSTOP)
        until(lambda: len(pids(tmp_path, "one")) == 2, "it is started again")
        assert gone(pids(tmp_path, "one")[0])
        assert len(pids(tmp_path, "two")) == 1
        supervisor.terminate()
        output, _ = supervisor.communicate(timeout=120)
    assert "hangs: no heartbeat for" in output


@pytest.mark.parametrize(
    ("ran", "delay", "failing_since", "found"),
    [
        (0.1, 0.0, 0.0, (0.5, 1000.0)),
        (9.9, 0.5, 700.0, (1.0, 700.0)),
        (0.1, 20.0, 700.0, (30.0, 700.0)),
        (10.0, 30.0, 700.0, (0.0, 700.0)),
        (59.0, 0.0, 700.0, (0.0, 700.0)),
        (60.0, 0.0, 700.0, (0.0, 1000.0)),  # it had started successfully
    ],
)
def test_a_process_is_restarted_soon_unless_it_keeps_failing(
    ran: float, delay: float, failing_since: float, found: tuple[float, float]
) -> None:
    assert after_exit(ran, delay, failing_since, now=1000.0) == found


def test_a_suspended_machine_costs_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the supervisor did not run either, so missing heartbeats mean nothing."""
    sent: list[signal.Signals] = []
    monkeypatch.setattr(Supervisor, "_send", lambda _supervisor, _child, number: sent.append(number))
    replica = Replica(("one",))
    supervisor = Supervisor(replica, {"one": lambda: 0}, hang_seconds=3.0)
    supervisor._children[0].pid = os.getpid()
    supervisor._end_hanging(time.monotonic() + 100, away=100)
    supervisor._end_hanging(time.monotonic() + 2, away=1)
    assert sent == []
    supervisor._end_hanging(time.monotonic() + 4, away=1)
    assert sent == [signal.SIGABRT]
    replica.close()


def test_a_hanging_process_reports_its_stack(tmp_path: Path) -> None:
    hang = """
if name == 'one':
    print('hangs:', replica.lives['one'].read().hangs, flush=True)
    if len((folder / name).read_text().split()) == 1:
        time.sleep(600)  # here it hangs
"""
    with supervised(tmp_path, hang, hang_seconds=3 * slowness()) as supervisor:
        until(lambda: len(pids(tmp_path, "one")) == 2, "it is started again")
        supervisor.terminate()
        output, _ = supervisor.communicate(timeout=120)
    assert "Fatal Python error: Aborted" in output
    assert " in run" in output
    assert "hangs: 1" in output.splitlines()


def test_a_process_that_does_not_end_in_time_is_killed_and_reported(tmp_path: Path) -> None:
    with supervised(tmp_path, "stopped.clear() if name == 'one' else None", stop_seconds=2.0) as supervisor:
        until(lambda: started(tmp_path), "both run")
        supervisor.terminate()
        output, _ = supervisor.communicate(timeout=120)
    assert supervisor.returncode == 1
    assert "did not stop in time: killed" in output
    assert gone(pids(tmp_path, "one")[0])


def test_a_failed_start_stops_everything_at_once(tmp_path: Path) -> None:
    body = f"if name == 'one': replica.states[name].write(State(missing={{'x': 'y'}})); os._exit({CANNOT_START})"
    with supervised(tmp_path, body) as supervisor:
        supervisor.communicate(timeout=120)
    assert supervisor.returncode == 1
    assert len(pids(tmp_path, "one")) == 1


def test_repeated_failures_are_restarted_with_backoff_and_their_start_is_known(tmp_path: Path) -> None:
    began = time.time()
    # A process that has started once is restarted even if it cannot start again.
    body = f"""
if name == 'one':
    print('since', replica.lives['one'].read().failing_since, flush=True)
    if len((folder / name).read_text().split()) == 1:
        os._exit(7)
    replica.states[name].write(State(missing={{'x': 'y'}}))
    os._exit({CANNOT_START})
"""
    with supervised(tmp_path, body) as supervisor:
        until(lambda: len(pids(tmp_path, "one")) == 3, "it was started twice again")
        supervisor.terminate()
        output, _ = supervisor.communicate(timeout=120)
    assert "exited with code 7: restarting in 0.5 s" in output
    assert f"exited with code {CANNOT_START}: restarting in 1.0 s" in output
    told = [float(line.split()[1]) for line in output.splitlines() if line.startswith("since")]
    assert len(told) == 3
    assert began <= told[1] == told[2]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_at_any_moment_of_the_start_leaves_no_process_behind(tmp_path: Path, number: signal.Signals) -> None:
    with supervised(tmp_path) as supervisor:
        until(lambda: pids(tmp_path, "one"), "one runs")  # the other may just be starting
        supervisor.send_signal(number)
        supervisor.communicate(timeout=120)
    assert supervisor.returncode == 0
    assert all(gone(pid) for name in ("one", "two") for pid in pids(tmp_path, name))
