"""Shared memory: what the processes of one replica know of each other.

The supervisor makes it before it forks; every process writes its own values and reads the others'. Nobody waits for
anybody: a process that is dead, stopped or busy leaves its last word standing, and the one that takes its place finds
it there. So a counter never goes back, and a certificate outlives the process that fetched it.
"""

from __future__ import annotations

import asyncio
import contextlib
import mmap
import os
import struct
import time
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Generic, TypeVar

import msgspec

from app.manager.exposition import Family

T = TypeVar("T")

_VERSION: Final = struct.Struct("<Q")
_HEAD: Final = struct.Struct("<II")
_BEAT: Final = struct.Struct("<d")
#: Reserved, not used: memory is taken page by page as it is written.
_STATE_BYTES: Final = 2**20
_DETAIL_BYTES: Final = 2**26


class Certificate(msgspec.Struct, frozen=True, array_like=True):
    """What listeners serve, and what clients must trust to believe them; all PEM."""

    cert: bytes
    key: bytes
    ca_bundle: bytes


class State(msgspec.Struct, frozen=True, array_like=True):
    """How far a process is. Small, and written the moment it changes."""

    pid: int = 0
    #: What it still waits for → why.
    missing: dict[str, str] = {}
    stopping: bool = False
    #: Reconciler only, and true for good once true: the API server has our kinds; our webhooks are registered.
    defined: bool = False
    registered: bool = False
    #: Whether it holds the Lease, and who does as far as it knows.
    leading: bool = False
    leader: str = ""

    @property
    def ready(self) -> bool:
        """Whether it does its work."""
        return bool(self.pid) and not self.missing and not self.stopping


class Details(msgspec.Struct, frozen=True, array_like=True):
    """What a process counts and what its debug pages show; written every few seconds, and on request."""

    families: list[Family] = []
    #: Page → lines.
    debug: dict[str, list[str]] = {}


#: A process that lived this long got going.
STABLE_SECONDS: Final = 60.0


class Life(msgspec.Struct, frozen=True, array_like=True):
    """What the supervisor knows of one process."""

    pid: int = 0
    restarts: int = 0
    hangs: int = 0
    #: When it was started, or ended where it is not running now.
    started: float = 0.0
    #: Since when it has never lived for STABLE_SECONDS; 0: it never ended.
    failing_since: float = 0.0

    def failing_seconds(self, now: float) -> float:
        """For how long it has been ending again and again; 0 while it is well."""
        return max(0.0, now - self.failing_since) if self.failing_since and now - self.started < STABLE_SECONDS else 0.0


class SharedValue(Generic[T]):
    """One value with one writer at a time and any number of readers, of which none ever sees half a write."""

    def __init__(self, kind: type[T], size: int) -> None:
        self._memory = mmap.mmap(-1, size)
        self._half = (size - _VERSION.size) // 2
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(kind)
        self._seen = 0
        self._value: T | None = None

    @property
    def version(self) -> int:
        """Grows with each write; zero: nothing was written yet."""
        return int(_VERSION.unpack_from(self._memory)[0])

    def write(self, value: T) -> None:
        """Replace the value. Raises ValueError for one that is too big."""
        data = self._encoder.encode(value)
        if len(data) + _HEAD.size > self._half:
            raise ValueError(f"{len(data)} bytes are more than the {self._half} that processes may share")
        version = self.version + 1
        start = self._start(version)
        body = start + _HEAD.size
        self._memory[body : body + len(data)] = data
        _HEAD.pack_into(self._memory, start, len(data), zlib.crc32(data))
        # Last: who dies before this line has written nothing.
        _VERSION.pack_into(self._memory, 0, version)

    def read(self) -> T | None:
        """The value as it stands; None as long as there is none."""
        while (version := self.version) != self._seen:
            data = self._data(version)
            # Two writes may have come while we copied; then the sum is wrong, and the newer one is complete.
            if data is not None:
                self._value = self._decoder.decode(data)
                self._seen = version
        return self._value

    def _start(self, version: int) -> int:
        return _VERSION.size + (version % 2) * self._half

    def _data(self, version: int) -> bytes | None:
        start = self._start(version)
        length, checksum = _HEAD.unpack_from(self._memory, start)
        body = start + _HEAD.size
        if length > self._half - _HEAD.size:
            return None
        data = self._memory[body : body + length]
        return data if zlib.crc32(data) == checksum else None


class Replica:
    """All that the processes of one replica share. ``processes`` are their names, the supervisor not among them."""

    def __init__(self, processes: Sequence[str]) -> None:
        self.processes = tuple(processes)
        self.certificate = SharedValue(Certificate, _STATE_BYTES)
        self._absent = SharedValue(list[str], _STATE_BYTES)
        self.states = {name: SharedValue(State, _STATE_BYTES) for name in processes}
        self.details = {name: SharedValue(Details, _DETAIL_BYTES) for name in processes}
        self.lives = {name: SharedValue(Life, 4096) for name in processes}
        self._beats = mmap.mmap(-1, _BEAT.size * len(self.processes))
        self._flags = mmap.mmap(-1, 1)
        self._pipes = {name: _pipe() for name in processes}

    def close(self) -> None:
        """Give the pipes back; only for who makes many replicas in one process."""
        for ends in self._pipes.values():
            for end in ends:
                os.close(end)

    def state(self, name: str) -> State:
        """How far a process is."""
        return self.states[name].read() or State()

    @property
    def absent(self) -> Sequence[str]:
        """The names of our CustomResourceDefinitions that are not installed; their kinds are off."""
        return self._absent.read() or ()

    def set_absent(self, definitions: Iterable[str]) -> None:
        """Say which of our CustomResourceDefinitions are not installed."""
        self._absent.write(sorted(definitions))

    def beat(self, name: str) -> None:
        """This process is alive now."""
        _BEAT.pack_into(self._beats, self.processes.index(name) * _BEAT.size, time.monotonic())

    def last_beat(self, name: str) -> float:
        """When a process last said that it is alive (monotonic; the same scale in all processes)."""
        return float(_BEAT.unpack_from(self._beats, self.processes.index(name) * _BEAT.size)[0])

    def request_publication(self, name: str) -> None:
        """Ask a process to write its details now. Asks nothing of one that was asked and has not looked yet."""
        with contextlib.suppress(BlockingIOError):
            os.write(self._pipes[name][1], b"!")

    def on_publication_request(self, name: str, answer: Callable[[], None]) -> None:
        """Call ``answer`` in the running loop whenever somebody asks this process."""
        pipe = self._pipes[name][0]

        def requested() -> None:
            with contextlib.suppress(BlockingIOError):
                os.read(pipe, 4096)
            answer()

        asyncio.get_running_loop().add_reader(pipe, requested)

    @property
    def was_ready(self) -> bool:
        """Whether the whole replica was ready once (D-18: readiness latches)."""
        return self._flags[0] == 1

    def latch_ready(self) -> None:
        """All of it is ready."""
        self._flags[0] = 1


def _pipe() -> tuple[int, int]:
    ends = os.pipe()
    for end in ends:
        os.set_blocking(end, False)
    return ends
