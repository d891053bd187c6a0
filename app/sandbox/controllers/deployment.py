"""Deployment and ReplicaSet controllers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from app.kube.client import Client
from app.kube.controller import Controller, Result, Watch, to_controller, to_self
from app.kube.errors import AlreadyExists, NotFound
from app.kube.objects import decoder
from app.kube.quantities import scaled
from app.kube.reflector import Reflector
from app.kube.resources import DEPLOYMENTS, REPLICASETS, ObjectKey
from app.kube.store import Store
from app.pods.revisions import template_hash
from app.pods.template_text import NEWEST
from app.sandbox.controllers.objects import Template, Workload
from app.sandbox.controllers.pods import (
    BURST,
    WorkloadController,
    available_in,
    is_active,
    is_ready,
    owner_reference,
    patch_status,
    pod_of,
    to_delete_first,
    with_conditions,
)
from app.sandbox.objects import Pod

HASH: Final = "pod-template-hash"
REVISION: Final = "deployment.kubernetes.io/revision"
_DESIRED: Final = "deployment.kubernetes.io/desired-replicas"
_MAXIMUM: Final = "deployment.kubernetes.io/max-replicas"


def pod_template_hash(template: Template, collision_count: int) -> str:
    """Return the hash that Kubernetes computes for the template, so that names are the same as on a real cluster."""
    content = {"spec": {"template": {"metadata": template.metadata, "spec": template.spec}}}
    return template_hash(json.dumps(content, sort_keys=True).encode(), collision_count, release=NEWEST)


def same_template(deployment: Workload, replica_set: Workload) -> bool:
    """Return whether the ReplicaSet has the Deployment's current template."""
    theirs = dict(replica_set.spec.template.metadata)
    theirs["labels"] = {key: value for key, value in (theirs.get("labels") or {}).items() if key != HASH}
    ours = dict(deployment.spec.template.metadata)
    ours["labels"] = ours.get("labels") or {}
    return (_bare(theirs), replica_set.spec.template.spec) == (_bare(ours), deployment.spec.template.spec)


def _bare(metadata: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in metadata.items() if value and key != "creationTimestamp"}


@dataclass(frozen=True, slots=True)
class Scale:
    """The desired number of replicas of a ReplicaSet."""

    replica_set: Workload
    replicas: int


def plan_scaling(deployment: Workload, new: Workload | None, old: Sequence[Workload]) -> list[Scale]:
    """Return the next steps of a rollout. They respect maxSurge and maxUnavailable."""
    wanted = deployment.spec.replicas
    if deployment.spec.paused:
        # A paused rollout only scales the newest ReplicaSet that has Pods.
        active = new if new is not None else (old[-1] if old else None)
        rest = sum(one.spec.replicas for one in old if one is not active)
        return _scales([(active, max(0, wanted - rest))]) if active is not None else []
    if deployment.spec.strategy.type == "Recreate":
        if any(one.spec.replicas or one.status.replicas for one in old):
            return _scales([(one, 0) for one in old])
        return _scales([(new, wanted)]) if new is not None else []
    if new is None:
        return []
    rolling = deployment.spec.strategy.rolling_update
    surge = scaled(_or(rolling.max_surge, "25%"), wanted, True)
    unavailable = min(scaled(_or(rolling.max_unavailable, "25%"), wanted, False), wanted)
    if surge == 0 and unavailable == 0:
        unavailable = 1
    steps: list[tuple[Workload, int]] = []
    total = new.spec.replicas + sum(one.spec.replicas for one in old)
    grown = new.spec.replicas
    if grown > wanted:
        grown = wanted
    elif grown < wanted:
        grown += max(0, min(wanted - grown, wanted + surge - total))
    steps.append((new, grown))
    steps += _shrunk(old, new, wanted - unavailable, grown)
    return _scales(steps)


def _shrunk(old: Sequence[Workload], new: Workload, least: int, grown: int) -> list[tuple[Workload, int]]:
    """Scale down the old ReplicaSets as far as maxUnavailable allows, unavailable Pods first."""
    new_unavailable = max(grown, new.spec.replicas) - new.status.available_replicas
    total = max(grown, new.spec.replicas) + sum(one.spec.replicas for one in old)
    spare = total - least - new_unavailable
    sizes = {one.metadata.name: one.spec.replicas for one in old}
    for one in old:
        broken = min(max(0, one.spec.replicas - one.status.available_replicas), max(0, spare))
        sizes[one.metadata.name] -= broken
        spare -= broken
    available = new.status.available_replicas + sum(one.status.available_replicas for one in old)
    spare = min(spare, available - least)
    for one in old:
        gone = min(sizes[one.metadata.name], max(0, spare))
        sizes[one.metadata.name] -= gone
        spare -= gone
    return [(one, sizes[one.metadata.name]) for one in old]


def _scales(steps: Sequence[tuple[Workload, int]]) -> list[Scale]:
    return [Scale(one, size) for one, size in steps if one.spec.replicas != size]


