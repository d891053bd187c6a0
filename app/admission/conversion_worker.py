"""Large conversions, in a process of their own: a list of 10,000 objects takes seconds, and reviews must not wait.

It reads bodies from its input and writes answers to its output, and ends with its input. ``ConversionWorker`` starts it
when it is needed and ends it when nothing was converted for a while.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import struct
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from app.admission.conversion import Converted, convert_review
from app.api.conversion import convert

#: What is converted on the spot: some milliseconds.
SMALL_BYTES: Final = 64 * 1024
#: How long one conversion may take, waiting for others included: what an API server waits at most.
LIMIT_SECONDS: Final = 30.0
#: How long the process is kept for the next.
IDLE_SECONDS: Final = 60.0

_LENGTH: Final = struct.Struct("!II")
_SLICE: Final = 256 * 1024


class _Head(msgspec.Struct, frozen=True, array_like=True):
    """All of an answer but its payload."""

    status: int
    outcome: str
    unconverted: int
    reasons: tuple[str, ...]


_decode_head = msgspec.msgpack.Decoder(_Head).decode


class ConversionWorker:
    """The other end of the process. Reviews are converted one after the other."""

    def __init__(self, module: str, *arguments: str) -> None:
        """``module`` is the program, which calls :func:`work`."""
        self._program = ("-m", module, *arguments)
        self._process: Process | None = None
        self._lock = asyncio.Lock()
        self._idle: asyncio.TimerHandle | None = None

    async def answer(self, body: bytes) -> Converted:
        """The answer to a ConversionReview. Raises ``TimeoutError``, and ``OSError`` where the process failed."""
        async with asyncio.timeout(LIMIT_SECONDS), self._lock:
            if self._idle is not None:
                self._idle.cancel()
            try:
                answer = await self._exchange(await self._running(), body)
            except BaseException:
                self.stop()  # what it is at is not wanted any more
                raise
            self._idle = asyncio.get_running_loop().call_later(IDLE_SECONDS, self.stop)
            return answer

    def stop(self) -> None:
        """End the process; the next conversion starts another."""
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()

    async def close(self) -> None:
        """End the process, and wait until it is gone."""
        process = self._process
        if self._idle is not None:
            self._idle.cancel()
        self.stop()
        if process is not None:
            await process.communicate()

    async def _running(self) -> Process:
        if self._process is None or self._process.returncode is not None:
            # A large body was just put together. That, and to start a process, hold reviews up for 20 ms each.
            await asyncio.sleep(0)
            root = str(Path(__file__).parents[2])
            path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, *self._program, stdin=PIPE, stdout=PIPE, start_new_session=True,
                env={**os.environ, "PYTHONPATH": path},
            )  # fmt: skip
        return self._process

    async def _exchange(self, process: Process, body: bytes) -> Converted:
        sink, source = process.stdin, process.stdout
        if sink is None or source is None:
            raise OSError("the conversion process has no pipes")
        try:
            sink.write(_LENGTH.pack(len(body), 0))
            view = memoryview(body)
            for start in range(0, len(body), _SLICE):
                sink.write(view[start : start + _SLICE])
                await sink.drain()
            head_size, size = _LENGTH.unpack(await source.readexactly(_LENGTH.size))
            head = _decode_head(await source.readexactly(head_size))
            parts = [await source.readexactly(min(_SLICE, size - start)) for start in range(0, size, _SLICE)]
        except EOFError:
            raise OSError("the conversion process ended before it had answered") from None
        return Converted(head.status, b"".join(parts), head.outcome, head.unconverted, head.reasons)


def work(source: BinaryIO, sink: BinaryIO) -> None:
    """Answer until the input ends."""
    while len(head := source.read(_LENGTH.size)) == _LENGTH.size:
        size, _ = _LENGTH.unpack(head)
        answer = convert_review(source.read(size), convert)
        encoded = msgspec.msgpack.encode(_Head(answer.status, answer.outcome, answer.unconverted, answer.reasons))
        sink.write(_LENGTH.pack(len(encoded), len(answer.payload)))
        sink.write(encoded)
        sink.write(answer.payload)
        sink.flush()
