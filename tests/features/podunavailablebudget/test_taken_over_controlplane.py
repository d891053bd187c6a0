"""What OpenKruise left behind, on a real API server: taken over, then changed, scaled and deleted by ours."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.controlplane import ControlPlane
from tests.features.podunavailablebudget.test_taken_over import recorded
from tests.openkruise import bare
from tests.scenarios.world import eventually, install, manager

pytestmark = pytest.mark.controlplane
Json = dict[str, Any]
#: Nobody but our manager writes: no kubelet, and no controller but those that every Namespace needs.
CONTROLLERS = ["--controllers=serviceaccount,serviceaccount-token,namespace"]
CORE, APPS = "/api/v1/namespaces/moving", "/apis/apps.kruise.io/v1beta1/namespaces/moving"
BUDGETS = "/apis/policy.kruise.io/v1beta1/namespaces/moving/podunavailablebudgets"
PATHS = {
    "CloneSet": f"{APPS}/clonesets",
    "Pod": f"{CORE}/pods",
    "PodUnavailableBudget": BUDGETS,
    "WorkloadSpread": f"{APPS}/workloadspreads",
    "ControllerRevision": "/apis/apps/v1/namespaces/moving/controllerrevisions",
}
GATES = "--feature-gates=PodUnavailableBudgetUpdateGate=true"


def lay_down(api: ControlPlane, items: Iterable[Json]) -> None:
    """Recorded objects, owners first, under the uids that this API server gives."""
    api.kubectl("create", "namespace", "moving")
    api.kubectl("wait", "--for=create", "-n", "moving", "serviceaccount/default", "--timeout=30s")
    uids: dict[str, str] = {}
    for one in items:
        body, path, name = bare(one), PATHS[one["kind"]], one["metadata"]["name"]
        for reference in one["metadata"].get("ownerReferences", ()):
            body["metadata"]["ownerReferences"] = [{**reference, "uid": uids[reference["uid"]]}]
        code, made = api.request("POST", path, body)
        assert code == 201, made
        uids[one["metadata"]["uid"]] = made["metadata"]["uid"]
        if one.get("status"):
            code, answer = api.request("PUT", f"{path}/{name}/status", {**made, "status": one["status"]})
            assert code == 200, answer


@pytest.mark.behaviour("PUB-32", "PUB-50", "PUB-58", "PUB-59", "PUB-67", "PUB-127", "MGR-142")
def test_taken_over_and_then_changed_scaled_and_deleted(tmp_path: Path) -> None:
    with ControlPlane(controller_manager_args=CONTROLLERS) as api:
        install(api)
        lay_down(api, recorded())

        def pods() -> dict[str, Json]:
            return {one["metadata"]["name"]: one for one in api.request("GET", PATHS["Pod"])[1]["items"]}

        def numbers(*wanted: int) -> Callable[[], bool]:
            fields = ("unavailableAllowed", "currentAvailable", "desiredAvailable", "totalReplicas")

            def look() -> bool:
                status = api.request("GET", f"{BUDGETS}/pub")[1]["status"]
                return tuple(status[field] for field in fields) == wanted

            return look

        def change(path: str, **spec: Any) -> None:
            code = 409
            while code == 409:  # its controller writes its status
                found = api.request("GET", path)[1]
                code, answer = api.request("PUT", path, {**found, "spec": {**found["spec"], **spec}})
            assert code == 200, answer

        before, budget = pods(), api.request("GET", f"{BUDGETS}/pub")[1]
        assert len(before) == 5
        with manager(api, tmp_path / "manager", GATES):
            # Its numbers are right, so nothing is written until something changes.
            assert api.request("GET", f"{BUDGETS}/pub")[1] == budget
            change(f"{BUDGETS}/pub", maxUnavailable="20%")
            eventually(numbers(1, 5, 4, 5), "the change is answered")
            after = pods()
            assert {name: pod["metadata"]["resourceVersion"] for name, pod in after.items()} == {
                name: pod["metadata"]["resourceVersion"] for name, pod in before.items()
            }
            # One may go, and no more.
            first, second, third, *_ = sorted(before)
            code, answer = api.request("DELETE", f"{PATHS['Pod']}/{first}")
            assert code == 200, answer
            code, answer = api.request("DELETE", f"{PATHS['Pod']}/{second}")
            assert code == 403
            assert 'podunavailablebudget.policy.kruise.io "pub" is forbidden' in answer["message"]
            eviction = {
                "apiVersion": "policy/v1",
                "kind": "Eviction",
                "metadata": {"name": second, "namespace": "moving"},
            }
            code, answer = api.request("POST", f"{PATHS['Pod']}/{second}/eviction", eviction)
            assert code == 429, answer
            # Scaled in: what has to stay follows at once.
            change(f"{PATHS['CloneSet']}/spread", replicas=4)
            eventually(numbers(1, 4, 3, 4), "three have to stay of four", 30)
            change(f"{BUDGETS}/pub", maxUnavailable=2)
            eventually(numbers(2, 4, 2, 4), "two of four may go", 30)
            # Deleted: everybody may go.
            change(f"{BUDGETS}/pub", maxUnavailable=0)
            eventually(numbers(0, 4, 4, 4), "nobody may go", 30)
            assert api.request("DELETE", f"{PATHS['Pod']}/{third}")[0] == 403
            assert api.request("DELETE", f"{BUDGETS}/pub")[0] == 200
            eventually(lambda: api.request("DELETE", f"{PATHS['Pod']}/{third}")[0] == 200, "nothing is held back")
