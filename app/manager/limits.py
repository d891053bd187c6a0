"""Resource limits for callers of one port of a process: which callers are API servers, and how much each may use.

Any client that reaches a port may be an attacker. Each port has ``Limits``. Its ``Connections`` records which
connections are open, the bytes they hold and their age, and closes the most expensive ones when a limit is reached: an
API server that uses its connections never loses one to a caller that only holds them open.

A review does not prove its origin. With ``--client-ca-file``, a caller is known if its certificate is verified.
Otherwise, a caller is known if the EndpointSlice of the Service ``default/kubernetes`` lists its address, or if the
address is loopback, as for the manager's own Pod. API servers whose connections arrive from another address (through
konnectivity or NAT) count as strangers. Strangers are therefore served, but never at the expense of known callers: they
share a separate budget for requests to the API server, and they take turns. All stranger addresses are treated equally:
an API server that counts as a stranger gets the same share as a Pod that floods the port. [MGR-154]
"""

from __future__ import annotations

import asyncio
import logging
import resource
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from threading import Lock
from typing import Final, Protocol

import msgspec
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from app.admission.requests import MAX_BODY_BYTES
from app.kube.admission import NAMESPACE, STRANGER, PolicyRule
from app.kube.client import Client
from app.kube.clock import Clock, RejectingBucket, TokenBucket
from app.kube.objects import ObjectMeta
from app.kube.reflector import Reflector, ReflectorMetrics, watch_of_one
from app.kube.resources import ENDPOINTSLICES
from app.kube.store import Change

logger = logging.getLogger(__name__)

SERVICE_NAMESPACE: Final = "default"
#: Name of the API server's Service, and of the EndpointSlice in which API servers list themselves.
SERVICE_NAME: Final = "kubernetes"
ENDPOINTSLICE_PERMISSION: Final = PolicyRule(
    ("list", "watch"), (ENDPOINTSLICES.group,), (ENDPOINTSLICES.plural,), names=(SERVICE_NAME,)
)
_LOOPBACK: Final = frozenset({"127.0.0.1", "::1"})
#: Strangers' share of a process's time while known callers are active, and seconds for which a caller counts as
#: active after a request.
STRANGERS_SHARE: Final = 0.1
KNOWN_SECONDS: Final = 10.0
#: Number of reviews after which to report that none came from a known caller, and seconds between checks.
MANY_REVIEWS: Final = 10
REPORT_SECONDS: Final = 30.0
ONLY_STRANGERS: Final = (
    "all reviews come from addresses outside EndpointSlice default/kubernetes. If API servers call through "
    "konnectivity or an overlay network, set --client-ca-file (chart: manager.extraArgs); until then "
    "ContainerRecreateRequests cannot be created, and API servers share limits with every Pod that reaches the port"
)
#: Longest pause after one turn, and the shortest pause that is worth a timer.
_LONGEST_REST: Final = 0.25
_SHORTEST_REST: Final = 0.001


class _Endpoint(msgspec.Struct, frozen=True):
    addresses: tuple[str, ...] = ()


