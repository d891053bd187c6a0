"""Liveness probes of the node agent: the saved probes, the NodePodProbe, and results that cause a restart."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.api import names
from app.features.podprobe.kind import POD_PROBE_MARKER
from app.features.podprobe.objects import ProbeState
from app.features.podprobe.plan.liveness import (
    OWNER,
    Failure,
    failures,
    is_available,
    pod_entry,
    recreate_request,
    request_name,
    saved_probes,
)
from app.features.podprobe.pod_admission import LivenessStep
from app.kube.objects import Pod
from app.kube.patches import apply
from app.pods.admission_draft import PodDraft
from app.pods.predicates import controller_reference
from tests.admission.writing import review_of
from tests.kit import objects

Json = dict[str, Any]
EXEC = {"exec": {"command": ["/check"]}, "failureThreshold": 3, "periodSeconds": 5}
HTTP = {"httpGet": {"path": "/<live>", "port": "web", "scheme": "HTTP"}, "terminationGracePeriodSeconds": 7}
GRPC = {"grpc": {"port": 9000}}
ELSEWHERE = {"tcpSocket": {"host": "10.0.0.1", "port": 80}}
OWNED = {"apiVersion": "apps.kruise.io/v1beta1", "kind": "CloneSet", "name": "web", "uid": "o", "controller": True}
ASKED = {names.USING_ENHANCED_LIVENESS: "true"}


def body(*probes: Json | None, annotations: Json | None = None, owner: Json | None = OWNED) -> Json:
    """Return a new Pod with containers c0, c1 … and these probes."""
    containers = [
        {"name": f"c{index}", "image": "a", **({"livenessProbe": probe} if probe is not None else {})}
        for index, probe in enumerate(probes)
    ]
    metadata: Json = {"name": "web-1", "namespace": "shop", "annotations": annotations or ASKED}
    if owner is not None:
        metadata["ownerReferences"] = [owner]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": containers}}


def admitted(given: Json) -> Json:
    """Return the Pod after the mutating step."""
    draft = PodDraft(given, "shop")
    LivenessStep()(draft, review_of(POD_PROBE_MARKER, given))
    after: Json = apply(draft.operations, given)
    assert after["metadata"].get("annotations", {}) == dict(draft.annotations)
    return after


@pytest.mark.behaviour("PW-18", "PPM-56")
def test_supported_probes_go_into_the_annotation() -> None:
    after = admitted(body(EXEC, None, HTTP, GRPC))
    assert [one.get("livenessProbe") for one in after["spec"]["containers"]] == [None, None, None, GRPC]
    text = after["metadata"]["annotations"][names.CONTAINER_PROBE_CONTEXT]
    assert json.loads(text) == [{"name": "c0", "livenessProbe": EXEC}, {"name": "c2", "livenessProbe": HTTP}]
    assert text.startswith(
        '[{"name":"c0","livenessProbe":{"exec":{"command":["/check"]},"periodSeconds":5,"failureThreshold":3}}'
    )
    assert "\\u003clive\\u003e" in text


@pytest.mark.behaviour("PW-18", "PPM-56")
@pytest.mark.parametrize(
    "given",
    [
        pytest.param(body(EXEC, annotations={"a": "b"}), id="not asked for"),
        pytest.param(body(EXEC, annotations={names.USING_ENHANCED_LIVENESS: "yes"}), id="not true"),
        pytest.param(body(EXEC, owner=None), id="without an owner"),
        pytest.param(body(EXEC, owner={**OWNED, "apiVersion": "apps/v1"}), id="a native workload's"),
        pytest.param(body(EXEC, owner={**OWNED, "controller": False}), id="not controlled"),
        pytest.param(body(None), id="no probe"),
        pytest.param(body(ELSEWHERE), id="of another host"),
    ],
)
def test_other_probes_are_left_to_the_kubelet(given: Json) -> None:
    assert admitted(given) == given


STARTED = "2026-01-01T00:00:10Z"


def running(name: str, *, started: bool = True, restarts: int = 0, since: str = STARTED) -> Json:
    return {
        "name": name,
        "containerID": f"containerd://{name}-{restarts}",
        "restartCount": restarts,
        "started": started,
        "state": {"running": {"startedAt": since}},
    }


def waiting(name: str) -> Json:
    return {"name": name, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}


def pod(context: Any, *statuses: Json, ready: bool = True, uid: str = "u1", **metadata: Any) -> Pod:
    text = context if isinstance(context, str) else json.dumps(context)
    ports = [{"name": "web", "containerPort": 8080}]
    return objects.pod(
        "web-1",
        uid=uid,
        node="n1",
        ready=ready,
        spec={"containers": [{"name": one["name"], "ports": ports} for one in statuses]},
        status={"podIP": "10.1.0.1", "containerStatuses": list(statuses)},
        **{"annotations": {names.CONTAINER_PROBE_CONTEXT: text}, **metadata},
    )


def saved(**probes: Json) -> list[Json]:
    return [{"name": name, "livenessProbe": probe} for name, probe in probes.items()]


@pytest.mark.behaviour("PPM-50")
def test_a_node_probes_started_containers() -> None:
    context = saved(c0=EXEC, c1=HTTP, c2=EXEC, c3=EXEC)
    statuses = [running("c0"), running("c1", restarts=4), running("c2", started=False), waiting("c3")]
    entry = pod_entry(pod(context, *statuses), ())
    assert [entry[key] for key in ("name", "namespace", "uid", "IP")] == ["web-1", "shop", "u1", "10.1.0.1"]
    probes = {one["name"]: one["probe"] for one in entry["probes"]}
    assert list(probes) == [f"{OWNER}#c0-0", f"{OWNER}#c1-4"]
    assert probes[f"{OWNER}#c1-4"]["httpGet"]["port"] == 8080
    # A probed container that restarts stays; one with a pending startup probe does not.
    again = pod_entry(pod(context, *statuses), (f"{OWNER}#c2-0", f"{OWNER}#c3-0"))
    assert [one["containerName"] for one in again["probes"]] == ["c0", "c1", "c3"]


def failed(container: str, at: str, state: str = "Failed", restarts: int = 0) -> ProbeState:
    return ProbeState(f"{OWNER}#{container}-{restarts}", state, at, at, "no answer")


@pytest.mark.behaviour("PPM-51")
@pytest.mark.parametrize(
    ("status", "state", "counts"),
    [
        pytest.param(running("c0"), failed("c0", "2026-01-01T00:00:11Z"), True, id="since its start"),
        pytest.param(running("c0"), failed("c0", STARTED), False, id="of the second of its start"),
        pytest.param(running("c0"), failed("c0", "2026-01-01T00:00:02Z"), False, id="of the container before"),
        pytest.param(running("c0"), failed("c0", ""), False, id="without a time"),
        pytest.param(running("c0"), failed("c0", "2026-01-01T00:00:11Z", "Succeeded"), False, id="success"),
        pytest.param(running("c0"), failed("c0", "2026-01-01T00:00:11Z", "Unknown"), False, id="not known"),
        pytest.param(running("c0"), failed("c1", "2026-01-01T00:00:11Z"), False, id="of another container"),
        pytest.param(running("c0", restarts=1), failed("c0", "2026-01-01T00:00:11Z"), False, id="of the run before"),
        pytest.param(running("c0", started=False), failed("c0", "2026-01-01T00:00:11Z"), False, id="still starting"),
        pytest.param(waiting("c0"), failed("c0", "2026-01-01T00:00:11Z"), False, id="it does not run"),
    ],
)
def test_a_failure_belongs_to_the_current_container_run(status: Json, state: ProbeState, counts: bool) -> None:
    found = failures(pod(saved(c0=EXEC), status), [state])
    assert found == ([Failure("c0", "containerd://c0-0", 0, "no answer")] if counts else [])


@pytest.mark.behaviour("PPM-52")
def test_a_request_belongs_to_one_run_of_one_container() -> None:
    found = pod(saved(c0=HTTP), running("c0", restarts=2))
    (failure,) = failures(found, [failed("c0", "2026-01-01T00:00:20Z", restarts=2)])
    assert request_name(found, failure) == "liveness-u1-c0-2"
    request = recreate_request(found, failure)
    assert request["metadata"] == {
        "name": "liveness-u1-c0-2",
        "namespace": "shop",
        "ownerReferences": [controller_reference("v1", "Pod", "web-1", "u1")],
    }
    assert request["spec"] == {
        "podName": "web-1",
        "containers": [{"name": "c0"}],
        "strategy": {"failurePolicy": "Fail", "terminationGracePeriodSeconds": 7},
        "activeDeadlineSeconds": 67,
        "ttlSecondsAfterFinished": 300,
    }
    found = msgspec.structs.replace(
        found, spec=msgspec.structs.replace(found.spec, termination_grace_period_seconds=2**63 - 1)
    )
    endless = recreate_request(found, Failure("c0", "containerd://c0-2", 2, ""))
    assert endless["spec"]["activeDeadlineSeconds"] == 2**63 - 1, "the API server accepts no more than 64 bits"


@pytest.mark.behaviour("PPM-53")
def test_pods_that_are_ready_and_stay_so_are_available() -> None:
    pods = [pod("[]", ready=ready, uid=uid) for uid, ready in (("a", True), ("b", True), ("c", False), ("d", True))]
    assert [is_available(one, ()) for one in pods] == [True, True, False, True]
    assert [is_available(one, {"a"}) for one in pods] == [False, True, False, True]
    assert not is_available(pod("[]", deletionTimestamp="2026-01-01T00:00:00Z"), ())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
ENTRIES = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "name": st.just("c0") | JSON,
            "livenessProbe": JSON | st.fixed_dictionaries({}, optional={"exec": JSON}),
        },
    )
    | JSON,
    max_size=4,
)


@pytest.mark.behaviour("PPM-50")
@given(st.text(max_size=20) | ENTRIES.map(json.dumps))
@example("[" * 100_000)
def test_any_annotation_is_tolerated(text: str) -> None:
    for one in saved_probes(pod(text), ("c0", "")):
        assert one.container_name
        assert one.probe.exec is not None or one.probe.http_get is not None or one.probe.tcp_socket is not None
