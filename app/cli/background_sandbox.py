"""Background sandboxes for scripts and CI: start, wait, stop."""

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
    """Start a sandbox that outlives this process; return its address once it is ready. Raises StartError."""
    log = _log(kubeconfig)
    command = [sys.executable, "-m", "app.cli.main", "sandbox", f"--kubeconfig={kubeconfig}", "--quiet", *options]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)  # noqa: S603 - ourselves
    _until(lambda: _address(kubeconfig) or process.poll() is not None, f"the sandbox is not ready; see its log: {log}")
    server = _address(kubeconfig)
    if not server:
        said = log.read_text("utf-8", "replace").strip().splitlines()
        log.unlink(missing_ok=True)
        raise StartError(said[-1].removeprefix("pykruise: ") if said else f"the sandbox exited with {process.poll()}")
    _pid_file(kubeconfig).write_text(f"{process.pid}\n", "utf-8")
    return server


def wait(kubeconfig: Path) -> None:
    """Wait until the sandbox of this kubeconfig is ready. Raises StartError on timeout."""
    _until(lambda: _address(kubeconfig), f"no sandbox wrote {kubeconfig} within {READY_SECONDS:.0f} s")


def stop(kubeconfig: Path) -> None:
    """Stop the background sandbox. Raises StartError if there is none."""
    file = _pid_file(kubeconfig)
    try:
        pid = int(file.read_text("utf-8"))
    except (OSError, ValueError):
        raise StartError(f"no background sandbox wrote {kubeconfig}; stop a foreground sandbox with Ctrl-C") from None
    manager_log = kubeconfig.with_name(f"{kubeconfig.stem}-manager.log")
    # A killed sandbox leaves its files behind, and its PID may now belong to another process, so check
    # that the sandbox answers.
    if _address(kubeconfig):
        os.kill(pid, signal.SIGTERM)
        _until(lambda: not kubeconfig.exists() and not manager_log.exists(), f"process {pid} does not exit")
    for path in (file, _log(kubeconfig)):
        path.unlink(missing_ok=True)


def _address(kubeconfig: Path) -> str:
    """Return the address of the sandbox, or '' if it is not serving yet."""
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
