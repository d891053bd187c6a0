"""Eligibility of nodes for a Pod, compared with the sandbox's scheduler."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.features.daemonset.plan.new_pods import daemon_tolerations
from app.kube.fielderrors import Path
from app.kube.objects import Node, NodeCondition, NodeSpec, NodeStatus, ObjectMeta, Pod, Taint, decode_pod
from app.pods.node_fit import MAX_RULES, placement_errors, placement_of
from app.sandbox.filters import suits
from app.sandbox.objects import Node as SandboxNode
from app.sandbox.objects import PodSpec as SandboxPodSpec

LINUX = {"kubernetes.io/os": "linux", "zone": "a"}


def node(*taints: str, labels: dict[str, str] | None = None, name: str = "n1", **more: Any) -> Node:
    """``taints``: key:effect, or key=value:effect."""
    made = []
    for taint in taints:
        key, _, effect = taint.rpartition(":")
        key, _, value = key.partition("=")
        made.append(Taint(key, value, effect))
    return Node(
        metadata=ObjectMeta(name=name, labels=LINUX if labels is None else labels),
        spec=NodeSpec(taints=tuple(made), unschedulable=bool(more.get("unschedulable"))),
        status=NodeStatus(tuple(NodeCondition(*one) for one in more.get("conditions", ()))),
    )


def daemon(**spec: Any) -> dict[str, Any]:
    return {**spec, "tolerations": daemon_tolerations(spec)}


def affinity(*terms: dict[str, Any]) -> dict[str, Any]:
    required = {"nodeSelectorTerms": list(terms)}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


K8S = "node.kubernetes.io/"


@pytest.mark.behaviour("DS-16", "DS-17", "DS-18")
@pytest.mark.parametrize(
    ("spec", "found", "expected"),
    [
        ({}, node(), (True, True)),
        ({}, node(f"{K8S}unschedulable:NoSchedule", unschedulable=True), (True, True)),
        ({}, node(f"{K8S}memory-pressure:NoSchedule", f"{K8S}disk-pressure:NoSchedule"), (True, True)),
        ({}, node(f"{K8S}pid-pressure:NoSchedule"), (True, True)),
        ({}, node(conditions=[("Ready", "False")]), (True, True)),
        ({}, node(unschedulable=True), (True, True)),
        ({}, node(f"{K8S}not-ready:NoExecute"), (True, True)),
        ({}, node(f"{K8S}not-ready:NoSchedule", f"{K8S}not-ready:NoExecute"), (False, True)),
        ({}, node(f"{K8S}unreachable:NoSchedule", f"{K8S}unreachable:NoExecute"), (False, True)),
        ({}, node(f"{K8S}network-unavailable:NoSchedule"), (False, True)),
        ({"hostNetwork": True}, node(f"{K8S}network-unavailable:NoSchedule"), (True, True)),
        ({}, node("mine:PreferNoSchedule"), (True, True)),
        ({}, node("mine:NoSchedule"), (False, True)),
        ({}, node("mine:NoExecute"), (False, False)),
        ({"tolerations": [{"operator": "Exists"}]}, node("mine:NoExecute"), (True, True)),
        ({"tolerations": [{"key": "mine", "value": "a"}]}, node("mine=a:NoSchedule"), (True, True)),
        ({"tolerations": [{"key": "mine", "value": "b"}]}, node("mine=a:NoSchedule"), (False, True)),
        ({"tolerations": [{"key": "mine", "operator": "Exists", "effect": "NoSchedule"}]},
         node("mine=a:NoSchedule", "mine=a:NoExecute"), (False, False)),
        ({"nodeName": "n1"}, node(), (True, True)),
        ({"nodeName": "n2"}, node(), (False, False)),
        ({"nodeSelector": {"zone": "a"}}, node(), (True, True)),
        ({"nodeSelector": {"zone": "b"}}, node(), (False, False)),
        ({"affinity": affinity(expression("zone", "In", "b"), expression("zone", "Exists"))}, node(), (True, True)),
        ({"affinity": affinity(expression("zone", "NotIn", "a"))}, node(), (False, False)),
        ({"affinity": affinity({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]})},
         node(), (True, True)),
        ({"affinity": affinity({})}, node(), (False, False)),
        ({"affinity": affinity(expression("cores", "Gt", "7"))}, node(labels={"cores": "8"}), (True, True)),
        # Terms that the API server rejects.
        ({"affinity": affinity(expression("cores", "Gt", "7", "8"))}, node(labels={"cores": "9"}), (False, False)),
        ({"affinity": affinity(expression("zone", "Like", "a"))}, node(), (False, False)),
        ({"affinity": affinity()}, node(), (False, False)),
        ({"affinity": "near", "tolerations": {"key": 1}, "nodeSelector": ["zone"]}, node(), (True, True)),
        ({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 1, "preference": expression("zone", "In", "b")}]}}}, node(), (True, True)),
    ],
)  # fmt: skip
def test_a_node_is_eligible_as_for_a_native_daemonset(
    spec: dict[str, Any], found: Node, expected: tuple[bool, bool]
) -> None:
    eligibility = placement_of(daemon(**spec)).eligibility(found)
    assert (eligibility.should_run, eligibility.should_continue) == expected
    assert bool(eligibility.reason) is not expected[0]


KEYS = st.sampled_from(["a", "b", "c"])
VALUES = st.sampled_from(["1", "2", "x"])


@st.composite
def requirements(draw: st.DrawFn) -> dict[str, Any]:
    operator = draw(st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]))
    count = {"In": (1, 2), "NotIn": (1, 2), "Gt": (1, 1), "Lt": (1, 1)}.get(operator, (0, 0))
    values = draw(st.lists(VALUES, min_size=count[0], max_size=count[1]))
    return {"key": draw(KEYS), "operator": operator, "values": values}


TERMS = st.fixed_dictionaries(
    {},
    optional={
        "matchExpressions": st.lists(requirements(), max_size=2),
        "matchFields": st.just([{"key": "metadata.name", "operator": "In", "values": ["n1"]}]),
    },
)
EFFECTS = st.sampled_from(["NoSchedule", "NoExecute", "PreferNoSchedule"])
TOLERATIONS = st.one_of(
    st.fixed_dictionaries({"operator": st.just("Exists")}, optional={"key": KEYS, "effect": EFFECTS}),
    st.fixed_dictionaries({"key": KEYS, "value": VALUES}, optional={"effect": EFFECTS, "operator": st.just("Equal")}),
)
SPECS = st.fixed_dictionaries(
    {},
    optional={
        "nodeSelector": st.dictionaries(KEYS, VALUES, max_size=1),
        "tolerations": st.lists(TOLERATIONS, max_size=2),
        "affinity": st.lists(TERMS, min_size=1, max_size=2).map(lambda terms: affinity(*terms)),
    },
)
NODES = st.fixed_dictionaries(
    {
        "metadata": st.fixed_dictionaries(
            {"name": st.sampled_from(["n1", "n2"]), "labels": st.dictionaries(KEYS, VALUES)}
        ),
        "spec": st.fixed_dictionaries(
            {"taints": st.lists(st.fixed_dictionaries({"key": KEYS, "value": VALUES, "effect": EFFECTS}), max_size=2)}
        ),
    }
)


@pytest.mark.behaviour("DS-16", "DS-18")
@given(SPECS, NODES)
def test_node_fit_agrees_with_the_scheduler(spec: dict[str, Any], found: dict[str, Any]) -> None:
    expected = suits(msgspec.convert(spec, SandboxPodSpec), msgspec.convert(found, SandboxNode))
    eligibility = placement_of(spec).eligibility(msgspec.convert(found, Node))
    assert eligibility.should_run is expected
    assert eligibility.should_continue or not eligibility.should_run


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from(["affinity", "tolerations", "nodeSelector", "nodeName"]), JSON))
def test_any_spec_can_be_read(spec: dict[str, Any]) -> None:
    placement_of(daemon(**spec)).eligibility(node("mine:NoSchedule"))


@pytest.mark.parametrize("field", ["tolerations", "nodeSelectorTerms"])
def test_constraints_that_take_long_to_compare_with_every_node_are_errors(field: str) -> None:
    def errors(count: int) -> list[str]:
        many = affinity(*[expression("a", "Exists")] * count)
        spec = {"tolerations": [{}] * count} if field == "tolerations" else {"affinity": many}
        return [error.field for error in placement_errors(spec, Path("spec"))]

    assert errors(MAX_RULES) == []
    assert [one.endswith(field) for one in errors(MAX_RULES + 1)] == [True]


@pytest.mark.behaviour("DS-17")
def test_a_toleration_replaces_the_one_it_covers() -> None:
    mine = {"key": f"{K8S}not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}
    found = daemon_tolerations({"tolerations": [mine, {"key": "x", "operator": "Exists"}]})
    assert [one.get("key") for one in found].count(f"{K8S}not-ready") == 1
    assert not any("tolerationSeconds" in one for one in found)
    assert len(found) == 7
    found = daemon_tolerations({"tolerations": [mine, {**mine, "tolerationSeconds": 9}]})
    assert not any("tolerationSeconds" in one for one in found)


@pytest.mark.behaviour("DS-19")
def test_a_pod_belongs_to_its_bound_or_intended_node() -> None:
    def made(**spec: Any) -> Pod:
        return decode_pod(msgspec.json.encode({"metadata": {"name": "p"}, "spec": spec}))

    wanted = affinity({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]})
    assert made(affinity=wanted).spec.target_node == "n2"
    assert made(affinity=wanted, nodeName="n3").spec.target_node == "n3"
    # The affinity of a bound Pod is not decoded.
    assert made(affinity=wanted, nodeName="n3").spec.affinity is None
    assert made(affinity=affinity(expression("zone", "In", "a"))).spec.target_node == ""
    assert made().spec.target_node == ""
