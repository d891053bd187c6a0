"""The status of a UnitedDeployment: counted, and written where it differs (UD-63 … UD-70)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from app.api import names
from app.api.uniteddeployment import UNITED_DEPLOYMENT, UnitedDeployment
from app.kube.client import Client
from app.kube.selectors import selector_text
from app.kube.statuses import KnownStatus, write_status
from app.pods.predicates import is_active, is_ready
from app.workloads.engine.conditions import status_patch
from app.workloads.uniteddeployment.plan.reservation import SCALED_UP, marked_condition
from app.workloads.uniteddeployment.plan.situation import Situation
from app.workloads.uniteddeployment.plan.status import (
    REQUIRED,
    Outcome,
    SubsetState,
    Updated,
    status_of,
    trouble_of,
)
from app.workloads.uniteddeployment.plan.subsets import SubsetWorkload, Wanted, partition_of

#: spec.replicas where nobody says it; the webhook does.
_REPLICAS: Final = 1


def present_status(united: UnitedDeployment, known: KnownStatus | None) -> KnownStatus:
    """UD-66: the status as we wrote it, until the cache shows something newer."""
    version = united.metadata.resource_version
    if known is not None and known.version.isdigit() and version.isdigit() and int(known.version) >= int(version):
        return known
    return KnownStatus(united.status.to_dict() if united.status is not None else {}, version)


async def report(
    client: Client,
    found: Situation,
    present: KnownStatus,
    wanted: Mapping[str, Wanted],
    remarked: frozenset[str],
    outcome: Outcome,
) -> KnownStatus | None:
    """Write the status; what was written, None if nothing differs. ``remarked``: UD-40."""
    united = found.united
    states, updated = _counted(found, wanted, remarked)

    def difference(status: Mapping[str, Any]) -> dict[str, Any]:
        made = status_of(
            status,
            states,
            outcome,
            updated,
            revision=found.revisions.update.name,
            replicas=_REPLICAS if united.spec.replicas is None else united.spec.replicas,
            collisions=found.revisions.collision_count,
            selector=selector_text(united.spec.selector),
            reserves=found.reserves,
            generation=united.metadata.generation,
            now=found.now,
        )
        return status_patch(status, made, required=REQUIRED)

    return await write_status(client, UNITED_DEPLOYMENT.resource(), united.metadata, present, difference)


def _counted(
    found: Situation, wanted: Mapping[str, Wanted], remarked: frozenset[str]
) -> tuple[list[SubsetState], Updated]:
    update = found.revisions.update.name
    updated = ready = settled = 0
    states = []
    for subset in found.subsets:
        reserved = found.reserved_pods(subset.name)
        for pod in found.pods.get(subset.name, ()):
            if is_active(pod) and pod.metadata.labels.get(names.UNITED_REVISION_HASH) == update:
                updated += 1
                if is_ready(pod):
                    ready += 1
                    settled += pod.metadata.uid not in reserved
        workload, one = found.existing.get(subset.name), wanted.get(subset.name)
        condition = found.condition(subset.name)
        if subset.name in remarked:
            condition = marked_condition(condition, True, SCALED_UP, found.now)
        replicas, partition = (one.replicas, one.partition) if one is not None else _as_it_is(found.kind, workload)
        failure, halted = trouble_of(workload.status.conditions) if workload is not None else ("", "")
        states.append(
            SubsetState(
                subset.name,
                replicas,
                partition,
                workload.status.replicas if workload is not None else 0,
                workload.status.ready_replicas if workload is not None else 0,
                condition,
                len(reserved),
                failure,
                halted,
            )
        )
    return states, Updated(updated, ready, settled)


def _as_it_is(kind: str, workload: SubsetWorkload | None) -> tuple[int, int]:
    """Replicas and partition of a subset that nothing is to be changed of."""
    return (workload.replicas, partition_of(kind, workload)) if workload is not None else (0, 0)
