"""The pure half: targets, copies, conditions."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.features.resourcedistribution.plan import (
    FIELD_MANAGER,
    Failure,
    TargetRule,
    Template,
    TemplateError,
    newly_failed,
    status_of,
    status_patch,
    update_patch,
)
from app.features.resourcedistribution.types import DistributionTargets
from app.kube.patches import merge_patch

Json = dict[str, Any]
EXISTING = {"a": {"team": "x"}, "b": {"team": "y"}, "kube-system": {"team": "x"}, "kube-public": {}, "default": {}}
NOW = "2026-01-02T03:04:05Z"
TYPES = [
    "GetResourceFailed",
    "CreateResourceFailed",
    "UpdateResourceFailed",
    "DeleteResourceFailed",
    "ConflictOccurred",
    "NamespaceNotExists",
]


@pytest.mark.behaviour("RD-20", "RD-21", "RD-22")
@pytest.mark.parametrize(
    ("targets", "wanted"),
    [
        pytest.param({}, [], id="nothing"),
        pytest.param({"allNamespaces": True}, ["a", "b", "default"], id="all but the system namespaces"),
        pytest.param({"namespaceSelector": {}}, [], id="an empty selector selects none"),
        pytest.param({"namespaceSelector": {"matchLabels": {"team": "x"}}}, ["a"], id="selected"),
        pytest.param({"includedNamespaces": {"list": [{"name": "none"}]}}, ["none"], id="a missing namespace"),
        pytest.param(
            {"allNamespaces": True, "includedNamespaces": {"list": [{"name": "none"}]}},
            ["a", "b", "default"],
            id="all existing namespaces",
        ),
        pytest.param({"includedNamespaces": {"list": [{"name": "kube-system"}]}}, [], id="never a system namespace"),
        pytest.param(
            {"allNamespaces": True, "excludedNamespaces": {"list": [{"name": "a"}]}}, ["b", "default"], id="excluded"
        ),
    ],
)
def test_targets_select_namespaces(targets: Json, wanted: list[str]) -> None:
    rule = TargetRule.of(DistributionTargets.model_validate(targets))
    assert rule.namespaces(EXISTING) == wanted
    assert [name for name, labels in sorted(EXISTING.items()) if rule.matches(name, labels)] == [
        name for name in wanted if name in EXISTING
    ]


def template(**members: Any) -> Template:
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, **members}
    return Template.of("rd", "uid-1", manifest)


def test_the_hash_matches_the_recording() -> None:
    digest = template(data={"a": "1"}, metadata={"name": "shared-settings"}).digest
    assert digest == "554f2d37ea5a4a0036acf209af21453748d3f56bd79bf6956553032b7b77bc85"


@pytest.mark.parametrize(
    "members",
    [{"kind": "Pod"}, {"metadata": None}, {"metadata": {"name": ""}}, {"apiVersion": 1, "kind": [], "metadata": "x"}],
)
def test_invalid_resources_are_refused(members: Json) -> None:
    with pytest.raises(TemplateError):
        template(**members)


@pytest.mark.behaviour("RD-74")
def test_copies_omit_server_side_fields() -> None:
    metadata = {"name": "settings", "namespace": "x", "uid": "1", "resourceVersion": "5", "ownerReferences": [{}]}
    copy = template(metadata=metadata).copy("a")
    assert set(copy["metadata"]) == {"name", "namespace", "annotations", "ownerReferences"}
    assert copy["metadata"]["namespace"] == "a"
    assert [one["uid"] for one in copy["metadata"]["ownerReferences"]] == ["uid-1"]


_contents = st.fixed_dictionaries(
    {},
    optional={
        "data": st.dictionaries(st.sampled_from("abc"), st.text(max_size=2), max_size=3),
        "binaryData": st.dictionaries(st.sampled_from("abc"), st.just("dg=="), max_size=2),
        "immutable": st.booleans(),
    },
)
_labels = st.dictionaries(st.sampled_from("xyz"), st.sampled_from("12"), max_size=3)


@given(_contents, _labels, _contents, _labels, _labels)
def test_the_patch_turns_any_copy_into_the_desired_one(
    content: Json, labels: Json, before: Json, ours: Json, theirs: Json
) -> None:
    wanted = template(metadata={"name": "settings", "labels": labels}, **content)
    managed = {"manager": FIELD_MANAGER, "fieldsV1": {"f:metadata": {"f:labels": {f"f:{key}": {} for key in ours}}}}
    metadata = {"name": "settings", "labels": {**theirs, **ours}, "managedFields": [managed]}
    metadata["ownerReferences"] = [wanted.controller.reference]
    copy = {"metadata": metadata, **before}
    after = merge_patch(copy, update_patch(wanted, copy))
    assert update_patch(wanted, after) == {}
    kept = {key: value for key, value in theirs.items() if key not in ours and key not in labels}
    assert after["metadata"].get("labels", {}) == {**kept, **labels}
    for field in ("data", "binaryData"):
        assert (after.get(field) or {}) == (content.get(field) or {})


@pytest.mark.behaviour("RD-51", "RD-53", "RD-75")
def test_conditions_keep_their_time_while_their_status_is_unchanged() -> None:
    present = {
        "conditions": [
            {"type": type_, "status": "False", "lastTransitionTime": "2020-01-01T00:00:00Z", "reason": "Succeeded"}
            for type_ in reversed(TYPES)
        ]
    }
    found = status_of(["a", "b"], [Failure("b", "ConflictOccurred", "no")], present, 3, NOW)
    assert (found["desired"], found["succeeded"], found["failed"], found["observedGeneration"]) == (2, 1, 1, 3)
    assert [one["type"] for one in found["conditions"]] == TYPES
    times = {one["type"]: one["lastTransitionTime"] for one in found["conditions"]}
    assert times.pop("ConflictOccurred") == NOW
    assert set(times.values()) == {"2020-01-01T00:00:00Z"}
    assert newly_failed(found, present) == ["ConflictOccurred"]
    assert newly_failed(found, found) == []
    assert status_patch(found, found) == {}


@pytest.mark.behaviour("RD-50")
def test_a_failed_cleanup_does_not_count_as_a_target() -> None:
    found = status_of(["a"], [Failure("gone", "DeleteResourceFailed", "no")], {}, 1, NOW)
    assert (found["succeeded"], found.get("failed", 0)) == (1, 0)


def test_conditions_of_any_shape_are_tolerated() -> None:
    for conditions in (None, "x", [1, {}, {"type": 5}], {}):
        assert len(status_of([], [], {"conditions": conditions}, 1, NOW)["conditions"]) == 6
