"""What callers may make one port of a process hold, and the books about it.

Anybody who reaches a port may be an attacker. Each port has ``Limits``; its ``Connections`` knows who is connected, the
bytes they hold and since when, and gives up those that cost most where a limit is reached: an API server that uses its
connections never loses one to a caller who only holds them.
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

#: How often the ages of connections are looked at.
SWEEP_SECONDS: Final = 1.0
#: How often the log says that requests are refused.
LOG_SECONDS: Final = 60.0
#: Descriptors for everything else: the API server, files, the certificate, the sockets that listen.
OTHER_DESCRIPTORS: Final = 256


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one port. API servers stay far below all of them."""

    url_bytes: int = 8 * 1024
    headers: int = 100
    head_bytes: int = 32 * 1024
    #: Of one request's body; ``bodies`` says otherwise for a path.
    body_bytes: int = 7 * 1024 * 1024
    bodies: Mapping[str, int] = field(default_factory=dict)
    #: Of all bodies that are here and all answers that are not read yet.
    held_bytes: int = 96 * 1024 * 1024
    connections: int = 1024
    #: From the first byte of a request to its last, and from the connection to its first request.
    complete_seconds: float = 10.0
    #: A client that does not read its answer.
    read_seconds: float = 30.0
    #: API servers keep idle connections for 90 s; closing them first would now and then meet a review on its way.
    keep_alive_seconds: float = 120.0
    #: After an early refusal: until the client has read it, and seen that nobody listens to the rest.
    linger_seconds: float = 2.0

    #: Whether who asks for another protocol is answered in this one, as if it had not; otherwise it is refused.
    ignores_upgrades: bool = False
    #: None: anybody may ask. Otherwise only clients with a certificate that the handshake has verified; with names,
    #: only these common names.
    client_names: frozenset[str] | None = None
    #: What anybody may ask all the same: our own check, and conversion, for which API servers have no certificate.
    open_paths: frozenset[str] = frozenset(("/healthz", "/convert"))


#: Ports that are asked for a page now and then, by few.
PAGES: Final = Limits(body_bytes=64 * 1024, held_bytes=16 * 1024 * 1024, connections=64)


class Held(Protocol):
    """One of the connections of a port."""

    #: Bytes of a body that is here or of an answer that is not read yet.
    held: int
    #: Whether it may be given up for its bytes: it still sends, waits for its turn, or does not read.
    pending: bool
    #: Whether its caller may be anybody, while others are known.
    stranger: bool

    def expendable(self, now: float) -> float:
        """Which connection to give up where there are too many: the one with the largest. Zero: only for a known
        caller. Negative: never."""
        ...

    def check(self, now: float) -> None:
        """End what takes too long."""
        ...

    def give_up(self) -> None:
        """Let go of everything at once."""
        ...


class Connections(Collector):
    """The connections of one port of this process, and what was refused there.

    ``callers`` tells known callers from strangers; without it all are equal.
    """

    def __init__(self, port: str, limits: Limits, callers: KnownCallers | None = None) -> None:
        self.port = port
        self.limits = limits
        self.callers = callers or KnownCallers()
        self.turns = Turns(self.callers)
        self._all_equal = callers is None or limits.client_names is not None
        #: Requests of strangers.
        self.strange = 0
        self.open: set[Held] = set()
        self.held = 0
        self.refused: dict[str, int] = {}
        self._unsaid: dict[str, int] = {}
        self._say_at = 0.0
        self._sweep: asyncio.TimerHandle | None = None

    # ---- bytes

    def take(self, connection: Held, size: int) -> bool:
        """Book bytes for a connection. Where there is no room, whoever holds most without being complete is given up,
        strangers first.

        False: that is this one.
        """
        connection.held += size
        self.held += size
        while self.held > self.limits.held_bytes:
            most = max((one for one in self.open if one.pending), key=_held, default=connection)
            if most is connection:
                return False
            self.refuse("held_bytes")
            most.give_up()
        return True

    def release(self, connection: Held) -> None:
        """The connection holds nothing any more."""
        self.held -= connection.held
        connection.held = 0

    # ---- connections

    def is_stranger(self, address: str) -> bool:
        """Whether a caller from this address is not known, while others may be."""
        return not self._all_equal and not self.callers.knows(address)

    def make_room(self, now: float, *, stranger: bool = False) -> bool:
        """Give up the connection that is worth least, for another of a stranger or a known caller. False: all are being
        answered."""
        self.refuse("connections")
        least = max(self.open, key=lambda one: one.expendable(now), default=None)
        if least is None or (worth := least.expendable(now)) < 0 or (stranger and not worth):
            return False
        self.open.discard(least)
        least.give_up()
        return True

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Look at ages from now on, while there are connections."""
        if self._sweep is None:
            self._sweep = loop.call_later(SWEEP_SECONDS, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self._sweep = None
        now = loop.time()
        for connection in list(self.open):
            connection.check(now)
        if self.open:
            self.start(loop)

    # ---- saying so

    def refuse(self, reason: str) -> None:
        """Count a refusal; the log tells at most once a minute."""
        self.refused[reason] = self.refused.get(reason, 0) + 1
        self._unsaid[reason] = self._unsaid.get(reason, 0) + 1
        now = asyncio.get_running_loop().time()
        if now >= self._say_at:
            self._say_at = now + LOG_SECONDS
            text = ", ".join(f"{why} {count}" for why, count in self._unsaid.items())
            self._unsaid.clear()
            logger.warning("%s port: refused since the last such line: %s", self.port, text)

    def collect(self) -> Iterable[Metric]:
        """The metric families."""
        refused = CounterMetricFamily(
            "kruise_http_refused",
            "Requests and connections refused before anything was decided.",
            labels=["port", "reason"],
        )
        connections = GaugeMetricFamily("kruise_http_connections", "Open connections.", labels=["port"])
        held = GaugeMetricFamily(
            "kruise_http_held_bytes", "Bytes of bodies and of answers nobody has read yet.", labels=["port"]
        )
        for reason, count in self.refused.items():
            refused.add_metric([self.port, reason], count)
        connections.add_metric([self.port], len(self.open))
        held.add_metric([self.port], self.held)
        strange = CounterMetricFamily(
            "kruise_http_stranger_requests",
            "Requests of callers that are not known to be API servers.",
            labels=["port"],
        )
        strange.add_metric([self.port], self.strange)
        return (refused, connections, held, strange)


def within_descriptors(limits: Limits) -> Limits:
    """The limits with no more connections than this process may have descriptors for; asks for more of them first."""
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


def _held(connection: Held) -> tuple[bool, int]:
    return connection.stranger, connection.held
