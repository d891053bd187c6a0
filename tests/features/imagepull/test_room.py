"""The share of a NodeImage that one namespace may use, and jobs that wait for it."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.features.imagepull.cache import WOKEN_AT_ONCE, WaitingJobs
from app.features.imagepull.defaults import job_with_defaults
from app.features.imagepull.objects import NodeImage, decode_node_image
from app.features.imagepull.plan.tags import MAX_BYTES, Request, Spread, add_tag, bytes_of, has_room, usage_of
from app.features.imagepull.types import ImagePullJob
from app.kube.images import FamiliarImage
from app.kube.resources import NAMESPACES, ObjectKey
from tests.features.imagepull.world import BETA, JOBS, NODE_IMAGES, World, in_world

Json = dict[str, Any]
SHARE_PERCENT = 75
#: Three quarters of 256.
SHARE = 192


def job(namespace: str, uid: str, **spec: Any) -> ImagePullJob:
    return ImagePullJob.model_validate(
        {
            "metadata": {"name": uid, "namespace": namespace, "uid": uid},
            "spec": {"image": "i", "completionPolicy": {}, **spec},
        }
    )


def asked(node_image: Json, namespace: str, repository: str, tag: str = "1", **spec: Any) -> bool:
    one, image = job(namespace, f"{namespace}-{repository}-{tag}", **spec), FamiliarImage(repository, tag)
    known = read(node_image)
    if not has_room(known, usage_of(known), one, image, SHARE_PERCENT):
        return False
    add_tag(node_image, Request(image, one), Spread(300, 0.5), "2026-01-01T00:00:00Z")
    return True


def read(node_image: Json) -> NodeImage:
    return decode_node_image(msgspec.json.encode(node_image))


def filled(node_image: Json, namespace: str, repositories: Iterable[str], **spec: Any) -> int:
    return sum([asked(node_image, namespace, one, **spec) for one in repositories])


def names(prefix: str, count: int = 300) -> list[str]:
    return [f"{prefix}{number}" for number in range(count)]


@pytest.mark.behaviour("IMG-111")
def test_a_namespace_gets_three_quarters_of_the_remaining_room() -> None:
    node_image: Json = {"metadata": {"name": "n1"}}
    assert filled(node_image, "a", names("a")) == SHARE
    # Three quarters of 64, of 16, of 4, of 1.
    assert [filled(node_image, one, names(one, 60)) for one in "bcdef"] == [48, 12, 3, 1, 0]
    assert asked(node_image, "a", "a0", "2"), "another tag of what one has takes no place"
    # Existing images stay, and the freed room is shared again.
    for name in names("a", 100):
        del node_image["spec"]["images"][name]
    assert filled(node_image, "a", names("more")) == 52
    assert filled(node_image, "f", names("f")) == 36


@pytest.mark.behaviour("IMG-111")
def test_tags_of_others_cannot_be_joined_beyond_the_share() -> None:
    node_image: Json = {"metadata": {"name": "n1"}}
    filled(node_image, "a", names("a"))
    filled(node_image, "b", names("b"))
    assert filled(node_image, "a", names("b")) == 0
    assert asked(node_image, "c", "a0"), "others may join"
    assert usage_of(read(node_image)).of("a").repositories == SHARE


@pytest.mark.behaviour("IMG-111")
@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"sandboxConfig": {"annotations": {"a": "x" * 32_000}}},
        {"sandboxConfig": {"annotations": {"a": "<" * 5_000}}},
        {"pullSecrets": [f"s{number}" for number in range(64)]},
    ],
    ids=["tags", "configurations", "escaped configurations", "secrets"],
)
def test_bytes_have_a_share_too(spec: Json) -> None:
    node_image: Json = {"metadata": {"name": "n1"}}
    repository = iter(names("r", 3_000)) if spec else iter(["one"] * 3_000)
    count = 0
    while asked(node_image, "a", next(repository), str(count), **spec):
        count += 1
    assert 20 < count < 3_000
    # The API server stores < as \u003c.
    encoded = msgspec.json.encode(node_image["spec"])
    assert len(encoded.replace(b"<", b"\\u003c")) < MAX_BYTES * 0.8
    assert asked(node_image, "b", "other", **spec)
    assert usage_of(read(node_image)).of("b").size <= bytes_of(
        job("b", "b-other-1", **spec), FamiliarImage("other", "1")
    )


@pytest.mark.behaviour("IMG-111")
def test_a_namespace_above_its_share_keeps_it_and_gets_no_more() -> None:
    tag = {"tag": "1", "version": 0, "ownerReferences": [{"namespace": "a", "name": "old", "uid": "u-old"}]}
    node_image: Json = {
        "metadata": {"name": "n1"},
        "spec": {"images": {one: {"tags": [tag]} for one in names("i", 240)}},
    }
    assert not asked(node_image, "a", "new")
    assert asked(node_image, "a", "i0", "2")
    known = read(node_image)
    assert has_room(known, usage_of(known), job("a", "u-old"), FamiliarImage("i0", "1"), 1), "it asks already"
    assert filled(node_image, "b", names("b")) == 12


@pytest.mark.behaviour("IMG-111")
@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(0, 400), st.integers(0, 3), st.sampled_from([0, 20_000])),
        max_size=200,
    )
)
def test_three_greedy_namespaces_leave_room_for_a_fourth(wanted: list[tuple[str, int, int, int]]) -> None:
    node_image: Json = {"metadata": {"name": "n1"}}
    for namespace, repository, tag, config in wanted:
        spec = {"sandboxConfig": {"labels": {"x": "y" * config}}} if config else {}
        asked(node_image, namespace, f"r{repository}", str(tag), **spec)
    assert len(node_image.get("spec", {}).get("images", {})) <= 256
    assert len(msgspec.json.encode(node_image)) <= MAX_BYTES
    assert asked(node_image, "newcomer", "its-own")


def test_few_waiting_jobs_wake_at_a_time_and_all_get_a_turn() -> None:
    waiting = WaitingJobs(Random(1))
    images = {one: {"tags": [{"tag": "1"}]} for one in names("i", 9)}
    old = read({"metadata": {"name": "n1", "resourceVersion": "1"}, "spec": {"images": {**images}}})
    images.pop("i8")
    new = read({"metadata": {"name": "n1", "resourceVersion": "2"}, "spec": {"images": images}})
    assert not list(waiting.woken(old, new, lambda _: True))
    keys = [ObjectKey("a", f"j{number}") for number in range(3_000)]
    assert all(waiting.add(key) for key in keys)
    assert not waiting.add(keys[0])
    waiting.add(ObjectKey("b", "only"))
    assert list(waiting.woken(old, new, lambda _: True)) == [*keys[:WOKEN_AT_ONCE], ObjectKey("b", "only")]
    assert list(waiting.woken(old, new, lambda key: key == keys[20])) == [keys[20]]
    assert not list(waiting.woken(new, old, lambda _: True)), "nothing left"
    assert 300 <= waiting.retry_seconds() <= 450
    for key in keys:
        waiting.remove(key)
    assert 60 <= waiting.retry_seconds() <= 90


# ---- through the controllers


async def make(there: World, namespace: str, name: str, image: str, **spec: Any) -> None:
    spec = {"image": image, "completionPolicy": {}, **spec}
    body = {"apiVersion": BETA, "kind": "ImagePullJob", "metadata": {"name": name}, "spec": spec}
    await there.client.create(JOBS, job_with_defaults(body), namespace)


async def statuses(there: World, namespace: str) -> dict[str, Json]:
    found = (await there.client.list(JOBS, namespace)).items
    return {one["metadata"]["name"]: one.get("status", {}) for one in found}


async def unfinished(there: World, namespace: str) -> int:
    return sum(not one.get("completionTime") for one in (await statuses(there, namespace)).values())


async def repositories(there: World, node: str) -> set[str]:
    found = await there.get(NODE_IMAGES, node)
    return set(found["spec"].get("images", {}))


@pytest.mark.behaviour("IMG-111")
def test_by_default_one_namespace_may_fill_a_node_image() -> None:
    for count, room in ((255, True), (256, False)):
        images = {one: {"tags": []} for one in names("i", count)}
        known = read({"metadata": {"name": "n1"}, "spec": {"images": images}})
        assert has_room(known, usage_of(known), job("a", "u"), FamiliarImage("new", "1")) is room


@pytest.mark.behaviour("IMG-111")
@in_world(flags=("--image-share-per-namespace=25",))
async def test_a_greedy_namespace_waits_and_others_proceed(there: World) -> None:
    for name in ("greedy", "others"):
        await there.client.create(NAMESPACES, {"metadata": {"name": name}})
    await there.nodes("n1")
    share = 64  # a quarter of 256
    for number in range(share + 6):
        await make(there, "greedy", f"j{number}", f"greedy{number}")
    await there.becomes(lambda: unfinished(there, "greedy"), 6, 120)
    await make(there, "others", "warm", "nginx")
    await there.becomes(lambda: unfinished(there, "others"), 0)
    assert (await statuses(there, "others"))["warm"]["succeeded"] == 1
    assert len(await repositories(there, "n1")) == share + 1
    found = await statuses(there, "greedy")
    waiting = {name: one for name, one in found.items() if not one.get("completionTime")}
    for one in waiting.values():
        assert one["message"] == (
            "job is running, progress 0.0%; 1 NodeImage has no room for another image of namespace greedy (n1):"
            " waiting until one is removed; delete completed ImagePullJobs or lower their"
            " ttlSecondsAfterFinished"
        )
        assert (one["desired"], one["active"]) == (1, 0)
    told = await there.events("NoRoomOnNode")
    assert {one["involvedObject"]["name"] for one in told} == set(waiting)
    assert {(one["involvedObject"]["namespace"], one["count"]) for one in told} == {("greedy", 1)}
    await there.writes_nothing(200)
    # Deleted jobs free room.
    done = [name for name in found if name not in waiting]
    for names_, left in ((done[:2], 4), (done[2:6], 0)):
        for name in names_:
            await there.client.delete(JOBS, name, "greedy")
        await there.becomes(lambda: unfinished(there, "greedy"), left, 20)
    assert {one["message"] for one in (await statuses(there, "greedy")).values()} == {"job has completed"}


@pytest.mark.behaviour("IMG-111", "IMG-52")
@in_world
async def test_a_full_node_does_not_block_others(there: World) -> None:
    await there.nodes("n1", "n2", "n3")
    owner = {"apiVersion": BETA, "kind": "Workload", "namespace": "default", "name": "x", "uid": "u"}
    images = await there.full("n1", ownerReferences=[owner])
    await there.job(completionPolicy={"type": "Always", "activeDeadlineSeconds": 3600})
    status = await there.counts(succeeded=2, desired=3)
    assert "no room for another image of namespace default (n1)" in status["message"]
    assert len(await repositories(there, "n1")) == 256
    await there.change(NODE_IMAGES, "n1", {"spec": {"images": dict.fromkeys(images[:100])}})
    await there.counts(succeeded=3, message="job has completed")


@pytest.mark.behaviour("IMG-111", "IMG-50")
@in_world
async def test_a_job_waiting_for_room_ends_at_its_deadline(there: World) -> None:
    await there.nodes("n1")
    await there.full("n1")
    await there.job(completionPolicy={"type": "Always", "activeDeadlineSeconds": 30})
    await there.settled(35)
    status = await there.counts(message="job exceeds activeDeadlineSeconds")
    assert (status["failed"], status["failedNodes"]) == (1, ["n1"])
