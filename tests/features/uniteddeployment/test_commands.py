"""Commands about UnitedDeployments, compared with the controller."""

from __future__ import annotations

import pytest

from app.cli.workload_changes import set_paused
from app.features.uniteddeployment.commands import (
    explain_object,
    explain_pod,
    paused_at,
    plan,
    pods_of,
    progress_of,
    recorded,
    restart,
    undo,
)
from app.kube.errors import CommandError
from app.kube.objects import decode_pod
from app.kube.resources import CONTROLLERREVISIONS, PODS
from app.manager.gates import parse_gates
from tests.features.uniteddeployment.test_reconcile import adaptive
from tests.features.uniteddeployment.world import NAMESPACE, UNITED, World, in_world, united_spec
from tests.kit.cluster import Json

ENABLED = parse_gates("").enabled


async def stored(there: World) -> Json:
    found: Json = await there.client.get(UNITED, "web", NAMESPACE)
    return found


def spec_of(found: Json) -> Json:
    template: Json = found["spec"]["template"]["cloneSetTemplate"]["spec"]
    return template


async def change_image(there: World, image: str) -> None:
    container = [{"name": "main", "image": image}]
    spec = {"template": {"spec": {"containers": container}}}
    await there.respecify({"template": {"cloneSetTemplate": {"spec": spec}}})


@pytest.mark.parametrize("taken", [False, True], ids=["at once", "after a conflict"])
@in_world
async def test_a_plan_names_the_new_revision(there: World, taken: bool) -> None:
    await there.unite({"name": "a", "replicas": 1}, {"name": "b"})
    await there.has(a=1, b=3)

    async def named(image: str) -> str:
        found = await stored(there)
        spec_of(found)["template"]["spec"]["containers"][0]["image"] = image
        head = (await plan(there.client, found, ENABLED)).head
        return head.partition("revision ")[2].partition(";")[0]

    async def recorded_as(name: str) -> bool:
        return (await there.status()).get("updatedRevision") == name

    if taken:
        body = {"metadata": {"name": await named("nginx:2")}, "revision": 1, "data": {"spec": {}}}
        await there.client.create(CONTROLLERREVISIONS, body, NAMESPACE)
        await change_image(there, "nginx:2")
        await there.settled()
        assert (await there.status())["collisionCount"] == 1
    expected = await named("nginx:3")
    await change_image(there, "nginx:3")
    await there.until(lambda: recorded_as(expected))


@in_world
async def test_a_plan_shows_the_next_writes(there: World) -> None:
    await there.unite({"name": "a", "replicas": 1}, {"name": "b"})
    await there.has(a=1, b=3)
    await there.pods("a", 1)
    found = await stored(there)
    nothing = await plan(there.client, found, ENABLED)
    assert (list(nothing.rows), nothing.notes) == ([], ["no subset changes"])
    subsets = [{"name": "a", "replicas": 2}, {"name": "c", "patch": {"metadata": {"labels": {"x": "y"}}}}]
    spec_of(found)["template"]["spec"]["containers"][0]["image"] = "nginx:2"
    wanted = {**found, "spec": {**found["spec"], "replicas": 6, "topology": {"subsets": subsets}}}
    shown = await plan(there.client, wanted, ENABLED)
    assert "the template changes, revision web-" in shown.head
    assert [(row[0], row[2], row[3]) for row in shown.rows] == [
        ("a", "scale 1 to 2, update", "its share of spec.replicas; the template changed"),
        ("c", "create with 4 Pods", "the subset is in the topology"),
        ("b", "delete with 3 Pods", "the subset is not in the topology"),
    ]
    held = {**found, "spec": {**found["spec"], "updateStrategy": {"manualUpdate": {"partitions": {"b": 2}}}}}
    rows = (await plan(there.client, held, ENABLED)).rows
    assert ("b", "update, 2 Pods stay", "the template changed") in [(row[0], *row[2:]) for row in rows]
    impossible = {**found, "spec": {**found["spec"], "topology": {"subsets": [{"name": "a", "replicas": 9}]}}}
    with pytest.raises(CommandError, match="add up to 9"):
        await plan(there.client, impossible, ENABLED)


