"""Workers: started, started again, stopped. Each test has its parent in a process of its own."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent

PARENT = """
import os, signal, sys, time
from pathlib import Path
from app.manager import workers
workers._FIRST_DELAY = 0.01
folder = Path(sys.argv[1])

def work():
    (folder / str(os.getpid())).touch()
    {work}

sys.exit(workers.supervise(2, work))
"""


class Parent:
    """A supervising process whose workers leave a file with their process id."""

    def __init__(self, folder: Path, work: str) -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            [sys.executable, "-c", PARENT.format(work=work), str(folder)], cwd=ROOT, stderr=subprocess.PIPE, text=True
        )

    def pids(self, at_least: int) -> set[int]:
        deadline = time.monotonic() + 30
        while len(found := {int(file.name) for file in self.folder.iterdir()}) < at_least:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        return found

    def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(20)


WAITS = "signal.signal(signal.SIGTERM, lambda *_: os._exit(0)); time.sleep(3600)"


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_stop_reaches_all_and_the_end_is_clean(tmp_path: Path) -> None:
    parent = Parent(tmp_path, WAITS)
    pids = parent.pids(2)
    assert parent.end() == 0
    assert not any(alive(pid) for pid in pids)


def test_a_worker_that_dies_is_started_again(tmp_path: Path) -> None:
    parent = Parent(tmp_path, WAITS)
    first = parent.pids(2)
    os.kill(min(first), signal.SIGKILL)
    assert len(parent.pids(3) - first) == 1
    assert alive(max(first))
    assert parent.end() == 0


def test_workers_that_cannot_begin_end_the_parent_with_their_code(tmp_path: Path) -> None:
    parent = Parent(tmp_path, "return 1")
    assert parent.process.wait(20) == 1


def test_a_worker_that_ends_badly_on_a_stop_is_told_by_the_exit_code(tmp_path: Path) -> None:
    parent = Parent(tmp_path, WAITS.replace("os._exit(0)", "os._exit(3)"))
    parent.pids(2)
    assert parent.end() == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_at_any_moment_of_the_start_leaves_nobody_behind(tmp_path: Path, number: signal.Signals) -> None:
    parent = Parent(tmp_path, WAITS)
    parent.pids(1)  # perhaps the second is just being made
    parent.process.send_signal(number)
    parent.process.wait(20)
    deadline = time.monotonic() + 20
    while any(alive(pid) for pid in parent.pids(1)):
        assert time.monotonic() < deadline
        time.sleep(0.01)
