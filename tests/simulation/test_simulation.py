"""The simulation: seeds pass, are reproducible, are shortened when they fail, and find planted faults."""

import asyncio
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import orjson
import pytest

from app.kube.wire import USER_AGENT, Request, Response
from app.manager import features
from tests.nightly import NIGHTLY
from tests.planted import load, planted
from tests.simulation import invariants
from tests.simulation.__main__ import checked
from tests.simulation.faults import CALM, Weather, resource_of
from tests.simulation.incidents import EXTRA_SECONDS
from tests.simulation.listed import listed
from tests.simulation.mutants import FAULTS
from tests.simulation.runs import Outcome, Run
from tests.simulation.script import SMALL
from tests.simulation.shrink import shrunk
from tests.simulation.streams import RandomByTask, Streams
from tests.simulation.users import pod
from tests.simulation.versions import OwnVersions
from tests.simulation.workloads import DEFAULT, SUBJECTS
from tests.simulation.workloads.cloneset import incidents, unseen
from tests.simulation.workloads.cloneset.existing import Existing
from tests.simulation.workloads.sidecars import counts_are_true, names_its_own, sidecar_set
from tests.simulation.world import simulate

ROOT = Path(__file__).resolve().parent.parent.parent
FOCUSES = [(about, focus) for about, subject in SUBJECTS.items() for focus in subject.focuses]


def held(run: Run) -> Outcome:
    outcome = checked(run)
    assert not outcome.broken, "\n".join((*outcome.last, *outcome.broken, outcome.run.command))
    return outcome


@pytest.mark.parametrize("seed", range(1, 5) if NIGHTLY else [1])
def test_every_invariant_holds_for_a_seed(seed: int) -> None:
    assert held(Run(seed)).writes > 50


@pytest.mark.parametrize(("about", "focus"), FOCUSES)
def test_every_invariant_holds_with_a_focus(about: str, focus: str) -> None:
    held(Run(1, focus=focus, about=about))


def test_every_mutant_names_an_existing_focus() -> None:
    assert {fault.options["focus"] for fault in load(FAULTS) if "focus" in fault.options} == {
        focus for _, focus in FOCUSES
    }


def test_each_mutant_matches_one_place_in_the_code() -> None:
    for fault in load(FAULTS):
        assert planted(fault), fault.name


def test_random_streams_are_independent_by_name() -> None:
    alone, among = Streams("7"), Streams("7")
    drawn = []
    for _ in range(5):
        among("a kind that was added").random()
        drawn.append(among("cloneset").random())
    assert drawn == [alone("cloneset").random() for _ in range(5)]
    assert Streams("8")("cloneset").random() not in drawn


def test_named_tasks_have_their_own_random_streams() -> None:
    async def draws(source: RandomByTask, others: int) -> list[float]:
        async def draw(number: int) -> list[float]:
            return [source.random() for _ in range(number)]

        for _ in range(others):
            await asyncio.create_task(draw(3), name="a watch that was added")
        return await asyncio.create_task(draw(4), name="watch of Pod")

    assert asyncio.run(draws(RandomByTask("7"), 0)) == asyncio.run(draws(RandomByTask("7"), 5))


def test_a_run_has_only_the_features_it_needs() -> None:
    before = [*features.FOLDERS]
    with listed(SUBJECTS[DEFAULT].folders):
        assert [one.kind for one in features.kinds()] == ["CloneSet", "SidecarSet"]
    assert before == features.FOLDERS


def test_faults_of_one_resource_do_not_affect_others() -> None:
    bad = Weather(slow=1.0, only="pods")
    assert bad.of("pods") is bad
    assert bad.of("leases") is CALM
    assert bad.text == "slow 1 of pods"


@pytest.mark.parametrize(
    ("path", "resource"),
    [
        ("/api/v1/namespaces/shop/pods/a/status", "pods"),
        ("/api/v1/pods", "pods"),
        ("/api/v1/namespaces/shop", "namespaces"),
        ("/apis/apps.kruise.io/v1alpha1/namespaces/shop/clonesets/a", "clonesets"),
        ("/apis/apps.kruise.io/v1alpha1/sidecarsets/a/status", "sidecarsets"),
        ("/version", ""),
    ],
)
def test_a_resource_is_read_from_its_path(path: str, resource: str) -> None:
    assert resource_of(path) == resource


