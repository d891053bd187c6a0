from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.pods.inplace.eligibility import Blocked, InPlaceOptions, update_spec
from app.pods.inplace.state import UpdateSpec
from app.pods.revisions import Revision
from tests.pods.inplace.pods import ALL_GATES, container, env_from, possible, revision, template, way

NO_ENV = InPlaceOptions(env_from_metadata=False)
NO_RESIZE = InPlaceOptions()


def sized(requests: dict[str, str] | None = None, limits: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:
    resources = {key: value for key, value in (("requests", requests), ("limits", limits)) if value is not None}
    return template(container("main", resources=resources, **more))


READER = container("main", env=[env_from("annotations", "cfg")])


@pytest.mark.parametrize(("old", "new", "images"), [
    pytest.param(template(), template(container("main", "nginx:2")), {"main": "nginx:2"}, id="one image"),
    pytest.param(template(container("a"), container("b"), container("c")), template(container("a", "x:2"),
     container("b"), container("c", "y:2")), {"a": "x:2", "c": "y:2"}, id="several images"),
    pytest.param(template(), template(), {}, id="no difference"),
])  # fmt: skip
@pytest.mark.behaviour("PM-11", "PM-12", "PM-20", "PM-21")
def test_images_can_change_in_place(old: Any, new: Any, images: dict[str, str]) -> None:
    assert possible(old, new) == UpdateSpec("web-new", images)


@pytest.mark.parametrize(("old", "new", "path"), [
    pytest.param(template(initContainers=[container("init")]), template(initContainers=[container("init", "nginx:2")]),
     "/spec/initContainers/0/image", id="image of an init container"),
    pytest.param(template(), template(container("main"), container("b")), "/spec/containers/1", id="container added"),
    pytest.param(template(container("a"), container("b")), template(container("a")), "/spec/containers/1",
     id="removed"),
    pytest.param(template(), template(container("other")), "/spec/containers/0/name", id="renamed"),
    pytest.param(template(container("a"), container("b")), template(container("b"), container("a")),
     "/spec/containers/0/name", id="reordered"),
    pytest.param(template(container("main", env=[{"name": "A", "value": "1"}])), template(container("main",
     env=[{"name": "A", "value": "2"}])), "/spec/containers/0/env/0/value", id="literal env"),
    pytest.param(template(), template(READER), "/spec/containers/0/env", id="env added"),
    pytest.param(template(READER), template(container("main", env=[env_from("labels", "cfg")])),
     "/spec/containers/0/env/0/valueFrom/fieldRef/fieldPath", id="valueFrom"),
    pytest.param(template(), template(terminationGracePeriodSeconds=1), "/spec/terminationGracePeriodSeconds",
     id="grace"),
    pytest.param(template(), template(tolerations=[{"key": "a"}]), "/spec/tolerations", id="tolerations"),
    pytest.param(template(), template(container("main", "nginx:2", imagePullPolicy="Always")),
     "/spec/containers/0/imagePullPolicy", id="image and pull policy"),
    pytest.param(sized({"cpu": "1"}), sized({"cpu": "1", "memory": "1Gi"}),
     "/spec/containers/0/resources/requests/memory", id="request added"),
    pytest.param(sized({"cpu": "1"}), sized({"cpu": "1"}, {"cpu": "2"}), "/spec/containers/0/resources/limits",
     id="limits added"),
    pytest.param(sized({"cpu": "1", "memory": "1Gi"}), sized({"cpu": "1"}),
     "/spec/containers/0/resources/requests/memory", id="request removed"),
    pytest.param(sized({"nvidia.com/gpu": "1"}), sized({"nvidia.com/gpu": "2"}),
     "/spec/containers/0/resources/requests/nvidia.com~1gpu", id="gpu"),
    pytest.param(sized({"cpu": "1"}), sized({"cpu": "x"}), "/spec/containers/0/resources/requests/cpu",
     id="no quantity"),
])  # fmt: skip
@pytest.mark.behaviour("PM-12", "PM-13")
def test_immutable_fields_are_named(old: Any, new: Any, path: str) -> None:
    blocked = way(old, new)
    assert isinstance(blocked, Blocked)
    assert blocked.path == path
    assert path in str(blocked)


@pytest.mark.behaviour("PM-13", "PM-14")
def test_resources_change_in_place_with_the_gate_and_the_same_qos_class() -> None:
    one, two = sized({"cpu": "1"}, {"cpu": "4"}), sized({"cpu": "2"}, {"cpu": "4"})
    found = possible(one, two).container_resources["main"]
    assert (found.requests, found.limits) == ({"cpu": "2"}, {})
    blocked = way(one, two, NO_RESIZE)
    assert isinstance(blocked, Blocked)
    assert "InPlaceWorkloadVerticalScaling" in str(blocked)
    burstable = sized({"cpu": "1", "memory": "1Gi"}, {"cpu": "2", "memory": "1Gi"})
    guaranteed = sized({"cpu": "2", "memory": "1Gi"}, {"cpu": "2", "memory": "1Gi"})
    assert str(way(burstable, guaranteed)) == "the QoS class would change from Burstable to Guaranteed"


@pytest.mark.behaviour("PM-13", "PM-14")
def test_a_limit_without_a_request_changes_the_implied_request() -> None:
    found = possible(sized(None, {"cpu": "1", "memory": "1Gi"}), sized(None, {"cpu": "2", "memory": "1Gi"}))
    assert found.container_resources["main"].requests == {"cpu": "2"}
    explicit = possible(sized({"cpu": "1"}, {"cpu": "2"}), sized({"cpu": "1"}, {"cpu": "3"}))
    assert explicit.container_resources["main"].requests == {}


@pytest.mark.behaviour("PM-12")
def test_image_and_resources_change_together() -> None:
    found = possible(sized({"cpu": "1"}), template(container("main", "nginx:2", resources={"requests": {"cpu": "2"}})))
    assert found.containers == {"main"}
    assert (found.container_images, found.container_resources["main"].requests) == ({"main": "nginx:2"}, {"cpu": "2"})


@pytest.mark.behaviour("PM-10")
@pytest.mark.parametrize("data", [
    b"{",
    b"null",
    b"[]",
    b'{"spec":1}',
    b'{"spec":{"template":[]}}',
    b'{"spec":{"template":{"spec":{"containers":{"a":1}}}}}',
])  # fmt: skip
def test_missing_and_invalid_revisions_cannot_be_updated_in_place(data: bytes) -> None:
    new = revision("web-new", template())
    for old in (None, Revision("web-old", 1, data)):
        assert isinstance(update_spec(old, new, ALL_GATES), Blocked)
        assert isinstance(update_spec(new, old, ALL_GATES), Blocked)


@pytest.mark.behaviour("PM-15")
def test_claim_templates_count_only_if_both_revisions_have_them() -> None:
    key = "kruise.io/cloneset-volumeclaimtemplate-hash"
    one, two, none = (revision("r", template(), {key: text} if text else {}) for text in ("1", "2", ""))
    compare = InPlaceOptions(compare_claim_templates=True)
    assert isinstance(update_spec(one, two, compare), Blocked)
    for old, new, options in ((one, one, compare), (none, two, compare), (one, none, compare), (one, two, ALL_GATES)):
        assert isinstance(update_spec(old, new, options), UpdateSpec)


@pytest.mark.behaviour("PM-16", "PM-19")
def test_metadata_is_a_patch_of_the_changes() -> None:
    old = template(labels={"a": "1", "gone": "x", "same": "s"}, annotations={"last": "1"})
    new = template(labels={"a": "2", "same": "s", "new": "n"})
    found = possible(old, new)
    assert json.loads(found.meta_data_patch) == {
        "metadata": {"labels": {"a": "2", "gone": None, "new": "n"}, "annotations": {"last": None}}
    }
    assert not found.containers
    off = update_spec(
        revision("o", template(READER, annotations={"cfg": "1"})),
        revision("n", template(READER, annotations={"cfg": "2"})),
        NO_ENV,
    )
    assert isinstance(off, UpdateSpec)
    assert (off.container_ref_metadata, off.metadata_patch) == ({}, {"annotations": {"cfg": "2"}})


@pytest.mark.behaviour("PM-16")
def test_template_finalizers_are_synced_and_others_kept() -> None:
    patch = possible(template(finalizers=["a", "b"]), template(finalizers=["b", "c"])).metadata_patch
    assert patch["$deleteFromPrimitiveList/finalizers"] == ["a"]
    assert patch["finalizers"] == ["c"]


@pytest.mark.behaviour("PM-17", "PM-18")
@pytest.mark.parametrize(("old", "new", "value"), [
    pytest.param({"cfg": "1"}, {"cfg": "2"}, "2", id="replaced"),
    pytest.param({"other": ""}, {"other": "", "cfg": "2"}, "2", id="added"),
    pytest.param(None, {"cfg": "2"}, "2", id="the first annotation"),
    pytest.param({"cfg": "1", "other": ""}, {"other": ""}, "", id="removed"),
    pytest.param({"cfg": "1"}, None, "", id="the last one removed"),
])  # fmt: skip
def test_a_container_that_reads_an_annotation_is_refreshed(old: Any, new: Any, value: str) -> None:
    found = possible(template(READER, annotations=old), template(READER, annotations=new))
    assert found.update_env_from_metadata
    assert found.container_ref_metadata["main"].annotations == {"cfg": value}
    assert found.meta_data_patch == b"{}"


@pytest.mark.behaviour("PM-17")
def test_many_containers_may_not_read_long_values_together() -> None:
    """The Pod would record the value once for each container, which takes gigabytes before an API server refuses it."""
    containers = [container(f"c{number}", env=[env_from("annotations", "cfg")]) for number in range(50)]
    old, new, long = (template(*containers, annotations={"cfg": text}) for text in ("1", "2" * 20_000, "2" * 30_000))
    assert len(possible(old, new).container_ref_metadata) == 50
    said = "its containers read 1500000 characters of changed labels and annotations, more than 1048576"
    assert str(way(old, long)) == said


@pytest.mark.behaviour("PM-17")
def test_only_valid_metadata_references_count() -> None:
    containers = [
        container("version", env=[env_from("annotations", "cfg", "SIDECARSET_VERSION")]),
        container("alt", env=[env_from("annotations", "cfg", "SIDECARSET_VERSION_ALT")]),
        container("label", env=[env_from("labels", "cfg")]),
        container("literal", env=[{"name": "CFG", "value": "metadata.annotations['cfg']"}]),
    ]
    init = [container("init", env=[env_from("annotations", "cfg")])]
    old, new = (template(*containers, annotations={"cfg": text}, initContainers=init) for text in "12")
    found = possible(old, new)
    assert (found.containers, found.metadata_patch) == (frozenset(), {"annotations": {"cfg": "2"}})


@pytest.mark.behaviour("PM-17")
def test_keys_with_slashes_and_tildes_are_found() -> None:
    reader = container("main", env=[env_from("labels", "example.com/a~b")])
    found = possible(
        template(reader, labels={"example.com/a~b": "1"}), template(reader, labels={"example.com/a~b": "2"})
    )
    assert found.container_ref_metadata["main"].labels == {"example.com/a~b": "2"}


_json = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from(["", "a", "1Gi"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["name", "image", "resources", "env", "metadata", "labels", "containers"]), inner
        )
    ),
    max_leaves=8,
)


@given(_json, _json)
def test_any_revision_content_gets_an_answer(old: Any, new: Any) -> None:
    def some(inner: Any) -> Revision:
        return Revision("r", 1, json.dumps({"spec": {"template": {"spec": inner, "metadata": inner}}}).encode())

    assert isinstance(update_spec(some(old), some(new), ALL_GATES), UpdateSpec | Blocked)


@pytest.mark.behaviour("PM-14")
@pytest.mark.parametrize("last", [True, False])
def test_a_pod_is_guaranteed_by_cpu_and_memory_of_all_containers(last: bool) -> None:
    whole = {"cpu": "1", "memory": "1Gi"}
    burstable = container("sized", resources={"requests": {"cpu": "1"}, "limits": {"cpu": "1"}})
    before = container("other", resources={"requests": whole, "limits": whole})
    after = container("other", resources={"requests": {**whole, "cpu": "500m"}, "limits": whole})
    order = (lambda one: (burstable, one)) if last else (lambda one: (one, burstable))
    possible(template(*order(before)), template(*order(after)))
    alone = container("sized", resources={"requests": {"cpu": "500m"}, "limits": {"cpu": "1"}})
    possible(template(burstable), template(alone))
