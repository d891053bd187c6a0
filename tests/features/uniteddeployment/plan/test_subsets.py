"""The workload of a subset, its schedulability, and the recorded hash of a revision."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest

from app.api.conversion import convert
from app.features.cloneset.kind import CLONE_SET
from app.features.uniteddeployment.plan.allocation import Pending, pending_pods, schedulability
from app.features.uniteddeployment.plan.subsets import (
    SubsetError,
    SubsetWorkload,
    Wanted,
    built_workload,
    claim,
    content_of,
    decode_subset_workload,
    generated_name,
    is_of,
    needs_update,
    patch_text,
    stuck_pods,
)
from app.features.uniteddeployment.types import Subset, UnitedDeployment
from app.kube.clock import rfc3339
from app.kube.objects import Pod
from app.kube.resources import DEPLOYMENTS, Resource
from app.pods.revisions import revision_hash
from tests.admission.recorded import DATA
from tests.kit import objects

Json = dict[str, Any]
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
TEMPLATE = {
    "metadata": {"labels": {"app": "web"}, "annotations": {"a": "b"}},
    "spec": {"template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "main"}]}}},
}
SELECTOR = {"matchLabels": {"app": "web"}}


def wanted(subset: Subset, template: Json = TEMPLATE) -> Wanted:
    return Wanted(subset.name, 3, 1, template, "web-1", patch_text(subset))


def built(kind: str = "cloneSetTemplate", template: Json = TEMPLATE, **fields: Any) -> Any:
    subset = Subset.model_validate({"name": "a", **fields})
    return built_workload(kind, SELECTOR, subset, wanted(subset, template))


@pytest.mark.behaviour("UD-42", "UD-45")
def test_the_revision_hash_matches_the_recording() -> None:
    items = json.loads((DATA / "14-united-distribution.json").read_text("utf-8"))["items"]
    found = next(one for one in items if one["kind"] == "UnitedDeployment")
    united = UnitedDeployment.model_validate(convert(found, "apps.kruise.io/v1beta1"))
    content = content_of(united)
    assert f"ud-{revision_hash(content.data, 0)}" == found["status"]["currentRevision"] == "ud-dd9979f77"
    assert content.labels == {"app": "ud"}


@pytest.mark.behaviour("UD-42")
@pytest.mark.parametrize(
    ("kind", "left_out"),
    [
        ("statefulSetTemplate", {"selector": None, "serviceName": "", "updateStrategy": {}}),
        ("deploymentTemplate", {"selector": None, "strategy": {}}),
    ],
)
def test_a_revision_has_the_fields_that_go_marshals(kind: str, left_out: Json) -> None:
    claim = {"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}
    spec = {"volumeClaimTemplates": [claim]} if kind == "statefulSetTemplate" else {"paused": False}
    template = {"metadata": {"annotations": {}}, "spec": {**TEMPLATE["spec"], **spec, "minReadySeconds": 0}}
    given = {"metadata": {"name": "web"}, "spec": {"selector": SELECTOR, "template": {kind: template}}}
    recorded = json.loads(content_of(UnitedDeployment.model_validate(given)).data)["spec"]["template"][kind]
    assert recorded["metadata"] == {"creationTimestamp": None}
    found = recorded["spec"]
    assert {field: found.pop(field) for field in left_out} == left_out
    for one in found.pop("volumeClaimTemplates", ()):
        assert one["metadata"] == {"creationTimestamp": None, "name": "data"}
        assert one["spec"] == {**claim["spec"], "resources": {}}
        assert one["status"] == {}
    assert found.keys() == {"template"}


@pytest.mark.behaviour("UD-28", "UD-29", "UD-30", "UD-31")
def test_a_workload_has_the_node_term_tolerations_and_patch_of_its_subset() -> None:
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
    made = built(
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


def test_deployments_and_on_delete_sets_have_no_partition() -> None:
    assert "updateStrategy" not in built("deploymentTemplate").spec
    template = {**TEMPLATE, "spec": {**TEMPLATE["spec"], "updateStrategy": {"type": "OnDelete"}}}
    made = built("statefulSetTemplate", template)
    assert made.spec["updateStrategy"] == {"type": "OnDelete"}


def test_an_inapplicable_patch_is_reported() -> None:
    with pytest.raises(SubsetError, match="patch of subset a"):
        built(patch={"spec": {"containers": [{"image": "x"}]}})


@pytest.mark.behaviour("UD-27")
def test_names_start_with_object_and_subset_if_valid() -> None:
    assert generated_name("deploymentTemplate", "web", "a") == "web-a-"
    assert generated_name("statefulSetTemplate", "web", "a" * 42) == f"web-{'a' * 42}-"
    assert generated_name("statefulSetTemplate", "web", "a" * 43) == "web-"
    assert generated_name("cloneSetTemplate", "web", "a" * 43) == "web-"
    assert generated_name("deploymentTemplate", "web", "a" * 43) == f"web-{'a' * 43}-"
    assert generated_name("deploymentTemplate", "w" * 250, "a") == f"{'w' * 250}-"


@pytest.mark.behaviour("UD-48")
@pytest.mark.parametrize(
    ("change", "differs"),
    [
        ({}, False),
        ({"replicas": 2}, True),
        ({"partition": 0}, True),
        ({"partition": "33%"}, False),
        ({"revision": "web-0"}, True),
        ({"patch": "{}"}, True),
    ],
)
def test_a_workload_is_updated_only_if_it_differs(change: Json, differs: bool) -> None:
    given = {"replicas": 3, "partition": 1, "revision": "web-1", "patch": "", **change}
    stored = {
        "metadata": {
            "labels": {"apps.kruise.io/controller-revision-hash": given["revision"]},
            "annotations": {"apps.kruise.io/subset-patch": given["patch"]},
        },
        "spec": {"replicas": given["replicas"], "updateStrategy": {"rollingUpdate": {"partition": given["partition"]}}},
    }
    found = decode_subset_workload(orjson.dumps(stored))
    assert needs_update("cloneSetTemplate", found, wanted(Subset(name="a"))) is differs


@pytest.mark.behaviour("UD-30", "UD-48")
@pytest.mark.parametrize("kind", ["cloneSetTemplate", "statefulSetTemplate", "advancedStatefulSetTemplate"])
def test_a_partition_without_effect_is_not_written_again(kind: str) -> None:
    template = {**TEMPLATE, "spec": {**TEMPLATE["spec"], "updateStrategy": {"type": "OnDelete"}}}
    made = built(kind, template)
    stored = {"metadata": {"labels": made.labels, "annotations": made.annotations}, "spec": made.spec}
    assert not needs_update(kind, decode_subset_workload(orjson.dumps(stored)), wanted(Subset(name="a"), template))


@pytest.mark.behaviour("UD-28")
@pytest.mark.parametrize(("patch", "noted"), [({}, "{}"), (None, "")])
def test_an_empty_patch_is_noted_as_openkruise_does(patch: Json | None, noted: str) -> None:
    assert built(patch=patch).annotations["apps.kruise.io/subset-patch"] == noted


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
        pytest.param(condition("False", 100), Pending(), True, "False", 200, id="kept until the timeout"),
        pytest.param(condition("False", 100), Pending(3), True, "False", 200, id="not kept for new ones"),
        pytest.param(condition("False", 301), Pending(), False, "True", 0, id="recovered"),
        pytest.param(condition("False", 301), Pending(1), True, "False", 300, id="not recovered"),
    ],
)
def test_a_subset_with_pods_unscheduled_for_too_long_is_unschedulable(
    before: Json | None, pending: Pending, unschedulable: bool, status: str | None, again: float
) -> None:
    found = schedulability(before, pending, 300, NOW)
    assert found.unschedulable is unschedulable
    assert (found.condition or {}).get("status") == status
    assert found.again == pytest.approx(again)


@pytest.mark.behaviour("UD-55")
def test_unscheduled_pods_count_after_a_delay() -> None:
    def pod(age: float, phase: str = "Pending", node: str = "") -> Pod:
        created = rfc3339(NOW - timedelta(seconds=age))
        conditions = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]
        return objects.pod(phase=phase, node=node, conditions=conditions, creationTimestamp=created)

    pods = [pod(31), pod(10), pod(25), pod(99, node="n"), pod(99, "Running")]
    found = pending_pods(pods, 30, NOW)
    assert found.timed_out == 1
    assert found.remaining == pytest.approx(5)


def workload(name: str, created: int, subset: str = "a", **metadata: Any) -> SubsetWorkload:
    """A workload created in this second."""
    labels = {"app": "web", "apps.kruise.io/subset-name": subset}
    at = f"2026-01-01T00:00:0{created}Z"
    return decode_subset_workload(
        orjson.dumps({"metadata": {"name": name, "labels": labels, "creationTimestamp": at, **metadata}})
    )


@pytest.mark.behaviour("UD-32", "UD-33")
def test_each_workload_is_kept_adopted_released_or_deleted() -> None:
    unmatched = {"apps.kruise.io/subset-name": "b"}
    first, second = workload("a1", 1), workload("a2", 0)
    gone = workload("gone", 0, deletionTimestamp="2026-01-01T00:00:09Z")
    other, removed, relabeled = workload("other", 0), workload("z1", 0, "z"), workload("b1", 0, labels=unmatched)
    orphans = [
        workload("b3", 3, "b"),
        workload("b2", 2, "b"),
        workload("a9", 0),
        workload("z2", 0, "z"),
        workload("b0", 0, labels=unmatched),
    ]
    owned = {"cloneSetTemplate": [first, second, gone, removed, relabeled], "deploymentTemplate": [other]}
    found = claim("cloneSetTemplate", {"a", "b"}, owned, orphans, lambda labels: labels.get("app") == "web")
    assert {name: one.metadata.name for name, one in found.existing.items()} == {"a": "a2"}
    assert {(kind, one.metadata.name) for kind, one in found.surplus} == {
        ("cloneSetTemplate", "a1"),
        ("cloneSetTemplate", "z1"),
        ("deploymentTemplate", "other"),
    }
    assert [one.metadata.name for _, one in found.release] == ["b1"]
    assert [one.metadata.name for one in found.adopt] == ["b2"]


@pytest.mark.behaviour("UD-50")
def test_pods_that_block_a_native_statefulset_are_found() -> None:
    own, united = "controller-revision-hash", "apps.kruise.io/controller-revision-hash"
    body: Json = {
        "metadata": {"name": "web-a-x", "generation": 2, "labels": {united: "web-2"}},
        "spec": {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}},
        "status": {"observedGeneration": 2, "updateRevision": "r2"},
    }

    def pod(ordinal: int, revision: str, of_set: str, ready: bool = False, **metadata: Any) -> Pod:
        labels = {united: revision, own: of_set}
        return objects.pod(f"web-a-x-{ordinal}", ready=ready, labels=labels, **metadata)

    pods = [
        pod(0, "web-1", "r1"),
        pod(2, "web-1", "r1"),
        pod(3, "web-1", "r1", ready=True),
        pod(4, "web-2", "r1"),
        pod(5, "web-2", "r2"),
        pod(6, "web-1", "r1", deletionTimestamp=rfc3339(NOW)),
    ]

    def names(**changes: Any) -> list[str]:
        stored = decode_subset_workload(orjson.dumps({**body, **changes}))
        return [one.metadata.name for one in stuck_pods(stored, pods, "web-2")]

    assert names() == ["web-a-x-2", "web-a-x-4"]
    # Its controller has not observed the spec yet: only the UnitedDeployment's revision counts.
    assert names(status={"observedGeneration": 1, "updateRevision": "r2"}) == ["web-a-x-2"]
    assert names(spec={"updateStrategy": {"type": "OnDelete"}}) == []
    assert names(metadata={**body["metadata"], "labels": {united: "web-1"}}) == []


A_CLONE_SET = {"apiVersion": "apps.kruise.io/v1alpha1", "kind": "CloneSet", "name": "web-a-x"}


@pytest.mark.parametrize(
    ("resource", "owner", "mine"),
    [
        (CLONE_SET.resource(), A_CLONE_SET | {"uid": "w"}, True),
        (CLONE_SET.resource(), A_CLONE_SET | {"uid": "other"}, False),
        (DEPLOYMENTS, {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-a-x-5d4", "uid": "r"}, True),
        (DEPLOYMENTS, {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "other-5d4", "uid": "r"}, False),
        (DEPLOYMENTS, {"apiVersion": "apps/v1", "kind": "CloneSet", "name": "web-a-x-5d4", "uid": "r"}, False),
        (DEPLOYMENTS, None, False),
    ],
)
def test_a_pod_belongs_to_the_subset_of_its_workload(resource: Resource, owner: Json | None, mine: bool) -> None:
    references = [{**owner, "controller": True}] if owner is not None else []
    found = objects.pod(namespace=None, ownerReferences=references)
    assert is_of(resource, workload("web-a-x", 0, uid="w"), found) is mine
