"""A store holds the last known objects of one kind, with named indexes and change notifications.

A reflector, a test or a directory of YAML files fills it. Reading never blocks and never copies an object.

    pods = Store(indexes={"owner": lambda pod: [o.uid for o in pod.metadata.owner_references if o.controller]})
    pods.by_index("owner", uid)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar, cast

from app.kube.objects import Object
from app.kube.resources import ObjectKey

logger = logging.getLogger(__name__)

T = TypeVar("T", bound=Object)

#: Returns the keys (any number) under which an index lists an object.
IndexFunction: TypeAlias = Callable[[T], Iterable[str]]


@dataclass(frozen=True, slots=True)
class Change(Generic[T]):
    """A change to one object: added (no ``old``), updated, or deleted (no ``new``)."""

    old: T | None
    new: T | None

    @property
    def object(self) -> T:
        """The current object, or its last known state before deletion."""
        return cast("T", self.new if self.new is not None else self.old)


Handler: TypeAlias = Callable[[Change[T]], None]


def key_of(obj: Object) -> ObjectKey:
    """Return the namespace and name of an object."""
    metadata = obj.metadata
    return ObjectKey(metadata.namespace or "", metadata.name)


class Store(Generic[T]):
    """Objects by key. Handlers are called in the order of the changes, after the store is updated."""

    def __init__(self, indexes: Mapping[str, IndexFunction[T]] | None = None) -> None:
        self._objects: dict[ObjectKey, T] = {}
        self._functions = dict(indexes or {})
        self._indexes: dict[str, dict[str, dict[ObjectKey, T]]] = {name: {} for name in self._functions}
        self._handlers: tuple[Handler[T], ...] = ()
        self._ready = asyncio.Event()

    # ---- reading

    @property
    def ready(self) -> bool:
        """Whether the store has been filled once. Before that, an object missing here may exist in the cluster."""
        return self._ready.is_set()

    async def wait_until_ready(self) -> None:
        await self._ready.wait()

    def __len__(self) -> int:
        return len(self._objects)

    def __contains__(self, key: ObjectKey) -> bool:
        return key in self._objects

    def get(self, name: str, namespace: str = "") -> T | None:
        return self._objects.get(ObjectKey(namespace, name))

    def by_key(self, key: ObjectKey) -> T | None:
        return self._objects.get(key)

    def list(self, namespace: str = "") -> Sequence[T]:
        """Return all objects, or those of a namespace (by a full scan; use an index where that matters)."""
        if not namespace:
            return list(self._objects.values())
        # Large objects are validated in another thread, and changes may arrive meanwhile. [MGR-149]
        return [obj for key, obj in list(self._objects.items()) if key.namespace == namespace]

    def by_index(self, index: str, key: str) -> Sequence[T]:
        """Return the objects that an index lists under the key. Raises ``KeyError`` for an undeclared index."""
        return list(self._indexes[index].get(key, {}).values())

    # ---- subscribing

    def subscribe(self, handler: Handler[T]) -> Callable[[], None]:
        """Call ``handler`` for each object in the store and each later change. Returns a function that unsubscribes.

        Exceptions in a handler are logged with the object and do not affect other handlers or the store.
        """
        for obj in self.list():
            _call(handler, Change(None, obj))
        self._handlers = (*self._handlers, handler)

        def unsubscribe() -> None:
            self._handlers = tuple(one for one in self._handlers if one is not handler)

        return unsubscribe

    # ---- writing

    def put(self, obj: T) -> None:
        """Add or update an object; a version that is already stored is ignored.

        If an index function fails, its error is raised and the store is unchanged.
        """
        key = key_of(obj)
        old = self._objects.get(key)
        recreated = old is not None and old.metadata.uid != obj.metadata.uid
        version = obj.metadata.resource_version
        if old is not None and version and old.metadata.resource_version == version:
            return
        found = {name: tuple(function(obj)) for name, function in self._functions.items()}
        if old is not None and recreated:
            # The object was deleted and recreated with the same name between two events.
            self._remove(key, old)
            old = None
        self._objects[key] = obj
        for name, function in self._functions.items():
            self._reindex(self._indexes[name], key, function(old) if old is not None else (), found[name], obj)
        self._notify(Change(old, obj))

    def remove(self, key: ObjectKey, last: T | None = None) -> None:
        """Remove an object; ``last`` is its final state if known. Unknown keys are ignored."""
        old = self._objects.get(key)
        if old is not None:
            self._remove(key, old, last)

    def replace(self, objects: Iterable[T], keep: Collection[ObjectKey] = ()) -> None:
        """Replace the contents and mark the store as ready. Keys in ``keep`` stay, even if ``objects`` lacks them."""
        present = set(keep)
        for obj in objects:
            present.add(key_of(obj))
            self.put(obj)
        for key in [key for key in self._objects if key not in present]:
            self._remove(key, self._objects[key])
        self._ready.set()

    def _remove(self, key: ObjectKey, old: T, last: T | None = None) -> None:
        del self._objects[key]
        for name, function in self._functions.items():
            self._reindex(self._indexes[name], key, function(old), (), old)
        self._notify(Change(last if last is not None else old, None))

    @staticmethod
    def _reindex(
        index: dict[str, dict[ObjectKey, T]], key: ObjectKey, before: Iterable[str], after: Iterable[str], obj: T
    ) -> None:
        before, after = set(before), set(after)
        for value in before - after:
            bucket = index[value]
            del bucket[key]
            if not bucket:
                del index[value]
        for value in after:
            index.setdefault(value, {})[key] = obj

    def _notify(self, change: Change[T]) -> None:
        for handler in self._handlers:
            _call(handler, change)


def _call(handler: Handler[T], change: Change[T]) -> None:
    try:
        handler(change)
    except Exception:
        # The reflector must continue with the next object.
        logger.exception("failed to handle a change to %s", key_of(change.object))
