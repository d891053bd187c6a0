"""Send reviews at a constant rate: ``python -m bench.rate --url … --body FILE --rate 2000``.

The load is an open loop: reviews are due at fixed times, whether or not earlier ones have been answered, and the wait
for a free connection counts as latency. A pause of the service therefore affects every review that is due during it.
Latency starts when the generator hands out a review. The generator's own lateness is reported separately, so that a
busy machine is not mistaken for a slow service. Prints one JSON line per interval.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import json
import os
import ssl
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, cast

import uvloop

ROOT = Path(__file__).resolve().parent.parent
#: Batches of reviews handed out per second. Timers are not precise enough for many more.
PORTIONS = 500
#: Content of every response that allows the request.
ALLOWED = b'"allowed":true'


@dataclass(frozen=True, slots=True)
class Interval:
    """Results of one interval, in milliseconds except ``seconds``. ``failures`` counts denials and lost reviews."""

    seconds: float
    answered: int
    failures: int
    per_second: float
    p50: float
    p99: float
    p999: float
    longest: float
    #: Reviews without a response at the end of the interval.
    pending: int
    late_p99: float


class _Connection(asyncio.Protocol):
    """A keep-alive connection with at most one pending review."""

    def __init__(self, load: _Load) -> None:
        self._load = load
        self._transport: asyncio.Transport | None = None
        self._received = b""
        self._missing = 0
        self._due = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's class is not a subclass
        self._load.free(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._load.lost(self, failed=self._due > 0.0)

    def post(self, due: float) -> bool:
        """Send a review. Returns false if the connection is closing."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return False
        self._due = due
        transport.write(self._load.request)
        return True

    def data_received(self, data: bytes) -> None:
        if self._missing:
            self._received += data
            self._missing -= len(data)
        else:
            self._received += data
            end = self._received.find(b"\r\n\r\n")
            if end < 0:
                return
            at = self._received.lower().index(b"content-length:") + 15
            length = int(self._received[at : self._received.index(b"\r", at)])
            self._missing = end + 4 + length - len(self._received)
        if self._missing <= 0:
            self._missing = 0
            good = self._received.startswith(b"HTTP/1.1 200") and ALLOWED in self._received
            due, self._due, self._received = self._due, 0.0, b""
            self._load.answered(due, good=good)
            self._load.free(self)


class _Load:
    def __init__(self, request: bytes, rate: int) -> None:
        self.request = request
        self.rate = rate
        self._idle: deque[_Connection] = deque()
        self._waiting: deque[float] = deque()
        self._latencies: list[float] = []
        self._lateness: list[float] = []
        self._failures = 0
        self._handed_out = self._done = 0
        self.reconnect = asyncio.Event()

    def free(self, connection: _Connection) -> None:
        """Handle a connection that is ready to send a review."""
        while self._waiting:
            if connection.post(self._waiting[0]):
                self._waiting.popleft()
            return
        self._idle.append(connection)

    def lost(self, connection: _Connection, *, failed: bool) -> None:
        """Handle a lost connection. ``failed``: whether a review was pending."""
        if failed:
            self._failures += 1
            self._done += 1
        with contextlib.suppress(ValueError):
            self._idle.remove(connection)
        self.reconnect.set()

    def answered(self, due: float, *, good: bool) -> None:
        """Record a response."""
        self._latencies.append(time.perf_counter() - due)
        self._done += 1
        if not good:
            self._failures += 1

    def hand_out(self, count: int, late: float) -> None:
        """Send ``count`` reviews, or queue those without a free connection."""
        now = time.perf_counter()
        self._handed_out += count
        self._lateness.append(late)
        for _ in range(count):
            while self._idle:
                if self._idle.popleft().post(now):
                    break
            else:
                self._waiting.append(now)

    def interval(self, seconds: float) -> Interval:
        """Return the results since the last call."""
        found, late = sorted(self._latencies), sorted(self._lateness)
        failures = self._failures
        self._latencies, self._lateness, self._failures = [], [], 0

        def at(values: Sequence[float], part: float) -> float:
            return round(1000 * values[min(len(values) - 1, int(len(values) * part))], 3) if values else 0.0

        return Interval(
            round(seconds, 2),
            len(found),
            failures,
            round(len(found) / seconds, 1),
            at(found, 0.5),
            at(found, 0.99),
            at(found, 0.999),
            at(found, 1.0),
            self._handed_out - self._done,
            at(late, 0.99),
        )


