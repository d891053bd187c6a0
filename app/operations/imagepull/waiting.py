"""Jobs for which some node has no room, and when they are tried again (IMG-111).

What leaves a NodeImage wakes the first of each namespace that wait; the others would find the room taken. As that may
be another node than they wait for, each is tried again after some time as well, the later the more of them there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from random import Random
from typing import Final

from app.api.imagepull import ImagePullJob
from app.kube.images import FamiliarImage
from app.kube.resources import ObjectKey
from app.operations.imagepull.objects import NodeImage
from app.operations.imagepull.plan.room import WHOLE, Usage, has_room, usage_of

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
