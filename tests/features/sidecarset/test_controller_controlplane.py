"""The SidecarSet controller on a real API server, with Pods on simulated nodes and no webhook."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest

from app.api import names
from app.features.sidecarset.feature import FEATURE
from app.features.sidecarset.history import snapshot
from app.features.sidecarset.kind import SIDECAR_SET, sidecarset_hashes, with_defaults
from app.features.sidecarset.types import SidecarSet
from app.kube.client import Client
from app.kube.clock import SystemClock
from app.kube.config import load_config
from app.kube.errors import Conflict, NotFound
from app.kube.reflector import ReflectorMetrics
from app.kube.resources import CONTROLLERREVISIONS, NAMESPACES, PODS, SERVICEACCOUNTS
from app.kube.transport import AiohttpTransport
from app.manager.process import Caches
from app.sandbox.kubelet.program import UNREADY
from app.sandbox.nodes import Nodes, simulated_nodes
from tests.cluster.controlplane import ControlPlane
from tests.kit.features import controller_of
from tests.kube.fakes import running
from tests.scenarios.world import eventually

pytestmark = pytest.mark.controlplane

CRDS = Path(__file__).parents[3] / "deploy" / "crds"
DATA = Path(__file__).parents[2] / "data" / "openkruise"
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
    """A namespace on that control plane, with simulated nodes and the controller at work."""

    control_plane: ControlPlane
    client: Client
    namespace: str

    async def apply(self, name: str, **spec: Any) -> SidecarSet:
        """Create or change a SidecarSet, completed as our webhook would."""
        labels = {"app": self.namespace}
        spec = {"selector": {"matchLabels": labels}, "containers": [{"name": "shipper", "image": "a:1"}]} | spec
        return await self.write({"metadata": {"name": name}, "spec": with_defaults({"spec": spec})["spec"]})

    async def write(self, body: dict[str, Any]) -> SidecarSet:
        spec, metadata = body["spec"], body["metadata"]
        hashes = sidecarset_hashes(spec.get("containers"), spec.get("initContainers"))
        both = (names.SIDECARSET_HASH, names.SIDECARSET_HASH_WITHOUT_IMAGE)
        annotations = metadata.get("annotations", {}) | dict(zip(both, hashes, strict=True))
        complete = {"apiVersion": SETS.api_version, "kind": SETS.kind, "spec": spec}
        complete["metadata"] = {"name": metadata["name"], "annotations": annotations}
        while True:
            found = [s for s in (await self.client.list(SETS)).items if s["metadata"]["name"] == metadata["name"]]
            if not found:
                return await self.client.create(SETS, complete, decode=SidecarSet.model_validate_json)
            complete["metadata"]["resourceVersion"] = found[0]["metadata"]["resourceVersion"]
            try:
                return await self.client.replace(
                    SETS, metadata["name"], complete, decode=SidecarSet.model_validate_json
                )
            except Conflict:
                continue  # the controller wrote the status meanwhile

    async def pod(self, name: str, owner: SidecarSet, image: str = "a:1") -> None:
        """Create a Pod as the injection of the set leaves it."""
        status = await self.status(owner.name)
        hash_ = owner.metadata.annotations[names.SIDECARSET_HASH]
        record = {"hash": hash_, "sidecarSetName": owner.name, "controllerRevision": status["latestRevision"]}
        annotations = {
            names.SIDECARSET_INJECTED_LIST: owner.name,
            names.SIDECARSET_HASH: json.dumps({owner.name: record}),
        }
        containers = [{"name": "shipper", "image": image}, {"name": "main", "image": "nginx"}]
        labels = {"app": self.namespace}
        body = {
            "metadata": {"name": name, "labels": labels, "annotations": annotations},
            "spec": {"containers": containers, "terminationGracePeriodSeconds": 1},
        }
        await self.client.create(PODS, body, self.namespace)

    async def change_pod(self, name: str, **metadata: Any) -> None:
        await self.client.patch(PODS, name, {"metadata": metadata}, self.namespace)

    async def status(self, name: str) -> dict[str, Any]:
        return dict((await self.client.get(SETS, name)).get("status") or {})

    async def counts(self, name: str) -> tuple[int, ...]:
        """Matched, updated, ready, updated and ready; nothing before the first status."""
        status = await self.status(name)
        fields = ("matchedPods", "updatedPods", "readyPods", "updatedReadyPods")
        return tuple(status.get(field, 0) for field in fields) if status else ()

    async def until_counts(self, name: str, *wanted: int) -> None:
        await until(lambda: self.counts(name), wanted)

    async def history(self, name: str) -> list[tuple[str, int]]:
        """The set's revisions, oldest first."""
        selector = f"{names.SIDECARSET_NAME}={name}"
        found = (await self.client.list(CONTROLLERREVISIONS, SYSTEM, label_selector=selector)).items
        return sorted(((r["metadata"]["name"], r["revision"]) for r in found), key=lambda pair: pair[1])

    async def kubectl(self, *arguments: str) -> str:
        return (await asyncio.to_thread(self.control_plane.kubectl, *arguments)).stdout


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
async def at_work(control_plane: ControlPlane, *, nodes: bool = True) -> AsyncIterator[World]:
    transport = AiohttpTransport(await load_config(str(control_plane.kubeconfig)))
    client, rng = Client(transport, SystemClock()), Random()
    caches = Caches(SYSTEM, declared=[FEATURE])
    controller = controller_of(FEATURE, client, caches.by_name)
    namespace = f"t-{uuid.uuid4().hex[:8]}"
    await client.create(NAMESPACES, {"metadata": {"name": namespace, "labels": {"env": namespace}}})
    reflectors = (
        *caches.admission_reflectors(client, rng, ReflectorMetrics()),
        *caches.controller_reflectors(client, rng, ReflectorMetrics()),
    )
    tasks = [reflector.run() for reflector in reflectors]
    if nodes:
        simulated = Nodes(client, simulated_nodes(2), rng=rng, bind=True)
        await simulated.register()
        tasks.append(simulated.work())
        # Without its service account a namespace takes no Pods.
        accounts = lambda: client.list(SERVICEACCOUNTS, namespace)  # noqa: E731
        async with asyncio.timeout(120):
            while not (await accounts()).items:
                await asyncio.sleep(0.05)
    try:
        async with running(controller.run(), *tasks):
            yield World(control_plane, client, namespace)
    finally:
        await transport.close()


