"""Generates load with wrk: for a limited time, and only on loopback HTTPS endpoints."""

from __future__ import annotations

import re
import shutil
import socket
import ssl
import subprocess
import tempfile
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path

_LUA = """
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
local f = io.open("{body}", "rb")
wrk.body = f:read("*all")
f:close()
"""


@dataclass(frozen=True)
class Load:
    """Result of a wrk run. Latencies are in milliseconds; ``failures`` counts error responses and socket errors."""

    per_second: float
    p50: float
    p99: float
    failures: int


def run(url: str, body: bytes, *, connections: int, seconds: int) -> Load:
    """POST ``body`` repeatedly over keep-alive connections. ``url`` must be on loopback."""
    if shutil.which("wrk") is None:
        raise SystemExit("bench: wrk is missing; install it with: python -m tests.kit.debian wrk")
    if not url.startswith("https://127.0.0.1:"):
        raise ValueError(f"load goes to loopback only, not to {url}")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "body.json").write_bytes(body)
        script = Path(folder) / "post.lua"
        script.write_text(_LUA.format(body=Path(folder) / "body.json"))
        threads = min(connections, 2)
        command = ["wrk", "--latency", f"-t{threads}", f"-c{connections}", f"-d{seconds}s", "-s", str(script), url]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    failures = re.search(r"Non-2xx or 3xx responses: (\d+)", text)
    errors = re.search(r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)", text)
    return Load(
        per_second=float(_found(r"Requests/sec:\s+([\d.]+)", text)),
        p50=_milliseconds(_found(r"50%\s+([\d.]+\w+)", text)),
        p99=_milliseconds(_found(r"99%\s+([\d.]+\w+)", text)),
        failures=(int(failures[1]) if failures else 0) + (sum(map(int, errors.groups())) if errors else 0),
    )


def free_port() -> int:
    """Return an unused loopback port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until_up(url: str, process: subprocess.Popen[bytes], deadline: float = 60.0) -> float:
    """Wait until ``url`` responds, and return the seconds it took. The self-signed certificate is not verified."""
    start = time.monotonic()
    context = ssl._create_unverified_context()
    while time.monotonic() - start < deadline:
        if process.poll() is not None:
            raise SystemExit(f"bench: the server ended with code {process.returncode} before it answered {url}")
        try:
            with urllib.request.urlopen(url, timeout=1, context=context):
                return time.monotonic() - start
        except OSError:
            time.sleep(0.02)
    raise SystemExit(f"bench: {url} did not answer within {deadline} s")


def _found(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    if found is None:
        raise SystemExit(f"bench: wrk printed no {pattern!r}:\n{text}")
    return found[1]


def _milliseconds(text: str) -> float:
    number, unit = re.fullmatch(r"([\d.]+)(us|ms|s)", text).groups()  # type: ignore[union-attr]
    return float(number) * {"us": 0.001, "ms": 1.0, "s": 1000.0}[unit]
