"""A sandbox in the background: started, waited for, and ended, as scripts and CI want it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import yaml

from app.manager.serving import StartError
from app.sandbox.run import READY_SECONDS, answers, server_of

_STEP: Final = 0.1


def start(kubeconfig: Path, options: Sequence[str]) -> str:
    """Start a sandbox that outlives this process; its address, once it is ready. Raises StartError."""
    log = _log(kubeconfig)
    command = [sys.executable, "-m", "app.cli.main", "sandbox", f"--kubeconfig={kubeconfig}", "--quiet", *options]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)  # noqa: S603 - ourselves
    _until(lambda: _address(kubeconfig) or process.poll() is not None, f"the sandbox is not ready; its log is {log}")
    server = _address(kubeconfig)
    if not server:
        said = log.read_text("utf-8", "replace").strip().splitlines()
        log.unlink(missing_ok=True)
        raise StartError(said[-1].removeprefix("pykruise: ") if said else f"the sandbox ended with {process.poll()}")
    _pid_file(kubeconfig).write_text(f"{process.pid}\n", "utf-8")
    return server


def wait(kubeconfig: Path) -> None:
    """Until the sandbox of this kubeconfig is ready. Raises StartError when it takes too long."""
    _until(lambda: _address(kubeconfig), f"no sandbox wrote {kubeconfig} within {READY_SECONDS:.0f} s")


def stop(kubeconfig: Path) -> None:
    """End the sandbox that was started in the background. Raises StartError where there is none."""
    file = _pid_file(kubeconfig)
    try:
        pid = int(file.read_text("utf-8"))
    except (OSError, ValueError):
        raise StartError(f"no background sandbox wrote {kubeconfig}; one in the foreground ends with Ctrl-C") from None
    manager_log = kubeconfig.with_name(f"{kubeconfig.stem}-manager.log")
    # Who was killed has left its files, and its number may be another's by now: nothing of ours answers then.
    if _address(kubeconfig):
        os.kill(pid, signal.SIGTERM)
        _until(lambda: not kubeconfig.exists() and not manager_log.exists(), f"process {pid} does not end")
    for path in (file, _log(kubeconfig)):
        path.unlink(missing_ok=True)


def _address(kubeconfig: Path) -> str:
    """Where the sandbox answers; '' if it does not yet."""
    try:
        server = server_of(kubeconfig)
    except (OSError, ValueError, LookupError, TypeError, yaml.YAMLError):
        return ""
    return server if server and answers(server) else ""


def _until(condition: Callable[[], object], message: str) -> None:
    end = time.monotonic() + READY_SECONDS
    while not condition():
        if time.monotonic() >= end:
            raise StartError(message)
        time.sleep(_STEP)


def _pid_file(kubeconfig: Path) -> Path:
    return kubeconfig.with_name(f"{kubeconfig.stem}.pid")


def _log(kubeconfig: Path) -> Path:
    return kubeconfig.with_name(f"{kubeconfig.stem}.log")
