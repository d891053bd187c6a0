"""Objects left by OpenKruise's manager are taken over unchanged, and their rollout continues."""

from __future__ import annotations

import json

import pytest

from app.api import names
from app.features.sidecarset.hashes import sidecarset_hashes
from app.kube.resources import NAMESPACES, PODS
from tests.features.sidecarset.rolling_world import SETS, Json, World, annotation, image_of, rolling_world
from tests.kube.fakes import virtual
from tests.openkruise import FOLDER, leave

PLACE = "moving"
ORDER = ["SidecarSet", "ControllerRevision", "Pod"]
MOMENTS = [
    "01-created-v1beta1.json",
    "02-in-place-partition-v1beta1.json",
    "03-sidecar-updated-hooks-waiting-v1beta1.json",
]


def left(moment: str) -> list[Json]:
    """SidecarSets, their revisions and all Pods."""
    items: list[Json] = json.loads((FOLDER / moment).read_text())["items"]
    mine = [one for one in items if one["kind"] in ORDER and one["metadata"].get("namespace") != "default"]
    theirs = [one for one in mine if one["kind"] != "ControllerRevision" or one["metadata"]["namespace"] != PLACE]
    return sorted(theirs, key=lambda one: ORDER.index(one["kind"]))


async def injected(world: World) -> dict[str, Json]:
    return {
        pod["metadata"]["name"]: pod
        for pod in (await world.user.list(PODS, PLACE)).items
        if names.SIDECARSET_INJECTED_LIST in pod["metadata"].get("annotations", {})
    }


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.behaviour("SS-15", "SS-73", "SS-89", "SS-98", "SS-99", "SS-95")
@virtual
async def test_takeover_writes_only_the_status_and_the_rollout_continues(moment: str) -> None:
    async def begin(world: World) -> None:
        await world.user.create(NAMESPACES, {"metadata": {"name": PLACE}})
        await leave(world.user, left(moment))

    async with rolling_world(nodes=0, before=begin) as world:
        before = await injected(world)
        every = (len(before),) * 4
        await world.clock.sleep(30)
        assert {one.path.split("/", 4)[4] for one in world.sent.writes} <= {"sidecarsets/logs/status"}
        assert await world.counts("logs") == every
        world.sent.writes.clear()

        owner = await world.user.get(SETS, "logs")
        (container,) = owner["spec"]["containers"]
        containers = [{**container, "image": "busybox:1.36"}]
        hashes = sidecarset_hashes(containers, None)
        assert hashes.without_image == owner["metadata"]["annotations"][names.SIDECARSET_HASH_WITHOUT_IMAGE]
        metadata = {"annotations": {names.SIDECARSET_HASH: hashes.hash}}
        await world.user.patch(SETS, "logs", {"metadata": metadata, "spec": {"containers": containers}})
        done: set[str] = set()
        while len(done) < len(before):
            await world.clock.sleep(5)
            begun = {name for name, pod in (await injected(world)).items() if image_of(pod, "log") == "busybox:1.36"}
            assert 1 <= len(begun - done) <= 2, "maxUnavailable is 2"
            for name in begun - done:
                await _restart(world, name)
            done |= begun
        await world.settles(*every, name="logs")
        assert len(world.sent.to_pods()) == len(before)
        for name, pod in (await injected(world)).items():
            was, now = (annotation(one, names.SIDECARSET_HASH)["logs"] for one in (before[name], pod))
            assert now["hash"] == hashes.hash != was["hash"]
            assert now["sidecarList"] == was["sidecarList"]
            same = [one["metadata"]["annotations"][names.SIDECARSET_HASH_WITHOUT_IMAGE] for one in (before[name], pod)]
            assert same[0] == same[1]


async def _restart(world: World, name: str) -> None:
    """Act as the kubelet."""
    statuses = (await world.user.get(PODS, name, PLACE))["status"]["containerStatuses"]
    image = "docker.io/library/busybox"
    begun = {"image": f"{image}:1.36", "imageID": f"{image}@sha256:" + "7" * 64}
    changed = [{**one, **begun} if one["name"] == "log" else one for one in statuses]
    await world.user.patch(PODS, name, {"status": {"containerStatuses": changed}}, PLACE, subresource="status")