@pytest.mark.behaviour("SS-73", "SS-74")
@pytest.mark.parametrize("file", ["01-created-v1beta1.json", "03-sidecar-updated-hooks-waiting-v1beta1.json"])
async def test_a_recorded_set_creates_the_recorded_revision(served: ControlPlane, file: str) -> None:
    items = json.loads((DATA / file).read_text("utf-8"))["items"]
    recorded = next(item for item in items if item["kind"] == "SidecarSet")
    name = recorded["status"]["latestRevision"]
    left = next(item for item in items if item["metadata"]["name"] == name)
    async with at_work(served, nodes=False) as world:
        stored = await world.write(recorded)
        await until(lambda: latest(world, "logs"), name)
        raw = await world.client.get(CONTROLLERREVISIONS, name, SYSTEM, decode=bytes)
        assert b'"data":' + snapshot(stored.spec) + b',"revision":' in raw
        seen = json.loads(raw)
        assert seen["data"] == left["data"]
        for key in ("name", "namespace", "labels", "annotations"):
            assert seen["metadata"][key] == left["metadata"][key]
        [owner] = seen["metadata"]["ownerReferences"]
        assert owner == left["metadata"]["ownerReferences"][0] | {"uid": stored.metadata.uid}
        await world.client.delete(SETS, "logs")
        # The next one is about a set of the same name and another content.
        with suppress(NotFound):  # the garbage collector may have been faster
            await world.client.delete(CONTROLLERREVISIONS, name, SYSTEM)


async def latest(world: World, name: str) -> str:
    return str((await world.status(name)).get("latestRevision"))


