"""Carrying out updates of a StatefulSet's Pods, and the growth of their claims."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from app.kube.errors import KubeError, message_of
from app.kube.gotext import quote
from app.pods.lifecycle import LifecycleState
from app.pods.revisions import Revision
from app.pods.storageclasses import StorageClasses
from app.workloads.engine.settings import UpdatePolicy
from app.workloads.engine.snapshot import AnySnapshot
from app.workloads.engine.steps import Step
from app.workloads.engine.updater import Updater
from app.workloads.statefulset.plan.claims import Growth
from app.workloads.statefulset.plan.update import BEGUN, CLAIMS_GROWN, MARKED
from app.workloads.statefulset.snapshot import Observed
from app.workloads.statefulset.writing import StatefulSetWriter

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


async def grow_claims(
    writer: StatefulSetWriter, snapshot: Observed, wanted: Sequence[tuple[str, Growth]], classes: StorageClasses
) -> str:
    """AS-104: make claims larger, each for the Pod so named. What went wrong, or ""."""
    problems = []
    for pod, growth in wanted:
        name, workload = growth.claim.metadata.name, snapshot.workload
        if growth.patch is None:
            text = f"failed to update pvc {name}: contains diff other than spec resource, wait pvc to be deleted"
            writer.event(workload, "FailedUpdatePVC", text, warning=True)
            problems.append(text)
            continue
        try:
            _check_class(growth.storage_class, classes)
            await writer.patch_claim(growth.claim, growth.patch)
        except KubeError as error:
            text = f"resize Claim {name} for Pod {pod} in StatefulSet {snapshot.owner.name} failed error: "
            writer.event(workload, "FailedResize", text + message_of(error), warning=True)
            problems.append(message_of(error))
        else:
            text = f"resize Claim {name} Pod {pod} in StatefulSet {snapshot.owner.name} success"
            writer.event(workload, "SuccessfulResize", text)
    return "; ".join(problems[:3])


def _check_class(name: str, classes: StorageClasses) -> None:
    """AS-104: a claim without a class is not checked."""
    if name and classes.expandable[name] is not True:
        raise KubeError(f"storage class {quote(name)} does not let claims grow")
