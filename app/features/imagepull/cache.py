"""NodeImages from the cache and the controller's own writes, indexes of jobs, and the jobs waiting for room in a
NodeImage."""

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
from app.kube.client import Client, retry_conflicts
from app.kube.concurrency import KeyedLocks
from app.kube.errors import Conflict, NotFound
from app.kube.expectations import is_at_least
from app.kube.images import FamiliarImage, familiar_image
from app.kube.jsonvalues import json_copy
from app.kube.patches import merge_difference
from app.kube.resources import ObjectKey
from app.kube.store import Store

# NodeImages from the cache, or as last written if that is newer. A job counts a node as soon as the node's
# NodeImage is written, even before the watch delivers the change, so the job never exceeds its parallelism. [IMG-90]


class NodeImages:
    """Reads and changes NodeImages."""

    def __init__(self, client: Client, store: Store[NodeImage]) -> None:
        self._client = client
        self.store = store
        self._written: dict[str, NodeImage] = {}
        self._turns = KeyedLocks()

    def get(self, name: str) -> NodeImage | None:
        cached, written = self.store.get(name), self._written.get(name)
        if written is None:
            return cached
        if cached is None or is_at_least(cached.metadata.resource_version, written.metadata.resource_version):
            del self._written[name]
            return cached
        return written

    def all(self) -> Iterable[NodeImage]:
        for one in self.store.list():
            found = self.get(one.metadata.name)
            if found is not None:
                yield found

    def of_live(self, live: Mapping[str, Any]) -> NodeImage:
        """Return the NodeImage of a live object (JSON), without decoding a version that is already known."""
        metadata = live["metadata"]
        known = self.get(metadata["name"])
        if known is not None and known.metadata.resource_version == metadata["resourceVersion"]:
            return known
        return decode_node_image(orjson.dumps(live))

    async def relabel(self, known: NodeImage, labels: Mapping[str, str]) -> bool:
        """Replace the labels. Return False if the object has changed since ``known``. Raises KubeError."""
        metadata = known.metadata
        same = {"uid": metadata.uid, "resourceVersion": metadata.resource_version}
        body = {"metadata": {**same, "labels": merge_difference(metadata.labels, labels)}}
        try:
            written = await self._client.patch(NODE_IMAGES, metadata.name, body, decode=decode_node_image)
        except (NotFound, Conflict):
            return False
        self._written[metadata.name] = written
        return True

    async def change(self, name: str, edit: Callable[[dict[str, Any]], object]) -> bool:
        """Apply ``edit`` to the live object and write it if that changes something. Return whether it was written.

        ``edit`` gets a fresh copy on each attempt. Raises KubeError, and ``Conflict`` if every attempt conflicts.
        """
        async with self._turns.of(name):
            try:
                return await retry_conflicts(self._client, lambda _: self._change(name, edit))
            except NotFound:
                return False

    async def _change(self, name: str, edit: Callable[[dict[str, Any]], object]) -> bool:
        live = await self._client.get(NODE_IMAGES, name)
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
        self._written[name] = await self._client.patch(NODE_IMAGES, name, patch, decode=decode_node_image)
        return True


BY_IMAGE: Final = "image"

BY_POD_SELECTOR: Final = "namespace of podSelector"


def image_of(job: ImagePullJob) -> FamiliarImage | None:
    """Return the job's image, or None if it is invalid (stored while admission was off)."""
    return familiar_image(job.spec.image)


def by_image(job: ImagePullJob) -> list[str]:
    """Index active jobs by repository, and by repository and tag."""
    image = image_of(job) if is_active(job) else None
    return [image.name, tag_key(image.name, image.tag)] if image is not None else []


def tag_key(repository: str, tag: str) -> str:
    """Return the key of a tag in the index :data:`BY_IMAGE`. It is unique: no repository contains a space."""
    return f"{repository} {tag}"


def by_pod_selector(job: ImagePullJob) -> list[str]:
    """Index active jobs with a podSelector by namespace."""
    return [job.metadata.namespace] if is_active(job) and job.spec.pod_selector is not None else []


# Jobs that wait for room in a NodeImage, and when they are retried. When an image is removed from a NodeImage, only the
# first waiting jobs of each namespace are requeued, because the others would find it full again. The first ones may be
# waiting for a different node, so every job is also retried periodically; the interval grows with the number of waiting
# jobs. [IMG-111]

#: Maximum number of jobs per namespace that are requeued when an image is removed from a NodeImage.
WOKEN_AT_ONCE: Final = 8
#: Number of longest-waiting jobs per namespace that are considered for requeueing.
_LOOKED_AT: Final = 256
RETRY_SECONDS: Final = 60.0
_RETRIES_PER_SECOND: Final = 10


class WaitingJobs:
    """Jobs waiting for room in a NodeImage, by namespace, oldest first."""

    def __init__(self, rng: Random, share: int = WHOLE) -> None:
        """``share``: percentage that one namespace may use of the space that other namespaces leave free."""
        self._rng = rng
        self._share = share
        self._keys: dict[str, dict[ObjectKey, None]] = {}
        #: By node: resource version of its NodeImage, and the usage computed from it.
        self._usages: dict[str, tuple[str, Usage]] = {}

    def has_room(self, node_image: NodeImage, job: ImagePullJob, image: FamiliarImage) -> bool:
        return has_room(node_image, self._usage(node_image), job, image, self._share)

    def forget_node(self, name: str) -> None:
        self._usages.pop(name, None)

    def add(self, key: ObjectKey) -> bool:
        keys = self._keys.setdefault(key.namespace, {})
        if key in keys:
            return False
        keys[key] = None
        return True

    def remove(self, key: ObjectKey) -> None:
        keys = self._keys.get(key.namespace)
        if keys is not None:
            keys.pop(key, None)
            if not keys:
                del self._keys[key.namespace]

    def retry_seconds(self) -> float:
        """Return the seconds until a waiting job is retried, with jitter."""
        count = sum(map(len, self._keys.values()))
        return max(RETRY_SECONDS, count / _RETRIES_PER_SECOND) * (1 + self._rng.random() / 2)

    def woken(self, old: NodeImage, new: NodeImage, may: Callable[[ObjectKey], bool]) -> Iterator[ObjectKey]:
        """Yield the jobs to retry after this change. ``may`` returns whether the node matches a job."""
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