async def _keep_connected(load: _Load, host: str, port: int, tls: ssl.SSLContext, connections: int) -> None:
    live: set[_Connection] = set()

    class Counted(_Connection):
        def connection_lost(self, exc: Exception | None) -> None:
            live.discard(self)
            super().connection_lost(exc)

    loop = asyncio.get_running_loop()
    while True:
        load.reconnect.clear()
        while len(live) < connections:
            try:
                _, made = await loop.create_connection(lambda: Counted(load), host, port, ssl=tls)
            except OSError:
                await asyncio.sleep(0.02)
                continue
            live.add(made)
        await load.reconnect.wait()


async def _send(load: _Load, seconds: float) -> None:
    """Hand out reviews for ``seconds``."""
    began, sent, ticks = time.perf_counter(), 0, 0
    while (elapsed := time.perf_counter() - began) < seconds:
        due = int(elapsed * load.rate)
        load.hand_out(due - sent, elapsed - ticks / PORTIONS)
        # Missed ticks are skipped, because their reviews have just been handed out.
        sent, ticks = due, int(elapsed * PORTIONS) + 1
        await asyncio.sleep(max(0.0, began + ticks / PORTIONS - time.perf_counter()))


async def _run(options: argparse.Namespace, output: IO[str]) -> None:
    host, _, rest = options.url.removeprefix("https://").partition(":")
    port, _, path = rest.partition("/")
    body = Path(options.body).read_bytes()  # noqa: ASYNC240 - before anything runs
    head = f"POST /{path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    load = _Load(f"{head}\r\n".encode() + body, options.rate)
    tls = ssl._create_unverified_context()
    keeping = asyncio.create_task(_keep_connected(load, host, int(port), tls, options.connections))
    await asyncio.sleep(0.5)
    gc.collect()
    gc.disable()  # its pauses would count as latency; nothing here creates cycles
    if options.warm_up:
        await _send(load, options.warm_up)
        load.interval(options.warm_up)
    left = options.seconds
    while left > 0.5 * options.every:
        began = time.perf_counter()
        await _send(load, min(left, options.every))
        print(json.dumps(asdict(load.interval(time.perf_counter() - began))), file=output, flush=True)
        left -= options.every
    keeping.cancel()


@contextmanager
def generator(
    url: str, body: bytes, *, rate: int, seconds: float, every: float, connections: int = 16, warm_up: float = 0.0
) -> Iterator[subprocess.Popen[str]]:
    """Run the generator inside the context. Yields its process, which prints the JSON lines to standard output."""
    if not url.startswith("https://127.0.0.1:"):
        raise ValueError(f"load goes to loopback only, not to {url}")
    with tempfile.NamedTemporaryFile() as file:
        file.write(body)
        file.flush()
        command = [sys.executable, "-m", "bench.rate", f"--url={url}", f"--body={file.name}", f"--rate={rate}"]
        command += [f"--seconds={seconds}", f"--every={every}", f"--connections={connections}", f"--warm-up={warm_up}"]
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        try:
            yield process
        finally:
            process.terminate()
            process.wait(10)


def constant(
    url: str, body: bytes, *, rate: int, seconds: float, connections: int = 16, warm_up: float = 1.0
) -> Interval:
    """Return the results of one interval of constant load after a warm-up."""
    with generator(
        url, body, rate=rate, seconds=seconds, every=seconds, connections=connections, warm_up=warm_up
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
    if not line:
        raise SystemExit("bench: the generator ended without a figure")
    return Interval(**json.loads(line))


def command() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", required=True)
    parser.add_argument("--body", required=True, help="file with the review to post")
    parser.add_argument("--rate", type=int, default=2000, help="reviews per second")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--every", type=float, default=10.0, help="seconds per printed line")
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--warm-up", type=float, default=0.0, help="seconds of the same load that are not counted")
    options = parser.parse_args()
    with contextlib.suppress(PermissionError):
        # In a real cluster, the API server runs on another machine and does not compete for our processors.
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    uvloop.run(_run(options, sys.stdout))


if __name__ == "__main__":
    command()
