"""When Pods that bypassed admission are searched for: soon after the webhook is registered again, and once more."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any, cast

import orjson
import pytest
from prometheus_client import CollectorRegistry

from app.features.sidecarset.missed_pods import LOOKS, RETRIES, BypassReport, bypassed_counter
from app.features.sidecarset.pod_admission import SIDECAR_SETS
from app.kube.client import Client
from app.kube.errors import Conflict, Forbidden, KubeError, NotFound, RequestInfo, Status, TransportError
from app.kube.events import EventRecorder
from app.kube.objects import Namespace, Pod, decode_namespace
from app.kube.selectors import compile_selector
from app.kube.store import Store
from tests.kit import objects
from tests.kit.virtualtime import EPOCH, VirtualClock
from tests.kube.fakes import virtual

pytestmark = pytest.mark.behaviour("MGR-123")
SOON, LATE = LOOKS
SENT = RequestInfo("PATCH", "/api/v1/namespaces/shop/pods/web-0/status")


class World:
    """A replica whose caches hold a SidecarSet for all Pods with the label ``app: web``."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.leading = True
        self.told: list[str] = []
        self.marked: list[str] = []
        #: What writes of Pods of these names end with.
        self.errors: dict[str, KubeError] = {}
        self.pods: Store[Pod] = Store()
        container = {"name": "logs", "image": "a:1"}
        created = {"name": "logs", "uid": "logs", "creationTimestamp": (EPOCH - timedelta(hours=1)).isoformat()}
        spec = {"selector": {"matchLabels": {"app": "web"}}, "containers": [container]}
        sets: Store[Any] = Store()
        namespaces: Store[Namespace] = Store()
        namespaces.replace([decode_namespace(orjson.dumps({"metadata": {"name": "shop"}}))])
        self.registry = CollectorRegistry()
        self.report = BypassReport(
            cast(Client, self),
            self.pods,
            sets,
            namespaces,
            cast(EventRecorder, self),
            bypassed_counter(self.registry),
            compile_selector({}),
            lambda: self.leading,
        )
        sets.put(SIDECAR_SETS.decode(orjson.dumps({"metadata": created, "spec": spec})))

    def event(self, regarding: Any, type_: str, reason: str, message: str) -> None:
        self.told.append(f"{type_} {reason} {regarding.name}")

    async def patch(self, resource: Any, name: str, *_: Any, **__: Any) -> None:
        self.marked.append(name)
        if name in self.errors:
            raise self.errors[name]

    def pod(self, name: str) -> None:
        """Add a Pod without its sidecar, created at the epoch, to the cache."""
        metadata = {"creationTimestamp": EPOCH.isoformat(), "labels": {"app": "web"}}
        self.pods.put(objects.pod(name, phase="Pending", **metadata))

    @property
    def counted(self) -> float:
        return self.registry.get_sample_value("kruise_bypassed_pods_total") or 0.0


@virtual
async def test_a_bypassed_pod_is_reported_once() -> None:
    world = World()
    looking = asyncio.create_task(world.report.run())
    world.pod("web-0")
    for hours in (1, 0, 1):  # the earliest counts
        world.report.webhooks_registered(EPOCH + timedelta(hours=hours))
    await asyncio.sleep(SOON + 1)
    found = (["Warning SidecarsMissing web-0"], ["web-0"], 1)
    assert (world.told, world.marked, world.counted) == found
    await asyncio.sleep(2 * LATE)
    world.report.webhooks_registered(EPOCH)
    await asyncio.sleep(2 * LATE)
    assert (world.told, world.marked, world.counted) == found
    looking.cancel()


@virtual
async def test_bypassed_pods_are_found_later_and_by_the_next_leader() -> None:
    world = World()
    looking = asyncio.create_task(world.report.run())
    world.pod("web-0")
    world.leading = False
    world.report.webhooks_registered(EPOCH)
    await asyncio.sleep(SOON + 1)
    assert world.told == []
    world.leading = True
    world.pod("web-1")
    await asyncio.sleep(LATE)
    assert sorted(world.marked) == ["web-0", "web-1"]
    looking.cancel()


@virtual
async def test_webhooks_registered_again_cause_another_check() -> None:
    world = World()
    looking = asyncio.create_task(world.report.run())
    world.report.webhooks_registered(EPOCH)
    await asyncio.sleep(SOON + 1)
    world.report.webhooks_registered(EPOCH)
    await asyncio.sleep(LATE)
    world.pod("web-0")
    await asyncio.sleep(LATE)
    assert world.marked == ["web-0"]
    looking.cancel()


@pytest.mark.behaviour("SS-136")
@pytest.mark.parametrize(
    "error",
    [
        pytest.param(TransportError(SENT, "no response"), id="no response"),
        pytest.param(Forbidden(SENT, Status(code=403)), id="refused"),
        pytest.param(Conflict(SENT, Status(code=409)), id="changed by others"),
    ],
)
@virtual
async def test_a_condition_that_could_not_be_written_is_written_by_a_later_check(error: KubeError) -> None:
    world = World()
    looking = asyncio.create_task(world.report.run())
    world.pod("web-0")
    world.pod("web-1")
    world.errors["web-0"] = error
    world.report.webhooks_registered(EPOCH)
    await asyncio.sleep(LATE + 1)
    assert sorted(world.marked) == ["web-0", "web-0", "web-1"]
    world.errors.clear()
    await asyncio.sleep(RETRIES[-1])
    assert sorted(world.marked) == ["web-0", "web-0", "web-0", "web-1"]
    assert (len(world.told), world.counted) == (2, 2)  # each Pod is reported once
    looking.cancel()


@virtual
async def test_conditions_that_cannot_be_written_are_given_up() -> None:
    world = World()
    looking = asyncio.create_task(world.report.run())
    world.pod("web-0")
    world.pod("web-1")
    world.errors = {"web-0": Forbidden(SENT, Status(code=403)), "web-1": NotFound(SENT, Status(code=404))}
    world.report.webhooks_registered(EPOCH)
    await asyncio.sleep(10 * RETRIES[-1])
    attempts = len((*LOOKS, *RETRIES))
    assert (world.marked.count("web-0"), world.marked.count("web-1")) == (attempts, 1)
    looking.cancel()
