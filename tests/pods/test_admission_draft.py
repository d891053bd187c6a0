"""Drafts of Pods: reads, the recorded patch, and the unchanged original."""

from __future__ import annotations

import copy
from typing import Any

import jsonpatch
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.kube.admission import Allowed, Patched
from app.pods.admission_draft import PodDraft

Json = dict[str, Any]


def patched(draft: PodDraft) -> Json:
    """Apply the recorded operations to the original, as an API server would."""
    operations = orjson.loads(orjson.dumps([operation.as_json() for operation in draft.operations]))
    result: Json = jsonpatch.JsonPatch(operations).apply(copy.deepcopy(draft.original))
    return result


def recorded(draft: PodDraft) -> list[tuple[str, str, str]]:
    return [(operation.op, operation.path, operation.rule) for operation in draft.operations]


@pytest.mark.behaviour("PW-6")
def test_an_unchanged_draft_is_allowed_without_a_patch() -> None:
    draft = PodDraft({"metadata": {"annotations": {"k": "v"}}, "spec": {"readinessGates": [{"conditionType": "x"}]}})
    draft.set_annotations({"k": "v"}, "r")
    draft.set_annotations({}, "r")
    draft.add_readiness_gate("x", "r")
    draft.set_image_pull_secrets([], "r")
    assert draft.operations == ()
    assert isinstance(draft.decision(), Allowed)


@pytest.mark.parametrize("empty", [{}, {"metadata": None, "spec": None}, {"metadata": {}, "spec": {}}])
def test_missing_parents_are_created(empty: Json) -> None:
    draft = PodDraft(empty)
    draft.set_name("web-0", "r")
    draft.set_annotations({"a/b": "1", "c": "2"}, "r")
    draft.set_annotations({"c": "3", "d~e": "4"}, "r")
    draft.insert_container(0, {"name": "a"}, "r")
    draft.append_env(0, {"name": "A"}, "r")
    draft.append_env(0, {"name": "B"}, "r")
    draft.add_volume({"name": "v"}, "r")
    draft.set_image_pull_secrets([{"name": "s"}], "r")
    draft.add_readiness_gate("Ready", "r")
    assert patched(draft) == {
        "metadata": {"name": "web-0", "annotations": {"a/b": "1", "c": "3", "d~e": "4"}},
        "spec": {
            "containers": [{"name": "a", "env": [{"name": "A"}, {"name": "B"}]}],
            "volumes": [{"name": "v"}],
            "imagePullSecrets": [{"name": "s"}],
            "readinessGates": [{"conditionType": "Ready"}],
        },
    }
    assert isinstance(draft.decision(), Patched)


def test_operations_are_minimal_and_cite_the_rule() -> None:
    draft = PodDraft(
        {
            "metadata": {"name": "a", "annotations": {"old": "x"}},
            "spec": {"containers": [{"name": "main", "env": [{"name": "A"}]}], "imagePullSecrets": [{"name": "r1"}]},
        }
    )
    draft.set_annotations({"old": "y", "new/key": "z"}, "R-1")
    draft.insert_container(0, {"name": "front"}, "R-2")
    draft.insert_container(9, {"name": "back"}, "R-3")
    draft.append_env(1, {"name": "B"}, "R-4")
    draft.insert_container(0, {"name": "init"}, "R-5", into="initContainers")
    draft.set_image_pull_secrets([{"name": "r1"}, {"name": "r2"}], "R-6")
    draft.set_image_pull_secrets([{"name": "r2"}], "R-7")
    assert recorded(draft) == [
        ("replace", "/metadata/annotations/old", "R-1"),
        ("add", "/metadata/annotations/new~1key", "R-1"),
        ("add", "/spec/containers/0", "R-2"),
        ("add", "/spec/containers/-", "R-3"),
        ("add", "/spec/containers/1/env/-", "R-4"),
        ("add", "/spec/initContainers", "R-5"),
        ("add", "/spec/imagePullSecrets/-", "R-6"),
        ("replace", "/spec/imagePullSecrets", "R-7"),
    ]


def test_replacing_a_container_with_an_equal_one_is_not_an_operation() -> None:
    draft = PodDraft({"spec": {"containers": [{"name": "a"}]}})
    draft.replace_container(0, {"name": "a"}, "r")
    assert draft.operations == ()
    draft.replace_container(0, {"name": "b"}, "r", rendered=orjson.Fragment(b'{"name":"b"}'))
    assert recorded(draft) == [("replace", "/spec/containers/0", "r")]
    assert patched(draft)["spec"]["containers"] == [{"name": "b"}]


