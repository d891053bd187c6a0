"""The Pods of a subset: whose they are, and which of them stand in the way of a roll-out (UD-50). Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from app.api import names
from app.kube.objects import Pod
from app.kube.resources import DEPLOYMENTS, Resource
from app.pods.owners import Owner, is_controlled_by
from app.pods.predicates import is_active, is_running_and_ready
from app.workloads.uniteddeployment.plan.subsets import ON_DELETE, SubsetWorkload

_ORDINAL: Final = re.compile(r"-([0-9]{1,10})$")


def is_of(resource: Resource, workload: SubsetWorkload, pod: Pod) -> bool:
    """Return whether a workload of that resource made the Pod. The Pods of a Deployment are those of its ReplicaSets,
    whose names begin with its own; no cache holds them."""
    metadata = pod.metadata
    if resource != DEPLOYMENTS:
        return is_controlled_by(metadata, Owner.of(resource, workload.metadata))
    reference = metadata.controller
    return (
        reference is not None
        and (reference.group, reference.kind) == (DEPLOYMENTS.group, "ReplicaSet")
        and metadata.namespace == workload.metadata.namespace
        and reference.name.startswith(f"{workload.metadata.name}-")
    )


def stuck_pods(workload: SubsetWorkload, pods: Iterable[Pod], update: str) -> list[Pod]:
    """UD-50: Pods of a native StatefulSet that are to be replaced and are not ready: it waits for them for ever.

    ``update``: the name of the UnitedDeployment's revision. What a changed patch replaces is told by the StatefulSet's
    own revision, once it has seen its present spec.
    """
    strategy, status = workload.spec.update_strategy or {}, workload.status
    if strategy.get("type") == ON_DELETE or workload.metadata.labels.get(names.UNITED_REVISION_HASH) != update:
        return []
    partition = _partition(strategy)
    seen = status.observed_generation >= workload.metadata.generation and bool(status.update_revision)

    def is_old(pod: Pod) -> bool:
        labels = pod.metadata.labels
        if labels.get(names.UNITED_REVISION_HASH) != update:
            return True
        return seen and labels.get(names.CONTROLLER_REVISION_HASH) != status.update_revision

    return [
        pod
        for pod in pods
        if is_active(pod) and not is_running_and_ready(pod) and _ordinal(pod) >= partition and is_old(pod)
    ]


def _partition(strategy: Mapping[str, Any]) -> int:
    rolling = strategy.get("rollingUpdate")
    found = rolling.get("partition") if isinstance(rolling, dict) else None
    return found if isinstance(found, int) and not isinstance(found, bool) else 0


def _ordinal(pod: Pod) -> int:
    found = _ORDINAL.search(pod.metadata.name)
    return int(found[1]) if found is not None else -1
