"""Who calls the webhook port: API servers, and strangers.

Nothing in a review proves where it comes from. With ``--client-ca-file`` a verified certificate does; otherwise a
caller is known by its address: one that the EndpointSlice of the Service ``default/kubernetes`` lists, or loopback,
which is the manager's own Pod. An API server whose connections arrive from another address (through konnectivity, or
NAT) is a stranger too, so strangers are served, but never at the expense of known callers: they have a budget of their
own for requests to the API server, and they take turns. Among strangers addresses are equal: an API server that is one
has as much of both as the Pod that floods the port. [MGR-154]
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict, deque
from random import Random
from typing import Final

import msgspec

from app.kube.admission import PolicyRule
from app.kube.client import Client
from app.kube.objects import ObjectMeta
from app.kube.reflector import Reflector, ReflectorMetrics
from app.kube.resources import ENDPOINTSLICES
from app.kube.store import Change, Store

logger = logging.getLogger(__name__)

SERVICE_NAMESPACE: Final = "default"
#: Of the Service, and of the feature in which API servers list themselves.
SERVICE_NAME: Final = "kubernetes"
PERMISSION: Final = PolicyRule(
    ("list", "watch"), (ENDPOINTSLICES.group,), (ENDPOINTSLICES.plural,), names=(SERVICE_NAME,)
)
_LOOPBACK: Final = frozenset({"127.0.0.1", "::1"})
#: The part of a process's time that strangers have while known callers ask, and how long after their last request.
STRANGERS_SHARE: Final = 0.1
KNOWN_SECONDS: Final = 10.0
#: The longest rest after one turn, and the shortest that is worth a timer.
_LONGEST_REST: Final = 0.25
_SHORTEST_REST: Final = 0.001


class _Endpoint(msgspec.Struct, frozen=True):
    addresses: tuple[str, ...] = ()


class _EndpointSlice(msgspec.Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    endpoints: tuple[_Endpoint, ...] | None = None


class KnownCallers:
    """The addresses that API servers call from, as far as they are known."""

    def __init__(self) -> None:
        self._addresses = _LOOPBACK
        #: When a known caller last asked (monotonic).
        self.asked_at = float("-inf")

    def ask(self, now: float) -> bool:
        """Whether known callers asked lately. If not, API servers may all be strangers, and nothing is held back."""
        return now - self.asked_at < KNOWN_SECONDS

    def knows(self, address: str) -> bool:
        """Whether an address, as ``plain_address`` returns it, is an API server's or our own."""
        return address in self._addresses

    def watch(self, client: Client, rng: Random, metrics: ReflectorMetrics) -> Reflector[_EndpointSlice]:
        """What follows the addresses; to be run as a task."""
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
            logger.info("API servers call from %s", ", ".join(sorted(found)) or "addresses that are not known")


def plain_address(address: str) -> str:
    """An address without the IPv6 form of IPv4, in which a socket of both families shows it, and without a zone."""
    return address.removeprefix("::ffff:").partition("%")[0]


class Turns:
    """Lets strangers in one at a time, address by address, and rest while known callers ask."""

    def __init__(self, callers: KnownCallers) -> None:
        self._callers = callers
        self._waiting: OrderedDict[str, deque[tuple[asyncio.Future[None], float]]] = OrderedDict()
        self._going = False
        self._began = 0.0
        self._rest = 0.0

    async def wait(self, address: str, *, seconds: float = 0.0) -> None:
        """Wait for a turn. What the caller does until it next waits for something is measured; ``seconds`` is what it
        takes beyond that."""
        loop = asyncio.get_running_loop()
        if not self._going:
            self._going = True
            loop.call_soon(self._next, loop)
            if not self._callers.ask(time.monotonic()):
                return  # nobody to rest for: what is measured does not matter
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
                # The loop runs these in this order, with nothing between them.
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
