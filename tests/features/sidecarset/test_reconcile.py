import asyncio
import logging
from typing import Any

import pytest

from app.api import names
from app.features.sidecarset.reconcile import RECOUNT
from app.kube.wire import Request, Response
from tests.features.sidecarset.controlled import REVISIONS, SETS, World
from tests.kube.fakes import json_response, status_body, until, virtual


def counts(world: World, *wanted: int, name: str = "s") -> Any:
    """A condition: the status counts (matched, updated, ready, both)."""
    return lambda: world.counts(name) == wanted


@pytest.mark.behaviour("SS-73", "SS-106")
@virtual
async def test_a_new_set_gets_a_revision_and_zero_counts() -> None:
    world = World()
    async with world.controlled():
        world.apply()
        await until(counts(world, 0, 0, 0, 0))
    [(name, number)] = world.history()
    assert number == 1
    assert world.status() == {
        "observedGeneration": 1,
        "matchedPods": 0,
        "updatedPods": 0,
        "readyPods": 0,
        "latestRevision": name,
        "collisionCount": 0,
    }
    assert world.writes() == [f"POST {REVISIONS}", f"PATCH {SETS}/s/status"]
    assert world.requests[-1].headers["User-Agent"] == "kruise-manager/sidecarset-controller"


@pytest.mark.behaviour("SS-86", "SS-88", "SS-104", "SS-119")
@pytest.mark.parametrize("type_", ["RollingUpdate", "NotUpdate"])
def test_the_status_follows_every_pod_change(type_: str) -> None:
    @virtual
    async def follow() -> None:
        world = World()
        async with world.controlled():
            world.apply(updateStrategy={"type": type_})
            await until(counts(world, 0, 0, 0, 0))
            world.pod("a")
            world.pod("b")
            world.pod("c", sets="t", hash_of="t")
            await until(counts(world, 2, 2, 2, 2), 1)
            world.pod("a", ready=False)
            await until(counts(world, 2, 2, 1, 1), 1)
            world.pod("a", labels={"app": "other"})
            await until(counts(world, 1, 1, 1, 1), 1)
            world.pod("a")
            await until(counts(world, 2, 2, 2, 2), 1)
            world.pod("b", deletionTimestamp="2030-01-01T00:00:00Z")
            await until(counts(world, 1, 1, 1, 1), 1)
            world.delete_pod("b")
            world.delete_pod("a")  # forced: no update came before
            await until(counts(world, 0, 0, 0, 0), 1)
            # A change of the set's labels only is no new generation.
            world.apply(updateStrategy={"type": type_}, labels={"a": "b"})
            world.apply(updateStrategy={"type": type_}, containers=[{"name": "shipper", "image": "a:2"}])
            await until(lambda: world.status()["observedGeneration"] == 2, 1)

    follow()


@pytest.mark.behaviour("SS-106")
@virtual
async def test_outdated_pods_are_not_counted_as_updated() -> None:
    world = World()
    async with world.controlled():
        world.apply(updateStrategy={"paused": True})
        world.pod("a")
        await until(counts(world, 1, 1, 1, 1))
        world.apply(containers=[{"name": "shipper", "image": "a:2"}], updateStrategy={"paused": True})
        await until(counts(world, 1, 0, 1, 0), 1)
        world.pod("b")
        await until(counts(world, 2, 1, 2, 1), 1)
        world.apply(containers=[{"name": "shipper", "image": "a:1"}, {"name": "more", "image": "b"}])
        await until(counts(world, 0, 0, 0, 0), 1)


@pytest.mark.behaviour("SS-88", "SS-35")
@virtual
async def test_namespace_labels_decide_immediately() -> None:
    world = World()
    async with world.controlled():
        world.apply(namespaceSelector={"matchLabels": {"env": "prod"}})
        world.apply("everywhere")
        world.pod("a", sets="everywhere,s")
        world.pod("b", namespace="lab")
        await until(counts(world, 0, 0, 0, 0))
        world.namespace("shop", env="prod")
        await until(counts(world, 1, 1, 1, 1), 1)
        world.namespace("lab", env="prod")
        await until(counts(world, 2, 2, 2, 2), 1)
        world.namespace("shop", env="dev")
        await until(counts(world, 1, 1, 1, 1), 1)
        await asyncio.sleep(1)
        before = len(world.requests)
        world.namespace("lab", env="prod")
        world.namespace("empty", env="prod")
        await asyncio.sleep(5)
        assert len(world.requests) == before
        world.delete("/api/v1/namespaces/lab")
        await until(counts(world, 0, 0, 0, 0), 1)


