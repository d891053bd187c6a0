"""What the processes of a replica know of each other: shared values, counts and their exposition."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import mmap
import os
import struct
import time
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Generic, TypeAlias, TypeVar

import msgspec
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

# Metrics of several processes as one exposition: what is counted is added up, and goes on where a process ended.
#
# prometheus-client's own multiprocess mode wants a writable folder and its own value class for each metric; ours are
# plain numbers where reviews are counted. So each process hands over what its registry collects.

#: Sample name and labels.
_Key: TypeAlias = tuple[str, tuple[tuple[str, str], ...]]


def _soonest(one: float, other: float) -> float:
    """The smaller of two moments; zero: none known."""
    return min(one, other) if one and other else one or other


#: Gauges that are not added up: all processes tell the same, or the one that is worst off counts.
_COMBINED: Final[Mapping[str, Callable[[float, float], float]]] = {
    "python_info": max,
    "kruise_manager_is_leader": max,
    "kruise_manager_missing_rights": max,
    "kruise_serving_certificate_expiry_timestamp_seconds": _soonest,
}


class Family(msgspec.Struct, frozen=True, array_like=True):
    """One metric as a process has it."""

    name: str
    help: str
    type: str
    samples: list[tuple[str, dict[str, str], float]]

    @property
    def accumulates(self) -> bool:
        """Whether its values only grow, so that they must go on where a predecessor of the process ended."""
        return self.type in ("counter", "histogram", "summary") and not self.of_process

    @property
    def of_process(self) -> bool:
        """Whether it describes the process itself: shown per process."""
        return self.name.startswith("process_")


def families(registry: CollectorRegistry) -> list[Family]:
    """Everything a registry holds now."""
    return [
        Family(
            metric.name,
            metric.documentation,
            metric.type,
            [(sample.name, dict(sample.labels), float(sample.value)) for sample in metric.samples],
        )
        for metric in registry.collect()
    ]


def continued(now: Sequence[Family], predecessor: Sequence[Family]) -> list[Family]:
    """What a process counts on top of what the one before it in the same place had counted."""
    before = {family.name: family for family in predecessor if family.accumulates}
    found = []
    for family in now:
        old = before.pop(family.name, None)
        found.append(family if old is None else _added(family.name, [("", old), ("", family)]))
    return [*found, *before.values()]


def merged(of_processes: Mapping[str, Sequence[Family]]) -> list[Family]:
    """One family per name out of those of all processes."""
    together: dict[str, list[tuple[str, Family]]] = {}
    for process, found in of_processes.items():
        for family in found:
            together.setdefault(family.name, []).append((process, family))
    return [_added(name, parts) for name, parts in together.items()]


def _added(name: str, parts: Sequence[tuple[str, Family]]) -> Family:
    combine = _COMBINED.get(name)
    values: dict[_Key, float] = {}
    for process, family in parts:
        for sample, labels, value in family.samples:
            shown = {**labels, "process": process} if family.of_process else labels
            key = (sample, tuple(shown.items()))
            if key not in values:
                values[key] = value
            elif combine is None:
                values[key] += value
            else:
                values[key] = combine(values[key], value)
    first = parts[0][1]
    samples = [(sample, dict(labels), value) for (sample, labels), value in values.items()]
    return Family(name, first.help, first.type, samples)


def text(found: Iterable[Family]) -> bytes:
    """The text Prometheus scrapes."""
    all_of_them = list(found)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Ready(all_of_them))
    shown = generate_latest(registry)
    for family in all_of_them:
        # Counters whose names OpenKruise chose have no ``_total``; prometheus-client heads every counter with it.
        if family.type == "counter" and any(name == family.name for name, _, _ in family.samples):
            for head in ("HELP", "TYPE"):
                shown = shown.replace(f"# {head} {family.name}_total ".encode(), f"# {head} {family.name} ".encode())
    return shown


class _Ready(Collector):
    def __init__(self, found: Iterable[Family]) -> None:
        self._found = found

    def collect(self) -> Iterable[Metric]:
        for family in self._found:
            metric = Metric(family.name, family.help, family.type)
            for sample, labels, value in family.samples:
                metric.add_sample(sample, labels, value)
            yield metric


# Shared memory: what the processes of one replica know of each other.
#
# The supervisor makes it before it forks; every process writes its own values and reads the others'. Nobody waits for
# anybody: a process that is dead, stopped or busy leaves its last word standing, and the one that takes its place
# finds it there. So a counter never goes back, and a certificate outlives the process that fetched it.

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


# Counts: a process's metrics on its shared memory, and those of all processes of a replica as one text.
#
# Every process writes every few seconds, so that little is lost with it, and when it is asked to, so that a scrape is
# fresh. What was scraped is written down, so nobody sees a counter go back.

logger = logging.getLogger(__name__)

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


#: How long a scrape waits for processes that are busy, stopped or gone.
GATHER_SECONDS: Final = 0.25
_LOOK_SECONDS: Final = 0.005


class Counts:
    """One process's view. What its predecessor in the same place counted is added: no counter goes back."""

    def __init__(self, replica: Replica, name: str, registry: CollectorRegistry) -> None:
        self._replica = replica
        self._name = name
        self._registry = registry
        before = replica.details[name].read()
        self._predecessor: list[Family] = before.families if before is not None else []
        self._debug: dict[str, list[str]] = {}

    def publish(self, debug: Mapping[str, list[str]]) -> None:
        """Show the others what was counted until now, and the lines of the debug pages."""
        self._debug = dict(debug)
        self._write(self._own())

    def _write(self, own: list[Family]) -> None:
        try:
            self._replica.details[self._name].write(Details(own, self._debug))
        except ValueError as error:
            logger.error("%s: metrics and debug pages are not shown: %s", self._name, error)  # noqa: TRY400

    async def gather(self) -> None:
        """Let the other processes write what they have now; who does not in time is shown as it was last."""
        before = {name: shared.version for name, shared in self._replica.details.items() if name != self._name}
        for name in before:
            self._replica.request_publication(name)
        deadline = time.monotonic() + GATHER_SECONDS
        while time.monotonic() < deadline:
            if all(self._replica.details[name].version != version for name, version in before.items()):
                return
            await asyncio.sleep(_LOOK_SECONDS)

    async def exposition(self) -> bytes:
        """The metrics of the replica as Prometheus scrapes them."""
        await self.gather()
        found: dict[str, list[Family]] = {}
        for name, shared in self._replica.details.items():
            details = shared.read()
            if name == self._name:
                found[name] = self._own()
                self._write(found[name])  # what was scraped once outlives us, so that no counter goes back
            elif details is not None:
                found[name] = details.families
        return text([*merged(found), *of_supervisor(self._replica)])

    def _own(self) -> list[Family]:
        return continued(families(self._registry), self._predecessor)


def of_supervisor(replica: Replica) -> list[Family]:
    """What the supervisor knows of the processes of its replica."""
    lives = [({"process": name}, shared.read() or Life()) for name, shared in replica.lives.items()]
    return [
        Family(
            "kruise_process_restarts",
            "How often a process was started again.",
            "counter",
            [("kruise_process_restarts_total", labels, life.restarts) for labels, life in lives],
        ),
        Family(
            "kruise_process_hangs",
            "How often a process gave no sign of life and was ended.",
            "counter",
            [("kruise_process_hangs_total", labels, life.hangs) for labels, life in lives],
        ),
        Family(
            "kruise_process_failing_seconds",
            "For how long a process has been ending again and again without getting going; 0 while it is well.",
            "gauge",
            [("kruise_process_failing_seconds", labels, life.failing_seconds(time.time())) for labels, life in lives],
        ),
    ]
