"""Adds tags to a NodeImage, removes them, and limits the space that each namespace may use in it. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import msgspec

from app.features.imagepull.defaults import BACKOFF_LIMIT, TIMEOUT_SECONDS
from app.features.imagepull.kind import IMAGE_PULL_JOB
from app.features.imagepull.objects import ImageEntry, ImageTag, NodeImage
from app.features.imagepull.types import BATCH, FAILED, NEVER, SUCCEEDED, ImagePullJob
from app.features.imagepull.validation import MAX_NODE_IMAGES
from app.kube.clock import parsed_rfc3339
from app.kube.images import FamiliarImage
from app.kube.jsonvalues import objects, stored_size

# Adding and removing tags. [IMG-53 … IMG-56, IMG-32, IMG-106] These functions edit the JSON of the live object in
# place, so that unknown fields are preserved.

Json = dict[str, Any]

_DAY: Final = 86_400
#: Jitter of tag TTLs in seconds, for jobs that never complete and for others. [IMG-54]
_NEVER_SPREAD: Final = 1_200
_ALWAYS_SPREAD: Final = 300
_SHORTEST_NEVER_DEADLINE: Final = 1_800
#: Maximum TTL of a tag.
_MAX_INT32: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Spread:
    """Extra TTL of a tag: ``base`` seconds (from a flag) for jobs that complete, and ``share``, a random number in
    [0, 1) that spreads the expiry over nodes."""

    base: int
    share: float


@dataclass(frozen=True, slots=True)
class Request:
    """A job's request to pull its image on a node."""

    image: FamiliarImage
    job: ImagePullJob
    #: Pull secret references, as stored in a NodeImage.
    secrets: Sequence[Mapping[str, str]] = ()

    @property
    def reference(self) -> Json:
        metadata, resource = self.job.metadata, IMAGE_PULL_JOB.resource()
        return {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "namespace": metadata.namespace,
            "name": metadata.name,
            "uid": metadata.uid,
        }

    def pull_policy(self, spread: Spread) -> Json:
        """Return the pull policy of the tag. [IMG-54]"""
        completion = self.job.spec.completion_policy
        timeout, limit = attempts_of(self.job)
        found: Json = {"timeoutSeconds": timeout, "backoffLimit": limit}
        if completion.type == NEVER:
            ttl = _DAY + int(spread.share * _NEVER_SPREAD) - _NEVER_SPREAD // 2
            found["activeDeadlineSeconds"] = max(_SHORTEST_NEVER_DEADLINE, timeout)
        else:
            deadline = completion.active_deadline_seconds
            base = completion.ttl_seconds_after_finished
            if base is None:
                base = deadline if deadline is not None else timeout * limit
            ttl = base + spread.base + int(spread.share * _ALWAYS_SPREAD)
            if deadline is not None:
                found["activeDeadlineSeconds"] = deadline
        return {**found, "ttlSecondsAfterFinished": max(0, min(ttl, _MAX_INT32))}


def attempts_of(job: ImagePullJob) -> tuple[int, int]:
    """Return the timeout of one attempt in seconds, and the number of retries."""
    policy = job.spec.pull_policy
    timeout = policy.timeout_seconds if policy is not None else None
    limit = policy.backoff_limit if policy is not None else None
    return TIMEOUT_SECONDS if timeout is None else timeout, BACKOFF_LIMIT if limit is None else limit


def says_otherwise(job: ImagePullJob, tag: ImageTag) -> bool:
    """Return whether the job's pull settings differ from those of a tag that the job requested. [IMG-116]

    If several jobs share a tag, the last one sets imagePullPolicy. pullPolicy comes from the first job and can change
    only while a single job is left.
    """
    owners, uid = tag.owner_references, job.metadata.uid
    if owners[-1].uid != uid:
        return False
    if (job.spec.image_pull_policy or "") != tag.image_pull_policy:
        return True
    policy = tag.pull_policy
    return (
        len(owners) == 1 and policy is not None and attempts_of(job) != (policy.timeout_seconds, policy.backoff_limit)
    )


