"""Probes label Pods: our controllers with the sandbox's API server and a simple node agent."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

import orjson
import pytest

from app.features.podprobe import webhooks
from app.features.podprobe.feature import FEATURE
from app.features.podprobe.kind import NODE_POD_PROBE, POD_PROBE_MARKER
from app.features.podprobe.objects import NodePodProbe, ProbeState, _in_use, decode_node_pod_probe
from app.features.podprobe.plan.probes import (
    MAX_BYTES,
    MAX_NAMESPACE_BYTES,
    MAX_SHAPES,
    impossible,
    marks_of,
    pod_probes,
    rendered,
    replace_probes,
)
from app.features.podprobe.reconcile.markers import ROOM_SECONDS
from app.features.podprobe.types import PodProbeMarker
from app.features.podprobe.validation import spec_errors
from app.features.podprobe.webhooks import ServerlessProbesStep, handlers, probed_containers, serverless_annotations
from app.kube.clock import rfc3339
from app.kube.errors import NotFound
from app.kube.jsonvalues import stored_size
from app.kube.objects import Pod
from app.kube.resources import EVENTS, NAMESPACES, NODES, PODS
from app.kube.selectors import Selector, compile_selector
from app.kube.store import Store
from app.manager.gates import parse_gates
from app.pods.admission_draft import PodDraft, PodRefusedError
from tests.admission.recorded import cases
from tests.admission.writing import review_of, written
from tests.kit import cluster, objects
from tests.kit.cluster import scenarios

Json = dict[str, Any]
MARKERS, NODE_PROBES = POD_PROBE_MARKER.resource(), NODE_POD_PROBE.resource()
EXEC = {"exec": {"command": ["/check"]}, "periodSeconds": 5}
INITIALIZED = {"type": "Initialized", "status": "True"}


class World(cluster.World):
    async def node(self, name: str, **labels: str) -> None:
        await self.client.create(NODES, {"metadata": {"name": name, "labels": labels}})
        ready = {"conditions": [{"type": "Ready", "status": "True"}]}
        await self.client.patch(NODES, name, {"status": ready}, subresource="status")

    async def pod(self, name: str, node: str, ip: str = "10.0.0.1", namespace: str = "default", **labels: str) -> Json:
        container = {"name": "main", "image": "i", "ports": [{"name": "web", "containerPort": 8080}]}
        body = {"metadata": {"name": name, "labels": labels}, "spec": {"nodeName": node, "containers": [container]}}
        await self.client.create(PODS, body, namespace)
        status = {"phase": "Running", "podIP": ip, "conditions": [INITIALIZED]}
        return await self.client.patch(PODS, name, {"status": status}, namespace, subresource="status")

    async def marker(self, name: str, *probes: Json, **labels: str) -> Json:
        return await self.create(
            MARKERS, name, {"selector": {"matchLabels": labels or {"app": "x"}}, "probes": list(probes)}
        )

    async def probed(self, node: str) -> dict[str, list[str]]:
        """Return the names of the probes that the node must run, by Pod."""
        found = await self.get(NODE_PROBES, node) or {"spec": {}}
        entries = found["spec"].get("podProbes") or []
        return {one["name"]: [probe["name"] for probe in one["probes"]] for one in entries}

    async def result(
        self, node: str, pod: Json, *, silent: bool = False, after: Json | None = None, **states: str
    ) -> None:
        """Report these results for the node; ``_`` in probe names stands for ``#``. ``silent``: without a message;
        ``after``: a Pod with the same results that is reported first."""
        now = rfc3339(self.client.clock.now())
        entries = [
            {
                "name": name.replace("_", "#"),
                "state": state,
                **({} if silent else {"message": f"said {state}"}),
                "lastProbeTime": now,
                "lastTransitionTime": now,
            }
            for name, state in states.items()
        ]
        found = [one["metadata"] for one in (after, pod) if one is not None]
        statuses = [{key: one[key] for key in ("name", "namespace", "uid")} | {"probeStates": entries} for one in found]
        body = {"status": {"podProbeStatuses": statuses}}
        await self.client.patch(NODE_PROBES, node, body, subresource="status")
        await self.settled(1)

    async def labels(self, name: str = "p1") -> dict[str, str]:
        found: dict[str, str] = (await self.client.get(PODS, name, "default"))["metadata"].get("labels") or {}
        return found

    async def told(self) -> list[str]:
        events = (await self.client.list(EVENTS)).items
        return sorted(
            f"{one['reason']}: {one['message']}" for one in events if one["involvedObject"]["kind"] == "PodProbeMarker"
        )

    async def condition(self, type_: str, name: str = "p1") -> Json | None:
        pod = await self.client.get(PODS, name, "default")
        return next((one for one in pod["status"]["conditions"] if one["type"] == type_), None)

    async def probes(self, node: str, wanted: dict[str, list[str]]) -> None:
        await self.becomes(lambda: self.probed(node), wanted)

    async def settled(self, seconds: float = 3.0) -> None:
        await super().settled(seconds)


def world(gates: str = "") -> AbstractAsyncContextManager[World]:
    return cluster.cluster(World, FEATURE, gates=gates)


in_world = scenarios(world)


def probe(name: str = "ok", **more: Any) -> Json:
    return {"name": name, "containerName": "main", "probe": EXEC, **more}


MARKS = [
    {"state": "Succeeded", "labels": {"healthy": "true"}},
    {"state": "Failed", "labels": {"healthy": "false"}, "annotations": {"why": "probe"}},
]


@pytest.mark.behaviour("PPM-20")
@in_world
async def test_each_ready_node_with_an_agent_has_a_node_pod_probe(there: World) -> None:
    await there.node("n1")
    await there.node("v1", type="virtual-kubelet")
    await there.client.create(NODES, {"metadata": {"name": "n2"}})
    await there.settled()
    names = [one["metadata"]["name"] for one in (await there.client.list(NODE_PROBES)).items]
    assert names == ["n1"]
    await there.client.delete(NODES, "n1")
    await there.settled()
    assert (await there.client.list(NODE_PROBES)).items == []


@pytest.mark.behaviour("PPM-10", "PPM-11", "PPM-12", "PPM-13", "PPM-15", "PPM-22", "PPM-40", "PPM-41", "PPM-42")
@in_world
async def test_nodes_probe_exactly_the_pods_of_each_marker(there: World) -> None:
    # The Pod exists before its node has a NodePodProbe.
    await there.pod("p1", "n1", app="x")
    await there.marker("a", probe(markerPolicy=MARKS))
    await there.marker("ba", probe("late", podConditionType="Late"))
    await there.node("n1")
    await there.node("n2")
    await there.pod("p2", "n2", app="x")
    await there.pod("p3", "n2", app="y")
    await there.pod("p4", "gone", app="x")
    await there.probes("n1", {"p1": ["a#ok", "ba#late"]})
    await there.probes("n2", {"p2": ["a#ok", "ba#late"]})
    await there.settled()
    marker = await there.client.get(MARKERS, "a", "default")
    assert marker["status"] == {"observedGeneration": 1, "matchedPods": 2}
    assert marker["metadata"]["finalizers"] == ["kruise.io/node-pod-probe-cleanup"]
    # An entry that somebody removes, a Pod that no longer matches, a removed probe, a deleted marker, a deleted Pod.
    await there.client.patch(NODE_PROBES, "n2", {"spec": {"podProbes": None}})
    await there.probes("n2", {"p2": ["a#ok", "ba#late"]})
    await there.client.patch(PODS, "p2", {"metadata": {"labels": {"app": "y"}}}, "default")
    await there.probes("n2", {})
    await there.client.patch(MARKERS, "ba", {"spec": {"probes": [probe("new", podConditionType="New")]}}, "default")
    await there.probes("n1", {"p1": ["a#ok", "ba#new"]})
    await there.client.delete(MARKERS, "a", "default")
    await there.probes("n1", {"p1": ["ba#new"]})
    await there.settled()
    with pytest.raises(NotFound):
        await there.client.get(MARKERS, "a", "default")
    await there.client.delete(PODS, "p1", "default", grace_period_seconds=0)
    await there.probes("n1", {})
    await there.becomes(lambda: there.status_of(MARKERS, "ba"), {"observedGeneration": 2, "matchedPods": 0})
    left = [(await there.client.get(NODE_PROBES, name))["spec"] for name in ("n1", "n2")]
    assert left == [{}, {}], "as in OpenKruise no empty list is left"


@pytest.mark.behaviour("PPM-41")
@in_world
async def test_a_deleted_marker_leaves_no_probes_that_the_cache_does_not_reflect_yet(there: World) -> None:
    await there.node("n1")
    await there.pod("p1", "n1", app="x")
    await there.settled()
    there.manager.holds_back = lambda request: "/nodepodprobes" in request.path
    await there.marker("a", probe())
    await there.probes("n1", {"p1": ["a#ok"]})
    await there.client.delete(MARKERS, "a", "default")
    await there.becomes(lambda: there.get(MARKERS, "a"), None)
    assert await there.probed("n1") == {}


@pytest.mark.behaviour("PPM-14", "PPM-43")
@in_world
async def test_named_ports_and_schemes_are_resolved_for_the_node(there: World) -> None:
    await there.node("n1")
    await there.pod("p1", "n1", app="x")
    wanted = {
        "web": {"httpGet": {"path": "/", "port": "web"}},
        "none": {"tcpSocket": {"port": "nope"}},
        "digits": {"tcpSocket": {"port": "90"}},
    }
    await there.marker("a", *(probe(name, markerPolicy=MARKS, probe=each) for name, each in wanted.items()))
    await there.probes("n1", {"p1": ["a#web", "a#digits"]})
    (entry,) = (await there.client.get(NODE_PROBES, "n1"))["spec"]["podProbes"]
    assert entry["IP"] == "10.0.0.1"
    assert entry["probes"][0]["probe"]["httpGet"] == {"path": "/", "port": 8080, "scheme": "HTTP"}
    assert entry["probes"][1]["probe"]["tcpSocket"] == {"port": 90}
    await there.client.patch(PODS, "p1", {"status": {"podIP": "10.0.0.9"}}, "default", subresource="status")

    async def address() -> str:
        (entry,) = (await there.client.get(NODE_PROBES, "n1"))["spec"]["podProbes"]
        return str(entry["IP"])

    await there.becomes(address, "10.0.0.9")


@pytest.mark.behaviour("PPM-21", "PPM-23", "PPM-24", "PPM-25", "PPM-26", "PPM-27", "PPM-45")
@in_world
async def test_labels_annotations_and_the_condition_follow_the_result(there: World) -> None:
    await there.node("n1")
    pod = await there.pod("p1", "n1", app="x")
    await there.marker("a", probe(markerPolicy=MARKS, podConditionType="game.io/healthy"))
    await there.probes("n1", {"p1": ["a#ok"]})
    for state, label, status in (("Succeeded", "true", "True"), ("Failed", "false", "False")):
        await there.result("n1", pod, a_ok=state)
        assert (await there.labels())["healthy"] == label
        condition = await there.condition("game.io/healthy")
        assert (condition["status"], condition["message"]) == (status, f"said {state}")
    found = await there.client.get(PODS, "p1", "default")
    assert found["metadata"]["annotations"] == {"why": "probe"}
    await there.result("n1", pod, a_ok="Unknown")
    assert await there.labels() == {"app": "x"}
    condition = await there.condition("game.io/healthy")
    assert condition["status"] == "False"
    await there.result("n1", pod, silent=True, a_ok="Failed")
    condition = await there.condition("game.io/healthy")
    assert condition is not None
    assert "message" not in condition, "what a probe said before does not stay, and nothing is not shown"
    # Labels and conditions stay when the marker is deleted.
    await there.result("n1", pod, a_ok="Succeeded")
    assert (await there.labels())["healthy"] == "true"
    policy = [{"state": "Succeeded", "labels": {"healthy": "very"}}]
    changed = [probe(markerPolicy=policy, podConditionType="game.io/healthy")]
    await there.client.patch(MARKERS, "a", {"spec": {"probes": changed}}, "default")
    await there.settled(1)
    await there.client.delete(MARKERS, "a", "default")
    await there.settled()
    assert (await there.labels())["healthy"] == "very"


@pytest.mark.behaviour("PPM-46")
def test_equal_probes_of_many_nodes_take_memory_once() -> None:
    """A namespace may have 192 KiB of them on each node."""

    def decoded(node: str, text: str) -> NodePodProbe:
        one = {"name": "a#p", "containerName": "main", "probe": {"exec": {"command": [text]}}}
        pods = [{"name": node, "namespace": "shop", "uid": node, "IP": "", "probes": [one, {**one, "name": "a#q"}]}]
        return decode_node_pod_probe(orjson.dumps({"metadata": {"name": node}, "spec": {"podProbes": pods}}))

    found = [decoded(node, text) for node, text in (("n1", "x"), ("n2", "x"), ("n3", "y"))]
    same, again, other = ([one.probe for one in node.spec.pod_probes[0].probes] for node in found)
    assert all(one is same[0] for one in (*same, *again))
    assert same[0] == {"exec": {"command": ["x"]}} != other[0]
    kept = len(_in_use)
    del found, same, again, other
    assert len(_in_use) == kept - 2, "a probe that no node has any more takes memory"


@pytest.mark.behaviour("PPM-22", "PPM-23")
@in_world
async def test_results_mark_only_their_own_pods_and_nodes(there: World) -> None:
    await there.node("n1")
    await there.node("n2")
    pod = await there.pod("p1", "n1", app="x")
    await there.marker("a", probe(markerPolicy=MARKS))
    await there.probes("n1", {"p1": ["a#ok"]})
    other = await there.pod("p2", "n2", app="x", tier="2")
    await there.probes("n2", {"p2": ["a#ok"]})
    # Another node reports a result before those of its own Pods, and this one reports an unknown probe.
    await there.result("n2", other, after=pod, a_ok="Succeeded")
    await there.becomes(lambda: there.labels("p2"), {"app": "x", "tier": "2", "healthy": "true"})
    await there.result("n1", pod, a_other="Succeeded")
    assert await there.labels() == {"app": "x"}
    await there.client.delete(PODS, "p1", "default", grace_period_seconds=0)
    await there.pod("p1", "n1", app="x")
    await there.result("n1", pod, a_ok="Succeeded")
    assert await there.labels() == {"app": "x"}


@pytest.mark.behaviour("PPM-31")
@in_world("EnablePodProbeMarkerOnServerless=true")
async def test_conditions_of_serverless_pods_mark_them(there: World) -> None:
    await there.node("v1")
    await there.pod("p1", "v1", app="x")
    await there.marker("a", probe(markerPolicy=MARKS, podConditionType="healthy"))
    await there.pod_status("p1", conditions=[INITIALIZED, {"type": "healthy", "status": "True"}])
    await there.settled(1)
    await there.client.patch(NODES, "v1", {"metadata": {"labels": {"type": "virtual-kubelet"}}})
    await there.settled(1)
    assert (await there.labels())["healthy"] == "true"
    marker = await there.client.get(MARKERS, "a", "default")
    assert marker["status"]["matchedPods"] == 1


@pytest.mark.behaviour("PPM-31")
@in_world("EnablePodProbeMarkerOnServerless=true")
async def test_markers_that_contradict_each_other_settle(there: World) -> None:
    await there.node("v1", type="virtual-kubelet")
    await there.pod("p1", "v1", app="x")
    for name in ("a", "b"):
        policy = [{"state": "Succeeded", "labels": {"by": name}}]
        await there.marker(name, probe(podConditionType="healthy", markerPolicy=policy))
    await there.pod_status("p1", conditions=[INITIALIZED, {"type": "healthy", "status": "True"}])
    await there.settled()
    await there.writes_nothing(60)
    assert "by" in await there.labels()


@pytest.mark.behaviour("PPM-11", "PPM-15")
@in_world
async def test_serverless_pods_count_even_if_they_are_not_marked(there: World) -> None:
    await there.node("v1", type="virtual-kubelet")
    await there.pod("p1", "v1", app="x")
    await there.marker("a", probe(podConditionType="healthy"))
    await there.becomes(lambda: there.status_of(MARKERS, "a"), {"observedGeneration": 1, "matchedPods": 1})


def marker_of(name: str, *probes: Json) -> PodProbeMarker:
    spec = {"selector": {"matchLabels": {"app": "x"}}, "probes": list(probes)}
    return PodProbeMarker.model_validate({"metadata": {"name": name, "namespace": "default"}, "spec": spec})


@pytest.mark.behaviour("PPM-24")
def test_the_first_result_of_a_condition_counts() -> None:
    markers = {name: marker_of(name, probe(podConditionType="Same")) for name in ("a", "b")}
    states = [ProbeState("b#ok", "Failed"), ProbeState("a#ok", "Succeeded"), ProbeState("c#ok", "Succeeded")]
    marks = marks_of(states, frozenset({"a#ok", "b#ok", "c#ok"}), markers.get)
    assert [one["status"] for one in marks.conditions.values()] == ["False"]


@pytest.mark.behaviour("PPM-24")
def test_many_results_do_not_search_the_conditions_of_the_pod_each(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[str] = []
    monkeypatch.setattr(Pod, "condition", lambda _, type_: searched.append(type_))
    kinds = [f"example.com/{number}" for number in range(1000)]
    probes = [probe(f"p{number}", podConditionType=kind) for number, kind in enumerate(kinds)]
    names = [f"a#p{number}" for number in range(1000)]
    states = [ProbeState(name, "Succeeded") for name in names]
    marks = marks_of(states, frozenset(names), {"a": marker_of("a", *probes)}.get)
    marked = objects.pod(conditions=[{"type": kind, "status": "True", "message": ""} for kind in kinds[1:]])
    assert [one["type"] for one in marks.condition_patch(marked)] == kinds[:1]
    assert not searched


@pytest.mark.behaviour("PPM-23")
def test_a_marker_is_looked_up_once_for_all_its_results() -> None:
    """A Pod may have hundreds of results, and each change of one leads to all of its node."""
    asked: list[str] = []
    marker = marker_of("a", *(probe(name=f"p{number}", podConditionType=f"c/p{number}") for number in range(20)))

    def found(name: str) -> PodProbeMarker:
        asked.append(name)
        return marker

    names = [f"a#p{number}" for number in range(20)]
    marks = marks_of([ProbeState(name, "Succeeded") for name in names], frozenset(names), found)
    assert len(marks.conditions) == 20
    assert asked == ["a"]


@pytest.mark.behaviour("PPM-40")
def test_markers_with_similar_names_do_not_interfere() -> None:
    ours = {"namespace": "default", "uid": "u", "probes": [{"name": "a#x"}, {"name": "ba#x"}]}
    theirs = {"namespace": "other", "uid": "v", "probes": [{"name": "a#x"}]}
    found: Json = {"podProbes": [ours, theirs]}
    replace_probes(found, "default", "a", {})
    assert [one["probes"] for one in found["podProbes"]] == [[{"name": "ba#x"}], [{"name": "a#x"}]]


def entry(uid: str, namespace: str, size: int) -> Json:
    probes = [{"name": "big#p", "containerName": "main", "probe": {"exec": {"command": ["x" * size]}}}]
    return {"name": f"pod-{uid}", "namespace": namespace, "uid": uid, "IP": "", "probes": probes}


@pytest.mark.behaviour("PPM-46")
def test_one_namespace_cannot_fill_a_shared_object() -> None:
    others = entry("theirs", "shop", 100)
    found: Json = {"podProbes": [others]}
    assert replace_probes(found, "tenant", "big", {"a": entry("a", "tenant", 1_400_000)}) == ["pod-a"]
    assert found["podProbes"] == [others]
    escaped = entry("e", "tenant", 0)
    escaped["probes"][0]["probe"]["exec"]["command"] = ["<" * (MAX_NAMESPACE_BYTES // 6)]
    assert replace_probes(found, "tenant", "big", {"e": escaped}) == ["pod-e"], "the API server stores < as \\u003c"
    third = MAX_NAMESPACE_BYTES // 3
    wanted = {uid: entry(uid, "tenant", third) for uid in "abc"}
    assert replace_probes(found, "tenant", "big", wanted) == ["pod-c"]
    assert [one["uid"] for one in found["podProbes"]] == ["theirs", "a", "b"]
    # Probes of other markers count against the limit, the marker's own former ones do not.
    assert replace_probes(found, "tenant", "big", wanted) == ["pod-c"]
    more = {**entry("d", "tenant", third), "probes": [{**entry("d", "tenant", third)["probes"][0], "name": "more#p"}]}
    assert replace_probes(found, "tenant", "more", {"d": more}) == ["pod-d"]
    assert replace_probes(found, "shop", "big", {"theirs": others}) == []


@pytest.mark.behaviour("PPM-46")
@pytest.mark.parametrize("together", [False, True])
def test_many_namespaces_leave_room_for_another(together: bool) -> None:
    """A tenant may have many namespaces, with a Pod of each on every node."""
    wanted: dict[str, dict[str, Json]] = {}
    for namespace in [f"tenant-{number}" for number in range(20)]:
        uids = [f"{namespace}-{number}" for number in range(200)]
        wanted[namespace] = {uid: entry(uid, namespace, 1_000) for uid in uids}
    found: Json = {"podProbes": [entry("first", "first", 40_000)]}
    if together:
        every = {uid: one for pods in wanted.values() for uid, one in pods.items()}
        replace_probes(found, None, "big", {"first": found["podProbes"][0], **every})
    else:
        for namespace, pods in wanted.items():
            assert replace_probes(found, namespace, "big", pods) != []
    assert stored_size(found["podProbes"]) < MAX_BYTES
    before = json.dumps(found)
    # Probes that fitted before are kept, and there is room for those of a new namespace.
    assert replace_probes(found, "first", "big", {"first": entry("first", "first", 40_000)}) == []
    assert replace_probes(found, "tenant-0", "big", wanted["tenant-0"]) != []
    assert json.dumps(found) == before
    assert replace_probes(found, "shop", "big", {"shop": entry("shop", "shop", 10)}) == []


@pytest.mark.behaviour("PPM-46")
def test_only_probes_that_may_fit_on_a_node_are_built() -> None:
    """A marker may have hundreds of probes, and a node hundreds of its Pods."""
    big = {"exec": {"command": ["x" * (MAX_NAMESPACE_BYTES // 3)]}}
    probes = [rendered(one) for one in marker_of("big", probe(probe=big)).spec.probes]
    pods = [objects.pod(f"p{number}", uid=f"u{number}") for number in range(10)]
    found, left = pod_probes("big", probes, pods)
    assert (list(found), left) == (["u0", "u1", "u2"], 7)
    found, left = pod_probes("big", probes, pods[:3])
    assert (len(found), left) == (3, 0)


@pytest.mark.behaviour("PPM-47")
def test_pods_are_examined_once_for_each_set_of_containers() -> None:
    probes = [rendered(one) for one in marker_of("m", probe(containerName="absent")).spec.probes]
    alike = [objects.pod(f"p{number}") for number in range(1000)]
    (said,) = impossible(probes, alike).values()
    assert "in 1000 Pods, such as p0" in said
    different = [objects.pod(f"p{number}", containers={f"c{number}": "nginx"}) for number in range(MAX_SHAPES + 10)]
    (said,) = impossible(probes, different).values()
    assert f"in {MAX_SHAPES} Pods, such as p0" in said
    # Each of hundreds of probes has its own message.
    large = objects.pod(containers={f"container-{number}": "nginx" for number in range(1000)})
    (said,) = impossible(probes, [large]).values()
    assert len(said) < 1000


@pytest.mark.behaviour("PPM-46")
@in_world
async def test_pods_without_room_are_reported_once_and_probed_later(there: World) -> None:
    await there.node("n1")
    await there.settled()
    await there.client.create(NAMESPACES, {"metadata": {"name": "shop"}})
    theirs = await there.pod("pod-theirs", "n1", namespace="shop")
    found = {**entry("theirs", "shop", 250_000), "uid": theirs["metadata"]["uid"]}
    await there.client.patch(NODE_PROBES, "n1", {"spec": {"podProbes": [found]}})
    for number in range(2):
        await there.pod(f"p{number}", "n1", app="x")
    big = {"exec": {"command": ["x" * (MAX_NAMESPACE_BYTES // 3)]}, "periodSeconds": 5}
    await there.marker("big", probe(probe=big, podConditionType="example.com/big"))
    await there.probes("n1", {"pod-theirs": ["big#p"], "p0": ["big#ok"]})
    await there.settled()
    sent = len(there.manager.requests)
    await there.client.patch(PODS, "p0", {"metadata": {"labels": {"seen": "1"}}}, "default")
    await there.settled()
    assert [one for one in there.manager.requests[sent:] if "/nodepodprobes/" in one.path] == []
    assert await there.told() == [
        "NotProbed: node n1: no room for the probes of 1 Pods, such as p1: of a node's 393216 bytes for probes, one "
        "namespace may use half of what other namespaces leave free; use shorter or fewer probes"
    ]
    await there.client.delete(PODS, "pod-theirs", "shop", grace_period_seconds=0)
    await there.settled(ROOM_SECONDS + 5)
    await there.probes("n1", {"p0": ["big#ok"], "p1": ["big#ok"]})


@pytest.mark.behaviour("PPM-14", "PPM-47")
@in_world
async def test_a_missing_container_or_port_is_reported_once(there: World) -> None:
    await there.node("n1")
    await there.pod("p1", "n1", app="x")
    wanted = [
        probe("typo", containerName="mian", podConditionType="example.com/a"),
        probe("named", probe={"tcpSocket": {"port": "wed"}}, podConditionType="example.com/b"),
        probe("right", probe={"tcpSocket": {"port": "web"}}, podConditionType="example.com/c"),
    ]
    await there.marker("m", *wanted)
    await there.probes("n1", {"p1": ["m#typo", "m#right"]})
    await there.settled()
    first = [
        "NotProbed: probe named: no such port in container main in Pod p1; it has: web",
        "NotProbed: probe typo: no container mian in Pod p1; it has: main",
    ]
    assert await there.told() == first
    await there.pod("p2", "n1", app="x")
    await there.settled()
    assert await there.told() == first
    wanted[0]["containerName"] = "mean"
    await there.client.patch(MARKERS, "m", {"spec": {"probes": wanted}}, "default")
    await there.settled()
    assert [one for one in await there.told() if one not in first] == [
        # A change of the marker repeats the events.
        "NotProbed: probe named: no such port in container main in 2 Pods, such as p1; it has: web",
        "NotProbed: probe typo: no container mean in 2 Pods, such as p1; it has: main",
    ]


@pytest.mark.behaviour("PPM-44")
@pytest.mark.parametrize("condition", ["Ready", "DisruptionTarget", "PodResizePending", "SidecarsMissing"])
def test_foreign_conditions_are_not_written(condition: str) -> None:
    stored = marker_of("a", probe(podConditionType=condition))
    assert [str(error) for error in spec_errors(stored.spec.to_dict())] != []
    marks = marks_of([ProbeState("a#ok", "Failed")], frozenset({"a#ok"}), {"a": stored}.get)
    assert marks.conditions == {}
    # As the name of a probe, only the names that OpenKruise rejects are rejected.
    named = marker_of("a", probe(condition, markerPolicy=MARKS))
    assert bool(spec_errors(named.spec.to_dict())) is (condition == "Ready")


def step_of(*markers: PodProbeMarker) -> tuple[ServerlessProbesStep, Store[PodProbeMarker]]:
    store: Store[PodProbeMarker] = Store(indexes={"namespace": lambda one: [one.metadata.namespace]})
    store.replace(markers)
    return ServerlessProbesStep(store), store


def admitted(step: ServerlessProbesStep, init: Sequence[Json] = (), **metadata: Any) -> PodDraft:
    """Return a new Pod after the step."""
    body = {
        "apiVersion": "v1",
        "metadata": {"name": "p", "namespace": "default", "labels": {"app": "x"}, **metadata},
        "spec": {"containers": [{"name": "main"}], "initContainers": list(init)},
    }
    draft = PodDraft(body, "default")
    step(draft, review_of(POD_PROBE_MARKER, body))
    return draft


@pytest.mark.behaviour("PPM-30", "PW-19")
def test_new_pods_carry_probes_for_a_provider() -> None:
    probes = [probe(podConditionType="C", markerPolicy=MARKS), probe("marks", markerPolicy=MARKS)]
    step, _ = step_of(
        marker_of("b", *probes),
        marker_of("a", probe(podConditionType="D", containerName="side")),
        marker_of("c", probe(podConditionType="E", containerName="gone")),
    )
    annotations = admitted(step, [{"name": "side", "restartPolicy": "Always"}, {"name": "gone"}]).annotations
    assert annotations["kruise.io/podprobemarker-list"] == "a,b"
    found = json.loads(annotations["kruise.io/podprobe"])
    assert [(one["containerName"], one["podConditionType"]) for one in found] == [("side", "D"), ("main", "C")]
    assert all("markerPolicy" not in one for one in found)
    annotations = admitted(step, labels={}, annotations={"kruise.io/podprobemarker-list": "b,gone"}).annotations
    assert [one["podConditionType"] for one in json.loads(annotations["kruise.io/podprobe"])] == ["C"]
    assert annotations["kruise.io/podprobemarker-list"] == "b"
    assert serverless_annotations([], probed_containers([{"name": "main"}], ())) == {}
    namesakes = [marker_of(name, probe(podConditionType=name)) for name in "ab"]
    assert serverless_annotations(namesakes, frozenset({"main"}))["kruise.io/podprobemarker-list"] == "a"


@pytest.mark.behaviour("PPM-30")
def test_the_provider_annotation_matches_go() -> None:
    request = {"scheme": "HTTP", "path": "/a?b&c", "port": 80, "httpHeaders": [{"name": "X", "value": "<1>"}]}
    marker = marker_of("m", {**probe(podConditionType="C"), "probe": {"periodSeconds": 2, "httpGet": request}})
    found = serverless_annotations([marker], frozenset({"main"}))["kruise.io/podprobe"]
    name = marker.spec.probes[0].name
    assert found == (
        f'[{{"name":"{name}","containerName":"main","probe":{{"httpGet":{{"path":"/a?b\\u0026c","port":80,'
        '"scheme":"HTTP","httpHeaders":[{"name":"X","value":"\\u003c1\\u003e"}]},"periodSeconds":2},'
        '"podConditionType":"C"}]'
    )


@pytest.mark.behaviour("PPM-30")
def test_an_unsupported_provider_probe_blocks_no_pod() -> None:
    large = {**probe("large", podConditionType="C"), "probe": {**EXEC, "timeoutSeconds": 2**31}}
    marker = marker_of("m", large, probe("ok", podConditionType="C"))
    found = serverless_annotations([marker], frozenset({"main"}))
    assert [one["name"] for one in json.loads(found["kruise.io/podprobe"])] == ["ok"]
    assert serverless_annotations([marker_of("m", large)], frozenset({"main"})) == {}


@pytest.mark.behaviour("PPM-30")
def test_a_pod_of_many_markers_is_refused_early() -> None:
    step, store = step_of()
    for number in range(10):
        probes = [probe(f"{number}-{index}", podConditionType=f"c/{number}-{index}") for index in range(256)]
        store.put(marker_of(f"m{number}", *({**one, "probe": {"exec": {"command": ["x" * 1_000]}}} for one in probes)))
    metadata = {"name": "p", "namespace": "default", "labels": {"app": "x"}}
    body = {"apiVersion": "v1", "metadata": metadata, "spec": {"containers": [{"name": "main"}]}}
    draft = PodDraft(body, "default")
    with pytest.raises(PodRefusedError, match=r"^Pod default/p: metadata.annotations: Too long: "):
        step(draft, review_of(POD_PROBE_MARKER, body))
    assert len(draft.annotations["kruise.io/podprobe"]) < 600_000


@pytest.mark.behaviour("PPM-30")
def test_markers_cost_each_new_pod_a_comparison_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A namespace may have thousands of markers with 256 requirements each."""
    compiled = 0

    def counting(selector: Json) -> Selector:
        nonlocal compiled
        compiled += 1
        return compile_selector(selector)

    monkeypatch.setattr(webhooks, "compile_selector", counting)
    markers = [marker_of(f"m{number}", probe(podConditionType="C")) for number in range(10)]
    step, store = step_of(*markers)
    for _ in range(3):
        admitted(step)
    assert compiled == 10
    other = {"selector": {"matchLabels": {"app": "y"}}}
    store.replace([one.model_copy(update={"spec": one.spec.model_copy(update=other)}) for one in markers])
    assert admitted(step).annotations == {}


