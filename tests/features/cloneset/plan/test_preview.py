"""Previews of a rollout, and explanations of single Pods."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from app.api import names
from app.features.cloneset.defaults import with_defaults
from app.features.cloneset.plan.diff import rollout_state
from app.features.cloneset.plan.preview import explain, preview
from app.features.cloneset.plan.settings import Gates, ResolvedSpec, resolve_spec
from app.features.cloneset.types import CloneSet
from app.kube.objects import ContainerStatus, PodCondition, PodStatus
from app.pods.revisions import Create, Revision, plan_revision, short_hash
from app.workloads.pods import PodFacts
from app.workloads.report import Action, Preview
from app.workloads.settings import Revisions
from tests.features.cloneset.samples import HOLD, pod
from tests.features.cloneset.writing import clone_set, rolling

NOW = 1_000.0


ENV = [{"name": "A", "value": "1"}]


def resolved(
    image: str = "nginx:2",
    strategy: dict[str, Any] | None = None,
    env: list[Any] | None = None,
    labels: dict[str, str] | None = None,
    **spec: Any,
) -> ResolvedSpec:
    container = {"name": "main", "image": image, **({"env": env} if env else {})}
    template = {"metadata": {"labels": {"app": "web", **(labels or {})}}, "spec": {"containers": [container]}}
    made = clone_set("web", template=template, updateStrategy=strategy or rolling(policy="InPlaceIfPossible"), **spec)
    return resolve_spec(CloneSet.model_validate(with_defaults(made)), Gates())


def revision(of: ResolvedSpec, number: int) -> Revision:
    plan = plan_revision("web", of.content.data, [], 0)
    assert isinstance(plan, Create)
    return Revision(plan.name, number, plan.data)


OLD = revision(resolved("nginx:1"), 1)
OLD_HASH = short_hash(OLD.name)


def previewed(wanted: ResolvedSpec, pods: list[PodFacts], old: Revision = OLD) -> Preview:
    update = revision(wanted, 2)
    return preview(wanted, pods, Revisions(old, update, [old, update]), NOW, lambda _: None)


def old_pods(count: int, **fields: Any) -> list[PodFacts]:
    return [pod(OLD_HASH, name=f"web-{index}", **fields) for index in range(count)]


def steps_of(found: Preview) -> list[tuple[int, str, str]]:
    return [(one.step, one.action.value, one.pod) for one in found.steps]


@pytest.mark.behaviour("CS-124", "CS-130")
def test_an_in_place_update_respects_max_unavailable() -> None:
    found = previewed(resolved(replicas=5, strategy=rolling(policy="InPlaceIfPossible", maxUnavailable=2)), old_pods(5))
    assert steps_of(found) == [(1 + n // 2, "update in place", f"web-{n}") for n in range(5)]
    assert {one.reason for one in found.steps} == {"image of main becomes nginx:2"}
    assert found.rest == ()
    assert found.ends == ""


@pytest.mark.behaviour("CS-132")
def test_an_immutable_field_is_named_and_pods_are_recreated() -> None:
    found = previewed(resolved(env=ENV, replicas=3), old_pods(3))
    assert [(one.step, one.action) for one in found.steps] == [(n, Action.RECREATE) for n in (1, 2, 3)]
    assert found.steps[0].reason == "add /spec/containers/0/env: cannot be changed in a running Pod"


@pytest.mark.parametrize(("strategy", "updated", "ends"), [
    (rolling(policy="InPlaceIfPossible", partition=2), 1, "partition: 2 Pods keep their revision"),
    (rolling(paused=True), 0, "paused: the other Pods are updated after the rollout is resumed"),
    ({"type": "OnDelete"}, 0, "OnDelete: the other Pods are updated when they are deleted"),
])  # fmt: skip
@pytest.mark.behaviour("CS-84", "CS-123")
def test_the_preview_says_why_a_rollout_stops(strategy: dict[str, Any], updated: int, ends: str) -> None:
    found = previewed(resolved(replicas=3, strategy=strategy), old_pods(3))
    assert len(found.steps) == updated
    assert found.rest == ("web-0", "web-1", "web-2")[updated:]
    assert found.ends == ends


@pytest.mark.behaviour("CS-132")
def test_in_place_only_ends_at_the_first_blocked_pod() -> None:
    found = previewed(resolved(env=ENV, replicas=3, strategy=rolling(policy="InPlaceOnly")), old_pods(3))
    assert found.steps == ()
    assert found.ends.startswith("find Pod web-0 update strategy is InPlaceOnly but can not update in-place: add /spec")


@pytest.mark.behaviour("CS-130")
def test_a_pod_in_an_unknown_lifecycle_state_is_named_and_kept() -> None:
    odd = pod(OLD_HASH, name="web-odd", lifecycle="Foo")
    found = previewed(
        resolved(replicas=2, strategy=rolling(policy="InPlaceIfPossible", maxUnavailable=2)), [odd, *old_pods(1)]
    )
    assert steps_of(found) == [(1, "update in place", "web-0")]
    assert found.rest == ("web-odd",)
    assert found.ends == "Pod web-odd: not allowed in lifecycle state 'Foo'"


@pytest.mark.behaviour("PM-140")
def test_pods_without_an_agent_to_refresh_their_env_are_previewed_as_replaced() -> None:
    env = [{"name": "TIER", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['tier']"}}}]
    old, wanted = (resolved(env=env, labels={"tier": tier}, replicas=1) for tier in "ab")
    before = revision(old, 1)
    runs = pod(short_hash(before.name), name="web-0")
    status = PodStatus(container_statuses=(ContainerStatus(name="main", container_id="containerd://1"),))
    runs.pod = msgspec.structs.replace(runs.pod, status=status)
    found = previewed(wanted, [runs], before)
    assert steps_of(found) == [(1, "recreate", "web-0")]
    assert found.steps[0].reason.startswith("no node agent reports the Pod's containers")


@pytest.mark.behaviour("CS-124")
def test_broken_pods_that_use_up_the_budget_are_named() -> None:
    pods = [*old_pods(3), pod(revision(resolved(), 2).name.rpartition("-")[2], name="web-sick", available=False)]
    found = previewed(resolved(replicas=4, strategy=rolling(policy="InPlaceIfPossible", maxUnavailable=1)), pods)
    assert found.steps == ()
    assert found.ends == "maxUnavailable 1 is used up by Pods that are not available: web-sick"


@pytest.mark.behaviour("CS-130")
def test_the_preview_names_the_hook_that_it_waits_for() -> None:
    lifecycle = {"inPlaceUpdate": {"finalizersHandler": [HOLD]}}
    found = previewed(resolved(replicas=1, lifecycle=lifecycle), old_pods(1, update_hooked=True))
    assert [one.reason for one in found.steps] == ["image of main becomes nginx:2, after its inPlaceUpdate hook"]


# --- explain


def explained(wanted: ResolvedSpec, pods: list[PodFacts], about: PodFacts) -> str:
    update = revision(wanted, 2)
    rollout = rollout_state(pods, wanted.settings, OLD_HASH, short_hash(update.name), NOW)
    return "\n".join(explain(about.pod, wanted, rollout, previewed(wanted, pods), update, lambda _: None))


def test_the_preview_says_when_and_how_a_pod_is_updated() -> None:
    pods = old_pods(2)
    text = explained(resolved(replicas=2), pods, pods[1])
    assert text.splitlines() == [
        f"revision: {OLD_HASH}, older than the update revision {short_hash(revision(resolved(), 2).name)}",
        "available; lifecycle state Normal",
        "next: will be updated in place in step 2 of 2: image of main becomes nginx:2",
        "scale-in: number 2 of 2 in deletion order",
    ]


def shown(
    *, conditions: tuple[PodCondition, ...] = (), record: str = "", name: str = "web-0", **facts: Any
) -> PodFacts:
    """Return an old, running Pod. ``record``: of its in-place update."""
    one = pod(OLD_HASH, name=name, **facts)
    annotations = {names.IN_PLACE_UPDATE_STATE: record} if record else {}
    labels = {**one.pod.metadata.labels, "app": "web"}
    metadata = msgspec.structs.replace(one.pod.metadata, labels=labels, annotations=annotations)
    status = PodStatus(phase="Running", conditions=conditions)
    return replace(one, pod=msgspec.structs.replace(one.pod, metadata=metadata, status=status))


HELD = PodCondition(type="KruisePodReady", status="False", message='[{"userAgent":"me","key":"hold"}]')
HOOK = {"finalizersHandler": [HOLD], "labelsHandler": {"traffic": "on"}}
ENTERS = "  it enters service once it has: label traffic=on\n"
PULLING = '{"revision":"x","lastContainerStatuses":{"main":{"imageID":"i"}}}'


@pytest.mark.behaviour("CLI-7")
@pytest.mark.parametrize(("spec", "one", "lines"), [
    pytest.param(
        {"lifecycle": {"inPlaceUpdate": {"finalizersHandler": [HOLD]}}},
        shown(conditions=(HELD,), available=False, lifecycle="PreparingUpdate", update_hooked=True),
        [
            "not available; lifecycle state PreparingUpdate",
            'condition KruisePodReady is False: [{"userAgent":"me","key":"hold"}]',
            f"its update waits until these are removed: finalizer {HOLD}",
        ],
        id="why it is not available",
    ),
    pytest.param({"lifecycle": {"preNormal": HOOK}}, shown(lifecycle="PreparingNormal", update_hooked=True), [ENTERS],
     id="what a new Pod needs to enter service"),
    pytest.param({"lifecycle": {"inPlaceUpdate": HOOK}}, shown(lifecycle="Updated", update_hooked=True), [ENTERS],
     id="what an updated Pod needs to enter service"),
    pytest.param({}, shown(lifecycle="Updating", record=PULLING),
     ["its in-place update is in progress: container main has no status"], id="what its update waits for"),
    pytest.param({}, shown(lifecycle="Updating", record="none"),
     ["its in-place update cannot continue: Pod default/web-0: annotation apps.kruise.io/inplace-update-"],
     id="why its update cannot continue"),
    pytest.param({"scaleStrategy": {"podsToDelete": ["web-0"]}}, pod(OLD_HASH, name="web-0"),
     ["its deletion was requested (podsToDelete)"], id="that its deletion was requested"),
])  # fmt: skip
def test_the_preview_says_about_a_pod(spec: dict[str, Any], one: PodFacts, lines: list[str]) -> None:
    text = explained(resolved(replicas=1, **spec), [one], one) + "\n"
    for line in lines:
        assert line in text


def test_the_preview_says_why_a_pod_does_not_count() -> None:
    left = pod(OLD_HASH, name="web-left")
    text = explained(resolved(replicas=1), old_pods(1), left)
    assert text == "not counted: its labels do not match the selector app=web"