def add_tag(node_image: Json, request: Request, spread: Spread, now: str) -> None:
    """Add the job's image to ``node_image``, or update its tag. Does nothing if it is up to date. [IMG-53]"""
    images = _images(node_image)
    name, wanted, job = request.image.name, request.image.tag, request.job
    entry = images.setdefault(name, {"tags": []})
    tags = entry["tags"] = list(objects(entry.get("tags")))
    known = next((tag for tag in tags if tag.get("tag") == wanted), None)
    missing = _add_secrets(entry, request.secrets)
    policy: Json = {"imagePullPolicy": job.spec.image_pull_policy} if job.spec.image_pull_policy else {}
    if known is not None and any(owner.get("uid") == job.metadata.uid for owner in _owners(known)):
        phase = _phase(node_image, name, wanted, known.get("version") or 0)
        otherwise = phase != SUCCEEDED and says_otherwise(job, msgspec.convert(known, ImageTag, strict=False))
        # The pull failed without these credentials: retry it. [IMG-101]
        if otherwise or (missing and phase == FAILED):
            known["version"] = (known.get("version") or 0) + 1
            known["createdAt"] = now
        if otherwise:
            known.pop("imagePullPolicy", None)
            known |= policy
            if len(_owners(known)) == 1:
                known["pullPolicy"] = request.pull_policy(spread)
        return
    if job.spec.sandbox_config is not None:
        entry["sandboxConfig"] = job.spec.sandbox_config.to_dict()
    else:
        entry.pop("sandboxConfig", None)
    if known is not None:
        known.pop("imagePullPolicy", None)
        if any(owner.get("namespace") != job.metadata.namespace for owner in _owners(known)):
            known["pullPolicy"] = _most_patient(known.get("pullPolicy") or {}, request.pull_policy(spread))
        known |= {
            "version": (known.get("version") or 0) + 1,
            "createdAt": now,
            "ownerReferences": [*_owners(known), request.reference],
            **policy,
        }
        return
    # The version must exceed that of any leftover status. Version 0 is not written. [IMG-93]
    status = status_of(node_image, name, wanted)
    version = (status.get("version") or 0) + 1 if status is not None else 0
    tags.append(
        {
            "tag": wanted,
            "createdAt": now,
            "pullPolicy": request.pull_policy(spread),
            "ownerReferences": [request.reference],
            **({"version": version} if version else {}),
            **policy,
        }
    )
    tags.sort(key=by_tag)


def _most_patient(one: Json, other: Json) -> Json:
    """Merge two pull policies, keeping the longer times: a job must not cut short a pull for another namespace."""
    found = {key: max(one.get(key) or 0, other.get(key) or 0) for key in {**one, **other}}
    if "activeDeadlineSeconds" not in one or "activeDeadlineSeconds" not in other:
        found.pop("activeDeadlineSeconds", None)
    return found


def drop_job(node_image: Json, uid: str, keep: FamiliarImage | None) -> None:
    """Remove the job from all tags except ``keep``, and drop tags that no other job uses. [IMG-106]"""
    _filter_tags(
        node_image,
        lambda image, tag: (
            (keep is not None and (image, tag.get("tag")) == (keep.name, keep.tag))
            or _drop_owners(tag, lambda owner: owner.get("uid") != uid)
        ),
    )


@dataclass(frozen=True, slots=True)
class CleanUp:
    """Facts from the cluster for cleaning up a NodeImage."""

    labels: Mapping[str, str]
    #: UIDs of deleted jobs.
    gone_jobs: frozenset[str]
    #: Namespace and name of deleted Secrets.
    gone_secrets: frozenset[tuple[str, str]]


