"""NodeImages with our own latest writes, their indexes, and the jobs that wait for room in one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from random import Random
from typing import Any, Final

import orjson

from app.features.imagepull.objects import NODE_IMAGES, NodeImage, decode_node_image
from app.features.imagepull.plan.jobs import is_active
from app.features.imagepull.plan.tags import WHOLE, Usage, has_room, usage_of
from app.features.imagepull.types import ImagePullJob
from app.kube.client import Client
from app.kube.clock import CONFLICT_ATTEMPTS, conflict_wait
from app.kube.concurrency import KeyedLocks
from app.kube.errors import Conflict, NotFound
from app.kube.expectations import is_at_least
from app.kube.images import FamiliarImage, familiar_image
from app.kube.jsonvalues import json_copy
from app.kube.patches import merge_difference
from app.kube.resources import ObjectKey
from app.kube.store import Store

# NodeImages as the cache shows them, or as we have just written them where that is newer.
#
# A job that has just asked a node counts that node at once, though the watch may not have brought the write yet; so it
# never asks more nodes than it may (IMG-90).


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


BY_IMAGE: Final = "image"

BY_POD_SELECTOR: Final = "namespace of podSelector"


def image_of(job: ImagePullJob) -> FamiliarImage | None:
    """The job's image; None where admission was off and it cannot be read."""
    return familiar_image(job.spec.image)


def by_image(job: ImagePullJob) -> list[str]:
    """Index of active jobs: the repository."""
    image = image_of(job) if is_active(job) else None
    return [image.name] if image is not None else []


def by_pod_selector(job: ImagePullJob) -> list[str]:
    """Index of active jobs that choose nodes by Pods: their namespace."""
    return [job.metadata.namespace] if is_active(job) and job.spec.pod_selector is not None else []


# Jobs for which some node has no room, and when they are tried again (IMG-111).
#
# What leaves a NodeImage wakes the first of each namespace that wait; the others would find the room taken. As that
# may be another node than they wait for, each is tried again after some time as well, the later the more of them there
# are.

#: Of each namespace so many are tried when something leaves a NodeImage.
WOKEN_AT_ONCE: Final = 8
#: Of so many that wait the longest.
_LOOKED_AT: Final = 256
RETRY_SECONDS: Final = 60.0
_RETRIES_PER_SECOND: Final = 10


class WaitingJobs:
    """Who waits for room, by namespace, in the order in which they began to."""

    def __init__(self, rng: Random, share: int = WHOLE) -> None:
        """``share``: the percentage of what others leave of a NodeImage that one namespace may hold."""
        self._rng = rng
        self._share = share
        self._keys: dict[str, dict[ObjectKey, None]] = {}
        #: By node: of which version of its NodeImage, and who holds what of it.
        self._usages: dict[str, tuple[str, Usage]] = {}

    def has_room(self, node_image: NodeImage, job: ImagePullJob, image: FamiliarImage) -> bool:
        """Whether the job may ask for its image there."""
        return has_room(node_image, self._usage(node_image), job, image, self._share)

    def forget_node(self, name: str) -> None:
        """The node is gone."""
        self._usages.pop(name, None)

    def add(self, key: ObjectKey) -> bool:
        """The job waits; whether it did not before."""
        keys = self._keys.setdefault(key.namespace, {})
        if key in keys:
            return False
        keys[key] = None
        return True

    def remove(self, key: ObjectKey) -> None:
        """The job waits no longer."""
        keys = self._keys.get(key.namespace)
        if keys is not None:
            keys.pop(key, None)
            if not keys:
                del self._keys[key.namespace]

    def retry_seconds(self) -> float:
        """When a job that waits is tried again in any case."""
        count = sum(map(len, self._keys.values()))
        return max(RETRY_SECONDS, count / _RETRIES_PER_SECOND) * (1 + self._rng.random() / 2)

    def woken(self, old: NodeImage, new: NodeImage, may: Callable[[ObjectKey], bool]) -> Iterator[ObjectKey]:
        """Those who are to be tried again after this change. ``may``: whether the node concerns a job."""
        if not self._keys:
            return
        before, after = self._usage(old).total, self._usage(new).total
        if after.repositories < before.repositories or after.size < before.size:
            for keys in self._keys.values():
                yield from islice(filter(may, islice(keys, _LOOKED_AT)), WOKEN_AT_ONCE)

    def _usage(self, node_image: NodeImage) -> Usage:
        metadata = node_image.metadata
        known = self._usages.get(metadata.name)
        if known is not None and known[0] == metadata.resource_version:
            return known[1]
        found = usage_of(node_image)
        self._usages[metadata.name] = (metadata.resource_version, found)
        return found
