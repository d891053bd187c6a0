"""The workload of a subset, its schedulability, and the recorded hash of a revision."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest

from app.api.conversion import convert
from app.api.uniteddeployment import Subset, UnitedDeployment
from app.kube.clock import rfc3339
from app.kube.objects import decode_pod
from app.pods.revisions import revision_hash
from app.workloads.uniteddeployment.plan.adaptive import Pending, pending_pods, schedulability
from app.workloads.uniteddeployment.plan.status import Outcome, SubsetState, status_of
from app.workloads.uniteddeployment.plan.subsets import (
    SubsetError,
    decode_subset_workload,
    generated_name,
    needs_update,
    wanted_workload,
)
from app.workloads.uniteddeployment.reconcile import content_of
from tests.admission.recorded import DATA

Json = dict[str, Any]
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
TEMPLATE = {
    "metadata": {"labels": {"app": "web"}, "annotations": {"a": "b"}},
    "spec": {"template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "main"}]}}},
}
SELECTOR = {"matchLabels": {"app": "web"}}


def wanted(kind: str = "cloneSetTemplate", **fields: Any) -> Any:
    subset = Subset.model_validate({"name": "a", **fields})
    return wanted_workload(kind, TEMPLATE, SELECTOR, subset, replicas=3, partition=1, revision="web-1")


@pytest.mark.behaviour("UD-42", "UD-45")
def test_the_hash_of_a_revision_is_the_recorded_one() -> None:
    items = json.loads((DATA / "14-united-distribution.json").read_text("utf-8"))["items"]
    found = next(one for one in items if one["kind"] == "UnitedDeployment")
    united = UnitedDeployment.model_validate(convert(found, "apps.kruise.io/v1beta1"))
    content = content_of(united)
    assert f"ud-{revision_hash(content.data, 0)}" == found["status"]["currentRevision"] == "ud-dd9979f77"
    assert content.labels == {"app": "ud"}


@pytest.mark.behaviour("UD-28", "UD-29", "UD-30", "UD-31")
def test_what_a_subsets_workload_says() -> None:
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
    made = wanted(
        nodeSelectorTerm=term,
        tolerations=[{"key": "k"}],
        patch={"spec": {"containers": [{"name": "main", "image": "x"}]}},
    )
    labels = {"app": "web", "apps.kruise.io/subset-name": "a", "apps.kruise.io/controller-revision-hash": "web-1"}
    assert made.labels == labels
    assert made.annotations["a"] == "b"
    assert json.loads(made.annotations["apps.kruise.io/subset-patch"])["spec"]["containers"][0]["image"] == "x"
    spec = made.spec
    assert spec["selector"] == {"matchLabels": {"app": "web", "apps.kruise.io/subset-name": "a"}}
    assert (spec["replicas"], spec["updateStrategy"]["rollingUpdate"]["partition"]) == (3, 1)
    pod = spec["template"]
    assert pod["metadata"]["labels"] == labels
    required = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert required == {"nodeSelectorTerms": [term]}
    assert pod["spec"]["tolerations"] == [{"key": "k"}]
    assert pod["spec"]["containers"] == [{"name": "main", "image": "x"}]
    assert "affinity" not in TEMPLATE["spec"]["template"]["spec"]


def test_deployments_have_no_partition_and_stateful_sets_on_delete_none() -> None:
    assert "updateStrategy" not in wanted("deploymentTemplate").spec
    template = {**TEMPLATE, "spec": {**TEMPLATE["spec"], "updateStrategy": {"type": "OnDelete"}}}
    made = wanted_workload(
        "statefulSetTemplate", template, SELECTOR, Subset(name="a"), replicas=1, partition=1, revision="web-1"
    )
    assert made.spec["updateStrategy"] == {"type": "OnDelete"}


def test_a_patch_that_cannot_be_merged_is_named() -> None:
    with pytest.raises(SubsetError, match="patch of subset a"):
        wanted(patch={"spec": {"containers": [{"image": "x"}]}})


@pytest.mark.behaviour("UD-27")
def test_names_begin_with_object_and_subset_where_that_is_a_name() -> None:
    assert generated_name("web", "a") == "web-a-"
    assert generated_name("w" * 250, "a") == f"{'w' * 250}-"


@pytest.mark.behaviour("UD-48")
@pytest.mark.parametrize(
    ("change", "differs"),
    [
        ({}, False),
        ({"spec": {"replicas": 2, "updateStrategy": {"rollingUpdate": {"partition": 1}}}}, True),
        ({"spec": {"replicas": 3, "updateStrategy": {"rollingUpdate": {"partition": 0}}}}, True),
        ({"spec": {"replicas": 3, "updateStrategy": {"rollingUpdate": {"partition": "33%"}}}}, False),
        ({"revision": "web-0"}, True),
        ({"patch": "{}"}, True),
    ],
)
def test_when_a_workload_is_written_again(change: Json, differs: bool) -> None:
    made = wanted()
    stored = {
        "metadata": {
            "name": "web-a-x",
            "labels": {**made.labels, "apps.kruise.io/controller-revision-hash": change.get("revision", "web-1")},
            "annotations": {"apps.kruise.io/subset-patch": change.get("patch", "")},
        },
        "spec": change.get("spec", {"replicas": 3, "updateStrategy": {"rollingUpdate": {"partition": 1}}}),
    }
    assert needs_update("cloneSetTemplate", decode_subset_workload(orjson.dumps(stored)), made) is differs


def condition(status: str, age: float) -> Json:
    return {"type": "Schedulable", "status": status, "lastTransitionTime": rfc3339(NOW - timedelta(seconds=age))}


@pytest.mark.behaviour("UD-54")
@pytest.mark.parametrize(
    ("before", "pending", "unschedulable", "status", "again"),
    [
        pytest.param(None, Pending(), False, None, 0, id="nothing known"),
        pytest.param(None, Pending(0, 5.0), False, None, 5, id="one waits"),
        pytest.param(None, Pending(1), True, "False", 300, id="one waits too long"),
        pytest.param(condition("True", 9), Pending(1), True, "False", 300, id="again"),
        pytest.param(condition("False", 100), Pending(), True, "False", 200, id="kept until the time is over"),
        pytest.param(condition("False", 100), Pending(3), True, "False", 200, id="and not longer for new ones"),
        pytest.param(condition("False", 301), Pending(), False, "True", 0, id="recovered"),
        pytest.param(condition("False", 301), Pending(1), True, "False", 300, id="not recovered"),
    ],
)
def test_whether_a_subset_can_be_scheduled(
    before: Json | None, pending: Pending, unschedulable: bool, status: str | None, again: float
) -> None:
    found = schedulability(before, pending, 300, NOW)
    assert found.unschedulable is unschedulable
    assert (found.condition or {}).get("status") == status
    assert found.again == pytest.approx(again)


@pytest.mark.behaviour("UD-55")
def test_pods_that_no_node_takes_are_counted_after_their_time() -> None:
    def pod(age: float, **more: Any) -> Any:
        created = rfc3339(NOW - timedelta(seconds=age))
        conditions = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]
        body = {"metadata": {"name": "p", "creationTimestamp": created}, "spec": {}, "status": {"phase": "Pending"}}
        body["status"]["conditions"] = conditions
        return decode_pod(orjson.dumps({**body, **more}))

    pods = [pod(31), pod(10), pod(25), pod(99, spec={"nodeName": "n"}), pod(99, status={"phase": "Running"})]
    found = pending_pods(pods, 30, NOW)
    assert found.timed_out == 1
    assert found.remaining == pytest.approx(5)


@pytest.mark.behaviour("UD-46", "UD-61", "UD-65")
def test_the_status_moves_to_the_new_revision_when_all_pods_have_it_and_are_ready() -> None:
    def made(present: Json, updated_ready: int, outcome: Outcome) -> Json:
        subsets = [SubsetState("a", 2, 0, 2, 2), SubsetState("b", 1, 0, 1, 1)]
        return status_of(
            present,
            subsets,
            outcome,
            updated_revision="web-2",
            updated=3,
            updated_ready=updated_ready,
            collisions=0,
            selector="app=web",
            generation=4,
            now=NOW,
        )

    first = made({"currentRevision": "web-1"}, 2, Outcome(changed=True))
    assert (first["currentRevision"], first["replicas"], first["readyReplicas"]) == ("web-1", 3, 3)
    conditions = {one["type"]: (one["status"], one.get("reason", "")) for one in first["conditions"]}
    assert conditions == {
        "UnitedDeploymentUpdated": ("False", "UnitedDeploymentRevisionUpdating"),
        "SubsetProvisioned": ("True", ""),
        "SubsetUpdated": ("True", ""),
    }
    second = made(first, 3, Outcome())
    assert second["currentRevision"] == "web-2"
    failed = made(second, 3, Outcome(error="no"))
    assert next(one for one in failed["conditions"] if one["type"] == "SubsetUpdated")["reason"] == "Error"
    assert made(failed, 3, Outcome(error="no")) == failed
