"""Standalone mode: admission decisions without a cluster, based on objects from YAML files.

Each object passes through our own webhooks as if it were created on an API server. Denials are reported with file and
line, and the last valid contents of the file stay in use. Files are checked once a second and reread when they
change.
"""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final, TypeAlias

import msgspec
import orjson

from app.admission.policies import FILE_NAME as WEBHOOK_POLICIES
from app.admission.registry import Registry, build_registry
from app.admission.running import prepared
from app.api import names
from app.api.conversion import convert
from app.api.kind import KindDefinition, find_kind
from app.api.structural import unknown_fields
from app.features.deletionprotection.protected_kinds import FILE_NAME as PROTECTED_KINDS
from app.framework.feature import AdmissionContext
from app.framework.watched import CacheKey, Scope, Stores, Watched, merged
from app.kube import patches
from app.kube.admission import (
    Allowed,
    Decision,
    Denied,
    GroupVersionKind,
    GroupVersionResource,
    Handler,
    Operation,
    Patched,
    Review,
)
from app.kube.clock import Clock
from app.kube.objects import Object
from app.kube.resources import NAMESPACES, ObjectKey
from app.kube.selectors import parse_query
from app.kube.store import key_of
from app.manager.features import features
from app.manager.flags import parse_flags
from app.manager.gates import FeatureGates
from app.manager.manifests import SUFFIXES, Manifest, ManifestError, UnreadableError, manifest_files, read_manifests
from app.manager.metrics import ManagerMetrics
from app.manager.webhook_handlers import build_handlers

logger = logging.getLogger(__name__)

POLL_SECONDS: Final = 1.0
#: Stamp of a file that could not be read. It makes the next check read the file again.
_NOT_READ: Final = (-1, -1)
_FIELD: Final = re.compile(r"\b(?:spec|metadata)(?:\.[\w-]+|\[[^\]]*\])+")
_DECISIONS: Final = (Allowed, Patched, Denied)
_UID_SPACE: Final = uuid.UUID("5d0c6f9e-6d7a-4c53-9a38-3f9b8f0e4c11")


#: Valid objects of one file, by watched resource.
_Content: TypeAlias = dict[tuple[CacheKey, ObjectKey], Object]


@dataclass(slots=True)
class _File:
    stamp: tuple[int, int]
    content: _Content
    problem: str = ""


