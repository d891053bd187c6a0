"""Copy pull secrets to the only namespace whose Secrets node agents may read. [IMG-60 … IMG-65]

A copy's annotations name its source and its jobs; the copy is deleted with the last of these jobs. Its name is derived
from the source, so concurrent or restarted controllers create only one copy.

Only the copies are watched. A source is read by name from time to time, so the manager needs access to Secrets only in
namespaces whose jobs name pull secrets. [IMG-113]
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final

from app.api import names
from app.features.imagepull.types import BATCH
from app.framework.watched import Scope, Watched
from app.kube.admission import PolicyRule
from app.kube.client import Client
from app.kube.errors import AlreadyExists, Forbidden, KubeError, NotFound
from app.kube.expectations import is_at_least
from app.kube.objects import PULL_SECRET_KEYS, Metadata, ObjectMeta, Struct, decode_metadata, decoder
from app.kube.patches import merge_difference
from app.kube.resources import SECRETS, ObjectKey
from app.kube.store import Store

logger = logging.getLogger(__name__)

BY_SOURCE: Final = "source"
BY_JOB: Final = "job"
_MAX_NAME: Final = 253
_CONTENT: Final = ("data", "type")
_IS_KEY: Final = re.compile(r"([a-z0-9-]{1,63})/([a-z0-9.-]{1,253})").fullmatch
_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"


class NoCopyError(KubeError):
    """The copy cannot be created, or another object has its name."""


class PullSecret(Struct, frozen=True):
    """A Secret without its data."""

    metadata: ObjectMeta = ObjectMeta()
    type: str = ""


def source_of(secret: PullSecret) -> list[str]:
    """Index copies by their source."""
    source = secret.metadata.annotations.get(names.COPIED_FROM)
    return [source] if source else []


def jobs_of(secret: PullSecret) -> list[str]:
    """Return the jobs that use the copy."""
    return references(secret.metadata.annotations.get(names.COPIED_FOR))


def is_copy(secret: PullSecret) -> bool:
    """Return whether the Secret is a copy and is not being deleted."""
    return secret.metadata.deletion_timestamp is None and bool(source_of(secret))


def references(text: str | None) -> list[str]:
    """Parse the jobs in a copy's annotation."""
    return sorted({part.strip() for part in (text or "").split(",") if part.strip()})


def job_keys(secret: PullSecret) -> list[ObjectKey]:
    """Return the keys of the jobs that use the copy, skipping invalid ones."""
    return [ObjectKey(*found.groups()) for text in jobs_of(secret) if (found := _IS_KEY(text))]


def copy_name(source: ObjectKey) -> str:
    """Return the name of the copy. [IMG-64]"""
    digest = hashlib.sha256(str(source).encode()).hexdigest()[:6]
    return f"{source.name[: _MAX_NAME - 7].rstrip('.-')}-{digest}"


def as_copy(source: Mapping[str, Any], namespace: str, name: str, jobs: Iterable[str]) -> dict[str, Any]:
    """Return the copy of a Secret (JSON). [IMG-61, IMG-64]"""
    metadata = source["metadata"]
    own = {key: value for key, value in (metadata.get("annotations") or {}).items() if key != _APPLIED}
    return {
        **{key: source[key] for key in _CONTENT if key in source},
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": dict(metadata.get("labels") or {}),
            "annotations": {
                **own,
                names.COPIED_FROM: f"{metadata['namespace']}/{metadata['name']}",
                names.COPIED_FOR: ",".join(sorted(set(jobs))),
                names.COPY_MODE: BATCH,
            },
        },
    }


decode_pull_secret: Final = decoder(PullSecret)
WATCHED_COPIES: Final[Watched[PullSecret]] = Watched(
    "copies of pull secrets",
    SECRETS,
    decode_pull_secret,
    Scope.AGENTS,
    indexes={BY_SOURCE: source_of, BY_JOB: jobs_of},
)
#: Additional permission needed for jobs that name pull secrets.
READING: Final = PolicyRule(("get",), ("",), ("secrets",), optional="pull-secrets")
#: Fraction of a job's age after which a source is read again, and the bounds of this interval. [IMG-64]
RECHECK_SHARE: Final = 0.1
RECHECK_SECONDS: Final = (10.0, 300.0)
#: How long jobs share the result of reading a source.
_SHARED: Final = timedelta(seconds=2)
#: Interval at which the event about missing Secrets is repeated; shorter than the TTL of events.
_TELL_AGAIN: Final = timedelta(minutes=50)


