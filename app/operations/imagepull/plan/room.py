"""How much of a NodeImage the jobs of one namespace may hold (IMG-111). Pure.

A NodeImage has 256 repositories and one object's bytes, and the jobs of all namespaces share it. By default a job waits
only when the NodeImage is full. A smaller share caps each namespace at that percentage of what the others leave, so
that one that has nothing yet finds room: with 75 %, three greedy ones leave it 25 repositories. What is held already
stays.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from app.api.imagepull import ImagePullJob
from app.api.imagepull.validation import MAX_NODE_IMAGES
from app.kube.images import FamiliarImage
from app.operations.imagepull.objects import ImageEntry, NodeImage

#: Of the 1.5 MiB that an API server takes as one object; the rest is for what is counted too low.
MAX_BYTES: Final = 1024 * 1024
#: The default share of a namespace, in percent.
WHOLE: Final = 100
#: About what one tag takes beside its own name, in the spec and in the status, if its pull fails with a long message.
_TAG_BYTES: Final = 1536
_OWNER_BYTES: Final = 160
_SECRET_BYTES: Final = 400


@dataclass(frozen=True, slots=True)
class Held:
    """What somebody holds of a NodeImage."""

    repositories: int = 0
    size: int = 0


_NOTHING: Final = Held()


@dataclass(frozen=True, slots=True)
class Usage:
    """Who holds what of a NodeImage. A repository that several namespaces want counts for each of them."""

    total: Held = _NOTHING
    by_namespace: Mapping[str, Held] | None = None

    def of(self, namespace: str) -> Held:
        """What the jobs of a namespace hold."""
        return (self.by_namespace or {}).get(namespace, _NOTHING)


def usage_of(node_image: NodeImage) -> Usage:
    """Who holds what; tags that nobody asked for are in the total alone."""
    repositories: defaultdict[str, int] = defaultdict(int)
    sizes: defaultdict[str, int] = defaultdict(int)
    total = 0
    for name, entry in node_image.spec.images.items():
        common = _common_bytes(name, entry)
        total += common
        wanted_by: dict[str, None] = {}
        for tag in entry.tags:
            size = _TAG_BYTES + len(tag.tag)
            total += size
            namespaces = dict.fromkeys(owner.namespace for owner in tag.owner_references)
            wanted_by |= namespaces
            for namespace in namespaces:
                sizes[namespace] += -(-size // len(namespaces))
            for owner in tag.owner_references:
                own = _OWNER_BYTES + len(owner.namespace) + len(owner.name)
                sizes[owner.namespace] += own
                total += own
        for namespace in wanted_by:
            repositories[namespace] += 1
            sizes[namespace] += -(-common // len(wanted_by))
    held = {namespace: Held(count, sizes[namespace]) for namespace, count in repositories.items()}
    return Usage(Held(len(node_image.spec.images), total), held)


def has_room(node_image: NodeImage, usage: Usage, job: ImagePullJob, image: FamiliarImage, share: int = WHOLE) -> bool:
    """Return whether the job may ask for its image there, or does so already.

    ``usage``: that of this NodeImage; ``share``: the percentage of what others leave that a namespace may hold.
    """
    namespace = job.metadata.namespace
    entry = node_image.spec.images.get(image.name)
    owners = [owner for tag in entry.tags for owner in tag.owner_references] if entry is not None else []
    if any(owner.uid == job.metadata.uid for owner in owners):
        return True
    held, total = usage.of(namespace), usage.total
    if not any(owner.namespace == namespace for owner in owners):
        wanted = held.repositories + 1
        others = total.repositories + (entry is None) - wanted
        if wanted > _share(MAX_NODE_IMAGES, others, share):
            return False
    others = max(0, total.size - held.size)
    return held.size + bytes_of(job, image) <= _share(MAX_BYTES, others, share)


def bytes_of(job: ImagePullJob, image: FamiliarImage) -> int:
    """About what the job's tag takes."""
    config = job.spec.sandbox_config
    return (
        _TAG_BYTES
        + _OWNER_BYTES
        + len(image.name)
        + len(image.tag)
        + len(job.metadata.namespace)
        + len(job.name)
        + (_json_bytes(config.to_dict()) if config is not None else 0)
        + _SECRET_BYTES * len(job.spec.pull_secrets or ())
    )


def _share(limit: int, others: int, percent: int) -> int:
    """Return the percentage of what others leave, rounded up."""
    return -(-percent * max(0, limit - others) // 100)


def _common_bytes(name: str, entry: ImageEntry) -> int:
    """What a repository takes beside its tags."""
    config = entry.sandbox_config
    return len(name) + _SECRET_BYTES * len(entry.pull_secrets) + (_json_bytes(config) if config else 0)


def _json_bytes(value: Mapping[str, Any]) -> int:
    return len(orjson.dumps(dict(value)))
