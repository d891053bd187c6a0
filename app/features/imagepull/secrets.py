"""Copies of pull secrets in the one namespace whose Secrets node agents may read (IMG-60 … IMG-65).

A copy says in annotations of what it is a copy and for which jobs; it goes with the last of them. Its name follows from
its source, so that two controllers, or one that restarts, make one copy and not two.

Only the copies are watched. A source is read by its name, now and then: so a manager needs no right on the Secrets of
other namespaces than those whose jobs name some, and may be granted none at all (IMG-113).
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
from app.kube.objects import Metadata, ObjectMeta, Struct, decode_metadata, decoder
from app.kube.patches import merge_difference
from app.kube.resources import SECRETS, ObjectKey
from app.kube.store import Store

logger = logging.getLogger(__name__)

BY_SOURCE: Final = "source"
BY_JOB: Final = "job"
_MAX_NAME: Final = 253
PULL_SECRET_TYPES: Final = ("kubernetes.io/dockerconfigjson", "kubernetes.io/dockercfg")
_CONTENT: Final = ("data", "type")
_IS_KEY: Final = re.compile(r"([a-z0-9-]{1,63})/([a-z0-9.-]{1,253})").fullmatch
_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"


class NoCopyError(KubeError):
    """Something else has the name that a copy would have."""


class PullSecret(Struct, frozen=True):
    """A Secret, without what is in it."""

    metadata: ObjectMeta = ObjectMeta()
    type: str = ""


def source_of(secret: PullSecret) -> list[str]:
    """The index of copies by what they are copies of."""
    source = secret.metadata.annotations.get(names.COPIED_FROM)
    return [source] if source else []


def jobs_of(secret: PullSecret) -> list[str]:
    """The jobs that a copy is for."""
    return references(secret.metadata.annotations.get(names.COPIED_FOR))


def is_copy(secret: PullSecret) -> bool:
    """Whether it is one that stays."""
    return secret.metadata.deletion_timestamp is None and bool(source_of(secret))


def references(text: str | None) -> list[str]:
    """The jobs in an annotation of a copy."""
    return sorted({part.strip() for part in (text or "").split(",") if part.strip()})


def job_keys(secret: PullSecret) -> list[ObjectKey]:
    """The jobs that a copy is for, as far as there can be such jobs."""
    return [ObjectKey(*found.groups()) for text in jobs_of(secret) if (found := _IS_KEY(text))]


def copy_name(source: ObjectKey) -> str:
    """IMG-64: the name of the copy."""
    digest = hashlib.sha256(str(source).encode()).hexdigest()[:6]
    return f"{source.name[: _MAX_NAME - 7].rstrip('.-')}-{digest}"


def as_copy(source: Mapping[str, Any], namespace: str, name: str, jobs: Iterable[str]) -> dict[str, Any]:
    """IMG-61, IMG-64: the copy of a Secret (JSON)."""
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
#: What a manager needs for jobs that name pull secrets, beside what it needs for those that name none.
READING: Final = PolicyRule(("get",), ("",), ("secrets",), optional="pull-secrets")
#: IMG-64: a source is read again when so much of a job's age has gone by, within these bounds.
RECHECK_SHARE: Final = 0.1
RECHECK_SECONDS: Final = (10.0, 300.0)
#: What was read for one job serves others that are to read the same source again, for so long.
_SHARED: Final = timedelta(seconds=2)
#: A job is told of what it lacks when that changes, and again before the API server forgets the event.
_TELL_AGAIN: Final = timedelta(minutes=50)


def recheck_seconds(age: float) -> float:
    """After how long a job of that age has its sources read again."""
    shortest, longest = RECHECK_SECONDS
    return min(max(age * RECHECK_SHARE, shortest), longest)


@dataclass(frozen=True, slots=True)
class Claimed:
    """What came of a job's pull secrets."""

    #: What NodeImages get.
    references: list[dict[str, str]]
    #: Secrets that are not there, or hold no credentials of a registry.
    missing: list[str]
    #: Secrets that we may not read.
    forbidden: list[str]
    #: Seconds until a source is to be read again.
    wait: float | None
    #: Whether people are to be told of what is missing or forbidden.
    is_news: bool = False


@dataclass(frozen=True, slots=True)
class _Verified:
    """What was found when a source was read for a job."""

    #: Until when that is believed.
    until: datetime
    #: The version of the source, the name and version of its copy; empty where it is missing or may not be read.
    source: str = ""
    copy: str = ""
    version: str = ""
    forbidden: bool = False


@dataclass(slots=True)
class _Known:
    """What is remembered of a job."""

    verified: dict[ObjectKey, _Verified] = field(default_factory=dict)
    #: What was missing or forbidden when people were told, and until when they need not be told again.
    told: tuple[list[str], list[str]] = ([], [])
    told_until: datetime | None = None

    def is_news(self, missing: list[str], forbidden: list[str], now: datetime) -> bool:
        """Whether this is to be told; it is taken to be then."""
        if self.told == (missing, forbidden) and (self.told_until is None or now < self.told_until):
            return False
        self.told, self.told_until = (missing, forbidden), now + _TELL_AGAIN
        return True


