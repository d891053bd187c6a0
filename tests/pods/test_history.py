"""Our own writes of revisions count until the cache shows them or they expire."""

from typing import Any

import orjson

from app.kube.objects import ControllerRevision, decode_controller_revision
from app.kube.store import Change
from app.pods.history import OWN_WRITE_TTL, KnownRevisions
from app.pods.predicates import Owner
from tests.kit.virtualtime import VirtualClock


def revision(name: str, version: int = 1, owner: str = "u") -> ControllerRevision:
    reference = {"apiVersion": "v1", "kind": "K", "name": "k", "uid": owner, "controller": True}
    metadata: dict[str, Any] = {"name": name, "uid": f"uid-{name}", "resourceVersion": str(version)}
    body = {"metadata": {**metadata, "ownerReferences": [reference]}, "revision": version, "data": {}}
    return decode_controller_revision(orjson.dumps(body))


class Clock(VirtualClock):
    now_is = 0.0

    def monotonic(self) -> float:
        return self.now_is


def names(known: KnownRevisions, *cached: ControllerRevision, owner: str = "o", uid: str = "u") -> list[str]:
    return [one.name for one in known.of(owner, Owner("v1", "K", "k", "", uid), cached)]


def test_a_write_counts_until_cached_and_for_its_owner_only() -> None:
    known = KnownRevisions(Clock())
    known.record_write("o", "uid-a", revision("a"))
    known.record_write("other", "uid-b", revision("b", owner="v"))
    assert names(known) == ["a"]
    assert names(known, owner="other", uid="v") == ["b"]
    known.record_write("o", "uid-a", revision("a", 2))
    known.observe(Change(None, revision("a")))
    assert names(known) == ["a"]  # the event of the previous write
    known.observe(Change(revision("a"), revision("a", 2)))
    assert names(known) == []  # the cache is up to date
    assert names(known, revision("a")) == ["a"]
    assert names(known, owner="other", uid="v") == ["b"]


def test_a_deletion_counts_until_its_event() -> None:
    known = KnownRevisions(Clock())
    known.record_write("o", "uid-a", None)
    assert names(known, revision("a"), revision("c")) == ["c"]
    known.observe(Change(revision("a"), None))
    assert names(known, revision("a")) == ["a"]


def test_old_writes_are_forgotten_and_the_last_one_counts() -> None:
    clock = Clock()
    known = KnownRevisions(clock)
    known.record_write("o", "uid-a", revision("a"))
    known.record_write("o", "uid-b", revision("b", 2))
    clock.now_is = OWN_WRITE_TTL - 1
    known.record_write("o", "uid-a", revision("a", 3))
    clock.now_is = OWN_WRITE_TTL + 1
    assert names(known) == ["a"]
    clock.now_is = 2 * OWN_WRITE_TTL
    assert names(known) == []
    assert not known._writes  # no state is left
    assert not known._written_of
