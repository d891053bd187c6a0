"""Conversion of CloneSets between their versions, beyond the recorded answers."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.api.conversion import convert
from app.features.cloneset.kind import canonical_v1alpha1
from tests.nightly import examples

Json = dict[str, Any]
ALPHA, BETA = "apps.kruise.io/v1alpha1", "apps.kruise.io/v1beta1"
EXCLUDE = "apps.kruise.io/cloneset-scaling-exclude-preparing-delete"
PULL = "apps.kruise.io/image-predownload-"
NOTES = "kruise.io/conversion-data"


def obj(version: str, *, metadata: Json | None = None, **spec: Any) -> Json:
    whole = {"selector": {"matchLabels": {"a": "b"}}, "template": {"spec": {"containers": []}}, **spec}
    return {"apiVersion": version, "kind": "CloneSet", "metadata": {"name": "c", **(metadata or {})}, "spec": whole}


def up(*, metadata: Json | None = None, **spec: Any) -> Json:
    return convert(obj(ALPHA, metadata=metadata, **spec), BETA)


def down(*, metadata: Json | None = None, **spec: Any) -> Json:
    return convert(obj(BETA, metadata=metadata, **spec), ALPHA)


@pytest.mark.behaviour("CS-6", "CS-7")
@pytest.mark.parametrize(("flat", "nested"), [
    ({"type": "Bad"}, {"type": "RollingUpdate", "rollingUpdate": {"podUpdatePolicy": "ReCreate"}}),
    ({"type": "OnDelete"}, {"type": "OnDelete"}),
    ({"type": "OnDelete", "partition": 2}, {"type": "OnDelete", "rollingUpdate": {"partition": 2}}),
])  # fmt: skip
def test_update_types_become_pod_update_policies_in_v1beta1(flat: Json, nested: Json) -> None:
    assert up(updateStrategy=flat)["spec"]["updateStrategy"] == nested


@pytest.mark.behaviour("CS-7")
@pytest.mark.parametrize(("nested", "flat"), [
    ({"type": "RollingUpdate", "rollingUpdate": {"podUpdatePolicy": "Bad"}}, {"type": "ReCreate"}),
    ({"type": "OnDelete", "rollingUpdate": {"partition": 1}}, {"type": "OnDelete", "partition": 1}),
])  # fmt: skip
def test_pod_update_policies_become_update_types_in_v1alpha1(nested: Json, flat: Json) -> None:
    assert down(updateStrategy=nested)["spec"]["updateStrategy"] == flat


@pytest.mark.behaviour("CS-9")
def test_excluding_pods_that_prepare_deletion_is_a_label_in_v1alpha1() -> None:
    assert up(metadata={"labels": {EXCLUDE: "true"}})["spec"]["scaleStrategy"]["excludePreparingDelete"] is True
    assert "excludePreparingDelete" not in up(metadata={"labels": {EXCLUDE: "yes"}})["spec"]["scaleStrategy"]
    shown = down(scaleStrategy={"enablePVCReuse": False, "excludePreparingDelete": True})
    assert shown["metadata"]["labels"] == {EXCLUDE: "true"}
    # An edit in v1alpha1 does not lose it.
    shown["spec"]["replicas"] = 7
    assert convert(shown, BETA)["spec"]["scaleStrategy"]["excludePreparingDelete"] is True
    # Removed there, it is removed here.
    del shown["metadata"]["labels"]
    assert "excludePreparingDelete" not in convert(shown, BETA)["spec"]["scaleStrategy"]


@pytest.mark.behaviour("CS-10", "CS-11")
def test_predownload_settings_are_annotations_in_v1alpha1() -> None:
    annotations = {f"{PULL}parallelism": "4", f"{PULL}timeout-seconds": "60", f"{PULL}min-updated-ready-pods": "30%"}
    rolling = up(metadata={"annotations": annotations})["spec"]["updateStrategy"]["rollingUpdate"]
    # A percentage stays in the annotation, because the field cannot hold it.
    wanted = {"imagePreDownloadParallelism": 4, "imagePreDownloadTimeoutSeconds": 60}
    assert rolling["inPlaceUpdateStrategy"] == wanted
    in_place = {"gracePeriodSeconds": 5, "imagePreDownloadParallelism": "8"}
    shown = down(updateStrategy={"type": "RollingUpdate", "rollingUpdate": {"inPlaceUpdateStrategy": in_place}})
    assert shown["metadata"]["annotations"][f"{PULL}parallelism"] == "8"
    assert shown["spec"]["updateStrategy"]["inPlaceUpdateStrategy"] == {"gracePeriodSeconds": 5}
    shown["metadata"]["annotations"][f"{PULL}parallelism"] = "9"
    again = convert(shown, BETA)["spec"]["updateStrategy"]["rollingUpdate"]["inPlaceUpdateStrategy"]
    assert again == {"gracePeriodSeconds": 5, "imagePreDownloadParallelism": 9}


@pytest.mark.behaviour("CS-10")
def test_predownload_fields_in_v1alpha1_have_no_effect() -> None:
    in_place = {"gracePeriodSeconds": 5, "imagePreDownloadParallelism": 4, "imagePreDownloadTimeoutSeconds": 60}
    given = {"type": "InPlaceOnly", "inPlaceUpdateStrategy": in_place}
    beta = up(metadata={"annotations": {f"{PULL}parallelism": "2"}}, updateStrategy=given)
    stored = beta["spec"]["updateStrategy"]["rollingUpdate"]["inPlaceUpdateStrategy"]
    assert stored == {"gracePeriodSeconds": 5, "imagePreDownloadParallelism": 2}
    back = convert(beta, ALPHA)
    assert back["spec"]["updateStrategy"]["inPlaceUpdateStrategy"] == {"gracePeriodSeconds": 5}
    assert back["metadata"]["annotations"] == {f"{PULL}parallelism": "2"}


@pytest.mark.behaviour("CS-8")
@pytest.mark.parametrize(("scale", "shown"), [
    ({}, {"disablePVCReuse": True}),
    ({"enablePVCReuse": None}, {"disablePVCReuse": True}),
    ({"enablePVCReuse": False}, {"disablePVCReuse": True}),
    ({"enablePVCReuse": True}, {}),
    ({"enablePVCReuse": True, "maxUnavailable": 1}, {"maxUnavailable": 1}),
])  # fmt: skip
def test_claim_reuse_is_inverted_in_v1alpha1(scale: Json, shown: Json) -> None:
    assert down(scaleStrategy=scale)["spec"]["scaleStrategy"] == shown


@pytest.mark.behaviour("CS-11", "CS-14")
def test_an_empty_block_is_not_noted() -> None:
    rolling = {"podUpdatePolicy": "InPlaceOnly", "inPlaceUpdateStrategy": {}}
    shown = down(
        updateStrategy={"type": "RollingUpdate", "rollingUpdate": rolling}, scaleStrategy={"enablePVCReuse": False}
    )
    assert shown["spec"]["updateStrategy"] == {"type": "InPlaceOnly"}
    assert NOTES not in shown["metadata"].get("annotations", {})


@pytest.mark.behaviour("CS-14")
@pytest.mark.parametrize(("in_place", "shown"), [
    ({"gracePeriodSeconds": None}, None),
    ({"gracePeriodSeconds": 0, "markPodNotReady": True}, {"gracePeriodSeconds": 0, "markPodNotReady": True}),
    ({"gracePeriodSeconds": 5}, {"gracePeriodSeconds": 5}),
])  # fmt: skip
def test_a_block_without_values_is_hidden_in_v1alpha1(in_place: Json, shown: Json | None) -> None:
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"inPlaceUpdateStrategy": in_place}}
    assert down(updateStrategy=strategy)["spec"]["updateStrategy"].get("inPlaceUpdateStrategy") == shown


# --- Nothing is lost

TEXT = st.sampled_from(["", "a", "true", "4", "04", "30%", "-1", "x y", "9999999999"])
COUNT = st.one_of(st.integers(-3, 30), st.sampled_from(["10%", "x", "-1%", "12.5%"]))
ROLLING: dict[str, st.SearchStrategy[Any]] = {
    "partition": COUNT,
    "maxUnavailable": COUNT,
    "maxSurge": COUNT,
    "paused": st.booleans(),
    "priorityStrategy": st.just({"orderPriority": [{"orderedKey": "k"}]}),
    "scatterStrategy": st.just([{"key": "k", "value": "v"}]),
}
METADATA = st.fixed_dictionaries(
    {"name": st.just("c")},
    optional={
        "labels": st.dictionaries(st.sampled_from([EXCLUDE, "app"]), st.sampled_from(["true", "false", "web"])),
        "annotations": st.dictionaries(
            st.sampled_from([f"{PULL}parallelism", f"{PULL}timeout-seconds", f"{PULL}min-updated-ready-pods", "note"]),
            TEXT,
        ),
    },
)
POLICY = st.sampled_from(["", "ReCreate", "InPlaceIfPossible", "InPlaceOnly", "Bad"])
SCALE: dict[str, st.SearchStrategy[Any]] = {
    "podsToDelete": st.lists(st.sampled_from(["p", "q"])),
    "maxUnavailable": COUNT,
}
COMMON: dict[str, st.SearchStrategy[Any]] = {
    "replicas": st.integers(0, 9),
    "minReadySeconds": st.integers(0, 9),
    "lifecycle": st.just({"preDelete": {"labelsHandler": {"a": "b"}}}),
    "newer": st.just({"field": 1}),
}
IN_PLACE = st.fixed_dictionaries(
    {},
    optional={
        "gracePeriodSeconds": st.integers(-1, 9),
        "imagePreDownloadParallelism": COUNT,
        "imagePreDownloadTimeoutSeconds": st.integers(-1, 9),
        "imagePreDownloadMinUpdatedReadyPods": st.integers(-1, 9),
    },
)
ROLLING["inPlaceUpdateStrategy"] = IN_PLACE
FLAT = st.fixed_dictionaries({}, optional={"type": st.one_of(POLICY, st.just("OnDelete")), **ROLLING})
NESTED = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["", "RollingUpdate", "OnDelete", "Bad"]),
        "rollingUpdate": st.fixed_dictionaries({}, optional={"podUpdatePolicy": POLICY, **ROLLING}),
    },
)


def specs(scale: dict[str, st.SearchStrategy[Any]], strategy: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
    optional = {
        **COMMON,
        "scaleStrategy": st.fixed_dictionaries({}, optional={**SCALE, **scale}),
        "updateStrategy": strategy,
    }
    return st.fixed_dictionaries({"selector": st.just({}), "template": st.just({})}, optional=optional)


def objects_in(version: str, spec: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
    fields = {"apiVersion": st.just(version), "kind": st.just("CloneSet"), "metadata": METADATA, "spec": spec}
    return st.fixed_dictionaries(fields)


ALPHAS = objects_in(ALPHA, specs({"disablePVCReuse": st.booleans()}, FLAT))
BETAS = objects_in(BETA, specs({"enablePVCReuse": st.booleans(), "excludePreparingDelete": st.booleans()}, NESTED))


def without_empty_maps(given: Json) -> Json:
    """Labels and annotations that hold nothing are the same as none; what conversion notes for itself is nothing."""
    given["metadata"].get("annotations", {}).pop(NOTES, None)
    for field in ("labels", "annotations"):
        if given["metadata"].get(field) == {}:
            del given["metadata"][field]
    return given


@pytest.mark.behaviour("CS-5", "MGR-50")
@settings(max_examples=examples(400), deadline=None)
@given(ALPHAS)
def test_a_v1alpha1_object_survives_a_round_trip(given: Json) -> None:
    before = copy.deepcopy(given)
    back = convert(convert(given, BETA), ALPHA)
    assert given == before
    assert without_empty_maps(canonical_v1alpha1(back)) == without_empty_maps(canonical_v1alpha1(before))


@pytest.mark.behaviour("CS-5", "MGR-50")
@settings(max_examples=examples(400), deadline=None)
@given(BETAS)
def test_a_v1beta1_object_survives_a_round_trip(given: Json) -> None:
    before = copy.deepcopy(given)
    back = convert(convert(given, ALPHA), BETA)
    assert given == before
    assert without_empty_maps(back) == without_empty_maps(before)


@pytest.mark.behaviour("MGR-50")
@settings(max_examples=examples(200), deadline=None)
@given(BETAS, st.integers(10, 99))
def test_an_edit_in_v1alpha1_changes_only_its_field_in_v1beta1(given: Json, replicas: int) -> None:
    shown = convert(given, ALPHA)
    shown["spec"]["replicas"] = replicas
    after = convert(shown, BETA)
    assert after["spec"].pop("replicas") == replicas
    given["spec"].pop("replicas", None)
    assert without_empty_maps(after) == without_empty_maps(given)
