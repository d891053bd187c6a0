"""What OpenKruise left behind is taken over: no Pod is touched, and nothing is written that says nothing new."""

from __future__ import annotations

import pytest

from app.kube.resources import PODS
from tests.features.podunavailablebudget.world import BUDGETS, NAMESPACE, Json, SmallCluster, small_cluster
from tests.kube.fakes import virtual
from tests.openkruise import leave
from tests.openkruise import recorded as everything

ORDER = ["CloneSet", "Pod", "PodUnavailableBudget", "ControllerRevision"]


def recorded() -> list[Json]:
    """The budget, its workload and their Pods, owners first."""
    mine = [
        one
        for one in everything()
        if one["kind"] in ORDER
        and (one["metadata"]["name"].startswith("spread") or one["kind"] == "PodUnavailableBudget")
    ]
    found = {one["metadata"]["uid"]: one for one in mine}
    return sorted(found.values(), key=lambda one: ORDER.index(one["kind"]))


@pytest.mark.behaviour("PUB-32", "PUB-58", "MGR-142")
@virtual
async def test_takeover_writes_nothing() -> None:
    before: dict[str, Json] = {}

    async def prepare(cluster: SmallCluster) -> None:
        await leave(cluster.user, recorded(), NAMESPACE)
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
