"""Declarations shared by workload controllers: permissions, gates and options."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from app.api import names
from app.api.kind import KindDefinition
from app.api.model import KubeObject
from app.framework.feature import ControllerContext
from app.framework.watched import Watched
from app.kube.admission import PolicyRule
from app.kube.objects import OwnerReference, Pod
from app.pods.disruption_budget import DisruptionBudget, LeastAvailable, known
from app.pods.node_agents import NodeAgents
from app.pods.predicates import Owner, refers_to
from app.pods.sorting import UpdateOrder
from app.workloads.metrics import WorkloadCounters

Owned = TypeVar("Owned", bound=KubeObject)

#: Names of the flag and the gates that the engine reads.
EXPECTATION_TIMEOUT: Final = "expectation-timeout"
_FORCE_EXPECTATIONS: Final = "ForceDeleteTimeoutExpectationGate"
GATES: Final = (
    "PodWebhook",
    _FORCE_EXPECTATIONS,
    "InPlaceUpdateEnvFromMetadata",
    "InPlaceWorkloadVerticalScaling",
    "KruiseDaemon",
)


def permissions(kind: KindDefinition) -> tuple[PolicyRule, ...]:
    """Return the permissions the engine needs for a kind."""
    return (
        PolicyRule(("get",), (kind.group,), (kind.plural,)),
        PolicyRule(("patch",), (kind.group,), (f"{kind.plural}/status",)),
        # Setting blockOwnerDeletion requires permission to update the owner's finalizers.
        PolicyRule(("update",), (kind.group,), (f"{kind.plural}/finalizers",)),
        PolicyRule(("create", "delete", "get", "patch"), ("",), ("pods",)),
        PolicyRule(("patch",), ("",), ("pods/status", "pods/resize")),
        PolicyRule(("create", "delete", "get", "patch"), ("apps",), ("controllerrevisions",)),
        PolicyRule(("create", "patch"), ("",), ("events",)),
        # For pre-pulling images.
        PolicyRule(("create", "delete", "list"), (names.APPS_GROUP,), ("imagepulljobs",)),
    )


def options(context: ControllerContext, kind: KindDefinition) -> dict[str, Any]:
    """Return the engine's options for a workload reconciler."""
    return {
        "budget": next(iter(context.provided(DisruptionBudget)), None),
        "agents": next(iter(context.provided(NodeAgents)), None),
        "metrics": context.counters(WorkloadCounters).of(kind.kind),
        "expectation_timeout": context.flags.seconds(EXPECTATION_TIMEOUT),
        "force_expectations": context.enabled(_FORCE_EXPECTATIONS),
    }


def least_available(
    context: ControllerContext, watched: Watched[Owned], rule: Callable[[Owned], int]
) -> LeastAvailable:
    """Return the function that returns the minimum number of available Pods of an object of this kind. ``rule``
    computes it. [PPM-53]"""
    objects, resource = context.stores(watched), watched.resource

    def least(owner: OwnerReference, namespace: str) -> int | None:
        if (owner.group, owner.kind) != (resource.group, resource.kind):
            return None
        return max(0, rule(known(objects.get(owner.name, namespace), resource, owner)))

    return least


def update_order(
    context: ControllerContext, watched: Watched[Owned], order: Callable[[Owned, Sequence[Pod]], Sequence[Pod]]
) -> UpdateOrder:
    """Return the function that returns the order in which an object of this kind updates its Pods. [IMG-105]"""
    objects = context.stores(watched)

    def ordered(owner: OwnerReference, pods: Sequence[Pod]) -> Sequence[Pod] | None:
        namespace = next((one.metadata.namespace for one in pods), "")
        found = objects.get(owner.name, namespace)
        if found is None or not refers_to(owner, namespace, Owner.of(watched.resource, found.metadata)):
            return None
        return order(found, pods)

    return ordered
