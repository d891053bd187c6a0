"""Servers shared by all processes of a test run. The first process that needs one starts a keeper; the others use it.

A keeper is a separate process, `python -m MODULE NAME FOLDER`. It starts a server, writes `NAME.json` when the server
is ready, and stops it on request or when the test run has ended. The main pytest process ends all keepers after the
last test.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.cluster.paths import locked
from tests.cluster.process import ProcessId, tail
from tests.deadline import Deadline

_FOLDER: Final = "PYKRUISE_TEST_RUN"
_RUN: Final = "pytest.process"
_START_SECONDS: Final = 180.0
_END_SECONDS: Final = 90.0
_ROOT: Final = Path(__file__).resolve().parent.parent.parent


def pytest_configure(config: pytest.Config) -> None:
    """Create the folder of the test run, in the process that distributes the tests."""
    if not hasattr(config, "workerinput"):
        folder = os.environ[_FOLDER] = tempfile.mkdtemp(prefix="pykruise-tests-")
        (Path(folder) / _RUN).write_text(str(os.getpid()))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Stop the keepers. If one cannot clean up, the test run fails."""
    if hasattr(session.config, "workerinput"):
        return
    folder = Path(os.environ[_FOLDER])
    failures = [failure for record in folder.glob("*.pid") if (failure := _end(record))]
    for failure in failures:
        print(failure, file=sys.stderr)
    if failures:
        session.exitstatus = pytest.ExitCode.INTERNAL_ERROR
    else:
        shutil.rmtree(folder, ignore_errors=True)


def shared(module: str, name: str) -> dict[str, Any]:
    """Return the facts about `name`, which a keeper of `module` starts or has started. Fails the test on error."""
    folder = Path(os.environ[_FOLDER])
    facts, log, record = folder / f"{name}.json", folder / f"{name}.log", folder / f"{name}.pid"
    with locked(folder / f"{name}.lock"):
        if not record.exists():
            run = (folder / _RUN).read_text()
            command = [sys.executable, "-m", module, name, str(folder), run]
            # Each process of a test run uses different ports (controlplane.py); the keeper uses the last set.
            environment = os.environ | {"PYTEST_XDIST_WORKER": "gw7"}
            with log.open("wb") as output:
                keeper = subprocess.Popen(
                    command, cwd=_ROOT, stdout=output, stderr=output, env=environment, start_new_session=True
                )
            identity = ProcessId.of(keeper.pid)
            record.write_text(json.dumps([keeper.pid, identity.started if identity else 0]))
        deadline = Deadline(_START_SECONDS)
        keeper_id = ProcessId(*json.loads(record.read_text()))
        while not facts.exists():
            if not keeper_id.is_alive() or deadline.passed():
                pytest.fail(f"{name} could not be started:\n{tail(log)}")
            time.sleep(0.05)
    found: dict[str, Any] = json.loads(facts.read_text())
    return found


def keep(start: Mapping[str, Callable[[], AbstractContextManager[Mapping[str, Any]]]]) -> None:
    """Run a keeper: start what the command line names, publish its facts, wait, and stop it."""
    name, folder, run = sys.argv[1], Path(sys.argv[2]), ProcessId.of(int(sys.argv[3]))
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    with start[name]() as facts:
        written = folder / f".{name}.json"
        written.write_text(json.dumps(facts))
        written.rename(folder / f"{name}.json")
        while not ended.wait(1.0) and run is not None and run.is_alive():
            pass


def _end(record: Path) -> str:
    """Stop one keeper. Return what went wrong, if anything."""
    keeper = ProcessId(*json.loads(record.read_text()))
    log = record.with_suffix(".log")
    if not keeper.is_alive():
        return f"{record.stem}: its keeper ended before the tests did:\n{tail(log)}"
    os.kill(keeper.pid, signal.SIGTERM)
    deadline = Deadline(_END_SECONDS)
    while keeper.is_alive():
        if deadline.passed():
            os.kill(keeper.pid, signal.SIGKILL)
            return f"{record.stem}: its keeper did not end within {_END_SECONDS:g} s:\n{tail(log)}"
        time.sleep(0.05)
    said = tail(log)
    return f"{record.stem}: what was started could not be taken down:\n{said}" if "Traceback" in said else ""
