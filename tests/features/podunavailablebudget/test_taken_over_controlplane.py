"""Objects left by OpenKruise on a real API server: taken over, then changed, scaled and deleted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.controlplane import ControlPlane
from tests.openkruise import recorded as everything
from tests.scenarios.world import eventually, install, manager
from tests.taken_over import begin, change, create_all, path_of

pytestmark = pytest.mark.controlplane
Json = dict[str, Any]
#: Only our manager writes: there is no kubelet, and only the controllers that every Namespace needs.
CONTROLLERS = ["--controllers=serviceaccount,serviceaccount-token,namespace"]
BUDGET, SPREAD, PODS = path_of("PodUnavailableBudget", "pub"), path_of("CloneSet", "spread"), path_of("Pod")
GATES = "--feature-gates=PodUnavailableBudgetUpdateGate=true"


ORDER = ["CloneSet", "Pod", "PodUnavailableBudget", "ControllerRevision"]


def recorded() -> list[Json]:
    """The budget, its workload and their Pods, owners first."""
    mine = [
        one
        for one in everything()
        if one["kind"] in ORDER
        and (one["metadata"]["name"].startswith("spread") or one["kind"] == "PodUnavailableBudget")
    ]
    found = {one["metadata"]["uid"]: one for one in mine}
    return sorted(found.values(), key=lambda one: ORDER.index(one["kind"]))


@pytest.mark.behaviour("PUB-32", "PUB-50", "PUB-58", "PUB-59", "PUB-67", "PUB-127", "MGR-142")
def test_taken_over_and_then_changed_scaled_and_deleted(tmp_path: Path) -> None:
    with ControlPlane(controller_manager_args=CONTROLLERS) as api:
        install(api)
        begin(api)
        create_all(api, recorded())

        def pods() -> dict[str, Json]:
            return {one["metadata"]["name"]: one for one in api.request("GET", PODS)[1]["items"]}

        def numbers(*wanted: int) -> Callable[[], bool]:
            fields = ("unavailableAllowed", "currentAvailable", "desiredAvailable", "totalReplicas")

            def look() -> bool:
                status = api.request("GET", BUDGET)[1]["status"]
                return tuple(status[field] for field in fields) == wanted

            return look

        before, budget = pods(), api.request("GET", BUDGET)[1]
        assert len(before) == 5
        with manager(api, tmp_path / "manager", GATES):
            # The status is correct, so nothing is written until something changes.
            assert api.request("GET", BUDGET)[1] == budget
            change(api, BUDGET, maxUnavailable="20%")
            eventually(numbers(1, 5, 4, 5), "the status follows the change")
            after = pods()
            assert {name: pod["metadata"]["resourceVersion"] for name, pod in after.items()} == {
                name: pod["metadata"]["resourceVersion"] for name, pod in before.items()
            }
            # Only one disruption is allowed.
            first, second, third, *_ = sorted(before)
            code, answer = api.request("DELETE", f"{PODS}/{first}")
            assert code == 200, answer
            code, answer = api.request("DELETE", f"{PODS}/{second}")
            assert code == 403
            assert 'podunavailablebudget.policy.kruise.io "pub" is forbidden' in answer["message"]
            eviction = {
                "apiVersion": "policy/v1",
                "kind": "Eviction",
                "metadata": {"name": second, "namespace": "moving"},
            }
            code, answer = api.request("POST", f"{PODS}/{second}/eviction", eviction)
            assert code == 429, answer
            # The required number follows a scale-in at once.
            change(api, SPREAD, replicas=4)
            eventually(numbers(1, 4, 3, 4), "three of four must stay", 30)
            change(api, BUDGET, maxUnavailable=2)
            eventually(numbers(2, 4, 2, 4), "two of four may be disrupted", 30)
            # Without the budget, every Pod may be deleted.
            change(api, BUDGET, maxUnavailable=0)
            eventually(numbers(0, 4, 4, 4), "no Pod may be disrupted", 30)
            assert api.request("DELETE", f"{PODS}/{third}")[0] == 403
            assert api.request("DELETE", BUDGET)[0] == 200
            eventually(lambda: api.request("DELETE", f"{PODS}/{third}")[0] == 200, "deletions are allowed")
