"""Deletion and update order of the Pods of a CloneSet."""

import pytest

from app.features.cloneset.plan.scale import deletion_order
from app.features.cloneset.plan.settings import Settings
from app.features.cloneset.plan.update import update_order
from app.features.cloneset.types import RollingUpdate
from app.workloads.pods import PodFacts, pod_facts
from tests.kit import objects


def made(
    name: str, *, node: str = "a", phase: str = "Running", ready: bool = True, cost: str = "", **labels: str
) -> PodFacts:
    condition = {"type": "Ready", "status": str(ready), "lastTransitionTime": "2026-01-01T00:00:01Z"}
    annotations = {"controller.kubernetes.io/pod-deletion-cost": cost} if cost else {}
    metadata = {"labels": labels, "annotations": annotations, "creationTimestamp": "2026-01-01T00:00:00Z"}
    return pod_facts(objects.pod(name, node=node, phase=phase, conditions=[condition], **metadata), Settings())


def names(pods: list[PodFacts]) -> list[str]:
    return [pod.name for pod in pods]


@pytest.mark.behaviour("CS-112", "CS-113")
def test_the_least_useful_pod_is_deleted_first() -> None:
    # [U-23]
    pods = [
        made("serving", node="a"),
        made("costly", node="b", cost="10"),
        made("cheap", node="c", cost="-10"),
        made("not-ready", node="d", ready=False),
        made("pending", node="e", phase="Pending", ready=False),
        made("unscheduled", node="", phase="Pending", ready=False),
        made("crowded", node="a"),
    ]
    order = deletion_order({}, lambda _node: None, 0.0)
    assert names(order(pods)) == ["unscheduled", "pending", "not-ready", "cheap", "crowded", "serving", "costly"]


@pytest.mark.behaviour("CS-114")
def test_crowded_zones_come_first_with_topology_spread() -> None:
    template = {"spec": {"topologySpreadConstraints": [{"topologyKey": "zone"}]}}
    zones = {"a": {"zone": "1"}, "b": {"zone": "1"}, "c": {"zone": "2"}}
    pods = [made("lonely", node="c"), made("one", node="a"), made("two", node="b")]
    assert names(deletion_order(template, zones.get, 0.0)(pods))[0] in ("one", "two")


@pytest.mark.behaviour("CS-125", "CS-126", "CS-127", "CS-128")
def test_the_least_useful_pod_is_updated_first() -> None:
    # [U-21]
    pods = [made(f"p{number}") for number in range(8)]
    broken = made("broken", ready=False)
    preparing = made("preparing", **{"lifecycle.apps.kruise.io/state": "PreparingUpdate"})
    assert names(update_order([], None)([*pods, broken, preparing]))[:2] == ["preparing", "broken"]
    heavy = made("heavy", tier="front")
    weights = {
        "priorityStrategy": {"weightPriority": [{"weight": 5, "matchSelector": {"matchLabels": {"tier": "front"}}}]}
    }
    assert names(update_order([], RollingUpdate.model_validate(weights))([*pods, heavy]))[0] == "heavy"
    spread = [made(f"s{number}", tier="front") for number in range(3)]
    scatter = RollingUpdate.model_validate({"scatterStrategy": [{"key": "tier", "value": "front"}]})
    ten = [*pods[:7], *spread]
    ordered = names(update_order(ten, scatter)(ten))
    assert [index + 1 for index, name in enumerate(ordered) if name.startswith("s")] == [1, 6, 10]
