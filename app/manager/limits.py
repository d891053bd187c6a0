"""Limits on the resources that callers may use on one port of a process, and their accounting.

Any client that reaches a port may be an attacker. Each port has ``Limits``. Its ``Connections`` records which
connections are open, the bytes they hold and their age, and closes the most expensive ones when a limit is reached: an
API server that uses its connections never loses one to a caller that only holds them open.
"""

from __future__ import annotations

import asyncio
import logging
import resource
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from app.manager.callers import KnownCallers, Turns

logger = logging.getLogger(__name__)

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
    body_bytes: int = 7 * 1024 * 1024
    bodies: Mapping[str, int] = field(default_factory=dict)
    #: Maximum bytes of all received bodies and all unread responses.
    held_bytes: int = 96 * 1024 * 1024
    connections: int = 1024
    #: Timeout from the first byte of a request to its last, and from the connection to its first request.
    complete_seconds: float = 10.0
    #: Timeout of a client that does not read its response.
    read_seconds: float = 30.0
    #: API servers keep idle connections for 90 s; closing them earlier could drop a review in flight.
    keep_alive_seconds: float = 120.0
    #: Time a client has to read an early refusal before the connection is closed.
    linger_seconds: float = 2.0

    #: Whether requests to upgrade the protocol are answered in HTTP/1.1 as usual instead of being refused.
    ignores_upgrades: bool = False
    #: None accepts every client. Otherwise clients need a verified certificate, with one of these common names if any
    #: are given.
    client_names: frozenset[str] | None = None
    #: Paths that need no certificate: our self-check, and conversion, for which API servers have no client certificate.
    open_paths: frozenset[str] = frozenset(("/healthz", "/convert"))


#: Limits of ports with few, occasional clients.
PAGES: Final = Limits(body_bytes=64 * 1024, held_bytes=16 * 1024 * 1024, connections=64)


class Held(Protocol):
    """A connection to a port."""

    #: Bytes of a received body or an unread response.
    held: int
    #: Whether it may be closed to free its bytes: it is sending, waiting for its turn, or not reading.
    pending: bool
    #: Whether its caller is unknown while others are known.
    stranger: bool

    def expendable(self, now: float) -> float:
        """Return the priority for closing this connection when there are too many; the highest is closed first.

        Zero: close it only to admit a known caller. Negative: never close it.
        """
        ...

    def check(self, now: float) -> None: ...

    def give_up(self) -> None: ...


class Connections(Collector):
    """Connections of one port of this process, and statistics about refused requests.

    ``callers`` distinguishes known callers from strangers; without it all callers are equal.
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
        """Charge bytes to a connection. Above the limit, close the pending connections that hold most, strangers
        first.

        Returns False if this connection would be closed.
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
        """Return whether a caller from this address is unknown while others are known."""
        return not self._all_equal and not self.callers.knows(address)

    def make_room(self, now: float, *, stranger: bool = False) -> bool:
        """Close the least valuable connection to make room for another. Returns False if none may be
        closed."""
        self.refuse("connections")
        least = max(self.open, key=lambda one: one.expendable(now), default=None)
        if least is None or (worth := least.expendable(now)) < 0 or (stranger and not worth):
            return False
        self.open.discard(least)
        least.give_up()
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
    if soft != resource.RLIM_INFINITY and soft < wanted:
        more = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
        if more > soft:
            resource.setrlimit(resource.RLIMIT_NOFILE, (more, hard))
            soft = more
        others = min(OTHER_DESCRIPTORS, soft // 2)
        return replace(limits, connections=max(1, min(limits.connections, soft - others)))
    return limits
