"""Carrying out what the plan says about updating: Pods refreshed, then the next ones taken to another revision."""

from __future__ import annotations

import logging

from app.kube.errors import KubeError, message_of
from app.pods.revisions import Revision
from app.workloads.cloneset.plan.rollout import planned_update, released
from app.workloads.cloneset.snapshot import CloneSetSnapshot
from app.workloads.engine.outcome import Outcome
from app.workloads.engine.settings import UpdatePolicy
from app.workloads.engine.snapshot import AnySnapshot
from app.workloads.engine.steps import Step
from app.workloads.engine.updater import Updater

logger = logging.getLogger(__name__)


class CloneSetUpdater(Updater):
    """Carries out update plans; a Pod that is replaced is marked for deletion, and scaling replaces it (CS-132)."""

    async def update(self, snapshot: CloneSetSnapshot) -> Outcome:
        """CS-122 … CS-132."""
        outcome, moved = await self.refresh(snapshot, released(snapshot.rollout))
        if outcome.error is not None:
            return outcome
        return await self.carry_out(snapshot, planned_update(snapshot.inputs, snapshot.rollout), outcome, moved)

    async def recreate(self, snapshot: AnySnapshot, step: Step, target: Revision) -> None:
        """CS-132."""
        name, workload = step.pod.name, snapshot.workload
        try:
            await self.writer.mark_for_deletion(snapshot.owner.uid, step.pod.pod)
        except KubeError as error:
            text = (
                f"failed to patch pod specified-delete {name} for update(revision {target.name}): {message_of(error)}"
            )
            self.writer.event(workload, "FailedUpdatePodReCreate", text, warning=True)
            raise
        # B-22, PM-189
        namespace = snapshot.owner.namespace
        logger.info("inplace: Pod %s/%s is replaced for %s: %s", namespace, name, target.name, step.obstacle)
        text = f"successfully patch pod {name} specified-delete for update(revision {target.name})"
        self.writer.event(workload, "SuccessfulUpdatePodReCreate", text)
        why = f"pods are replaced for update(revision {target.name}), not updated in-place: {step.obstacle}"
        if snapshot.resolved.settings.update_policy == UpdatePolicy.IN_PLACE_IF_POSSIBLE:
            self.report_obstacle(snapshot, why)
