"""The controller of PersistentPodState on the sandbox's API server."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.features.persistentpodstate import reconcile
from app.features.persistentpodstate.commands import explain_object
from app.features.persistentpodstate.reconcile import Options, PersistentPodStateReconciler
from app.kube.client import Client
from app.kube.resources import NODES, PODS, STATEFULSETS
from app.kube.wire import Request, Response
from tests.features.persistentpodstate.states import GAME, HOST, TARGET, ZONE, Json
from tests.features.persistentpodstate.states import GAMES as LISTED
from tests.features.persistentpodstate.test_generation import workload
from tests.features.persistentpodstate.world import ADVANCED, GAMES, STATES, World, in_world
from tests.kube.fakes import json_response, status_body
from tests.openkruise import FOLDER


@pytest.mark.behaviour("PPS-20", "PPS-23", "PPS-24", "PPS-29")
@in_world
async def test_the_last_ready_node_of_each_pod_is_recorded(world: World) -> None:
    await world.workload()
    await world.pod("web-0", "node-a")
    await world.remember(required=[ZONE], preferred=[(100, [HOST])])
    await world.pod("web-1", "node-b", ready=False)
    await world.becomes(world.places, {"web-0": "node-a"})
    await world.ready("web-1")
    await world.becomes(world.places, {"web-0": "node-a", "web-1": "node-b"})
    found = await world.stored()
    told = (await explain_object(world.client, found, lambda _: True)).rows
    assert [row[:3] for row in told] == [("web-0", "node-a", "on node-a"), ("web-1", "node-b", "on node-b")]
    assert found["status"]["podStates"]["web-1"]["nodeTopologyLabels"] == {ZONE: "z2", HOST: "node-b"}
    assert found["status"]["observedGeneration"] == found["metadata"]["generation"]
    await world.kill("web-1")
    await world.pod("web-1", "node-a", ready=False)
    await world.settled()
    assert (await world.places())["web-1"] == "node-b"
    await world.ready("web-1")
    await world.becomes(world.places, {"web-0": "node-a", "web-1": "node-a"})
    # Without changes nothing is written.
    await world.settled()
    writes = len(world.writes)
    await world.client.patch(PODS, "web-0", {"metadata": {"labels": {"a": "b"}}}, "ns")
    await world.settled()
    assert len(world.writes) == writes


@pytest.mark.behaviour("PPS-4", "PPS-26", "PPS-27")
@pytest.mark.parametrize("policy", ["WhenScaled", "WhenDeleted"])
@in_world
async def test_scaled_in_pods_are_forgotten_or_kept(world: World, policy: str) -> None:
    await world.workload(STATEFULSETS)
    target = {**TARGET, "apiVersion": "apps/v1"}
    await world.remember(required=[ZONE], target=target, persistentPodStateRetentionPolicy=policy)
    for number in range(3):
        await world.pod(f"web-{number}", "node-a")
    every = {f"web-{number}": "node-a" for number in range(3)}
    await world.becomes(world.places, every)
    await world.kill("web-1")
    await world.scale(2, STATEFULSETS)
    await world.kill("web-2")
    await world.settled()
    if policy == "WhenScaled":
        del every["web-2"]
    assert await world.places() == every


@pytest.mark.behaviour("PPS-20", "PPS-21")
@pytest.mark.parametrize("native", [True, False], ids=["native", "Advanced"])
@in_world
async def test_without_the_workload_nothing_is_recorded(world: World, native: bool) -> None:
    resource = STATEFULSETS if native else ADVANCED
    await world.workload(resource)
    target = {**TARGET, "apiVersion": resource.api_version}
    await world.remember(required=[ZONE], target=target, persistentPodStateRetentionPolicy="WhenDeleted")
    await world.pod("web-0", "node-a")
    await world.becomes(world.places, {"web-0": "node-a"})
    await world.client.delete(resource, "web", "ns", propagation_policy="Orphan")
    await world.becomes(world.places, {})


@pytest.mark.behaviour("PPS-46")
@pytest.mark.parametrize("refused", [0, 1])
@in_world
async def test_a_briefly_ready_pod_is_recorded(world: World, refused: int) -> None:
    await world.workload()
    await world.remember(required=[ZONE])
    await world.settled()
    answers = iter([True] * refused)
    world.manager.refuse = lambda request: request.method == "PATCH" and next(answers, False)
    await world.pod("web-0", "node-b")
    await world.kill("web-0")
    await world.becomes(world.places, {"web-0": "node-b"})
    assert next(answers, None) is None


@pytest.mark.behaviour("PPS-46")
@in_world
async def test_few_deleted_pods_are_kept_while_the_status_cannot_be_written(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Users may make a status too large to be written, and then create and delete Pods without end."""
    monkeypatch.setattr(reconcile, "MAX_GONE", 1)
    await world.workload(replicas=2)
    await world.remember(required=[ZONE])
    await world.settled()
    world.manager.refuse = lambda request: request.method == "PATCH"
    for name in ("web-0", "web-1"):
        await world.pod(name, "node-b")
        await world.kill(name)
        await world.settled()
    world.manager.refuse = lambda _: False
    await world.becomes(world.places, {"web-0": "node-b"}, 120)