def only_without_scheme(message: str) -> bool:
    """Return whether OpenKruise only rejected a missing scheme, which defaults to HTTP here."""
    return 'request: spec.probe.httpGet.scheme: Unsupported value: ""' in message


def words(message: str) -> str:
    """Return OpenKruise's message without the field.

    OpenKruise names field paths that do not exist, and lists invalid values as supported in one message.
    """
    said = message.partition("denied the request: ")[2]
    ours = said.startswith("[") or "v1alpha1.PodContainerProbe{" in said or "must be 'True' or 'False'" in said
    if ours or only_without_scheme(message):
        return ""
    return re.split(r"(?:Required value|Invalid value: .*?): (?=[a-z])", said)[-1]


@pytest.mark.behaviour("PPM-1", "PPM-2", "PPM-3", "PPM-4", "PPM-43")
def test_recorded_markers_get_the_recorded_answers() -> None:
    found = handlers(parse_gates("").enabled)
    for case in cases("podprobemarker"):
        made = written(POD_PROBE_MARKER, found, case["manifest"])
        assert (made.obj is not None) is (case["ok"] or only_without_scheme(case["message"])), (
            case["manifest"],
            made.message,
        )
        assert words(case["message"]) in made.message
        if case["ok"]:
            assert made.obj is not None
            assert made.obj["spec"] == case["created"]["spec"], "nothing is filled in"
        update = case.get("update")
        if not case["ok"] or not update or "modified" in update["message"] or "not found" in update["message"]:
            continue
        changed = written(POD_PROBE_MARKER, found, {**case["manifest"], "spec": update["manifest"]}, made.obj)
        allowed = update["ok"] or only_without_scheme(update["message"])
        assert (changed.obj is not None) is allowed, (case["manifest"], update, changed.message)
        assert words(update["message"]) in changed.message


@pytest.mark.behaviour("IMG-2")
@pytest.mark.parametrize(
    ("gates", "missing"),
    [("PodProbeMarkerGate=false", "PodProbeMarkerGate"), ("KruiseDaemon=false", "PodProbeMarkerGate"), ("", "")],
)
def test_a_disabled_gate_is_named(gates: str, missing: str) -> None:
    accepted = next(case["manifest"] for case in cases("podprobemarker") if case["ok"])
    made = written(POD_PROBE_MARKER, handlers(parse_gates(gates).enabled), accepted)
    if not missing:
        assert made.message == ""
        return
    assert made.message.startswith(f"feature-gate {missing} is not enabled; start the manager with --feature-gates=")
    way = made.message.partition("--feature-gates=")[2].partition(" ")[0]
    assert written(POD_PROBE_MARKER, handlers(parse_gates(f"{gates},{way}").enabled), accepted).message == ""