def recheck_seconds(age: float) -> float:
    """Return the seconds between two reads of a source, for a job of that age."""
    shortest, longest = RECHECK_SECONDS
    return min(max(age * RECHECK_SHARE, shortest), longest)


@dataclass(frozen=True, slots=True)
class Claimed:
    """Result of claiming a job's pull secrets."""

    #: References for NodeImages.
    references: list[dict[str, str]]
    #: Secrets that do not exist or hold no registry credentials.
    missing: list[str]
    #: Secrets that the manager may not read.
    forbidden: list[str]
    #: Seconds until a source must be read again.
    wait: float | None
    #: Whether to record events about missing or forbidden Secrets.
    is_news: bool = False


@dataclass(frozen=True, slots=True)
class _Verified:
    """Result of reading a source for a job."""

    #: Time until which the result is valid.
    until: datetime
    #: Version of the source; name and version of the copy. Empty if the source is missing or forbidden.
    source: str = ""
    copy: str = ""
    version: str = ""
    forbidden: bool = False


@dataclass(slots=True)
class _Known:
    """State remembered for a job."""

    verified: dict[ObjectKey, _Verified] = field(default_factory=dict)
    #: Missing and forbidden Secrets of the last event, and when to repeat it.
    told: tuple[list[str], list[str]] = ([], [])
    told_until: datetime | None = None

    def is_news(self, missing: list[str], forbidden: list[str], now: datetime) -> bool:
        """Return whether an event must be recorded, and remember it as recorded."""
        if self.told == (missing, forbidden) and (self.told_until is None or now < self.told_until):
            return False
        self.told, self.told_until = (missing, forbidden), now + _TELL_AGAIN
        return True


def told(namespace: str, claimed: Claimed) -> Iterator[tuple[str, str]]:
    """Yield the reason and message of each event for a job in the namespace."""
    if claimed.missing:
        shown = ", ".join(claimed.missing)
        yield "PullSecretNotFound", f"registry Secret not found; pulling without it: {shown}"
    if claimed.forbidden:
        shown = ", ".join(claimed.forbidden)
        yield (
            "PullSecretForbidden",
            f"the manager may not read Secrets in namespace {namespace}; pulling without {shown}. To allow it, add"
            f" {namespace} to imagePullJob.secretNamespaces in the chart values, or bind ClusterRole"
            " kruise-manager-pull-secrets-role there to the manager's ServiceAccount",
        )


