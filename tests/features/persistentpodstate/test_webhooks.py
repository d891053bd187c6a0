"""What the webhook of PersistentPodState refuses, and what it warns of."""

from __future__ import annotations

from typing import Any

import pytest

from app.features.persistentpodstate.kind import PERSISTENT_POD_STATE
from app.features.persistentpodstate.pod_admission import STATES
from app.features.persistentpodstate.webhooks import handlers
from app.framework.live import LiveObjects
from app.framework.watched import CONFIGURATION, Stores
from tests.admission.writing import ALPHA, Written, written
from tests.features.persistentpodstate.states import GAME, GAMES, HOST, OWN, TARGET, ZONE, configuration, read, state

Json = dict[str, Any]


def answer(body: Json, old: Json | None = None, *, others: tuple[Json, ...] = (), text: str | None = None) -> Written:
    stores = Stores((STATES, CONFIGURATION)).replaced({CONFIGURATION.key: configuration(text)})
    for other in others:
        stores(STATES).put(read(other))
    return written(PERSISTENT_POD_STATE, handlers(LiveObjects(None, stores), OWN), body, old)


@pytest.mark.behaviour("PPS-4", "PPS-9")
def test_a_target_is_a_statefulset_or_an_object_of_a_listed_kind() -> None:
    native = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web"}
    assert answer(state(required=[ZONE])).obj
    assert answer(state(required=[ZONE], target=native)).obj
    assert answer(state(required=[ZONE], target=GAME), text=GAMES).obj
    # The version on the list is irrelevant.
    assert answer(state(required=[ZONE], target={**GAME, "apiVersion": "game.kruise.io/v2"}), text=GAMES).obj
    refused = answer(state(required=[ZONE], target=GAME))
    assert refused.code == 400
    assert "targetRef.Kind must be StatefulSet or in PPS_Watch_Custom_Workload_WhiteList" in refused.message


@pytest.mark.behaviour("PPS-3", "PPS-4")
@pytest.mark.parametrize("field", ["apiVersion", "kind", "name"])
def test_an_incomplete_target_is_refused(field: str) -> None:
    message = answer(state(required=[ZONE], target={**TARGET, field: ""})).message
    assert "empty targetRef is not valid" in message
    assert ("targetRef.Kind must be StatefulSet" in message) is (field != "name")


@pytest.mark.behaviour("PPS-5")
def test_a_topology_is_required() -> None:
    for body in (state(), state(preferred=[])):
        message = "requiredPersistentTopology or preferredPersistentTopology is required"
        assert message in answer(body).message


@pytest.mark.behaviour("PPS-6")
def test_the_target_is_immutable() -> None:
    old = state(required=[ZONE])
    refused = answer(state(required=[ZONE], target={**TARGET, "name": "other"}), old)
    assert refused.message == "spec.targetRef: Forbidden: targetRef is immutable"
    other = state("other", required=[ZONE], target={**TARGET, "name": "other"})
    refused = answer(state(required=[ZONE], target=other["spec"]["targetRef"]), old, others=(other,))
    assert refused.message.startswith("[spec.targetRef: Forbidden: targetRef is immutable, spec.targetRef: Invalid")


@pytest.mark.behaviour("PPS-7")
def test_a_workload_has_one_object() -> None:
    other = state("first", required=[ZONE], target={**TARGET, "apiVersion": "apps.kruise.io/v1alpha1"})
    refused = answer(state(required=[ZONE]), others=(other,))
    assert "pps.spec.targetRef is in conflict with other PersistentPodState first: " in refused.message
    assert answer(state("first", required=[HOST], target=other["spec"]["targetRef"]), other, others=(other,)).obj
    leaving = {**other, "metadata": {**other["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    assert answer(state(required=[ZONE]), others=(leaving,)).obj
    native = state("first", required=[ZONE], target={**TARGET, "apiVersion": "apps/v1"})
    assert answer(state(required=[ZONE]), others=(native,)).obj


@pytest.mark.behaviour("PPS-8", "PPS-9")
@pytest.mark.parametrize("text", ["{", "[]", '{"workloads": 7}', '{"workloads": [{"Group": "x"}]}'])
def test_an_unreadable_list_refuses_only_objects_that_need_it(text: str) -> None:
    refused = answer(state(required=[ZONE], target=GAME), text=text)
    assert refused.code == 500
    assert "ConfigMap kruise-configuration, key PPS_Watch_Custom_Workload_WhiteList" in refused.message
    assert answer(state(required=[ZONE]), text=text).obj


@pytest.mark.behaviour("PPS-40")
@pytest.mark.parametrize(
    ("body", "path"),
    [
        (state(preferred=[(10, [ZONE]), (0, [ZONE])]), "spec.preferredPersistentTopology[1].weight"),
        (state(preferred=[(101, [ZONE])]), "spec.preferredPersistentTopology[0].weight"),
        (state(required=[ZONE, "a b"]), "spec.requiredPersistentTopology.keys[1]"),
        (state(preferred=[(1, [""])]), "spec.preferredPersistentTopology[0].preference.keys[0]"),
    ],
)
def test_impossible_values_for_pods_and_nodes_are_refused(body: Json, path: str) -> None:
    refused = answer(body)
    assert refused.obj is None
    assert refused.message.lstrip("[").startswith(f"{path}: Invalid value")
    # Errors that are already stored do not block other changes.
    assert answer({**body, "spec": {**body["spec"], "persistentPodAnnotations": [{"key": "a"}]}}, body).obj


@pytest.mark.behaviour("PPS-40")
def test_errors_use_the_field_names_of_the_version() -> None:
    body = state(requiredPersistentTopology={"nodeTopologyKeys": ["a b"]}) | {"apiVersion": ALPHA}
    assert answer(body).message.startswith("spec.requiredPersistentTopology.nodeTopologyKeys[0]: Invalid value")


@pytest.mark.behaviour("PPS-40")
def test_settings_without_effect_get_a_warning() -> None:
    body = state(required=[], preferred=[(1, [])], persistentPodAnnotations=[{"key": ""}, {"key": "Example.com/IP"}])
    made = answer(body)
    assert made.obj
    assert made.warnings == (
        "spec.requiredPersistentTopology.keys: has no effect without keys",
        "spec.preferredPersistentTopology[0].preference.keys: has no effect without keys",
        'spec.persistentPodAnnotations[0].key: "" is not a valid annotation key; it has no effect',
    )


@pytest.mark.behaviour("PPS-6")
def test_a_deleted_object_is_not_validated() -> None:
    old = state(required=[ZONE])
    old["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert answer(state(), old).obj


def test_too_many_errors_are_reported_in_part() -> None:
    refused = answer(state(required=["a b"] * 5_000))
    assert refused.message.count("Invalid value") <= 20
