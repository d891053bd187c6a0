"""When a new Pod gets a recorded revision, and which one."""

from __future__ import annotations

from typing import Any

import pytest

from app.features.sidecarset.injection.prepared import recorded_revision, revision_choice, takes_recorded
from tests.features.admitting import World, pod, revision, sidecarset

VERSION = "apps.kruise.io/sidecarset-custom-version"
SET = sidecarset("s", {"name": "shipper"})


@pytest.mark.behaviour("SS-68")
@pytest.mark.parametrize("given", [None, {}, {"policy": "Always"}, {"revisionName": None, "customVersion": ""}])
def test_without_a_name_or_version_every_pod_gets_the_current_spec(given: Any) -> None:
    assert revision_choice(given, {}) is None


@pytest.mark.behaviour("SS-70")
@pytest.mark.parametrize(
    ("revision_", "strategy", "draw", "recorded"),
    [
        ({"policy": "Always"}, {"partition": "0%"}, 0.0, True),
        ({}, {"partition": "0%"}, 0.0, True),
        ({"policy": "Partial"}, {"paused": True, "partition": "0%"}, 0.0, True),
        ({"policy": "Partial"}, {}, 0.0, False),
        ({"policy": "Partial"}, {"partition": 100}, 0.0, False),
        ({"policy": "Partial"}, {"partition": "30%"}, 0.29, True),
        ({"policy": "Partial"}, {"partition": "30%"}, 0.30, False),
        ({"policy": "Partial"}, {"partition": "0%"}, 0.0, False),
        ({"policy": "Partial"}, {"partition": "120%"}, 0.999, True),
        ({"policy": "Partial"}, {"partition": "0%", "selector": {"matchLabels": {"a": "b"}}}, 0.9, False),
        ({"policy": "Partial"}, {"partition": "0%", "selector": {"matchLabels": {"a": "c"}}}, 0.9, True),
        ({"policy": "Partial"}, {"selector": {}}, 0.9, False),
    ],
)
def test_the_policy_and_the_partition_decide_which_pods_get_the_revision(
    revision_: Any, strategy: Any, draw: float, recorded: bool
) -> None:
    choice = revision_choice({"revisionName": "r", **revision_}, strategy)
    assert choice is not None
    assert takes_recorded(choice, {"a": "b"}, lambda: draw) is recorded


@pytest.mark.behaviour("SS-68")
def test_a_name_precedes_a_version_and_the_newest_version_wins() -> None:
    recorded = [
        revision("r3", SET, 3, **{VERSION: "v1"}),
        revision("r10", SET, 10, **{VERSION: "v1"}),
        revision("r11", SET, 11, **{VERSION: "v2"}),
        revision("other", sidecarset("t"), 99, **{VERSION: "v1"}),
    ]

    def found(**given: str) -> str | None:
        choice = revision_choice(given, {})
        assert choice is not None
        chosen = recorded_revision("s", choice, recorded)
        return chosen.metadata.name if chosen else None

    assert found(customVersion="v1") == "r10"
    assert found(customVersion="v1", revisionName="r3") == "r3"
    assert found(customVersion="v3") is None
    assert found(revisionName="r12", customVersion="v1") is None


@pytest.mark.behaviour("SS-34", "SS-68", "SS-121")
def test_a_revision_of_another_set_is_not_used() -> None:
    world = World(recorded=[revision("t-1", sidecarset("t", {"name": "tool"}))])
    world.apply(sidecarset("s", {"name": "shipper"}, injectionStrategy={"revision": {"revisionName": "t-1"}}))
    answer = world.create(pod())
    assert "revisionName t-1: ControllerRevision not found" in answer.refusal.message


@pytest.mark.behaviour("SS-68", "SS-70")
def test_a_missing_revision_also_refuses_pods_that_get_the_current_spec() -> None:
    choice = {"revision": {"customVersion": "gone", "policy": "Partial"}}
    answer = World().apply(sidecarset("s", {"name": "shipper"}, injectionStrategy=choice)).create(pod())
    assert "spec.injectionStrategy.revision.customVersion gone: " in answer.refusal.message


BY_NAME = {"revision": {"revisionName": "r1"}}


@pytest.mark.behaviour("SS-68", "SS-39")
@pytest.mark.parametrize(
    ("scope", "reads"),
    [
        ({}, ["revisions s"]),
        ({"namespaceSelector": {"matchLabels": {"env": "prod"}}}, ["namespace shop", "revisions s"]),
    ],
)
def test_a_revision_missing_in_the_cache_is_read_live(scope: Any, reads: list[str]) -> None:
    current = sidecarset("s", {"name": "newer"}, injectionStrategy=BY_NAME, **scope)
    world = World(stale=True, recorded=[revision("r1", SET)]).apply(current)
    assert world.create(pod()).containers == ["shipper", "main"]
    assert world.live_reads == reads


@pytest.mark.behaviour("SS-69")
def test_missing_hashes_of_a_revision_are_computed() -> None:
    bare = sidecarset("s", {"name": "shipper"})
    bare["metadata"]["annotations"] = {}
    current = sidecarset("s", {"name": "newer"}, injectionStrategy=BY_NAME)
    answer = World(recorded=[revision("r1", bare)]).apply(current).create(pod())
    assert len(answer.record()["s"]["hash"]) == 64
    assert answer.record()["s"]["hash"] != answer.record("kruise.io/sidecarset-hash-without-image")["s"]["hash"]


def test_a_changed_revision_is_prepared_again() -> None:
    current = sidecarset("s", {"name": "newer"}, injectionStrategy=BY_NAME)
    world = World(recorded=[revision("r1", SET, 1)]).apply(current)
    decide = [world.create(pod()).containers]
    world.recorded = [revision("r1", sidecarset("s", {"name": "other"}), 2)]
    decide.append(world.create(pod()).containers)
    assert decide == [["shipper", "main"], ["other", "main"]]


def test_an_unreadable_revision_refuses_the_pod_by_name() -> None:
    broken = sidecarset("s", {"name": "shipper"})
    broken["spec"]["containers"] = [{"image": "x"}]
    current = sidecarset("s", {"name": "newer"}, injectionStrategy=BY_NAME)
    answer = World(recorded=[revision("r1", broken)]).apply(current).create(pod())
    assert answer.refusal.message.startswith(
        "SidecarSet s: ControllerRevision r1: spec.containers[0].name: expected a string; "
    )


@pytest.mark.behaviour("SS-69")
def test_prepared_revisions_of_deleted_sets_are_dropped() -> None:
    world = World()
    for number in range(10):
        name, container = f"set-{number}", {"name": "c"}
        world.recorded = [revision("r1", sidecarset(name, container))]
        world.apply(sidecarset(name, container, injectionStrategy=BY_NAME))
        assert world.create(pod()).containers == ["c", "main"]
        world.index.remove(name)
    assert len(world.step._prepared_revisions) <= 2