@pytest.mark.behaviour("PPS-46")
@in_world
async def test_a_pod_deleted_during_a_failing_write_is_recorded(world: World) -> None:
    await world.workload(replicas=2)
    await world.remember(required=[ZONE])
    await world.settled()
    forward, failing = world.manager.forward, iter([True])

    async def interrupted(request: Request) -> Response:
        if request.method != "PATCH" or not next(failing, False):
            return await forward(request)
        await world.pod("web-1", "node-b")
        await world.kill("web-1")
        await world.clock.sleep(1)
        return json_response(500, status_body(500, "InternalError"))

    world.manager.forward = interrupted
    await world.pod("web-0", "node-a")
    await world.kill("web-0")
    await world.becomes(world.places, {"web-0": "node-a", "web-1": "node-b"})


@pytest.mark.behaviour("PPS-42")
@in_world
async def test_an_unknown_node_is_waited_for_and_its_labels_are_followed(world: World) -> None:
    await world.workload()
    await world.remember(required=[ZONE])
    await world.pod("web-0", "node-c")
    await world.settled()
    assert await world.places() == {}
    await world.node("node-c", "z3")
    await world.becomes(world.places, {"web-0": "node-c"})
    await world.client.patch(NODES, "node-c", {"metadata": {"labels": {ZONE: "z4"}}})

    async def zone() -> str:
        states = (await world.stored())["status"]["podStates"]
        return str(states["web-0"]["nodeTopologyLabels"][ZONE])

    await world.becomes(zone, "z4")


@pytest.mark.behaviour("PPS-43")
@pytest.mark.parametrize("gate", ["", "PersistentPodStateForgetsLostNodes=true"])
def test_a_lost_record_is_reported_and_dropped_only_with_the_gate(gate: str) -> None:
    async def scenario(world: World) -> None:
        await world.workload()
        await world.remember(required=[HOST])
        await world.pod("web-0", "node-a")
        await world.pod("web-1", "node-b")
        both = {"web-0": "node-a", "web-1": "node-b"}
        await world.becomes(world.places, both)
        await world.kill("web-1")
        await world.client.delete(NODES, "node-b")
        await world.becomes(world.told, [("PlaceLost", "PersistentPodState")])
        await world.settled()
        assert await world.places() == ({"web-0": "node-a"} if gate else both)
        # A place removed by hand is not restored.
        await world.client.patch(STATES, "web", {"status": {"podStates": {"web-1": None}}}, "ns", subresource="status")
        await world.settled()
        assert await world.places() == {"web-0": "node-a"}

    in_world(gate)(scenario)()


