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


@pytest.mark.behaviour("PPS-23")
@pytest.mark.parametrize(
    "one",
    [pod("web-1", "node-b", ready=False), pod("web-1", ""), pod("web-1", "node-b", phase="Failed")],
    ids=["not ready", "without a node", "finished"],
)
def test_a_pod_that_is_not_running_changes_nothing(one: Pod) -> None:
    assert after({"web-1": at("node-a")}, one) == {"web-1": at("node-a")}


@pytest.mark.behaviour("PPS-24")
def test_changed_keys_in_the_spec_update_the_record() -> None:
    assert after({"web-1": at("node-a")}, pod("web-1", "node-a"), spec={"required": [HOST]}) == {
        "web-1": {"nodeName": "node-a", "nodeTopologyLabels": {HOST: "node-a"}}
    }


@pytest.mark.behaviour("PPS-23")
def test_missing_labels_and_annotations_are_omitted() -> None:
    spec = {**BOTH, "persistentPodAnnotations": [{"key": "ip"}, {"key": "mac"}]}
    assert after({}, pod("web-0", "bare", ip="10.0.0.1", other="x"), spec=spec) == {
        "web-0": {"nodeName": "bare", "annotations": {"ip": "10.0.0.1"}}
    }


@pytest.mark.behaviour("PPS-26")
def test_an_existing_pod_keeps_its_record_regardless_of_ordinal() -> None:
    assert set(after({"web-2": at("node-a")}, pod("web-2", "node-a", ready=False), of=workload(2))) == {"web-2"}


@pytest.mark.behaviour("PPS-26")
def test_a_reserved_ordinal_is_forgotten_and_a_name_without_ordinal_is_not() -> None:
    known = {"web-0": at("node-a"), "web-1": at("node-a"), "odd": at("node-a")}
    assert set(after(known, of=workload(3, reserved=(1,)))) == {"web-0", "odd"}


@pytest.mark.behaviour("PPS-11")
def test_names_that_are_not_reused_are_not_recorded() -> None:
    assert after({}, pod("web-x7k2p", "node-a")) == {}


@pytest.mark.behaviour("PPS-27")
def test_with_when_deleted_only_deleting_the_workload_clears_the_record() -> None:
    known = {f"web-{n}": at("node-a") for n in range(3)}
    assert after(known, of=workload(1), policy="WhenDeleted") == known
    assert after(known, of=workload(0), policy="WhenDeleted") == known
    assert after(known, deleted=True, policy="WhenDeleted") == {}


@pytest.mark.behaviour("PPS-21", "PPS-22")
def test_without_a_workload_or_replicas_nothing_is_recorded() -> None:
    known = {"web-0": at("node-a")}
    assert after(known, pod("web-0", "node-a"), deleted=True) == {}
    assert after(known, pod("web-0", "node-a"), of=workload(leaving=True)) == {}
    assert after(known, pod("web-0", "node-a"), of=workload(0)) == {}


@pytest.mark.behaviour("PPS-28")
def test_ordinals_count_from_the_start() -> None:
    known = {"web-4": at("node-a"), "web-5": at("node-a"), "web-0": at("node-a")}
    assert set(after(known, of=workload(2, start=4))) == {"web-4", "web-5"}
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


@pytest.mark.behaviour("PPS-46")
def test_a_pod_that_was_ready_before_deletion_is_recorded() -> None:
    went = pod("web-1", "node-b")
    assert after({"web-1": at("node-a")}, gone=(went,)) == {"web-1": at("node-b")}
    assert after({}, pod("web-1", "node-b", leaving=True)) == {"web-1": at("node-b")}
    # Its successor overwrites the record, but only once it is ready.
    assert after({}, pod("web-1", "node-a"), gone=(went,)) == {"web-1": at("node-a")}
    assert after({}, pod("web-1", "node-a", ready=False), gone=(went,)) == {"web-1": at("node-b")}
    assert after({}, gone=(pod("web-7", "node-b"),)) == {}


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
