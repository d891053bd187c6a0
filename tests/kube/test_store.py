import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.kube.objects import ObjectMeta, Pod, PodSpec
from app.kube.resources import ObjectKey
from app.kube.store import Change, Store, key_of


def pod(name: str, version: int | str = 1, *, uid: str = "", node: str = "n1", namespace: str = "shop") -> Pod:
    metadata = ObjectMeta(name=name, namespace=namespace, uid=uid or f"uid-{name}", resource_version=str(version))
    return Pod(metadata=metadata, spec=PodSpec(node_name=node))


def by_node(obj: Pod) -> list[str]:
    if obj.spec.node_name == "unknown":
        raise LookupError
    return [obj.spec.node_name] if obj.spec.node_name else []


def store_with(*pods: Pod) -> tuple[Store[Pod], list[Change[Pod]]]:
    store: Store[Pod] = Store({"node": by_node})
    for obj in pods:
        store.put(obj)
    changes: list[Change[Pod]] = []
    store.subscribe(changes.append)
    changes.clear()
    return store, changes


def names(pods) -> list[str]:
    return [obj.metadata.name for obj in pods]


def test_a_deletion_has_the_final_state_if_known():
    store, changes = store_with(pod("a", 1))
    store.remove(ObjectKey("shop", "a"), pod("a", 5))
    assert changes == [Change(pod("a", 5), None)]


def test_an_unchanged_version_is_no_change_unless_it_is_unknown():
    store, changes = store_with(pod("a", 1))
    store.put(pod("a", 1))
    store.remove(ObjectKey("shop", "unknown"))
    assert changes == []
    for _ in range(2):
        store.put(pod("b", ""))  # from a file
    assert len(changes) == 2


@pytest.mark.parametrize("uid", ["uid-a", "another"])
def test_an_object_that_an_index_rejects_changes_nothing(uid):
    store, changes = store_with(pod("a"))
    with pytest.raises(LookupError):
        store.put(pod("a", 2, uid=uid, node="unknown"))
    assert changes == []
    assert store.list() == store.by_index("node", "n1") == [pod("a")]


def test_a_recreated_object_is_another_object():
    store, changes = store_with(pod("a", 1, uid="first"))
    store.put(pod("a", 2, uid="second", node="n2"))
    assert changes == [Change(pod("a", 1, uid="first"), None), Change(None, pod("a", 2, uid="second", node="n2"))]
    assert names(store.by_index("node", "n2")) == ["a"]
    assert store.by_index("node", "n1") == []


def test_a_relist_removes_missing_objects_and_keeps_unreadable_ones():
    store, changes = store_with(pod("a"), pod("b"), pod("c"), pod("d"))
    store.replace([pod("a"), pod("b", 2), pod("e")], keep=[ObjectKey("shop", "d"), ObjectKey("shop", "unknown")])
    assert sorted(names(store.list())) == ["a", "b", "d", "e"]
    assert changes == [Change(pod("b"), pod("b", 2)), Change(None, pod("e")), Change(pod("c"), None)]


def test_subscribers_get_existing_objects_and_may_leave():
    store, _ = store_with(pod("a"))
    seen: list[Change[Pod]] = []
    leave = store.subscribe(seen.append)
    assert seen == [Change(None, pod("a"))]
    leave()
    leave()
    store.put(pod("b"))
    assert len(seen) == 1


def test_objects_are_found_by_name_namespace_and_index():
    store, _ = store_with(pod("a"), pod("b", namespace="other"), pod("c", node=""))
    assert store.get("a", "shop") == pod("a")
    assert store.get("a", "other") is None
    assert store.by_key(ObjectKey("other", "b")) is not None
    assert ObjectKey("shop", "c") in store
    assert len(store) == 3
    assert names(store.list("shop")) == ["a", "c"]
    assert names(store.by_index("node", "n1")) == ["a", "b"]
    assert list(store._indexes["node"]) == ["n1"]
    with pytest.raises(KeyError):
        store.by_index("owner", "x")


async def test_a_store_is_ready_after_its_first_list():
    store: Store[Pod] = Store()
    waiting = asyncio.create_task(store.wait_until_ready())
    store.put(pod("a"))
    await asyncio.sleep(0)
    assert not store.ready
    assert not waiting.done()
    store.replace([])
    await asyncio.wait_for(waiting, 120)
    assert store.ready


pods = st.builds(
    pod,
    st.sampled_from("abcd"),
    st.integers(1, 4),
    uid=st.sampled_from(["u", "v"]),
    node=st.sampled_from(["", "n1", "n2"]),
)
operations = st.lists(
    st.one_of(
        st.tuples(st.just("put"), pods),
        st.tuples(st.just("remove"), pods),
        st.tuples(st.just("replace"), st.lists(pods, max_size=4, unique_by=lambda obj: obj.metadata.name)),
    ),
    max_size=30,
)


@given(operations)
def test_indexes_and_subscribers_agree_with_the_objects(steps):
    store, changes = store_with()
    for action, argument in steps:
        if action == "put":
            store.put(argument)
        elif action == "remove":
            store.remove(key_of(argument))
        else:
            store.replace(argument)
    told: dict[ObjectKey, Pod] = {}
    for change in changes:
        key = key_of(change.object)
        assert told.get(key) == change.old
        if change.new is None:
            del told[key]
        else:
            told[key] = change.new
    assert told == {key_of(obj): obj for obj in store.list()}
    for node in ("n1", "n2"):
        expected = sorted(names(obj for obj in store.list() if obj.spec.node_name == node))
        assert sorted(names(store.by_index("node", node))) == expected
        assert all(obj in store.list() for obj in store.by_index("node", node))
    assert set(store._indexes["node"]) == {obj.spec.node_name for obj in store.list()} - {""}
