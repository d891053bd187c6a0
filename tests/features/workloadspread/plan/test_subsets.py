"""The subset of a Pod without a valid record."""

from __future__ import annotations

import re
from typing import Any

import pytest

from app.api import names
from app.features.workloadspread.commands import explain
from app.features.workloadspread.plan.subsets import NO_SUBSET, Adoption, Candidate, adoptions, prepare, recorded_subset
from app.features.workloadspread.plan.subsets import adopt as adopt_fresh
from app.features.workloadspread.types import WorkloadSpread
from app.kube.objects import Node, NodeSpec, ObjectMeta, Taint
from tests.features.workloadspread.spreads import IGNORED, Json, ago, condition, pod, spread

ZONE_A: Json = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}


def node(zone: str = "a", *taints: Taint, name: str = "node-1", **labels: str) -> Node:
    return Node(ObjectMeta(name=name, labels={"zone": zone, **labels}), NodeSpec(taints=taints))


def with_subsets(*subsets: Json, **metadata: Any) -> WorkloadSpread:
    obj = spread({"x": None}, **metadata).to_dict()
    obj["spec"]["subsets"] = list(subsets)
    return WorkloadSpread.model_validate(obj)


def candidates(on: Node, raw: Json | None = None, count: int = 1) -> list[Candidate]:
    return [Candidate(pod(f"p{n}"), raw or {"metadata": {}, "spec": {}}, on, IGNORED) for n in range(count)]


def adopt(
    given: WorkloadSpread,
    on: Node,
    raw: Json | None = None,
    counted: dict[tuple[str, str], int] | None = None,
    pods: int = 1,
) -> list[Adoption]:
    return adoptions(given, [prepare(one) for one in given.spec.subsets], candidates(on, raw, pods), counted or {}, 0)


@pytest.mark.behaviour("WS-50", "WS-74")
def test_a_pod_belongs_to_its_recorded_subset() -> None:
    given = spread({"a": 3, "b": None})
    assert recorded_subset(given, pod("p", "b")) == "b"
    assert recorded_subset(given, pod("p", "gone")) == NO_SUBSET
    assert recorded_subset(given, pod("p")) is None
    assert recorded_subset(spread({"a": 3, "b": None}, name="other"), pod("p", "b")) is None


TOLERANT: Json = {"name": "b", "tolerations": [{"key": "pool", "operator": "Exists"}]}
PREFERRED: Json = {"name": "b", "preferredNodeSelector": [{"weight": 1, "preference": ZONE_A}]}
TAINTED = (Taint("pool", "burst", "PreferNoSchedule"),)


@pytest.mark.behaviour("WS-51")
@pytest.mark.parametrize(
    ("subsets", "on", "raw", "chosen"),
    [
        ([{"name": "a", "requiredNodeSelector": ZONE_A}, {"name": "b"}], node("a"), {}, "a"),
        ([{"name": "a", "requiredNodeSelector": ZONE_A}, {"name": "b"}], node("b"), {}, "b"),
        ([{"name": "a", "requiredNodeSelector": ZONE_A}], node("b"), {}, None),
        ([{"name": "a"}, TOLERANT], node("a", *TAINTED), {}, "b"),
        ([{"name": "a"}], node("a", *TAINTED), {"tolerations": [{"operator": "Exists"}]}, "a"),
        ([{"name": "a"}], node("a", *TAINTED), {"tolerations": [{"key": "pool", "value": "other"}]}, None),
        ([{"name": "a"}, PREFERRED], node("a"), {}, "b"),
        ([{"name": "a", "patch": {"metadata": {"labels": {"t": "1"}}}}, {"name": "b"}], node("a"), {}, "b"),
        ([{"name": "a", "patch": {"metadata": {"annotations": {"t": "1"}}}}, {"name": "b"}], node("a"), {}, "a"),
        ([{"name": "a", "maxReplicas": 0}, {"name": "b"}], node("a"), {}, "b"),
        ([{"name": "a", "maxReplicas": 0}], node("a"), {}, None),
        ([{"name": "a"}, {"name": "b"}], node("a"), {}, "a"),
    ],
)
def test_a_pod_joins_the_subset_that_fits_its_node_best(
    subsets: list[Json], on: Node, raw: Json, chosen: str | None
) -> None:
    found = adopt(with_subsets(*subsets), on, {"metadata": {}, "spec": raw})
    assert [one.subset for one in found] == ([chosen] if chosen else [])


@pytest.mark.behaviour("WS-51")
@pytest.mark.parametrize(
    ("requirement", "holds"),
    [
        ({"key": "cpus", "operator": "Gt", "values": ["4"]}, True),
        ({"key": "cpus", "operator": "Lt", "values": ["4"]}, False),
        ({"key": "zone", "operator": "Gt", "values": ["4"]}, False),
        ({"key": "zone", "operator": "NotIn", "values": ["b"]}, True),
        ({"key": "zone", "operator": "Exists"}, True),
        ({"key": "zone", "operator": "DoesNotExist"}, False),
        ({"key": "none", "operator": "NotIn", "values": ["b"]}, True),
        ({"key": "zone", "operator": "Near"}, False),
    ],
)
def test_requirements_match_the_scheduler(requirement: Json, holds: bool) -> None:
    given = with_subsets({"name": "a", "requiredNodeSelector": {"matchExpressions": [requirement]}})
    assert bool(adopt(given, node("a", cpus="8"))) is holds
    by_name = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]}
    assert adopt(with_subsets({"name": "a", "requiredNodeSelector": by_name}), node("a"))


