"""Invariants of the plan, from any state of a small cluster.

In each step the plan's actions are carried out at once, or the cluster changes: Pods become ready or break, hooks are
taken away, a user changes the CloneSet. The plan must never make more Pods unavailable than is allowed, make more
active than the surge allows, or violate the partition.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from app.features.cloneset.plan.diff import RolloutState, rollout_state
from app.features.cloneset.plan.scale import deletion_order, plan_scale
from app.features.cloneset.plan.settings import Gates, RollingUpdate, Settings
from app.features.cloneset.plan.update import plan_update, released, update_order
from app.pods.lifecycle import Hook, Lifecycle
from app.workloads.pods import PodFacts
from app.workloads.settings import UpdatePolicy
from app.workloads.steps import StepKind
from tests.features.cloneset.samples import HOLD, NEW, OLD, pod
from tests.nightly import examples

HOOKS = Lifecycle(in_place_update=Hook(finalizers=(HOLD,)), pre_delete=Hook(labels={"hold": "true"}))
STATES = ("", "PreparingNormal", "Normal", "PreparingUpdate", "Updating", "Updated", "PreparingDelete")


@st.composite
def any_pod(draw: st.DrawFn) -> PodFacts:
    state = draw(st.sampled_from(STATES))
    ready = draw(st.booleans())
    return pod(
        draw(st.sampled_from((OLD, NEW))),
        available=ready and draw(st.booleans()),
        ready=ready,
        lifecycle=state,
        marked=draw(st.integers(0, 4)) == 0,
        delete_hooked=state == "PreparingDelete" and draw(st.booleans()),
        update_hooked=draw(st.booleans()),
    )


amounts = st.one_of(st.integers(0, 4), st.sampled_from(("0%", "10%", "25%", "33.3%", "50%", "100%")))


@st.composite
def any_settings(draw: st.DrawFn) -> Settings:
    on_delete = draw(st.integers(0, 9)) == 0
    policy = draw(st.sampled_from(UpdatePolicy))
    surge = 0 if policy is UpdatePolicy.IN_PLACE_ONLY else draw(amounts)  # CS-33
    unavailable = draw(amounts)
    if str(surge) in ("0", "0%") and str(unavailable) in ("0", "0%"):
        unavailable = 1  # refused by admission
    rolling = RollingUpdate(
        policy=policy,
        partition=draw(amounts),
        max_unavailable=unavailable,
        max_surge=surge,
        paused=draw(st.integers(0, 4)) == 0,
    )
    return Settings(
        replicas=draw(st.integers(0, 6)),
        rolling_update=None if on_delete else rolling,
        on_delete=on_delete,
        scale_max_unavailable=draw(st.one_of(st.none(), amounts)),
        exclude_preparing_delete=draw(st.booleans()),
        lifecycle=draw(st.sampled_from((None, HOOKS))),
        gates=Gates(partition_rollback=draw(st.booleans()), preparing_update_as_update=draw(st.booleans())),
    )


def available(pods: list[PodFacts]) -> int:
    return sum(p.available(0.0) for p in pods)


def active(pods: list[PodFacts]) -> int:
    return sum(not p.preparing_delete for p in pods)


def old(pods: list[PodFacts], wanted: Settings) -> int:
    as_new = wanted.gates.preparing_update_as_update
    return sum(
        p.revision != NEW and not p.preparing_delete and not (as_new and p.lifecycle == "PreparingUpdate") for p in pods
    )


def acted(rollout: RolloutState, pods: list[PodFacts], can_in_place: bool) -> list[PodFacts]:
    """The Pods after the plan was carried out."""
    scaling = plan_scale(rollout, deletion_order({}, {}.get, rollout.now))
    if scaling.cancel_deletion or scaling.create or scaling.remove:
        after = list(pods)
        for revived in scaling.cancel_deletion:
            after[after.index(revived)] = state(revived, "PreparingNormal")
        for removal in scaling.remove:
            assert removal.prepare or not removal.pod.delete_hooked
            if removal.prepare:
                after[after.index(removal.pod)] = state(removal.pod, "PreparingDelete")
            else:
                after.remove(removal.pod)
        made = [OLD] * scaling.create_current + [NEW] * scaling.create_update
        return after + [pod(revision, available=False, lifecycle="PreparingNormal") for revision in made]
    after = list(pods)
    updating = plan_update(rollout, update_order(pods, None), lambda _pod: None if can_in_place else "/spec")
    for step in updating.steps:
        match step.kind:
            case StepKind.RECREATE:
                after[after.index(step.pod)] = replace(step.pod, marked=True)
            case StepKind.IN_PLACE:
                held = rollout.settings.lifecycle is not None and step.pod.pod.metadata.finalizers
                assert not (held and step.pod.lifecycle == "PreparingUpdate")
                after[after.index(step.pod)] = replace(state(step.pod, "Updating"), revision=updating.target)
            case StepKind.PREPARE | StepKind.REARM:
                after[after.index(step.pod)] = state(step.pod, "PreparingUpdate")
            case StepKind.REFUSE:
                raise AssertionError(step)
    return after


def state(facts: PodFacts, lifecycle: str) -> PodFacts:
    return pod(
        facts.revision,
        name=facts.name,
        available=False,
        ready=facts.update_ready,
        lifecycle=lifecycle,
        marked=facts.marked,
        delete_hooked=facts.delete_hooked,
        update_hooked=bool(facts.pod.metadata.finalizers),
    )


def checked(rollout: RolloutState, before: list[PodFacts], after: list[PodFacts]) -> None:
    limits = rollout.limits
    floor = limits.replicas - limits.max_unavailable
    if available(after) < available(before):
        assert available(after) >= floor, "more Pods unavailable than may be"
    if active(after) > active(before):
        assert active(after) <= limits.replicas + limits.surge, "more Pods than the surge allows"
    rolling_back = rollout.settings.gates.partition_rollback and rollout.to_update.update < 0
    if old(after, rollout.settings) < old(before, rollout.settings) and not rolling_back:
        removed_marked = sum(p.marked and p.revision != NEW for p in before)
        assert old(after, rollout.settings) >= min(limits.partition, old(before, rollout.settings)) - removed_marked, (
            "the partition is overshot"
        )


@given(st.lists(any_pod(), max_size=9), any_settings(), st.booleans())
@settings(max_examples=examples(800))
def test_one_reconcile_from_any_state_keeps_every_limit(
    pods: list[PodFacts], wanted: Settings, can_in_place: bool
) -> None:
    rollout = rollout_state(pods, wanted, OLD, NEW, 0.0)
    checked(rollout, pods, acted(rollout, pods, can_in_place))


def moved(facts: PodFacts, back: frozenset[PodFacts]) -> PodFacts:
    """Release its hooks, start its containers, and carry out its refresh."""
    if facts.lifecycle == "PreparingDelete":
        return pod(facts.revision, name=facts.name, available=False, lifecycle="PreparingDelete", marked=facts.marked)
    if facts.lifecycle == "PreparingUpdate" and facts not in back:
        return pod(facts.revision, name=facts.name, available=False, lifecycle="PreparingUpdate", marked=facts.marked)
    return pod(facts.revision, name=facts.name, marked=facts.marked)


@given(st.lists(any_pod(), max_size=9), any_settings(), st.booleans())
@settings(max_examples=examples(300))
def test_a_rollout_completes_once_its_pods_become_ready(
    pods: list[PodFacts], wanted: Settings, can_in_place: bool
) -> None:
    wanted = replace(
        wanted,
        scale_max_unavailable=None if wanted.scale_max_unavailable in (0, "0%") else wanted.scale_max_unavailable,
    )
    # Where only updates in place are allowed, admission refuses a template that asks for more: nothing could ever end.
    policy = wanted.rolling_update.policy if wanted.rolling_update is not None else None
    assume(can_in_place or policy is not UpdatePolicy.IN_PLACE_ONLY)
    if wanted.gates.partition_rollback:
        wanted = replace(wanted, gates=replace(wanted.gates, partition_rollback=False))
    for _ in range(200):
        rollout = rollout_state(pods, wanted, OLD, NEW, 0.0)
        after = acted(rollout, pods, can_in_place)
        checked(rollout, pods, after)
        helped = [moved(p, released(rollout)) for p in after]
        if after == pods and [vars_of(p) for p in helped] == [vars_of(p) for p in pods]:
            break
        pods = helped if after == pods else after
    else:
        raise AssertionError("it never ends")
    if wanted.paused:
        return  # a Pod that waits for the rollout to continue may delay others
    limits = rollout.limits
    assert len(pods) == limits.replicas
    assert not any(p.marked for p in pods)
    rolling = wanted.rolling_update
    cannot = rolling is not None and rolling.policy is UpdatePolicy.IN_PLACE_ONLY and not can_in_place
    if not wanted.on_delete and not cannot:
        assert old(pods, wanted) <= limits.partition


def vars_of(facts: PodFacts) -> tuple[object, ...]:
    hooks = facts.delete_hooked, facts.pod.metadata.finalizers
    return facts.name, facts.revision, facts.lifecycle, facts.marked, facts.available_after == inf, *hooks