class Standalone:
    """Objects in a folder or file, kept up to date, and the handlers that use them.

    Separate handlers validate a file on a second copy of all objects, so that reviews never see a half-loaded file.
    """

    def __init__(self, path: Path | None, gates: FeatureGates, clock: Clock, rng: Random) -> None:
        self._path = path
        self._clock = clock
        self._gates = gates
        self._files: dict[Path, _File] = {}
        self._version = 0
        self._watched = merged(
            one
            for declared in features()
            for part in declared.judging(gates.enabled)
            for one in (*part.watched, *part.files)
        )
        self.stores = Stores(self._watched.values())
        handlers = self._handlers_of(self.stores, rng)
        self.registry: Registry = build_registry(handlers, gates.enabled)
        self._handlers = self._in_order(handlers)
        self._draft = Stores(self._watched.values())
        self._draft_handlers = self._in_order(self._handlers_of(self._draft, rng))

    def _handlers_of(self, stores: Stores, rng: Random) -> Sequence[Handler]:
        metrics, flags = ManagerMetrics(), parse_flags(())
        context = AdmissionContext(
            client=None,
            stores=stores,
            events=None,
            clock=self._clock,
            rng=rng,
            own_namespace=names.MANAGER_NAMESPACE,
            enabled=self._gates.enabled,
            flags=flags,
            counters=metrics.of,
            policies=self._path,
        )
        return build_handlers(lambda _part: context)

    def _in_order(self, handlers: Sequence[Handler]) -> Sequence[Handler]:
        live = (handler for handler in handlers if handler.webhook in self.registry.webhooks)
        return sorted(live, key=lambda handler: not handler.webhook.mutating)

    @property
    def problems(self) -> tuple[str, ...]:
        return tuple(file.problem for file in self._files.values() if file.problem)

    @property
    def summary(self) -> str:
        counts = [f"{len(self.stores(one))} {one.name}" for one in self._watched.values()]
        return f"{', '.join(counts[:-1])} and {counts[-1]}"

    # ---- reading files

    async def watch(self) -> None:
        """Check for changes until canceled."""
        failed = False
        while True:
            await self._clock.sleep(POLL_SECONDS)
            try:
                if await self.reload():
                    logger.info("loaded %s", self.summary)
                failed = False
            except OSError as error:  # Out of file descriptors, or the file system is unavailable.
                if not failed:
                    logger.error("cannot check the files, keeping the loaded objects: %s", error)  # noqa: TRY400
                failed = True

    async def reload(self) -> bool:
        """Reread changed files and log new problems. Returns whether any file changed."""
        before = dict(self._files)
        changed = await self.load()
        for path, file in sorted(self._files.items()):
            known = before.get(path)
            if file.problem and (known is None or (known.problem, known.stamp) != (file.problem, file.stamp)):
                lasting = " (keeping its last valid contents)" if file.content else ""
                logger.error("%s%s", file.problem, lasting)
        return changed

    async def load(self) -> bool:
        """Reread changed files; ``problems`` lists their errors. Returns whether any file changed."""
        stamps = self._stamps()
        changed = [
            path for path, stamp in stamps.items() if path not in self._files or self._files[path].stamp != stamp
        ]
        gone = [path for path in self._files if path not in stamps]
        if not changed and not gone:
            return False
        self._version += 1
        for path in gone:
            before = self._files.pop(path).content
            self._exchange(self._draft, before, {})
            self._exchange(self.stores, before, {})
        # A rejected file may be valid together with the files that have just changed.
        refused = [path for path, file in self._files.items() if file.problem and path not in changed]
        waiting = sorted({*changed, *refused})
        while waiting:
            for path in waiting:
                await self._read(path, stamps[path])
            # Files may depend on each other in any order.
            still = [path for path in waiting if self._files[path].problem]
            waiting = still if len(still) < len(waiting) else []
        return True

    def _stamps(self) -> dict[Path, tuple[int, int]]:
        if self._path is None:
            return {}
        found = [self._path] if self._path.is_file() else manifest_files(self._path)
        stamps = {}
        for path in found:
            if path.suffix not in SUFFIXES or path.name in (WEBHOOK_POLICIES, PROTECTED_KINDS):
                continue
            try:
                state = path.stat()
            except OSError:
                continue  # deleted between two checks
            stamps[path] = (state.st_mtime_ns, state.st_size)
        return stamps

    async def _read(self, path: Path, stamp: tuple[int, int]) -> None:
        before = self._files.get(path)
        good = before.content if before is not None else {}
        content: _Content = {}
        problem = ""
        self._exchange(self._draft, good, {})
        try:
            for manifest in read_manifests(path):
                await self._take(manifest, content)
        except ManifestError as error:
            self._exchange(self._draft, content, good)
            content, problem = good, str(error)
            if isinstance(error, UnreadableError):
                stamp = _NOT_READ
        self._files[path] = _File(stamp, content, problem)
        self._exchange(self.stores, good, content)

    async def _take(self, manifest: Manifest, content: _Content) -> None:
        """Add one object from a file to that file's contents and to the second copy. Raises ManifestError."""
        api_version = manifest.object.get("apiVersion")
        if not isinstance(api_version, str) or not manifest.kind:
            raise ManifestError(f"{manifest.at()}: apiVersion and kind: are required")
        if not manifest.name:
            raise ManifestError(f"{manifest.at('metadata')}: {manifest.kind}: metadata.name: is required")
        obj: Mapping[str, Any] = manifest.object
        kind = find_kind(api_version, manifest.kind)
        watched = self._watched_as(api_version, manifest)
        if watched is not None and (kind is not None or watched.scope is Scope.OWN):
            self._refuse_second(manifest, watched, content)
        if kind is not None:
            obj = _with_identity(await self._admitted(manifest, kind), self._version)
        if watched is None:
            called = f"{manifest.kind} {manifest.name}"
            unused = "is valid, but has no effect" if kind is not None else "is not used"
            logger.warning("%s: %s %s without a cluster", manifest.at(), called, unused)
            return
        stored = _decoded(watched, manifest, obj)
        content[watched.key, key_of(stored)] = stored
        self._draft(watched).put(stored)

    def _watched_as(self, api_version: str, manifest: Manifest) -> Watched[Any] | None:
        wanted, labels = (api_version.rpartition("/")[0], manifest.kind), manifest.object["metadata"].get("labels")
        for one in self._watched.values():
            if (one.resource.group, one.resource.kind) != wanted or one.object_name not in ("", manifest.name):
                continue
            if parse_query(one.label_selector).matches(labels if isinstance(labels, dict) else {}):
                return one
        return None

    def _refuse_second(self, manifest: Manifest, watched: Watched[Any], content: _Content) -> None:
        """Raise ManifestError if the object is already defined in another file, or in this one (``content``)."""
        where = (watched.key, ObjectKey(_namespace(watched, manifest.object["metadata"]), manifest.name))
        others = {str(path): file.content for path, file in self._files.items()}
        for file, objects in (others | {manifest.file: content}).items():
            if where in objects:
                said = f"{manifest.kind} {manifest.name} is also defined in {file}"
                raise ManifestError(f"{manifest.at('metadata.name')}: {said}")

    async def _admitted(self, manifest: Manifest, kind: KindDefinition) -> dict[str, Any]:
        """Return the object as an API server with our webhooks would store it. Raises ManifestError."""
        called = f"{manifest.kind} {manifest.name}"
        version = kind.version(str(manifest.object["apiVersion"]))
        if version is None:
            served = ", ".join(f"{kind.group}/{known.name}" for known in kind.versions)
            raise ManifestError(f"{manifest.at('apiVersion')}: {called}: apiVersion: served versions are {served}")
        for path in unknown_fields(version.schema, manifest.object):
            raise ManifestError(f"{manifest.at(path)}: {called}: {path}: unknown field")
        review = Review(
            uid="file",
            operation=Operation.CREATE,
            kind=GroupVersionKind(kind.group, version.name, kind.kind),
            resource=GroupVersionResource(kind.group, version.name, kind.plural),
            namespace=str(manifest.object["metadata"].get("namespace") or ""),
            name=manifest.name,
            object=manifest.object,
        )
        decided, review = await _decide(self._draft_handlers, review)
        for _, decision in decided:
            if isinstance(decision, Denied):
                found = _FIELD.search(decision.message)
                raise ManifestError(f"{manifest.at(found.group() if found else '')}: {called}: {decision.message}")
            for warning in decision.warnings:
                logger.warning("%s: %s: %s", manifest.at(), called, warning)
        hub = f"{kind.group}/{kind.hub.name}"
        stored = dict(review.object or {})
        return stored if stored["apiVersion"] == hub else convert(stored, hub)

    def _exchange(self, stores: Stores, before: _Content, after: _Content) -> None:
        """Replace the previous objects of a file with its new ones."""
        for where in before.keys() - after.keys():
            key, name = where
            # Another file may define the same object.
            other = next((file.content[where] for file in self._files.values() if where in file.content), None)
            store = stores(self._watched[key])
            store.remove(name) if other is None or other is before[where] else store.put(other)
        for (key, _), obj in after.items():
            stores(self._watched[key]).put(obj)

    # ---- admission

    async def decide(self, review: Review) -> tuple[list[tuple[Handler, Decision]], Review]:
        """Call the handlers as an API server would, mutating ones first, until one denies the request.

        Returns the decisions and the resulting review.
        """
        return await _decide(self._handlers, review)


