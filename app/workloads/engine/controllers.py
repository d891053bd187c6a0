"""What the controllers of workloads are declared and made from alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from app.api import names
from app.api.kind import KindDefinition
from app.api.model import KubeObject
from app.kube.admission import PolicyRule
from app.kube.objects import OwnerReference, Pod
from app.pods.agents import NodeAgents
from app.pods.budget import DisruptionBudget, LeastAvailable, known
from app.pods.counters import WorkloadCounters
from app.pods.owners import Owner, refers_to
from app.pods.passes import PassObserver
from app.pods.update_order import UpdateOrder
from app.slices import ControllerContext, Watched

Owned = TypeVar("Owned", bound=KubeObject)

#: The flag and the gates that the engine itself asks.
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
    """What the engine reads and writes for a kind."""
    return (
        PolicyRule(("get",), (kind.group,), (kind.plural,)),
        PolicyRule(("patch",), (kind.group,), (f"{kind.plural}/status",)),
        # An owner reference that blocks the owner's deletion may only be set by who may finalize the owner.
        PolicyRule(("update",), (kind.group,), (f"{kind.plural}/finalizers",)),
        PolicyRule(("create", "delete", "get", "patch"), ("",), ("pods",)),
        PolicyRule(("patch",), ("",), ("pods/status", "pods/resize")),
        PolicyRule(("create", "delete", "get", "patch"), ("apps",), ("controllerrevisions",)),
        PolicyRule(("create", "patch"), ("",), ("events",)),
        # Images are pulled ahead of an update.
        PolicyRule(("create", "delete", "list"), (names.APPS_GROUP,), ("imagepulljobs",)),
    )


def options(context: ControllerContext, kind: KindDefinition) -> dict[str, Any]:
    """The options of a workload's reconciler that are those of the engine."""
    return {
        "budget": next(iter(context.provided(DisruptionBudget)), None),
        "agents": next(iter(context.provided(NodeAgents)), None),
        "metrics": context.counters(WorkloadCounters).of(kind.kind),
        "expectation_timeout": context.flags.seconds(EXPECTATION_TIMEOUT),
        "force_expectations": context.enabled(_FORCE_EXPECTATIONS),
        "observer": next(iter(context.provided(PassObserver)), None),
    }


def least_available(
    context: ControllerContext, kind: KindDefinition, watched: Watched[Owned], rule: Callable[[Owned], int]
) -> LeastAvailable:
    """PPM-53: how many Pods an object of the kind wants available at least, by a rule on it."""
    objects = context.stores(watched)

    def least(owner: OwnerReference, namespace: str) -> int | None:
        if (owner.group, owner.kind) != (kind.group, kind.kind):
            return None
        return max(0, rule(known(objects.get(owner.name, namespace), kind.resource(), owner)))

    return least


def update_order(
    context: ControllerContext, watched: Watched[Owned], order: Callable[[Owned, Sequence[Pod]], Sequence[Pod]]
) -> UpdateOrder:
    """IMG-105: in which order an object of the kind updates its Pods."""
    objects = context.stores(watched)

    def ordered(owner: OwnerReference, pods: Sequence[Pod]) -> Sequence[Pod] | None:
        namespace = next((one.metadata.namespace for one in pods), "")
        found = objects.get(owner.name, namespace)
        if found is None or not refers_to(owner, namespace, Owner.of(watched.resource, found.metadata)):
            return None
        return order(found, pods)

    return ordered
