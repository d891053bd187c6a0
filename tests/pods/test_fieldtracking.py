"""Pods are stored without managed fields if their creator requests it."""

from __future__ import annotations

from typing import Any

import pytest

from app.kube.wire import USER_AGENT
from app.pods.admission import UNTRACKED
from tests.features.admitting import World, pod


def entry(manager: str, **more: Any) -> dict[str, Any]:
    return {"manager": manager, "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", **more}


@pytest.mark.behaviour("D-25")
def test_without_field_tracking_a_pod_has_no_managed_fields() -> None:
    answer = World().create(pod(metadata={"managedFields": [entry(UNTRACKED)]}))
    assert answer.operations == [{"op": "remove", "path": "/metadata/managedFields"}]
    assert answer.rules == ["CloneSetPodManagedFields"]


@pytest.mark.parametrize(
    "entries",
    [None, [], [entry(USER_AGENT)], [entry("kubectl-create")], [entry(UNTRACKED), entry("another-webhook")], [{}]],
)
def test_other_pods_keep_them(entries: list[dict[str, Any]] | None) -> None:
    assert World().create(pod(metadata={} if entries is None else {"managedFields": entries})).operations == []
