"""Copies of pull secrets in the one namespace whose Secrets node agents may read (IMG-60 … IMG-65).

A copy says in annotations of what it is a copy and for which jobs; it goes with the last of them. Its name follows from
its source, so that two controllers, or one that restarts, make one copy and not two.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from app.api import names
from app.api.imagepull.types import BATCH
from app.kube.client import Client
from app.kube.errors import AlreadyExists, KubeError, NotFound
from app.kube.objects import Metadata, ObjectMeta, Struct, decode_metadata, decoder
from app.kube.patches import merge_difference
from app.kube.resources import SECRETS, ObjectKey
from app.kube.store import Store
from app.slices import Scope, Watched

logger = logging.getLogger(__name__)

BY_SOURCE: Final = "source"
BY_JOB: Final = "job"
_MAX_NAME: Final = 253
PULL_SECRET_TYPES: Final = ("kubernetes.io/dockerconfigjson", "kubernetes.io/dockercfg")
#: What the API server is told not to send: most Secrets of most clusters.
_OF_NO_REGISTRY: Final = ("Opaque", "helm.sh/release.v1", "kubernetes.io/service-account-token", "kubernetes.io/tls")
_CONTENT: Final = ("data", "type")
_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"


class NoCopyError(KubeError):
    """Something else has the name that a copy would have."""


class PullSecret(Struct, frozen=True):
    """A Secret, without what is in it."""

    metadata: ObjectMeta = ObjectMeta()
    type: str = ""


def is_pull_secret(secret: PullSecret) -> bool:
    """Whether node agents can read credentials of registries in it."""
    return secret.type in PULL_SECRET_TYPES


def source_of(secret: PullSecret) -> list[str]:
    """The index of copies by what they are copies of."""
    source = secret.metadata.annotations.get(names.COPIED_FROM)
    return [source] if source else []


def copies_namespace() -> str:
    """Where the copies are."""
    return os.environ.get(names.DAEMON_CONFIG_NAMESPACE_ENV) or names.DAEMON_CONFIG_NAMESPACE


def jobs_of(secret: PullSecret) -> list[str]:
    """The jobs that a copy is for."""
    return references(secret.metadata.annotations.get(names.COPIED_FOR))


def by_job(secret: PullSecret) -> list[str]:
    """The index of copies by the jobs they are for. Elsewhere anybody may write the annotation, and each job that it
    names would cost an entry."""
    return jobs_of(secret) if secret.metadata.namespace == copies_namespace() else []


def references(text: str | None) -> list[str]:
    """The jobs in an annotation of a copy."""
    return sorted({part.strip() for part in (text or "").split(",") if part.strip()})


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
WATCHED_SECRETS: Final[Watched[PullSecret]] = Watched(
    "Secrets of registries",
    SECRETS,
    decode_pull_secret,
    Scope.CLUSTER,
    field_selector=",".join(f"type!={one}" for one in _OF_NO_REGISTRY),
    indexes={BY_SOURCE: source_of, BY_JOB: by_job},
    keep=is_pull_secret,
)


class PullSecrets:
    """Claims copies for jobs and releases them. ``secrets``: all pull secrets, copies among them."""

    def __init__(self, client: Client, secrets: Store[PullSecret], namespace: str) -> None:
        self._client = client
        self._secrets = secrets
        self._namespace = namespace
        #: Per job and source: the versions of both when they were found to agree.
        self._verified: dict[tuple[str, ObjectKey], tuple[str, str]] = {}

    async def claim(self, job: ObjectKey, wanted: Sequence[str]) -> tuple[list[dict[str, str]], list[str]]:
        """The references that NodeImages get, and the Secrets that there are none of. Raises KubeError."""
        if job.namespace == self._namespace:
            # IMG-60: node agents can read these as they are.
            return [{"namespace": job.namespace, "name": name} for name in wanted], []
        found, missing = [], []
        for name in dict.fromkeys(wanted):
            source = ObjectKey(job.namespace, name)
            copy = await self._claim_one(job, source)
            if copy is None:
                missing.append(name)
            else:
                found.append({"namespace": self._namespace, "name": copy, "mode": BATCH})
        await self._release(job, {one["name"] for one in found})
        return found, missing

    async def release(self, job: ObjectKey, wanted: Sequence[str]) -> None:
        """IMG-65: the job needs no copies any more. ``wanted``: those that it asked for. Raises KubeError."""
        for key in [key for key in self._verified if key[0] == str(job)]:
            del self._verified[key]
        if job.namespace != self._namespace:
            # What was made a moment ago the cache may not show yet.
            await self._release(job, set(), {copy_name(ObjectKey(job.namespace, name)) for name in wanted})

    async def _claim_one(self, job: ObjectKey, source: ObjectKey) -> str | None:
        cached, known = self._secrets.by_key(source), self._known_copy(job, source)
        if cached is not None and known is not None:
            versions = (cached.metadata.resource_version, known.metadata.resource_version)
            if self._verified.get((str(job), source)) == versions:
                return known.metadata.name
        try:
            live = await self._client.get(SECRETS, source.name, source.namespace)
        except NotFound:
            return None
        if live.get("type") not in PULL_SECRET_TYPES:
            return None
        name = known.metadata.name if known is not None else copy_name(source)
        version = await self._write(live, name, str(job))
        self._verified[(str(job), source)] = (live["metadata"]["resourceVersion"], version)
        return name

    def _known_copy(self, job: ObjectKey, source: ObjectKey) -> PullSecret | None:
        """IMG-62: the copy of that source; of several the one that is for this job already."""
        copies = sorted(
            (one for one in self._secrets.by_index(BY_SOURCE, str(source)) if self._is_copy(one)),
            key=lambda one: one.metadata.name,
        )
        mine = [one for one in copies if str(job) in jobs_of(one)]
        return mine[-1] if mine else copies[0] if copies else None

    def _is_copy(self, secret: PullSecret) -> bool:
        """Whether it is ours: whoever writes the annotations elsewhere must not have us touch his Secrets."""
        metadata = secret.metadata
        return metadata.namespace == self._namespace and metadata.deletion_timestamp is None

    async def _write(self, source: Mapping[str, Any], name: str, job: str) -> str:
        """Make the copy, or bring it up to date; the version that it has now. Raises Conflict where others write it."""
        try:
            made: Metadata = await self._client.create(
                SECRETS, as_copy(source, self._namespace, name, [job]), self._namespace, decode=decode_metadata
            )
        except AlreadyExists:
            pass
        except NotFound:
            raise NoCopyError(
                f"there is no namespace {self._namespace}, from which node agents read pull secrets; create it"
            ) from None
        else:
            return made.metadata.resource_version
        present = await self._client.get(SECRETS, name, self._namespace)
        metadata = present["metadata"]
        annotations = metadata.get("annotations") or {}
        key = f"{source['metadata']['namespace']}/{source['metadata']['name']}"
        if annotations.get(names.COPIED_FROM) != key:
            raise NoCopyError(f"Secret {self._namespace}/{name} is no copy of {key}; delete it or rename the source")
        jobs = {*references(annotations.get(names.COPIED_FOR)), job}
        wanted = as_copy(source, self._namespace, name, jobs)
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

    async def _release(self, job: ObjectKey, keep: set[str], more: Iterable[str] = ()) -> None:
        """IMG-63. A namespace that is gone, or goes, has nothing to release (IMG-102)."""
        known = {one.metadata.name for one in self._secrets.by_index(BY_JOB, str(job)) if self._is_copy(one)}
        for name in sorted((known | set(more)) - keep):
            try:
                await self._release_one(job, name)
            except NotFound:
                logger.debug("pull secret %s is gone already", name)

    async def _release_one(self, job: ObjectKey, name: str) -> None:
        copy: PullSecret = await self._client.get(SECRETS, name, self._namespace, decode=decode_pull_secret)
        metadata, jobs = copy.metadata, jobs_of(copy)
        if str(job) not in jobs or not self._is_copy(copy):
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
