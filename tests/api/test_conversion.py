"""Conversion is lossless in both directions, and edits of the other version win."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.api import kind as api_kind
from app.api import structural
from app.api.conversion import ConversionError, convert
from app.api.kind import ANY_KEY, KindDefinition, Version, find_kind
from app.api.model import ApiModel, KubeObject
from app.api.schema import Int32
from app.manager.features import kinds
from tests import openkruise

ALPHA, BETA = "apps.kruise.io/v1alpha1", "apps.kruise.io/v1beta1"
CUSTOM = "apps.kruise.io/sidecarset-custom-version"
NOTES = "kruise.io/conversion-data"
DERIVED = {"matchLabels": {"kubernetes.io/metadata.name": "shop"}}
CHOSEN = {"matchLabels": {"a": "b"}}


def obj(version: str, spec: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": version,
        "kind": "SidecarSet",
        "metadata": {"name": "s", "uid": "u", "resourceVersion": "7", **metadata},
        "spec": spec,
    }


def other(version: str) -> str:
    return BETA if version == ALPHA else ALPHA


def up(**spec: Any) -> dict[str, Any]:
    return convert(obj(ALPHA, spec), BETA)


@pytest.mark.behaviour("SS-1")
@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ({"namespace": "shop"}, {"namespaceSelector": DERIVED}),
        ({"namespace": "shop", "namespaceSelector": CHOSEN}, {"namespaceSelector": DERIVED}),
        ({"namespaceSelector": CHOSEN}, {"namespaceSelector": CHOSEN}),
        ({"namespace": ""}, {}),
    ],
)
def test_a_namespace_becomes_a_selector_and_takes_precedence(given: dict[str, Any], stored: dict[str, Any]) -> None:
    assert up(**given)["spec"] == stored


@pytest.mark.behaviour("SS-1")
def test_a_selector_appears_unchanged_in_v1alpha1() -> None:
    assert convert(obj(BETA, {"namespaceSelector": DERIVED}), ALPHA)["spec"] == {"namespaceSelector": DERIVED}


@pytest.mark.behaviour("SS-2")
def test_the_custom_version_is_a_label_in_v1alpha1_and_a_field_in_v1beta1() -> None:
    stored = convert(obj(ALPHA, {}, labels={CUSTOM: "v1", "team": "mesh"}), BETA)
    assert stored["spec"] == {"customVersion": "v1"}
    assert stored["metadata"]["labels"] == {"team": "mesh"}
    assert convert(stored, ALPHA)["metadata"]["labels"] == {"team": "mesh", CUSTOM: "v1"}
    assert convert(stored, ALPHA)["spec"] == {}


@pytest.mark.behaviour("SS-4")
@pytest.mark.parametrize("now", [None, {"selector": {}}])
def test_an_object_created_by_a_conversion_disappears_with_its_field(now: Any) -> None:
    stored = obj(BETA, {}, labels={CUSTOM: "v1"})
    del stored["spec"]
    seen = convert(stored, ALPHA)
    assert "spec" not in seen
    if now is not None:
        seen["spec"] = now
    assert convert(seen, BETA).get("spec") == now


@pytest.mark.behaviour("SS-3")
def test_everything_else_maps_one_to_one() -> None:
    spec = {"containers": [{"name": "a", "new": 1}], "updateStrategy": {"partition": "5%"}, "x": [None]}
    status = {"matchedPods": 1, "updatedPods": 1, "readyPods": 0}
    assert convert(obj(BETA, spec) | {"status": status}, ALPHA) == obj(ALPHA, spec) | {"status": status}


@pytest.mark.behaviour("SS-4")
def test_the_namespace_is_restored_and_dropping_it_widens_the_scope() -> None:
    stored = up(namespace="shop")
    seen = convert(stored, ALPHA)
    assert seen["spec"] == {"namespace": "shop"}
    assert "annotations" not in seen["metadata"]
    # As kubectl apply does for a manifest without the field.
    applied = copy.deepcopy(seen)
    del applied["spec"]["namespace"]
    widened = convert(applied, BETA)
    assert widened["spec"] == {}
    assert "annotations" not in widened["metadata"]


@pytest.mark.behaviour("SS-4")
def test_a_scope_changed_in_v1beta1_overrides_the_noted_namespace() -> None:
    stored = up(namespace="shop", namespaceSelector=CHOSEN)
    stored["spec"]["namespaceSelector"] = {"matchLabels": {"env": "prod"}}
    assert convert(stored, ALPHA)["spec"] == {"namespaceSelector": {"matchLabels": {"env": "prod"}}}
    del stored["spec"]["namespaceSelector"]
    assert convert(stored, ALPHA)["spec"] == {}


@pytest.mark.behaviour("SS-A")
def test_a_custom_version_that_is_not_a_valid_label_is_kept_but_hidden_in_v1alpha1() -> None:
    stored = obj(BETA, {"customVersion": "not a label!"})
    seen = convert(stored, ALPHA)
    assert CUSTOM not in seen["metadata"].get("labels", {})
    assert convert(seen, BETA) == stored
    seen["metadata"]["labels"] = {CUSTOM: "v2"}
    assert convert(seen, BETA)["spec"] == {"customVersion": "v2"}


@pytest.mark.behaviour("SS-B")
def test_the_custom_version_label_is_ordinary_in_v1beta1_and_hidden_by_the_field_in_v1alpha1() -> None:
    stored = obj(BETA, {"customVersion": "v2"}, labels={CUSTOM: "v1"})
    seen = convert(stored, ALPHA)
    assert seen["metadata"]["labels"] == {CUSTOM: "v2"}
    assert convert(seen, BETA) == stored
    labeled = obj(BETA, {}, labels={CUSTOM: "v1"})
    assert convert(labeled, ALPHA)["metadata"]["labels"] == {CUSTOM: "v1"}
    assert convert(convert(labeled, ALPHA), BETA) == labeled


@pytest.mark.behaviour("SS-3")
def test_a_pull_secret_without_a_name_is_converted_as_in_openkruise() -> None:
    stored = obj(BETA, {"imagePullSecrets": [{"name": ""}, {"name": "x"}]})
    seen = obj(ALPHA, {"imagePullSecrets": [{}, {"name": "x"}]})
    assert convert(stored, ALPHA) == seen
    assert convert(seen, BETA) == stored
    written = obj(ALPHA, {"imagePullSecrets": [{"name": ""}, {"name": "x"}]})
    assert convert(written, BETA) == stored


NAMES = st.sampled_from(["a", "b", "kubernetes.io/metadata.name"])
SELECTORS = st.fixed_dictionaries({}, optional={"matchLabels": st.dictionaries(NAMES, st.sampled_from(["x", "shop"]))})
SPECS = st.fixed_dictionaries(
    {},
    optional={
        "namespace": st.sampled_from(["", "shop", "Bad_"]),
        "namespaceSelector": SELECTORS,
        "customVersion": st.sampled_from(["", "v1", "v2", "not a label!"]),
        "selector": SELECTORS,
        "containers": st.lists(st.fixed_dictionaries({"name": NAMES}), max_size=2),
        "future": st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(), lambda s: st.lists(s, max_size=2)
        ),
    },
)
LABELS = st.dictionaries(st.sampled_from([CUSTOM, "team"]), st.sampled_from(["", "v1", "v2"]), min_size=1)
METADATA = st.fixed_dictionaries(
    {}, optional={"labels": LABELS, "annotations": st.dictionaries(NAMES, st.text(), min_size=1)}
)


@pytest.mark.behaviour("SS-4")
@given(st.sampled_from([ALPHA, BETA]), SPECS, METADATA)
def test_a_round_trip_restores_the_object(version: str, spec: dict[str, Any], metadata: dict[str, Any]) -> None:
    # The API server prunes fields that the version does not have.
    spec.pop("namespace" if version == BETA else "customVersion", None)
    original = obj(version, spec, **metadata)
    before = copy.deepcopy(original)
    there = convert(original, other(version))
    assert original == before
    assert there["apiVersion"] == other(version)
    kept = {key: value for key, value in there["metadata"].items() if key not in ("labels", "annotations")}
    assert kept == {"name": "s", "uid": "u", "resourceVersion": "7"}
    back = convert(there, version)
    assert back == original
    # Unnecessary notes are removed.
    assert convert(back, other(version)) == there


@given(SPECS, METADATA, st.sampled_from(["namespace", "namespaceSelector", "customVersion", "selector"]))
def test_an_edit_in_one_version_reaches_the_other(spec: dict[str, Any], metadata: dict[str, Any], field: str) -> None:
    seen = convert(obj(BETA, spec, **metadata), ALPHA)
    if field == "customVersion":
        seen["metadata"].setdefault("labels", {})[CUSTOM] = "v9"
        assert convert(seen, BETA)["spec"]["customVersion"] == "v9"
    elif field == "namespace":
        seen["spec"]["namespace"] = "edited"
        wanted = {"matchLabels": {"kubernetes.io/metadata.name": "edited"}}
        assert convert(seen, BETA)["spec"]["namespaceSelector"] == wanted
    else:
        seen["spec"].pop("namespace", None)
        seen["spec"][field] = {"matchLabels": {"edited": "yes"}}
        assert convert(seen, BETA)["spec"][field] == {"matchLabels": {"edited": "yes"}}


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", '{"version":"v1alpha1"}', '{"version":"v1alpha1","changes":[[{"path":[1]}]]}',
     '{"version":"v1alpha1","changes":[[{"path":[]}]]}', '{"version":"v1alpha1","changes":"x"}',
     '{"version":"v1beta1","changes":[[{"path":["spec","a"],"value":1}]]}',
     '{"version":"v1alpha1","changes":[[{"path":["metadata","uid"],"shown":"u","value":"other"}]]}',
     '{"version":"v1alpha1","changes":[[{"path":["metadata"],"value":{}}]]}',
     '{"version":"v1alpha1","changes":[[{"path":["kind"],"shown":"SidecarSet","value":"Pod"}]]}',
     '{"version":"v1alpha1","changes":[[{"path":["metadata","labels","x"],"value":"not a label!"}]]}',
     '{"version":"v1alpha1","changes":[[{"path":["metadata","labels"],"value":{"x":1}}]]}',
     '{"version":"v1alpha1","changes":[[{"path":["metadata","labels",{"name":"x"}],"value":"y"}]]}',
     '{"version":"v1alpha1","changes":[[{"path":["metadata","annotations","a","b"],"value":"y"}]]}',
     '{"version":"v1alpha1","changes":[[{"path":["metadata",{"name":"x"}],"value":"y"}]]}',
     "[" * 100000],
)  # fmt: skip
def test_garbage_in_the_reserved_annotation_does_no_harm(text: str) -> None:
    stored = obj(BETA, {"selector": {}}, annotations={NOTES: text, "mine": "kept"})
    assert convert(stored, ALPHA) == obj(ALPHA, {"selector": {}}, annotations={"mine": "kept"})


@pytest.mark.parametrize(
    "obj",
    [
        obj
        for obj in openkruise.recorded()
        # Reading the last two fills in empty objects.
        if find_kind(obj["apiVersion"], obj["kind"]) and obj["kind"] not in ("UnitedDeployment", "ResourceDistribution")
    ],
    ids=lambda obj: f"{obj['kind']} {obj['metadata']['name']}",
)
def test_recorded_objects_are_read_and_converted_without_loss(obj: dict[str, Any]) -> None:
    kind = find_kind(obj["apiVersion"], obj["kind"])
    version = kind.version(obj["apiVersion"])
    assert structural.validate(version.schema, obj) == []
    assert version.model.model_validate_json(json.dumps(obj)).to_dict() == obj
    for to in (one for one in kind.versions if one is not version):
        assert convert(convert(obj, f"{kind.group}/{to.name}"), obj["apiVersion"]) == obj


def schemas_at(schema: Any, path: tuple[str, ...]) -> list[Any]:
    """Return the schemas at a path; any key selects the values of a map or the items of a list."""
    found = [schema]
    for step in path:
        parts = ("additionalProperties", "items") if step == ANY_KEY else ("properties",)
        inner = [one.get(part) for one in found for part in parts if isinstance(one, dict)]
        found = [one if step == ANY_KEY else one.get(step) for one in inner if one]
    return [one for one in found if one]


@pytest.mark.parametrize("kind", [kind for kind in kinds() if len(kind.versions) > 1], ids=lambda kind: kind.kind)
def test_notes_restore_only_fields_of_the_version_and_none_of_a_pod(kind: KindDefinition) -> None:
    for version in kind.versions:
        for field in version.notes:
            assert field.path[0] == "metadata" or schemas_at(version.schema, field.path), field
            assert field.path[:3] not in (("spec", "template", "spec"), ("spec", "template", "metadata"))


def noted(version: str, *changes: dict[str, Any]) -> dict[str, str]:
    return {NOTES: json.dumps({"version": version, "changes": [[change] for change in changes]})}


@pytest.mark.behaviour("MGR-151")
@pytest.mark.parametrize(
    "change",
    [
        {"path": ["spec", "replicas"], "shown": 1, "value": "not a number"},
        {"path": ["spec", "template", "spec", "hostNetwork"], "value": True},
        {"path": ["spec", "template", "spec", "containers", {"name": "a"}, "image"], "shown": "i", "value": "evil"},
        {"path": ["metadata", "labels", "policy.kruise.io/delete-protection"], "shown": "Always"},
        {"path": ["spec", "updateStrategy"], "shown": {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}},
        {"path": ["spec", "updateStrategy", "type"], "shown": "RollingUpdate", "value": "OnDelete"},
        {"path": ["spec", "scaleStrategy", "excludePreparingDelete"], "value": "x"},
        {"path": ["spec", "updateStrategy", "type"], "shown": "RollingUpdate", "value": "x" * 2000},
    ],
    ids=["type", "new field", "item", "label", "parent", "shown", "listed, type", "listed, size"],
)
def test_a_handwritten_note_restores_only_fields_the_other_version_lacks(change: dict[str, Any]) -> None:
    spec = {"containers": [{"name": "a", "image": "i"}]}
    given = {
        "apiVersion": ALPHA,
        "kind": "CloneSet",
        "metadata": {"name": "c", "labels": {"policy.kruise.io/delete-protection": "Always"}},
        "spec": {"replicas": 1, "template": {"spec": spec}, "updateStrategy": {"type": "ReCreate", "partition": 1}},
    }
    plain = convert(given, BETA)
    given["metadata"] |= {"annotations": noted("v1beta1", change)}
    assert convert(given, BETA) == plain


@pytest.mark.behaviour("MGR-50")
@pytest.mark.parametrize(
    ("asked", "version", "message"),
    [
        (obj(BETA, {}), BETA, r"^conversion is not allowed between same type \*v1beta1.SidecarSet$"),
        (
            obj(BETA, {}),
            "apps.kruise.io/v2",
            r'"SidecarSet" is registered for version "apps.kruise.io/v2"; served versions are ',
        ),
        ({"apiVersion": "v1", "kind": "Pod"}, BETA, r'no kind "Pod" is registered for version "v1"'),
        ({"kind": "SidecarSet"}, BETA, r"apiVersion and kind: are required"),
        (obj(BETA, {}) | {"spec": "x"}, ALPHA, r"^SidecarSet s: spec: expected an object$"),
        (obj(BETA, {}, labels=[]), ALPHA, r"^SidecarSet s: metadata.labels: expected an object$"),
    ],
)
def test_conversion_errors_name_the_object_or_the_version(asked: dict[str, Any], version: str, message: str) -> None:
    with pytest.raises(ConversionError, match=message):
        convert(asked, version)


# --- A kind for these tests: in a list, fields that only the newer version has, and a third version.


class Part(ApiModel):
    name: str
    level: Int32 = 0


class ThingSpec(ApiModel):
    parts: list[Part] | None = None


class Thing(KubeObject):
    """A thing."""

    spec: ThingSpec


def _drop_level(data: dict[str, Any]) -> dict[str, Any]:
    for part in data.get("spec", {}).get("parts") or []:
        part.pop("level", None)
    return data


def _same(data: dict[str, Any]) -> dict[str, Any]:
    return data


THING = KindDefinition(
    "test.kruise.io",
    "Thing",
    "things",
    (
        Version("v1beta1", Thing, notes=api_kind.noted("spec", "parts", ANY_KEY, fields=("level",), count=3)),
        Version("v1alpha1", Thing, to_hub=_same, from_hub=_drop_level),
        Version("v1alpha2", Thing, to_hub=_same, from_hub=_same),
    ),
)


@pytest.fixture
def thing(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr("app.api.kind._KINDS", {(THING.group, THING.kind): THING})
    parts = [{"name": "a", "level": 1}, {"name": "b", "level": 2}, {"name": "c"}]
    return {"apiVersion": "test.kruise.io/v1beta1", "kind": "Thing", "metadata": {}, "spec": {"parts": parts}}


def test_a_field_in_a_list_is_restored_by_item_name(thing: dict[str, Any]) -> None:
    old = convert(thing, "test.kruise.io/v1alpha1")
    assert old["spec"]["parts"] == [{"name": "a"}, {"name": "b"}, {"name": "c"}]
    assert convert(old, "test.kruise.io/v1beta1") == thing
    old["spec"]["parts"] = [{"name": "new"}, {"name": "b", "image": "x"}]
    assert convert(old, "test.kruise.io/v1beta1")["spec"]["parts"] == [
        {"name": "new"},
        {"name": "b", "image": "x", "level": 2},
    ]


def test_versions_other_than_the_hub_convert_through_it(thing: dict[str, Any]) -> None:
    other_spoke = convert({**thing, "apiVersion": "test.kruise.io/v1alpha2"}, "test.kruise.io/v1alpha1")
    assert other_spoke["apiVersion"] == "test.kruise.io/v1alpha1"
    assert other_spoke["spec"]["parts"][0] == {"name": "a"}
    assert json.loads(other_spoke["metadata"]["annotations"][NOTES])["version"] == "v1beta1"
