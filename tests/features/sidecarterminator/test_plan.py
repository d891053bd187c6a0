"""When sidecars of jobs are stopped, and how."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.api import names
from app.features.sidecarterminator.plan import (
    NOTHING,
    JobPod,
    Kind,
    Step,
    decode_job_pod,
    may_be_due,
    plan,
    recreate_request,
    sidecar,
)
from app.kube.objects import Pod, decode_pod
from tests.kit.objects import reference

Json = dict[str, Any]

TRUE = {names.ENV_TERMINATE_SIDECAR: "true"}
IGNORED = {**TRUE, names.ENV_TERMINATE_SIDECAR_IGNORE_EXIT_CODE: "true"}
BY_IMAGE = {names.ENV_TERMINATE_SIDECAR_WITH_IMAGE: "exit:1"}
REQUEST = "sidecar-termination-u1"
LAST = "sidecar-termination-u1-ignore-exit-code"


def pod_json(
    containers: list[tuple[Json, int | None]], *, policy: str = "Never", phase: str = "Running", **more: Any
) -> Json:
    """c0, c1 … with this env each; the exit code, or None while it runs."""
    spec = [
        {"name": f"c{index}", "image": "busybox:1", "env": [{"name": name, "value": env[name]} for name in env]}
        for index, (env, _) in enumerate(containers)
    ]
    statuses = [
        {"name": f"c{index}", "state": {"running": {}} if code is None else {"terminated": {"exitCode": code}}}
        for index, (_, code) in enumerate(containers)
    ]
    return {
        "metadata": {"name": "job-1", "namespace": "shop", "uid": "u1", **more.pop("metadata", {})},
        "spec": {"nodeName": "n1", "restartPolicy": policy, "containers": spec},
        "status": {"phase": phase, "containerStatuses": more.pop("statuses", statuses), **more},
    }


def job_pod(body: Json) -> JobPod:
    return decode_job_pod(msgspec.json.encode(body))


def pod(body: Json) -> Pod:
    return decode_pod(msgspec.json.encode(body))


MARK, IMAGE, IGNORE = (
    names.ENV_TERMINATE_SIDECAR,
    names.ENV_TERMINATE_SIDECAR_WITH_IMAGE,
    names.ENV_TERMINATE_SIDECAR_IGNORE_EXIT_CODE,
)


@pytest.mark.behaviour("SS-111")
@pytest.mark.parametrize(
    ("entries", "kind", "image"),
    [
        ([], Kind.MAIN, ""),
        ([(MARK, "true")], Kind.SIDECAR, ""),
        ([(MARK, "TRUE")], Kind.SIDECAR, ""),
        ([(MARK, "yes")], Kind.MAIN, ""),
        ([(MARK, "true"), (MARK, "false")], Kind.MAIN, ""),
        ([(IMAGE, "")], Kind.MAIN, ""),
        ([(IMAGE, "exit:1")], Kind.BY_IMAGE, "exit:1"),
        ([(MARK, "true"), (IMAGE, "exit:1")], Kind.SIDECAR, "exit:1"),
        ([(IGNORE, "true")], Kind.MAIN, ""),
        ([(MARK, "true"), (IGNORE, "true")], Kind.IGNORED, ""),
    ],
)
def test_env_marks_sidecar_containers(entries: list[tuple[str, str]], kind: Kind, image: str) -> None:
    env = [{"name": name, "value": value} for name, value in entries]
    found = sidecar(job_pod({"spec": {"containers": [{"name": "c", "env": env}]}}).spec.containers[0])
    assert (found.kind, found.image) == (kind, image)


#: The main container has succeeded, and its sidecar runs.
DONE: list[tuple[Json, int | None]] = [({}, 0), (TRUE, None)]
STOP = Step(stop=("c1",), request=REQUEST)
ONE_STATUS = {"statuses": [{"name": "c0", "state": {"terminated": {"exitCode": 0}}}]}
DUE = [
    pytest.param(DONE, {}, STOP, id="never, main succeeded"),
    pytest.param([({}, 3), (TRUE, None)], {}, STOP, id="never, main failed"),
    pytest.param([({}, 0), ({}, None), (TRUE, None)], {}, NOTHING, id="a container without env is a main one"),
    pytest.param([({}, 0), (TRUE, 0)], {}, NOTHING, id="all sidecars have ended"),
    pytest.param([({}, 0), ({}, 0)], {}, NOTHING, id="no sidecars"),
    pytest.param([(TRUE, 0), (TRUE, None)], {}, NOTHING, id="no main container"),
    pytest.param(DONE, {"policy": "Always"}, NOTHING, id="no job"),
    pytest.param(DONE, {"phase": "Pending"}, NOTHING, id="pending"),
    pytest.param([({}, 3), (TRUE, None)], {"policy": "OnFailure"}, NOTHING, id="on failure, main is restarted"),
    pytest.param(DONE, {"policy": "OnFailure"}, STOP, id="on failure, done"),
    pytest.param(DONE, {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}, NOTHING, id="deleting"),
    pytest.param(DONE, ONE_STATUS, NOTHING, id="a status is missing"),
    pytest.param(DONE, {"phase": "Failed"}, NOTHING, id="a failed Pod"),
]


@pytest.mark.behaviour("SS-112", "SS-113")
@pytest.mark.parametrize(("containers", "more", "due"), DUE)
def test_sidecars_are_stopped_after_the_main_containers_end(
    containers: list[tuple[Json, int | None]], more: Json, due: Step
) -> None:
    body = pod_json(containers, **dict(more))
    assert plan(job_pod(body), virtual=False) == due
    if due != NOTHING:
        # The cached Pod suffices to decide whether to read it.
        assert may_be_due(pod(body))


@pytest.mark.behaviour("SS-114")
@pytest.mark.parametrize(
    ("containers", "due"),
    [
        pytest.param([({}, 0), (BY_IMAGE, None)], Step(images={"c1": "exit:1"}), id="by image"),
        pytest.param([({}, 0), ({**TRUE, **BY_IMAGE}, None)], Step(images={"c1": "exit:1"}), id="both"),
        pytest.param(DONE, Step(unreachable=("c1",)), id="no image"),
        pytest.param([({}, 0), (BY_IMAGE, 0), (BY_IMAGE, None)], Step(images={"c2": "exit:1"}), id="one has ended"),
        pytest.param([({}, 0), ({IMAGE: "busybox:1"}, None)], NOTHING, id="the image is already set"),
    ],
)
def test_on_a_virtual_node_a_changed_image_ends_sidecars(containers: list[tuple[Json, int | None]], due: Step) -> None:
    assert plan(job_pod(pod_json(containers)), virtual=True) == due


@pytest.mark.behaviour("SS-114")
def test_on_an_ordinary_node_a_changed_image_has_no_effect() -> None:
    assert plan(job_pod(pod_json([({}, 0), (BY_IMAGE, None)])), virtual=False) == Step(unreachable=("c1",))


OURS = {"phase": "Succeeded", "conditions": [{"type": "SidecarTerminated", "status": "True"}]}


@pytest.mark.behaviour("SS-115")
@pytest.mark.parametrize(
    ("containers", "more", "due"),
    [
        pytest.param([({}, 0), (TRUE, None), (IGNORED, None)], {}, STOP, id="ordinary ones first"),
        pytest.param(
            [({}, 0), (TRUE, 143), (IGNORED, None)],
            {},
            Step(phase="Succeeded", stop=("c2",), request=LAST),
            id="then the phase, from the main containers alone",
        ),
        pytest.param(
            [({}, 0), ({}, 2), (IGNORED, None)],
            {},
            Step(phase="Failed", stop=("c2",), request=LAST),
            id="a main failed",
        ),
        pytest.param([({}, 0), (IGNORED, None)], OURS, Step(stop=("c1",), request=LAST), id="the phase is set"),
        pytest.param([({}, 0), (IGNORED, 0)], {}, NOTHING, id="they ended on their own"),
        pytest.param(
            [({}, 0), (BY_IMAGE, None), (IGNORED, None)], {}, Step(unreachable=("c1",)), id="one that cannot be stopped"
        ),
    ],
)
def test_sidecars_with_ignored_exit_codes_are_stopped_last(
    containers: list[tuple[Json, int | None]], more: Json, due: Step
) -> None:
    assert plan(job_pod(pod_json(containers, **dict(more))), virtual=False) == due


@pytest.mark.behaviour("SS-113")
def test_the_request_names_containers_and_is_deleted_with_the_pod() -> None:
    found = job_pod(pod_json(DONE))
    request = recreate_request(found, plan(found, virtual=False))
    assert request["metadata"] == {
        "name": "sidecar-termination-u1",
        "namespace": "shop",
        "ownerReferences": [{**reference("v1", "Pod", "job-1", "u1"), "blockOwnerDeletion": True}],
    }
    assert request["spec"] == {
        "podName": "job-1",
        "containers": [{"name": "c1"}],
        "strategy": {"forceRecreate": True, "failurePolicy": "Ignore"},
    }


@pytest.mark.behaviour("SS-113", "SS-114")
@pytest.mark.parametrize("virtual", [False, True])
def test_requests_and_events_name_sidecars_in_alphabetical_order(virtual: bool) -> None:
    body = pod_json([({}, 0), *([({**TRUE, **BY_IMAGE}, None)] * 10)])
    step = plan(job_pod(body), virtual=virtual)
    assert [*(step.images if virtual else step.stop)] == ["c1", "c10", *(f"c{index}" for index in range(2, 10))]


ENVS = st.sampled_from([{}, TRUE, IGNORED, BY_IMAGE, {**TRUE, **BY_IMAGE}])
CODES = st.sampled_from([None, 0, 1])


@pytest.mark.behaviour("SS-111", "SS-112", "SS-115")
@given(
    st.lists(st.tuples(ENVS, CODES), min_size=1, max_size=5),
    st.sampled_from(["Never", "OnFailure", "Always"]),
    st.booleans(),
)
def test_main_containers_are_never_stopped(
    containers: list[tuple[Json, int | None]], policy: str, virtual: bool
) -> None:
    body = pod_json(containers, policy=policy)
    step = plan(job_pod(body), virtual=virtual)
    touched = {*step.images, *step.stop}
    running = {f"c{index}" for index, (_, code) in enumerate(containers) if code is None}
    main = {f"c{index}" for index, (env, _) in enumerate(containers) if not env}
    assert touched <= running - main
    if step != NOTHING:
        assert main
        assert not main & running
    if step.phase:
        assert running == set(step.stop)
