"""Pods and claims that a CloneSet creates."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from app.features.cloneset.plan.new_pods import PodMaker
from app.features.cloneset.plan.settings import Gates, resolve_spec
from app.features.cloneset.types import CloneSet
from app.manager.gates import GATES
from app.pods.predicates import Owner

OWNER = Owner("apps.kruise.io/v1beta1", "CloneSet", "web", "shop", "uid-web")
TEMPLATE = {
    "metadata": {"labels": {"app": "web", "tier": "front"}, "annotations": {"cfg": "1"}, "finalizers": ["f"]},
    "spec": {"containers": [{"name": "main", "image": "nginx"}]},
}
CLAIM = {
    "metadata": {
        "name": "data",
        "labels": {"disk": "fast", "app": "mine"},
        "annotations": {"a": "b"},
        "finalizers": ["x/keep"],
    },
    "spec": {"accessModes": ["ReadWriteOnce"]},
}
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def maker(gates: Gates | None = None) -> PodMaker:
    spec = {"selector": {"matchLabels": {"app": "web"}}, "template": TEMPLATE, "volumeClaimTemplates": [CLAIM]}
    metadata = {"name": "web", "namespace": "shop", "uid": "uid-web"}
    resolved = resolve_spec(CloneSet.model_validate({"metadata": metadata, "spec": spec}), gates or Gates())
    return PodMaker(resolved, TEMPLATE, "web-5646455f95")


@pytest.mark.behaviour("D-25")
@pytest.mark.parametrize(
    ("switched", "tracked"), [({}, False), ({"CloneSetPodManagedFields": True}, True), ({"PodWebhook": False}, True)]
)
def test_pods_keep_managed_fields_on_request_or_without_the_webhook(switched: dict[str, bool], tracked: bool) -> None:
    gates = Gates.of(lambda name: switched.get(name, GATES[name].default))
    assert maker(gates).new_pod("7f4x2", ()).managed_fields is tracked


@pytest.mark.behaviour("CS-116", "CS-118")
def test_a_claim_has_the_labels_of_its_own_template_and_of_the_selector() -> None:
    (claim,) = maker().claims("abcde", ())
    assert claim == {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": "data-web-abcde",
            "namespace": "shop",
            "labels": {"disk": "fast", "app": "web", "apps.kruise.io/cloneset-instance-id": "abcde"},
            "annotations": {"a": "b"},
            "finalizers": ["x/keep"],
            "ownerReferences": [OWNER.reference],
        },
        "spec": CLAIM["spec"],
    }
    assert not maker().claims("abcde", {"data-web-abcde"})


@pytest.mark.behaviour("CS-142", "PM-4", "PM-78")
@pytest.mark.parametrize(("bare_hash", "revision"), [(False, "web-5646455f95"), (True, "5646455f95")])
def test_a_new_pod_has_the_metadata_of_its_set_and_revision(bare_hash: bool, revision: str) -> None:
    pod = maker(Gates(short_hash=bare_hash)).pod("abcde", NOW)
    assert pod["metadata"] == {
        "name": "web-abcde",
        "generateName": "web-",
        "namespace": "shop",
        "labels": {
            "app": "web",
            "tier": "front",
            "apps.kruise.io/cloneset-instance-id": "abcde",
            "controller-revision-hash": revision,
            "pod-template-hash": "5646455f95",
            "lifecycle.apps.kruise.io/state": "PreparingNormal",
        },
        "annotations": {"cfg": "1", "lifecycle.apps.kruise.io/timestamp": "2026-01-02T03:04:05Z"},
        "finalizers": ["f"],
        "ownerReferences": [OWNER.reference],
    }
    assert pod["spec"]["volumes"] == [{"name": "data", "persistentVolumeClaim": {"claimName": "data-web-abcde"}}]


@pytest.mark.behaviour("PM-4", "PM-176")
@pytest.mark.parametrize(("own", "ready_gate", "gates"), [
    (["mine"], True, ["mine", "InPlaceUpdateReady", "KruisePodReady"]),
    (["mine"], False, ["mine", "InPlaceUpdateReady"]),
    (["KruisePodReady", "mine"], True, ["KruisePodReady", "mine", "InPlaceUpdateReady"]),
])  # fmt: skip
def test_a_new_pod_has_the_gates_that_admission_would_add(own: list[str], ready_gate: bool, gates: list[str]) -> None:
    template = {"spec": {"readinessGates": [{"conditionType": one} for one in own]}}
    made = replace(maker(Gates(ready_gate=ready_gate)), template=template).pod("abcde", NOW)
    assert [gate["conditionType"] for gate in made["spec"]["readinessGates"]] == gates
    assert len(template["spec"]["readinessGates"]) == len(own)
