"""Env from metadata on nodes without an agent that restarts containers."""

from __future__ import annotations

from typing import Any

import pytest

from app.api import names
from app.kube.resources import PODS
from app.pods.agents import REPORT_SECONDS
from tests.features.cloneset.world import NAMESPACE, SmallCluster, in_cluster, rolling


def versioned(version: str) -> dict[str, Any]:
    """A template whose container reads a label of its Pod."""
    source = {"fieldRef": {"fieldPath": "metadata.labels['version']"}}
    container = {"name": "main", "image": "nginx:1", "env": [{"name": "VERSION", "valueFrom": source}]}
    return {"metadata": {"labels": {"app": "web", "version": version}}, "spec": {"containers": [container]}}


@in_cluster
@pytest.mark.behaviour("CS-132", "PM-48")
@pytest.mark.parametrize(("policy", "replaced"), [("InPlaceIfPossible", True), ("InPlaceOnly", False)])
async def test_a_pod_without_an_agent_is_replaced_where_that_is_allowed(
    cluster: SmallCluster, policy: str, replaced: bool
) -> None:
    """Updated in place, such a Pod would stay out of service forever."""
    await cluster.apply(replicas=1, template=versioned("1"), updateStrategy=rolling(policy))
    await cluster.settled(readyReplicas=1)
    before = await cluster.uids()
    await cluster.patch({"spec": {"template": {"metadata": {"labels": {"version": "2"}}}}})
    await cluster.settled(updatedReplicas=1)
    if replaced:
        await cluster.settled(updatedReadyReplicas=1)
    assert (await cluster.uids() != before) is replaced


class Everywhere:
    def runs_on(self, node: str) -> bool:
        return True


@in_cluster(agents=Everywhere())
@pytest.mark.behaviour("PM-140")
@pytest.mark.parametrize("reports", [True, False])
async def test_the_update_waits_for_the_report_of_the_agent(cluster: SmallCluster, reports: bool) -> None:
    await cluster.apply(replicas=1, template=versioned("1"), updateStrategy=rolling("InPlaceIfPossible"))
    await cluster.settled(readyReplicas=1)
    (before,) = await cluster.pods()
    await cluster.patch({"spec": {"template": {"metadata": {"labels": {"version": "2"}}}}})
    found = await cluster.settled(replicas=1, updatedReplicas=0)
    await cluster.clock.sleep(REPORT_SECONDS / 2)
    found = await cluster.settled(replicas=1, updatedReplicas=0)
    (waiting,) = (one for one in found["conditions"] if one["type"] == "WaitingForNodeAgent")
    assert waiting["status"] == "True"
    assert f"has not reported the containers of {before['metadata']['name']} yet" in waiting["message"]
    if reports:
        report = {"metadata": {"annotations": {names.RUNTIME_CONTAINERS_META: '{"containers": []}'}}}
        await cluster.user.patch(PODS, before["metadata"]["name"], report, NAMESPACE)
    found = await cluster.settled(replicas=1, updatedReplicas=1)
    (after,) = await cluster.pods()
    assert (after["metadata"]["uid"] == before["metadata"]["uid"]) is reports
    assert not [one for one in found.get("conditions") or () if one["type"] == "WaitingForNodeAgent"]
