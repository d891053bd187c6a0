"""Features outside a manager: contexts for given stores, and controllers made from declarations."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from random import Random
from typing import Any, TypeVar

import orjson
from prometheus_client import CollectorRegistry

from app.framework.feature import ControllerContext, ControllerPart, Feature
from app.framework.watched import Stores
from app.kube.admission import Decision
from app.kube.client import Client
from app.kube.controller import Controller, Result
from app.kube.events import EventRecorder
from app.kube.resources import ObjectKey
from app.kube.store import Store
from app.manager.flags import parse_flags
from app.manager.gates import parse_gates
from tests.kit.transports import Noting
from tests.kit.virtualtime import VirtualClock

T = TypeVar("T")


def stores_of(part: ControllerPart, given: Mapping[str, Store[Any]] | None = None) -> Stores:
    """Return the stores of a part: those in ``given``, by watched name, otherwise empty ones."""
    made = Stores(part.watched)
    keys = {one.name: one.key for one in part.watched}
    return made.replaced({keys[name]: store for name, store in (given or {}).items()})


def context(
    part: ControllerPart,
    client: Client,
    stores: Stores,
    *,
    flags: tuple[str, ...] = (),
    gates: str = "",
    events: EventRecorder | None = None,
    rng: Random | None = None,
    provided: Mapping[type[Any], Any] | None = None,
    registry: CollectorRegistry | None = None,
) -> ControllerContext:
    """Return the context of a controller; ``provided``: what other features provide."""
    registry = registry if registry is not None else CollectorRegistry()
    made: dict[Any, Any] = {}

    def counting(counters: Callable[[CollectorRegistry], T]) -> T:
        if counters not in made:
            made[counters] = counters(registry)
        found: T = made[counters]
        return found

    answers = provided or {}
    return ControllerContext(
        client=client.named(part.name),
        stores=stores,
        events=events if events is not None else EventRecorder(client, part.event_source or part.name),
        rng=rng if rng is not None else Random(1),
        own_namespace="kruise-system",
        enabled=parse_gates(gates).enabled,
        flags=parse_flags(flags),
        counters=counting,
        provided=lambda protocol: (answers[protocol],) if protocol in answers else (),
        leading=lambda: True,
    )


def part_of(declared: Feature, name: str = "") -> ControllerPart:
    return next(part for part in declared.controllers if name in ("", part.name))


def controller_of(
    declared: Feature, client: Client, given: Mapping[str, Store[Any]], name: str = "", **options: Any
) -> Controller:
    part = part_of(declared, name)
    made = part.make(context(part, client, stores_of(part, given), **options))
    return Controller(part.name, client.clock, made.watches, made.reconcile, workers=part.workers)


def decided(outcome: Decision | Awaitable[Decision]) -> Decision:
    """Return the decision without an event loop. Raises AssertionError if it waits."""
    if not isinstance(outcome, Awaitable):
        return outcome
    waiting = outcome.__await__()
    try:
        waiting.send(None)
    except StopIteration as finished:
        decision: Decision = finished.value
        return decision
    raise AssertionError("the decision waits for something")


class Shell:
    """A reconciler with caches that the test fills, and an API server that only records requests. ``decoders`` maps
    each kind to the cache for its objects and their decoder."""

    namespace = "default"
    decoders: Mapping[str, tuple[Store[Any], Callable[[bytes], Any]]]
    reconciler: Callable[[ObjectKey], Awaitable[Result | None]]

    def __init__(self, name: str) -> None:
        self.clock = VirtualClock()
        self.server = Noting()
        self.client = Client(self.server, self.clock)
        self.recorder = EventRecorder(self.client, name)

    def show(self, *objects: dict[str, Any]) -> None:
        for found in objects:
            store, decode = self.decoders[found["kind"]]
            store.put(decode(orjson.dumps(found)))

    async def reconcile(self, name: str = "web", namespace: str = "") -> Result | None:
        return await self.reconciler(ObjectKey(namespace or self.namespace, name))

    async def sent_events(self) -> list[dict[str, Any]]:
        sending = asyncio.ensure_future(self.recorder.run())
        await self.recorder.flush(10.0)
        sending.cancel()
        return [body for method, path, body in self.server.requests if (method, path[-7:]) == ("POST", "/events")]

    @property
    def writes(self) -> list[tuple[str, str]]:
        return [(method, path) for method, path, _ in self.server.requests if method != "GET"]

    def names(self, method: str, part: str = "") -> list[str]:
        """Return the last part of the path of each such request: the name of its object, or its subresource."""
        return [path.rpartition("/")[2] for found, path, _ in self.server.requests if found == method and part in path]

    def bodies(self, method: str, part: str) -> list[Any]:
        return [body for found, path, body in self.server.requests if found == method and part in path]