def clean(node_image: Json, facts: CleanUp, now: datetime) -> float | None:
    """Remove expired tags and references to deleted objects from ``node_image``. Return the seconds until the next
    tag expires. [IMG-32]"""
    waits: list[float] = []
    node_image.setdefault("metadata", {})["labels"] = dict(facts.labels)
    statuses = {
        image: {one.get("tag"): one for one in reversed(entry.get("tags") or [])}
        for image, entry in ((node_image.get("status") or {}).get("imageStatuses") or {}).items()
    }

    def stays(image: str, tag: Json) -> bool:
        if not tag.get("createdAt"):
            return False
        if not _drop_owners(tag, lambda owner: not (is_our_job(owner) and owner.get("uid") in facts.gone_jobs)):
            return False
        left = _seconds_left(tag, statuses.get(image, {}).get(tag.get("tag")), now)
        if left is not None:
            if left <= 0:
                return False
            waits.append(left)
        return True

    _filter_tags(node_image, stays)
    for entry in _images_there(node_image).values():
        secrets = entry.get("pullSecrets")
        if secrets:
            left = [one for one in secrets if one.get("mode") == BATCH or _key_of(one) not in facts.gone_secrets]
            if len(left) < len(secrets):
                entry["pullSecrets"] = left
                if not left:
                    del entry["pullSecrets"]
        entry["tags"].sort(key=by_tag)
    return min(waits) if waits else None


def is_our_job(owner: Mapping[str, Any]) -> bool:
    """Return whether the owner is an ImagePullJob of any version."""
    group = str(owner.get("apiVersion") or "").partition("/")[0]
    return (group, owner.get("kind")) == (IMAGE_PULL_JOB.group, IMAGE_PULL_JOB.kind)


def _key_of(secret: Mapping[str, Any]) -> tuple[str, str]:
    return secret.get("namespace") or "", secret.get("name") or ""


def _seconds_left(tag: Json, status: Json | None, now: datetime) -> float | None:
    """Return the seconds until a finished tag expires, or None if it is unfinished or never expires."""
    ttl = (tag.get("pullPolicy") or {}).get("ttlSecondsAfterFinished")
    if ttl is None or status is None or (status.get("version") or 0) != (tag.get("version") or 0):
        return None
    ended = parsed_rfc3339(status.get("completionTime"))
    return ttl - (now - ended).total_seconds() if ended is not None else None


def _images_there(node_image: Json) -> Json:
    """Return the images, to be edited in place. A missing field is not added, because that would change the spec."""
    images = (node_image.get("spec") or {}).get("images")
    return images if isinstance(images, dict) else {}


def _images(node_image: Json) -> Json:
    spec = node_image.get("spec")
    if not isinstance(spec, dict):
        spec = node_image["spec"] = {}
    images = spec.get("images")
    if not isinstance(images, dict):
        images = spec["images"] = {}
    return images


def _filter_tags(node_image: Json, stays: Callable[[str, Json], bool]) -> None:
    images = _images_there(node_image)
    for name in list(images):
        entry = images[name]
        entry["tags"] = [tag for tag in entry.get("tags") or () if stays(name, tag)]
        if not entry["tags"]:
            del images[name]
            if not images:
                del node_image["spec"]["images"]


def _drop_owners(tag: Json, stays: Callable[[Json], bool]) -> bool:
    """Drop the owners for which ``stays`` is false. Return whether to keep the tag: it has an owner left, or never had
    one."""
    owners = _owners(tag)
    left = [owner for owner in owners if stays(owner)]
    if len(left) < len(owners):
        tag["ownerReferences"] = left
    return bool(left) or not owners


def _owners(tag: Mapping[str, Any]) -> list[Json]:
    return list(objects(tag.get("ownerReferences")))


def _add_secrets(entry: Json, secrets: Sequence[Mapping[str, str]]) -> bool:
    present = list(entry.get("pullSecrets") or ())
    known = {(one.get("namespace"), one.get("name")) for one in present}
    missing = [dict(one) for one in secrets if (one["namespace"], one["name"]) not in known]
    if missing:
        entry["pullSecrets"] = [*present, *missing]
    return bool(missing)