@pytest.mark.behaviour("SS-89")
@virtual
async def test_an_unchanged_set_is_not_written() -> None:
    world = World()
    async with world.controlled():
        world.apply()
        world.pod("a")
        await until(counts(world, 1, 1, 1, 1))
        await asyncio.sleep(1)
        before = len(world.requests)
        for _ in range(20):
            world.pod("a")
            await asyncio.sleep(0.2)
        world.apply(labels={"only": "labels"})
        await asyncio.sleep(RECOUNT * 3)
        assert len(world.requests) == before


@pytest.mark.behaviour("SS-88", "SS-89")
@virtual
async def test_a_burst_of_pods_costs_few_writes_with_correct_counts() -> None:
    world = World(latency=0.02)
    async with world.controlled():
        world.apply()
        await until(counts(world, 0, 0, 0, 0))
        before = len(world.writes("status"))
        for number in range(500):
            world.pod(f"web-{number}", ready=number % 2 == 0)
            await asyncio.sleep(0.002)
        await until(counts(world, 500, 500, 250, 250), 1)
        assert len(world.writes("status")) - before <= 12


@pytest.mark.behaviour("SS-88")
@virtual
async def test_a_missed_event_is_repaired_by_the_periodic_recount() -> None:
    world = World()
    async with world.controlled():
        world.apply()
        world.pod("a")
        await until(counts(world, 1, 1, 1, 1))
        handlers, world.pods._handlers = world.pods._handlers, []
        world.pod("b")
        world.pods._handlers = handlers
        await until(counts(world, 2, 2, 2, 2), RECOUNT + 5)


@pytest.mark.behaviour("SS-89")
@virtual
async def test_a_status_changed_by_others_is_restored() -> None:
    world = World()
    async with world.controlled():
        world.apply()
        world.pod("a")
        await until(counts(world, 1, 1, 1, 1))
        path = f"{SETS}/s"
        world.store(path, world.objects[path] | {"status": {**world.status(), "matchedPods": 77}})
        await until(counts(world, 1, 1, 1, 1), 1)


@pytest.mark.behaviour("SS-75")
@virtual
async def test_a_rollback_reuses_the_old_revision_with_a_new_number() -> None:
    world = World()
    async with world.controlled():
        world.apply()
        await until(lambda: len(world.history()) == 1)
        [(first, _)] = world.history()
        world.apply(containers=[{"name": "shipper", "image": "a:2"}])
        await until(lambda: len(world.history()) == 2)
        world.apply()
        await until(lambda: world.status().get("latestRevision") == first and world.history()[-1] == (first, 3))
        assert [number for _, number in world.history()] == [2, 3]


@pytest.mark.behaviour("SS-75")
@virtual
async def test_a_changed_custom_version_is_written_to_the_latest_revision() -> None:
    world = World()
    async with world.controlled():
        world.apply(customVersion="v1")
        await until(lambda: len(world.history()) == 1)
        revision = f"{REVISIONS}/{world.history()[0][0]}"
        assert world.objects[revision]["metadata"]["labels"][names.SIDECARSET_CUSTOM_VERSION] == "v1"
        world.apply(customVersion="v2")
        await until(lambda: world.objects[revision]["metadata"]["labels"][names.SIDECARSET_CUSTOM_VERSION] == "v2")
        assert len(world.history()) == 1


@pytest.mark.behaviour("SS-76", "SS-120")
@virtual
async def test_old_revisions_are_deleted_unless_a_pod_names_them() -> None:
    world = World()
    async with world.controlled():
        for version in range(1, 5):
            world.apply(containers=[{"name": "shipper", "image": f"a:{version}"}], revisionHistoryLimit=2)
            await until(lambda version=version: world.status().get("observedGeneration") == version)
            if version == 1:
                world.pod("a")
                await until(counts(world, 1, 1, 1, 1))
        await until(lambda: len(world.history()) == 2)
        assert [number for _, number in world.history()] == [1, 4]
        # The Pod is gone: its revision may go with the next change.
        world.delete_pod("a")
        world.apply(containers=[{"name": "shipper", "image": "a:5"}], revisionHistoryLimit=2)
        await until(lambda: [number for _, number in world.history()] == [4, 5])


@pytest.mark.behaviour("SS-74")
@virtual
async def test_a_name_collision_raises_the_collision_count() -> None:
    world = World()
    async with world.controlled():
        world.apply("probe")
        await until(lambda: len(world.history()) == 1)
    [(name, _)] = world.history()
    clashing = f"{REVISIONS}/{name.replace('probe', 's')}"
    taken = World()
    taken.store(clashing, {"metadata": {"name": name.replace("probe", "s"), "uid": "x"}, "data": {}, "revision": 8})
    async with taken.controlled():
        taken.apply()
        await until(counts(taken, 0, 0, 0, 0))
        assert taken.status()["collisionCount"] == 1
        assert taken.status()["latestRevision"] != name.replace("probe", "s")
        assert f"{REVISIONS}/{taken.status()['latestRevision']}" in taken.objects
        before = len(taken.requests)
        await asyncio.sleep(RECOUNT * 2)
        assert len(taken.requests) == before


