"""Takeover from OpenKruise: our controllers write nothing at first, and then continue its work."""

from __future__ import annotations

import json
from typing import Any

from app.api.conversion import convert
from app.features.containerrecreate.feature import FEATURE as CONTAINER_RECREATE
from app.features.containerrecreate.kind import CONTAINER_RECREATE_REQUEST
from app.features.imagepull.kind import IMAGE_LIST_PULL_JOB, IMAGE_PULL_JOB, NODE_IMAGE
from app.kube.client import Client
from app.kube.resources import NAMESPACES, NODES, PODS
from tests.features.imagepull.world import JOBS, LISTS, NODE_IMAGES, World, in_world
from tests.openkruise import FOLDER

Json = dict[str, Any]
#: When it was recorded, and the clock's day: nothing of it is over yet.
RECORDED, TODAY = "2026-11-22T14:", "2030-01-01T00:"
KINDS = {
    kind.kind: kind.resource() for kind in (IMAGE_PULL_JOB, IMAGE_LIST_PULL_JOB, NODE_IMAGE, CONTAINER_RECREATE_REQUEST)
}


async def leave_behind(client: Client) -> None:
    """The recorded objects, with their statuses, under uids of this API server."""
    text = (FOLDER / "13-node-agent.json").read_text("utf-8").replace(RECORDED, TODAY)
    await client.create(NAMESPACES, {"metadata": {"name": "moving"}})
    items = sorted(json.loads(text)["items"], key=lambda one: list(KINDS).index(one["kind"]), reverse=True)
    items.sort(key=lambda one: one["kind"] != "ImageListPullJob")
    items.sort(key=lambda one: one["kind"] == "NodeImage")
    uids: dict[str, str] = {}
    for item in items:
        for old, new in uids.items():
            item = json.loads(json.dumps(item).replace(old, new))
        resource = KINDS[item["kind"]]
        item = item if item["apiVersion"] == resource.api_version else convert(item, resource.api_version)
        metadata = item["metadata"]
        # Workloads are not recorded here, and whose owner is gone would be collected.
        owners = [one for one in metadata.pop("ownerReferences", ()) if one["uid"] in uids.values()]
        metadata["ownerReferences"] = owners
        if item["kind"] == "NodeImage":
            await client.create(NODES, {"metadata": {"name": metadata["name"], "labels": metadata["labels"]}})
        namespace = metadata.get("namespace", "")
        old = metadata.pop("uid")
        metadata.pop("resourceVersion")
        made = await client.create(resource, item, namespace)
        uids[old] = made["metadata"]["uid"]
        if "status" in item:
            body = {"status": item["status"]}
            await client.patch(resource, metadata["name"], body, namespace, subresource="status")
    await client.create(
        PODS, {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "m", "image": "i"}]}}, "moving"
    )


def test_takeover_writes_nothing_and_later_changes_apply() -> None:
    async def scenario(there: World) -> None:
        await there.settled(60)
        assert [one for one in there.writes if one[1] != "Event"] == []
        # Now they are ours: a tag goes with the last job that asked for it.
        before = await there.get(NODE_IMAGES, "node1")
        assert before is not None
        owners = {
            (image, tag["tag"]): [one["name"] for one in tag["ownerReferences"]]
            for image, entry in before["spec"]["images"].items()
            for tag in entry["tags"]
        }
        await there.client.delete(JOBS, "pull", "moving")
        await there.settled()
        after = await there.get(NODE_IMAGES, "node1")
        assert after is not None
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
