"""Which Pods are updated now, and by what step."""

from dataclasses import replace

import pytest

from app.features.cloneset.defaults import with_defaults
from app.features.cloneset.plan.diff import Diff, Inputs, RolloutState, counted, rollout_state
from app.features.cloneset.plan.settings import Gates, RollingUpdate, Settings, resolve_spec
from app.features.cloneset.plan.update import chosen_pods, plan_update, planned_update, update_order
from app.features.cloneset.types import CloneSet
from app.pods.lifecycle import Hook, Lifecycle
from app.pods.revisions import Revision
from app.workloads.pods import InPlaceUpdates, PodFacts
from app.workloads.settings import Revisions, UpdatePolicy
from app.workloads.steps import Step, StepKind, UpdatePlan
from tests.features.cloneset.samples import HOLD, NEW, OLD, pod
from tests.features.cloneset.writing import clone_set, rolling


def as_listed(pods):
    return pods


def parse(text: str) -> list[PodFacts]:
    return [pod(OLD if letter.lower() == "o" else NEW, available=letter.isupper()) for letter in text.replace(" ", "")]


def rollout_of(pods: list[PodFacts], settings: Settings | None = None, *, update: int, maximum: int) -> RolloutState:
    """Return the state in which that many Pods must move."""
    found = rollout_state(pods, settings or Settings(), OLD, NEW, 0.0)
    return replace(found, to_update=Diff(update=update, update_max=maximum))


@pytest.mark.behaviour("CS-124", "CS-94")
@pytest.mark.parametrize(("pods", "update", "maximum", "updated"), [
    pytest.param("OOO", 3, 1, 1, id="L1"),
    pytest.param("oOO", 3, 1, 1, id="L2"),
    pytest.param("ooooo", 5, 2, 2, id="L3"),
    pytest.param("ooonn", 3, 2, 0, id="L4"),
    pytest.param("ooonN", 3, 2, 1, id="L5"),
    pytest.param("oooonN", 3, 3, 2, id="L6"),
    pytest.param("OOOOOOn", 5, 2, 1, id="L7"),
    pytest.param("nnnnnOO", -4, 3, 3, id="L8"),
    pytest.param("OOOOOOOnn", 7, 1, 0, id="L9"),
    pytest.param("Oo", 2, 1, 1, id="a broken Pod does not wait behind a healthy one"),
])  # fmt: skip
def test_updates_match_the_worked_examples(pods: str, update: int, maximum: int, updated: int) -> None:
    listed = parse(pods)
    chosen = chosen_pods(rollout_of(listed, update=update, maximum=maximum), as_listed)
    assert len(chosen) == updated
    if pods in ("oOO", "Oo"):
        assert [p.available(0.0) for p in chosen] == [False]


@pytest.mark.behaviour("CS-124")
def test_a_pod_that_prepares_its_deletion_is_not_updated() -> None:
    pods = [
        pod(OLD, lifecycle="PreparingDelete"),
        pod(OLD, lifecycle="Updating", in_grace=True),
        pod(OLD, lifecycle="Updated", in_grace=True),
    ]
    assert chosen_pods(rollout_of(pods, update=3, maximum=9), as_listed) == pods[1:]


@pytest.mark.behaviour("CS-128", "CS-188")
def test_a_pod_that_waits_for_its_update_is_replaced_even_if_the_only_serving_pod_is_marked() -> None:
    """The policy has become ReCreate. No other Pod may leave service next to the one that prepares."""
    marked, preparing, new = pod(OLD, marked=True), pod(OLD, lifecycle="PreparingUpdate"), pod(NEW)
    pods = [marked, preparing, new]
    settings = Settings(replicas=3, rolling_update=RollingUpdate(partition=1, max_unavailable=1))
    rollout = rollout_state(pods, settings, OLD, NEW, 0.0)
    plan = plan_update(rollout, update_order(pods, None), lambda _pod: "the policy is ReCreate")
    assert plan.steps == (Step(StepKind.RECREATE, preparing, "the policy is ReCreate"),)


HOOKED = Lifecycle(in_place_update=Hook(finalizers=(HOLD,)))


