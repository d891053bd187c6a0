"""Commands for DaemonSets on a small cluster."""

from __future__ import annotations

from typing import Any

import pytest

from app.features.daemonset.commands import explain, explain_node, parsed, plan, progress_of, restart
from app.kube.errors import CommandError
from app.kube.objects import decode_node, decode_pod
from app.kube.resources import CONTROLLERREVISIONS, NODES, PODS
from app.manager.gates import parse_gates
from tests.features.daemonset.world import (
    DAEMONSETS,
    NAMESPACE,
    Json,
    SmallCluster,
    in_cluster,
    rolling,
    template,
)

ENABLED = parse_gates("").enabled


async def stored(cluster: SmallCluster) -> Json:
    found: Json = await cluster.user.get(DAEMONSETS, "ds", NAMESPACE)
    return found


def changed(found: Json, image: str = "nginx:2", **spec: object) -> Json:
    return {**found, "spec": {**found["spec"], "template": template(image=image), **spec}}


async def names_by_node(cluster: SmallCluster) -> dict[str, str]:
    return {pod["spec"]["nodeName"]: pod["metadata"]["name"] for pod in await cluster.pods()}


@in_cluster
async def test_a_plan_runs_to_its_end(cluster: SmallCluster) -> None:
    await cluster.deploy(updateStrategy=rolling("InPlaceIfPossible", maxUnavailable=2))
    names = await names_by_node(cluster)
    found = await stored(cluster)
    assert "no Pods are affected" in (await plan(cluster.user, found, ENABLED)).text()
    new = {field: value for field, value in found.items() if field != "status"}
    assert (await plan(cluster.user, new, ENABLED)).text().startswith("DaemonSet default/ds: it is new, revision ds-")
    lines = (await plan(cluster.user, changed(found), ENABLED)).text().splitlines()
    assert lines[0].startswith("DaemonSet default/ds: the template changes, revision ds-")
    assert [line.split()[:5] for line in lines[2:]] == [
        ["1", "node3", names["node3"], "update", "in"],
        ["1", "node2", names["node2"], "update", "in"],
        ["2", "node1", names["node1"], "update", "in"],
    ]
    wanted = changed(found, updateStrategy=rolling(maxSurge=1, maxUnavailable=0, partition=2))
    held = (await plan(cluster.user, wanted, ENABLED)).text()
    assert [line.split()[:2] for line in held.splitlines()[2:4]] == [["1", "node3"], ["2", "node3"]]
    assert "in addition to the old Pod" in held
    assert "2 nodes keep their old Pod: node1, node2; held back by partition 2" in held


@in_cluster
async def test_a_plan_explains_kept_and_deleted_pods(cluster: SmallCluster) -> None:
    in_place = rolling("InPlaceIfPossible", maxUnavailable=1)
    await cluster.deploy(updateStrategy=in_place)
    await cluster.node("node3", {"metadata": {"labels": {"zone": "a"}}})
    found = await stored(cluster)

    async def planned(**spec: object) -> list[str]:
        lines = (await plan(cluster.user, {**changed(found), "spec": {**found["spec"], **spec}}, ENABLED)).text()
        return [" ".join(line.split()) for line in lines.splitlines()[1:]]

    names = await names_by_node(cluster)
    assert (await planned(template=template(nodeSelector={"zone": "a"})))[1:] == [
        f"1 node1 {names['node1']} delete nodeSelector requires label zone=a",
        f"1 node2 {names['node2']} delete nodeSelector requires label zone=a",
        f"2 node3 {names['node3']} recreate add /spec/nodeSelector: cannot be changed in a running Pod",
    ]
    new, nothing = template(image="nginx:2"), "no Pods are affected: "
    assert await planned(template=new, updateStrategy={"type": "OnDelete"}) == [
        f"{nothing}OnDelete: the other Pods are updated when they are deleted"
    ]
    assert await planned(template=new, updateStrategy=rolling(maxUnavailable=1, paused=True)) == [
        f"{nothing}paused: the other Pods are updated after the rollout is resumed"
    ]
    unreadable = {"matchExpressions": [{"key": "a", "operator": "Near"}]}
    assert await planned(template=new, updateStrategy=rolling(maxUnavailable=1, selector=unreadable)) == [
        f"{nothing}held back by the node selector"
    ]
    selected = rolling("InPlaceIfPossible", maxUnavailable=1, selector={"matchLabels": {"zone": "a"}})
    assert (await planned(template=new, updateStrategy=selected))[1:] == [
        f"1 node3 {names['node3']} update in place -",
        "2 nodes keep their old Pod: node1, node2; held back by the node selector",
    ]
    await cluster.node("node2", {"spec": {"taints": [{"key": "private", "effect": "NoSchedule"}]}})
    await cluster.settled(desiredNumberScheduled=2)
    tolerant = template(tolerations=[{"operator": "Exists"}])
    assert len([line for line in await planned(template=tolerant) if " recreate " in line]) == 3