class _EndpointSlice(msgspec.Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    endpoints: tuple[_Endpoint, ...] | None = None


class KnownCallers:
    """Known addresses of API servers."""

    def __init__(self) -> None:
        self._addresses = _LOOPBACK
        #: Time of the last review from a known caller (monotonic).
        self.asked_at = float("-inf")
        #: Number of reviews from strangers, and the address of the latest one.
        self._strange = 0
        self._latest = ""

    def ask(self, now: float) -> bool:
        """Return whether known callers were active recently. If not, all API servers may be strangers, and no caller is
        held back."""
        return now - self.asked_at < KNOWN_SECONDS

    def posted(self, stranger: str) -> None:
        """Record a review or conversion. ``stranger`` is the caller's address, or empty for a known caller.
        Requests for ``/healthz`` do not count: our self-check sends them over loopback, in every cluster."""
        if stranger:
            self._strange, self._latest = self._strange + 1, stranger
        else:
            self.asked_at = time.monotonic()

    async def report(self, clock: Clock, publish: Callable[[bool], None]) -> None:
        """Publish whether there were many reviews but none from a known caller, and log a warning once. [MGR-163]"""
        published = warned = False
        while True:
            await clock.sleep(REPORT_SECONDS)
            only = self._strange >= MANY_REVIEWS and self.asked_at == float("-inf")
            if only != published:
                published = only
                publish(only)
            if only and not warned:
                warned = True
                logger.warning("%s (latest caller: %s)", ONLY_STRANGERS, self._latest)

    def knows(self, address: str) -> bool:
        """Return whether an address, as returned by ``plain_address``, is an API server's or our own."""
        return address in self._addresses

    def watch(self, client: Client, rng: Random, metrics: ReflectorMetrics) -> Reflector[_EndpointSlice]:
        """Return a reflector that keeps the addresses up to date, to be run as a task."""
        key, decode = (SERVICE_NAMESPACE, SERVICE_NAME), msgspec.json.Decoder(_EndpointSlice).decode
        return watch_of_one(client, ENDPOINTSLICES, key, self._follow, rng, metrics, decode)

    def _follow(self, change: Change[_EndpointSlice]) -> None:
        endpoints = change.new.endpoints or () if change.new is not None else ()
        found = frozenset(plain_address(address) for one in endpoints for address in one.addresses)
        if found | _LOOPBACK != self._addresses:
            self._addresses = found | _LOOPBACK
            logger.info("API servers call from %s", ", ".join(sorted(found)) or "unknown addresses")


def plain_address(address: str) -> str:
    """Return an address without a zone, and an IPv4-mapped IPv6 address as IPv4."""
    return address.removeprefix("::ffff:").partition("%")[0]


class Turns:
    """Admits strangers one at a time, alternating between addresses, with pauses while known callers are active."""

    def __init__(self, callers: KnownCallers) -> None:
        self._callers = callers
        self._waiting: OrderedDict[str, deque[tuple[asyncio.Future[None], float]]] = OrderedDict()
        self._going = False
        self._began = 0.0
        self._rest = 0.0

    async def wait(self, address: str, *, seconds: float = 0.0) -> None:
        """Wait for a turn. A turn costs the time until the caller awaits again, plus ``seconds``."""
        loop = asyncio.get_running_loop()
        if not self._going:
            self._going = True
            loop.call_soon(self._next, loop)
            if not self._callers.ask(time.monotonic()):
                return  # no known callers: no pause, so nothing to measure
        turn = loop.create_future()
        self._waiting.setdefault(address, deque()).append((turn, seconds))
        await turn

    def _next(self, loop: asyncio.AbstractEventLoop) -> None:
        while self._waiting:
            address, turns = self._waiting.popitem(last=False)
            turn, seconds = turns.popleft()
            if turns:
                self._waiting[address] = turns
            if not turn.done():
                # The loop runs _begin, the caller and _end in this order, with nothing in between.
                loop.call_soon(self._begin)
                turn.set_result(None)
                loop.call_soon(self._end, loop, seconds)
                return
        self._going = False

    def _begin(self) -> None:
        self._began = time.perf_counter()

    def _end(self, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        if self._callers.ask(time.monotonic()):
            took = time.perf_counter() - self._began + seconds
            self._rest += min(took * (1 / STRANGERS_SHARE - 1), _LONGEST_REST)
        else:
            self._rest = 0.0
        if self._rest < _SHORTEST_REST:
            loop.call_soon(self._next, loop)
        else:
            loop.call_later(self._rest, self._next, loop)
            self._rest = 0.0


#: Rate per second and burst of API server requests made for the reviews of one process. Without known callers,
#: the same limits apply to strangers. Nearly all reviews are decided from caches.
ASKED_PER_SECOND: Final = 100.0
ASKED_BURST: Final = 500
#: Rate and burst for strangers while known callers are active.
STRANGERS_PER_SECOND: Final = 10.0
STRANGERS_BURST: Final = 20
LONGEST_WAIT_SECONDS: Final = 3.0


class RequestBudget(TokenBucket):
    """Two budgets for requests to the API server. The namespaces of known callers' reviews share one equally; the
    addresses of strangers share the other. [MGR-154, MGR-165]"""

    def __init__(self, clock: Clock, callers: KnownCallers) -> None:
        super().__init__(clock, qps=ASKED_PER_SECOND, burst=ASKED_BURST)
        self._callers = callers
        self._lock = Lock()
        self._namespaces: dict[str, RejectingBucket] = {}
        self._strangers: dict[str, RejectingBucket] = {}

    def reserve(self) -> float:
        """Reserve a token of the caller's budget and return the seconds until it may be used. Raises TimeoutError if
        that is too long."""
        stranger = STRANGER.get()
        limited = stranger and self._callers.ask(self._clock.monotonic())
        qps, burst = (STRANGERS_PER_SECOND, STRANGERS_BURST) if limited else (ASKED_PER_SECOND, ASKED_BURST)
        shares = self._strangers if stranger else self._namespaces
        with self._lock:  # large reviews are decided in a thread
            return self._share(shares, stranger or NAMESPACE.get(), qps, burst).reserve()

    def _share(self, shares: dict[str, RejectingBucket], name: str, qps: float, burst: float) -> RejectingBucket:
        """Return an equal share of a budget, possibly less than one token. Callers whose bucket is full do not count.
        If they did, hundreds of callers that keep sending requests would all be rejected."""
        for unused in [one for one, bucket in shares.items() if bucket.full]:
            del shares[unused]
        among = len(shares) + (name not in shares)
        qps, burst = qps / among, burst / among
        new = RejectingBucket(self._clock, qps=qps, burst=burst, longest=LONGEST_WAIT_SECONDS)
        share = shares.setdefault(name, new)
        share.limit(qps=qps, burst=burst)
        return share


#: Seconds between two checks of connection ages.
SWEEP_SECONDS: Final = 1.0
#: Seconds between two log lines about refused requests.
LOG_SECONDS: Final = 60.0
#: File descriptors reserved for API server connections, files, the certificate and listening sockets.
OTHER_DESCRIPTORS: Final = 256


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one port. API servers stay far below all of them."""

    url_bytes: int = 8 * 1024
    headers: int = 100
    head_bytes: int = 32 * 1024
    #: Maximum bytes of one request body; ``bodies`` overrides it by path.
    body_bytes: int = MAX_BODY_BYTES
    bodies: Mapping[str, int] = field(default_factory=dict)
    #: Maximum total bytes of received bodies and unread responses.
    held_bytes: int = 96 * 1024 * 1024
    connections: int = 1024
    #: Timeout from the first byte of a request to its last, and from a stranger's connection to its first request.
    complete_seconds: float = 10.0
    #: Timeout of a client that does not read its response.
    read_seconds: float = 30.0
    #: API servers keep idle connections for 90 s, including those opened in advance and never used. Closing one earlier
    #: could drop a review in flight.
    keep_alive_seconds: float = 120.0
    #: Time a client has to read an early refusal before the connection is closed.
    linger_seconds: float = 2.0

    #: Whether requests to upgrade the protocol get an HTTP/1.1 response; if false, they are refused.
    ignores_upgrades: bool = False
    #: None accepts every client. Otherwise, clients need a verified certificate. If the set is not empty, the
    #: certificate must have one of these common names.
    client_names: frozenset[str] | None = None
    #: Paths that need no certificate: our self-check, and conversion, for which API servers have no client certificate.
    open_paths: frozenset[str] = frozenset(("/healthz", "/convert"))


#: Limits for ports with few, occasional clients.
PAGES: Final = Limits(body_bytes=64 * 1024, held_bytes=16 * 1024 * 1024, connections=64)


class Held(Protocol):
    """A connection to a port."""

    #: Bytes of a received body or an unread response.
    held: int
    #: Whether it may be closed to free its bytes: its client is sending, waiting for a turn, or not reading.
    pending: bool
    #: Whether the port distinguishes callers and does not know this one.
    stranger: bool

    def expendable(self, now: float) -> float:
        """Return the priority for closing this connection when there are too many; the highest is closed first.

        A connection with priority zero is closed only for a known caller, one with a negative priority never.
        """
        ...

    def check(self, now: float) -> None: ...

    def give_up(self) -> None: ...


class Connections(Collector):
    """Connections of one port of this process, and statistics about refused requests.

    ``callers`` distinguishes known callers from strangers; without it, all callers are treated alike.
    """

    def __init__(self, port: str, limits: Limits, callers: KnownCallers | None = None) -> None:
        self.port = port
        self.limits = limits
        self.callers = callers or KnownCallers()
        self.turns = Turns(self.callers)
        self._all_equal = callers is None or limits.client_names is not None
        #: Number of requests from strangers.
        self.strange = 0
        self.open: set[Held] = set()
        self.held = 0
        self.refused: dict[str, int] = {}
        self._unsaid: dict[str, int] = {}
        self._say_at = 0.0
        self._sweep: asyncio.TimerHandle | None = None

    # ---- bytes

    def take(self, connection: Held, size: int) -> bool:
        """Charge bytes to a connection. Above the limit, close the pending connections with the most bytes, strangers
        first.

        Returns False, and closes nothing more, once it is this connection's turn to be closed.
        """
        connection.held += size
        self.held += size
        while self.held > self.limits.held_bytes:
            most = max(
                (one for one in self.open if one.pending), key=lambda one: (one.stranger, one.held), default=connection
            )
            if most is connection:
                return False
            self.refuse("held_bytes")
            most.give_up()
        return True

    def release(self, connection: Held) -> None:
        self.held -= connection.held
        connection.held = 0

    # ---- connections

    def is_stranger(self, address: str) -> bool:
        """Return whether the port distinguishes callers and does not know this address."""
        return not self._all_equal and not self.callers.knows(address)

    def make_room(self, now: float, *, stranger: bool = False) -> bool:
        """Close the most expendable connection to make room for another. Returns False if none may be closed."""
        self.refuse("connections")
        candidate = max(self.open, key=lambda one: one.expendable(now), default=None)
        if candidate is None or (worth := candidate.expendable(now)) < 0 or (stranger and not worth):
            return False
        self.open.discard(candidate)
        candidate.give_up()
        return True

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Check the ages of connections periodically while any are open."""
        if self._sweep is None:
            self._sweep = loop.call_later(SWEEP_SECONDS, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self._sweep = None
        now = loop.time()
        for connection in list(self.open):
            connection.check(now)
        if self.open:
            self.start(loop)

    # ---- reporting

    def refuse(self, reason: str) -> None:
        """Count a refusal, and log refusals at most once a minute."""
        self.refused[reason] = self.refused.get(reason, 0) + 1
        self._unsaid[reason] = self._unsaid.get(reason, 0) + 1
        now = asyncio.get_running_loop().time()
        if now >= self._say_at:
            self._say_at = now + LOG_SECONDS
            text = ", ".join(f"{why} {count}" for why, count in self._unsaid.items())
            self._unsaid.clear()
            logger.warning("%s port: refused since the last report: %s", self.port, text)

    def collect(self) -> Iterable[Metric]:
        refused = CounterMetricFamily(
            "kruise_http_refused",
            "Number of requests and connections refused before they were handled.",
            labels=["port", "reason"],
        )
        connections = GaugeMetricFamily("kruise_http_connections", "Open connections.", labels=["port"])
        held = GaugeMetricFamily(
            "kruise_http_held_bytes", "Bytes of request bodies and unread responses.", labels=["port"]
        )
        for reason, count in self.refused.items():
            refused.add_metric([self.port, reason], count)
        connections.add_metric([self.port], len(self.open))
        held.add_metric([self.port], self.held)
        strange = CounterMetricFamily(
            "kruise_http_stranger_requests",
            "Number of requests from callers that are not known to be API servers.",
            labels=["port"],
        )
        strange.add_metric([self.port], self.strange)
        return (refused, connections, held, strange)


def within_descriptors(limits: Limits) -> Limits:
    """Return the limits with connections capped by the process's file descriptor limit, which is raised if possible."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = limits.connections + OTHER_DESCRIPTORS
    if soft != resource.RLIM_INFINITY:
        more = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
        if more > soft:
            resource.setrlimit(resource.RLIMIT_NOFILE, (more, hard))
            soft = more
        others = min(OTHER_DESCRIPTORS, soft // 2)
        return replace(limits, connections=max(1, min(limits.connections, soft - others)))
    return limits