@in_world
async def test_subsets_and_pods_are_explained(there: World) -> None:
    await there.unite(**adaptive({"name": "a", "maxReplicas": 2}, {"name": "b"}))
    await there.has(a=2, b=2)
    pending = await there.pods("a", 2, ready=False)
    await there.pods("b", 2)
    await there.settled(40)
    await there.has(a=2, b=4)
    found = await explain_object(there.client, await stored(there), ENABLED)
    rows = {row[0]: dict(zip(found.columns, row, strict=True)) for row in found.rows}
    assert (rows["a"]["reserved"], rows["b"]["reserved"], rows["a"]["share"]) == ("2", "0", "0 to 2")
    assert rows["a"]["state"].startswith("unschedulable since 2")
    assert rows["b"]["state"] == "schedulable"
    assert any("substitutes run for" in note for note in found.notes)
    assert found.todo[0].startswith("make room for the Pods of subset a")
    pod = await there.client.get(PODS, pending[0], NAMESPACE, decode=decode_pod)
    (line,) = await explain_pod(there.client, pod, ENABLED)
    assert line.startswith("UnitedDeployment web: Pod of subset a, at the updated revision; reserved")
    (stray,) = await there.pods("a", 1, owned=False)
    other = await there.client.get(PODS, stray, NAMESPACE, decode=decode_pod)
    assert await explain_pod(there.client, other, ENABLED) == ()
    assert len(await pods_of(there.client, await stored(there))) == 4


@pytest.mark.behaviour("UD-29")
@in_world
async def test_a_subset_that_cannot_be_created_is_explained(there: World) -> None:
    nameless = {"spec": {"containers": [{"image": "nginx:1.26"}]}}
    await there.unite({"name": "a", "patch": nameless}, {"name": "b"})
    await there.has(b=2)
    found = await explain_object(there.client, await stored(there), ENABLED)
    (note,) = (one for one in found.notes if one.startswith("patch of subset a: "))
    assert "does not contain declared merge key: name" in note
    # The status shows it as well.
    await there.settled()
    assert (await there.condition("SubsetUpdated"))["message"] == note


@pytest.mark.behaviour("PM-89")
@in_world
async def test_revisions_are_listed_and_can_be_restored(there: World) -> None:
    await there.unite({"name": "a"})
    await there.has(a=4)
    await there.pods("a", 3)
    first = (await there.until(lambda: _revision(there, "")))["updatedRevision"]
    await change_image(there, "nginx:2")
    second = (await there.until(lambda: _revision(there, first)))["updatedRevision"]
    found = await recorded(there.client, await stored(there))
    assert [(one.number, one.name, one.pods) for one in found] == [(1, first, 3), (2, second, 0)]
    assert "update" in found[1].role
    operations = undo(await stored(there), found[0].content)
    patched = {"spec": {"template": operations[0]["value"]}}
    assert "creationTimestamp" not in str(patched)
    await there.client.patch(UNITED, "web", patched, NAMESPACE)
    back = await there.until(lambda: _revision(there, second))
    assert back["updatedRevision"] == first


async def _revision(there: World, before: str) -> Json:
    status = await there.status()
    return status if status.get("updatedRevision", before) != before else {}


