"""Writing the workloads of subsets, with the events that tell of it (UD-49, UD-68)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from app.api.uniteddeployment import UNITED_DEPLOYMENT, UnitedDeployment
from app.kube.client import Client, PatchType
from app.kube.errors import KubeError, NotFound, message_of
from app.kube.events import EventRecorder
from app.kube.objects import ObjectReference, decode_metadata
from app.kube.patches import pointer
from app.kube.resources import Resource
from app.workloads.engine.kind import WorkloadKind
from app.workloads.uniteddeployment.plan.subsets import SHOWN_KINDS, SubsetWorkload, Wanted, generated_name

KIND: Final = WorkloadKind(UNITED_DEPLOYMENT.resource())
MAX_CONCURRENT_WRITES: Final = 16


class SubsetWriter:
    """Creates, deletes and updates workloads. ``resources``: where they are, by the template they are made from."""

    def __init__(self, client: Client, events: EventRecorder, resources: Mapping[str, Resource]) -> None:
        self._client = client
        self._events = events
        self._resources = resources

    async def create(
        self, united: UnitedDeployment, kind: str, missing: Sequence[Wanted]
    ) -> tuple[list[str], list[str]]:
        """In batches of 1, 2, 4, …; the first that fails ends it. The names of what was made, and what went wrong."""
        resource = self._resources[kind]
        owner = KIND.owner(united.name, united.metadata.namespace, united.metadata.uid)
        made: list[str] = []
        errors: list[str] = []
        size = 1
        for start in _batches(len(missing)):
            batch = missing[start : start + size]
            size = min(size * 2, MAX_CONCURRENT_WRITES)
            bodies = [
                {
                    "apiVersion": resource.api_version,
                    "kind": resource.kind,
                    "metadata": {
                        "generateName": generated_name(united.name, one.name),
                        "namespace": united.metadata.namespace,
                        "labels": dict(one.labels),
                        "annotations": dict(one.annotations),
                        "ownerReferences": [owner.reference],
                    },
                    "spec": one.spec,
                }
                for one in batch
            ]
            created = await asyncio.gather(
                *(
                    self._client.create(resource, body, united.metadata.namespace, decode=decode_metadata)
                    for body in bodies
                ),
                return_exceptions=True,
            )
            for answer in created:
                if isinstance(answer, KubeError):
                    errors.append(message_of(answer))
                elif isinstance(answer, BaseException):
                    raise answer
                else:
                    made.append(answer.metadata.name)
            if errors:
                break
        if made:
            self.event(united, "Normal", "SuccessfulUpdateSubset", f"Create {len(made)} Subset ({SHOWN_KINDS[kind]})")
        if errors:
            self.event(united, "Warning", "FailedUpdateSubset", errors[0])
        return made, errors

    async def delete(self, united: UnitedDeployment, surplus: Sequence[tuple[str, SubsetWorkload]]) -> list[str]:
        """Delete workloads that nobody wants. Returns what went wrong."""
        gone: dict[str, int] = {}
        errors = []
        for kind, workload in surplus:
            metadata = workload.metadata
            try:
                await self._client.delete(
                    self._resources[kind],
                    metadata.name,
                    metadata.namespace,
                    uid=metadata.uid,
                    propagation_policy="Background",
                    decode=decode_metadata,
                )
            except NotFound:
                continue
            except KubeError as error:
                errors.append(message_of(error))
            else:
                gone[kind] = gone.get(kind, 0) + 1
        for kind, count in gone.items():
            self.event(united, "Normal", "SuccessfulUpdateSubset", f"Delete {count} Subset ({SHOWN_KINDS[kind]})")
        return errors

    async def update(
        self, united: UnitedDeployment, kind: str, changed: Sequence[tuple[SubsetWorkload, Wanted]]
    ) -> list[str]:
        """Make workloads say what they are to say; one that fails stops no other. Returns what went wrong."""
        errors = []
        for workload, wanted in changed:
            metadata = workload.metadata
            try:
                await self._client.patch(
                    self._resources[kind],
                    metadata.name,
                    _operations(workload, wanted),
                    metadata.namespace,
                    kind=PatchType.JSON,
                    decode=decode_metadata,
                )
            except KubeError as error:
                errors.append(message_of(error))
                shown = f"Error updating PodSet ({SHOWN_KINDS[kind]}) {metadata.name} when updating"
                self.event(united, "Warning", "FailedUpdateSubset", f"{shown}: {message_of(error)}")
        return errors

    def event(self, united: UnitedDeployment, type_: str, reason: str, message: str) -> None:
        """Tell of something that happened to one object."""
        resource = UNITED_DEPLOYMENT.resource()
        regarding = ObjectReference(
            api_version=resource.api_version,
            kind=resource.kind,
            namespace=united.metadata.namespace,
            name=united.name,
            uid=united.metadata.uid,
        )
        self._events.event(regarding, "Warning" if type_ == "Warning" else "Normal", reason, message)


def _batches(count: int) -> Iterable[int]:
    """Where batches of 1, 2, 4, … begin."""
    start, size = 0, 1
    while start < count:
        yield start
        start, size = start + size, min(size * 2, MAX_CONCURRENT_WRITES)


def _operations(workload: SubsetWorkload, wanted: Wanted) -> list[dict[str, Any]]:
    """UD-28, UD-29: the whole spec, and our labels and annotations beside those of others; of this very object."""
    metadata = workload.metadata
    operations: list[dict[str, Any]] = [{"op": "test", "path": "/metadata/uid", "value": metadata.uid}]
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
