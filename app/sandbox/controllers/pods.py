"""Shared by workload controllers: creating, deleting and adopting Pods, revisions, and status writes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from random import Random
from typing import Any, Final

import msgspec

from app.kube.client import Client, PatchType
from app.kube.clock import rfc3339
from app.kube.concurrency import batches
from app.kube.controller import Controller, Result, Watch, to_self
from app.kube.errors import AlreadyExists, NotFound
from app.kube.expectations import ScaleAction, ScaleExpectations
from app.kube.hashes import fnv32a, random_suffix, safe_encode
from app.kube.objects import Object, ObjectMeta, Struct, decoder
from app.kube.reflector import Reflector
from app.kube.resources import CONTROLLERREVISIONS, PODS, ObjectKey, Resource
from app.kube.selectors import Selector, compile_selector
from app.kube.store import Change, Store, key_of
from app.sandbox.controllers.objects import Condition, Template, Workload
from app.sandbox.kubelet.plan import FINISHED
from app.sandbox.objects import Pod

OWNER: Final = "controller's uid"
ORPHANS: Final = "namespace of Pods without controller"
#: Maximum number of Pods created or deleted in one reconcile.
BURST: Final = 500
#: Seconds after which an unmet expectation expires.
EXPECTATION_TIMEOUT: Final = 30.0

#: Indexes of Pods that these controllers need.
POD_INDEXES: Final[Mapping[str, Callable[[Pod], Iterable[str]]]] = {
    OWNER: lambda pod: [pod.metadata.controller.uid] if pod.metadata.controller is not None else [],
    ORPHANS: lambda pod: [pod.metadata.namespace] if pod.metadata.controller is None else [],
}


def owner_reference(owner: Resource, metadata: ObjectMeta) -> dict[str, Any]:
    """Return a controller owner reference to the object with this metadata."""
    return {
        "apiVersion": owner.api_version,
        "kind": owner.kind,
        "name": metadata.name,
        "uid": metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def pod_of(
    template_metadata: Mapping[str, Any],
    template_spec: Mapping[str, Any],
    name: str,
    owner: Mapping[str, Any],
    labels: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return a Pod created from a template."""
    metadata: dict[str, Any] = {"name": name, "ownerReferences": [dict(owner)]}
    for field in ("labels", "annotations", "finalizers"):
        if template_metadata.get(field):
            metadata[field] = template_metadata[field]
    if labels:
        metadata["labels"] = {**(metadata.get("labels") or {}), **labels}
    return {"metadata": metadata, "spec": dict(template_spec)}


def is_active(pod: Pod) -> bool:
    """Return whether the Pod is neither finished nor being deleted."""
    return pod.status.phase not in FINISHED and pod.metadata.deletion_timestamp is None


def is_ready(pod: Pod) -> bool:
    """Return whether the Pod's condition Ready is true."""
    return any(one.type == "Ready" and one.status == "True" for one in pod.status.conditions)


def available_in(pod: Pod, min_ready_seconds: int, now: datetime) -> float:
    """Return the seconds until the Pod counts as available: zero if it is available, infinite if it is not ready."""
    for one in pod.status.conditions:
        if one.type == "Ready" and one.status == "True":
            if min_ready_seconds == 0 or one.last_transition_time is None:
                return 0.0
            return max(0.0, min_ready_seconds - (now - one.last_transition_time).total_seconds())
    return float("inf")


def to_delete_first(pod: Pod) -> tuple[Any, ...]:
    """Return the sort key for deletion: unbound Pods first, then those not running, not ready, with a low deletion
    cost, and young."""
    phase = {"Pending": 0, "Unknown": 1, "": 0}.get(pod.status.phase, 2)
    try:
        cost = int(pod.metadata.annotations.get("controller.kubernetes.io/pod-deletion-cost", "0"))
    except ValueError:
        cost = 0
    created = pod.metadata.creation_timestamp
    age = -created.timestamp() if created is not None else 0.0
    return bool(pod.spec.node_name), phase, is_ready(pod), cost, age, pod.metadata.name


