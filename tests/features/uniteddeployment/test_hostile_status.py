"""Hostile statuses of UnitedDeployments are converted, at a cost proportional to their size."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from app.api import names
from app.api.conversion import convert
from tests.fuzz.cost import counted

ALPHA, BETA = "apps.kruise.io/v1alpha1", "apps.kruise.io/v1beta1"


def united(version: str, status: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": version, "kind": "UnitedDeployment", "metadata": {"name": "web"}, "status": status}


@pytest.mark.parametrize("name", [1.5, True, None, ["a"], {"a": 1}])
def test_unnamed_subsets_are_ignored(name: Any) -> None:
    status = {"subsetStatuses": [{"name": name, "replicas": 1}, {"name": "a", "replicas": 2, "partition": 1}]}
    found = convert(united(BETA, status), ALPHA)["status"]
    assert found["subsetReplicas"] == {"a": 2}
    assert found["updateStatus"]["currentPartitions"] == {"a": 1}


def counts(subsets: int) -> dict[str, Any]:
    return united(ALPHA, {"subsetReplicas": {f"s{number}": number for number in range(subsets)}})


def noted(subsets: int) -> dict[str, Any]:
    entries = [{"name": f"s{number}", "replicas": 1, "conditions": [1]} for number in range(subsets)]
    alpha = convert(united(BETA, {"subsetStatuses": entries}), ALPHA)
    assert convert(alpha, BETA)["status"]["subsetStatuses"] == entries
    return alpha


def noted_names(subsets: int) -> dict[str, Any]:
    change = {"path": ["status", "subsetStatuses", {"name": "s0"}, "x", "name"]}
    obj = united(ALPHA, {"subsetStatuses": [{"name": f"s{number}"} for number in range(subsets)]})
    note = json.dumps({"version": "v1beta1", "changes": [[change]] * subsets})
    obj["metadata"]["annotations"] = {names.CONVERSION_DATA: note}
    return obj


@pytest.mark.parametrize("made", [counts, noted, noted_names])
def test_conversion_is_linear_in_subsets(made: Callable[[int], dict[str, Any]]) -> None:
    def steps(subsets: int) -> int:
        obj = made(subsets)
        with counted() as count:
            convert(obj, BETA)
        return count[0]

    assert steps(800) < 5 * steps(200)