def test_a_seed_has_one_history() -> None:
    options = ["--seeds", "5", "--seconds", "60", "--actions", "12", "--twice"]
    command = [sys.executable, "-m", "tests.simulation", *options]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


def test_scripts_differ_by_seed_and_are_reproducible() -> None:
    one, same, other = (SUBJECTS[DEFAULT].script(seed, seconds=240.0, actions=40, size=SMALL) for seed in (1, 1, 2))
    assert one == same != other
    assert [action.at for action in one] == sorted(action.at for action in one)


def test_a_failing_run_is_shortened() -> None:
    run = Run(3)
    needed = {4, 11}

    def breaks_with_two_actions(candidate: Run) -> Outcome:
        kept = set(candidate.keep if candidate.keep is not None else range(40))
        broken = ("broken",) if needed <= kept and "lost_answer" not in candidate.without else ()
        return Outcome(candidate, broken, "", 0, 0.0, ())

    found = shrunk(breaks_with_two_actions(run), breaks_with_two_actions)
    assert found.run.keep == needed
    assert "lost_answer" not in found.run.without
    assert "killed" in found.run.without
    assert found.run.command.startswith("python -m tests.simulation --seeds 3 --keep 4,11 --without ")


def test_a_run_without_managers_is_detected() -> None:
    """A control plane without registered webhooks must not count as clean."""
    silent = replace(Run(1), seconds=10.0, actions=2)
    outcome = simulate(silent, replicas=0)
    assert "the webhooks are registered" in outcome.broken[0]


def test_containers_that_start_out_of_order_are_detected() -> None:
    before = pod("a", "web", ordered=True)
    for index, container in enumerate(before["spec"]["containers"]):
        key = {"name": "a-barrier", "key": f"p_{-index}"}
        container["env"] = [{"name": "KRUISE_CONTAINER_BARRIER", "valueFrom": {"configMapKeyRef": key}}]
    both = [{"name": name, "ready": True, "state": {"running": {}}} for name in ("main", "second")]
    after = {**before, "status": {"containerStatuses": both}}
    assert list(invariants.started_in_order(before, after)) == [
        "Pod a: container second (priority -1) started before main (priority 0) was ready"
    ]
    first = {**before, "status": {"containerStatuses": both[:1]}}
    assert not list(invariants.started_in_order(first, after))


def test_wrong_counts_are_detected() -> None:
    one = sidecar_set("s", "web", "shipper:1")
    one["metadata"]["generation"] = 2
    one["status"] = {"matchedPods": 1, "readyPods": 0, "observedGeneration": 2}
    matched = pod("a", "web", ordered=False)
    matched["metadata"]["annotations"] = {"kruise.io/sidecarset-injected-list": "s"}
    assert not list(counts_are_true(one, [matched]))
    assert list(counts_are_true(one, [])) == ["SidecarSet s at rest: status.matchedPods is 1, want 0"]


def test_a_status_with_a_revision_of_a_namesake_is_detected() -> None:
    def with_revision(named: str | None) -> dict[str, Any]:
        one = sidecar_set("s", "web", "shipper:1")
        one["metadata"]["uid"] = "new"
        return {**one, "status": {"latestRevision": named}}

    revisions = [
        {"metadata": {"name": f"s-{owner}", "uid": f"of-{owner}", "ownerReferences": [{"uid": owner}]}}
        for owner in ("old", "new")
    ]
    assert not list(names_its_own(with_revision(None), with_revision("s-new"), revisions))
    assert not list(names_its_own(with_revision("s-old"), with_revision("s-old"), revisions))
    assert list(names_its_own(with_revision(None), with_revision("s-old"), revisions)) == [
        "SidecarSet s: status.latestRevision is s-old, which is not its revision"
    ]


