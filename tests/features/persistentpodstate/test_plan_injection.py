"""What a recreated Pod gets."""

from __future__ import annotations

from typing import Any

import pytest

from app.api import names
from app.features.persistentpodstate.commands import rows
from app.features.persistentpodstate.plan import parse_kinds
from app.features.persistentpodstate.pod_admission import BY_TARGET, STATES, PersistentPodStateStep
from app.features.persistentpodstate.types import PersistentPodState
from app.kube.admission import Operation
from app.kube.objects import ObjectMeta, Pod
from app.kube.patches import apply
from app.kube.store import Store
from app.pods.admission_draft import PodDraft
from app.pods.custom_workloads import ConfiguredList
from tests.features.persistentpodstate.states import (
    GAME,
    GAMES,
    HOST,
    OWN,
    TARGET,
    ZONE,
    Json,
    configuration,
    read,
    state,
)
from tests.kit.objects import pod_review

HERE: Json = {"web-1": {"nodeName": "n7", "nodeTopologyLabels": {ZONE: "z1", HOST: "n7"}}}
REMEMBERED = state(required=[ZONE], status=HERE)
LEAVING = {**REMEMBERED, "metadata": {**REMEMBERED["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}


def pod(name: str = "web-1", owner: Json | None = TARGET, spec: Json | None = None, **annotations: str) -> Json:
    metadata: Json = {"name": name, "annotations": annotations} if name else {"generateName": "web-"}
    if owner is not None:
        metadata["ownerReferences"] = [{**owner, "uid": "uid-web", "controller": True}]
    return {"metadata": metadata, "spec": {"containers": [{"name": "main"}], **(spec or {})}}


def created(made: Json, *states: Json, listed: str | None = None) -> Json:
    store: Store[PersistentPodState] = Store(indexes={BY_TARGET: STATES.indexes[BY_TARGET]})
    for one in states:
        store.put(read(one))
    kinds = ConfiguredList(configuration(listed), OWN, names.PPS_CUSTOM_WORKLOAD_WHITELIST_KEY, parse_kinds)
    review = pod_review(Operation.CREATE, made, namespace="ns")
    draft = PodDraft(made, "ns")
    assert PersistentPodStateStep(store, kinds)(draft, review) is None
    changed: Json = apply(draft.operations, made)
    again = PodDraft(changed, "ns")
    assert PersistentPodStateStep(store, kinds)(again, review) is None
    assert not again.operations, "D-21: a second pass changes nothing"
    return changed


def term(weight: int, **labels: str) -> Json:
    keys = {"zone": ZONE, "host": HOST}
    found = [{"key": keys[key], "operator": "In", "values": [value]} for key, value in labels.items()]
    return {"weight": weight, "preference": {"matchExpressions": found}}


def preferred(made: Json) -> list[Any]:
    found: list[Any] = made["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    return found


@pytest.mark.behaviour("PPS-31", "PPS-33", "PPS-34", "PPS-35", "PW-17")
def test_the_pod_returns_to_its_node() -> None:
    spec = {
        "nodeSelector": {"disk": "ssd"},
        "affinity": {
            "podAffinity": {},
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []},
                "preferredDuringSchedulingIgnoredDuringExecution": [term(5, zone="z9")],
            },
        },
    }
    made = created(pod(spec=spec), state(required=[ZONE], preferred=[(100, [HOST])], status=HERE))
    assert made["spec"]["nodeSelector"] == {"disk": "ssd", ZONE: "z1"}
    assert preferred(made) == [term(5, zone="z9"), term(100, host="n7")]
    assert made["spec"]["affinity"]["podAffinity"] == {}
    required = made["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert required == {"nodeSelectorTerms": []}
    assert made["metadata"]["annotations"] == {names.INJECTED_PERSISTENT_POD_STATE: "web"}


@pytest.mark.behaviour("PPS-33")
def test_required_affinity_overrides_the_template() -> None:
    made = created(pod(spec={"nodeSelector": {ZONE: "z2"}}), state(required=[ZONE, "rack"], status=HERE))
    assert made["spec"]["nodeSelector"] == {ZONE: "z1"}
    assert "affinity" not in made["spec"]


@pytest.mark.behaviour("PPS-34")
def test_an_empty_preference_is_omitted() -> None:
    made = created(pod(), state(preferred=[(3, ["rack"]), (7, [ZONE, "rack", HOST])], status=HERE))
    assert preferred(made) == [term(7, zone="z1", host="n7")]
    made = created(pod(), state(preferred=[(3, ["rack"])], status=HERE))
    assert made == pod()


@pytest.mark.behaviour("PPS-34")
def test_an_invalid_weight_is_corrected() -> None:
    """OpenKruise stores it, and the API server would refuse every Pod."""
    made = created(pod(), state(preferred=[(0, [ZONE]), (101, [HOST])], status=HERE))
    assert preferred(made) == [term(1, zone="z1"), term(100, host="n7")]


@pytest.mark.behaviour("PPS-32")
@pytest.mark.parametrize(
    ("made", "of"),
    [
        pytest.param(pod(owner=None), REMEMBERED, id="no owner"),
        pytest.param(pod(owner={**TARGET, "kind": "Deployment"}), REMEMBERED, id="no such kind"),
        pytest.param(pod(owner={**TARGET, "apiVersion": "apps/v1"}), REMEMBERED, id="the other StatefulSet"),
        pytest.param(pod("web-2"), REMEMBERED, id="no record of that name"),
        pytest.param(pod(""), REMEMBERED, id="no name"),
        pytest.param(pod(), state(required=[ZONE]), id="nothing remembered"),
        pytest.param(pod(), state(required=[ZONE], status={"web-1": {"nodeName": "n7"}}), id="no labels remembered"),
        pytest.param(pod(spec={"nodeName": "n1"}), REMEMBERED, id="already on a node"),
        pytest.param(pod(), LEAVING, id="deleted"),
    ],
)
def test_other_pods_are_unchanged(made: Json, of: Json) -> None:
    assert created(made, of) == made


@pytest.mark.behaviour("PPS-32")
def test_the_version_of_the_target_is_ignored() -> None:
    alpha = {**TARGET, "apiVersion": "apps.kruise.io/v1alpha1"}
    made = created(pod(), state(required=[ZONE], target=alpha, status=HERE))
    assert made["spec"]["nodeSelector"] == {ZONE: "z1"}


@pytest.mark.behaviour("PPS-9", "PPS-10", "PPS-32")
def test_pods_of_listed_kinds_return_too() -> None:
    game = state(required=[ZONE], target=GAME, status=HERE)
    made = created(pod(owner=GAME), game, listed=GAMES)
    assert made["spec"]["nodeSelector"] == {ZONE: "z1"}
    assert created(pod(owner=GAME), game) == pod(owner=GAME)


@pytest.mark.behaviour("PPS-37")
def test_an_unreadable_list_blocks_no_pod() -> None:
    assert created(pod(owner=GAME), state(required=[ZONE], target=GAME, status=HERE), listed="{") == pod(owner=GAME)
    made = created(pod(), REMEMBERED, listed="{")
    assert made["spec"]["nodeSelector"] == {ZONE: "z1"}


@pytest.mark.behaviour("PPS-36")
def test_annotations_are_restored_on_request() -> None:
    status = {"web-1": {"nodeName": "n7", "annotations": {"ip": "10.0.0.1", "mac": "1", "old": "x"}}}
    body = state(required=[ZONE], persistentPodAnnotations=[{"key": "ip"}, {"key": "mac"}], status=status)
    assert created(pod(mac="2"), body) == pod(mac="2")
    body["metadata"]["annotations"] = {names.RESTORE_POD_ANNOTATIONS: "true"}
    made = created(pod(mac="2"), body)
    assert made["metadata"]["annotations"] == {"mac": "2", "ip": "10.0.0.1"}


@pytest.mark.behaviour("PPS-32", "PPS-33", "PPS-34", "PPS-43")
def test_the_next_placement_is_explained() -> None:
    status = {**HERE, "web-10": {"nodeName": "n8", "nodeTopologyLabels": {ZONE: "z8"}}, "web-2": {"nodeName": "n9"}}
    one = read(state(required=[ZONE], preferred=[(1, [HOST, ZONE])], status=status))
    running = Pod(metadata=ObjectMeta(name="web-0"))
    assert rows(one, {"web-0": running}, {"n7": {ZONE: "z1"}}) == [
        ("web-0", "-", "without a node, not ready", "any node: the Pod has not been ready yet"),
        ("web-1", "n7", "gone", f"only {ZONE}=z1 (1 node); preferably {HOST}=n7, {ZONE}=z1"),
        ("web-2", "n9", "gone", "any node: no node labels are recorded"),
        (
            "web-10",
            "n8",
            "gone",
            f"only {ZONE}=z8 (no matching node: the Pod would stay pending); preferably {ZONE}=z8",
        ),
    ]
