"""Takeover from OpenKruise: our controllers continue its jobs without unnecessary writes."""

from __future__ import annotations

import json

from app.features.containerrecreate.feature import FEATURE as CONTAINER_RECREATE
from app.kube.client import Client
from app.kube.resources import NAMESPACES, NODES, PODS
from tests.features.imagepull.world import JOBS, LISTS, NODE_IMAGES, World, in_world
from tests.openkruise import FOLDER, leave

#: The recorded time and the test's time: nothing has expired yet.
RECORDED, TODAY = "2026-11-22T14:", "2030-01-01T00:"
#: Owners first, and NodeImages last.
ORDER = ["ImageListPullJob", "ContainerRecreateRequest", "ImagePullJob", "NodeImage"]


async def leave_behind(client: Client) -> None:
    text = (FOLDER / "13-node-agent.json").read_text("utf-8").replace(RECORDED, TODAY)
    await client.create(NAMESPACES, {"metadata": {"name": "moving"}})
    items = sorted(json.loads(text)["items"], key=lambda one: ORDER.index(one["kind"]))
    for item in items:
        if item["kind"] == "NodeImage":
            labels = item["metadata"]["labels"]
            await client.create(NODES, {"metadata": {"name": item["metadata"]["name"], "labels": labels}})
    await leave(client, items)
    await client.create(
        PODS, {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "m", "image": "i"}]}}, "moving"
    )


def test_takeover_writes_nothing_and_later_changes_apply() -> None:
    async def scenario(there: World) -> None:
        await there.settled(60)
        assert [one for one in there.writes if one[1] != "Event"] == []
        # They are managed now: a tag is removed with its last job.
        before = await there.get(NODE_IMAGES, "node1")
        owners = {
            (image, tag["tag"]): [one["name"] for one in tag["ownerReferences"]]
            for image, entry in before["spec"]["images"].items()
            for tag in entry["tags"]
        }
        await there.client.delete(JOBS, "pull", "moving")
        await there.settled()
        after = await there.get(NODE_IMAGES, "node1")
        left = {
            (image, tag["tag"]): [one["name"] for one in tag["ownerReferences"]]
            for image, entry in after["spec"]["images"].items()
            for tag in entry["tags"]
        }
        kept = {key: [name for name in names if name != "pull"] for key, names in owners.items()}
        assert left == {key: names for key, names in kept.items() if names}
        await there.client.delete(LISTS, "pulls", "moving")
        await there.settled()
        assert await there.get(LISTS, "pulls", "moving") is None
        assert [one for one in there.writes if one[1] == "Pod"] == []

    in_world(agents=False, more=(CONTAINER_RECREATE,), before=leave_behind)(scenario)()
