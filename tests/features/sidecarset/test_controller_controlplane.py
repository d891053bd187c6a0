"""The SidecarSet controller's revisions on a real API server, without Pods and webhooks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest

from app.api import names
from app.features.sidecarset.defaults import with_defaults
from app.features.sidecarset.feature import FEATURE
from app.features.sidecarset.hashes import sidecarset_hashes
from app.features.sidecarset.kind import SIDECAR_SET
from app.features.sidecarset.types import SidecarSet
from app.kube.client import Client
from app.kube.clock import SystemClock
from app.kube.config import load_config
from app.kube.reflector import ReflectorMetrics
from app.kube.resources import CONTROLLERREVISIONS
from app.kube.transport import AiohttpTransport
from app.manager.process import Caches
from tests.cluster.controlplane import ControlPlane
from tests.kit.features import controller_of
from tests.kube.fakes import running
from tests.scenarios.world import eventually

pytestmark = pytest.mark.controlplane

CRDS = Path(__file__).parents[3] / "deploy" / "crds"
SETS = SIDECAR_SET.resource()
SYSTEM = "kruise-system"


@pytest.fixture(scope="module")
def served() -> Iterator[ControlPlane]:
    """A control plane with our kinds and the manager's namespace, but no manager."""
    with ControlPlane() as control_plane:
        control_plane.kubectl("create", "namespace", SYSTEM)
        control_plane.kubectl("apply", "--server-side", "-f", str(CRDS))
        established = ["wait", "--for=condition=Established", "--timeout=30s", "-f", str(CRDS)]
        eventually(lambda: control_plane.kubectl(*established, check=False).returncode == 0, "the CRDs are established")
        yield control_plane


@dataclass
class World:
    """The control plane with the controller running."""

    client: Client

    async def apply(self, name: str) -> SidecarSet:
        """Create a SidecarSet, completed as our webhook would."""
        given = {"selector": {"matchLabels": {"app": "web"}}, "containers": [{"name": "shipper", "image": "a:1"}]}
        spec = with_defaults({"spec": given})["spec"]
        both = (names.SIDECARSET_HASH, names.SIDECARSET_HASH_WITHOUT_IMAGE)
        annotations = dict(zip(both, sidecarset_hashes(spec["containers"], None), strict=True))
        head = {"apiVersion": SETS.api_version, "kind": SETS.kind}
        body = {**head, "metadata": {"name": name, "annotations": annotations}, "spec": spec}
        return await self.client.create(SETS, body, decode=SidecarSet.model_validate_json)

    async def status(self, name: str) -> dict[str, Any]:
        return dict((await self.client.get(SETS, name)).get("status") or {})

    async def history(self, name: str) -> list[tuple[str, int]]:
        """The set's revisions, oldest first."""
        selector = f"{names.SIDECARSET_NAME}={name}"
        found = (await self.client.list(CONTROLLERREVISIONS, SYSTEM, label_selector=selector)).items
        return sorted(((r["metadata"]["name"], r["revision"]) for r in found), key=lambda pair: pair[1])


async def until(look: Callable[[], Awaitable[Any]], wanted: Any, seconds: float = 20) -> None:
    """Wait for the expected result; a failure shows the last one."""
    last = None
    try:
        async with asyncio.timeout(seconds):
            while (last := await look()) != wanted:
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"wanted {wanted}, last seen {last}") from None


@asynccontextmanager
async def at_work(control_plane: ControlPlane) -> AsyncIterator[World]:
    transport = AiohttpTransport(await load_config(str(control_plane.kubeconfig)))
    client, rng = Client(transport, SystemClock()), Random()
    caches = Caches(SYSTEM, declared=[FEATURE])
    reflectors = (
        *caches.admission_reflectors(client, rng, ReflectorMetrics()),
        *caches.controller_reflectors(client, rng, ReflectorMetrics()),
    )
    try:
        async with running(
            controller_of(FEATURE, client, caches.by_name).run(), *(reflector.run() for reflector in reflectors)
        ):
            yield World(client)
    finally:
        await transport.close()


@pytest.mark.behaviour("SS-121", "SS-104")
async def test_a_recreated_set_adopts_its_revision_before_it_is_collected(served: ControlPlane) -> None:
    async with at_work(served) as world:
        await world.apply("again")
        await until(lambda: world.history("again"), [(await wait_for_latest(world, "again"), 1)])
        await world.client.delete(SETS, "again")
        second = await world.apply("again")
        name = await wait_for_latest(world, "again")

        async def owners() -> list[str]:
            found = [r for r, _ in await world.history("again")]
            if found != [name]:
                return found
            revision = await world.client.get(CONTROLLERREVISIONS, name, SYSTEM)
            return [owner["uid"] for owner in revision["metadata"]["ownerReferences"]]

        await until(owners, [second.metadata.uid])
        # After a restart, the garbage collector watches SidecarSets. Once it has deleted a revision whose owner is
        # gone, it has also checked the adopted one.
        await asyncio.to_thread(served.restart_controller_manager)
        await world.apply("gone")
        await wait_for_latest(world, "gone")
        await world.client.delete(SETS, "gone")
        await until(lambda: world.history("gone"), [], 90)
        assert await owners() == [second.metadata.uid]


async def wait_for_latest(world: World, name: str) -> str:
    async with asyncio.timeout(120):
        while not (found := (await world.status(name)).get("latestRevision")):
            await asyncio.sleep(0.05)
    return str(found)
