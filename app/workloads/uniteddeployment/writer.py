"""Writing the workloads of subsets and the labels of their Pods, with the events that tell of it (UD-49, UD-68)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from app.api import names
from app.api.uniteddeployment import UNITED_DEPLOYMENT, UnitedDeployment
from app.kube.client import Client, PatchType
from app.kube.errors import UNANSWERED, Conflict, KubeError, NotFound, message_of
from app.kube.events import EventRecorder
from app.kube.objects import ObjectReference, Pod, decode_metadata
from app.kube.patches import pointer
from app.kube.resources import PODS, Resource
from app.workloads.uniteddeployment.plan.revision import KIND
from app.workloads.uniteddeployment.plan.subsets import SHOWN_KINDS, SubsetWorkload, Wanted, generated_name

MAX_CONCURRENT_WRITES: Final = 16
T = TypeVar("T")
R = TypeVar("R")


@dataclass(slots=True)
class Written:
    """What came of writing several objects. ``unanswered``: of some nobody knows whether they were written."""

    names: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    unanswered: bool = False


class SubsetWriter:
    """Writes workloads and Pods. ``resources``: where workloads are, by the template they are made from."""

    def __init__(self, client: Client, events: EventRecorder, resources: Mapping[str, Resource]) -> None:
        self._client = client
        self._events = events
        self._resources = resources

    async def create(self, united: UnitedDeployment, kind: str, missing: Sequence[Wanted]) -> Written:
        """In batches of 1, 2, 4, …; the first that fails ends it."""
        resource, namespace = self._resources[kind], united.metadata.namespace
        owner = KIND.owner(united.metadata)

        async def create(one: Wanted) -> str:
            body = {
                "apiVersion": resource.api_version,
                "kind": resource.kind,
                "metadata": {
                    "generateName": generated_name(kind, united.name, one.name),
                    "namespace": namespace,
                    "labels": dict(one.labels),
                    "annotations": dict(one.annotations),
                    "ownerReferences": [owner.reference],
                },
                "spec": one.spec,
            }
            return (await self._client.create(resource, body, namespace, decode=decode_metadata)).metadata.name

        written = Written()
        async for _, answer in _in_batches(create, missing):
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
            except (NotFound, Conflict):
                continue  # it is gone, or another has its name
            except KubeError as error:
                errors.append(message_of(error))
            else:
                gone[kind] = gone.get(kind, 0) + 1
        if errors:
            self.event(united, "Warning", "FailedUpdateSubset", errors[0])
        for kind, count in gone.items():
            self.event(united, "Normal", "SuccessfulUpdateSubset", f"Delete {count} Subset ({SHOWN_KINDS[kind]})")
        return errors

    async def update(
        self, united: UnitedDeployment, kind: str, changed: Sequence[tuple[SubsetWorkload, Wanted]]
    ) -> list[str]:
        """Make workloads say what they are to say, in batches as above. Returns what went wrong."""

        async def update(one: tuple[SubsetWorkload, Wanted]) -> None:
            await self._patch(kind, one[0], _operations(*one))

        errors = []
        async for (workload, _), answer in _in_batches(update, changed):
            if isinstance(answer, KubeError):
                said = message_of(answer)
                errors.append(said)
                shown = f"Error updating PodSet ({SHOWN_KINDS[kind]}) {workload.metadata.name} when updating"
                self.event(united, "Warning", "FailedUpdateSubset", f"{shown}: {said}")
        return errors

    async def adopt(self, united: UnitedDeployment, kind: str, workload: SubsetWorkload) -> None:
        """UD-32: make a workload ours that nobody controls, if it still is as it was seen."""
        metadata = workload.metadata
        owner = KIND.owner(united.metadata).reference
        at = "/metadata/ownerReferences"
        add = {"op": "add", "path": f"{at}/-", "value": owner} if metadata.owner_references else None
        seen = {"op": "test", "path": "/metadata/resourceVersion", "value": metadata.resource_version}
        await self._patch(kind, workload, [seen, add or {"op": "add", "path": at, "value": [owner]}])

    async def release(self, united: UnitedDeployment, kind: str, workload: SubsetWorkload) -> None:
        """UD-32: what the selector does not match any more is no longer ours."""
        references = [one.uid for one in workload.metadata.owner_references]
        at = pointer("metadata", "ownerReferences", str(references.index(united.metadata.uid)))
        seen = {"op": "test", "path": f"{at}/uid", "value": united.metadata.uid}
        await self._patch(kind, workload, [seen, {"op": "remove", "path": at}])

    async def label(self, labels: Sequence[tuple[Pod, bool]]) -> tuple[dict[str, tuple[bool, str]], list[str]]:
        """UD-56: write which Pods are reserved. By uid what was written and the resourceVersion that has it, and what
        went wrong."""

        async def label(one: tuple[Pod, bool]) -> str:
            pod, reserved = one
            value = "true" if reserved else "false"
            patch = {"metadata": {"uid": pod.metadata.uid, "labels": {names.UNITED_RESERVED_POD: value}}}
            try:
                made = await self._client.patch(
                    PODS, pod.metadata.name, patch, pod.metadata.namespace, decode=decode_metadata
                )
            except (NotFound, Conflict):
                return ""  # it is gone, or another has its name
            return made.metadata.resource_version

        written: dict[str, tuple[bool, str]] = {}
        errors = []
        async for (pod, reserved), answer in _in_batches(label, labels, stop=False):
            if isinstance(answer, KubeError):
                errors.append(f"Pod {pod.metadata.name}: {message_of(answer)}")
            elif answer:
                written[pod.metadata.uid] = (reserved, answer)
        return written, errors

    async def delete_pods(self, pods: Sequence[Pod]) -> list[str]:
        """UD-50. Returns what went wrong."""

        async def delete(pod: Pod) -> None:
            metadata = pod.metadata
            try:
                await self._client.delete(
                    PODS, metadata.name, metadata.namespace, uid=metadata.uid, decode=decode_metadata
                )
            except (NotFound, Conflict):
                return

        return [
            f"Pod {pod.metadata.name}: {message_of(answer)}"
            async for pod, answer in _in_batches(delete, pods, stop=False)
            if isinstance(answer, KubeError)
        ]

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

    async def _patch(self, kind: str, workload: SubsetWorkload, operations: Sequence[Mapping[str, Any]]) -> None:
        """Of this very object."""
        metadata = workload.metadata
        same = {"op": "test", "path": "/metadata/uid", "value": metadata.uid}
        await self._client.patch(
            self._resources[kind],
            metadata.name,
            [same, *operations],
            metadata.namespace,
            kind=PatchType.JSON,
            decode=decode_metadata,
        )


async def _in_batches(
    write: Callable[[T], Coroutine[Any, Any, R]], given: Sequence[T], *, stop: bool = True
) -> AsyncIterator[tuple[T, R | KubeError]]:
    """UD-49: 1, 2, 4, … at once. Yields what was given with what came of it; ``stop``: after the first batch in which
    something failed."""
    start, size = 0, 1
    while start < len(given):
        batch = given[start : start + size]
        start, size = start + size, min(size * 2, MAX_CONCURRENT_WRITES)
        answers = await asyncio.gather(*map(write, batch), return_exceptions=True)
        for one, answer in zip(batch, answers, strict=True):
            if isinstance(answer, BaseException) and not isinstance(answer, KubeError):
                raise answer
            yield one, answer
        if stop and any(isinstance(answer, KubeError) for answer in answers):
            return


def _operations(workload: SubsetWorkload, wanted: Wanted) -> list[dict[str, Any]]:
    """UD-28, UD-29: the whole spec, and our labels and annotations beside those of others."""
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
