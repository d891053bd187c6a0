"""Previews of a rollout, and explanations of single Pods."""

from __future__ import annotations

from typing import Any

import pytest

from app.api import names
from app.features.statefulset.defaults import ClaimGates, with_defaults
from app.features.statefulset.plan.preview import explain, preview
from app.features.statefulset.plan.settings import Gates, ResolvedSpec, resolve_spec
from app.features.statefulset.types import StatefulSet
from app.pods.revisions import Revision, template_data
from app.workloads.report import Preview
from app.workloads.settings import Revisions
from tests.features.statefulset.samples import NEW, NOW, OLD, facts, pod
from tests.features.statefulset.writing import rolling, stateful_set

Json = dict[str, Any]


def resolved_of(annotations: Json | None = None, **spec: Any) -> ResolvedSpec:
    obj = with_defaults(stateful_set(metadata={"uid": "u", "annotations": annotations or {}}, **spec), ClaimGates())
    return resolve_spec(StatefulSet.model_validate(obj), Gates())


def revisions(resolved: ResolvedSpec, *, other_field: str = "image") -> Revisions:
    template = resolved.template
    (container,) = template["spec"]["containers"]
    before = {**template, "spec": {**template["spec"], "containers": [{**container, other_field: "nginx:0"}]}}
    old = Revision(f"web-{OLD}", 1, template_data(before))
    new = Revision(f"web-{NEW}", 2, resolved.content.data)
    return Revisions(old, new, [old, new])


def ran(resolved: ResolvedSpec, pods: list[Json], **options: Any) -> Preview:
    labeled = [
        {**one, "metadata": {**one["metadata"], "labels": {"app": "web", **one["metadata"]["labels"]}}} for one in pods
    ]
    return preview(resolved, [facts(one, resolved.settings) for one in labeled], revisions(resolved, **options), NOW)


def shown(found: Preview) -> list[tuple[int, str, str]]:
    return [(one.step, one.pod, one.action.value) for one in found.steps]


IN_PLACE: Json = {"podUpdatePolicy": "InPlaceIfPossible"}


@pytest.mark.behaviour("AS-79", "AS-81")
def test_a_rollout_is_shown_step_by_step() -> None:
    found = ran(resolved_of(replicas=5, updateStrategy=rolling(maxUnavailable=3)), [pod(n) for n in range(5)])
    assert [(step, name) for step, name, action in shown(found) if action == "recreate"] == [
        (1, "web-4"), (1, "web-3"), (1, "web-2"), (2, "web-1"), (2, "web-0")
    ]  # fmt: skip
    assert (found.rest, found.ends) == ((), "")
    found = ran(resolved_of(replicas=3, updateStrategy=rolling(partition=1, **IN_PLACE)), [pod(n) for n in range(3)])
    assert shown(found) == [(1, "web-2", "update in place"), (2, "web-1", "update in place")]
    assert (found.rest, found.ends) == (("web-0",), "the partition keeps 1 at the old revision")
    found = ran(resolved_of(replicas=1, updateStrategy=rolling(**IN_PLACE)), [pod(0)], other_field="imagePullPolicy")
    assert next(one.reason for one in found.steps if one.action.value == "recreate")


@pytest.mark.behaviour("AS-78", "PM-55")
@pytest.mark.parametrize("state", ["Updating", ""])
def test_an_update_in_progress_is_assumed_to_succeed(state: str) -> None:
    """Also of a Pod without a lifecycle state, such as one of a former native StatefulSet."""
    updating = pod(1, NEW, state=state)
    updating["metadata"]["annotations"] = {
        names.IN_PLACE_UPDATE_STATE: '{"revision":"web-newhash","lastContainerStatuses":{"main":{"imageID":"old"}}}'
    }
    updating["spec"] = {"containers": [{"name": "main", "image": "nginx:1"}]}
    updating["status"]["containerStatuses"] = [{"name": "main", "image": "nginx:0", "imageID": "old"}]
    found = ran(resolved_of(replicas=2, updateStrategy=rolling(**IN_PLACE)), [pod(0), updating])
    assert (shown(found), found.ends) == ([(1, "web-0", "update in place")], "")


