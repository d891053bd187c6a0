"""Declarations shared by workload controllers: permissions, gates, options and metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from app.api import names
from app.api.kind import KindDefinition
from app.api.model import KubeObject
from app.framework.feature import ControllerContext
from app.framework.watched import Watched
from app.kube.admission import PolicyRule
from app.kube.objects import OwnerReference, Pod
from app.kube.text import BoundedLabels
from app.pods.disruption_budget import DisruptionBudget, LeastAvailable, known
from app.pods.node_agents import NodeAgents
from app.pods.predicates import Owner, refers_to
from app.pods.sorting import UpdateOrder
from app.workloads.state import Metrics

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
    """Return a function that returns the minimum number of available Pods of an object of this kind, as computed by
    ``rule``. [PPM-53]"""
    objects, resource = context.stores(watched), watched.resource

    def least(owner: OwnerReference, namespace: str) -> int | None:
        if (owner.group, owner.kind) != (resource.group, resource.kind):
            return None
        return max(0, rule(known(objects.get(owner.name, namespace), resource, owner)))

    return least


def update_order(
    context: ControllerContext, watched: Watched[Owned], order: Callable[[Owned, Sequence[Pod]], Sequence[Pod]]
) -> UpdateOrder:
    """Return a function that returns the order in which an object of this kind updates its Pods. [IMG-105]"""
    objects = context.stores(watched)

    def ordered(owner: OwnerReference, pods: Sequence[Pod]) -> Sequence[Pod] | None:
        namespace = next((one.metadata.namespace for one in pods), "")
        found = objects.get(owner.name, namespace)
        if found is None or not refers_to(owner, namespace, Owner.of(watched.resource, found.metadata)):
            return None
        return order(found, pods)

    return ordered


# Metrics shared by all kinds. The kind is part of a metric's name or labels. [CS-171]


class _Leaks(Collector):
    """Expectations that were not fulfilled in time. The metrics' names are OpenKruise's: they contain the kind, and
    lack the ``_total`` that prometheus-client adds to counters."""

    def __init__(self) -> None:
        self._counts: dict[str, dict[tuple[str, ...], int]] = {}
        self._labels = BoundedLabels()

    def add(self, kind: str, namespace: str, name: str) -> None:
        counts = self._counts.setdefault(f"{kind.lower()}_scale_expectation_leakage", {})
        labels = self._labels.of(namespace, name)
        counts[labels] = counts.get(labels, 0) + 1

    def collect(self) -> Iterable[Metric]:
        """Return one metric per kind. Another thread may be updating the counts."""
        for family, counts in list(self._counts.items()):
            documentation = "Total number of creations and deletions that the cache did not reflect in time."
            metric = Metric(family, documentation, "counter")
            for (namespace, name), number in list(counts.items()):
                metric.add_sample(family, {"namespace": namespace, "name": name}, number)
            yield metric


class WorkloadCounters:
    """Metrics registered once per process; :meth:`of` returns the counters of one kind."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.leaks = _Leaks()
        registry.register(self.leaks)
        #: Label values chosen by tenants.
        self.namespaces = BoundedLabels()
        self.started = Counter(
            "kruise_inplace_update",
            "Total number of in-place updates started.",
            ["namespace", "kind"],
            registry=registry,
        )
        self.failed = Counter(
            "kruise_inplace_update_failed",
            "Total number of in-place updates that failed to start.",
            ["namespace", "kind"],
            registry=registry,
        )
        self.seconds = Histogram(
            "kruise_inplace_update_duration_seconds",
            "Seconds from the start of an in-place update, including its grace period, to its completion.",
            ["namespace", "kind"],
            buckets=(1, 2, 5, 10, 30, 60, 120, 300, 600),
            registry=registry,
        )

    def of(self, kind: str) -> KindCounters:
        return KindCounters(self, kind)


class KindCounters(Metrics):
    """Counters of one kind."""

    def __init__(self, counters: WorkloadCounters, kind: str) -> None:
        self._counters = counters
        self._kind = kind

    def _labels(self, namespace: str) -> tuple[str, str]:
        (shown,) = self._counters.namespaces.of(namespace)
        return shown, self._kind

    def expectation_leaked(self, namespace: str, name: str) -> None:
        """Count an expectation that was not fulfilled in time. [CS-52]"""
        self._counters.leaks.add(self._kind, namespace, name)

    def in_place_started(self, namespace: str) -> None:
        self._counters.started.labels(*self._labels(namespace)).inc()

    def in_place_failed(self, namespace: str) -> None:
        self._counters.failed.labels(*self._labels(namespace)).inc()

    def in_place_finished(self, namespace: str, seconds: float) -> None:
        self._counters.seconds.labels(*self._labels(namespace)).observe(seconds)
