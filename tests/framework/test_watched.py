"""Watch declarations that share a cache, and declarations that contradict each other."""

from __future__ import annotations

from dataclasses import replace

import orjson
import pytest

from app.api.model import MAX_STATUS_OBJECTS
from app.features.advancedcronjob.reconcile import CRONS
from app.framework.watched import PODS, Scope, Stores
from app.kube.objects import decode_pod
from app.pods.predicates import BY_CONTROLLER

POD = orjson.dumps({"metadata": {"name": "web-abcde", "namespace": "shop", "uid": "1"}})


def test_features_with_equal_watches_share_a_cache_with_all_indexes() -> None:
    stores = Stores([PODS.indexed(a=lambda _: ["x"]), PODS.indexed(b=lambda _: ["y"])])
    stores(PODS).replace([decode_pod(POD)])
    assert [len(stores(PODS).by_index(name, key)) for name, key in (("a", "x"), ("b", "y"))] == [1, 1]


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (replace(PODS, decode=lambda _: None), "Pods: two features decode or filter them differently"),
        (PODS.indexed(**{BY_CONTROLLER: lambda _: []}), f"Pods: duplicate index {BY_CONTROLLER}"),
        (PODS.selected("Pods", "app=web"), "duplicate cache Pods"),
    ],
)
def test_contradicting_watches_are_an_error(second: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Stores([PODS, second])  # type: ignore[list-item]


def test_the_error_names_an_undeclared_cache() -> None:
    with pytest.raises(KeyError, match="Pods are not watched here"):
        Stores([])(PODS)


def test_another_scope_or_selector_needs_another_cache() -> None:
    labeled, own = PODS.selected("Pods of ours", "app=web"), replace(PODS, scope=Scope.OWN, name="own Pods")
    stores = Stores([PODS, labeled, own])
    assert len({id(stores(one)) for one in (PODS, labeled, own)}) == len(stores.by_name) == 3
    assert own.permission.own_namespace
    assert not labeled.permission.own_namespace


@pytest.mark.behaviour("MGR-164")
def test_a_status_with_too_many_objects_is_not_cached() -> None:
    """No webhook checks a status. Half a million empty objects in a status took 330 MiB in every process."""

    def cron(objects: int, template: object = None) -> bytes:
        spec = {"schedule": "0 1 * * *", "template": {"jobTemplate": template or {"spec": {}}}}
        return orjson.dumps({"metadata": {"name": "nightly"}, "spec": spec, "status": {"active": [{}] * objects}})

    assert CRONS.decode(cron(1)).metadata.name == "nightly"
    assert CRONS.decode(cron(1, {"spec": [{}] * MAX_STATUS_OBJECTS})).metadata.name == "nightly"
    with pytest.raises(ValueError, match=f"status: has more than {MAX_STATUS_OBJECTS} objects"):
        CRONS.decode(cron(MAX_STATUS_OBJECTS + 1))


@pytest.mark.behaviour("MGR-164")
def test_managed_fields_are_not_cached() -> None:
    def cron(**more: object) -> bytes:
        return orjson.dumps(
            {"metadata": {"name": "nightly", "resourceVersion": "1", **more}, "spec": {"schedule": "", "template": {}}}
        )

    found = CRONS.decode(cron(managedFields=[{"manager": "x", "fieldsV1": {"f:spec": {}}}]))
    assert found == CRONS.decode(cron())
    assert found.to_dict() == CRONS.decode(cron()).to_dict()
