"""Checks each case: no 5xx, no failing handler, little CPU time, little memory."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import time
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from app.admission.metrics import AdmissionMetrics
from app.admission.server import create_app
from app.api.conversion import convert
from app.kube import jsonvalues
from app.manager.limits import Connections, Limits
from app.manager.protocol import BoundedProtocol
from app.manager.serving import Server
from app.manager.standalone import Standalone
from tests.deadline import cpu_slowness
from tests.fuzz import notes, targets
from tests.fuzz.cases import Case
from tests.fuzz.service import posted

#: CPU seconds of this process, so that cases do not fail on a busy machine.
SECONDS: Final = 0.3 * cpu_slowness()
#: The largest object that etcd accepts. Decoders also get larger objects, and conversions get many; these may take
#: proportionally longer.
LARGEST_STORED: Final = 1_500_000
#: Larger objects of our kinds may take proportionally longer: no real Pod is that large, and an object in an older
#: version is validated as submitted and as stored.
LARGE_OBJECT: Final = 250_000
#: The largest request that the API server accepts. Strangers can send larger reviews, which may take proportionally
#: longer.
LARGEST_REQUEST: Final = 3 * 1024 * 1024
#: Bytes that a case may add to the memory of the process.
MEMORY_BYTES: Final = 64 * 1024 * 1024
#: In Python, an object takes about 20 times the bytes of its JSON.
HOLDS: Final = 32
#: A conversion holds its body, the pieces of the body, the answer, which may be larger, and five copies of one object.
#: These take 25 times the bytes of its JSON if it is nested. The service converts in a separate process.
CONVERSION_HOLDS: Final = 6
#: Bodies of at least this size are measured one by one.
LARGE: Final = 200_000


class Judge:
    """Answers cases in this process and reports the problems of the answers."""

    def __init__(self, standalone: Standalone) -> None:
        self._metrics = AdmissionMetrics()
        self._app = create_app(standalone.registry, convert, self._metrics)
        self._decoders = targets.decoders()
        self._server = Server(self._app)
        self._server.config.load()
        self.connections = Connections("fuzz", Limits(bodies=self._app.body_limits))
        self._panics = 0

    async def judge(self, case: Case) -> list[str]:
        """Return the problems, if any."""
        large = len(case.body) >= LARGE
        if large:
            gc.collect()
            rest = reset_peak()
        problems, seconds = await self._timed(case)
        allowed = SECONDS * max(1.0, len(case.body) / self._in_time(case))
        # On a busy machine, the thread of large reviews may starve and the same work takes more processor time. Repeat
        # the case: a handler that really hangs or is slow does so again.
        for _ in range(2):
            if seconds <= allowed and not any("no answer within" in problem for problem in problems):
                break
            problems, again = await self._timed(case)
            seconds = min(seconds, again)
        if seconds > allowed:
            problems.append(f"took {seconds * 1000:.0f} ms of processor time")
        held = max(MEMORY_BYTES, HOLDS * len(case.body))
        if case.path == "/convert":
            held = 2 * MEMORY_BYTES + CONVERSION_HOLDS * len(case.body)
        if large and (more := peak() - rest) > held:
            problems.append(f"held {more / 1024 / 1024:.0f} MiB more")
        return problems

    async def _timed(self, case: Case) -> tuple[list[str], float]:
        """Return the problems of the answer, and the processor time it took."""
        started = time.process_time()
        try:
            problems = await self._answered(case)
        except Exception as error:  # noqa: BLE001 - reported as a finding
            problems = [f"raised {type(error).__name__}: {str(error)[:200]}"]
        return problems, time.process_time() - started

    @staticmethod
    def _in_time(case: Case) -> float:
        """Return the size from which a case may take longer than SECONDS."""
        if case.decoder or case.path == "/convert":
            return LARGEST_STORED
        return LARGE_OBJECT if "kruise-io" in case.path else LARGEST_REQUEST

    async def _answered(self, case: Case) -> list[str]:
        if case.decoder:
            return self._decoded(case)
        if case.pieces:
            return await self._connection(case.pieces)
        status, body = await posted(self._app, case.path, case.body)
        problems = [f"HTTP {status}"] if status >= 500 else []
        if case.noted is not None and (found := notes.smuggled(*case.noted)):
            problems.append(found)
        panics = sum(stats.panics for stats in self._app.review_log.paths)
        if panics != self._panics:
            self._panics = panics
            problems.append(f"a handler failed: {body[:300].decode('utf-8', 'replace')}")
        if case.path != "/convert":
            response = json.loads(body).get("response", {})
            code = response.get("status", {}).get("code", 200)
            if code >= 500:
                problems.append(f"review answered with {code}: {response['status'].get('message', '')[:300]}")
        return problems

    def _decoded(self, case: Case) -> list[str]:
        decode = self._decoders[case.decoder]
        jsonvalues.split_list(case.body)
        with contextlib.suppress(ValueError, msgspec.MsgspecError):
            jsonvalues.read(decode, case.body)
        return []

    async def _connection(self, pieces: list[bytes]) -> list[str]:
        """Answer one connection of a client that sends these pieces and waits."""
        loop = asyncio.get_running_loop()
        protocol = BoundedProtocol(self._server.config, self._server.server_state, loop, self.connections)
        transport = _Transport(protocol)
        protocol.connection_made(cast("asyncio.Transport", transport))
        problems = []
        for piece in pieces:
            protocol.data_received(piece)
            while self._server.server_state.tasks:
                await asyncio.sleep(0)
        bodies = self.connections.limits.bodies
        if self.connections.held > max(self.connections.limits.body_bytes, *bodies.values()):
            problems.append(f"{self.connections.held} bytes held")
        if not transport.closed:
            protocol.check(loop.time() + 1000)
        if not transport.lost:
            protocol.check(loop.time() + 2000)
        if not transport.lost:
            problems.append("the connection is not given up")
        if self.connections.held or self.connections.open:
            problems.append("the connections still holds it")
        return [*problems, *_wrong_answers(bytes(transport.written))]


def _wrong_answers(written: bytes) -> list[str]:
    while written:
        head, found, rest = written.partition(b"\r\n\r\n")
        if not found or not head.startswith(b"HTTP/1.1 "):
            return [f"no answer: {written[:100]!r}"]
        status = int(head[9:12])
        if status >= 500:
            return [f"HTTP {status}"]
        if status == 100:
            written = rest
            continue
        length = next(
            (int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), None
        )
        if length is None:
            return [] if b"transfer-encoding: chunked" in head else [f"an answer without length: {head!r}"]
        if rest.startswith(b"HTTP/1.1 ") and length:  # the answer to HEAD
            length = 0
        written = rest[length:]
    return []


class _Transport:
    """A connection without a network."""

    def __init__(self, protocol: BoundedProtocol) -> None:
        self._protocol = protocol
        self.written = bytearray()
        self.closed = self.lost = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 1) if name in ("peername", "sockname") else default

    def write(self, data: bytes) -> None:
        if not self.lost:
            self.written += data

    def close(self) -> None:
        self.closed = True
        self.abort()

    def abort(self) -> None:
        if not self.lost:
            self.closed = self.lost = True
            self._protocol.connection_lost(None)

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0


def reset_peak() -> int:
    """Reset the peak and return the memory in use."""
    Path("/proc/self/clear_refs").write_text("5", "ascii")
    return _status("VmRSS")


def peak() -> int:
    """Return the peak memory since the last reset."""
    return _status("VmHWM")


def _status(name: str) -> int:
    text = Path("/proc/self/status").read_text("ascii")
    line = next(line for line in text.splitlines() if line.startswith(name))
    return int(line.split()[1]) * 1024