def _or(value: int | str | None, default: str) -> int | str:
    return default if value is None else value


def revision_of(one: Workload) -> int:
    """Return the revision number of a ReplicaSet."""
    text = one.metadata.annotations.get(REVISION, "0")
    return int(text) if text.isdigit() else 0


class Deployments:
    """Controller of Deployments. ``sets`` is the ReplicaSet store, with an index ``owner``."""

    def __init__(self, client: Client, sets: Store[Workload], rng: Random) -> None:
        self._client = client
        self._sets = sets
        self.deployments: Store[Workload] = Store()
        self._reflector = Reflector(client, DEPLOYMENTS, self.deployments, decode=decoder(Workload), rng=rng)
        watches: list[Watch[Any]] = [Watch(self.deployments, to_self), Watch(sets, to_controller(DEPLOYMENTS))]
        self.controller = Controller("sandbox-deployments", client.clock, watches, self._reconcile, workers=4)

    def tasks(self) -> list[Any]:
        """Return the coroutines to run concurrently until canceled."""
        return [self._reflector.run(), self.controller.run()]

    async def _reconcile(self, key: ObjectKey) -> Result | None:
        found = self.deployments.by_key(key)
        if found is None:
            return None
        owned = sorted(self._sets.by_index("owner", found.metadata.uid), key=revision_of)
        new = next((one for one in reversed(owned) if same_template(found, one)), None)
        old = [one for one in owned if one is not new]
        try:
            if found.metadata.deletion_timestamp is None:
                if new is None and not found.spec.paused:
                    if found.spec.strategy.type != "Recreate" or not any(
                        one.spec.replicas or one.status.replicas for one in old
                    ):
                        await self._create(found, old)
                elif new is not None:
                    await self._number(found, new, old)
                for step in plan_scaling(found, new, old):
                    await self._scale(found, step)
                await self._clean_up(found, new, old)
            await self._report(found, new, old)
        except NotFound:
            return None
        return None

    async def _create(self, found: Workload, old: Sequence[Workload]) -> None:
        template = found.spec.template
        digest = pod_template_hash(template, found.status.collision_count or 0)
        labels = {**template.labels, HASH: digest}
        selector = dict(found.spec.selector)
        selector["matchLabels"] = {**(selector.get("matchLabels") or {}), HASH: digest}
        room = found.spec.replicas
        if found.spec.strategy.type != "Recreate":
            surge = scaled(_or(found.spec.strategy.rolling_update.max_surge, "25%"), found.spec.replicas, True)
            room = max(0, min(room, room + surge - sum(one.spec.replicas for one in old)))
        revision = str(max(map(revision_of, old), default=0) + 1)
        name = f"{found.metadata.name}-{digest}"
        metadata = {
            "name": name,
            "labels": labels,
            "annotations": self._annotations(found, revision),
            "ownerReferences": [owner_reference(DEPLOYMENTS, found.metadata)],
        }
        spec = {
            "replicas": room,
            "minReadySeconds": found.spec.min_ready_seconds,
            "selector": selector,
            "template": {"metadata": {**template.metadata, "labels": labels}, "spec": template.spec},
        }
        try:
            await self._client.create(REPLICASETS, {"metadata": metadata, "spec": spec}, found.metadata.namespace)
        except AlreadyExists:
            await self._count_collision(found, name)
            return
        await self._note_revision(found, revision)

    async def _count_collision(self, found: Workload, name: str) -> None:
        """Increase the collision count if another object has the name. The Deployment's own ReplicaSet, not yet in the
        cache, does not count."""
        there = await self._client.get(REPLICASETS, name, found.metadata.namespace, decode=decoder(Workload))
        owner = there.metadata.controller
        if (owner is not None and owner.uid != found.metadata.uid) or not same_template(found, there):
            count = (found.status.collision_count or 0) + 1
            await patch_status(self._client, DEPLOYMENTS, found, {"collisionCount": count})

    def _annotations(self, found: Workload, revision: str) -> dict[str, str]:
        surge = scaled(_or(found.spec.strategy.rolling_update.max_surge, "25%"), found.spec.replicas, True)
        return {
            REVISION: revision,
            _DESIRED: str(found.spec.replicas),
            _MAXIMUM: str(found.spec.replicas + (surge if found.spec.strategy.type != "Recreate" else 0)),
        }

    async def _number(self, found: Workload, new: Workload, old: Sequence[Workload]) -> None:
        """Assign the highest revision to a ReplicaSet whose template is used again."""
        latest = max(map(revision_of, old), default=0)
        revision = str(max(revision_of(new), latest + 1 if revision_of(new) <= latest else 1))
        wanted = self._annotations(found, revision)
        if any(new.metadata.annotations.get(key) != value for key, value in wanted.items()):
            body = {"metadata": {"uid": new.metadata.uid, "annotations": wanted}}
            await self._client.patch(REPLICASETS, new.metadata.name, body, new.metadata.namespace)
        await self._note_revision(found, revision)

    async def _note_revision(self, found: Workload, revision: str) -> None:
        if found.metadata.annotations.get(REVISION) != revision:
            body = {"metadata": {"uid": found.metadata.uid, "annotations": {REVISION: revision}}}
            await self._client.patch(DEPLOYMENTS, found.metadata.name, body, found.metadata.namespace)

    async def _scale(self, found: Workload, step: Scale) -> None:
        metadata = step.replica_set.metadata
        body = {
            "metadata": {"uid": metadata.uid, "resourceVersion": metadata.resource_version},
            "spec": {"replicas": step.replicas},
        }
        await self._client.patch(REPLICASETS, metadata.name, body, found.metadata.namespace)

    async def _clean_up(self, found: Workload, new: Workload | None, old: Sequence[Workload]) -> None:
        """Delete old ReplicaSets beyond the history limit once the rollout is complete."""
        if new is None or new.status.available_replicas < found.spec.replicas:
            return
        empty = [one for one in old if not one.spec.replicas and not one.status.replicas]
        for one in empty[: max(0, len(empty) - found.spec.revision_history_limit)]:
            await self._client.delete(REPLICASETS, one.metadata.name, one.metadata.namespace, uid=one.metadata.uid)

    async def _report(self, found: Workload, new: Workload | None, old: Sequence[Workload]) -> None:
        owned = [*old, *([new] if new is not None else [])]
        wanted = found.spec.replicas
        total = sum(one.status.replicas for one in owned)
        available = sum(one.status.available_replicas for one in owned)
        updated = new.status.replicas if new is not None else 0
        complete = updated == total == available == wanted
        rolling = found.spec.strategy.rolling_update
        least = wanted - min(scaled(_or(rolling.max_unavailable, "25%"), wanted, False), wanted)
        if available >= least:
            state = ("Available", "True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
        else:
            text = "Deployment does not have minimum availability."
            state = ("Available", "False", "MinimumReplicasUnavailable", text)
        name = new.metadata.name if new is not None else found.metadata.name
        if complete:
            text = f'ReplicaSet "{name}" has successfully progressed.'
            progress = ("Progressing", "True", "NewReplicaSetAvailable", text)
        elif found.spec.paused:
            progress = ("Progressing", "Unknown", "DeploymentPaused", "Deployment is paused")
        else:
            progress = ("Progressing", "True", "ReplicaSetUpdated", f'ReplicaSet "{name}" is progressing.')
        now = self._client.clock.now()
        status = {
            "observedGeneration": found.metadata.generation,
            "replicas": total,
            "updatedReplicas": updated,
            "readyReplicas": sum(one.status.ready_replicas for one in owned),
            "availableReplicas": available,
            "unavailableReplicas": max(0, total - available) if total >= wanted else max(0, wanted - available),
            "conditions": with_conditions(found.status.conditions, [state, progress], now, updates=True),
        }
        await patch_status(self._client, DEPLOYMENTS, found, status)


class ReplicaSets(WorkloadController):
    """ReplicaSet controller."""

    def __init__(self, client: Client, pods: Store[Pod], rng: Random) -> None:
        indexes = {"owner": lambda one: [one.metadata.controller.uid] if one.metadata.controller is not None else []}
        super().__init__(client, pods, REPLICASETS, rng, workers=8, indexes=indexes)

    async def reconcile(self, key: ObjectKey, found: Workload, pods: Sequence[Pod]) -> Result | None:
        """Create missing Pods or delete surplus ones."""
        active = [pod for pod in pods if is_active(pod)]
        if found.metadata.deletion_timestamp is None:
            await self._scale(key, found, active)
        return await self._report(found, active)

    async def _scale(self, key: ObjectKey, found: Workload, pods: list[Pod]) -> None:
        missing = found.spec.replicas - len(pods)
        if missing > 0:
            owner = owner_reference(REPLICASETS, found.metadata)
            template = found.spec.template
            prefix = f"{found.metadata.name}-"
            names = [self.control.new_name(prefix) for _ in range(min(missing, BURST))]
            await self.control.create(key, [pod_of(template.metadata, template.spec, name, owner) for name in names])
        elif missing < 0:
            await self.control.delete(key, sorted(pods, key=to_delete_first)[: min(-missing, BURST)])

    async def _report(self, found: Workload, pods: list[Pod]) -> Result | None:
        now = self.client.clock.now()
        labels = found.spec.template.labels.items()
        waits = [available_in(pod, found.spec.min_ready_seconds, now) for pod in pods]
        status = {
            "replicas": len(pods),
            "fullyLabeledReplicas": sum(labels <= pod.metadata.labels.items() for pod in pods),
            "readyReplicas": sum(map(is_ready, pods)),
            "availableReplicas": sum(wait == 0 for wait in waits),
            "observedGeneration": found.metadata.generation,
        }
        await patch_status(self.client, REPLICASETS, found, status)
        soon = [wait for wait in waits if 0 < wait < float("inf")]
        return Result(requeue_after=max(0.01, min(soon))) if soon else None
