"""``pykruise explain pub`` and ``explain pod``: which Pods count, why others do not, and how the next request would
be answered."""

from __future__ import annotations

from typing import Any

import pytest

from app.features.podunavailablebudget.commands import COMMANDS, rule
from app.features.podunavailablebudget.types import PodUnavailableBudget
from app.framework.commands import report
from app.kube.errors import CommandError, NotFound
from app.kube.objects import decode_pod
from app.kube.resources import PODS
from app.manager.gates import parse_gates
from tests.features.podunavailablebudget.world import BUDGETS, NAMESPACE, SmallCluster, in_cluster

UPDATES = "PodUnavailableBudgetUpdateGate=true"


async def explained(cluster: SmallCluster, gates: str = "", name: str = "shop") -> list[str]:
    assert COMMANDS.explain_object is not None
    stored = await cluster.user.get(BUDGETS, name, NAMESPACE)
    found = report(await COMMANDS.explain_object(cluster.user, stored, parse_gates(gates).enabled))
    return [" ".join(line.split()) for line in found.text().splitlines()]


async def of_pod(cluster: SmallCluster, name: str, gates: str = "") -> list[str]:
    assert COMMANDS.explain_any is not None
    pod = await cluster.user.get(PODS, name, NAMESPACE, decode=decode_pod)
    return [
        " ".join(line.split()) for line in await COMMANDS.explain_any(cluster.user, pod, parse_gates(gates).enabled)
    ]


@pytest.mark.behaviour("PUB-140")
@in_cluster
async def test_explain_shows_the_budget_its_pods_and_the_next_change(cluster: SmallCluster) -> None:
    await cluster.budget(maxUnavailable="40%")
    owner = await cluster.replicaset(replicas=5)
    pods = await cluster.made(5, owner)
    await cluster.numbers(2, 5, 3, 5)
    assert (await explained(cluster))[:2] == [
        "PodUnavailableBudget shop: at most 40% of 5 desired Pods may be unavailable.",
        "5 are available, 3 must stay available: 2 more may be disrupted.",
    ]
    await cluster.replicas[0].delete(await cluster.get("web-0"))
    await cluster.is_ready("web-1", ready=False)
    await cluster.user.patch(
        PODS, "web-2", {"metadata": {"annotations": {"pub.kruise.io/no-protect": "true"}}}, NAMESPACE
    )
    await cluster.numbers(0, 3, 3, 5)
    assert len(pods) == 5
    assert await explained(cluster, UPDATES) == [
        "PodUnavailableBudget shop: at most 40% of 5 desired Pods may be unavailable.",
        "3 are available, 3 must stay available, 1 granted but not carried out yet: the next request is refused.",
        "",
        "POD AVAILABLE DELETION EVICTION UPDATE BECAUSE",
        "web-0 no: its removal was granted granted granted granted a disruption of the Pod is already granted",
        "web-1 no: it is not ready granted granted granted the Pod is already unavailable",
        "web-2 yes granted granted granted an annotation exempts the Pod from protection",
        "web-3 yes refused refused refused the budget is used up",
        "web-4 yes refused refused refused the budget is used up",
    ]
    assert await of_pod(cluster, "web-3") == [
        "budget shop; the Pod counts as available: yes",
        "deletion refused: the budget is used up",
        "eviction refused: the budget is used up",
        "update not checked: gate PodUnavailableBudgetUpdateGate is off",
    ]
    await cluster.user.delete(BUDGETS, "shop", NAMESPACE)
    assert await of_pod(cluster, "web-3") == ["budget shop: does not exist, so it refuses nothing"]


@pytest.mark.behaviour("PUB-140")
@in_cluster(controller=False)
async def test_explain_says_why_a_budget_has_no_numbers(cluster: SmallCluster) -> None:
    await cluster.budget(minAvailable=1, maxUnavailable=None)
    await cluster.pod("alone")
    found = await explained(cluster)
    assert found[0] == "PodUnavailableBudget shop: at least 1 of 0 desired Pods must stay available."
    assert found[1].startswith("Its status does not reflect its spec yet")
    assert found[-1] == ("alone yes; not annotated yet refused refused not checked the budget is not computed yet")
    assert await of_pod(cluster, "alone") == []
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}
    await cluster.budget("target", selector=None, targetRef=target)
    found = await explained(cluster, name="target")
    assert found[0].startswith("PodUnavailableBudget target: Deployment d does not exist or is being deleted;")
    assert found[-1] == "It has no Pods."
    await cluster.budget("named", selector=None, targetRef={**target, "name": "e"}, protectTotalReplicas=5)
    found = await explained(cluster, name="named")
    assert found[0].startswith("PodUnavailableBudget named: Deployment e does not exist or is being deleted;")
    unknown = {"apiVersion": "example.com/v1", "kind": "Thing", "name": "t"}
    await cluster.budget("unknown", selector=None, targetRef=unknown)
    with pytest.raises(CommandError, match=r"spec\.targetRef: .* serves no namespaced kind Thing"):
        await explained(cluster, name="unknown")
    with pytest.raises(NotFound):
        await explained(cluster, name="nothing")


@pytest.mark.behaviour("PUB-140")
@in_cluster(controller=False)
async def test_explain_names_an_unreadable_budget(cluster: SmallCluster) -> None:
    assert COMMANDS.explain_object is not None
    stored: dict[str, Any] = {"metadata": {"name": "shop", "namespace": NAMESPACE}, "spec": {"selector": 7}}
    with pytest.raises(CommandError, match="PodUnavailableBudget shop: "):
        await COMMANDS.explain_object(cluster.user, stored, parse_gates("").enabled)


@pytest.mark.behaviour("PUB-140")
@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"maxUnavailable": 0}, "at most 0 may be unavailable"),
        ({"maxUnavailable": "10%"}, "at most 10% may be unavailable"),
        ({"minAvailable": 3}, "at least 3 must stay available"),
    ],
)
def test_explain_describes_what_a_budget_requires(spec: dict[str, Any], said: str) -> None:
    body = {"metadata": {"name": "shop"}, "spec": spec}
    assert rule(PodUnavailableBudget.model_validate(body).spec) == said
