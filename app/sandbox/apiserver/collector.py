"""Garbage collection and the cleanup of terminating namespaces."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from app.sandbox.apiserver.deleting import DeleteOptions, Deleter
from app.sandbox.apiserver.kinds import ResourceType
from app.sandbox.apiserver.requests import Call, User
from app.sandbox.apiserver.status import Refusal
from app.sandbox.apiserver.storage import Collection, Core, Entry, Stale, Verb
from app.sandbox.apiserver.strategies import FOREGROUND, ORPHAN

# Conditions of a terminating namespace, as the namespace controller writes them. Pure. Source: Kubernetes 1.34,
# pkg/controller/namespace/deletion/status_condition_utils.go.

Json: TypeAlias = dict[str, Any]

#: Type, reason and message of each condition in the absence of errors.
_QUIET: Final = (
    ("NamespaceDeletionDiscoveryFailure", "ResourcesDiscovered", "All resources successfully discovered"),
    ("NamespaceDeletionGroupVersionParsingFailure", "ParsedGroupVersions", "All legacy kube types successfully parsed"),
    (
        "NamespaceDeletionContentFailure",
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
    ("NamespaceContentRemaining", "ContentRemoved", "All content successfully removed"),
    ("NamespaceFinalizersRemaining", "ContentHasNoFinalizers", "All content-preserving finalizers finished"),
)


def with_conditions(
    namespace: Json, failures: Sequence[str], remaining: Mapping[str, int], finalizers: Mapping[str, int], now: str
) -> Json:
    """Return the namespace with conditions that explain its remaining contents.

    ``failures`` holds the errors of rejected deletions, ``remaining`` the number of objects left per resource (such as
    ``pods.``), ``finalizers`` the number of objects held by each finalizer.
    """
    trouble = {}
    if failures:
        text = ", ".join(dict.fromkeys(failures))
        shown = f"[{text}]" if len(set(failures)) > 1 else text
        trouble["NamespaceDeletionContentFailure"] = (
            "ContentDeletionFailed",
            f"Failed to delete all resource types, {len(set(failures))} remaining: {shown}",
        )
    if remaining:
        text = ", ".join(sorted(f"{name} has {count} resource instances" for name, count in remaining.items()))
        trouble["NamespaceContentRemaining"] = ("SomeResourcesRemain", f"Some resources are remaining: {text}")
    if finalizers:
        text = ", ".join(sorted(f"{name} in {count} resource instances" for name, count in finalizers.items()))
        trouble["NamespaceFinalizersRemaining"] = (
            "SomeFinalizersRemain",
            f"Some content in the namespace has finalizers remaining: {text}",
        )
    status = namespace.get("status") or {}
    before = {one["type"]: one for one in status.get("conditions") or ()}
    conditions = []
    for kind, reason, message in _QUIET:
        value = "True" if kind in trouble else "False"
        reason, message = trouble.get(kind, (reason, message))
        old = before.get(kind, {})
        since = old["lastTransitionTime"] if old.get("status") == value else now
        conditions.append(
            {"type": kind, "status": value, "lastTransitionTime": since, "reason": reason, "message": message}
        )
    return {**namespace, "status": {**status, "conditions": conditions}}


# Effects of a deletion: dependents are deleted or orphaned, and terminating namespaces are emptied. On a real cluster,
# kube-controller-manager does this; here it is part of the server, since every cluster needs it. Webhooks see these
# deletions under the names of the controllers.

logger = logging.getLogger(__name__)

Work: TypeAlias = tuple[str, str, str]

_SERVICE_ACCOUNTS: Final = ("system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated")
GARBAGE_COLLECTOR: Final = User("system:serviceaccount:kube-system:generic-garbage-collector", _SERVICE_ACCOUNTS)
NAMESPACE_CONTROLLER: Final = User("system:serviceaccount:kube-system:namespace-controller", _SERVICE_ACCOUNTS)
#: Seconds until a rejected deletion is retried.
RETRY_SECONDS: Final = 5.0
_MAX_RETRY_SECONDS: Final = 60.0


class Collector:
    """Garbage collector. It listens to commits, and runs a task only while there is work."""

    def __init__(self, core: Core, deleter: Deleter) -> None:
        self._core = core
        self._deleter = deleter
        self._queue: deque[Work] = deque()
        self._queued: set[Work] = set()
        self._task: asyncio.Task[None] | None = None
        self._timers: set[asyncio.TimerHandle] = set()
        self._retries: dict[Work, int] = {}
        #: UID → location of the object.
        self._places: dict[str, tuple[str, str]] = {}
        core.storage.listeners.append(self._committed)

    def close(self) -> None:
        """Stop."""
        if self._task is not None:
            self._task.cancel()
        for timer in self._timers:
            timer.cancel()

    # ---- event mapping

    def _committed(self, verb: Verb, collection: Collection, before: Entry | None, after: Entry | None) -> None:
        entry = after if after is not None else before
        if entry is None:
            return
        metadata = entry.obj["metadata"]
        uid, place = metadata.get("uid", ""), (collection.name, entry.key)
        if verb == "create":
            self._places[uid] = place
            if metadata.get("ownerReferences"):
                self._add(("object", *place))
        elif verb == "delete":
            self._places.pop(uid, None)
            for dependent in self._core.storage.dependents.get(uid, ()):
                self._add(("object", *dependent))
            self._owners_wait(metadata)
            self._namespace_changed(metadata.get("namespace") or "")
        elif metadata.get("deletionTimestamp"):
            finalizers = metadata.get("finalizers") or ()
            if FOREGROUND in finalizers or ORPHAN in finalizers:
                self._add(("owner", *place))
            begun = before is None or not before.obj["metadata"].get("deletionTimestamp")
            if collection.name == "namespaces" and begun:
                self._add(("namespace", "", metadata["name"]))
        elif before is not None and before.obj["metadata"].get("ownerReferences") != metadata.get("ownerReferences"):
            self._owners_wait(before.obj["metadata"])
            self._add(("object", *place))

    def _owners_wait(self, metadata: Json) -> None:
        """Enqueue owners in foreground deletion that may have been waiting for this object."""
        for owner in metadata.get("ownerReferences") or ():
            place = self._places.get(owner.get("uid", ""))
            if place is not None:
                self._add(("owner", *place))

    def _namespace_changed(self, namespace: str) -> None:
        entry = self._core.named("namespaces").objects.get(namespace) if namespace else None
        if entry is not None and entry.obj["metadata"].get("deletionTimestamp"):
            self._add(("namespace", "", namespace))

    def _add(self, work: Work) -> None:
        if work in self._queued:
            return
        self._queued.add(work)
        self._queue.append(work)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run(), name="sandbox: garbage collector")

    def _later(self, work: Work) -> None:
        attempt = self._retries[work] = self._retries.get(work, 0) + 1
        seconds = min(RETRY_SECONDS * 2 ** (attempt - 1), _MAX_RETRY_SECONDS)
        loop = asyncio.get_running_loop()

        def again() -> None:
            self._timers.discard(timer)
            self._add(work)

        timer = loop.call_later(seconds, again)
        self._timers.add(timer)

    # ---- work

    async def _run(self) -> None:
        while self._queue:
            work = self._queue.popleft()
            self._queued.discard(work)
            kind, collection, key = work
            try:
                match kind:
                    case "object":
                        await self._collect(collection, key)
                    case "owner":
                        await self._finish_owner(collection, key)
                    case _:
                        await self._empty(key)
            except (Refusal, Stale) as error:
                logger.info("%s %s %s: %s", kind, collection, key, error)
                self._later(work)
            else:
                self._retries.pop(work, None)
            await asyncio.sleep(0)

    def _type_of(self, collection: str) -> ResourceType | None:
        return next((row for row in self._core.registry if row.key == collection), None)

    def _find(self, collection: str, key: str) -> tuple[ResourceType, Entry] | None:
        entry = self._core.named(collection).objects.get(key)
        resource = self._type_of(collection)
        return None if entry is None or resource is None else (resource, entry)

    async def _collect(self, collection: str, key: str) -> None:
        """Delete an object if none of its owners remain; otherwise remove its references to missing owners."""
        found = self._find(collection, key)
        if found is None:
            return
        resource, entry = found
        metadata = entry.obj["metadata"]
        owners = metadata.get("ownerReferences") or []
        if not owners or metadata.get("deletionTimestamp"):
            return
        solid, gone, waiting = self._sorted(owners)
        if solid:
            drop = {owner["uid"] for owner in gone + waiting}
            if drop:
                self._change(collection, key, lambda meta: _without_owners(meta, drop))
            return
        if not gone and not waiting:
            return
        policy = "Foreground" if waiting and self._core.storage.dependents.get(metadata["uid"]) else "Background"
        finalizers = metadata.get("finalizers") or ()
        if ORPHAN in finalizers:
            policy = "Orphan"
        elif FOREGROUND in finalizers:
            policy = "Foreground"
        await self._delete(resource, entry, GARBAGE_COLLECTOR, DeleteOptions(policy=policy, uid=metadata["uid"]))

    def _sorted(self, owners: list[Json]) -> tuple[list[Json], list[Json], list[Json]]:
        """Split owners into those that exist, those that are gone, and those waiting for their dependents."""
        solid, gone, waiting = [], [], []
        for owner in owners:
            place = self._places.get(owner.get("uid", ""))
            entry = self._core.named(place[0]).objects.get(place[1]) if place is not None else None
            if entry is None:
                gone.append(owner)
                continue
            metadata = entry.obj["metadata"]
            if metadata.get("deletionTimestamp") and FOREGROUND in (metadata.get("finalizers") or ()):
                waiting.append(owner)
            else:
                solid.append(owner)
        return solid, gone, waiting

    async def _finish_owner(self, collection: str, key: str) -> None:
        """Continue the deletion of an object whose dependents are handled first."""
        found = self._find(collection, key)
        if found is None:
            return
        metadata = found[1].obj["metadata"]
        finalizers = metadata.get("finalizers") or ()
        if not metadata.get("deletionTimestamp"):
            return
        dependents = list(self._core.storage.dependents.get(metadata["uid"], ()))
        if ORPHAN in finalizers:
            for place in dependents:
                self._change(*place, lambda meta: _without_owners(meta, {metadata["uid"]}))
            self._change(collection, key, lambda meta: _without_finalizer(meta, ORPHAN))
        elif FOREGROUND in finalizers:
            blocking = False
            for place in dependents:
                blocking = self._blocks(place, metadata["uid"]) or blocking
                self._add(("object", *place))
            if not blocking:
                self._change(collection, key, lambda meta: _without_finalizer(meta, FOREGROUND))

    def _blocks(self, place: tuple[str, str], uid: str) -> bool:
        entry = self._core.named(place[0]).objects.get(place[1])
        owners = entry.obj["metadata"].get("ownerReferences") or () if entry is not None else ()
        return any(owner.get("uid") == uid and owner.get("blockOwnerDeletion") for owner in owners)

    def _change(self, collection: str, key: str, change: Callable[[Json], Json]) -> None:
        """Change an object's metadata. A terminating object that loses its last finalizer is removed."""
        found = self._find(collection, key)
        if found is None:
            return
        entry = found[1]
        metadata = change(entry.obj["metadata"])
        if metadata == entry.obj["metadata"]:
            return
        obj = {**entry.obj, "metadata": metadata}
        storage, named = self._core.storage, self._core.named(collection)
        held = metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds")
        if metadata.get("deletionTimestamp") and not held and not (obj.get("spec") or {}).get("finalizers"):
            storage.delete(named, entry, obj)
            return
        storage.update(named, entry, obj)

    async def _delete(self, resource: ResourceType, entry: Entry, user: User, options: DeleteOptions) -> None:
        call = internal_call(resource, entry, user)
        try:
            await self._deleter.delete(call, options)
        except Refusal as refusal:
            if refusal.code not in (404, 409):
                raise

    # ---- namespaces

    async def _empty(self, namespace: str) -> None:
        """Delete the contents of a terminating namespace, Pods first, then the namespace itself."""
        entry = self._core.named("namespaces").objects.get(namespace)
        if entry is None or not entry.obj["metadata"].get("deletionTimestamp"):
            return
        refused: list[Refusal] = []
        remaining: dict[str, int] = {}
        finalizers: dict[str, int] = {}
        for resource in self._namespaced():
            collection = self._core.collection(resource)
            for held in list(collection.select(namespace)):
                if not held.obj["metadata"].get("deletionTimestamp"):
                    try:
                        await self._delete(resource, held, NAMESPACE_CONTROLLER, DeleteOptions(policy="Background"))
                    except Refusal as refusal:
                        refused.append(refusal)
                if (left := collection.objects.get(held.key)) is not None:
                    name = f"{resource.plural}.{resource.group}"
                    remaining[name] = remaining.get(name, 0) + 1
                    for finalizer in left.obj["metadata"].get("finalizers") or ():
                        finalizers[finalizer] = finalizers.get(finalizer, 0) + 1
            if remaining and resource.key == "pods":
                break
        if not remaining:
            self._finalize(namespace)
            return
        self._write_conditions(namespace, [refusal.message for refusal in refused], remaining, finalizers)
        if refused:
            raise refused[0]

    def _write_conditions(
        self, namespace: str, failures: list[str], remaining: dict[str, int], finalizers: dict[str, int]
    ) -> None:
        """Record in the namespace's conditions what its deletion is waiting for."""
        collection = self._core.named("namespaces")
        entry = collection.objects.get(namespace)
        if entry is not None:
            told = with_conditions(entry.obj, failures, remaining, finalizers, self._core.now())
            if told != entry.obj:
                self._core.storage.update(collection, entry, told)

    def _namespaced(self) -> list[ResourceType]:
        """Return one resource per collection of namespaced objects, Pods first."""
        rows = {row.key: row for row in self._core.registry if row.namespaced and "delete" in row.verbs}
        return sorted(rows.values(), key=lambda row: (row.key != "pods", row.key))

    def _finalize(self, namespace: str) -> None:
        collection = self._core.named("namespaces")
        entry = collection.objects.get(namespace)
        if entry is None:
            return
        kept = [name for name in entry.obj.get("spec", {}).get("finalizers") or () if name != "kubernetes"]
        obj = {**entry.obj, "spec": {"finalizers": kept} if kept else {}}
        entry = self._core.storage.update(collection, entry, obj)
        if not kept and not entry.obj["metadata"].get("finalizers"):
            self._core.storage.delete(collection, entry)


def internal_call(resource: ResourceType, entry: Entry, user: User) -> Call:
    """Return a request for one object that the server makes itself."""
    call = Call(method="DELETE", path="", query={}, headers={}, body=b"", user=user)
    namespace, _, name = entry.key.rpartition("/")
    call.resource, call.namespace, call.name, call.verb = resource, namespace, name, "delete"
    return call


def _without_owners(metadata: Json, uids: set[str]) -> Json:
    kept = [owner for owner in metadata.get("ownerReferences") or () if owner.get("uid") not in uids]
    return _with_list(metadata, "ownerReferences", kept)


def _without_finalizer(metadata: Json, finalizer: str) -> Json:
    return _with_list(metadata, "finalizers", [name for name in metadata.get("finalizers") or () if name != finalizer])


def _with_list(metadata: Json, name: str, values: list[Any]) -> Json:
    found = {key: value for key, value in metadata.items() if key != name}
    if values:
        found[name] = values
    return found