@in_cluster
@pytest.mark.behaviour("DS-53", "PM-90")
@pytest.mark.parametrize("taken", [False, True], ids=["at once", "after a clash"])
async def test_a_plan_names_the_new_revision(cluster: SmallCluster, taken: bool) -> None:
    await cluster.deploy(updateStrategy=rolling(maxUnavailable="100%"))

    async def named(image: str) -> str:
        text = (await plan(cluster.user, changed(await stored(cluster), image), ENABLED)).text()
        return text.splitlines()[0].rpartition(" ")[2]

    if taken:
        body = {"metadata": {"name": await named("nginx:2")}, "revision": 1, "data": {"spec": {}}}
        await cluster.user.create(CONTROLLERREVISIONS, body, NAMESPACE)
        await cluster.image("nginx:2")
        status = await cluster.all_updated()
        assert status["collisionCount"] == 1
        label = {"controller-revision-hash": status["updateRevision"]}
        assert body["metadata"]["name"] != f"ds-{status['updateRevision']}"
        labels = {one["metadata"]["name"]: one["metadata"].get("labels") or {} for one in await cluster.revisions()}
        assert labels[body["metadata"]["name"]] == {}
        assert label.items() <= labels[f"ds-{status['updateRevision']}"].items()
        assert all(label.items() <= pod["metadata"]["labels"].items() for pod in await cluster.pods())
    expected = await named("nginx:3")
    await cluster.image("nginx:3")
    assert f"ds-{(await cluster.all_updated())['updateRevision']}" == expected


@in_cluster
async def test_a_template_whose_hash_is_taken_gets_another_revision(cluster: SmallCluster) -> None:
    """The hash input does not separate arguments, so different templates can have equal hashes."""

    def with_args(*args: str) -> dict[str, Any]:
        made = template()
        made["spec"]["containers"][0]["args"] = list(args)
        return made

    await cluster.deploy(template=with_args("a b"), updateStrategy=rolling(maxUnavailable="100%"))
    found = await stored(cluster)
    found["spec"]["template"] = with_args("a", "b")
    lines = (await plan(cluster.user, found, ENABLED)).text().splitlines()
    assert len([line for line in lines if " recreate " in line]) == 3
    await cluster.patch({"spec": {"template": with_args("a", "b")}})
    status = await cluster.all_updated()
    assert (status["collisionCount"], lines[0].rpartition(" ")[2]) == (1, f"ds-{status['updateRevision']}")


@in_cluster
async def test_a_pod_and_a_node_are_explained(cluster: SmallCluster) -> None:
    await cluster.deploy(updateStrategy=rolling(maxUnavailable=1, partition=3))
    await cluster.image("nginx:2")
    await cluster.settled(updatedNumberScheduled=0)
    name = (await cluster.pods())[0]["metadata"]["name"]
    pod = await cluster.user.get(PODS, name, NAMESPACE, decode=decode_pod)
    lines = list(await explain(cluster.user, pod, await stored(cluster), ENABLED))
    assert lines[0] == f"on node {pod.spec.node_name}"
    assert "available" in lines
    assert lines[-1] == "next: stays at its revision, held back by partition 3"
    taint = [{"key": "private", "effect": "NoSchedule"}]
    await cluster.node("node1", {"spec": {"taints": taint}})
    await cluster.settled(desiredNumberScheduled=2)
    node = await cluster.user.get(NODES, "node1", "", decode=decode_node)
    (line,) = await explain_node(cluster.user, node, ENABLED)
    assert line.startswith("DaemonSet default/ds: ds-")
    assert line.endswith("(available), which may stay: taint private:NoSchedule is not tolerated")
    (line,) = await explain_node(cluster.user, await cluster.user.get(NODES, "node2", "", decode=decode_node), ENABLED)
    assert line.endswith("(available)")


@in_cluster
async def test_a_restart_replaces_all_pods_and_its_progress_is_shown(cluster: SmallCluster) -> None:
    await cluster.apply(updateStrategy=rolling(maxUnavailable=1, partition=1))
    assert not progress_of(parsed(await stored(cluster))).done
    await cluster.all_updated()
    before = set((await cluster.uids()).values())
    assert await restart(cluster.user, await stored(cluster)) == "restarted"
    await cluster.settled(updatedNumberScheduled=2, numberAvailable=3)
    found = progress_of(parsed(await stored(cluster)))
    assert (found.done, found.expected) == (True, 2)
    assert found.text == "2 of 2 nodes updated, 3 of 3 available; the partition keeps 1 at the old revision"
    assert len(before & set((await cluster.uids()).values())) == 1
    await cluster.patch({"spec": {"updateStrategy": rolling("InPlaceIfPossible", maxUnavailable=1)}})
    with pytest.raises(CommandError, match="would not restart them"):
        await restart(cluster.user, await stored(cluster))
