import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.api import names
from app.features.sidecarset.history import RecordedSet, snapshot, surplus_revisions
from app.features.sidecarset.types import SidecarSet
from app.kube.objects import ControllerRevision, OwnerReference
from app.pods.revisions import Create, Revision, in_order, revision_hash, revision_name, revision_of
from tests.kit.objects import reference

DATA = Path(__file__).parent.parent.parent / "data" / "openkruise"


def recorded_objects() -> Iterator[tuple[str, dict[str, Any]]]:
    for file in sorted(DATA.glob("0*.json")):
        for item in json.loads(file.read_text("utf-8"))["items"]:
            yield file.name, item


def recorded_sets() -> list[Any]:
    return [
        pytest.param(file, item, id=f"{file}-{item['metadata']['name']}")
        for file, item in recorded_objects()
        if item["kind"] == "SidecarSet" and item["apiVersion"].endswith("v1beta1")
    ]


def owner(**spec: Any) -> SidecarSet:
    metadata = {"name": "logs", "uid": "me", "labels": spec.pop("labels", {}), "annotations": {"note": "kept"}}
    return SidecarSet.model_validate({"metadata": metadata, "spec": spec})


def recorded(**spec: Any) -> RecordedSet:
    return RecordedSet(owner(**spec), "kruise-system", b"{}")


def labels_of(**spec: Any) -> Any:
    return recorded(**spec).revision_object(Create("logs-1", "abc", 1, 0, b"{}"))["metadata"]["labels"]


@pytest.mark.behaviour("SS-73", "SS-74")
@pytest.mark.parametrize(("file", "item"), recorded_sets())
def test_a_recorded_set_creates_the_openkruise_revision(file: str, item: dict[str, Any]) -> None:
    stored = SidecarSet.model_validate(item)
    data = snapshot(stored.spec)
    digest = revision_hash(data, 0)
    name = item["status"]["latestRevision"]
    left = next(one for found, one in recorded_objects() if (found, one["metadata"]["name"]) == (file, name))
    assert data == json.dumps(left["data"], sort_keys=True, separators=(",", ":")).encode()
    create = Create(revision_name(stored.name, digest), digest, left["revision"], 0, data)
    # Fields that the API server adds:
    for field in ("creationTimestamp", "resourceVersion", "uid"):
        del left["metadata"][field]
    assert json.loads(orjson.dumps(RecordedSet(stored, "kruise-system", data).revision_object(create))) == left


@pytest.mark.behaviour("SS-73")
def test_only_injected_content_is_recorded() -> None:
    content = {"containers": [{"name": "log", "image": "busybox"}]}
    data = snapshot(owner(**content).spec)
    other = owner(
        **content, selector={"matchLabels": {"a": "b"}}, updateStrategy={"paused": True}, customVersion="v1", volumes=[]
    )
    assert snapshot(other.spec) == data
    patched = owner(**content, patchPodMetadata=[{"annotations": {"<a>": "é"}, "patchPolicy": "Retain"}])
    assert b'"patchPodMetadata":[{"annotations":{"\\u003ca\\u003e":"\xc3\xa9"},"patchPolicy":"Retain"}]' in snapshot(
        patched.spec
    )


def test_content_that_go_cannot_read_is_recorded_unchanged() -> None:
    assert b'"ports":"none"' in snapshot(owner(containers=[{"name": "log", "ports": "none"}]).spec)


@pytest.mark.behaviour("SS-73", "SS-B")
def test_labels_of_a_revision_are_those_of_the_set_with_hash_name_and_custom_version() -> None:
    labeled = {"team": "mesh", names.SIDECARSET_CUSTOM_VERSION: "by-label"}
    common = {"team": "mesh", names.CONTROLLER_HASH: "abc", names.SIDECARSET_NAME: "logs"}
    assert labels_of(labels=labeled) == common | {names.SIDECARSET_CUSTOM_VERSION: "by-label"}
    assert labels_of(labels=labeled, customVersion="v7") == common | {names.SIDECARSET_CUSTOM_VERSION: "v7"}
    assert labels_of() == {names.CONTROLLER_HASH: "abc", names.SIDECARSET_NAME: "logs"}


def test_stored_data_is_compared_semantically() -> None:
    spec = owner(containers=[{"name": "log", "command": ["a<b"]}]).spec
    respelled = json.dumps(json.loads(snapshot(spec)), indent=1)
    stored = ControllerRevision(data=msgspec.Raw(respelled.encode()))
    assert revision_of(stored).data == snapshot(spec)


REVISION = Revision(
    "logs-a",
    3,
    b"",
    uid="r1",
    controller=OwnerReference("apps.kruise.io/v1alpha1", "SidecarSet", "logs", "me"),
    labels={names.SIDECARSET_NAME: "logs"},
)
REFERENCE = {**reference("apps.kruise.io/v1beta1", "SidecarSet", "logs", "me"), "blockOwnerDeletion": True}


