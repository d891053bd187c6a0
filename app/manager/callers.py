"""Callers of the webhook port: API servers and strangers.

A review does not prove where it comes from. With ``--client-ca-file`` a verified certificate does; otherwise a caller
is known by its address, if the EndpointSlice of the Service ``default/kubernetes`` lists it, or if it is a loopback
address, used by the manager's own Pod. API servers whose connections arrive from another address (through konnectivity
or NAT) count as strangers, so strangers are served, but never at the expense of known callers: they share a separate
budget for requests to the API server, and they take turns. All stranger addresses are treated equally: an API server
that counts as a stranger gets the same share as a Pod that floods the port. [MGR-154]
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from random import Random
from typing import Final

import msgspec

from app.kube.admission import PolicyRule
from app.kube.client import Client
from app.kube.clock import Clock
from app.kube.objects import ObjectMeta
from app.kube.reflector import Reflector, ReflectorMetrics
from app.kube.resources import ENDPOINTSLICES
from app.kube.store import Change, Store

logger = logging.getLogger(__name__)

SERVICE_NAMESPACE: Final = "default"
#: The Service, and the EndpointSlices in which API servers list themselves.
SERVICE_NAME: Final = "kubernetes"
PERMISSION: Final = PolicyRule(
    ("list", "watch"), (ENDPOINTSLICES.group,), (ENDPOINTSLICES.plural,), names=(SERVICE_NAME,)
)
_LOOPBACK: Final = frozenset({"127.0.0.1", "::1"})
#: Share of a process's time for strangers while known callers are active: those with a request in the last seconds.
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
#: Longest pause after one turn, and the shortest that is worth a timer.
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
        """Record a review or conversion from a stranger's address, or from a known caller if it is empty. Requests for
        ``/healthz`` do not count: our self-check sends them over loopback, in every cluster."""
        if stranger:
            self._strange, self._latest = self._strange + 1, stranger
        else:
            self.asked_at = time.monotonic()

    async def report(self, clock: Clock, publish: Callable[[bool], None]) -> None:
        """Publish whether there were many reviews and none from a known caller, and warn the first time. [MGR-163]"""
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
        store: Store[_EndpointSlice] = Store()
        store.subscribe(self._follow)
        return Reflector(
            client,
            ENDPOINTSLICES,
            store,
            decode=msgspec.json.Decoder(_EndpointSlice).decode,
            rng=rng,
            namespace=SERVICE_NAMESPACE,
            field_selector=f"metadata.name={SERVICE_NAME}",
            metrics=metrics,
        )

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
                # The loop runs these callbacks in this order without anything in between.
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