def planned(
    policy: UpdatePolicy, pods, obstacle=lambda _pod: None, lifecycle=None, on_delete=False, **strategy
) -> UpdatePlan:
    rolling = None if on_delete else RollingUpdate(policy=policy, **strategy)
    settings = Settings(replicas=len(pods), rolling_update=rolling, on_delete=on_delete, lifecycle=lifecycle)
    rollout = rollout_of(pods, settings, update=len(pods), maximum=len(pods) + 1)
    return plan_update(rollout, as_listed, obstacle)


@pytest.mark.behaviour("CS-130")
@pytest.mark.parametrize(("state", "hooked", "step"), [
    ("Normal", False, StepKind.IN_PLACE),
    ("Normal", True, StepKind.PREPARE),
    ("PreparingUpdate", True, None),
    ("Updated", False, StepKind.REARM),
    ("Mine", False, StepKind.REFUSE),
])  # fmt: skip
def test_each_lifecycle_state_has_its_update_step(state: str, hooked: bool, step: StepKind | None) -> None:
    one = pod(OLD, lifecycle=state, update_hooked=hooked)
    plan = planned(UpdatePolicy.IN_PLACE_IF_POSSIBLE, [one], lifecycle=HOOKED)
    assert [s.kind for s in plan.steps] == ([step] if step else [])


@pytest.mark.behaviour("CS-130")
def test_an_updated_pod_without_hook_becomes_normal_first() -> None:
    plan = planned(UpdatePolicy.IN_PLACE_IF_POSSIBLE, [pod(OLD, lifecycle="Updated")])
    assert plan.steps == ()


@pytest.mark.behaviour("CS-132")
def test_a_pod_that_cannot_be_updated_in_place_is_marked_for_deletion() -> None:
    pods = [pod(OLD), pod(OLD)]
    plan = planned(UpdatePolicy.IN_PLACE_IF_POSSIBLE, pods, obstacle=lambda p: "/spec/x" if p is pods[0] else None)
    assert plan.steps == (Step(StepKind.RECREATE, pods[0], "/spec/x"), Step(StepKind.IN_PLACE, pods[1]))


@pytest.mark.behaviour("CS-132")
def test_in_place_only_fails_on_the_first_blocked_pod() -> None:
    pods = [pod(OLD), pod(OLD, name="web-b"), pod(OLD)]
    plan = planned(UpdatePolicy.IN_PLACE_ONLY, pods, obstacle=lambda p: "/spec/x" if p is pods[1] else None)
    assert plan.steps == (Step(StepKind.IN_PLACE, pods[0]),)
    assert plan.failure == "find Pod web-b update strategy is InPlaceOnly but can not update in-place"
    assert plan.obstacle == "/spec/x"


@pytest.mark.behaviour("CS-123", "CS-133")
@pytest.mark.parametrize("strategy", [{"paused": True}, {"on_delete": True}])
def test_a_paused_set_and_on_delete_update_no_pod(strategy: dict[str, bool]) -> None:
    assert planned(UpdatePolicy.RECREATE, [pod(OLD)], **strategy) == UpdatePlan()


@pytest.mark.behaviour("CS-130", "CS-135")
def test_a_pod_awaiting_initial_conditions_is_not_updated() -> None:
    coming = {"available": False, "lifecycle": "PreparingNormal"}
    there, awaits_initial_conditions = pod(OLD, **coming), pod(OLD, awaits_initial_conditions=True, **coming)
    plan = planned(UpdatePolicy.IN_PLACE_ONLY, [there, awaits_initial_conditions], max_unavailable=2)
    assert [step.pod for step in plan.steps] == [there]


@pytest.mark.behaviour("CS-132")
def test_a_pod_marked_for_replacement_is_not_marked_again() -> None:
    owner = clone_set("web", updateStrategy=rolling(maxUnavailable=2), replicas=2)
    resolved = resolve_spec(CloneSet.model_validate(with_defaults(owner)), Gates())
    pods = [pod(OLD, name="web-0", marked=True, available=False), pod(OLD, name="web-1")]
    revisions = Revisions(Revision(f"web-{OLD}", 1, b"{}"), Revision(f"web-{NEW}", 2, b"{}"), ())
    inputs = Inputs(resolved, pods, revisions, InPlaceUpdates(), 0.0)
    plan = planned_update(inputs, counted(inputs))
    assert [step.pod.name for step in plan.steps] == ["web-1"]
