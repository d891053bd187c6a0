from dataclasses import replace

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.kube.objects import OwnerReference, decode_controller_revision
from app.pods.predicates import Owner
from app.pods.revisions import (
    Create,
    Reuse,
    Revision,
    after_clash,
    current_revision,
    in_order,
    is_same_revision,
    next_number,
    of_owner,
    oldest_unused,
    plan_revision,
    revision_hash,
    revision_name,
    revision_of,
    short_hash,
    surplus_of_workload,
    template_data,
)


def revision(number: int, data: bytes = b"", **more: object) -> Revision:
    return Revision(f"web-{number}", number, data or f"content {number}".encode(), **more)  # type: ignore[arg-type]


HISTORY = [revision(1), revision(2), revision(4)]


@pytest.mark.behaviour("PM-82", "PM-84")
@pytest.mark.parametrize(("collisions", "digest"), [(0, "6cd8d89b98"), (1, "6cd8d89b99"), (None, "6776fdb6b")])
def test_revision_hashes_match_known_values(collisions: int | None, digest: str) -> None:
    data = b'{"spec":{"template":{"$patch":"replace","spec":{"containers":[{"name":"c1","image":"foo1"}]}}}}'
    assert revision_hash(data, collisions) == digest


@pytest.mark.behaviour("PM-83")
def test_a_long_workload_name_is_cut_in_the_revision_name() -> None:
    assert revision_name("w" * 253, "abc") == "w" * 223 + "-abc"


@pytest.mark.behaviour("PM-86")
def test_revisions_are_ordered_by_number_then_age_then_name() -> None:
    late = Revision("a", 1, b"", created="2026-01-02T00:00:00+00:00")
    early = Revision("b", 1, b"", created="2026-01-01T00:00:00+00:00")
    twin = Revision("c", 1, b"", created="2026-01-01T00:00:00+00:00")
    newest = Revision("0", 3, b"", created="2025-01-01T00:00:00+00:00")
    assert in_order([newest, late, twin, early]) == [early, twin, late, newest]
    assert next_number([early, newest]) == 4
    assert next_number([]) == 1


@pytest.mark.behaviour("PM-85")
def test_revisions_of_another_owner_do_not_count() -> None:
    me = Owner("apps.kruise.io/v1beta1", "CloneSet", "web", "shop", "me")
    by_me, by_other = (OwnerReference("apps.kruise.io/v1alpha1", "CloneSet", "web", uid) for uid in ("me", "other"))
    orphan, own = revision(1, namespace="shop"), revision(2, namespace="shop", controller=by_me)
    foreign = revision(3, namespace="shop", controller=by_other), revision(4, namespace="evil", controller=by_me)
    assert of_owner([orphan, own, *foreign], me) == [orphan, own]


EQUAL = [revision(1, b"same"), revision(2, b"same")]
TERMINATING = [revision(1), revision(2, b"wanted", deleting=True)]
BELOW_TERMINATING = [revision(1, b"wanted"), revision(2, deleting=True)]


def created(data: bytes, number: int) -> Create:
    return Create("web-" + revision_hash(data, 7), revision_hash(data, 7), number, 7, data)


@pytest.mark.behaviour("PM-87", "PM-88", "PM-89", "PM-90")
@pytest.mark.parametrize(("history", "data", "expected"), [
    pytest.param(HISTORY, b"content 4", Reuse(HISTORY[2], 4), id="the newest has the content"),
    pytest.param(HISTORY, b"content 1", Reuse(HISTORY[0], 5), id="an older one has it: rollback"),
    pytest.param(HISTORY, b"new", created(b"new", 5), id="none has it"),
    pytest.param(EQUAL, b"same", Reuse(EQUAL[1], EQUAL[1].number), id="two have it: the newer is used"),
    pytest.param(TERMINATING, b"wanted", created(b"wanted", 3), id="a terminating one has it"),
    pytest.param(BELOW_TERMINATING, b"wanted", Reuse(BELOW_TERMINATING[0], 3), id="the newest is terminating"),
])  # fmt: skip
def test_content_is_recorded_once(history: list[Revision], data: bytes, expected: object) -> None:
    assert plan_revision("web", data, history, 7) == expected


