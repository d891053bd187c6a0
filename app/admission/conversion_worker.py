"""Convert large reviews in a worker process: a list of 10,000 objects takes seconds, and other reviews must not wait.

The process reads bodies from its input, writes responses to its output, and exits when the input is closed.
``ConversionWorker`` starts it on demand and stops it when it has been idle for a while.
"""

from __future__ import annotations

import asyncio
import heapq
import os
import socket
import struct
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple, Self

import msgspec

from app.admission.conversion import Converted, convert_review
from app.api.conversion import convert

#: Bodies up to this size are converted in the main process, which takes a few milliseconds.
SMALL_BYTES: Final = 64 * 1024
#: Maximum duration of one conversion, including the time in the queue: the API server's maximum webhook timeout.
LIMIT_SECONDS: Final = 30.0
#: Bytes per second of delay: in the queue, large bodies count as having arrived later. Otherwise, a client that keeps
#: listing a large namespace would delay other clients' small lists beyond their timeout.
_BYTES_PER_SECOND: Final = 4 * 1024 * 1024
#: Seconds after which an idle process is stopped.
IDLE_SECONDS: Final = 60.0

_LENGTH: Final = struct.Struct("!II")
_SLICE: Final = 256 * 1024


#: Decodes a response without its payload: status, outcome, unconverted, reasons.
_decode_head = msgspec.msgpack.Decoder(tuple[int, str, int, tuple[str, ...]]).decode


class _Process(NamedTuple):
    """The process, and the socket connected to its input and output."""

    popen: subprocess.Popen[bytes]
    source: asyncio.StreamReader
    sink: asyncio.StreamWriter

    @classmethod
    async def start(cls, command: Sequence[str]) -> Self:
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                popen = _start(command, theirs)
            return cls(popen, *await asyncio.open_unix_connection(sock=ours))
        except BaseException:
            ours.close()  # The process exits when its input is closed.
            raise

    def kill(self) -> asyncio.Future[int]:
        """Kill the process, and return a future that is done when it has exited."""
        self.popen.kill()
        self.sink.transport.abort()
        return asyncio.get_running_loop().run_in_executor(None, self.popen.wait)


def _start(command: Sequence[str], connection: socket.socket) -> subprocess.Popen[bytes]:
    """Start the process with subprocess: asyncio under uvloop would spend 10 to 20 ms copying page tables."""
    root = str(Path(__file__).parents[2])
    path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": path}
    there = connection.fileno()
    return subprocess.Popen(command, stdin=there, stdout=there, start_new_session=True, env=environment)  # noqa: S603


class _Turns:
    """A lock whose waiters are ordered by arrival time plus a delay that grows with the size of the body."""

    def __init__(self) -> None:
        self._busy = False
        #: Waiters: deadline, order of arrival, future.
        self._waiting: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = count()

    @asynccontextmanager
    async def taken(self, size: int) -> AsyncIterator[None]:
        """Hold the lock for a body of this size."""
        await self._take(size)
        try:
            yield
        finally:
            self._pass_on()

    async def _take(self, size: int) -> None:
        if not self._busy:
            self._busy = True
            return
        loop = asyncio.get_running_loop()
        turn = loop.create_future()
        heapq.heappush(self._waiting, (loop.time() + size / _BYTES_PER_SECOND, next(self._order), turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._pass_on()  # canceled after the turn was granted
            raise

    def _pass_on(self) -> None:
        while self._waiting:
            _, _, turn = heapq.heappop(self._waiting)
            if not turn.done():
                turn.set_result(None)
                return
        self._busy = False


class ConversionWorker:
    """Client of the worker process. Reviews are converted one at a time."""

    def __init__(self, module: str, *arguments: str) -> None:
        """Create a client for the program ``module``, which must call :func:`work`."""
        self._command = (sys.executable, "-m", module, *arguments)
        self._process: _Process | None = None
        self._ended: asyncio.Future[int] | None = None
        self._turns = _Turns()
        self._idle: asyncio.TimerHandle | None = None

    async def answer(self, parts: Sequence[bytes]) -> Converted:
        """Return the response to a ConversionReview given in parts.

        Raises ``TimeoutError``, or ``OSError`` if the process failed.
        """
        async with asyncio.timeout(LIMIT_SECONDS), self._turns.taken(sum(map(len, parts))):
            if self._idle is not None:
                self._idle.cancel()
            try:
                answer = await self._exchange(await self._running(), parts)
            except BaseException:
                self.stop()  # abandon the conversion in progress
                raise
            self._idle = asyncio.get_running_loop().call_later(IDLE_SECONDS, self.stop)
            return answer

    def stop(self) -> None:
        """Stop the process; the next conversion starts another."""
        process, self._process = self._process, None
        if process is not None:
            self._ended = process.kill()

    async def close(self) -> None:
        """Stop the process and wait until it has exited."""
        if self._idle is not None:
            self._idle.cancel()
        self.stop()
        if self._ended is not None:
            await self._ended

    async def _running(self) -> _Process:
        if self._process is not None and self._process.popen.poll() is not None:
            self.stop()
        if self._process is None:
            self._process = await _Process.start(self._command)
        return self._process

    async def _exchange(self, process: _Process, body: Sequence[bytes]) -> Converted:
        _, source, sink = process
        try:
            sink.write(_LENGTH.pack(sum(map(len, body)), 0))
            for part in body:
                for start in range(0, len(part), _SLICE):
                    sink.write(part[start : start + _SLICE])
                    await sink.drain()
            head_size, size = _LENGTH.unpack(await source.readexactly(_LENGTH.size))
            status, outcome, unconverted, reasons = _decode_head(await source.readexactly(head_size))
            parts = [await source.readexactly(min(_SLICE, size - start)) for start in range(0, size, _SLICE)]
        except EOFError:
            raise OSError("the conversion process exited before responding") from None
        return Converted(status, parts, outcome, unconverted, reasons)


def work(source: BinaryIO, sink: BinaryIO) -> None:
    """Convert reviews until the input is closed."""
    while len(head := source.read(_LENGTH.size)) == _LENGTH.size:
        size, _ = _LENGTH.unpack(head)
        answer = convert_review(source.read(size), convert)
        payload = answer.payload
        encoded = msgspec.msgpack.encode((answer.status, answer.outcome, answer.unconverted, answer.reasons))
        sink.write(_LENGTH.pack(len(encoded), len(payload)))
        sink.write(encoded)
        sink.write(payload)
        sink.flush()
