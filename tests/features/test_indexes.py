"""Indexes that follow a store: after any changes they are as if built anew, and remember nothing that is gone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.features.podunavailablebudget.index import Claims
from app.features.podunavailablebudget.targets import BUDGETS
from app.features.sidecarset.feature import SIDECAR_SETS
from app.features.sidecarset.injection.selection import indexed
from app.features.workloadspread.index import SpreadIndex
from app.features.workloadspread.reconcile import SPREADS
from app.framework.watched import Watched
from app.kube.resources import ObjectKey
from app.kube.store import Store
from tests.fuzz import cost

Json = dict[str, Any]
WEB: Json = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
SELECTOR: Json = {"matchLabels": {"app": "web"}}
WRONG: Json = {"matchExpressions": [{"key": "app", "operator": "Odd"}]}
IN_SHOPS: Json = {
    "matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["shop", "shop"]}]
}
SUBSETS: Json = {"subsets": [{"name": "a", "maxReplicas": 1}, {"name": "b"}]}
#: The cache of each index, and the specs of the objects in it.
INDEXES: Mapping[Callable[[Store[Any]], Any], tuple[Watched[Any], tuple[Json, ...]]] = {
    SpreadIndex: (
        SPREADS,
        (
            {"targetRef": WEB, **SUBSETS},
            {"targetRef": {**WEB, "name": "db"}, **SUBSETS, "targetFilter": {"selector": SELECTOR}},
            {"targetRef": WEB, **SUBSETS, "targetFilter": {"selector": WRONG}},
        ),
    ),
    Claims: (
        BUDGETS,
        (
            {"targetRef": WEB, "maxUnavailable": 1},
            {"targetRef": {**WEB, "name": "db"}, "maxUnavailable": 1},
            {"selector": SELECTOR, "maxUnavailable": 1},
        ),
    ),
    indexed: (
        SIDECAR_SETS,
        (
            {"selector": SELECTOR},
            {"selector": SELECTOR, "namespaceSelector": IN_SHOPS},
            {"selector": WRONG},
        ),
    ),
}


def plain(one: Any) -> Any:
    """Return the content of an object of ours, down to what can be compared."""
    if isinstance(one, Mapping):
        return {key: plain(value) for key, value in one.items()}
    if isinstance(one, list | tuple | set | frozenset):
        return [plain(value) for value in one]
    if not type(one).__module__.startswith("app."):
        return one
    slots = [name for kind in type(one).__mro__ for name in getattr(kind, "__slots__", ())]
    return {name: plain(getattr(one, name)) for name in (*slots, *getattr(one, "__dict__", ()))}


@pytest.mark.parametrize("make", [pytest.param(make, id=watched.name) for make, (watched, _) in INDEXES.items()])
@example([("shop", "a", number, False) for number in (0, 1, 2, None)])
@example([("shop", "a", 0, False), ("shop", "b", 0, False), ("shop", "a", 0, True), ("shop", "a", 1, False)])
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["shop", "lab"]), st.sampled_from("ab"), st.sampled_from([0, 1, 2, None]), st.booleans()
        )
    )
)
def test_an_index_is_as_if_built_anew(
    make: Callable[[Store[Any]], Any], changes: list[tuple[str, str, int | None, bool]]
) -> None:
    watched, specs = INDEXES[make]
    store: Store[Any] = Store()
    index = make(store)
    for version, (namespace, name, spec, deleting) in enumerate(changes, 1):
        where = namespace if watched.resource.namespaced else ""
        if spec is None:
            store.remove(ObjectKey(where, name))
            continue
        metadata: Json = {"name": name, "namespace": where, "uid": name, "resourceVersion": f"{version}"}
        metadata |= {"generation": version, "creationTimestamp": f"2030-01-01T00:00:0{name == 'a':d}Z"}
        metadata |= {"deletionTimestamp": "2030-01-01T00:00:00Z"} if deleting else {}
        store.put(watched.decode(orjson.dumps({"metadata": metadata, "spec": specs[spec]})))
        if make is not indexed:  # whose order depends on the history
            assert plain(index) == plain(make(store))
            continue
        anew = make(store)
        assert index.unusable == anew.unusable
        for namespace in ("shop", "lab"):
            found, wanted = (one.candidates(namespace, {"app": "web"}) for one in (index, anew))
            assert [one.name for one in found] == [one.name for one in wanted]
    store.replace([])
    assert plain(index) == plain(make(Store()))


@pytest.mark.parametrize("make", [pytest.param(make, id=watched.name) for make, (watched, _) in INDEXES.items()])
def test_a_change_costs_the_same_among_many_objects(make: Callable[[Store[Any]], Any]) -> None:
    watched, specs = INDEXES[make]

    def put(store: Store[Any], number: int) -> None:
        spec = {**specs[0], **({"targetRef": {**WEB, "name": f"web-{number}"}} if "targetRef" in specs[0] else {})}
        metadata: Json = {"name": f"one-{number}", "uid": f"{number}", "resourceVersion": "1", "generation": 1}
        metadata |= {"namespace": "shop"} if watched.resource.namespaced else {}
        metadata |= {"creationTimestamp": "2030-01-01T00:00:00Z"}
        store.put(watched.decode(orjson.dumps({"metadata": metadata, "spec": spec})))

    def steps(others: int) -> int:
        store: Store[Any] = Store()
        index = make(store)
        for number in range(others):
            put(store, number)
        with cost.counted() as count:
            put(store, others)
        assert index is not None
        return count[0]

    assert steps(200) < 1.5 * steps(20)
