"""Writes the workloads and Pods of subsets and the status, and tracks writes that are not in the cache yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from app.api import names
from app.features.uniteddeployment.defaults import REPLICAS
from app.features.uniteddeployment.kind import UNITED_DEPLOYMENT
from app.features.uniteddeployment.plan.rollout import Situation
from app.features.uniteddeployment.plan.status import (
    REQUIRED,
    SCALED_UP,
    TIMER_TOLERANCE,
    Outcome,
    SubsetState,
    Updated,
    marked_condition,
    status_of,
    trouble_of,
)
from app.features.uniteddeployment.plan.subsets import (
    KIND,
    RESOURCES,
    SHOWN_KINDS,
    Built,
    SubsetWorkload,
    Wanted,
    decode_subset_workload,
    generated_name,
    partition_of,
)
from app.features.uniteddeployment.types import UnitedDeployment, template_of
from app.kube.client import Client, PatchType
from app.kube.concurrency import in_batches
from app.kube.errors import UNANSWERED, Conflict, KubeError, NotFound, message_of
from app.kube.events import EventRecorder, reference
from app.kube.objects import Pod, decode_metadata
from app.kube.patches import pointer
from app.kube.resources import PODS
from app.kube.selectors import selector_text
from app.kube.statuses import KnownStatus, patch_pod_metadata, write_status
from app.kube.store import Store
from app.pods.predicates import is_active, is_controlled_by, is_ready
from app.workloads.status import status_patch

# Writes of subset workloads and Pod labels, and their events. [UD-49, UD-68]

MAX_CONCURRENT_WRITES: Final = 16


@dataclass(slots=True)
class Written:
    """Result of writing several objects. ``unanswered``: some requests got no response, so their result is unknown."""

    names: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    unanswered: bool = False


class SubsetWriter:
    """Writes workloads and Pods."""

    def __init__(self, client: Client, events: EventRecorder) -> None:
        self._client = client
        self._events = events

    async def create(self, united: UnitedDeployment, kind: str, missing: Sequence[Built]) -> Written:
        """Create workloads in batches of 1, 2, 4, …, and stop after the first batch with a failure."""
        resource, namespace = RESOURCES[kind], united.metadata.namespace
        owner = KIND.owner(united.metadata)

        async def create(one: Built) -> str:
            body = {
                "apiVersion": resource.api_version,
                "kind": resource.kind,
                "metadata": {
                    "generateName": generated_name(kind, united.name, one.subset),
                    "namespace": namespace,
                    "labels": dict(one.labels),
                    "annotations": dict(one.annotations),
                    "ownerReferences": [owner.reference],
                },
                "spec": one.spec,
            }
            return (await self._client.create(resource, body, namespace, decode=decode_metadata)).metadata.name

        written = Written()
        async for _, answer in in_batches(create, missing, limit=MAX_CONCURRENT_WRITES):
            if isinstance(answer, KubeError):
                written.errors.append(message_of(answer))
                written.unanswered |= isinstance(answer, UNANSWERED)
            else:
                written.names.append(answer)
        if written.names:
            count, shown = len(written.names), SHOWN_KINDS[kind]
            self.event(united, "Normal", "SuccessfulUpdateSubset", f"Create {count} Subset ({shown})")
        if written.errors:
            self.event(united, "Warning", "FailedUpdateSubset", written.errors[0])
        return written

    async def delete(
        self, united: UnitedDeployment, surplus: Sequence[tuple[str, SubsetWorkload]], *, failed: str
    ) -> list[str]:
        """Delete surplus workloads. Return the errors; the first is recorded as an event with reason ``failed``."""
        gone: dict[str, int] = {}
        errors = []
        for kind, workload in surplus:
            metadata = workload.metadata
            try:
                await self._client.delete(
                    RESOURCES[kind],
                    metadata.name,
                    metadata.namespace,
                    uid=metadata.uid,
                    propagation_policy="Background",
                    decode=decode_metadata,
                )
            except (NotFound, Conflict):
                continue  # the workload is gone, or the name belongs to another one
            except KubeError as error:
                errors.append(message_of(error))
            else:
                gone[kind] = gone.get(kind, 0) + 1
        if errors:
            self.event(united, "Warning", failed, errors[0])
        for kind, count in gone.items():
            self.event(united, "Normal", "SuccessfulUpdateSubset", f"Delete {count} Subset ({SHOWN_KINDS[kind]})")
        return errors

    async def update(
        self, united: UnitedDeployment, kind: str, changed: Sequence[tuple[SubsetWorkload, Built]]
    ) -> list[str]:
        """Update workloads in batches. Return the errors."""

        async def update(one: tuple[SubsetWorkload, Built]) -> None:
            await self._patch(kind, one[0], _operations(*one))

        errors = []
        async for (workload, _), answer in in_batches(update, changed, limit=MAX_CONCURRENT_WRITES):
            if isinstance(answer, KubeError):
                said = message_of(answer)
                errors.append(said)
                shown = f"Error updating PodSet ({SHOWN_KINDS[kind]}) {workload.metadata.name} when updating"
                self.event(united, "Warning", "FailedUpdateSubset", f"{shown}: {said}")
        return errors

    async def adopt(self, united: UnitedDeployment, kind: str, workload: SubsetWorkload) -> None:
        """Adopt a workload without a controller, if it still equals the cached one. [UD-32]"""
        metadata = workload.metadata
        owner = KIND.owner(united.metadata).reference
        at = "/metadata/ownerReferences"
        add = {"op": "add", "path": f"{at}/-", "value": owner} if metadata.owner_references else None
        seen = {"op": "test", "path": "/metadata/resourceVersion", "value": metadata.resource_version}
        await self._patch(kind, workload, [seen, add or {"op": "add", "path": at, "value": [owner]}])

    async def release(self, united: UnitedDeployment, kind: str, workload: SubsetWorkload) -> None:
        """Release a workload that the selector no longer matches. [UD-32]"""
        references = [one.uid for one in workload.metadata.owner_references]
        at = pointer("metadata", "ownerReferences", str(references.index(united.metadata.uid)))
        seen = {"op": "test", "path": f"{at}/uid", "value": united.metadata.uid}
        await self._patch(kind, workload, [seen, {"op": "remove", "path": at}])

    async def label(self, labels: Sequence[tuple[Pod, bool]]) -> tuple[dict[str, tuple[bool, str]], list[str]]:
        """Label Pods as reserved or not. Return the written labels with the Pods' new resourceVersions, by UID, and the
        errors. [UD-56]"""

        async def label(one: tuple[Pod, bool]) -> str:
            pod, reserved = one
            value = "true" if reserved else "false"
            made = await patch_pod_metadata(self._client, pod, {"labels": {names.UNITED_RESERVED_POD: value}})
            return made.metadata.resource_version if made is not None else ""

        written: dict[str, tuple[bool, str]] = {}
        errors = []
        async for (pod, reserved), answer in in_batches(label, labels, limit=MAX_CONCURRENT_WRITES, stop=False):
            if isinstance(answer, KubeError):
                errors.append(f"Pod {pod.metadata.name}: {message_of(answer)}")
            elif answer:
                written[pod.metadata.uid] = (reserved, answer)
        return written, errors

    async def delete_pods(self, pods: Sequence[Pod]) -> list[str]:
        """Delete Pods. Return the errors. [UD-50]"""

        async def delete(pod: Pod) -> None:
            metadata = pod.metadata
            with suppress(NotFound, Conflict):
                await self._client.delete(
                    PODS, metadata.name, metadata.namespace, uid=metadata.uid, decode=decode_metadata
                )

        return [
            f"Pod {pod.metadata.name}: {message_of(answer)}"
            async for pod, answer in in_batches(delete, pods, limit=MAX_CONCURRENT_WRITES, stop=False)
            if isinstance(answer, KubeError)
        ]

    def event(self, united: UnitedDeployment, type_: Literal["Normal", "Warning"], reason: str, message: str) -> None:
        self._events.event(reference(UNITED_DEPLOYMENT.resource(), united), type_, reason, message)

    async def _patch(self, kind: str, workload: SubsetWorkload, operations: Sequence[Mapping[str, Any]]) -> None:
        """Patch the workload if its UID still matches."""
        metadata = workload.metadata
        same = {"op": "test", "path": "/metadata/uid", "value": metadata.uid}
        await self._client.patch(
            RESOURCES[kind],
            metadata.name,
            [same, *operations],
            metadata.namespace,
            kind=PatchType.JSON,
            decode=decode_metadata,
        )


def _operations(workload: SubsetWorkload, wanted: Built) -> list[dict[str, Any]]:
    """Return a JSON patch that replaces the spec and sets our labels and annotations, and keeps all others. [UD-28,
    UD-29]"""
    metadata = workload.metadata
    operations: list[dict[str, Any]] = []
    for field_, present, given in (
        ("labels", metadata.labels, wanted.labels),
        ("annotations", metadata.annotations, wanted.annotations),
    ):
        if not present:
            operations.append({"op": "add", "path": f"/metadata/{field_}", "value": dict(given)})
            continue
        operations += [
            {"op": "add", "path": pointer("metadata", field_, key), "value": value}
            for key, value in given.items()
            if present.get(key) != value
        ]
    return [*operations, {"op": "replace", "path": "/spec", "value": wanted.spec}]


# Workloads that are not in the cache: those just created, so that a subset does not get a second one [UD-33], and those
# whose subset label was removed [UD-32].

#: Seconds until a created workload that is not in the cache is looked up in the API server.
BELIEF_SECONDS: Final = 10.0
#: Seconds to wait for the cache to contain a workload whose creation got no response.
DOUBT_SECONDS: Final = 3.0


@dataclass(slots=True)
class Creations:
    """Workloads recently created for one UnitedDeployment."""

    #: Creation times, by name of the workload.
    made: dict[str, float] = field(default_factory=dict)
    #: Time until which the cache may lack a workload whose creation got no response.
    doubt_until: float = 0.0

    def note(self, written: Written, now: float) -> None:
        self.made.update(dict.fromkeys(written.names, now))
        if written.unanswered:
            self.doubt_until = now + DOUBT_SECONDS


class UnseenWorkloads:
    """Finds created workloads that are not in the caches yet. ``caches`` has the workloads by template."""

    def __init__(self, client: Client, caches: Mapping[str, Store[SubsetWorkload]]) -> None:
        self._client = client
        self._clock = client.clock
        self._caches = caches

    async def wait(self, united: UnitedDeployment, creations: Creations) -> float:
        """Return the seconds to wait for a created workload to appear; 0 if none is missing."""
        now, namespace = self._clock.monotonic(), united.metadata.namespace
        if creations.doubt_until:
            if (left := creations.doubt_until - now) > 0:
                return left + TIMER_TOLERANCE
            # The cache may lag even longer, so read from the API server.
            creations.made.update(dict.fromkeys(await self._there(united), now))
            creations.doubt_until = 0.0
        for name in list(creations.made):
            if any(store.get(name, namespace) is not None for store in self._caches.values()):
                del creations.made[name]
        if any(now - since > BELIEF_SECONDS for since in creations.made.values()):
            there = await self._there(united)
            creations.made = {name: since for name, since in creations.made.items() if name in there}
        return 1.0 if creations.made else 0.0

    async def unlabeled(self, united: UnitedDeployment, kind: str) -> list[SubsetWorkload]:
        """Return owned workloads that have lost their subset label. [UD-32]"""
        namespace, selector = united.metadata.namespace or "", f"!{names.SUBSET_NAME}"
        listed = await self._client.list(
            RESOURCES[kind], namespace, label_selector=selector, decode=decode_subset_workload
        )
        owner = KIND.owner(united.metadata)
        return [
            one
            for one in listed.items
            if is_controlled_by(one.metadata, owner) and one.metadata.deletion_timestamp is None
        ]

    async def _there(self, united: UnitedDeployment) -> list[str]:
        """Read the names of the owned workloads from the API server."""
        found = template_of(united.spec)
        if found is None:
            return []
        listed = await self._client.list(
            RESOURCES[found[0]],
            united.metadata.namespace or "",
            label_selector=names.SUBSET_NAME,
            decode=decode_metadata,
        )
        owner = KIND.owner(united.metadata)
        return [one.metadata.name for one in listed.items if is_controlled_by(one.metadata, owner)]


# Status of a UnitedDeployment, written if it changed. [UD-63 … UD-70]


async def report(
    client: Client,
    found: Situation,
    present: KnownStatus,
    wanted: Mapping[str, Wanted],
    remarked: frozenset[str],
    outcome: Outcome,
) -> KnownStatus | None:
    """Write the status if it changed. Return the written status, or None. ``remarked``: subsets that count as
    unschedulable again. [UD-40]"""
    united = found.united
    states, updated = _counted(found, wanted, remarked)

    def difference(status: Mapping[str, Any]) -> dict[str, Any]:
        made = status_of(
            status,
            states,
            outcome,
            updated,
            revision=found.revisions.update.name,
            replicas=REPLICAS if united.spec.replicas is None else united.spec.replicas,
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
    """Return the replicas and partition of a subset that stays unchanged."""
    return (workload.replicas, partition_of(kind, workload)) if workload is not None else (0, 0)