def test_shared_containers_are_not_modified() -> None:
    shared = {"name": "shared", "env": [{"name": "A"}]}
    before = copy.deepcopy(shared)
    draft = PodDraft({"spec": {}})
    draft.insert_container(0, shared, "r", rendered=orjson.Fragment(orjson.dumps(shared)))
    draft.append_env(0, {"name": "B"}, "r")
    assert shared == before
    assert patched(draft)["spec"]["containers"][0]["env"] == [{"name": "A"}, {"name": "B"}]


@pytest.mark.behaviour("PW-6")
@pytest.mark.parametrize(
    ("metadata", "requested", "expected"), [({"namespace": "a"}, "b", "a"), ({}, "b", "b"), ({}, "", "default")]
)
def test_the_namespace_comes_from_the_pod_or_the_request(metadata: Json, requested: str, expected: str) -> None:
    assert PodDraft({"metadata": metadata}, requested).namespace == expected


def test_an_unnamed_pod_is_shown_by_its_prefix() -> None:
    assert PodDraft({"metadata": {"generateName": "web-"}}, "shop").display == "Pod shop/web-*"
    assert PodDraft({"metadata": {"name": "web-0"}}, "shop").display == "Pod shop/web-0"


NAMES = st.sampled_from(["a", "b", "c/d", "e~f"])
ITEM = st.builds(lambda name: {"name": name}, NAMES)
ITEMS = st.none() | st.lists(ITEM, max_size=3)
POD = st.fixed_dictionaries(
    {},
    optional={
        "metadata": st.none()
        | st.fixed_dictionaries(
            {},
            optional={"annotations": st.none() | st.dictionaries(NAMES, st.text(max_size=2)), "managedFields": ITEMS},
        ),
        "spec": st.none()
        | st.fixed_dictionaries(
            {}, optional=dict.fromkeys(("containers", "initContainers", "volumes", "imagePullSecrets"), ITEMS)
        ),
        "fieldOfTheFuture": st.just({"kept": [1]}),
    },
)
CHANGE = st.one_of(
    st.tuples(st.just("annotations"), st.dictionaries(NAMES, st.text(max_size=2), max_size=3)),
    st.tuples(st.just("insert"), st.integers(0, 4), ITEM, st.sampled_from(["containers", "initContainers"])),
    st.tuples(st.just("replace"), st.integers(0, 4), ITEM, st.sampled_from(["containers", "initContainers"])),
    st.tuples(st.just("env"), st.integers(0, 4), ITEM, st.sampled_from(["containers", "initContainers"])),
    st.tuples(st.just("volume"), ITEM),
    st.tuples(st.just("secrets"), st.lists(ITEM, max_size=3)),
    st.tuples(st.just("gate"), NAMES),
    st.tuples(st.just("name"), NAMES),
    st.tuples(st.just("managed")),
)


def change(draft: PodDraft, step: tuple[Any, ...]) -> None:
    match step:
        case ("annotations", values):
            draft.set_annotations(values, "r")
        case ("insert", index, item, into):
            draft.insert_container(index, item, "r", into=into)
        case ("replace" | "env" as what, index, item, into):
            present = draft.containers if into == "containers" else draft.init_containers
            if index < len(present):
                (draft.replace_container if what == "replace" else draft.append_env)(index, item, "r", into=into)
        case ("volume", item):
            draft.add_volume(item, "r")
        case ("secrets", items):
            draft.set_image_pull_secrets(items, "r")
        case ("gate", name):
            draft.add_readiness_gate(name, "r")
        case ("name", name):
            draft.set_name(name, "r")
        case ("managed",):
            draft.remove_managed_fields("r")


@pytest.mark.behaviour("PW-30")
@given(pod=POD, changes=st.lists(CHANGE, max_size=8))
def test_the_patch_matches_the_draft_and_the_original_is_unchanged(pod: Json, changes: list[tuple[Any, ...]]) -> None:
    before = copy.deepcopy(pod)
    draft = PodDraft(pod)
    for step in changes:
        change(draft, step)
    assert pod == before
    result = patched(draft)
    assert result.get("fieldOfTheFuture") == before.get("fieldOfTheFuture")
    metadata, spec = result.get("metadata") or {}, result.get("spec") or {}
    assert draft.name == (metadata.get("name") or "")
    assert dict(draft.annotations) == (metadata.get("annotations") or {})
    assert ("managedFields" in draft.metadata) is ("managedFields" in metadata)
    for shown, field in (
        (draft.containers, "containers"),
        (draft.init_containers, "initContainers"),
        (draft.volumes, "volumes"),
        (draft.image_pull_secrets, "imagePullSecrets"),
        (draft.readiness_gates, "readinessGates"),
    ):
        assert list(shown) == (spec.get(field) or [])
