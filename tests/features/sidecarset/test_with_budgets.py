"""SidecarSets and PodUnavailableBudgets of the same Pods: the manager with its webhooks, on a simulated cluster."""

from __future__ import annotations

from typing import Any

import pytest

from app.api import names
from app.features.cloneset.kind import CLONE_SET
from app.features.podunavailablebudget.kind import POD_UNAVAILABLE_BUDGET
from app.features.sidecarset.kind import SIDECAR_SET
from app.kube.client import Client, PatchType
from app.kube.errors import ApiError
from app.kube.resources import PODS, Resource
from tests.managed import in_managed
from tests.sandbox.cluster import Simulated

Json = dict[str, Any]
SETS, BUDGETS, CLONES = SIDECAR_SET.resource(), POD_UNAVAILABLE_BUDGET.resource(), CLONE_SET.resource()
LABELS = {"app": "web"}
GATE = "--feature-gates=PodUnavailableBudgetUpdateGate=true"


async def create(there: Simulated, resource: Resource, name: str, spec: Json) -> None:
    kind = {"apiVersion": resource.api_version, "kind": resource.kind}
    await there.create(resource, {**kind, "metadata": {"name": name}, "spec": spec})


def sidecars(image: str) -> list[Json]:
    return [{"name": "shipper", "image": image, "command": ["/bin/sh", "-c", "trap 'exit 0' TERM; sleep 1000000"]}]


async def pods_with_a_budget(there: Simulated, max_unavailable: int) -> list[Json]:
    """Two Pods of a CloneSet with a sidecar, all of them under the budget web-pub."""
    selector = {"matchLabels": LABELS}
    await create(there, BUDGETS, "web-pub", {"selector": selector, "maxUnavailable": max_unavailable})
    await create(there, SETS, "s", {"selector": selector, "containers": sidecars("busybox:1.36")})
    await there.client.clock.sleep(2)
    template = {"metadata": {"labels": LABELS}, "spec": {"containers": [{"name": "main", "image": "nginx:1"}]}}
    await create(there, CLONES, "web", {"replicas": 2, "selector": selector, "template": template})
    await there.status(CLONES, "web", readyReplicas=2)
    return await there.pods("app=web")


@in_managed(GATE)
async def test_a_cloneset_pod_gets_gate_budget_and_sidecar(there: Simulated) -> None:
    for pod in await pods_with_a_budget(there, 1):
        gates = [one["conditionType"] for one in pod["spec"]["readinessGates"]]
        assert names.KRUISE_POD_READY in gates
        annotations = pod["metadata"]["annotations"]
        assert annotations[names.RELATED_PUB] == annotations[names.RELATED_PUB_OLD] == "web-pub"
        assert [one["name"] for one in pod["spec"]["containers"]] == ["shipper", "main"]


@pytest.mark.behaviour("PW-26")
@in_managed(GATE)
async def test_an_update_by_the_sidecarset_controller_is_checked_like_any_other(there: Simulated) -> None:
    before = await pods_with_a_budget(there, 0)
    await there.patch(SETS, "s", {"spec": {"containers": sidecars("busybox:1.37")}})
    await there.client.clock.sleep(30)
    assert _images(await there.pods("app=web")) == _images(before) == {"busybox:1.36"}
    # The webhook also refuses the manager's own account.
    account = "system:serviceaccount:kruise-system:kruise-manager"
    ours = Client(there.api.transport(account), there.client.clock)
    image = {"spec": {"containers": [{"name": "shipper", "image": "busybox:1.37"}]}}
    name = before[0]["metadata"]["name"]
    with pytest.raises(ApiError, match="web-pub"):
        await ours.patch(PODS, name, image, "default", kind=PatchType.STRATEGIC)
    await there.patch(BUDGETS, "web-pub", {"spec": {"maxUnavailable": 1}})

    async def updated() -> bool:
        return _images(await there.pods("app=web")) == {"busybox:1.37"}

    await there.until(updated, 120)


def _images(pods: list[Json]) -> set[str]:
    return {one["image"] for pod in pods for one in pod["spec"]["containers"] if one["name"] == "shipper"}
