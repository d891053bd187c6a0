"""Live objects, which webhooks read on demand instead of from a cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

from app.api import names
from app.framework.watched import CONFIGURATION, CacheKey, Stores, Watched
from app.kube.admission import Review
from app.kube.client import Client, get_or_none, if_readable
from app.kube.objects import Object

T = TypeVar("T", bound=Object)

#: If the objects of a kind in a namespace have at least this total size, comparing a new object with them counts as
#: slow (20 ms with 200 budgets).
LARGE_BYTES: Final = 64 * 1024
#: Maximum number of remembered pairs of a kind and a namespace with large objects.
MAX_LARGE: Final = 1000


class LiveObjects:
    """Objects that a webhook reads on demand: from the API server, or from files in standalone mode.

    Writes are rare, and a live read is more likely than a cache to include a concurrent write.
    """

    def __init__(self, client: Client | None, stores: Stores) -> None:
        """Without a client, ``stores`` contain the objects from the files."""
        self._client = client
        self._stores = stores
        #: Kinds and namespaces whose objects were large when last listed.
        self._large: set[tuple[CacheKey, str]] = set()

    async def get(self, watched: Watched[T], name: str, namespace: str = "") -> T | None:
        """Return the object, or None if it does not exist. Raises KubeError."""
        if self._client is None:
            return self._stores(watched).get(name, namespace)
        return await get_or_none(self._client, watched.resource, name, namespace, decode=watched.decode)

    async def configured(self, key: str, own_namespace: str) -> str | None:
        """Return the text under a key of the operator's ConfigMap, or None. Raises KubeError."""
        found = await self.get(CONFIGURATION, names.CONFIGURATION_CONFIG_MAP, own_namespace)
        return (found.data or {}).get(key) if found is not None else None

    async def list(self, watched: Watched[T], namespace: str) -> Sequence[T]:
        """Return the objects of the namespace. Unreadable ones are skipped. Raises KubeError."""
        if self._client is None:
            return [one for one in self._stores(watched).list() if (one.metadata.namespace or "") == namespace]
        size, decode = 0, if_readable(watched.decode)

        def read(body: bytes) -> T | None:
            nonlocal size
            size += len(body)
            return decode(body)

        found = await self._client.list(watched.resource, namespace, decode=read)
        self._large.discard((watched.key, namespace))
        if size >= LARGE_BYTES and len(self._large) < MAX_LARGE:
            self._large.add((watched.key, namespace))
        return [one for one in found.items if one is not None]

    def are_large(self, review: Review) -> bool:
        """Return whether the namespace of a review had large objects when they were last listed."""
        known = tuple(self._large)  # a copy, because large reviews are decided in another thread
        return any(namespace == review.namespace for _, namespace in known)
