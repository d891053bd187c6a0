"""Carrying out what the plan says about Pods that come and go: creations, deletions, preDelete hooks."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

from app.kube.clock import Clock
from app.kube.errors import KubeError, message_of
from app.kube.objects import Pod
from app.kube.store import Store
from app.pods.hashes import random_suffix
from app.pods.lifecycle import LifecycleState, readiness_patch, state_of
from app.workloads.daemonset.plan.creation import PodMaker
from app.workloads.daemonset.plan.nodes import DaemonPod
from app.workloads.daemonset.plan.scale import ScalePlan
from app.workloads.daemonset.snapshot import DaemonSetSnapshot
from app.workloads.engine.kind import Owner
from app.workloads.engine.outcome import Outcome, gather_results, most_urgent, outcome_of, refused_creations
from app.workloads.engine.snapshot import AnySnapshot
from app.workloads.engine.wording import Wording
from app.workloads.engine.writer import Writer

_NAME_ATTEMPTS: Final = 20


class DaemonSetWording(Wording):
    """DS-51, DS-69."""

    __slots__ = ()

    def created(self, owner: Owner, pod: str) -> str:  # noqa: ARG002
        """A Pod was created."""
        return f"Created pod: {pod}"

    def not_created(self, owner: Owner, pod: str, why: str, body: str) -> str:  # noqa: ARG002
        """A creation was refused."""
        return f"Error creating: {why}"

    def deleted(self, owner: Owner, pod: str) -> str:  # noqa: ARG002
        """A Pod was deleted."""
        return f"Deleted pod: {pod}"

    def not_deleted(self, owner: Owner, pod: str, why: str) -> str:  # noqa: ARG002
        """A deletion was refused."""
        return f"Error deleting: {why}"

    def updated_in_place(self, pod: str, revision: str) -> str:  # noqa: ARG002
        """An update in place was begun."""
        return f"successfully update pod {pod} in-place"


async def remove(writer: Writer, clock: Clock, snapshot: AnySnapshot, pod: Pod, *, hooked: bool) -> bool:
    """DS-59, DS-60: delete the Pod, or as long as a hook holds it say that it shall go. Whether it wrote."""
    if not hooked:
        return await writer.delete_pod(snapshot.workload, pod)
    going, lifecycle = LifecycleState.PREPARING_DELETE, snapshot.resolved.settings.lifecycle
    if state_of(pod) == going and readiness_patch(pod, going, lifecycle, clock.now()) is None:
        return False
    await writer.set_state(snapshot.owner.uid, pod, going, lifecycle)
    return True


class Scaler:
    """Carries out scale plans. ``rng`` draws the endings of names."""

    def __init__(self, writer: Writer, clock: Clock, pods: Store[Pod], rng: Random) -> None:
        self._writer = writer
        self._clock = clock
        self._pods = pods
        self._rng = rng

    async def carry_out(self, snapshot: DaemonSetSnapshot, plan: ScalePlan) -> Outcome:
        """DS-32, DS-33: creations, then deletions."""
        created = await self.create(snapshot, plan.create)
        deleted = await self._delete(snapshot, plan)
        return Outcome(
            changed=created.changed or deleted.changed,
            error=most_urgent((created.error, deleted.error)),
            message=created.message or deleted.message,
            requeue_after=[*created.requeue_after, *deleted.requeue_after, *plan.waits],
        )

    async def create(self, snapshot: DaemonSetSnapshot, nodes: Sequence[str]) -> Outcome:
        """A Pod of the present template on each of these nodes."""
        state, now = snapshot.state, self._clock.monotonic()
        if not nodes:
            return Outcome()
        if waits := state.creation_backoff.remaining(now):
            return Outcome(message=None, requeue_after=[waits])
        maker = PodMaker(snapshot.resolved, snapshot.revisions.update)
        names: dict[str, str] = {}
        for node in nodes:
            names[self._free_name(maker.name_base, snapshot.owner.namespace, names)] = node
        wanted = [maker.new_pod(name, node) for name, node in names.items()]
        made, refused = await self._writer.create_pods(snapshot.workload, wanted)
        if not refused:
            state.creation_backoff.reset()
            return Outcome(changed=made > 0)
        state.creation_backoff.refuse(now)
        why = message_of(next(iter(refused.values())))
        text = f"{why} ({len(nodes) - made} of {len(nodes)} Pods to create are missing)"
        retry_in = state.creation_backoff.remaining(now)
        return refused_creations(refused.values(), made=made, retry_in=retry_in, message=text)  # DS-32

    def _free_name(self, base: str, namespace: str, drawn: dict[str, str]) -> str:
        name = ""
        for _ in range(_NAME_ATTEMPTS):
            name = f"{base}{random_suffix(self._rng)}"
            if name not in drawn and self._pods.get(name, namespace) is None:
                break
        return name

    async def _delete(self, snapshot: DaemonSetSnapshot, plan: ScalePlan) -> Outcome:
        if not plan.delete:
            return Outcome()
        for pod in plan.ended:
            self._record_ended(snapshot, pod)
        found = await gather_results(
            remove(self._writer, self._clock, snapshot, pod.pod, hooked=pod.hooked) for pod in plan.delete
        )
        outcome = outcome_of([one for one in found if one is not False])
        for pod, one in zip(plan.delete, found, strict=True):
            if pod in plan.ended and not isinstance(one, KubeError):
                snapshot.state.note_ended(pod.node, self._clock.monotonic())
        return outcome

    def _record_ended(self, snapshot: DaemonSetSnapshot, pod: DaemonPod) -> None:
        """DS-29."""
        where = f"daemon pod {pod.pod.metadata.namespace}/{pod.name} on node {pod.node}"
        if pod.pod.status.phase == "Failed":
            text = f"Found failed {where}, will try to kill it"
            self._writer.event(snapshot.workload, "FailedDaemonPod", text, warning=True)
        else:
            text = f"Found succeeded {where}, will try to delete it"
            self._writer.event(snapshot.workload, "SucceededDaemonPod", text)