@pytest.mark.behaviour("PPS-13", "PPS-14", "PPS-15", "PPS-16", "PPS-17", "PPS-18")
@pytest.mark.parametrize("native", [True, False], ids=["native", "Advanced"])
@in_world
async def test_annotations_create_update_and_delete_an_object(world: World, native: bool) -> None:
    resource = STATEFULSETS if native else ADVANCED
    await world.workload(resource, switch="true", required=ZONE)
    await world.becomes(world.generated, ([ZONE], []))
    await world.pod("web-0", "node-a")
    await world.becomes(world.places, {"web-0": "node-a"})
    found = await world.stored()
    assert found["spec"]["targetRef"] == {"apiVersion": resource.api_version, "kind": "StatefulSet", "name": "web"}
    assert found["metadata"]["ownerReferences"] == [world.owners["web"]]
    await world.annotate(resource, preferred=HOST, required=None)
    await world.becomes(world.generated, ([], [HOST]))
    # Other fields belong to the user; fields set by the annotations are restored.
    changed = {"persistentPodStateRetentionPolicy": "WhenDeleted", "requiredPersistentTopology": {"keys": ["rack"]}}
    await world.client.patch(STATES, "web", {"spec": changed}, "ns")
    await world.becomes(world.generated, ([], [HOST]))
    assert (await world.stored())["spec"]["persistentPodStateRetentionPolicy"] == "WhenDeleted"
    await world.annotate(resource, preferred=None)
    await world.settled()
    assert await world.state() is not None
    await world.annotate(resource, switch="false")
    await world.becomes(world.state, None)


@pytest.mark.behaviour("PPS-18", "PPS-45")
@in_world
async def test_an_object_of_the_user_is_left_alone(world: World) -> None:
    await world.remember(required=["rack"])
    await world.workload(switch="true", required=ZONE)
    await world.becomes(world.told, [("PersistentPodStateNotGenerated", "StatefulSet")])
    await world.annotate(switch="false")
    await world.settled()
    assert await world.generated() == (["rack"], [])


@pytest.mark.behaviour("PPS-45")
def test_only_the_last_error_about_a_workload_is_remembered() -> None:
    """Users choose the annotations, and with them the text."""
    nothing: Any = None
    said: list[str] = []

    class Recorder:
        def event(self, _regarding: object, _type: str, _reason: str, text: str) -> None:
            said.append(text)

    events: Any = Recorder()
    reconciler = PersistentPodStateReconciler(nothing, nothing, events, dict, Options(), "")
    for number in range(100):
        for _ in range(2):
            reconciler._not_generated(workload(), f"error {number}")
    assert [text.rpartition(": ")[2] for text in said] == [f"error {number}" for number in range(100)]
    assert [len(known) for known in reconciler._last_events.values()] == [1]


@pytest.mark.behaviour("PPS-45")
@in_world
async def test_the_second_of_two_workloads_with_one_name_is_reported(world: World) -> None:
    await world.workload(switch="true", required=ZONE)
    await world.becomes(world.generated, ([ZONE], []))
    advanced = world.owners["web"]
    await world.workload(STATEFULSETS, switch="true", required=HOST)
    await world.becomes(world.told, [("PersistentPodStateNotGenerated", "StatefulSet")])
    assert (await world.stored())["metadata"]["ownerReferences"] == [advanced]
    assert await world.generated() == ([ZONE], [])


