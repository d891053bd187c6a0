"""Planning of image pulls: tags, targets, progress, secrets."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any
from weakref import ref

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.features.imagepull.cache import BY_IMAGE, NodeImages, WaitingJobs, by_image
from app.features.imagepull.objects import (
    ImageEntry,
    ImageStatus,
    ImageTag,
    NodeImage,
    NodeImageSpec,
    NodeImageStatus,
    TagStatus,
    decode_node_image,
)
from app.features.imagepull.plan import jobs as plan
from app.features.imagepull.plan.nodes import NodeRule, awaited, changed_tags, has_other_tag, unanswered
from app.features.imagepull.plan.tags import CleanUp, Request, Spread, add_tag, clean, drop_job, has_room, usage_of
from app.features.imagepull.reconcile.mappers import Caches, JobMapper
from app.features.imagepull.secrets import copy_name, recheck_seconds, references
from app.features.imagepull.types import ImagePullJob
from app.kube.client import Client
from app.kube.images import FamiliarImage
from app.kube.objects import Node, NodeCondition, NodeStatus, ObjectMeta, ObjectReference
from app.kube.resources import ObjectKey
from app.kube.store import Change, Store
from tests.kit.virtualtime import VirtualClock
from tests.kube.fakes import MemoryServer

Json = dict[str, Any]
NOW = datetime(2026, 1, 1, tzinfo=UTC)
STAMP = "2026-01-01T00:00:00Z"
PAST = "2025-12-31T23:50:00Z"


def job(uid: str = "u1", namespace: str = "default", **spec: Any) -> ImagePullJob:
    completion = spec.pop("completionPolicy", {"type": "Always"})
    return ImagePullJob.model_validate(
        {
            "metadata": {"name": "warm", "namespace": namespace, "uid": uid},
            "spec": {"image": "nginx:1", "completionPolicy": completion, "imagePullPolicy": "IfNotPresent", **spec},
        }
    )


@pytest.mark.behaviour("IMG-54", "IMG-55")
@pytest.mark.parametrize(
    ("completion", "pull", "share", "wanted"),
    [
        pytest.param(
            {"ttlSecondsAfterFinished": 300, "activeDeadlineSeconds": 1200},
            {"timeoutSeconds": 300},
            142 / 300,
            {"activeDeadlineSeconds": 1200, "ttlSecondsAfterFinished": 742},
            id="the worked example",
        ),
        pytest.param(
            {"activeDeadlineSeconds": 700},
            {},
            0,
            {"activeDeadlineSeconds": 700, "ttlSecondsAfterFinished": 1000},
            id="the deadline",
        ),
        pytest.param({}, {}, 0, {"ttlSecondsAfterFinished": 2100}, id="the attempts"),
        pytest.param(
            {"type": "Never"},
            {"timeoutSeconds": 3000, "backoffLimit": 0},
            0.5,
            {"activeDeadlineSeconds": 3000, "ttlSecondsAfterFinished": 86400},
            id="never",
        ),
    ],
)
def test_a_tag_lives_as_long_as_its_job_needs_it(completion: Json, pull: Json, share: float, wanted: Json) -> None:
    one = job(completionPolicy={"type": "Always", **completion}, pullPolicy=pull)
    found = Request(FamiliarImage("nginx", "1"), one).pull_policy(Spread(300, share))
    assert found == {"timeoutSeconds": 600, "backoffLimit": 3, **pull, **wanted}


def asked(node_image: Json, uid: str = "u1", secrets: list[dict[str, str]] | None = None, **spec: Any) -> Json:
    request = Request(FamiliarImage("nginx", "1"), job(uid, **spec), secrets or [])
    add_tag(node_image, request, Spread(300, 0), STAMP)
    return node_image


@pytest.mark.behaviour("IMG-53", "IMG-93")
def test_a_tag_is_added_to_a_node_image_with_a_new_version() -> None:
    node_image = {"status": {"imageStatuses": {"nginx": {"tags": [{"tag": "1", "phase": "Succeeded", "version": 4}]}}}}
    found = asked(node_image, sandboxConfig={"labels": {"a": "b"}})["spec"]["images"]["nginx"]
    (tag,) = found["tags"]
    assert (tag["version"], tag["createdAt"]) == (5, STAMP)
    assert found["sandboxConfig"] == {"labels": {"a": "b"}}
    before = msgspec.json.encode(node_image)
    assert msgspec.json.encode(asked(node_image)) == before
    asked(node_image, "u2", pullPolicy={"timeoutSeconds": 1}, imagePullPolicy="Always")
    (tag,) = found["tags"]
    assert (tag["version"], tag["imagePullPolicy"], tag["pullPolicy"]["timeoutSeconds"]) == (6, "Always", 600)
    assert [owner["uid"] for owner in tag["ownerReferences"]] == ["u1", "u2"]
    drop_job(node_image, "u1", None)
    assert [owner["uid"] for owner in found["tags"][0]["ownerReferences"]] == ["u2"]
    drop_job(node_image, "u2", None)
    assert node_image["spec"] == {}, "as in OpenKruise nothing empty is left"


@pytest.mark.behaviour("IMG-116")
def test_a_job_of_another_namespace_cannot_shorten_a_pull() -> None:
    def of(namespace: str, **spec: Any) -> Json:
        request = Request(FamiliarImage("nginx", "1"), job(namespace, namespace, **spec))
        add_tag(node_image, request, Spread(0, 0), STAMP)
        found: Json = node_image["spec"]["images"]["nginx"]["tags"][0]["pullPolicy"]
        return found

    node_image: Json = {}
    short = {"completionPolicy": {"type": "Always", "activeDeadlineSeconds": 1, "ttlSecondsAfterFinished": 0}}
    assert of("tenant", pullPolicy={"timeoutSeconds": 1, "backoffLimit": 0}, **short)["timeoutSeconds"] == 1
    patient = of("bank", pullPolicy={"timeoutSeconds": 900, "backoffLimit": 2}, completionPolicy={"type": "Always"})
    assert (patient["timeoutSeconds"], patient["backoffLimit"]) == (900, 2)
    assert "activeDeadlineSeconds" not in patient
    assert of("other", pullPolicy={"timeoutSeconds": 1, "backoffLimit": 0}, **short) == patient


@pytest.mark.behaviour("IMG-101")
def test_a_late_secret_starts_a_new_round_only_after_a_failure() -> None:
    secret = [{"namespace": "kruise-daemon-config", "name": "s", "mode": "batch"}]
    for phase, version in (("Pulling", 0), ("Succeeded", 0), ("Failed", 1)):
        node_image = asked({})
        node_image["status"] = {"imageStatuses": {"nginx": {"tags": [{"tag": "1", "phase": phase}]}}}
        entry = asked(node_image, secrets=secret)["spec"]["images"]["nginx"]
        assert entry["pullSecrets"] == secret
        assert entry["tags"][0].get("version", 0) == version


@pytest.mark.behaviour("IMG-116")
@pytest.mark.parametrize(
    ("phase", "others", "change", "taken"),
    [
        ("Pulling", (), {"pullPolicy": {"timeoutSeconds": 9}}, True),
        ("Pulling", (), {"pullPolicy": {"backoffLimit": 9}}, True),
        ("Pulling", (), {"imagePullPolicy": "Always"}, True),
        ("Pulling", (), {"imagePullPolicy": None}, True),
        ("Pulling", (), {}, False),
        ("Failed", (), {"pullPolicy": {"timeoutSeconds": 9}}, True),
        ("Succeeded", (), {"imagePullPolicy": "Always"}, False),
        ("Pulling", ("before",), {"imagePullPolicy": "Always"}, True),
        ("Pulling", ("before",), {"pullPolicy": {"timeoutSeconds": 9}}, False),
        ("Pulling", ("after",), {"imagePullPolicy": "Always"}, False),
    ],
)
def test_a_changed_policy_reaches_unfinished_nodes(
    phase: str, others: tuple[str, ...], change: Json, taken: bool
) -> None:
    given: Json = {}
    for uid in ("before", "u1", "after"):
        if uid == "u1" or uid in others:
            asked(given, uid)
    version = given["spec"]["images"]["nginx"]["tags"][0].get("version", 0)
    given["status"] = {"imageStatuses": {"nginx": {"tags": [{"tag": "1", "phase": phase, "version": version}]}}}
    given["metadata"] = {"name": "n"}
    seen = decode_node_image(msgspec.json.encode(given))
    progress = plan.progress_of(job(**change), FamiliarImage("nginx", "1"), [seen], [])
    due = {"Pulling": progress.outdated, "Failed": progress.not_synced, "Succeeded": progress.outdated}[phase]
    assert due == (("n",) if taken else ())
    before = msgspec.json.encode(given)
    (tag,) = asked(given, **change)["spec"]["images"]["nginx"]["tags"]
    assert (msgspec.json.encode(given) != before) is taken
    if taken:
        policy = change.get("pullPolicy", {})
        assert tag["version"] == version + 1
        assert tag.get("imagePullPolicy") == change.get("imagePullPolicy", "IfNotPresent")
        assert tag["pullPolicy"].items() >= policy.items()
        after = decode_node_image(msgspec.json.encode(given))
        assert plan.progress_of(job(**change), FamiliarImage("nginx", "1"), [after], []).outdated == ()


def node_image(name: str, phase: str | None, *, labels: dict[str, str] | None = None) -> NodeImage:
    found: Json = {"metadata": {"name": name, "labels": labels or {}}}
    if phase is not None:
        asked(found)
        if phase:
            found["status"] = {"imageStatuses": {"nginx": {"tags": [{"tag": "1", "phase": phase}]}}}
    return decode_node_image(msgspec.json.encode(found))


PHASES = (None, "", "Waiting", "Pulling", "Succeeded", "Failed")


@pytest.mark.behaviour("IMG-49", "IMG-50", "IMG-51", "IMG-52")
@given(st.lists(st.sampled_from(PHASES), max_size=12), st.integers(0, 14), st.booleans(), st.integers(0, 200))
def test_parallelism_is_respected_and_every_node_counts_once(
    phases: list[str | None], parallelism: int, never: bool, age: int
) -> None:
    nodes = [node_image(f"n{number:02}", phase) for number, phase in enumerate(phases)]
    policy: Json = {"type": "Never"} if never else {"type": "Always", "activeDeadlineSeconds": 100}
    wanted = job(parallelism=parallelism, completionPolicy=policy)
    progress = plan.progress_of(wanted, FamiliarImage("nginx", "1"), nodes, [])
    assert progress.desired == len(nodes)
    step = plan.step(wanted, progress, NOW + timedelta(seconds=age), STAMP)
    assert len(progress.active) + len(step.next_nodes) <= max(parallelism, len(progress.active))
    assert list(step.next_nodes) == sorted(step.next_nodes)
    assert set(step.next_nodes) <= set(progress.not_synced)
    status = step.status
    assert step.ended == ("completionTime" in status)
    done = all(phase in ("Succeeded", "Failed") for phase in phases)
    assert step.ended == (not never and (done or age >= 100))
    if step.ended:
        assert status["succeeded"] + status["failed"] == len(nodes)
        assert not step.next_nodes


@pytest.mark.behaviour("IMG-43")
@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        ({}, ["a", "b", "c"]),
        ({"selector": {}}, ["a", "b", "c"]),
        ({"selector": {"names": ["c", "a", "none"]}}, ["a", "c"]),
        ({"selector": {"names": []}}, []),
        ({"selector": {"matchLabels": {"zone": "x"}}}, ["b"]),
    ],
)
def test_a_job_selects_nodes_by_name_or_label(spec: Json, wanted: list[str]) -> None:
    nodes = [node_image("c", None), node_image("b", None, labels={"zone": "x"}), node_image("a", None)]
    assert NodeRule.of(job(**spec).spec).nodes(nodes, ()) == wanted


def tagged(count: int, done: str = "") -> Json:
    """A NodeImage with that many tags, one of them pulled."""
    tags = [{"tag": str(number), "createdAt": STAMP} for number in range(count)]
    statuses = [{"tag": one["tag"], "phase": "Succeeded" if one["tag"] == done else "Pulling"} for one in tags]
    return {
        "metadata": {"name": "n1"},
        "spec": {"images": {"nginx": {"tags": tags}}},
        "status": {"imageStatuses": {"nginx": {"tags": statuses}}},
    }


@pytest.mark.behaviour("IMG-40")
def test_a_changed_tag_concerns_only_its_jobs() -> None:
    class Jobs(Store[ImagePullJob]):
        def by_index(self, index: str, key: str) -> Sequence[ImagePullJob]:
            found = super().by_index(index, key)
            looked_at.extend(found)
            return found

    looked_at: list[ImagePullJob] = []
    jobs = Jobs({BY_IMAGE: by_image})
    for number in range(30):
        metadata = {"name": f"pull-{number}", "namespace": "default", "uid": str(number)}
        spec = {"image": f"nginx:{number}", "completionPolicy": {}}
        jobs.put(ImagePullJob.model_validate({"metadata": metadata, "spec": spec}))
    node_images = NodeImages(Client(MemoryServer(), VirtualClock()), Store())
    mapper = JobMapper(
        Caches(jobs, Store(), node_images.store, Store(), Store(), Store()), node_images, WaitingJobs(Random(1))
    )
    old, new = (decode_node_image(msgspec.json.encode(tagged(30, done))) for done in ("", "7"))
    assert list(mapper.keys_for_node_image(Change(old, new))) == [ObjectKey("default", "pull-7")]
    assert len(looked_at) == 1
    secret = {"namespace": "default", "name": "credentials"}
    shared = tagged(30)
    shared["spec"]["images"]["nginx"]["pullSecrets"] = [secret]
    found = mapper.keys_for_node_image(Change(old, decode_node_image(msgspec.json.encode(shared))))
    assert len(list(found)) == 30, "all of them share the credentials"


class Compared(str):
    """A tag that counts comparisons."""

    __slots__ = ()
    count = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Compared.count += 1
        return str.__eq__(self, other)


@pytest.mark.behaviour("IMG-32", "IMG-33")
def test_the_status_of_each_tag_is_found_without_comparing_all() -> None:
    given = tagged(100)
    statuses = given["status"]["imageStatuses"]["nginx"]["tags"]
    for one in statuses:
        one["tag"] = Compared(one["tag"])
    tags = tuple(ImageTag(one["tag"], STAMP, owner_references=(ObjectReference(uid="u1"),)) for one in statuses)
    known = NodeImage(
        spec=NodeImageSpec({"nginx": ImageEntry(tags)}),
        status=NodeImageStatus({"nginx": ImageStatus(tuple(TagStatus(one["tag"]) for one in statuses))}),
    )
    Compared.count = 0
    assert clean(given, CleanUp({}, frozenset(), frozenset()), NOW) is None
    assert unanswered(known, NOW) == ([], None)
    for number in range(100):
        assert plan.state_on(known, FamiliarImage("nginx", str(number)), "u1") is plan.NodeState.ACTIVE
    assert Compared.count < 1000


@pytest.mark.behaviour("IMG-49", "IMG-106", "IMG-111")
def test_a_job_is_found_among_thousands_that_share_its_tag() -> None:
    def known(count: int) -> NodeImage:
        owners = tuple(ObjectReference(uid=Compared(f"u{number}"), namespace="ns") for number in range(count))
        return NodeImage(spec=NodeImageSpec({"nginx": ImageEntry((ImageTag("1", STAMP, owner_references=owners),))}))

    image, other = FamiliarImage("nginx", "1"), FamiliarImage("nginx", "2")
    for count, most in ((3, 100), (2_000, 10_000)):
        node_image = known(count)
        usage = usage_of(node_image)
        Compared.count = 0
        for number in range(0, count, max(1, count // 100)):
            uid = f"u{number}"
            assert plan.state_on(node_image, image, uid) is plan.NodeState.ACTIVE
            assert has_other_tag(node_image, other, uid)
            assert not has_other_tag(node_image, image, uid)
            assert has_room(node_image, usage, job(uid), image)
        assert Compared.count < most
        assert plan.state_on(node_image, image, "stranger") is plan.NodeState.NOT_SYNCED
        assert not has_other_tag(node_image, other, "stranger")
        entry = node_image.spec.images["nginx"]
        assert [entry.is_used_by(one) for one in ("ns", "other")] == [True, False]


@pytest.mark.behaviour("IMG-40")
def test_parts_of_node_images_are_shared_while_in_use() -> None:
    given = tagged(2)
    given["spec"]["images"]["nginx"]["tags"][0]["ownerReferences"] = [{"uid": "u1"}]
    one, other = (decode_node_image(msgspec.json.encode({**given, "metadata": {"name": name}})) for name in "ab")
    assert one.spec.images["nginx"] is other.spec.images["nginx"]
    status = ref(one.status.image_statuses["nginx"])
    assert status() is other.status.image_statuses["nginx"]
    del one, other
    assert status() is None, "a value that no NodeImage has any more takes memory"


@pytest.mark.behaviour("IMG-61")
def test_copies_have_unique_names_and_list_their_references() -> None:
    assert copy_name(ObjectKey("a", "cred")) != copy_name(ObjectKey("b", "cred"))
    assert len(copy_name(ObjectKey("a", "x" * 253))) <= 253
    assert references(" a/y,a/x,,a/y") == ["a/x", "a/y"]
    assert references(None) == []


@pytest.mark.behaviour("IMG-52")
@pytest.mark.parametrize(("value", "wanted"), [(None, 1), (0, 0), ("5", 5), ("x", 0), (3, 3)])
def test_parallelism_is_limited_and_has_a_default(value: Any, wanted: int) -> None:
    assert plan.parallelism(job(**({} if value is None else {"parallelism": value}))) == wanted


# ---- nodes without a NodeImage


@pytest.mark.behaviour("IMG-109")
@pytest.mark.parametrize(
    ("ready", "ready_for", "began_before", "labels", "wanted"),
    [
        pytest.param("True", 10, 0, {}, 80.0, id="its NodeImage is due in 20 seconds, and may be a minute late"),
        pytest.param("True", 89, 89, {}, 1.0, id="nearly a minute late"),
        pytest.param("True", 90, 90, {}, None, id="a minute late"),
        pytest.param("True", 9_000, 0, {}, 60.0, id="an old node, and the manager has just started"),
        pytest.param("True", 9_000, 60, {}, None, id="an old node, and the job has waited for a minute"),
        pytest.param("False", 10, 0, {}, None, id="not ready"),
        pytest.param("True", 10, 0, {"type": "virtual-kubelet"}, None, id="virtual"),
    ],
)
def test_a_job_waits_for_a_late_node_image(
    ready: str, ready_for: int, began_before: int, labels: dict[str, str], wanted: float | None
) -> None:
    condition = NodeCondition("Ready", ready, last_transition_time=NOW - timedelta(seconds=ready_for))
    node = Node(ObjectMeta(name="n1", labels=labels), status=NodeStatus(conditions=(condition,)))
    assert awaited(node, 30.0, NOW - timedelta(seconds=began_before), NOW) == wanted


@pytest.mark.behaviour("IMG-109", "IMG-50")
def test_a_missing_node_image_gets_no_tag_and_fails_at_the_deadline() -> None:
    waiting = plan.Progress(succeeded=("n1",), awaited={"n2": 7.0})
    step = plan.step(job(), waiting, NOW, STAMP)
    assert (step.status["desired"], step.next_nodes, step.wait, step.ended) == (2, (), 7.0, False)
    late = plan.step(job(completionPolicy={"type": "Always", "activeDeadlineSeconds": 600}), waiting, NOW, PAST)
    assert (late.status["failedNodes"], late.status["desired"], late.ended) == (["n2"], 2, True)


# ---- memory


@pytest.mark.behaviour("IMG-40", "IMG-111")
def test_a_sandbox_config_is_not_kept_for_each_node() -> None:
    """It may have 32 KiB for each repository: one namespace could fill the memory in a large cluster."""

    def found(text: str, first: str = "labels") -> NodeImage:
        config = {first: {"a": text}, "labels": {"a": text}, "annotations": {"a": text}}
        images = {"nginx": {"tags": [{"tag": "1", "version": 1}], "sandboxConfig": config}}
        return decode_node_image(msgspec.json.encode({"metadata": {"name": "n"}, "spec": {"images": images}}))

    one, same, other = found("<" * 10_000), found("<" * 10_000, "annotations"), found("<" * 9_999 + ">")
    assert one.spec.images["nginx"] is same.spec.images["nginx"]
    assert len(msgspec.json.encode(one.spec)) < 1_000
    assert usage_of(one).total.size > 120_000
    assert changed_tags("nginx", one, same) == set()
    assert changed_tags("nginx", one, other) == set(), "no job depends on it"


@pytest.mark.behaviour("IMG-64")
def test_sources_of_new_jobs_are_polled_more_often() -> None:
    ages = (-5.0, 0.0, 100.0, 600.0, 3_000.0, 86_400.0)
    assert [recheck_seconds(age) for age in ages] == [10.0, 10.0, 10.0, 60.0, 300.0, 300.0]
