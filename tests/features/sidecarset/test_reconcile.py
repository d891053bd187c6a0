"""Status and revisions of SidecarSets, on the sandbox's API server; the test acts as the kubelet."""

from __future__ import annotations

from collections.abc import Mapping

import orjson
import pytest

from app.api import names
from app.features.sidecarset import reconcile
from app.features.sidecarset.kind import read_sidecar_set
from app.features.sidecarset.plan.pod_state import PodFacts
from app.features.sidecarset.plan.settings import SetView
from app.features.sidecarset.reconcile import RECOUNT, malformation
from app.kube.objects import Pod
from app.kube.resources import CONTROLLERREVISIONS, NAMESPACES, PODS
from tests.features.sidecarset.rolling_world import NAMESPACE, SETS, World, in_world, sidecar

SYSTEM = "kruise-system"
in_still_world = in_world(nodes=0)


@pytest.mark.behaviour("SS-73", "SS-106", "SS-89")
@in_still_world
async def test_a_new_set_gets_a_revision_and_zero_counts_once(world: World) -> None:
    await world.apply()
    await world.settles(0, 0, 0, 0)
    [(name, number)] = await world.history()
    assert number == 1
    assert await world.status("s") == {
        "observedGeneration": 1,
        "matchedPods": 0,
        "updatedPods": 0,
        "readyPods": 0,
        "latestRevision": name,
        "collisionCount": 0,
    }
    await world.user.patch(SETS, "s", {"metadata": {"labels": {"only": "labels"}}})
    await world.clock.sleep(3 * RECOUNT)
    assert [(one.method, one.path.split("/", 4)[4]) for one in world.sent.writes] == [
        ("POST", f"namespaces/{SYSTEM}/controllerrevisions"),
        ("PATCH", "sidecarsets/s/status"),
    ]


@pytest.mark.behaviour("SS-86", "SS-88", "SS-104")
@pytest.mark.parametrize("kind", ["RollingUpdate", "NotUpdate"])
@in_still_world
async def test_the_status_follows_every_pod_change(world: World, kind: str) -> None:
    await world.apply(updateStrategy={"type": kind})
    await world.pods_of("a", "b")
    await world.apply("t", selector={"matchLabels": {"app": "db"}})
    await world.pods_of("c", labels={"app": "db"})
    for name in "abc":
        await world.runs(name)
    await world.settles(2, 2, 2, 2)
    await world.runs("a", ready=False)
    await world.settles(2, 2, 1, 1)
    await world.user.patch(PODS, "a", {"metadata": {"labels": {"app": "other"}}}, NAMESPACE)
    await world.settles(1, 1, 1, 1)
    await world.user.patch(PODS, "a", {"metadata": {"labels": {"app": "web"}}}, NAMESPACE)
    await world.settles(2, 2, 1, 1)
    await world.user.patch(PODS, "b", {"metadata": {"finalizers": ["example.com/hold"]}}, NAMESPACE)
    await world.user.delete(PODS, "b", NAMESPACE)
    await world.settles(1, 1, 0, 0)
    await world.user.delete(PODS, "a", NAMESPACE, grace_period_seconds=0)
    await world.settles(0, 0, 0, 0)
    await world.apply(updateStrategy={"type": kind}, containers=[sidecar("a:2")])
    await world.settles(0, 0, 0, 0)


@pytest.mark.behaviour("SS-88", "SS-35")
@in_still_world
async def test_namespace_labels_decide_immediately(world: World) -> None:
    async def label(value: str, namespace: str = NAMESPACE) -> None:
        await world.user.patch(NAMESPACES, namespace, {"metadata": {"labels": {"env": value}}})

    await world.apply(namespaceSelector={"matchLabels": {"env": "prod"}})
    await world.apply("everywhere", selector={"matchLabels": {"app": "db"}})
    await label("prod")
    await world.pods_of("a")
    await world.runs("a")
    await world.settles(1, 1, 1, 1)
    for value, count in (("dev", 0), ("prod", 1)):
        await world.clock.sleep(1)
        await label(value)
        await world.settles(*[count] * 4, seconds=1)
    before = len(world.sent.requests)
    await world.user.patch(NAMESPACES, NAMESPACE, {"metadata": {"annotations": {"a": "b"}}})
    await label("prod", SYSTEM)
    await world.clock.sleep(5)
    assert len(world.sent.requests) == before


