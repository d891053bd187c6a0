"""What a CloneSet's pass leaves behind: its status, and the tidying up (CS-58 … CS-63)."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Any, Final

from app.api.cloneset import CLONE_SET, CloneSet
from app.kube.client import Client, PatchType
from app.kube.errors import Conflict, KubeError
from app.kube.objects import decode_metadata
from app.kube.statuses import KnownStatus, write_status
from app.pods.revisions import Revision, short_hash
from app.workloads.cloneset.history import History
from app.workloads.cloneset.plan import RolloutState
from app.workloads.cloneset.progress import progress
from app.workloads.cloneset.resolved import ResolvedSpec
from app.workloads.cloneset.scaling import Outcome
from app.workloads.cloneset.state import CloneSetState
from app.workloads.cloneset.status import (
    FAILED_SCALE,
    FAILED_UPDATE,
    Revisions,
    base_status,
    status_patch,
    with_failures,
)

logger = logging.getLogger(__name__)

_CLONESETS: Final = CLONE_SET.resource()


class Reporter:
    """Writes what a pass has found out."""

    def __init__(self, client: Client, history: History) -> None:
        self._client = client
        self._clock = client.clock
        self._history = history

    async def report(
        self,
        owner: CloneSet,
        state: CloneSetState,
        resolved: ResolvedSpec,
        rollout: RolloutState,
        revisions: Revisions,
        scaling: Outcome,
        updating: Outcome,
    ) -> float:
        """CS-58, CS-61, CS-148: write the status where it differs. Seconds until the deadline may have passed."""
        known, now, settings = state.present_status(owner), self._clock.now(), resolved.settings
        present = known.status
        wanted = base_status(
            rollout.counts,
            revisions,
            generation=owner.metadata.generation,
            replicas=rollout.limits.replicas,
            partition=rollout.limits.partition,
            label_selector=resolved.selector_text,
        )
        failures = {
            type_: outcome.message or None
            for type_, outcome in ((FAILED_SCALE, scaling), (FAILED_UPDATE, updating))
            if outcome.message is not None
        }
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
        written = await write_status(
            self._client, _CLONESETS, owner.metadata, known, lambda present: status_patch(present, wanted)
        )
        if written is not None:
            state.written = KnownStatus(wanted, written.version)
        return judged.requeue_after

    async def clean_up(
        self,
        owner: CloneSet,
        state: CloneSetState,
        resolved: ResolvedSpec,
        rollout: RolloutState,
        needed: Collection[Revision],
        ordered: list[Revision],
    ) -> None:
        """CS-62, CS-63: names of Pods that are gone, and revisions nobody needs. Failures are only logged.

        ``needed`` are those needed beside what the Pods are at and the status, as it is now, calls the current one: it
        wakes nobody, so this is the last look after a roll-out.
        """
        named = owner.spec.scale_strategy.pods_to_delete
        try:
            if named:
                present = {pod.name for pod in rollout.pods}
                left = [name for name in named if name in present]
                if len(left) < len(named):
                    await self._truncate_pods_to_delete(owner, named, left)
            if len(ordered) > resolved.settings.history_limit:
                hashes = {pod.revision for pod in rollout.pods}
                in_use = {one.name for one in ordered if short_hash(one.name) in hashes}
                in_use.update(one.name for one in needed)
                in_use.add(str(state.present_status(owner).status.get("currentRevision") or ""))
                await self._history.truncate(owner, ordered, in_use, resolved.settings.history_limit)
        except KubeError as error:
            logger.info("CloneSet %s: tidying up failed: %s", state.key, error)

    async def _truncate_pods_to_delete(self, owner: CloneSet, named: list[str], left: list[str]) -> None:
        path = "/spec/scaleStrategy/podsToDelete"
        operations: list[dict[str, Any]] = [{"op": "test", "path": path, "value": named}]
        if left:
            operations.append({"op": "replace", "path": path, "value": left})
        else:
            operations.append({"op": "remove", "path": path})
        try:
            await self._client.patch(
                _CLONESETS,
                owner.name,
                operations,
                owner.metadata.namespace,
                kind=PatchType.JSON,
                decode=decode_metadata,
            )
        except Conflict:
            return
