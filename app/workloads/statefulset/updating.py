"""Carrying out updates of a StatefulSet's Pods."""

from __future__ import annotations

from typing import Final

from app.pods.lifecycle import LifecycleState
from app.pods.revisions import Revision
from app.workloads.engine.settings import UpdatePolicy
from app.workloads.engine.snapshot import AnySnapshot
from app.workloads.engine.steps import Step
from app.workloads.engine.updater import Updater
from app.workloads.statefulset.plan.update import BEGUN, CLAIMS_GROWN, MARKED

#: Reasons for replacing a Pod that are not about the update in place that was wanted.
_OTHER_REASONS: Final = (MARKED, BEGUN, CLAIMS_GROWN)


class StatefulSetUpdater(Updater):
    """Replaces a Pod by deleting it, once its hook lets it go (AS-98)."""

    async def recreate(self, snapshot: AnySnapshot, step: Step, target: Revision) -> None:
        """Delete the Pod, or ask its hook; the next reconcile creates another under its name."""
        if step.pod.delete_hooked:
            lifecycle = snapshot.resolved.settings.lifecycle
            await self.writer.set_state(snapshot.owner.uid, step.pod.pod, LifecycleState.PREPARING_DELETE, lifecycle)
            return
        await self.writer.delete_pod(snapshot.workload, step.pod.pod)
        wanted_in_place = snapshot.resolved.settings.update_policy == UpdatePolicy.IN_PLACE_IF_POSSIBLE
        if wanted_in_place and step.obstacle not in _OTHER_REASONS:
            why = f"pods are replaced for update(revision {target.name}), not updated in-place: {step.obstacle}"
            self.report_obstacle(snapshot, why)
