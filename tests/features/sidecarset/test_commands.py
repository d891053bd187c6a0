"""The command line about SidecarSets."""

from __future__ import annotations

import re

import pytest

from app.api import names
from app.cli.kinds import wanted
from app.cli.plan import of_pod, planned, whole
from app.cli.rollout import history_text, undone
from app.cli.status import show_status
from app.cli.workload_changes import restarted, set_paused
from app.features.sidecarset.commands import parsed, progress_of
from app.features.sidecarset.plan.preview import obstacle
from app.kube.errors import CommandError
from app.kube.resources import CONTROLLERREVISIONS, DEPLOYMENTS, PODS, REPLICASETS
from app.manager.gates import parse_gates
from app.sandbox.kubelet.program import Pace
from tests.features.sidecarset.rolling_world import NAMESPACE, SETS, World, in_world, sidecar
from tests.kit.objects import owner_of, reference, workload_spec

WHAT = ["sidecarset", "s"]
ENABLED = parse_gates("").enabled


@pytest.mark.behaviour("SS-132")
@in_world(pace=Pace(start=0.1, restart=1.0))
async def test_status_pause_resume_history_and_undo(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    await world.begin("a", "b")
    first = (await world.user.get(SETS, "s"))["status"]["latestRevision"]
    assert await set_paused(world.user, "default", WHAT, paused=True) == "sidecarset.apps.kruise.io/s paused"
    assert (await world.user.get(SETS, "s"))["spec"]["updateStrategy"]["paused"] is True
    again = await set_paused(world.user, "default", WHAT, paused=True)
    assert again == "sidecarset.apps.kruise.io/s is already paused"
    await world.apply(containers=[sidecar("a:2")], updateStrategy={"paused": True})
    await world.settles(2, 0, 2, 0)
    assert not await show_status(world.user, "default", WHAT, watch=True, give_up=3)
    assert "0 of 2 Pods updated, 0 ready; paused: pykruise rollout resume sidecarset s" in capsys.readouterr().out
    await set_paused(world.user, "default", WHAT, paused=False)
    assert await show_status(world.user, "default", WHAT, watch=True, give_up=60)
    shown = capsys.readouterr().out.splitlines()
    assert shown[-2:] == ["2 of 2 Pods updated, 2 ready", 'sidecarset "s" successfully rolled out']
    second = (await world.user.get(SETS, "s"))["status"]["latestRevision"]
    rows = [line.split() for line in (await history_text(world.user, "default", WHAT, 0)).splitlines()]
    assert rows[0] == ["REVISION", "NAME", "PODS", "ROLE", "CHANGE-CAUSE"]
    assert rows[1:] == [["1", first, "0", "-", "<none>"], ["2", second, "2", "latest", "<none>"]]
    assert "image: a:1" in await history_text(world.user, "default", WHAT, 1)
    text = await undone(world.user, "default", WHAT, 0, dry_run=False)
    assert text == f"sidecarset.apps.kruise.io/s rolled back to revision 1 ({first})"
    restored = (await world.user.get(SETS, "s"))["spec"]
    assert [one["image"] for one in restored["containers"]] == ["a:1"]
    with pytest.raises(CommandError, match="there is no revision 9; recorded: 1, 2"):
        await undone(world.user, "default", WHAT, 9, dry_run=False)


@pytest.mark.behaviour("SS-133")
@in_world
async def test_plan_lists_step_and_change_of_each_pod(world: World) -> None:
    await world.begin("a", "b", "c")
    live = await world.user.get(SETS, "s")
    manifest = {"apiVersion": SETS.api_version, "kind": "SidecarSet", "metadata": {"name": "s"}}
    hashes = live["metadata"]["annotations"]
    # The webhook of a manager would compute the hash.
    changed = {**live["spec"], "containers": [{**live["spec"]["containers"][0], "image": "a:2"}]}
    changed["updateStrategy"] = {**changed["updateStrategy"], "maxUnavailable": 2, "partition": 0}
    await world.user.patch(SETS, "s", {"metadata": {"annotations": {names.SIDECARSET_HASH: "later"}}})
    text = (await planned(world.user, "default", {**manifest, "spec": changed}, ENABLED)).text()
    rows = [re.split(r" {2,}", line) for line in text.splitlines()]
    assert rows[0] == ["SidecarSet s: 3 Pods matched, 0 of them already updated"]
    assert rows[1] == ["STEP", "NAMESPACE", "POD", "ACTION", "WHAT"]
    assert sorted(row[0] for row in rows[2:]) == ["1", "1", "2"]
    assert {tuple(row[1:]) for row in rows[2:]} == {(NAMESPACE, name, "update", "shipper a:1 → a:2") for name in "abc"}
    without = {names.SIDECARSET_HASH_WITHOUT_IMAGE: "other"}
    await world.user.patch(SETS, "s", {"metadata": {"annotations": without}})
    changed["containers"][0]["env"] = [{"name": "A", "value": "1"}]
    text = (await planned(world.user, "default", {**manifest, "spec": changed}, ENABLED)).text()
    why = "cannot be updated in place: spec.containers[shipper].env; recreate it"
    assert [re.split(r" {2,}", line)[2:] for line in text.splitlines()[2:]] == [[name, "keep", why] for name in "abc"]
    assert (await world.user.get(SETS, "s"))["spec"] == live["spec"]
    assert hashes[names.SIDECARSET_HASH]


async def create_missed(world: World) -> None:
    """Create a Pod before the SidecarSet."""
    missed = {"metadata": {"name": "missed", "labels": {"app": "web"}}}
    missed["spec"] = {"containers": [{"name": "main", "image": "nginx:1"}]}
    await world.user.create(PODS, {"apiVersion": "v1", "kind": "Pod", **missed}, NAMESPACE)
    await world.clock.sleep(5)


@pytest.mark.behaviour("SS-134")
@in_world
async def test_explain_shows_what_each_pod_waits_for_and_which_were_missed(world: World) -> None:
    await create_missed(world)
    await world.begin("a", "b")
    await world.apply(containers=[sidecar("a:2")], updateStrategy={"partition": 1})
    await world.settles(2, 1, 2, 1)
    commands, _ = wanted(WHAT)
    text = (await whole(world.user, commands, "default", "s", ENABLED)).text()
    lines = [re.split(r" {2,}", line)[1:] for line in text.splitlines()[2:-1]]
    restart = "\nto do: pykruise rollout restart sidecarset s, so that the workloads recreate the affected Pods"
    assert text.endswith(restart)
    assert text.startswith("SidecarSet s: 2 Pods matched, 1 updated, 2 ready, 0 not upgradable\n")
    assert sorted(line[1] for line in lines) == ["not injected", "outdated", "updated"]
    assert "partition 1 keeps 1 of 2 Pods" in text
    of_one = (await of_pod(world.user, NAMESPACE, "missed", ENABLED)).text()
    assert "SidecarSet s: selects it, but its containers are missing: the Pod is older than the set" in of_one
    assert of_one.endswith(restart)
    (outdated,) = [line[0] for line in lines if line[1] == "outdated"]
    of_one = (await of_pod(world.user, NAMESPACE, outdated, ENABLED)).text()
    assert "SidecarSet s: outdated (partition 1 keeps 1 of 2 Pods)" in of_one
    assert of_one.endswith("\nto do: nothing")
    await world.apply(containers=[{**sidecar("a:2"), "env": [{"name": "A", "value": "1"}]}])
    await world.settles(2, 0, 2, 0)
    of_one = (await of_pod(world.user, NAMESPACE, outdated, ENABLED)).text()
    assert "SidecarSet s: not upgradable (spec.containers[shipper].env differs; recreate it)" in of_one
    assert of_one.endswith(restart)


@pytest.mark.behaviour("SS-132")
@in_world
async def test_restart_is_delegated_to_the_owners_of_matched_and_missed_pods(world: World) -> None:
    await create_missed(world)
    await world.begin("a", "b", "c", "d")
    await world.user.patch(PODS, "c", {"status": {"phase": "Failed"}}, NAMESPACE, subresource="status")
    body = {"metadata": {"name": "web"}, "spec": workload_spec(app="x")}
    above = owner_of(await world.user.create(DEPLOYMENTS, body, NAMESPACE))
    body["metadata"] = {"name": "web-1", "ownerReferences": [above]}
    below = owner_of(await world.user.create(REPLICASETS, body, NAMESPACE))
    await world.user.patch(PODS, "a", {"metadata": {"ownerReferences": [below]}}, NAMESPACE)
    for name, kind in (("b", "DaemonSet"), ("d", "ReplicaSet")):
        deleted = reference("apps/v1", kind, "deleted")
        await world.user.patch(PODS, name, {"metadata": {"ownerReferences": [deleted]}}, NAMESPACE)
    text = await restarted(world.user, "default", WHAT)
    assert text == (
        "sidecarset.apps.kruise.io/s restarted: Deployment shop/web (1 Pod); "
        "not restarted: DaemonSet shop/deleted (1 Pod), Pod shop/missed (1 Pod), ReplicaSet shop/deleted (1 Pod); "
        "use pykruise rollout restart KIND NAME, or delete the Pods"
    )
    annotations = (await world.user.get(DEPLOYMENTS, "web", NAMESPACE))["spec"]["template"]["metadata"]["annotations"]
    assert "kubectl.kubernetes.io/restartedAt" in annotations
    assert (await world.user.list(CONTROLLERREVISIONS, "kruise-system")).items


@pytest.mark.behaviour("SS-132")
@pytest.mark.parametrize(
    ("status", "strategy", "text", "done"),
    [
        (None, {}, "waiting for the controller to observe the change", False),
        (
            (4, 2, 2, 2),
            {"partition": "50%"},
            "2 of 2 Pods updated, 2 ready; the partition keeps 2 at the old revision",
            True,
        ),
        ((4, 1, 4, 1), {}, "1 of 4 Pods updated, 1 ready", False),
        (
            (4, 1, 4, 1),
            {"type": "NotUpdate"},
            "1 of 4 Pods updated, 1 ready; NotUpdate: only new Pods get the change",
            False,
        ),
        (
            (4, 1, 4, 1),
            {"selector": {"matchLabels": {"a": "b"}}},
            "1 of 4 Pods updated, 1 ready; updateStrategy.selector excludes the others",
            False,
        ),
    ],
)
def test_the_progress_of_a_rollout_is_shown(
    status: tuple[int, ...] | None, strategy: dict, text: str, done: bool
) -> None:
    fields = ("matchedPods", "updatedPods", "readyPods", "updatedReadyPods")
    counts = {} if status is None else {"status": {"observedGeneration": 1, **dict(zip(fields, status, strict=True))}}
    spec = {"containers": [sidecar()], "updateStrategy": strategy}
    found = progress_of(parsed({"metadata": {"name": "s", "generation": 1}, "spec": spec, **counts}))
    assert (found.text, found.done) == (text, done)


@pytest.mark.behaviour("SS-93")
@pytest.mark.parametrize(
    ("before", "now", "field"),
    [
        ({"containers": [sidecar("a:1")]}, {"containers": [sidecar("a:2")]}, ""),
        ({"containers": [sidecar()]}, {"containers": [sidecar(args=["x"])]}, "spec.containers[shipper].args"),
        ({"containers": [sidecar()]}, {"containers": [sidecar(), sidecar(name="b")]}, "spec.containers[b]"),
        (
            {"containers": [sidecar(), sidecar(name="b")]},
            {"containers": [sidecar(name="b"), sidecar()]},
            "spec.containers: their order",
        ),
        ({"containers": [sidecar()]}, {"containers": [sidecar()], "initContainers": [sidecar(name="i")]}, ""),
        (
            {"containers": [sidecar()]},
            {"containers": [sidecar()], "initContainers": [sidecar(name="i", restartPolicy="Always")]},
            "spec.initContainers[i]",
        ),
    ],
)
def test_a_field_that_prevents_an_update_is_named(before: dict, now: dict, field: str) -> None:
    assert obstacle(before, now) == field