@pytest.mark.behaviour("AS-48", "AS-60")
def test_the_preview_shows_scaling() -> None:
    found = ran(resolved_of(replicas=4, reserveOrdinals=[1, 3]), [pod(n, NEW) for n in (0, 2, 3, 4)])
    assert shown(found) == [(1, "web-5", "create"), (1, "web-3", "delete")]


@pytest.mark.behaviour("AS-57", "AS-75", "AS-76")
@pytest.mark.parametrize(("spec", "ends"), [
    ({"podManagementPolicy": "OrderedReady"},
     "OrderedReady: all other Pods wait until web-1 is available; delete it if it cannot recover, or set "
     'annotation pykruise.io/repair-ordered-ready: "true"'),
    ({"podManagementPolicy": "OrderedReady", "updateStrategy": rolling(partition=2)},
     "OrderedReady: all other Pods wait until web-1 is available"),
    ({"updateStrategy": {"type": "OnDelete"}}, "OnDelete: Pods are updated when they are deleted"),
    ({"updateStrategy": rolling(paused=True)}, "the update is paused"),
    ({"updateStrategy": rolling(partition=2)}, "the partition keeps 2 at the old revision"),
])  # fmt: skip
def test_the_preview_says_why_nothing_happens(spec: Json, ends: str) -> None:
    found = ran(resolved_of(replicas=2, **spec), [pod(0), pod(1, ready="podManagementPolicy" not in spec)])
    assert (found.steps, found.ends) == ((), ends)


@pytest.mark.behaviour("AS-140")
def test_a_repair_is_shown_before_the_rest() -> None:
    resolved = resolved_of({"pykruise.io/repair-ordered-ready": "true"}, replicas=3, podManagementPolicy="OrderedReady")
    found = ran(resolved, [pod(0), pod(1, ready=False)])
    steps = [(name, action) for _, name, action in shown(found)]
    assert steps == [("web-1", "recreate"), ("web-2", "create"), ("web-0", "recreate")]
    assert not found.ends


def test_a_large_set_is_shown_in_part() -> None:
    assert ran(resolved_of(replicas=2**31 - 1), []).ends == "only the first 1000 steps are shown"


@pytest.mark.parametrize(("one", "expected"), [
    (pod(2), ["ordinal 2: number 3 of 3", "older than the update revision", "will be recreated in step 1 of"]),
    (pod(0), ["the partition (1) keeps it", "next: stays at its revision (the partition keeps 1"]),
    (pod(7), ["ordinal 7: surplus", "will be deleted in step 1"]),
    (pod(2, terminating=True), ["it is terminating"]),
    (pod(2, ready=False), ["not available; lifecycle state Normal", "  condition Ready is False"]),
    (pod(2, phase="Pending"), ["  its phase is Pending, not scheduled yet"]),
    (pod(2, marked=True), ["its deletion was requested"]),
    (pod("x"), ["not counted"]),
    (pod(2, hooked=True, state="PreparingDelete"),
     ["its deletion waits until these are removed: finalizer example.com/hold"]),
])  # fmt: skip
def test_explain_describes_one_pod(one: Json, expected: list[str]) -> None:
    hooks = {"preDelete": {"finalizersHandler": ["example.com/hold"]}}
    resolved = resolved_of(replicas=3, updateStrategy=rolling(partition=1), lifecycle=hooks)
    one["metadata"]["labels"]["app"] = "web"
    others = [pod(n) for n in range(3) if f"web-{n}" != one["metadata"]["name"]]
    lines = explain(facts(one, resolved.settings), resolved, ran(resolved, [*others, one]), update=NEW, now=NOW)
    text = "\n".join(lines)
    for part in expected:
        assert part in text