@pytest.mark.behaviour("PM-87", "PM-88")
@pytest.mark.parametrize(("metadata", "same"), [
    ('{"creationTimestamp":null,"labels":{"app":"web"}}', True),
    ('{"labels":{"app":"web"}}', True),
    ('{"creationTimestamp":"2026-01-01T00:00:00Z","labels":{"app":"web"}}', False),
    ('{"labels":{}}', False),
    ("null", False),
    ("[]", False),
])  # fmt: skip
def test_a_null_creation_timestamp_equals_a_missing_one(metadata: str, same: bool) -> None:
    """Kubernetes 1.34 records null. The revision keeps its name."""
    ours = template_data({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": []}})
    data = f'{{"spec":{{"template":{{"spec":{{"containers":[]}},"metadata":{metadata},"$patch":"replace"}}}}}}'
    stored = {"metadata": {"name": "web-native"}, "revision": 1, "data": orjson.Fragment(data)}
    recorded = revision_of(decode_controller_revision(orjson.dumps(stored)))
    assert (plan_revision("web", ours, [recorded], 0) == Reuse(recorded, 1)) is same


@pytest.mark.behaviour("PM-87")
@pytest.mark.parametrize("data", ["[]", "null", '"x"', '{"spec":[]}', '{"spec":{"template":"x"}}', "{}"])
def test_a_revision_without_template_is_read_unchanged(data: str) -> None:
    stored = {"metadata": {"name": "web-1"}, "revision": 1, "data": orjson.Fragment(data)}
    assert revision_of(decode_controller_revision(orjson.dumps(stored))).data == data.encode()


@pytest.mark.behaviour("PM-90", "PM-91")
def test_a_name_collision_is_counted_and_keeps_the_first_hash_as_label() -> None:
    first = plan_revision("web", b"new", HISTORY, 0)
    assert isinstance(first, Create)
    second = after_clash("web", first, Revision(first.name, 9, b"other"))
    assert second == replace(first, name=revision_name("web", revision_hash(b"new", 1)), collision_count=1)
    assert isinstance(second, Create)
    third = after_clash("web", second, Revision(second.name, 9, b"other"))
    assert isinstance(third, Create)
    assert (third.name, third.collision_count) == (revision_name("web", revision_hash(b"new", 2)), 2)
    assert third.label_hash == first.label_hash


@pytest.mark.behaviour("PM-90")
@pytest.mark.parametrize(("found", "number"), [(2, 5), (5, 5), (8, 8)])
def test_an_equal_revision_of_the_name_is_reused_and_stays_newest(found: int, number: int) -> None:
    create = plan_revision("web", b"new", HISTORY, 0)
    assert isinstance(create, Create)
    existing = Revision(create.name, found, b"new")
    assert after_clash("web", create, existing) == Reuse(existing, number)


def test_a_name_of_a_terminating_revision_is_not_used() -> None:
    create = plan_revision("web", b"new", HISTORY, 0)
    assert isinstance(create, Create)
    assert isinstance(after_clash("web", create, Revision(create.name, 2, b"new", deleting=True)), Create)


REVISIONS = st.lists(
    st.builds(
        Revision,
        name=st.uuids().map(str),
        number=st.integers(1, 20),
        data=st.sampled_from([b"a", b"b", b"c", b"d"]),
        deleting=st.booleans(),
    ),
    max_size=12,
    unique_by=lambda revision: revision.name,
)


@pytest.mark.behaviour("PM-88", "PM-89", "PM-90")
@given(REVISIONS, st.sampled_from([b"a", b"b", b"e"]))
def test_the_plan_makes_the_content_newest_and_keeps_the_order_of_others(
    revisions: list[Revision], data: bytes
) -> None:
    ordered = in_order(revisions)
    plan = plan_revision("web", data, ordered, 0)
    if isinstance(plan, Create):
        used = Revision(plan.name, plan.number, plan.data)
        after = [*ordered, used]
    else:
        used = replace(plan.revision, number=plan.number)
        after = [r for r in ordered if r.name != used.name] + [used]
    assert used.data == data
    assert not used.deleting
    assert in_order(after)[-1].number == used.number
    others = [r.name for r in in_order(after) if r.name != used.name]
    assert others == [r.name for r in ordered if r.name != used.name]


@pytest.mark.behaviour("PM-93")
@given(REVISIONS, st.sets(st.integers(0, 11)), st.integers(-1, 8))
def test_truncation_deletes_the_oldest_and_never_revisions_in_use(
    revisions: list[Revision], used: set[int], limit: int
) -> None:
    ordered = in_order(revisions)
    in_use = {r.name for position, r in enumerate(ordered) if position in used}
    deleted = surplus_of_workload(ordered, in_use, max(0, limit))
    assert not {r.name for r in deleted} & in_use
    unused = [r for r in ordered if r.name not in in_use and not r.deleting]
    assert list(deleted) == unused[: len(unused) - max(0, limit)] if len(unused) > max(0, limit) else not deleted


def test_truncation_is_limited_by_revisions_in_use() -> None:
    assert oldest_unused(HISTORY, {"web-1", "web-4"}, 3) == (HISTORY[1],)
    assert oldest_unused(HISTORY, (), 0) == ()
    assert oldest_unused(HISTORY, (), -2) == ()


@pytest.mark.behaviour("PM-78")
@pytest.mark.parametrize(("one", "other", "same"), [
    ("web-abc", "web-abc", True),
    ("web-abc", "abc", True),
    ("abc", "web-abc", True),
    ("web-abc", "web-abd", False),
    ("", "", False),
    ("", "web-abc", False),
])  # fmt: skip
def test_full_and_short_names_are_the_same_revision(one: str, other: str, same: bool) -> None:
    assert is_same_revision(one, other) is same
    assert short_hash("my-web-abc") == "abc"


@pytest.mark.behaviour("PM-92")
def test_the_current_revision_is_the_recorded_one_or_the_newest() -> None:
    assert current_revision("web-1", HISTORY, HISTORY[2]) is HISTORY[0]
    assert current_revision("web-9", HISTORY, HISTORY[2]) is HISTORY[2]
    assert current_revision("", [], HISTORY[2]) is HISTORY[2]
