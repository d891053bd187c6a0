"""StatefulSet controller: creates, deletes and replaces numbered Pods in order, and creates their volume claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from random import Random
from typing import Any, Final

from app.kube.client import Client
from app.kube.controller import Result, Watch
from app.kube.errors import AlreadyExists
from app.kube.resources import PERSISTENTVOLUMECLAIMS, STATEFULSETS, ObjectKey
from app.kube.store import Store
from app.sandbox.controllers.objects import Workload
from app.sandbox.controllers.pods import (
    LABEL,
    Revisions,
    WorkloadController,
    available_in,
    is_ready,
    owner_reference,
    patch_status,
    pod_of,
)
from app.sandbox.kubelet.plan import FINISHED
from app.sandbox.objects import Pod

POD_NAME: Final = "statefulset.kubernetes.io/pod-name"
POD_INDEX: Final = "apps.kubernetes.io/pod-index"


@dataclass(frozen=True, slots=True)
class Plan:
    """Ordinals of the Pods to create, with their revisions, and Pods to delete."""

    create: tuple[tuple[int, str], ...] = ()
    delete: tuple[Pod, ...] = ()
    #: Seconds until the next reconcile.
    again: float = 0.0


def ordinal_of(pod: Pod) -> int:
    """Return the ordinal at the end of a Pod's name, or -1."""
    number = pod.metadata.name.rpartition("-")[2]
    return int(number) if number.isdigit() else -1


def plan(found: Workload, pods: Sequence[Pod], current: str, update: str, now: datetime) -> Plan:
    """Return the next step. Unless the policy is ``Parallel``, each Pod waits until its predecessors are available."""
    spec = found.spec
    start = spec.ordinals.get("start", 0)
    wanted = range(start, start + spec.replicas)
    by_ordinal = {ordinal_of(pod): pod for pod in pods}
    partition = spec.update_strategy.rolling_update.partition
    rolls = spec.update_strategy.type != "OnDelete"
    parallel = spec.pod_management_policy == "Parallel"
    create: list[tuple[int, str]] = []
    waits: list[float] = []
    for ordinal in wanted:
        pod = by_ordinal.get(ordinal)
        if pod is not None and pod.status.phase in FINISHED and pod.metadata.deletion_timestamp is None:
            return Plan(delete=(pod,))
        if pod is None:
            create.append((ordinal, current if rolls and ordinal < partition + start else update))
            if not parallel:
                return Plan(tuple(create))
            continue
        wait = float("inf")
        if pod.metadata.deletion_timestamp is None:
            wait = available_in(pod, spec.min_ready_seconds, now)
        if wait:
            waits.append(wait)
            if not parallel:
                return Plan(again=wait if wait < float("inf") else 0.0)
    if create:
        return Plan(tuple(create))
    condemned = sorted((n for n in by_ordinal if n not in wanted), reverse=True)
    if condemned:
        leaving = [by_ordinal[number] for number in condemned]
        asked = [pod for pod in leaving if pod.metadata.deletion_timestamp is None]
        if parallel:
            return Plan(delete=tuple(asked))
        return Plan(delete=tuple(asked[:1]) if len(asked) == len(leaving) else ())
    again = min((wait for wait in waits if wait < float("inf")), default=0.0)
    if not rolls:
        return Plan(again=again)
    for ordinal in reversed(wanted):
        pod = by_ordinal[ordinal]
        if ordinal - start < partition:
            break
        if pod.metadata.labels.get(LABEL) != update:
            return Plan(delete=(pod,) if pod.metadata.deletion_timestamp is None else ())
        if not is_ready(pod) or available_in(pod, spec.min_ready_seconds, now):
            break
    return Plan(again=again)


class StatefulSets(WorkloadController):
    """Controller of StatefulSets."""

    def __init__(self, client: Client, pods: Store[Pod], revisions: Revisions, rng: Random) -> None:
        others = [Watch(revisions.store, lambda _change: ())]
        super().__init__(client, pods, STATEFULSETS, rng, workers=4, others=others)
        self._revisions = revisions

    async def reconcile(self, key: ObjectKey, found: Workload, pods: Sequence[Pod]) -> Result | None:
        """Take the next step towards the desired Pods."""
        digest = await self._revisions.record(STATEFULSETS, found)
        update = f"{found.metadata.name}-{digest}"
        current = found.status.current_revision or update
        now = self.client.clock.now()
        todo = Plan()
        if found.metadata.deletion_timestamp is None:
            todo = plan(found, pods, current, update, now)
            await self._carry_out(key, found, todo)
        await self._report(found, pods, current, update, now)
        return Result(requeue_after=todo.again)

    async def _carry_out(self, key: ObjectKey, found: Workload, todo: Plan) -> None:
        for ordinal, _ in todo.create:
            await self._claims(found, ordinal)
        await self.control.create(key, [self._body(found, ordinal, revision) for ordinal, revision in todo.create])
        await self.control.delete(key, todo.delete)

    def _body(self, found: Workload, ordinal: int, revision: str) -> dict[str, Any]:
        name = f"{found.metadata.name}-{ordinal}"
        labels = {POD_NAME: name, POD_INDEX: str(ordinal), LABEL: revision}
        template = found.spec.template
        spec = dict(template.spec) | {"hostname": name, "subdomain": found.spec.service_name}
        claims = [
            {"name": claim["metadata"]["name"], "persistentVolumeClaim": {"claimName": _claim_name(claim, name)}}
            for claim in found.spec.volume_claim_templates
        ]
        if claims:
            own = {claim["name"] for claim in claims}
            spec["volumes"] = claims + [one for one in spec.get("volumes") or () if one["name"] not in own]
        owner = owner_reference(STATEFULSETS, found.metadata)
        return pod_of(template.metadata, spec, name, owner, labels)

    async def _claims(self, found: Workload, ordinal: int) -> None:
        for claim in found.spec.volume_claim_templates:
            metadata: Mapping[str, Any] = claim.get("metadata") or {}
            labels = {**(metadata.get("labels") or {}), **(found.spec.selector.get("matchLabels") or {})}
            name = _claim_name(claim, f"{found.metadata.name}-{ordinal}")
            body = {"metadata": {"name": name, "labels": labels}, "spec": claim.get("spec") or {}}
            try:
                await self.client.create(PERSISTENTVOLUMECLAIMS, body, found.metadata.namespace)
            except AlreadyExists:
                continue

    async def _report(self, found: Workload, pods: Sequence[Pod], current: str, update: str, now: datetime) -> None:
        alive = [pod for pod in pods if pod.metadata.deletion_timestamp is None]
        revisions = [pod.metadata.labels.get(LABEL) for pod in alive]
        ready = sum(map(is_ready, alive))
        rolled_out = revisions.count(update) == len(alive) == found.spec.replicas == ready
        if rolled_out:
            current = update
        status = {
            "observedGeneration": found.metadata.generation,
            "replicas": len(pods),
            "readyReplicas": ready,
            "availableReplicas": sum(not available_in(pod, found.spec.min_ready_seconds, now) for pod in alive),
            "currentReplicas": revisions.count(current),
            "updatedReplicas": revisions.count(update),
            "currentRevision": current,
            "updateRevision": update,
            "collisionCount": 0,
        }
        await patch_status(self.client, STATEFULSETS, found, status)


def _claim_name(claim: Mapping[str, Any], pod: str) -> str:
    return f"{claim['metadata']['name']}-{pod}"