@pytest.mark.behaviour("WS-52")
def test_places_are_counted_per_version_and_per_new_pod() -> None:
    given = with_subsets({"name": "a", "maxReplicas": 3}, {"name": "b"})
    found = adopt(given, node(), counted={(IGNORED, "a"): 1, ("other", "a"): 9}, pods=4)
    assert [one.subset for one in found] == ["a", "a", "b", "b"]


@pytest.mark.behaviour("WS-56", "WS-52")
def test_a_single_subset_takes_pods_up_to_its_maximum() -> None:
    found = adopt(spread({"a": 2}), node(), counted={(IGNORED, "a"): 1}, pods=3)
    assert [one.pod.metadata.name for one in found] == ["p0"]


@pytest.mark.behaviour("WS-53")
@pytest.mark.parametrize(
    ("annotations", "labels"),
    [({}, {"tier": "a"}), ({"workloadspread.kruise.io/ignore-patch-existing-pods-metadata": "TRUE"}, None)],
)
def test_a_pod_gets_the_metadata_of_its_subset(annotations: dict[str, str], labels: dict[str, str] | None) -> None:
    patch = {"metadata": {"labels": {"tier": "a"}, "annotations": {"x": "y"}}, "spec": {"nodeName": "other"}}
    (found,) = adopt(with_subsets({"name": "a", "patch": patch}, annotations=annotations), node())
    assert found.metadata.get("labels") == labels
    assert found.metadata["annotations"][names.MATCHED_WORKLOAD_SPREAD] == '{"name":"ws","subset":"a"}'
    assert ("x" in found.metadata["annotations"]) is (labels is not None)
    assert "spec" not in found.metadata


def entry(replicas: int, **entries: dict[str, str]) -> Json:
    return {"name": "a", "replicas": replicas, "missingReplicas": 3 - replicas, **entries}


@pytest.mark.behaviour("WS-52")
@pytest.mark.parametrize(
    ("known", "counted", "seen", "comes_into"),
    [
        pytest.param(entry(0), 0, (), ["a", "a", "a", "b"], id="all places are free"),
        pytest.param(entry(0, creatingPods={"new": ago(1)}), 0, (), ["a", "a", "b", "b"], id="one is being created"),
        pytest.param(entry(0, creatingPods={"new": ago(1)}), 1, ("new",), ["a", "a", "b", "b"], id="it has arrived"),
        pytest.param(entry(2), 0, (), ["a", "b", "b", "b"], id="the former leader saw more than our cache"),
        pytest.param(entry(3, deletingPods={"p": ago(1)}), 3, (), ["b", "b", "b", "b"], id="a terminating Pod counts"),
    ],
)
def test_existing_pods_join_a_subset_after_reserved_places(
    known: Json, counted: int, seen: tuple[str, ...], comes_into: list[str]
) -> None:
    given = spread({"a": 3, "b": None}, {IGNORED: [known, {"name": "b", "replicas": 0, "missingReplicas": -1}]})
    subsets, pods = [prepare(one) for one in given.spec.subsets], candidates(node(), count=len(comes_into))
    ruling = adopt_fresh(given, subsets, pods, {(IGNORED, "a"): counted}, seen, 9, ago(0))
    assert [one.subset for one in ruling.answer] == comes_into
    taken = {f"p{n}" for n, subset in enumerate(comes_into) if subset == "a"}
    assert (ruling.changed is not None) is bool(taken)
    if ruling.changed is not None and ruling.changed.status is not None:
        (after, _) = (ruling.changed.status.versioned_subset_statuses or {})[IGNORED]
        assert set(after.creating_pods or {}) - set(known.get("creatingPods", {})) == taken


@pytest.mark.behaviour("WS-27", "WS-66")
def test_the_explanation_lists_every_subset() -> None:
    entries = [
        {"name": "a", "replicas": 3, "missingReplicas": 0},
        {"name": "b", "replicas": 0, "missingReplicas": 5, "conditions": [condition("False")]},
        {"name": "c", "replicas": 0, "missingReplicas": -1},
    ]
    given = spread({"a": "60%", "b": 5, "c": None}, {IGNORED: entries})
    pods = [
        pod("in", "a", cost="300"),
        pod("surplus", "a", cost="-100"),
        pod("out", "gone"),
        pod("done", "a", phase="Failed"),
    ]
    found = explain(given, [(one, IGNORED) for one in pods], 5, "")
    assert [(row[0], row[1], row[5], row[6].partition(":")[0]) for row in found.subsets] == [
        ("a", "60% of 5: 3", "0", "skipped"),
        ("b", "5", "5", "skipped"),
        ("c", "any number", "any number", "chosen"),
    ]
    assert found.next == "The next Pod goes into c."
    assert [re.split("[:,]", row[4])[0] for row in found.pods] == [
        "-",
        "beyond maxReplicas of its subset",
        "its subset was removed",
        "not counted",
    ]
    full = explain(spread({"a": 1}, {"v": [{"name": "a", "replicas": 1, "missingReplicas": 0}]}), [], 5, "v")
    assert full.next.startswith("The next Pod gets no subset")
    ordinals = explain(spread({"a": 2, "b": 0, "c": None}, kind="StatefulSet"), [], 5, "")
    assert [row[6] for row in ordinals.subsets] == ["ordinals 0 to 1", "no ordinals", "ordinals from 2"]