class PullSecrets:
    """Claims and releases copies for jobs. ``copies`` is the store of Secrets in the copies' namespace."""

    def __init__(self, client: Client, copies: Store[PullSecret], namespace: str) -> None:
        self._client = client
        self._copies = copies
        self._namespace = namespace
        self._known: dict[str, _Known] = {}
        #: Time and result of the last read of each source; only entries younger than ``_SHARED``.
        self._read: dict[ObjectKey, tuple[datetime, _Verified]] = {}

    async def claim(self, job: ObjectKey, wanted: Sequence[str], age: float) -> Claimed:
        """Create or update the copies for a job; ``age`` is in seconds. Raises KubeError."""
        if not wanted:
            return Claimed([], [], [], None)
        if job.namespace == self._namespace:
            # Node agents may read the Secrets in this namespace, so no copy is needed. [IMG-60]
            return Claimed([{"namespace": job.namespace, "name": name} for name in wanted], [], [], None)
        now = self._client.clock.now()
        recheck = timedelta(seconds=recheck_seconds(age))
        known = self._known.setdefault(str(job), _Known())
        for source in known.verified.keys() - {ObjectKey(job.namespace, name) for name in wanted}:
            del known.verified[source]
        found = {
            name: await self._claim_one(job, ObjectKey(job.namespace, name), known.verified, now, recheck)
            for name in dict.fromkeys(wanted)
        }
        copies = [one.copy for one in found.values() if one.copy]
        await self._release(job, set(copies))
        missing = [name for name, one in found.items() if not one.copy and not one.forbidden]
        forbidden = [name for name, one in found.items() if one.forbidden]
        return Claimed(
            [{"namespace": self._namespace, "name": name, "mode": BATCH} for name in copies],
            missing,
            forbidden,
            max(1.0, (min(one.until for one in found.values()) - now).total_seconds()),
            known.is_news(missing, forbidden, now),
        )

    def forget(self, job: ObjectKey) -> None:
        self._known.pop(str(job), None)

    def has_copies(self, job: ObjectKey) -> bool:
        return any(map(is_copy, self._copies.by_index(BY_JOB, str(job))))

    async def release(self, job: ObjectKey, wanted: Sequence[str]) -> None:
        """Release the copies of a job that no longer needs them. ``wanted`` holds the names of the copied Secrets.
        Raises KubeError. [IMG-65]"""
        self.forget(job)
        if job.namespace != self._namespace:
            # The cache may lack recently created copies.
            await self._release(job, set(), {copy_name(ObjectKey(job.namespace, name)) for name in wanted})

    async def _claim_one(
        self,
        job: ObjectKey,
        source: ObjectKey,
        verified: dict[ObjectKey, _Verified],
        now: datetime,
        recheck: timedelta,
    ) -> _Verified:
        copy, before = self._known_copy(job, source), verified.get(source)
        if before is not None and copy is not None and _taken_from(copy, job, before):
            before = None
        elif before is not None and now < before.until:
            return before
        if before is not None and (read := self._read.get(source)) is not None and now < read[0] + _SHARED:
            same = not read[1].source and not before.source
            if same or _agree(read[1].source, copy, before):
                found = verified[source] = replace(before, until=read[0] + recheck, forbidden=read[1].forbidden)
                return found
        found = verified[source] = await self._verify(job, source, copy, before, now + recheck)
        self._remember(source, found, now)
        return found

    def _remember(self, source: ObjectKey, found: _Verified, now: datetime) -> None:
        self._read.pop(source, None)
        self._read[source] = (now, found)
        while self._read[first := next(iter(self._read))][0] + _SHARED <= now:
            del self._read[first]

    async def _verify(
        self, job: ObjectKey, source: ObjectKey, copy: PullSecret | None, before: _Verified | None, until: datetime
    ) -> _Verified:
        try:
            live = await self._client.get(SECRETS, source.name, source.namespace)
        except NotFound:
            return _Verified(until)
        except Forbidden:
            return _Verified(until, forbidden=True)
        if live.get("type") not in PULL_SECRET_KEYS:
            return _Verified(until)
        version = str(live["metadata"]["resourceVersion"])
        if copy is not None:
            name = copy.metadata.name
            if before is not None and _agree(version, copy, before):
                return replace(before, until=until)
            try:
                return _Verified(until, version, name, await self._update(live, name, str(job)))
            except NotFound:
                logger.debug("pull secret %s was deleted concurrently", name)
        name = copy_name(source)
        return _Verified(until, version, name, await self._create(live, name, str(job)))

    def _known_copy(self, job: ObjectKey, source: ObjectKey) -> PullSecret | None:
        """Return the copy of the source, preferring one that the job already uses. [IMG-62]"""
        copies = sorted(
            (one for one in self._copies.by_index(BY_SOURCE, str(source)) if is_copy(one)),
            key=lambda one: one.metadata.name,
        )
        mine = [one for one in copies if str(job) in jobs_of(one)]
        return mine[-1] if mine else copies[0] if copies else None

    async def _create(self, source: Mapping[str, Any], name: str, job: str) -> str:
        """Create the copy, or update one that the cache lacks. Return its resource version."""
        try:
            made: Metadata = await self._client.create(
                SECRETS, as_copy(source, self._namespace, name, [job]), self._namespace, decode=decode_metadata
            )
        except AlreadyExists:
            return await self._update(source, name, job)
        except NotFound:
            raise NoCopyError(
                f"namespace {self._namespace}, from which node agents read pull secrets, does not exist; "
                f"run kubectl create namespace {self._namespace}"
            ) from None
        return made.metadata.resource_version

    async def _update(self, source: Mapping[str, Any], name: str, job: str) -> str:
        """Update the copy. Return its resource version. Raises Conflict on concurrent writes, NotFound if the copy was
        deleted."""
        present = await self._client.get(SECRETS, name, self._namespace)
        metadata = present["metadata"]
        annotations = metadata.get("annotations") or {}
        key = f"{source['metadata']['namespace']}/{source['metadata']['name']}"
        if annotations.get(names.COPIED_FROM) != key:
            raise NoCopyError(f"Secret {self._namespace}/{name} is not a copy of {key}; delete it")
        jobs = {*references(annotations.get(names.COPIED_FOR)), job}
        wanted = as_copy(source, self._namespace, name, jobs)
        if present.get("type") != source["type"]:
            return await self._replace(name, metadata, wanted)
        patch = merge_difference(_compared(present), _compared(wanted))
        if not patch:
            return str(metadata["resourceVersion"])
        patch["metadata"] = {
            **patch.get("metadata", {}),
            "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"],
        }
        written: Metadata = await self._client.patch(SECRETS, name, patch, self._namespace, decode=decode_metadata)
        return written.metadata.resource_version

    async def _replace(self, name: str, metadata: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
        """Recreate the copy: the source was recreated with another type, and a Secret's type is immutable."""
        await self._client.delete(
            SECRETS,
            name,
            self._namespace,
            uid=metadata["uid"],
            resource_version=metadata["resourceVersion"],
            decode=decode_metadata,
        )
        made: Metadata = await self._client.create(SECRETS, wanted, self._namespace, decode=decode_metadata)
        return made.metadata.resource_version

    async def _release(self, job: ObjectKey, keep: set[str], more: Iterable[str] = ()) -> None:
        """Release the job's copies except ``keep``. A missing or terminating namespace needs no release.
        [IMG-65, IMG-102]"""
        known = {one.metadata.name for one in self._copies.by_index(BY_JOB, str(job)) if is_copy(one)}
        for name in sorted((known | set(more)) - keep):
            try:
                await self._release_one(job, name)
            except NotFound:
                logger.debug("pull secret %s is already deleted", name)

    async def _release_one(self, job: ObjectKey, name: str) -> None:
        copy: PullSecret = await self._client.get(SECRETS, name, self._namespace, decode=decode_pull_secret)
        metadata, jobs = copy.metadata, jobs_of(copy)
        if str(job) not in jobs or not is_copy(copy):
            return
        left = [one for one in jobs if one != str(job)]
        if left:
            known = {"uid": metadata.uid, "resourceVersion": metadata.resource_version}
            body = {"metadata": {**known, "annotations": {names.COPIED_FOR: ",".join(left)}}}
            await self._client.patch(SECRETS, name, body, self._namespace, decode=decode_metadata)
        else:
            await self._client.delete(
                SECRETS,
                name,
                self._namespace,
                uid=metadata.uid,
                resource_version=metadata.resource_version,
                decode=decode_metadata,
            )


def _agree(source: str, copy: PullSecret | None, before: _Verified) -> bool:
    """Return whether the source (at this version) and its copy are unchanged."""
    if copy is None or not source:
        return False
    metadata = copy.metadata
    return (source, metadata.name, metadata.resource_version) == (before.source, before.copy, before.version)


def _taken_from(copy: PullSecret, job: ObjectKey, verified: _Verified) -> bool:
    """Return whether the job was removed from the copy since the copy was verified. The cache may lag behind."""
    return str(job) not in jobs_of(copy) and is_at_least(copy.metadata.resource_version, verified.version)


def _compared(secret: Mapping[str, Any]) -> dict[str, Any]:
    metadata = secret["metadata"]
    return {
        "data": secret.get("data") or {},
        "metadata": {
            "labels": dict(metadata.get("labels") or {}),
            "annotations": {
                key: value for key, value in (metadata.get("annotations") or {}).items() if key != _APPLIED
            },
        },
    }