async def _decide(handlers: Sequence[Handler], review: Review) -> tuple[list[tuple[Handler, Decision]], Review]:
    decided: list[tuple[Handler, Decision]] = []
    for handler in handlers:
        if not any(rule.matches(review) for rule in handler.webhook.rules):
            continue
        given = prepared(review, 0)  # the service does so before each handler
        outcome = given if isinstance(given, Denied) else handler.decide(given)
        decision: Decision = outcome if isinstance(outcome, _DECISIONS) else await outcome
        decided.append((handler, decision))
        if isinstance(decision, Denied):
            break
        if isinstance(decision, Patched):
            review = _with_object(review, decision)
    return decided, review


def _with_object(review: Review, decision: Patched) -> Review:
    # Encode and decode as in a response: parts of a patch may already be JSON.
    operations = orjson.loads(orjson.dumps([operation.as_json() for operation in decision.operations]))
    return msgspec.structs.replace(review, object=patches.apply(operations, review.object))


def _with_identity(stored: Mapping[str, Any], version: int) -> dict[str, Any]:
    """Add the fields an API server would set; hot upgrades use the resourceVersion. [SS-81]"""
    metadata = stored["metadata"]
    uid = str(uuid.uuid5(_UID_SPACE, f"{stored['kind']}/{metadata['name']}"))
    return {**stored, "metadata": {**metadata, "uid": uid, "resourceVersion": str(version)}}


def _namespace(watched: Watched[Any], metadata: Mapping[str, Any]) -> str:
    if watched.scope is Scope.OWN:
        return names.MANAGER_NAMESPACE  # pykruise may be installed in another namespace
    return str(metadata.get("namespace") or "")


def _decoded(watched: Watched[Any], manifest: Manifest, obj: Mapping[str, Any]) -> Any:
    """Decode an object into the form in which caches store it. Raises ManifestError."""
    metadata = obj["metadata"]
    if watched.resource.kind == NAMESPACES.kind:
        # An API server sets this label.
        labels = {**(metadata.get("labels") or {}), names.NAMESPACE_NAME: manifest.name}
        obj = {**obj, "metadata": {**metadata, "labels": labels}}
    if watched.scope is Scope.OWN:
        obj = {**obj, "metadata": {**metadata, "namespace": _namespace(watched, metadata)}}
    try:
        return watched.decode(orjson.dumps(obj))
    except ValueError as error:
        raise ManifestError(f"{manifest.at()}: {manifest.kind} {manifest.name}: {error}") from None