class PodControl:
    """Creates and deletes Pods for one workload kind, and tracks the writes that have not reached the cache yet."""

    def __init__(self, client: Client, pods: Store[Pod], owner: Resource, rng: Random) -> None:
        self.pods = pods
        self.owner = owner
        self.rng = rng
        self._client = client
        self._expected: ScaleExpectations[ObjectKey] = ScaleExpectations(client.clock)
        pods.subscribe(self._observe)

    def _observe(self, change: Change[Pod]) -> None:
        metadata = change.object.metadata
        reference = metadata.controller
        if reference is None or (reference.kind, reference.group) != (self.owner.kind, self.owner.group):
            return
        key = ObjectKey(metadata.namespace, reference.name)
        if change.old is None:
            self._expected.observe(key, ScaleAction.CREATE, metadata.name)
        if change.new is None or change.new.metadata.deletion_timestamp is not None:
            self._expected.observe(key, ScaleAction.DELETE, metadata.uid)

    def waits(self, key: ObjectKey) -> float:
        """Return the maximum seconds to wait until the cache has caught up with our writes, or zero if it has."""
        unsatisfied = self._expected.unsatisfied(key)
        if unsatisfied is None:
            return 0.0
        remaining = unsatisfied.remaining(EXPECTATION_TIMEOUT)
        if not remaining:
            self._expected.forget(key)
        return remaining

    def forget(self, key: ObjectKey) -> None:
        """Drop the state of a deleted workload."""
        self._expected.forget(key)

    async def claim(self, owner: Object, selector: Selector) -> list[Pod]:
        """Return the workload's Pods. Adopts matching orphans and releases Pods that no longer match."""
        metadata = owner.metadata
        uid, namespace = metadata.uid or "", metadata.namespace or ""
        mine = []
        for pod in self.pods.by_index(OWNER, uid):
            if selector.matches(pod.metadata.labels) or pod.metadata.deletion_timestamp is not None:
                mine.append(pod)
            elif _is_alive(owner):
                await self._reference(pod, {"$patch": "delete", "uid": uid})
        if not _is_alive(owner):
            return mine
        for pod in self.pods.by_index(ORPHANS, namespace):
            if selector.matches(pod.metadata.labels) and is_active(pod) and not selector.empty:
                body = {
                    "apiVersion": self.owner.api_version,
                    "kind": self.owner.kind,
                    "name": metadata.name,
                    "uid": uid,
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
                await self._reference(pod, body)
                mine.append(pod)
        return mine

    async def _reference(self, pod: Pod, reference: Mapping[str, Any]) -> None:
        metadata = pod.metadata
        patch = {"metadata": {"uid": metadata.uid, "ownerReferences": [reference]}}
        try:
            await self._client.patch(PODS, metadata.name, patch, metadata.namespace, kind=PatchType.STRATEGIC)
        except NotFound:
            return

    def new_name(self, prefix: str) -> str:
        """Return a Pod name with this prefix, generated as the API server does."""
        return f"{prefix[:58]}{random_suffix(self.rng)}"

    async def create(self, key: ObjectKey, bodies: Sequence[dict[str, Any]]) -> None:
        """Create Pods in batches of 1, 2, 4, …, so that an error that affects every Pod is not repeated for each."""
        for batch in batches(bodies):
            await _all(self._create(key, body) for body in batch)

    async def _create(self, key: ObjectKey, body: dict[str, Any]) -> None:
        name = body["metadata"]["name"]
        self._expected.expect(key, ScaleAction.CREATE, name)
        try:
            await self._client.create(PODS, body, key.namespace)
        except BaseException as error:
            self._expected.observe(key, ScaleAction.CREATE, name)
            if not isinstance(error, AlreadyExists):
                raise

    async def delete(self, key: ObjectKey, pods: Iterable[Pod]) -> None:
        """Delete Pods."""
        await _all(self._delete(key, pod) for pod in pods)

    async def _delete(self, key: ObjectKey, pod: Pod) -> None:
        metadata = pod.metadata
        self._expected.expect(key, ScaleAction.DELETE, metadata.uid)
        try:
            await self._client.delete(PODS, metadata.name, metadata.namespace, uid=metadata.uid)
        except BaseException as error:
            self._expected.observe(key, ScaleAction.DELETE, metadata.uid)
            if not isinstance(error, NotFound):
                raise


def _is_alive(owner: Object) -> bool:
    return getattr(owner.metadata, "deletion_timestamp", None) is None


async def _all(work: Iterable[Any]) -> None:
    """Run all coroutines concurrently, then raise the first error."""
    for outcome in await asyncio.gather(*work, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome


def matching_workloads(workloads: Store[Any], owner: Resource, selector_of: Callable[[Any], Selector]) -> Any:
    """Return a key mapper for a watch on Pods. It maps a Pod to its workload, and an orphan to the workloads that could
    adopt it."""

    def keys(change: Change[Pod]) -> Iterable[ObjectKey]:
        found: dict[ObjectKey, None] = {}
        for pod in (change.old, change.new):
            if pod is None:
                continue
            reference = pod.metadata.controller
            if reference is None:
                for one in workloads.list(pod.metadata.namespace):
                    if selector_of(one).matches(pod.metadata.labels):
                        found[key_of(one)] = None
            elif (reference.kind, reference.group) == (owner.kind, owner.group):
                found[ObjectKey(pod.metadata.namespace, reference.name)] = None
        return found

    return keys


class WorkloadController:
    """Base class of workload controllers. Subclasses implement :meth:`reconcile`."""

    def __init__(
        self,
        client: Client,
        pods: Store[Pod],
        resource: Resource,
        rng: Random,
        *,
        workers: int,
        indexes: Mapping[str, Callable[[Workload], Iterable[str]]] | None = None,
        others: Sequence[Watch[Any]] = (),
    ) -> None:
        self.client = client
        self.sets: Store[Workload] = Store(indexes)
        self.control = PodControl(client, pods, resource, rng)
        self._reflector = Reflector(client, resource, self.sets, decode=decoder(Workload), rng=rng)
        keys = matching_workloads(self.sets, resource, lambda one: compile_selector(one.spec.selector))
        watches: list[Watch[Any]] = [Watch(self.sets, to_self), Watch(pods, keys), *others]
        self.controller = Controller(
            f"sandbox-{resource.plural}", client.clock, watches, self._reconcile, workers=workers
        )

    def tasks(self) -> list[Any]:
        """Return the coroutines to run concurrently until canceled."""
        return [self._reflector.run(), self.controller.run()]

    async def reconcile(self, key: ObjectKey, found: Workload, pods: Sequence[Pod]) -> Result | None:
        """Reconcile a workload, given all its Pods, including terminating ones."""
        raise NotImplementedError

    async def _reconcile(self, key: ObjectKey) -> Result | None:
        found = self.sets.by_key(key)
        if found is None:
            self.control.forget(key)
            return None
        if seconds := self.control.waits(key):
            return Result(requeue_after=seconds)
        pods = await self.control.claim(found, compile_selector(found.spec.selector))
        try:
            return await self.reconcile(key, found, pods)
        except NotFound:  # deleted in the meantime
            return None


async def patch_status(client: Client, resource: Resource, found: Any, status: Mapping[str, Any]) -> None:
    """Write the status fields that differ. A zero value equals a missing one."""
    old: dict[str, Any] = msgspec.to_builtins(found.status)
    changes = {key: value for key, value in status.items() if (old.get(key) or None) != (value or None)}
    if not changes:
        return
    metadata = found.metadata
    body = {"metadata": {"uid": metadata.uid}, "status": changes}
    await client.patch(resource, metadata.name, body, metadata.namespace, subresource="status")


def with_conditions(
    old: Sequence[Condition], wanted: Sequence[tuple[str, str, str, str]], now: datetime, *, updates: bool = False
) -> list[dict[str, Any]]:
    """Return the conditions after setting ``wanted`` (type, status, reason and message). Other conditions are kept.

    If ``updates`` is set, changed conditions also get a lastUpdateTime, as Deployment conditions have.
    """
    present = {one.type: one for one in old}
    named = {one[0] for one in wanted}
    result = [_printed(one) for one in old if one.type not in named]
    for type_, status, reason, message in wanted:
        was = present.get(type_)
        if was is not None and (was.status, was.reason, was.message) == (status, reason, message):
            result.append(_printed(was))
            continue
        body = {"type": type_, "status": status, "reason": reason, "message": message}
        since = was.last_transition_time if was is not None and was.status == status else None
        body["lastTransitionTime"] = rfc3339(since if since is not None else now)
        if updates:
            body["lastUpdateTime"] = rfc3339(now)
        result.append(body)
    return result


def _printed(condition: Condition) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(condition)
    return found


LABEL = "controller-revision-hash"


class Recorded(Struct, frozen=True):
    """A ControllerRevision."""

    metadata: ObjectMeta = ObjectMeta()
    revision: int = 0


class Revisions:
    """ControllerRevisions of all native workloads."""

    def __init__(self, client: Client, rng: Random) -> None:
        self._client = client
        self.store: Store[Recorded] = Store(
            {"owner": lambda one: [one.metadata.controller.uid] if one.metadata.controller is not None else []}
        )
        self.reflector = Reflector(client, CONTROLLERREVISIONS, self.store, decode=decoder(Recorded), rng=rng)

    def of(self, workload: Workload) -> Sequence[Recorded]:
        """Return the workload's revisions, oldest first."""
        return sorted(self.store.by_index("owner", workload.metadata.uid), key=lambda one: one.revision)

    async def record(self, owner: Resource, workload: Workload) -> str:
        """Record the template as the newest revision. Returns its hash, the value of the Pods' revision label."""
        digest = template_digest(workload.spec.template)
        known = self.of(workload)
        name = f"{workload.metadata.name}-{digest}"
        latest = max((one.revision for one in known), default=0)
        mine = next((one for one in known if one.metadata.name == name), None)
        if mine is None:
            template = {"metadata": workload.spec.template.metadata, "spec": workload.spec.template.spec}
            body: dict[str, Any] = {
                "metadata": {
                    "name": name,
                    "labels": {**workload.spec.template.labels, LABEL: digest},
                    "ownerReferences": [owner_reference(owner, workload.metadata)],
                },
                "revision": latest + 1,
                "data": {"spec": {"template": {"$patch": "replace", **template}}},
            }
            try:
                await self._client.create(CONTROLLERREVISIONS, body, workload.metadata.namespace)
            except AlreadyExists:
                return digest
        elif mine.revision < latest:
            body = {"metadata": {"uid": mine.metadata.uid}, "revision": latest + 1}
            await self._client.patch(CONTROLLERREVISIONS, name, body, workload.metadata.namespace)
        return digest


def template_digest(template: Template) -> str:
    """Return the hash of a template."""
    return safe_encode(str(fnv32a(json.dumps([template.metadata, template.spec], sort_keys=True).encode())))