@pytest.mark.behaviour("SS-121")
@virtual
async def test_a_revision_of_a_deleted_set_with_this_name_is_adopted() -> None:
    world = World()
    async with world.controlled():
        world.apply()
        await until(lambda: len(world.history()) == 1)
        [(name, _)] = world.history()
        world.delete(f"{SETS}/s")
        world.apply()
        await until(counts(world, 0, 0, 0, 0))
        metadata = world.objects[f"{REVISIONS}/{name}"]["metadata"]
        assert [o["uid"] for o in metadata["ownerReferences"]] == [world.objects[f"{SETS}/s"]["metadata"]["uid"]]
        assert world.status()["latestRevision"] == name


@virtual
async def test_a_deleted_revision_is_recorded_again() -> None:
    world = World()
    async with world.controlled():
        world.apply()
        await until(lambda: len(world.history()) == 1)
        [(name, _)] = world.history()
        world.delete(f"{REVISIONS}/{name}")
        await until(lambda: world.history() == [(name, 1)])


@virtual
async def test_a_terminating_set_is_left_alone() -> None:
    world = World()
    async with world.controlled():
        created = world.apply("dying")
        await until(counts(world, 0, 0, 0, 0, name="dying"))
        metadata = created["metadata"] | {"deletionTimestamp": "2030-01-01T00:00:00Z", "finalizers": ["a/b"]}
        before = len(world.writes())
        world.store(f"{SETS}/dying", world.objects[f"{SETS}/dying"] | {"metadata": metadata})
        for name, _ in world.history():
            world.delete(f"{REVISIONS}/{name}")
        await asyncio.sleep(5)
        assert len(world.writes()) == before


@virtual
async def test_counts_are_written_if_revisions_are_forbidden(caplog: pytest.LogCaptureFixture) -> None:
    def fail(request: Request) -> Response | None:
        if request.method == "POST":
            return json_response(403, status_body(403, "Forbidden", "controllerrevisions.apps is forbidden"))
        return None

    world = World(fail)
    with caplog.at_level(logging.WARNING):
        async with world.controlled():
            world.apply()
            world.pod("a")
            await until(counts(world, 1, 1, 1, 1))
            assert "latestRevision" not in world.status()
            world.fail = lambda request: None
            await until(lambda: "latestRevision" in world.status())
    assert "reconciling s failed" in caplog.text
    assert "controllerrevisions.apps is forbidden" in caplog.text


@virtual
async def test_an_unvalidated_selector_matches_nothing_and_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    async with world.controlled():
        world.pod("a")
        world.apply(selector={"matchExpressions": [{"key": "app", "operator": "Near"}]})
        await until(counts(world, 0, 0, 0, 0))
    assert 'SidecarSet s matches no Pods because its selector is invalid: "Near"' in caplog.text


@pytest.mark.behaviour("SS-130")
@pytest.mark.parametrize(
    ("spec", "field"),
    [
        (
            {"containers": [{"name": "a", "env": [{"name": "A", "valueFrom": "x"}]}]},
            "spec.containers[0].env[0].valueFrom",
        ),
        ({"containers": "x"}, "spec.containers"),
        ({"containers": [{"name": "a"}], "updateStrategy": []}, "spec.updateStrategy"),
    ],
)
def test_an_unreadable_set_gets_an_event_and_is_left_alone_until_repaired(spec: dict[str, Any], field: str) -> None:
    @virtual
    async def told() -> None:
        world = World()
        path = f"{SETS}/broken"
        async with world.controlled():
            metadata = {"name": "broken", "uid": "u", "generation": 1}
            world.store(path, {"metadata": metadata, "spec": {"selector": {"matchLabels": {"app": "web"}}} | spec})
            world.apply("s")
            await until(counts(world, 0, 0, 0, 0), 1)
            await until(lambda: bool(world.events.events), 1)
            [(name, type_, reason, message)] = world.events.events
            assert (name, type_, reason) == ("broken", "Warning", "Malformed")
            assert message.startswith(f"ignored, no Pod gets its containers: {field}")
            assert world.status("broken") == {}
            del world.objects[path]["spec"]
            world.apply("broken")
            await until(counts(world, 0, 0, 0, 0, name="broken"), 1)
            assert len(world.events.events) == 1

    told()