@pytest.mark.behaviour("SS-86", "SS-88", "SS-106", "SS-119")
async def test_kubectl_shows_correct_counts(served: ControlPlane) -> None:
    async with at_work(served) as world:
        for_all = await world.apply("counted", updateStrategy={"type": "NotUpdate"})
        here = await world.apply("here", namespaceSelector={"matchLabels": {"env": world.namespace}})
        await world.until_counts("counted", 0, 0, 0, 0)
        await world.until_counts("here", 0, 0, 0, 0)
        assert (await world.kubectl("get", "sidecarset", "counted", "--no-headers")).split()[:4] == [
            "counted",
            "0",
            "0",
            "0",
        ]
        for number in range(3):
            await world.pod(f"all-{number}", for_all)
        await world.pod("here-0", here)
        await world.until_counts("counted", 3, 3, 3, 3)
        await world.until_counts("here", 1, 1, 1, 1)
        await world.change_pod("all-0", annotations={UNREADY: "main"})
        await world.until_counts("counted", 3, 3, 2, 2)
        assert (await world.kubectl("get", "sidecarset", "counted", "--no-headers")).split()[1:4] == ["3", "3", "2"]
        await world.change_pod("all-1", labels={"app": "other"})
        await world.until_counts("counted", 2, 2, 1, 1)
        await world.kubectl("delete", "pod", "-n", world.namespace, "all-2", "--force", "--grace-period=0")
        await world.until_counts("counted", 1, 1, 0, 0)
        await world.client.patch(NAMESPACES, world.namespace, {"metadata": {"labels": {"env": "other"}}})
        await world.until_counts("here", 0, 0, 0, 0)
        await world.client.delete(PODS, "all-0", world.namespace)
        await world.until_counts("counted", 0, 0, 0, 0)
        changed = await world.apply(
            "counted", updateStrategy={"type": "NotUpdate"}, containers=[{"name": "shipper", "image": "a:2"}]
        )
        await until(lambda: generation(world, "counted"), changed.metadata.generation)


async def generation(world: World, name: str) -> int:
    return int((await world.status(name)).get("observedGeneration", 0))


@pytest.mark.behaviour("SS-75", "SS-76", "SS-120")
async def test_a_rollback_is_renumbered_and_unused_revisions_are_deleted(served: ControlPlane) -> None:
    async with at_work(served) as world:

        async def change(image: str, version: str = "") -> str:
            owner = await world.apply(
                "kept",
                containers=[{"name": "shipper", "image": image}],
                revisionHistoryLimit=2,
                **({"customVersion": version} if version else {}),
            )
            await until(lambda: generation(world, "kept"), owner.metadata.generation)
            return await latest(world, "kept")

        first = await change("a:1", "one")
        await world.pod("witness", SidecarSet.model_validate(await world.client.get(SETS, "kept")))
        await world.until_counts("kept", 1, 1, 1, 1)
        second = await change("a:2")
        assert await world.history("kept") == [(first, 1), (second, 2)]
        third = await change("a:3")
        # The Pod names the first revision, so the second has to go.
        await until(lambda: world.history("kept"), [(first, 1), (third, 3)])
        assert await change("a:1", "one") == first
        await until(lambda: world.history("kept"), [(third, 3), (first, 4)])
        await change("a:1", "uno")

        async def custom_version() -> str:
            found = await world.client.get(CONTROLLERREVISIONS, first, SYSTEM)
            return str(found["metadata"]["labels"][names.SIDECARSET_CUSTOM_VERSION])

        await until(custom_version, "uno")


@pytest.mark.behaviour("SS-121", "SS-104")
async def test_a_recreated_set_adopts_its_revision_before_it_is_collected(served: ControlPlane) -> None:
    async with at_work(served) as world:
        await world.apply("again")
        await until(lambda: world.history("again"), [(await wait_for_latest(world, "again"), 1)])
        await world.client.delete(SETS, "again")
        anew = await world.apply("again")
        name = await wait_for_latest(world, "again")

        async def owners() -> list[str]:
            found = [r for r, _ in await world.history("again")]
            if found != [name]:
                return found
            revision = await world.client.get(CONTROLLERREVISIONS, name, SYSTEM)
            return [owner["uid"] for owner in revision["metadata"]["ownerReferences"]]

        await until(owners, [anew.metadata.uid])
        # Now at the latest the garbage collector knows SidecarSets. It has had its chance when it has taken a revision
        # that is really left behind.
        await asyncio.to_thread(served.restart_controller_manager)
        await world.apply("gone")
        await wait_for_latest(world, "gone")
        await world.client.delete(SETS, "gone")
        await until(lambda: world.history("gone"), [], 90)
        assert await owners() == [anew.metadata.uid]


async def wait_for_latest(world: World, name: str) -> str:
    async with asyncio.timeout(120):
        while not (found := (await world.status(name)).get("latestRevision")):
            await asyncio.sleep(0.05)
    return str(found)
