"""State shared between the processes of a replica: values, counters and their exposition."""

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

# The metrics of several processes are combined in one exposition: counters are summed, and those of a restarted process
# continue from its predecessor's values. prometheus-client's multiprocess mode needs a writable folder and a special
# value class for every metric, but reviews are counted in plain numbers. Each process therefore publishes what its
# registry collects.

#: Sample name and labels.
_Key: TypeAlias = tuple[str, tuple[tuple[str, str], ...]]


def _soonest(one: float, other: float) -> float:
    """Return the earlier of two times; zero means unknown."""
    return min(one, other) if one and other else one or other


#: Gauges that are not summed: either all processes report the same value, or the worst value is reported.
_COMBINED: Final[Mapping[str, Callable[[float, float], float]]] = {
    "python_info": max,
    "kruise_serving_certificate_expiry_timestamp_seconds": _soonest,
}


class Family(msgspec.Struct, frozen=True, array_like=True):
    """A metric of one process."""

    name: str
    help: str
    type: str
    samples: list[tuple[str, dict[str, str], float]]

    @property
    def accumulates(self) -> bool:
        """Whether its values only increase and must therefore continue from those of the process's predecessor."""
        return self.type in ("counter", "histogram", "summary") and not self.of_process

    @property
    def of_process(self) -> bool:
        """Whether it describes the process itself and is shown per process."""
        return self.name.startswith("process_")


def families(registry: CollectorRegistry) -> list[Family]:
    """Return the current metrics of a registry."""
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
    """Return the metrics of a process with its predecessor's counts added."""
    before = {family.name: family for family in predecessor if family.accumulates}
    found = []
    for family in now:
        old = before.pop(family.name, None)
        found.append(family if old is None else _added(family.name, [("", old), ("", family)]))
    return [*found, *before.values()]


def merged(of_processes: Mapping[str, Sequence[Family]]) -> list[Family]:
    """Merge the metrics of all processes into one family per name."""
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
    """Return the metrics in Prometheus text format."""
    all_of_them = list(found)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Ready(all_of_them))
    shown = generate_latest(registry)
    for family in all_of_them:
        # Counters named by OpenKruise have no ``_total`` suffix, which prometheus-client adds to every header.
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


# Shared memory between the processes of one replica. The supervisor creates it before it forks. Every process writes
# its own values and reads those of the others without locks: the last value of a dead or busy process stays readable,
# and its successor continues from it. Counters therefore never decrease, and a certificate outlives the process that
# fetched it.

T = TypeVar("T")

_VERSION: Final = struct.Struct("<Q")
_HEAD: Final = struct.Struct("<II")
_BEAT: Final = struct.Struct("<d")
#: Reserved address space; each page of memory is allocated on its first write.
_STATE_BYTES: Final = 2**20
_DETAIL_BYTES: Final = 2**26


class Certificate(msgspec.Struct, frozen=True, array_like=True):
    """The certificate that listeners serve and the CAs that clients must trust, all PEM."""

    cert: bytes
    key: bytes
    ca_bundle: bytes


class State(msgspec.Struct, frozen=True, array_like=True):
    """State of a process, published on every change."""

    pid: int = 0
    #: Unmet requirement → reason.
    missing: dict[str, str] = {}
    stopping: bool = False
    #: Whether the API server serves our kinds, and whether our webhooks are registered. Set by the reconciler, never
    #: reset.
    defined: bool = False
    registered: bool = False
    #: Whether this process holds the Lease, and the last known holder.
    leading: bool = False
    leader: str = ""
    #: Webhook processes only: whether no review came from the address of a known API server.
    only_strangers: bool = False

    @property
    def ready(self) -> bool:
        """Whether it is fully operational."""
        return bool(self.pid) and not self.missing and not self.stopping

    @property
    def obstacle(self) -> str:
        """Why it is not operational yet."""
        return "; ".join(f"{what}: {why}" for what, why in self.missing.items()) or "starting"


class Details(msgspec.Struct, frozen=True, array_like=True):
    """Metrics and debug pages of a process, published every few seconds and on request."""

    families: list[Family] = []
    #: Page → lines.
    debug: dict[str, list[str]] = {}


#: Seconds after which a process counts as started successfully.
STABLE_SECONDS: Final = 60.0


class Life(msgspec.Struct, frozen=True, array_like=True):
    """The supervisor's record of one process."""

    pid: int = 0
    restarts: int = 0
    hangs: int = 0
    #: When the process was started, or when it exited if it is not running.
    started: float = 0.0
    #: When its last run of at least STABLE_SECONDS ended, else the time of its first exit; 0 if it never exited.
    failing_since: float = 0.0

    def failing_seconds(self, now: float) -> float:
        """Return the seconds since the process was last healthy; 0 while it is."""
        return max(0.0, now - self.failing_since) if self.failing_since and now - self.started < STABLE_SECONDS else 0.0


