"""PersistentPodStates generated from the annotations of a workload."""

from __future__ import annotations

from typing import Any

import pytest

from app.features.persistentpodstate.plan import Step, Workload, generation
from app.features.persistentpodstate.types import PersistentPodState
from app.pods.ordinals import Slots
from tests.features.persistentpodstate.states import HOST, TARGET, ZONE, Json, annotated, read, state
from tests.kit.objects import reference


def workload(*, uid: str = "uid-web", leaving: bool = False, **annotations: str) -> Workload:
    given = annotated(annotations)
    return Workload("apps.kruise.io/v1beta1", "StatefulSet", "ns", "web", uid, leaving, given, Slots.of(1, 0, ()))


def generated(*, uid: str = "uid-web", blocks: bool = False, **spec: Any) -> PersistentPodState:
    body = state(**spec)
    owner: Json = {**TARGET, "uid": uid, "controller": True, **({"blockOwnerDeletion": True} if blocks else {})}
    body["metadata"]["ownerReferences"] = [owner]
    return read(body)


ON = workload(switch="true", required=ZONE, preferred=HOST)
MADE: Json = {"required": [ZONE], "preferred": [(100, [HOST])]}


@pytest.mark.behaviour("PPS-15", "PPS-41")
def test_annotations_create_an_object_for_the_workload() -> None:
    one = workload(switch="true", required=f" {ZONE},, {HOST} ,{ZONE}", preferred=HOST, remembered="a, b")
    made = generation(one, None)
    assert made.step is Step.CREATE
    assert made.body == {
        "apiVersion": "apps.kruise.io/v1beta1",
        "kind": "PersistentPodState",
        "metadata": {
            "name": "web",
            "namespace": "ns",
            "ownerReferences": [reference("apps.kruise.io/v1beta1", "StatefulSet", "web")],
        },
        "spec": {
            "targetRef": {"apiVersion": "apps.kruise.io/v1beta1", "kind": "StatefulSet", "name": "web"},
            "requiredPersistentTopology": {"keys": [ZONE, HOST]},
            "preferredPersistentTopology": [{"weight": 100, "preference": {"keys": [HOST]}}],
            "persistentPodAnnotations": [{"key": "a"}, {"key": "b"}],
        },
    }


@pytest.mark.behaviour("PPS-13", "PPS-17")
@pytest.mark.parametrize(
    "one",
    [
        workload(required=ZONE),
        workload(switch="True", required=ZONE),
        workload(switch="true"),
        workload(switch="true", required=" , ", preferred=","),
        workload(switch="true", required=ZONE, leaving=True),
    ],
    ids=["no switch", "another value", "no topology", "empty topology", "leaving"],
)
def test_nothing_is_generated_without_valid_annotations(one: Workload) -> None:
    assert generation(one, None).step is Step.NOTHING


@pytest.mark.behaviour("PPS-16")
def test_changed_annotations_update_only_their_fields() -> None:
    assert generation(ON, generated(**MADE)).step is Step.NOTHING
    kept = generated(**MADE, persistentPodStateRetentionPolicy="WhenDeleted")
    assert generation(ON, kept).step is Step.NOTHING
    changed = generation(workload(switch="true", preferred=ZONE, remembered="a"), kept)
    assert changed.step is Step.CHANGE
    assert changed.body == {
        "spec": {
            "requiredPersistentTopology": None,
            "preferredPersistentTopology": [{"weight": 100, "preference": {"keys": [ZONE]}}],
            "persistentPodAnnotations": [{"key": "a"}],
        }
    }


@pytest.mark.behaviour("PPS-18")
@pytest.mark.parametrize(
    "present",
    [
        read(state(**MADE)),
        generated(blocks=True, **MADE),
        generated(required=[ZONE], preferred=[(7, [HOST])]),
        generated(uid="other", **MADE),
    ],
    ids=["without an owner", "of another controller", "not generated from annotations", "of another workload"],
)
def test_an_object_of_the_user_is_kept(present: PersistentPodState) -> None:
    assert generation(workload(switch="false"), present).step is Step.NOTHING


@pytest.mark.behaviour("PPS-19")
def test_objects_of_a_previous_workload_are_waited_for() -> None:
    assert generation(ON, generated(uid="former", **MADE)).step is Step.WAIT
    made = generated(**MADE)
    leaving = made.metadata.model_copy(update={"deletion_timestamp": "2026-01-01T00:00:00Z"})
    assert generation(ON, made.model_copy(update={"metadata": leaving})).step is Step.NOTHING