@pytest.mark.behaviour("SS-75", "SS-121")
@pytest.mark.parametrize(
    ("revision", "number", "spec", "patch"),
    [
        pytest.param(REVISION, 3, {}, None, id="nothing to do"),
        pytest.param(REVISION, 5, {}, {"revision": 5, "metadata": {"uid": "r1"}}, id="back to an older one"),
        pytest.param(
            REVISION,
            3,
            {"customVersion": "v2"},
            {"metadata": {"uid": "r1", "labels": {names.SIDECARSET_CUSTOM_VERSION: "v2"}}},
            id="another custom version",
        ),
        pytest.param(
            replace(REVISION, controller=OwnerReference("apps.kruise.io/v1beta1", "SidecarSet", "logs", "deleted")),
            3,
            {},
            {"metadata": {"uid": "r1", "ownerReferences": [REFERENCE]}},
            id="left behind by a deleted set of this name",
        ),
        pytest.param(
            Revision("logs-a", 3, b"", uid="r1"),
            4,
            {"customVersion": "v2"},
            {
                "revision": 4,
                "metadata": {
                    "uid": "r1",
                    "ownerReferences": [REFERENCE],
                    "labels": {names.SIDECARSET_NAME: "logs", names.SIDECARSET_CUSTOM_VERSION: "v2"},
                },
            },
            id="all at once, in one patch",
        ),
    ],
)
def test_the_current_revision_is_corrected_in_one_patch(
    revision: Revision, number: int, spec: dict[str, Any], patch: dict[str, Any] | None
) -> None:
    assert recorded(**spec).revision_patch(revision, number) == patch


@pytest.mark.behaviour("SS-75")
def test_a_removed_custom_version_stays_on_the_revision() -> None:
    labels = {names.SIDECARSET_NAME: "logs", names.SIDECARSET_CUSTOM_VERSION: "v1"}
    assert recorded().revision_patch(replace(REVISION, labels=labels), 3) is None


@pytest.mark.behaviour("SS-76", "SS-120")
@pytest.mark.parametrize(
    ("spec", "in_pods", "deleted"),
    [
        pytest.param({}, [], [1, 2], id="ten by default"),
        pytest.param(
            {"revisionHistoryLimit": 9}, ["logs-1", "logs-3"], [2, 4, 5], id="a revision named by Pods is kept"
        ),
        pytest.param(
            {"revisionHistoryLimit": 10, "injectionStrategy": {"revision": {"revisionName": "logs-1"}}},
            [],
            [2, 3],
            id="a revision for new Pods is kept, by name",
        ),
    ],
)
def test_only_surplus_revisions_are_deleted(spec: dict[str, Any], in_pods: list[str], deleted: list[int]) -> None:
    history = [Revision(f"logs-{n}", n, b"") for n in range(1, 13)]
    gone = surplus_revisions(owner(**spec), "logs-12", history, in_pods)
    assert [revision.number for revision in gone] == deleted


@pytest.mark.behaviour("SS-76", "SS-120")
@given(
    st.lists(st.tuples(st.integers(1, 30), st.booleans(), st.sampled_from(["", "v1", "v2"])), max_size=15),
    st.integers(-1, 12),
    st.sets(st.integers(0, 14)),
    st.integers(0, 14),
    st.sampled_from(["", "v1", "v2"]),
)
def test_truncation_keeps_revisions_in_use(
    found: list[tuple[int, bool, str]], limit: int, pods: set[int], latest: int, version: str
) -> None:
    ordered = in_order(
        Revision(f"r{n}", number, b"", deleting=deleting, labels={names.SIDECARSET_CUSTOM_VERSION: tag} if tag else {})
        for n, (number, deleting, tag) in enumerate(found)
    )
    choice = {"revision": {"customVersion": version}} if version else {}
    spec = {"revisionHistoryLimit": limit, "injectionStrategy": choice}
    in_pods = {f"r{n}" for n in pods}
    deleted = [revision.name for revision in surplus_revisions(owner(**spec), f"r{latest}", ordered, in_pods)]
    wanted = [r.name for r in ordered if version and r.labels.get(names.SIDECARSET_CUSTOM_VERSION) == version]
    kept = in_pods | {f"r{latest}"} | set(wanted[-1:])
    assert not kept & set(deleted)
    standing = [r.name for r in ordered if not r.deleting]
    assert len(standing) - len(deleted) >= min(len(standing), max(1, limit))
    removable = [name for name in standing if name not in kept]
    assert deleted == removable[: len(deleted)]
    assert len(standing) - len(deleted) <= max(1, limit) or deleted == removable


@pytest.mark.behaviour("SS-73", "SS-74")
def test_equal_values_in_another_notation_are_the_same_revision() -> None:
    # Written without admission, or by a version that did not normalize specs.
    containers = [{"name": "log", "image": "busybox:1"}]
    plain = owner(
        containers=containers,
        volumes=[{"name": "v", "emptyDir": {"sizeLimit": "1Gi"}}],
        imagePullSecrets=[{}],
        patchPodMetadata=[{"annotations": {"a": "b"}, "patchPolicy": "Retain"}],
    )
    wordy = owner(
        containers=containers,
        volumes=[{"emptyDir": {"medium": "", "sizeLimit": "1024Mi"}, "name": "v"}],
        imagePullSecrets=[{"name": ""}],
        patchPodMetadata=[{"patchPolicy": "Retain", "annotations": {"a": "b"}}],
        initContainers=[],
    )
    assert snapshot(wordy.spec) == snapshot(plain.spec)
    assert json.loads(snapshot(plain.spec))["spec"]["imagePullSecrets"] == [{}]


@pytest.mark.behaviour("SS-73")
def test_conversion_notes_are_not_recorded() -> None:
    converted = SidecarSet.model_validate(
        {"metadata": {"name": "logs", "uid": "me", "annotations": {"note": "kept", names.CONVERSION_DATA: "{}"}}}
    )
    created = RecordedSet(converted, "kruise-system", b"{}").revision_object(Create("logs-1", "1", 1, 0, b"{}"))
    assert created["metadata"]["annotations"] == {"note": "kept"}
