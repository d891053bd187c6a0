"""The plan of a BroadcastJob."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.features.broadcastjob.plan import Next, Step, fit_of, name_of, new_pod, next_step
from app.features.broadcastjob.types import BroadcastJob
from app.kube.objects import Node, NodeSpec, NodeStatus, ObjectMeta, Pod, Taint, decode_pod
from tests.kit import objects

NOW = datetime(2030, 1, 1, tzinfo=UTC)
TEMPLATE: dict[str, Any] = {"spec": {"containers": [{"name": "main"}], "restartPolicy": "Never"}}


def job(phase: str = "running", **spec: Any) -> BroadcastJob:
    return BroadcastJob.model_validate(
        {
            "metadata": {"name": "bj", "namespace": "n", "uid": "u"},
            "spec": {"template": TEMPLATE, **spec},
            "status": {"phase": phase},
        }
    )


def pod(node: str, phase: str = "Running", restarts: int = 0, *, policy: str = "Never", deleting: bool = False) -> Pod:
    status = {"containerStatuses": [{"name": "main", "restartCount": restarts}]}
    leaves = {"deletionTimestamp": "2030-01-01T00:00:00Z" if deleting else None}
    return objects.pod(f"bj-{node}", node=node, phase=phase, spec={"restartPolicy": policy}, status=status, **leaves)


def names(count: int) -> list[str]:
    return [f"n{number:02}" for number in range(1, count + 1)]


def step(the_job: BroadcastJob, nodes: int, *pods: Pod, unfit: tuple[str, ...] = (), age: int = 0) -> Step:
    known = names(nodes)
    return next_step(the_job, set(known) - set(unfit), known, pods, NOW, NOW - timedelta(seconds=age), 0)


@pytest.mark.behaviour("BJ-12")
@pytest.mark.parametrize(("nodes", "parallelism", "running", "created"), [
    (3, 2, 1, 1),
    (5, "40%", 1, 1),
    (5, "30%", 0, 2),
    (10, 20, 0, 10),
    (10, 0, 0, 0),
    (10, "0%", 0, 0),
    (10, -1, 0, 0),
    (10, None, 2, 8),
])  # fmt: skip
def test_the_number_of_new_pods_respects_parallelism(
    nodes: int, parallelism: int | str | None, running: int, created: int
) -> None:
    spec = {} if parallelism is None else {"parallelism": parallelism}
    found = step(job(**spec), nodes, *map(pod, names(running)))
    assert found.next is Next.RUN
    assert found.create == names(nodes)[running : running + created]
    assert found.desired == nodes


@pytest.mark.behaviour("BJ-12", "BJ-25")
def test_excess_pods_stay_and_an_invalid_parallelism_creates_none() -> None:
    crowded = step(job(parallelism=1), 3, pod("n01"), pod("n02"))
    assert (crowded.crowded, crowded.create, crowded.delete) == (True, [], [])
    unreadable = step(job(parallelism="x"), 3)
    assert (unreadable.unreadable, unreadable.create) == (True, ())


RESTARTED, RESTARTED_TWICE = (pod("n01", restarts=count, policy="OnFailure") for count in (1, 2))


@pytest.mark.behaviour("BJ-9", "BJ-10", "BJ-14", "BJ-15", "BJ-27", "BJ-28", "BJ-3")
@pytest.mark.parametrize(
    ("spec", "pods", "age", "expected", "reason"),
    [
        ({}, [pod("n01", "Succeeded"), pod("n02", "Succeeded")], 0, Next.COMPLETE, ""),
        ({}, [pod("n01", "Succeeded"), pod("n02")], 0, Next.RUN, ""),
        ({}, [pod("n01", "Failed"), pod("n02")], 0, Next.FAIL, "failed pod is found"),
        ({"failurePolicy": {"type": "Continue"}}, [pod("n01", "Failed"), pod("n02", "Failed")], 0, Next.COMPLETE, ""),
        ({"failurePolicy": {"type": "Continue"}}, [pod("n01", "Failed"), pod("n02")], 0, Next.RUN, ""),
        ({"failurePolicy": {"type": "Pause"}}, [pod("n01", "Failed"), pod("n02")], 0, Next.PAUSE, "Paused"),
        ({"paused": True}, [pod("n01", "Failed")], 0, Next.PAUSE, ""),
        ({"completionPolicy": {"activeDeadlineSeconds": 10}}, [pod("n01")], 9, Next.RUN, ""),
        ({"completionPolicy": {"activeDeadlineSeconds": 10}}, [pod("n01")], 10, Next.FAIL, "DeadlineExceeded"),
        ({"completionPolicy": {"type": "Never"}}, [pod("n01", "Succeeded"), pod("n02", "Succeeded")], 0, Next.RUN, ""),
        # Terminating Pods count as served; Pods that were restarted too often do not, though they failed.
        ({}, [pod("n01", deleting=True), pod("n02", "Succeeded")], 0, Next.COMPLETE, ""),
        ({}, [RESTARTED], 0, Next.FAIL, "failed pod is found"),
        ({"failurePolicy": {"restartLimit": 1}}, [RESTARTED], 0, Next.RUN, ""),
        ({"completionPolicy": {"backoffLimit": 1}}, [RESTARTED], 0, Next.RUN, ""),
        ({"completionPolicy": {"backoffLimit": 1}}, [RESTARTED_TWICE], 0, Next.FAIL, "failed pod is found"),
        ({"failurePolicy": {"type": "Continue"}}, [RESTARTED, pod("n02", "Succeeded")], 0, Next.RUN, ""),
    ],
)
def test_each_state_of_a_job_has_its_next_action(
    spec: dict[str, Any], pods: list[Pod], age: int, expected: Next, reason: str
) -> None:
    found = step(job(**spec), 2, *pods, age=age)
    assert (found.next, found.reason) == (expected, reason)


@pytest.mark.behaviour("BJ-9", "BJ-10")
def test_a_failed_job_stops_only_pods_that_have_not_failed() -> None:
    running = pod("n02", policy="OnFailure")
    assert step(job(), 2, RESTARTED, running).delete == [running]
    late = job(failurePolicy={"type": "Continue"}, completionPolicy={"activeDeadlineSeconds": 10})
    assert step(late, 2, RESTARTED, running, age=10).delete == [running]


@pytest.mark.behaviour("BJ-15")
def test_a_job_without_nodes_continues_and_a_failed_job_with_policy_never_does_not_end() -> None:
    assert step(job(), 0).next is Next.RUN
    failed = step(job("failed", completionPolicy={"type": "Never"}), 2, pod("n01", "Failed"))
    assert (failed.next, failed.create) == (Next.COUNT, ())


@pytest.mark.behaviour("BJ-7", "BJ-23")
def test_on_unfit_nodes_only_running_pods_are_deleted() -> None:
    running, done, terminating = pod("n01"), pod("n02", "Succeeded"), pod("n03", deleting=True)
    found = step(job(), 4, running, done, terminating, unfit=("n01", "n02", "n03"))
    assert found.delete == [running]
    assert found.create == ["n04"]
    assert found.desired == 3


def node(*taints: Taint, cordoned: bool = False, labels: dict[str, str] | None = None, **allocatable: str) -> Node:
    room = {"cpu": "2", "memory": "1Gi", "pods": "10"} | allocatable
    return Node(
        ObjectMeta(name="n01", labels=labels or {}),
        NodeSpec(unschedulable=cordoned, taints=taints),
        NodeStatus(allocatable=room),
    )


TAINT = Taint(key="special", effect="NoSchedule")
CORDON = {"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}


@pytest.mark.behaviour("BJ-5", "BJ-6")
@pytest.mark.parametrize(("spec", "the_node", "fits"), [
    ({}, node(), True),
    ({"nodeName": "other"}, node(), False),
    ({"nodeSelector": {"a": "b"}}, node(), False),
    ({"nodeSelector": {"a": "b"}}, node(labels={"a": "b"}), True),
    ({}, node(TAINT), False),
    ({"tolerations": [{"key": "special", "operator": "Exists"}]}, node(TAINT), True),
    ({}, node(cordoned=True), False),
    ({"tolerations": [CORDON]}, node(cordoned=True), True),
    ({}, node(pods="0"), False),
    ({"containers": [{"resources": {"requests": {"cpu": "2"}}}]}, node(), True),
    ({"containers": [{"resources": {"requests": {"cpu": "1"}}}] * 3}, node(), False),
    ({"containers": [{"resources": {"limits": {"memory": "2Gi"}}}]}, node(), False),
    ({"containers": [{"resources": {"requests": {"gpu": "1"}}}]}, node(), False),
    ({"initContainers": [{"resources": {"requests": {"cpu": "3"}}}]}, node(), False),
    ({"overhead": {"cpu": "3"}}, node(), False),
    ({"containers": [{"resources": {"requests": {"cpu": "many"}}}]}, node(), False),
    ({"containers": "none"}, node(), False),
    ({}, node(cpu="many"), True),
])  # fmt: skip
def test_pods_are_created_only_on_nodes_that_fit(spec: dict[str, Any], the_node: Node, fits: bool) -> None:
    assert fit_of({"spec": spec}).fits(the_node) is fits
    assert not fit_of({"spec": spec}).fits(Node(ObjectMeta(name="n01")))


@pytest.mark.behaviour("BJ-1", "BJ-13")
@pytest.mark.parametrize("by_scheduler", [True, False])
def test_a_pod_is_named_labeled_and_bound_for_its_node(by_scheduler: bool) -> None:
    body = new_pod(job(), "n01", by_scheduler=by_scheduler)
    labels = {"broadcastjob-name": "bj", "broadcastjob-controller-uid": "u"}
    assert body["metadata"]["labels"] == labels
    assert body["metadata"]["name"] == name_of(job(), "n01") != name_of(job(), "n02")
    assert decode_pod(json.dumps(body).encode()).spec.target_node == "n01"
    assert ("nodeName" in body["spec"]) is not by_scheduler