class SharedValue(Generic[T]):
    """A value with one writer and any number of readers. Readers never see a partial write."""

    def __init__(self, kind: type[T], size: int) -> None:
        self._memory = mmap.mmap(-1, size)
        self._half = (size - _VERSION.size) // 2
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(kind)
        self._seen = 0
        self._value: T | None = None

    @property
    def version(self) -> int:
        """Version, incremented by each write; zero means nothing was written."""
        return int(_VERSION.unpack_from(self._memory)[0])

    def write(self, value: T) -> None:
        """Replace the value. Raises ValueError if it is too large."""
        data = self._encoder.encode(value)
        if len(data) + _HEAD.size > self._half:
            raise ValueError(f"{len(data)} bytes exceed the {self._half} available to a shared value")
        version = self.version + 1
        start = self._start(version)
        body = start + _HEAD.size
        self._memory[body : body + len(data)] = data
        _HEAD.pack_into(self._memory, start, len(data), zlib.crc32(data))
        # Written last: if the process dies before this line, the old value remains.
        _VERSION.pack_into(self._memory, 0, version)

    def read(self) -> T | None:
        """Return the current value, or None if nothing was written."""
        while (version := self.version) != self._seen:
            data = self._data(version)
            # If two writes happened during the copy, the checksum fails, and the loop reads the newer value.
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
    """All values shared by the processes of one replica. ``processes`` are their names, without the supervisor."""

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
        """Close the pipes. Needed only if one process creates many replicas."""
        for ends in self._pipes.values():
            for end in ends:
                os.close(end)

    def state(self, name: str) -> State:
        return self.states[name].read() or State()

    @property
    def absent(self) -> Sequence[str]:
        """Names of our CustomResourceDefinitions that are not installed; their kinds are disabled."""
        return self._absent.read() or ()

    def set_absent(self, definitions: Iterable[str]) -> None:
        """Publish which of our CustomResourceDefinitions are not installed."""
        self._absent.write(sorted(definitions))

    def beat(self, name: str) -> None:
        _BEAT.pack_into(self._beats, self.processes.index(name) * _BEAT.size, time.monotonic())

    def last_beat(self, name: str) -> float:
        """Return the time of a process's last heartbeat (monotonic, comparable between processes)."""
        return float(_BEAT.unpack_from(self._beats, self.processes.index(name) * _BEAT.size)[0])

    def request_publication(self, name: str) -> None:
        """Ask a process to publish its details now. A pending request is not repeated."""
        with contextlib.suppress(BlockingIOError):
            os.write(self._pipes[name][1], b"!")

    def on_publication_request(self, name: str, answer: Callable[[], None]) -> None:
        """Call ``answer`` in the running loop on each request to publish."""
        pipe = self._pipes[name][0]

        def requested() -> None:
            with contextlib.suppress(BlockingIOError):
                os.read(pipe, 4096)
            answer()

        asyncio.get_running_loop().add_reader(pipe, requested)

    @property
    def was_ready(self) -> bool:
        """Whether the replica has been ready at least once."""
        return self._flags[0] == 1

    def latch_ready(self) -> None:
        self._flags[0] = 1


def _pipe() -> tuple[int, int]:
    ends = os.pipe()
    for end in ends:
        os.set_blocking(end, False)
    return ends


# Publish a process's metrics in shared memory, and expose those of all processes as one text. Each process publishes
# every few seconds, so that little is lost if it dies, and on request, so that a scrape is current. A process also
# publishes the values that it returns to a scrape, so that counters never decrease.

logger = logging.getLogger(__name__)

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


#: Maximum seconds that a scrape waits for busy processes.
GATHER_SECONDS: Final = 0.25
_LOOK_SECONDS: Final = 0.005


class Counts:
    """Metrics of one process. Its predecessor's counts are added, so that counters never decrease."""

    def __init__(self, replica: Replica, name: str, registry: CollectorRegistry) -> None:
        self._replica = replica
        self._name = name
        self._registry = registry
        before = replica.details[name].read()
        self._predecessor: list[Family] = before.families if before is not None else []
        self._debug: dict[str, list[str]] = {}

    def publish(self, debug: Mapping[str, list[str]]) -> None:
        """Publish the current metrics and the lines of the debug pages."""
        self._debug = dict(debug)
        self._write(self._own())

    def _write(self, own: list[Family]) -> None:
        try:
            self._replica.details[self._name].write(Details(own, self._debug))
        except ValueError as error:
            logger.error("%s: cannot publish metrics and debug pages: %s", self._name, error)  # noqa: TRY400

    async def gather(self) -> None:
        """Ask the other processes to publish. If one does not respond in time, its last values are used."""
        before = {name: shared.version for name, shared in self._replica.details.items() if name != self._name}
        for name in before:
            self._replica.request_publication(name)
        deadline = time.monotonic() + GATHER_SECONDS
        while time.monotonic() < deadline:
            if all(self._replica.details[name].version != version for name, version in before.items()):
                return
            await asyncio.sleep(_LOOK_SECONDS)

    async def exposition(self) -> bytes:
        """Return the metrics of the replica in Prometheus text format."""
        await self.gather()
        found: dict[str, list[Family]] = {}
        for name, shared in self._replica.details.items():
            details = shared.read()
            if name == self._name:
                found[name] = self._own()
                self._write(found[name])  # scraped values must outlive this process
            elif details is not None:
                found[name] = details.families
        return text([*merged(found), *of_supervisor(self._replica)])

    def _own(self) -> list[Family]:
        return continued(families(self._registry), self._predecessor)


def of_supervisor(replica: Replica) -> list[Family]:
    """Return the supervisor's metrics about the processes of its replica."""
    lives = [({"process": name}, shared.read() or Life()) for name, shared in replica.lives.items()]
    return [
        Family(
            "kruise_process_restarts",
            "Number of times a process was restarted.",
            "counter",
            [("kruise_process_restarts_total", labels, life.restarts) for labels, life in lives],
        ),
        Family(
            "kruise_process_hangs",
            "Number of times a process was killed because it sent no heartbeat.",
            "counter",
            [("kruise_process_hangs_total", labels, life.hangs) for labels, life in lives],
        ),
        Family(
            "kruise_process_failing_seconds",
            "Seconds since a process was last healthy; 0 while it is healthy.",
            "gauge",
            [("kruise_process_failing_seconds", labels, life.failing_seconds(time.time())) for labels, life in lives],
        ),
    ]