@pytest.mark.behaviour("PPS-9", "PPS-10", "PPS-11", "PPS-44")
@in_world
async def test_workloads_of_listed_kinds_are_watched(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also on the second page, although another kind cannot be listed and the first attempt to generate fails."""
    monkeypatch.setitem(Client.list_page.__kwdefaults__, "limit", 1)
    failing = iter([True])
    world.manager.refuse = lambda asked: (
        asked.path == "/apis/example.com/v1"
        or (asked.method == "POST" and "/persistentpodstates" in asked.path and next(failing, False))
    )
    await world.games()
    await world.workload(GAMES, name="other")
    await world.workload(GAMES, replicas=2, switch="true", required=ZONE)
    await world.pod("web-0", "node-a")
    await world.pod("web-1", "node-b")
    await world.settled()
    assert await world.state() is None
    # The list is in force at once.
    await world.configure(LISTED.replace("[", '[{"Group":"example.com","Version":"v1","Kind":"Fleet"},', 1))
    await world.becomes(world.generated, ([ZONE], []))
    assert next(failing, None) is None
    await world.becomes(world.places, {"web-0": "node-a", "web-1": "node-b"})
    assert (await world.stored())["spec"]["targetRef"] == GAME
    await world.scale(1, GAMES)
    await world.kill("web-1")
    await world.becomes(world.places, {"web-0": "node-a"})
    await world.annotate(GAMES, switch=None)
    await world.becomes(world.state, None)
    await world.remember(required=[ZONE], target=GAME)
    await world.becomes(world.places, {"web-0": "node-a"})
    await world.client.patch(GAMES, "web", {"metadata": {"finalizers": ["example.com/wait"]}}, "ns")
    await world.client.delete(GAMES, "web", "ns")
    await world.becomes(world.places, {})


@pytest.mark.behaviour("PPS-18", "PPS-44")
@in_world
async def test_an_object_whose_annotations_are_gone_is_deleted_by_the_next_leader_too(world: World) -> None:
    await world.games()
    await world.workload(GAMES)
    await world.remember(required=[ZONE], target=GAME)
    await world.client.patch(STATES, "web", {"metadata": {"ownerReferences": [world.owners["web"]]}}, "ns")
    await world.configure(LISTED)
    await world.client.patch(STATES, "web", {"metadata": {"labels": {"a": "b"}}}, "ns")
    await world.becomes(world.state, None)


@pytest.mark.behaviour("PPS-38")
@in_world
async def test_a_listed_kind_that_may_not_be_read_is_reported(world: World) -> None:
    await world.games()
    await world.workload(GAMES, replicas=2)
    await world.pod("web-0", "node-a")
    world.manager.refuse = lambda request: request.path.endswith("/gameserversets/web")
    world.manager.status = 403
    await world.configure(LISTED)
    await world.remember(required=[ZONE], target=GAME)
    await world.becomes(world.told, [("TargetNotReadable", "PersistentPodState")])
    world.manager.refuse = lambda _: False
    await world.becomes(world.places, {"web-0": "node-a"})


def recorded(kind: str) -> list[Json]:
    items = json.loads((FOLDER / "10-statefulset.json").read_text("utf-8"))["items"]
    return [one for one in items if one.get("kind") == kind]


@pytest.mark.behaviour("PPS-15", "PPS-18", "PPS-23", "PPS-29")
@in_world
async def test_the_openkruise_record_is_adopted_without_a_write(world: World) -> None:
    (workload,), (state,) = recorded("StatefulSet"), recorded("PersistentPodState")
    for name in ("node1", "node2", "node3"):
        await world.node(name, "z")
    annotations = workload["metadata"]["annotations"]
    made = await world.create(ADVANCED, "st", workload["spec"], annotations=annotations)
    owner = {**state["metadata"]["ownerReferences"][0], "uid": made["metadata"]["uid"]}
    world.owners["st"] = owner
    for pod in recorded("Pod"):
        await world.pod(pod["metadata"]["name"], pod["spec"]["nodeName"], "st")
    await world.create(STATES, "st", state["spec"], ownerReferences=[owner])
    await world.client.patch(STATES, "st", {"status": state["status"]}, "ns", subresource="status")
    await world.settled()
    found = await world.stored("st")
    assert (found["spec"], found["status"]) == (state["spec"], state["status"])
    ours = [one.path for one in world.manager.requests if one.method != "GET" and "persistentpodstates" in one.path]
    assert [path for path in ours if not path.endswith("/status")] == []
    # Then it continues: a Pod moves, and the annotations are removed.
    await world.kill("st-2")
    await world.pod("st-2", "node3", "st")
    moved = {"st-0": "node3", "st-2": "node3", "st-3": "node2", "st-4": "node3"}
    await world.becomes(lambda: world.places("st"), moved)
    await world.client.patch(ADVANCED, "st", {"metadata": {"annotations": None}}, "ns")
    await world.becomes(lambda: world.state("st"), None)