@pytest.mark.behaviour("SS-86", "SS-88")
@in_still_world
async def test_pods_that_only_claim_to_have_the_containers_of_a_set_cost_it_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Users may list any set in the annotations of their Pods."""
    await world.apply(namespaceSelector={"matchLabels": {"env": "prod"}})
    await world.settles(0, 0, 0, 0)
    judged: list[str] = []
    evaluated = reconcile.pod_facts

    def noted(view: SetView, pod: Pod, labels: Mapping[str, str] | None) -> PodFacts:
        judged.append(pod.metadata.name)
        return evaluated(view, pod, labels)

    monkeypatch.setattr(reconcile, "pod_facts", noted)
    for name, app in (("other", "db"), ("elsewhere", "web")):
        metadata = {"name": name, "labels": {"app": app}, "annotations": {names.SIDECARSET_INJECTED_LIST: "s"}}
        spec = {"containers": [{"name": "main", "image": "nginx:1"}, sidecar()]}
        await world.user.create(PODS, {"metadata": metadata, "spec": spec}, NAMESPACE)
        await world.user.patch(PODS, name, {"metadata": {"labels": {"a": "b"}}}, NAMESPACE)
        await world.clock.sleep(1)
    assert judged == []
    await world.user.patch(NAMESPACES, NAMESPACE, {"metadata": {"labels": {"env": "prod"}}})
    await world.settles(1, 0, 0, 0)
    await world.clock.sleep(5)
    judged.clear()
    await world.user.patch(PODS, "other", {"metadata": {"labels": {"a": "c"}}}, NAMESPACE)
    await world.clock.sleep(1)
    assert judged == []
    await world.user.patch(PODS, "other", {"metadata": {"labels": {"app": "web"}}}, NAMESPACE)
    await world.settles(2, 0, 0, 0)


@pytest.mark.behaviour("SS-88", "SS-89")
@in_still_world
async def test_a_burst_of_pods_costs_few_writes_with_correct_counts(world: World) -> None:
    await world.apply()
    await world.settles(0, 0, 0, 0)
    for number in range(50):
        await world.pods_of(f"web-{number}")
        await world.runs(f"web-{number}", ready=number % 2 == 0)
        await world.clock.sleep(0.02)
    await world.settles(50, 50, 25, 25)
    assert len([one for one in world.sent.writes if one.path.endswith("/status")]) <= 12


@pytest.mark.behaviour("SS-88")
@in_still_world
async def test_a_missed_event_is_repaired_by_the_periodic_recount(world: World) -> None:
    await world.apply()
    await world.pods_of("a")
    await world.settles(1, 1, 0, 0)
    pods = world.caches["Pods"]
    handlers, pods._handlers = pods._handlers, []
    await world.user.delete(PODS, "a", NAMESPACE, grace_period_seconds=0)
    await world.pods_of("b")
    await world.runs("b")
    await world.clock.sleep(1)
    pods._handlers = handlers
    assert await world.counts() == (1, 1, 0, 0)
    await world.settles(1, 1, 1, 1, seconds=RECOUNT + 5)


@pytest.mark.behaviour("SS-75", "SS-76", "SS-120")
@in_still_world
async def test_old_revisions_are_deleted_unless_a_pod_names_them(world: World) -> None:
    async def roll_out(version: int, *numbers: int) -> None:
        await world.apply(containers=[sidecar(f"a:{version}")], revisionHistoryLimit=2, updateStrategy={"paused": True})

        async def recorded() -> list[int]:
            return [number for _, number in await world.history()]

        await world.becomes(recorded, list(numbers))

    await roll_out(1, 1)
    await world.settles(0, 0, 0, 0)
    [(first, _)] = await world.history()
    await world.pods_of("a")
    await roll_out(2, 1, 2)
    await roll_out(3, 1, 3)
    # A rollback uses the old revision again, under a new number.
    await roll_out(1, 3, 4)
    assert (await world.history())[-1] == (first, 4)
    await roll_out(2, 4, 5)
    # Without the Pod its revision is deleted with the next change.
    await world.user.delete(PODS, "a", NAMESPACE, grace_period_seconds=0)
    await roll_out(3, 5, 6)


@pytest.mark.behaviour("SS-74")
@in_still_world
async def test_a_name_collision_raises_the_collision_count(world: World) -> None:
    await world.apply("probe")
    await world.settles(0, 0, 0, 0, name="probe")
    [(name, _)] = await world.history()
    taken = {"metadata": {"name": name.replace("probe", "s")}, "data": {}, "revision": 8}
    await world.user.create(CONTROLLERREVISIONS, taken, SYSTEM)
    await world.apply()
    await world.settles(0, 0, 0, 0)
    status = await world.status("s")
    assert status["collisionCount"] == 1
    assert {found for found, _ in await world.history()} == {name, taken["metadata"]["name"], status["latestRevision"]}
    before = len(world.sent.requests)
    await world.clock.sleep(2 * RECOUNT)
    assert len(world.sent.requests) == before


@in_still_world
async def test_an_unvalidated_selector_matches_nothing_and_is_reported(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    await world.apply(selector={"matchExpressions": [{"key": "app", "operator": "Near"}]})
    await world.settles(0, 0, 0, 0)
    assert 'SidecarSet s matches no Pods because its selector is invalid: "Near"' in caplog.text


@pytest.mark.behaviour("SS-130")
@in_still_world
async def test_an_unreadable_set_gets_an_event_and_is_left_alone_until_repaired(world: World) -> None:
    def ignored() -> float | None:
        return world.registry.get_sample_value("kruise_sidecarsets_set_aside")

    env = [{"name": "A", "valueFrom": "x"}]
    metadata = {"apiVersion": SETS.api_version, "kind": SETS.kind, "metadata": {"name": "s"}}
    spec = {"selector": {"matchLabels": {"app": "web"}}, "containers": [{"name": "a", "env": env}]}
    await world.user.create(SETS, {**metadata, "spec": spec})
    await world.clock.sleep(60)
    [message] = await world.events("Malformed")
    assert message.startswith("ignored, so no Pod gets its containers: spec.containers[0].env[0].valueFrom")
    assert await world.status("s") == {}
    assert ignored() == 1
    await world.apply()
    await world.settles(0, 0, 0, 0)
    assert len(await world.events("Malformed")) == 1
    assert ignored() == 0


@pytest.mark.behaviour("SS-130")
def test_a_set_with_a_mistyped_field_is_read_with_the_field_as_its_problem() -> None:
    found = read_sidecar_set(orjson.dumps({"metadata": {"name": "s"}, "spec": {"updateStrategy": []}}))
    assert (found.name, malformation(found).partition(":")[0]) == ("s", "spec.updateStrategy")
