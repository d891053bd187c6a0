"""What OpenKruise's manager left behind is taken over as it is, and rolled on."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from app.api import names
from app.features.sidecarset.kind import sidecarset_hashes
from tests.features.sidecarset.controlled import REVISIONS, SETS, World
from tests.kube.fakes import until, virtual

RECORDED = Path(__file__).parents[2] / "data" / "openkruise"
MOMENTS = [
    "01-created-v1beta1.json",
    "02-in-place-partition-v1beta1.json",
    "03-sidecar-updated-hooks-waiting-v1beta1.json",
]


def taken_over(moment: str) -> World:
    world = World()
    for found in json.loads((RECORDED / moment).read_text())["items"]:
        metadata = found["metadata"]
        if found["kind"] == "SidecarSet":
            world.store(f"{SETS}/{metadata['name']}", found)
        elif found["kind"] == "ControllerRevision" and metadata["namespace"] == "kruise-system":
            world.store(f"{REVISIONS}/{metadata['name']}", found)
        elif found["kind"] == "Pod":
            world.store(f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}", found)
    world.namespace("moving")
    return world


def pods(world: World) -> dict[str, dict[str, Any]]:
    return {
        path: found
        for path, found in world.objects.items()
        if "/pods/" in path and names.SIDECARSET_INJECTED_LIST in found["metadata"].get("annotations", {})
    }


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.behaviour("SS-15", "SS-73", "SS-89", "SS-99")
def test_takeover_writes_only_the_status(moment: str) -> None:
    @virtual
    async def take_over() -> None:
        world = taken_over(moment)
        async with world.controlled():
            await asyncio.sleep(30)
        assert [write for write in world.writes() if not write.endswith("/sidecarsets/logs/status")] == []
        status = world.status("logs")
        fields = ("matchedPods", "updatedPods", "readyPods", "updatedReadyPods")
        assert {status[field] for field in fields} == {len(pods(world))}
        assert world.events.events == []

    take_over()


@pytest.mark.behaviour("SS-98", "SS-99", "SS-95")
@virtual
async def test_the_rollout_continues() -> None:
    world = taken_over(MOMENTS[-1])
    before = pods(world)
    path = f"{SETS}/logs"
    async with world.controlled():
        await asyncio.sleep(1)
        owner = world.objects[path]
        (container,) = owner["spec"]["containers"]
        spec = {**owner["spec"], "containers": [{**container, "image": "busybox:1.36"}]}
        hashes = sidecarset_hashes(spec["containers"], None)
        metadata = dict(owner["metadata"], generation=3)
        metadata["annotations"] = metadata["annotations"] | {names.SIDECARSET_HASH: hashes.hash}
        assert hashes.without_image == metadata["annotations"][names.SIDECARSET_HASH_WITHOUT_IMAGE]
        world.store(path, {**owner, "metadata": metadata, "spec": spec})
        done: set[str] = set()
        while len(done) < 4:

            def begun() -> set[str]:
                found = {at for at, pod in pods(world).items() if _image(pod) == "busybox:1.36"}
                return found - done

            await until(begun, 10)
            await asyncio.sleep(5)
            assert len(begun()) <= 2, "maxUnavailable is 2"
            for at in begun():
                _restart(world, at)
                done.add(at)
        await until(lambda: world.counts("logs") == (4, 4, 4, 4), 10)
    for at, pod in pods(world).items():
        was = json.loads(before[at]["metadata"]["annotations"][names.SIDECARSET_HASH])["logs"]
        now = json.loads(pod["metadata"]["annotations"][names.SIDECARSET_HASH])["logs"]
        assert now["hash"] == hashes.hash != was["hash"]
        assert now["sidecarList"] == was["sidecarList"]
        states = [
            json.loads(one["metadata"]["annotations"][names.SIDECARSET_IN_PLACE_UPDATE_STATE])
            for one in (before[at], pod)
        ]
        assert list(states[1]["logs"])[:3] == list(states[0]["logs"])
        without_image = [
            one["metadata"]["annotations"][names.SIDECARSET_HASH_WITHOUT_IMAGE] for one in (before[at], pod)
        ]
        assert without_image[0] == without_image[1]
    assert len(world.writes("/pods/")) == 4


def _image(pod: dict[str, Any]) -> str:
    return next(str(one["image"]) for one in pod["spec"]["containers"] if one["name"] == "log")


def _restart(world: World, path: str) -> None:
    """Act as the kubelet."""
    pod = world.objects[path]
    statuses = [
        {**one, "image": "docker.io/library/busybox:1.36", "imageID": "docker.io/library/busybox@sha256:" + "7" * 64}
        if one["name"] == "log"
        else one
        for one in pod["status"]["containerStatuses"]
    ]
    world.store(path, {**pod, "status": {**pod["status"], "containerStatuses": statuses}})