@in_world
async def test_pausing_and_restarting_change_the_template(there: World) -> None:
    await there.unite({"name": "a"})
    await there.has(a=4)
    assert await restart(there.client, await stored(there)) == "restarted"
    annotations = spec_of(await stored(there))["template"]["metadata"]["annotations"]
    assert list(annotations) == ["kubectl.kubernetes.io/restartedAt"]
    said = await set_paused(there.client, NAMESPACE, ["ud", "web"], paused=True)
    assert said == "uniteddeployment.apps.kruise.io/web paused"
    found = await stored(there)
    assert spec_of(found)["updateStrategy"]["rollingUpdate"]["paused"] is True
    with pytest.raises(CommandError, match="the rollout is paused"):
        await restart(there.client, found)
    assert "resumed" in await set_paused(there.client, NAMESPACE, ["ud", "web"], paused=False)
    # Unchanged, or it would be another revision.
    assert "rollingUpdate" not in spec_of(await stored(there)).get("updateStrategy", {})
    await there.respecify({"template": {"cloneSetTemplate": {"spec": {"updateStrategy": in_place()}}}})
    with pytest.raises(CommandError, match="InPlaceIfPossible updates Pods in place"):
        await restart(there.client, await stored(there))


def in_place() -> Json:
    return {"type": "RollingUpdate", "rollingUpdate": {"podUpdatePolicy": "InPlaceIfPossible"}}


def united(kind: str, status: Json | None = None, replicas: int = 4) -> Json:
    return {
        "apiVersion": "apps.kruise.io/v1beta1",
        "kind": "UnitedDeployment",
        "metadata": {"name": "web", "namespace": NAMESPACE, "generation": 3},
        "spec": united_spec(replicas, kind),
        "status": {"observedGeneration": 3, "replicas": 4, "currentRevision": "web-1", **(status or {})},
    }


@pytest.mark.parametrize(
    ("kind", "where"),
    [
        ("deploymentTemplate", ("paused",)),
        ("advancedStatefulSetTemplate", ("updateStrategy", "rollingUpdate", "paused")),
    ],
)
def test_the_paused_field_is_found_for_every_kind(kind: str, where: tuple[str, ...]) -> None:
    assert (*paused_at(united(kind)), "paused") == ("spec", "template", kind, "spec", *where)


def test_native_statefulsets_cannot_be_paused() -> None:
    with pytest.raises(CommandError, match="to keep Pods at the old revision"):
        paused_at(united("statefulSetTemplate"))


FINISHED = {"readyReplicas": 4, "updatedReplicas": 4, "updatedReadyReplicas": 4}
REFUSED = {"type": "SubsetUpdated", "status": "False", "message": "shares cannot be met"}
MORE = "4 Pods updated, more than the 3 requested, 4 of 3 ready"
KEPT = {
    "subsetStatuses": [{"name": "a", "replicas": 4, "partition": 1}],
    "updatedReplicas": 3,
    "updatedReadyReplicas": 3,
}


@pytest.mark.parametrize(
    ("obj", "done", "said"),
    [
        (united("deploymentTemplate", FINISHED), True, "4 of 4 Pods updated, 4 of 4 ready"),
        (united("deploymentTemplate", {**FINISHED, "observedGeneration": 2}), False, "waiting for the controller"),
        (united("cloneSetTemplate", {**FINISHED, **KEPT}), True, "partitions keep 1 at the old revision"),
        (united("deploymentTemplate", {**FINISHED, "updatedReadyReplicas": 2}), False, "4 of 4 ready"),
        (united("deploymentTemplate", {**FINISHED, "reservedPods": 2}), True, "2 more wait for a node"),
        (united("deploymentTemplate", {**FINISHED, "conditions": [REFUSED]}), False, "shares"),
        (united("deploymentTemplate", FINISHED, replicas=3), False, MORE),
    ],
)
def test_the_progress_of_a_rollout_is_shown(obj: Json, done: bool, said: str) -> None:
    found = progress_of(obj)
    assert (found.done, found.failed) == (done, "")
    assert said in found.text


def test_a_stuck_subset_fails_the_rollout() -> None:
    stuck = {"type": "Progressing", "status": "False", "message": "a: too late"}
    found = progress_of(united("deploymentTemplate", {**FINISHED, "conditions": [stuck]}))
    assert (found.done, found.failed) == (False, "a: too late")
