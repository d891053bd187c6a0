"""Which states of Pods are recorded, as tables."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.features.persistentpodstate import plan
from app.features.persistentpodstate.plan import Workload, lost, recording, status_of
from app.features.statefulset.types import StatefulSet
from app.kube.clock import rfc3339
from app.kube.objects import Pod, WorkloadOrdinals, WorkloadSpec
from app.kube.objects import Workload as NativeWorkload
from app.pods.ordinals import Slots, reserved_intervals
from tests.features.persistentpodstate.states import HOST, ZONE, Json, read, state
from tests.kit import objects

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NODES: dict[str, dict[str, str]] = {
    "node-a": {ZONE: "z1", HOST: "node-a"},
    "node-b": {ZONE: "z2", HOST: "node-b"},
    "bare": {},
}
BOTH: Json = {"required": [ZONE], "preferred": [(100, [HOST])]}


def pod(
    name: str, node: str = "", *, ready: bool = True, leaving: bool = False, phase: str = "Running", **notes: str
) -> Pod:
    owners = [objects.reference("apps.kruise.io/v1beta1", "StatefulSet", "web")]
    times = {"deletionTimestamp": rfc3339(NOW) if leaving else None}
    metadata = {"namespace": "ns", "ownerReferences": owners, "annotations": notes, **times}
    return objects.pod(name, node=node, ready=ready, phase=phase, **metadata)


def workload(
    replicas: int = 3, start: int = 0, reserved: tuple[int | str, ...] = (), *, leaving: bool = False
) -> Workload:
    slots = Slots.of(replicas, start, reserved_intervals(reserved))
    return Workload("apps.kruise.io/v1beta1", "StatefulSet", "ns", "web", "uid-web", leaving, {}, slots)


def at(node: str, **more: Any) -> Json:
    labels = NODES[node]
    return {"nodeName": node, **({"nodeTopologyLabels": dict(labels)} if labels else {}), **more}


def after(
    known: Mapping[str, Any],
    *pods: Pod,
    of: Workload | None = None,
    gone: tuple[Pod, ...] = (),
    policy: str = "",
    spec: Json = BOTH,
    deleted: bool = False,
) -> Mapping[str, Any]:
    made = read(state(**spec, persistentPodStateRetentionPolicy=policy) if policy else state(**spec))
    target = None if deleted else of or workload()
    return recording(made.spec, known, target, pods, gone, NODES.get).states


KNOWN = {"web-1": at("node-a")}
THREE = {f"web-{n}": at("node-a") for n in range(3)}
ODD = {"web-0": at("node-a"), "odd": at("node-a")}
RUNNING, WENT = pod("web-1", "node-a"), pod("web-1", "node-b")
NOT_READY = pod("web-1", "node-b", ready=False)
COPIED: Json = {**BOTH, "persistentPodAnnotations": [{"key": "ip"}, {"key": "mac"}]}


@pytest.mark.behaviour("PPS-11", "PPS-21", "PPS-22", "PPS-23", "PPS-24", "PPS-26", "PPS-27", "PPS-28", "PPS-46")
@pytest.mark.parametrize(
    ("known", "pods", "given", "expected"),
    [
        pytest.param(KNOWN, [NOT_READY], {}, KNOWN, id="not ready"),
        pytest.param(KNOWN, [pod("web-1")], {}, KNOWN, id="without a node"),
        pytest.param(KNOWN, [pod("web-1", "node-b", phase="Failed")], {}, KNOWN, id="finished"),
        pytest.param(
            KNOWN,
            [RUNNING],
            {"spec": {"required": [HOST]}},
            {"web-1": {"nodeName": "node-a", "nodeTopologyLabels": {HOST: "node-a"}}},
            id="other keys in the spec",
        ),
        pytest.param(
            {},
            [pod("web-1", "bare", ip="10.0.0.1", other="x")],
            {"spec": COPIED},
            {"web-1": {"nodeName": "bare", "annotations": {"ip": "10.0.0.1"}}},
            id="missing labels and annotations are omitted",
        ),
        pytest.param(KNOWN, [NOT_READY], {"of": workload(1)}, KNOWN, id="a Pod beyond the replicas"),
        pytest.param(ODD | KNOWN, [], {"of": workload(3, reserved=(1,))}, ODD, id="a reserved ordinal"),
        pytest.param({}, [pod("web-x7k2p", "node-a")], {}, {}, id="a name that is not reused"),
        pytest.param(THREE, [], {"of": workload(1), "policy": "WhenDeleted"}, THREE, id="kept if scaled in"),
        pytest.param(THREE, [], {"of": workload(0), "policy": "WhenDeleted"}, THREE, id="kept without replicas"),
        pytest.param(THREE, [], {"deleted": True, "policy": "WhenDeleted"}, {}, id="not kept without a workload"),
        pytest.param(KNOWN, [RUNNING], {"deleted": True}, {}, id="no workload"),
        pytest.param(KNOWN, [RUNNING], {"of": workload(leaving=True)}, {}, id="a workload that is being deleted"),
        pytest.param(KNOWN, [RUNNING], {"of": workload(0)}, {}, id="no replicas"),
        pytest.param(THREE, [], {"of": workload(2, start=1)}, {k: THREE[k] for k in ("web-1", "web-2")}, id="a start"),
        pytest.param(KNOWN, [], {"gone": (WENT,)}, {"web-1": at("node-b")}, id="deleted while it was ready"),
        pytest.param({}, [pod("web-1", "node-b", leaving=True)], {}, {"web-1": at("node-b")}, id="being deleted"),
        pytest.param({}, [RUNNING], {"gone": (WENT,)}, KNOWN, id="a successor that is ready"),
        pytest.param(
            {}, [pod("web-1", "node-a", ready=False)], {"gone": (WENT,)}, {"web-1": at("node-b")}, id="not ready yet"
        ),
        pytest.param({}, [], {"gone": (pod("web-7", "node-b"),)}, {}, id="deleted beyond the replicas"),
    ],
)
def test_places_are_recorded_until_their_ordinals_are_gone(
    known: Json, pods: list[Pod], given: Json, expected: Json
) -> None:
    assert after(known, *pods, **given) == expected


@pytest.mark.behaviour("PPS-28")
def test_ordinals_count_from_the_start() -> None:
    native = NativeWorkload(spec=WorkloadSpec(replicas=2, ordinals=WorkloadOrdinals(4)))
    assert list(plan.native(native).slots) == [4, 5]
    body = {"metadata": {"name": "web"}, "spec": {"replicas": 2, "ordinals": {"start": 4}, "reserveOrdinals": ["4-5"]}}
    advanced = StatefulSet.model_validate({**body, "spec": {**body["spec"], "template": {}, "selector": {}}})
    assert list(plan.advanced(advanced, start_ordinal=True).slots) == [6, 7]
    assert list(plan.advanced(advanced, start_ordinal=False).slots) == [0, 1]


@pytest.mark.behaviour("PPS-11")
@pytest.mark.parametrize("spec", [{}, {"replicas": None}, {"replicas": "3"}, {"replicas": True}, None, [1]])
def test_a_listed_workload_without_replicas_wants_no_pods(spec: Any) -> None:
    found = plan.listed({"metadata": {"name": "g", "namespace": "ns"}, "spec": spec}, "game.kruise.io/v1", "Game")
    assert len(found.slots) == 0


@pytest.mark.behaviour("PPS-43")
def test_records_that_no_node_matches_are_lost() -> None:
    spec = read(state(**BOTH)).spec
    states = {"web-0": at("node-a"), "web-1": at("node-b"), "web-2": {"nodeName": "node-x"}}
    left = {name: labels for name, labels in NODES.items() if name != "node-b"}
    assert lost(spec, states, (), left.get, left.values(), 10) == {"web-1": {ZONE: "z2"}}
    # Any node of the zone suffices, and a running Pod is already on one.
    other = {**left, "node-c": {ZONE: "z2"}}
    assert lost(spec, states, (), other.get, other.values(), 10) == {}
    assert lost(spec, states, ("web-1",), left.get, left.values(), 10) == {}
    assert lost(spec, states, (), left.get, left.values(), 0) == {}
    # A preferred topology does not bind a Pod.
    assert lost(read(state(preferred=[(1, [ZONE])])).spec, states, (), left.get, left.values(), 10) == {}


@pytest.mark.behaviour("PPS-29")
def test_an_empty_record_keeps_the_status_small() -> None:
    found = recording(read(state(**BOTH)).spec, {}, workload(), [], [], NODES.get)
    assert status_of(found, 7) == {"observedGeneration": 7}


PODS = st.builds(
    pod,
    st.sampled_from(["web-0", "web-1", "web-2", "web-5", "odd"]),
    st.sampled_from(["", *NODES, "new"]),
    ready=st.booleans(),
    leaving=st.booleans(),
    phase=st.sampled_from(["Running", "Pending", "Failed"]),
)


@pytest.mark.behaviour("PPS-26", "PPS-27", "PPS-29")
@given(st.lists(PODS, max_size=6, unique_by=lambda one: one.metadata.name), st.integers(0, 4), st.booleans())
def test_recording_is_idempotent(pods: list[Pod], replicas: int, keep: bool) -> None:
    policy = "WhenDeleted" if keep else "WhenScaled"
    once = after({"web-1": at("node-b")}, *pods, of=workload(replicas), policy=policy)
    assert after(once, *pods, of=workload(replicas), policy=policy) == once
    if not keep:
        present = {one.metadata.name for one in pods}
        assert all(name in present or int(name[-1]) < replicas for name in once)