def status_of(node_image: Mapping[str, Any], image: str, tag: str) -> Json | None:
    """Return the status of a tag in a NodeImage (JSON)."""
    statuses = (node_image.get("status") or {}).get("imageStatuses") or {}
    tags = (statuses.get(image) or {}).get("tags") or ()
    return next((status for status in tags if status.get("tag") == tag), None)


def _phase(node_image: Json, image: str, tag: str, version: int) -> str:
    status = status_of(node_image, image, tag)
    return str(status.get("phase")) if status is not None and (status.get("version") or 0) == version else ""


def by_tag(tag: Mapping[str, Any]) -> bytes:
    """Return the sort key of a tag (JSON): its bytes in UTF-8, as Go compares them."""
    return str(tag.get("tag")).encode("utf-8", "surrogatepass")


# Room for the jobs of one namespace in a NodeImage. All namespaces share the NodeImage, which holds at most 256
# repositories and must not exceed the size limit of an object. By default, a job waits only if the NodeImage is full.
# With a share below 100%, each namespace may use that percentage of the space that the others leave, so that a new
# namespace finds room: at 75%, three greedy namespaces leave 25 repositories. Existing tags are kept. [IMG-111]

#: Maximum estimated size of a NodeImage. An API server accepts 1.5 MiB; the rest is a margin for low estimates.
MAX_BYTES: Final = 1024 * 1024
#: Default share of a namespace in percent.
WHOLE: Final = 100
#: Estimated bytes of one tag in spec and status, without its name, if its pull fails with a long message.
_TAG_BYTES: Final = 1536
_OWNER_BYTES: Final = 160
_SECRET_BYTES: Final = 400


@dataclass(frozen=True, slots=True)
class Held:
    """Repositories and bytes used in a NodeImage."""

    repositories: int = 0
    size: int = 0


_NOTHING: Final = Held()


@dataclass(frozen=True, slots=True)
class Usage:
    """Usage of a NodeImage in total and by namespace. A repository counts for each namespace that uses it."""

    total: Held = _NOTHING
    by_namespace: Mapping[str, Held] | None = None

    def of(self, namespace: str) -> Held:
        return (self.by_namespace or {}).get(namespace, _NOTHING)


def usage_of(node_image: NodeImage) -> Usage:
    """Return the usage. Tags without a job count only toward the total."""
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
    """Return whether the job may add its image, or has already done so.

    ``usage`` belongs to this NodeImage; ``share`` is the percentage of the space left by others that a namespace may
    use.
    """
    namespace = job.metadata.namespace
    entry = node_image.spec.images.get(image.name)
    if entry is not None and any(entry.is_wanted(tag, job.metadata.uid) for tag in entry.tags):
        return True
    held, total = usage.of(namespace), usage.total
    if entry is None or not entry.is_used_by(namespace):
        wanted = held.repositories + 1
        others = total.repositories + (entry is None) - wanted
        if wanted > _share(MAX_NODE_IMAGES, others, share):
            return False
    others = max(0, total.size - held.size)
    return held.size + bytes_of(job, image) <= _share(MAX_BYTES, others, share)


def bytes_of(job: ImagePullJob, image: FamiliarImage) -> int:
    """Return the estimated size of the job's tag in bytes."""
    config = job.spec.sandbox_config
    return (
        _TAG_BYTES
        + _OWNER_BYTES
        + len(image.name)
        + len(image.tag)
        + len(job.metadata.namespace)
        + len(job.name)
        + (stored_size(config.to_dict()) if config is not None else 0)
        + _SECRET_BYTES * len(job.spec.pull_secrets or ())
    )


def _share(limit: int, others: int, percent: int) -> int:
    """Return this percentage of the space left by others, rounded up."""
    return -(-percent * max(0, limit - others) // 100)


def _common_bytes(name: str, entry: ImageEntry) -> int:
    """Return the estimated bytes of a repository without its tags."""
    config = entry.sandbox
    return len(name) + _SECRET_BYTES * len(entry.pull_secrets) + (config.size if config is not None else 0)