def told(namespace: str, claimed: Claimed) -> Iterator[tuple[str, str]]:
    """Reasons and messages of the events of a job in that namespace."""
    if claimed.missing:
        shown = ", ".join(claimed.missing)
        yield "PullSecretNotFound", f"no Secret of a registry with this name, pulling without it: {shown}"
    if claimed.forbidden:
        shown = ", ".join(claimed.forbidden)
        yield (
            "PullSecretForbidden",
            f"the manager may not get Secrets of namespace {namespace}, pulling without: {shown}. To let it, add"
            f" {namespace} to imagePullJob.secretNamespaces in the values of the chart, or bind ClusterRole"
            " kruise-manager-pull-secrets-role there to the manager's ServiceAccount",
        )


class PullSecrets:
    """Claims copies for jobs and releases them. ``copies``: the Secrets of the namespace they are in."""

    def __init__(self, client: Client, copies: Store[PullSecret], namespace: str) -> None:
        self._client = client
        self._copies = copies
        self._namespace = namespace
        self._known: dict[str, _Known] = {}
        #: When a source was read last and what its version was, or nothing; only what is younger than ``_SHARED``.
        self._read: dict[ObjectKey, tuple[datetime, _Verified]] = {}

    async def claim(self, job: ObjectKey, wanted: Sequence[str], age: float) -> Claimed:
        """Bring copies about for a job of that age, in seconds. Raises KubeError."""
        if not wanted:
            return Claimed([], [], [], None)
        if job.namespace == self._namespace:
            # IMG-60: node agents can read these as they are.
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
        """The job is gone."""
        self._known.pop(str(job), None)

    @property
    def known(self) -> Mapping[str, frozenset[ObjectKey]]:
        """Job → the sources that are remembered for it."""
        return {job: frozenset(known.verified) for job, known in self._known.items()}

    def has_copies(self, job: ObjectKey) -> bool:
        """Whether there are copies for it."""
        return any(map(is_copy, self._copies.by_index(BY_JOB, str(job))))

    async def release(self, job: ObjectKey, wanted: Sequence[str]) -> None:
        """IMG-65: the job needs no copies any more. ``wanted``: those that it asked for. Raises KubeError."""
        self.forget(job)
        if job.namespace != self._namespace:
            # What was made a moment ago the cache may not show yet.
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
        if not source.name:
            return _Verified(until)  # that would ask for all of the namespace
        try:
            live = await self._client.get(SECRETS, source.name, source.namespace)
        except NotFound:
            return _Verified(until)
        except Forbidden:
            return _Verified(until, forbidden=True)
        if live.get("type") not in PULL_SECRET_TYPES:
            return _Verified(until)
        version = str(live["metadata"]["resourceVersion"])
        if copy is not None:
            name = copy.metadata.name
            if before is not None and _agree(version, copy, before):
                return replace(before, until=until)
            try:
                return _Verified(until, version, name, await self._update(live, name, str(job)))
            except NotFound:
                logger.debug("pull secret %s is gone again", name)
        name = copy_name(source)
        return _Verified(until, version, name, await self._create(live, name, str(job)))

    def _known_copy(self, job: ObjectKey, source: ObjectKey) -> PullSecret | None:
        """IMG-62: the copy of that source; of several the one that is for this job already."""
        copies = sorted(
            (one for one in self._copies.by_index(BY_SOURCE, str(source)) if is_copy(one)),
            key=lambda one: one.metadata.name,
        )
        mine = [one for one in copies if str(job) in jobs_of(one)]
        return mine[-1] if mine else copies[0] if copies else None

    async def _create(self, source: Mapping[str, Any], name: str, job: str) -> str:
        """Make the copy, or bring one up to date that the cache does not show; the version that it has now."""
        try:
            made: Metadata = await self._client.create(
                SECRETS, as_copy(source, self._namespace, name, [job]), self._namespace, decode=decode_metadata
            )
        except AlreadyExists:
            return await self._update(source, name, job)
        except NotFound:
            raise NoCopyError(
                f"there is no namespace {self._namespace}, from which node agents read pull secrets; "
                f"run kubectl create namespace {self._namespace}"
            ) from None
        return made.metadata.resource_version

    async def _update(self, source: Mapping[str, Any], name: str, job: str) -> str:
        """Bring the copy up to date; the version that it has now. Raises Conflict where others write it, NotFound where
        it is gone."""
        present = await self._client.get(SECRETS, name, self._namespace)
        metadata = present["metadata"]
        annotations = metadata.get("annotations") or {}
        key = f"{source['metadata']['namespace']}/{source['metadata']['name']}"
        if annotations.get(names.COPIED_FROM) != key:
            raise NoCopyError(f"Secret {self._namespace}/{name} is no copy of {key}; delete it or rename the source")
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
        """Make the copy anew: the source was, and has another type, which no Secret can change."""
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
        """IMG-63. A namespace that is gone, or goes, has nothing to release (IMG-102)."""
        known = {one.metadata.name for one in self._copies.by_index(BY_JOB, str(job)) if is_copy(one)}
        for name in sorted((known | set(more)) - keep):
            try:
                await self._release_one(job, name)
            except NotFound:
                logger.debug("pull secret %s is gone already", name)

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
    """Whether neither the source, of that version now, nor its copy has changed."""
    if copy is None or not source:
        return False
    metadata = copy.metadata
    return (source, metadata.name, metadata.resource_version) == (before.source, before.copy, before.version)


def _taken_from(copy: PullSecret, job: ObjectKey, verified: _Verified) -> bool:
    """Whether somebody has taken the copy from the job since. The cache may be behind."""
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