def _writes(version: str, subresource: str = "", sender: str = USER_AGENT) -> Request:
    body = orjson.dumps({"metadata": {"resourceVersion": version}})
    return Request("PATCH", f"/api/v1/namespaces/shop/pods/a{subresource}", {}, {"User-Agent": sender}, body)


def test_a_replaced_version_is_detected() -> None:
    own = OwnVersions()
    answer = Response(200, {}, orjson.dumps({"metadata": {"resourceVersion": "7"}}))
    assert not own.broken_by(0.0, _writes("5"))
    own.answered(1.0, _writes("5", "/status"), answer)
    assert own.broken_by(2.0, _writes("6")) == (
        "PATCH /api/v1/namespaces/shop/pods/a sends version 6, but its sender has written version 7"
    )
    assert not own.broken_by(2.0, _writes("7"))
    assert not own.broken_by(2.0, _writes("6", sender="another controller"))
    assert not own.broken_by(302.0, _writes("6"))


def test_a_lost_response_reveals_no_version() -> None:
    own = OwnVersions()
    own.answered(1.0, _writes("5"), Response(409, {}, b"{}"))
    assert not own.broken_by(2.0, _writes("5"))


def test_a_repeated_request_may_be_outdated() -> None:
    """The client resends the same request after Retry-After; another reconcile may have written meanwhile."""
    own, refused = OwnVersions(), _writes("5")
    own.answered(1.0, refused, Response(429, {"Retry-After": "1"}, b"{}"))
    own.answered(1.5, _writes("5"), Response(200, {}, orjson.dumps({"metadata": {"resourceVersion": "7"}})))
    assert not own.broken_by(2.0, refused)
    assert own.broken_by(2.0, _writes("5"))


def test_a_persistent_violation_is_reported_once() -> None:
    lag = invariants.Lag(30.0)
    assert not [*lag.longer(0.0, ["a"]), *lag.longer(30.0, ["a", "b"])]
    assert [*lag.longer(31.0, ["a", "b"])] == ["for 31 s with nothing going wrong: a"]
    assert not [*lag.longer(50.0, ["a", "b"])]
    lag.excuse()
    assert not [*lag.longer(70.0, ["a", "b"])]


@pytest.mark.parametrize("seed", range(40))
def test_a_fault_is_reproducible_and_ordered(seed: int) -> None:
    existing = Existing(["set-1"], ["pod-1"], ["clone-1"])
    one = incidents.incident(Random(seed), existing, 0)
    assert one == incidents.incident(Random(seed), existing, 0)
    moments = [act.at for act in one.acts]
    assert moments == sorted(moments)
    assert moments[-1] < one.seconds < one.seconds_to_settle(lambda _: EXTRA_SECONDS)
    assert incidents.incident(Random(seed), Existing([], [], []), 0).acts


def test_a_hiding_fault_is_reproducible_and_ends() -> None:
    existing = Existing([], [], [], in_place=["clone-1"], keeping=["clone-2"], dropping={"clone-3": 2})
    made = [unseen.incident(Random(seed), existing, 0) for seed in range(60)]
    assert made == [unseen.incident(Random(seed), existing, 0) for seed in range(60)]
    assert {act.arguments["name"] for one in made if one for act in one.acts if "name" in act.arguments} == {
        "clone-1",
        "clone-2",
        "clone-3",
    }
    for one in filter(None, made):
        moments = [act.at for act in one.acts]
        assert moments == sorted(moments)
        assert all(act.at + act.arguments.get("seconds", 0.0) < one.seconds for act in one.acts)
    assert not any(unseen.incident(Random(seed), Existing([], [], []), 0) for seed in range(10))


@pytest.mark.parametrize("seed", range(20))
def test_a_targeted_fault_needs_a_cloneset(seed: int) -> None:
    one = incidents.aimed(Random(seed), [incidents.Staffed("clone-1", 3, revives=True)])
    moments = [act.at for act in one.acts]
    assert moments == sorted(moments)
    assert moments[-1] < one.seconds
    held = incidents.aimed(Random(seed), [incidents.Staffed("clone-1", 3, revives=False)])
    assert held.acts[-1].what == "lose pod"
    assert incidents.aimed(Random(seed), []) is None
