"""What a reconcile of a CloneSet leaves behind: its status, and what no longer serves taken away (CS-58 … CS-63)."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Any, Final

from app.api.cloneset import CLONE_SET, CloneSet
from app.kube.client import Client, PatchType
from app.kube.errors import Conflict, KubeError
from app.kube.objects import decode_metadata
from app.pods.revisions import Revision
from app.workloads.cloneset.plan.progress import progress
from app.workloads.cloneset.plan.status import REQUIRED, base_status
from app.workloads.cloneset.snapshot import CloneSetSnapshot
from app.workloads.engine.conditions import FAILED_SCALE, FAILED_UPDATE, WAITING_FOR_AGENT, with_failures
from app.workloads.engine.history import History
from app.workloads.engine.outcome import Outcome, failures_of
from app.workloads.engine.status import truncate_history, write_workload_status

logger = logging.getLogger(__name__)

_CLONESETS: Final = CLONE_SET.resource()


class Reporter:
    """Writes what a reconcile has found out."""

    def __init__(self, client: Client, history: History) -> None:
        self._client = client
        self._clock = client.clock
        self._history = history

    async def report(self, snapshot: CloneSetSnapshot, scaling: Outcome, updating: Outcome) -> float:
        """CS-58, CS-61, CS-148: write the status where it differs. Seconds until the deadline may have passed."""
        workload, rollout, settings = snapshot.workload, snapshot.rollout, snapshot.resolved.settings
        now, present = self._clock.now(), snapshot.state.present_status(workload).status
        wanted = base_status(
            rollout.counts,
            snapshot.revisions,
            generation=workload.metadata.generation,
            replicas=rollout.limits.replicas,
            partition=rollout.limits.partition,
            label_selector=snapshot.resolved.selector_text,
        )
        failures = failures_of({FAILED_SCALE: scaling, FAILED_UPDATE: updating})
        failures[WAITING_FOR_AGENT] = updating.waiting or None
        conditions = with_failures(present.get("conditions") or [], failures, now)
        judged = progress(
            present,
            wanted,
            conditions,
            replicas=rollout.limits.replicas,
            paused=settings.paused,
            deadline=settings.progress_deadline,
            now=now,
        )
        wanted["conditions"] = list(judged.conditions)
        await write_workload_status(self._client, _CLONESETS, snapshot, wanted, REQUIRED)
        return judged.requeue_after

    async def clean_up(self, snapshot: CloneSetSnapshot, needed: Collection[Revision]) -> None:
        """CS-62, CS-63: names of Pods that are gone, and revisions nobody needs. A failure is logged and retried.

        ``needed``: revisions needed beside those that the Pods are at and that the status names.
        """
        workload = snapshot.workload
        named = workload.spec.scale_strategy.pods_to_delete
        try:
            if named:
                present = {pod.name for pod in snapshot.pods}
                left = [name for name in named if name in present]
                if len(left) < len(named):
                    await self._truncate_pods_to_delete(workload, named, left)
            await truncate_history(self._history, snapshot, needed, snapshot.resolved.settings.history_limit)
        except KubeError as error:
            logger.info("%s: cleaning up failed: %s", snapshot.owner, error)
            snapshot.state.side_task_failed = True

    async def _truncate_pods_to_delete(self, workload: CloneSet, named: list[str], left: list[str]) -> None:
        path = "/spec/scaleStrategy/podsToDelete"
        operations: list[dict[str, Any]] = [
            {"op": "test", "path": "/metadata/uid", "value": workload.metadata.uid},
            {"op": "test", "path": path, "value": named},
        ]
        if left:
            operations.append({"op": "replace", "path": path, "value": left})
        else:
            operations.append({"op": "remove", "path": path})
        try:
            await self._client.patch(
                _CLONESETS,
                workload.name,
                operations,
                workload.metadata.namespace,
                kind=PatchType.JSON,
                decode=decode_metadata,
            )
        except Conflict:
            return
