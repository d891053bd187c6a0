"""NodeImages as the cache shows them, or as we have just written them where that is newer.

A job that has just asked a node counts that node at once, though the watch may not have brought the write yet; so it
never asks more nodes than it may (IMG-90).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import orjson

from app.api.jsonvalue import json_copy
from app.kube.backoff import CONFLICT_ATTEMPTS, conflict_wait
from app.kube.client import Client
from app.kube.concurrently import KeyedLocks
from app.kube.errors import Conflict, NotFound
from app.kube.expectations import is_at_least
from app.kube.patches import merge_difference
from app.kube.store import Store
from app.operations.imagepull.objects import NODE_IMAGES, NodeImage, decode_node_image


class NodeImages:
    """Reading and changing them."""

    def __init__(self, client: Client, store: Store[NodeImage]) -> None:
        self._client = client
        self.store = store
        self._written: dict[str, NodeImage] = {}
        self._turns = KeyedLocks()

    def get(self, name: str) -> NodeImage | None:
        """The newest state that is known; None where there is none."""
        cached, written = self.store.get(name), self._written.get(name)
        if written is None:
            return cached
        if (
            cached is None
            or cached.metadata.uid != written.metadata.uid
            or is_at_least(cached.metadata.resource_version, written.metadata.resource_version)
        ):
            del self._written[name]
            return cached
        return written

    def all(self) -> Iterable[NodeImage]:
        """The newest states of all."""
        for one in self.store.list():
            found = self.get(one.metadata.name)
            if found is not None:
                yield found

    def of_live(self, live: Mapping[str, Any]) -> NodeImage:
        """A live object (JSON) as the controllers read it."""
        metadata = live["metadata"]
        known = self.get(metadata["name"])
        if known is not None and known.metadata.resource_version == metadata["resourceVersion"]:
            return known
        return decode_node_image(orjson.dumps(live))

    async def relabel(self, known: NodeImage, labels: Mapping[str, str]) -> bool:
        """Give it these labels and nothing else. False: it is not as it is known. Raises KubeError."""
        metadata = known.metadata
        same = {"uid": metadata.uid, "resourceVersion": metadata.resource_version}
        body = {"metadata": {**same, "labels": merge_difference(metadata.labels, labels)}}
        try:
            written = await self._client.patch(NODE_IMAGES, metadata.name, body, decode=decode_node_image)
        except (NotFound, Conflict):
            return False
        self._written[metadata.name] = written
        return True

    async def change(self, name: str, edit: Callable[[dict[str, Any]], None]) -> bool:
        """Apply ``edit`` to the live object; a write only where that differs. Whether there was one.

        ``edit`` gets a copy of its own each time. Raises KubeError; ``Conflict`` if others were faster each time.
        """
        async with self._turns.of(name):
            return await self._change(name, edit)

    async def _change(self, name: str, edit: Callable[[dict[str, Any]], None]) -> bool:
        for attempt in range(CONFLICT_ATTEMPTS):
            try:
                live = await self._client.get(NODE_IMAGES, name)
            except NotFound:
                return False
            metadata = live["metadata"]
            if metadata.get("deletionTimestamp"):
                return False
            wanted = json_copy(live)
            edit(wanted)
            patch = merge_difference(
                {"spec": live.get("spec") or {}, "metadata": {"labels": metadata.get("labels") or {}}},
                {"spec": wanted.get("spec") or {}, "metadata": {"labels": wanted["metadata"].get("labels") or {}}},
            )
            if not patch:
                return False
            known = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
            patch["metadata"] = {**patch.get("metadata", {}), **known}
            try:
                written = await self._client.patch(NODE_IMAGES, name, patch, decode=decode_node_image)
            except NotFound:
                return False
            except Conflict:
                if attempt == CONFLICT_ATTEMPTS - 1:
                    raise
                await self._client.clock.sleep(conflict_wait(attempt))
            else:
                self._written[name] = written
                return True
        return False
