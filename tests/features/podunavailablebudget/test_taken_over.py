"""What OpenKruise left behind is taken over: no Pod is touched, and nothing is written that says nothing new."""

from __future__ import annotations

import pytest

from app.features.cloneset.kind import CLONE_SET
from app.kube.errors import NotFound
from app.kube.resources import CONTROLLERREVISIONS, PODS
from tests.features.podunavailablebudget.world import BUDGETS, NAMESPACE, Json, SmallCluster, small_cluster
from tests.kube.fakes import virtual
from tests.openkruise import bare
from tests.openkruise import recorded as everything

PLACES = {
    "CloneSet": CLONE_SET.resource(),
    "Pod": PODS,
    "PodUnavailableBudget": BUDGETS,
    "ControllerRevision": CONTROLLERREVISIONS,
}


def recorded() -> list[Json]:
    """The budget, its workload and their Pods, owners first."""
    order = list(PLACES)
    mine = [
        one
        for one in everything()
        if one["kind"] in PLACES
        and (one["metadata"]["name"].startswith("spread") or one["kind"] == "PodUnavailableBudget")
    ]
    found = {one["metadata"]["uid"]: one for one in mine}
    return sorted(found.values(), key=lambda one: order.index(one["kind"]))


async def lay(cluster: SmallCluster) -> None:
    async def served() -> bool:
        try:
            await cluster.user.list(CLONE_SET.resource(), NAMESPACE)
        except NotFound:
            return False
        return True

    await cluster.until(served, "CloneSets are served")
    uids: dict[str, str] = {}
    for one in recorded():
        body = bare(one)
        body["metadata"]["namespace"] = NAMESPACE
        for reference in one["metadata"].get("ownerReferences", ()):
            body["metadata"]["ownerReferences"] = [{**reference, "uid": uids[reference["uid"]]}]
        resource, name = PLACES[one["kind"]], one["metadata"]["name"]
        made = await cluster.user.create(resource, body, NAMESPACE)
        uids[one["metadata"]["uid"]] = made["metadata"]["uid"]
        if one.get("status"):
            await cluster.user.patch(resource, name, {"status": one["status"]}, NAMESPACE, subresource="status")


@pytest.mark.behaviour("PUB-32", "PUB-58", "MGR-142")
@virtual
async def test_takeover_writes_nothing() -> None:
    before: dict[str, Json] = {}

    async def prepare(cluster: SmallCluster) -> None:
        await lay(cluster)
        before.update({one["metadata"]["name"]: one for one in (await cluster.user.list(PODS, NAMESPACE)).items})
        before["pub"] = await cluster.user.get(BUDGETS, "pub", NAMESPACE)

    async with small_cluster(prepare=prepare) as cluster:
        await cluster.clock.sleep(60)
        assert len(before) == 6
        assert [line for line in cluster.sent.requests if not line.startswith("GET")] == []
        assert await cluster.user.get(BUDGETS, "pub", NAMESPACE) == before["pub"]
        # It is at work: a change is answered with new numbers.
        await cluster.user.patch(BUDGETS, "pub", {"spec": {"maxUnavailable": "20%"}}, NAMESPACE)
        await cluster.numbers(1, 5, 4, 5, name="pub")
        for one in (await cluster.user.list(PODS, NAMESPACE)).items:
            assert one == before[one["metadata"]["name"]]
