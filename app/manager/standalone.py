"""Standalone mode: the same decisions with no cluster, over objects from YAML files.

Each object goes through our own webhooks as if it were created on an API server; what they refuse is reported with
file and line, and the last good state of that file stays. Files are looked at once a second, and read again when they
changed.
"""

from __future__ import annotations

import dataclasses
import logging
import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

import orjson

from app.admission.policies import FILE_NAME as WEBHOOK_POLICIES
from app.admission.registry import Registry, build_registry
from app.api import names
from app.api.conversion import convert
from app.api.kind import KindDefinition
from app.api.registry import find_kind
from app.api.sidecarset import SIDECAR_SET, SidecarSet
from app.api.structural import unknown_fields
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
from app.kube.objects import ControllerRevision, decode_controller_revision
from app.manager.gates import FeatureGates
from app.manager.handlers import Surroundings, build_handlers
from app.manager.manifests import Manifest, ManifestError, UnreadableError, read_manifests
from app.protection.deletion.table import FILE_NAME as PROTECTED_KINDS
from app.protection.deletion.table import load_table
from app.sidecars.sidecarset.admission_lookups import StandaloneLookups
from app.sidecars.sidecarset.selection import SidecarSetIndex

logger = logging.getLogger(__name__)

POLL_SECONDS: Final = 1.0
#: The stamp of a file that could not be read: the next look tries again.
_NOT_READ: Final = (-1, -1)
_SUFFIXES: Final = (".yaml", ".yml", ".json")
_FIELD: Final = re.compile(r"\b(?:spec|metadata)(?:\.[\w-]+|\[[^\]]*\])+")
_DECISIONS: Final = (Allowed, Patched, Denied)
_UID_SPACE: Final = uuid.UUID("5d0c6f9e-6d7a-4c53-9a38-3f9b8f0e4c11")


@dataclass(frozen=True, slots=True)
class _Stored:
    """A SidecarSet as an API server would hold it, as JSON and as model."""

    json: dict[str, Any]
    model: SidecarSet


@dataclass(slots=True)
class _Content:
    """What one file holds, as far as it is good."""

    sidecarsets: dict[str, _Stored] = field(default_factory=dict)
    namespaces: dict[str, dict[str, str]] = field(default_factory=dict)
    revisions: list[ControllerRevision] = field(default_factory=list)
    whitelist: str | None = None


@dataclass(slots=True)
class _File:
    stamp: tuple[int, int]
    content: _Content
    problem: str = ""


class Standalone:
    """Objects of a folder (or one file), kept up to date, and the handlers that decide with them."""

    def __init__(self, path: Path | None, gates: FeatureGates, clock: Clock, rng: Random) -> None:
        self._path = path
        self._clock = clock
        self._files: dict[Path, _File] = {}
        self._version = 0
        self._sets: list[SidecarSet] = []
        self._namespaces: dict[str, Mapping[str, str]] = {}
        self._revisions: dict[str, list[ControllerRevision]] = {}
        self.index = SidecarSetIndex()
        self._lookups = _SetLookups(self, gates.enabled("SidecarSetPatchPodMetadataDefaultsAllowed"))
        surroundings = Surroundings(
            gates=gates,
            clock=clock,
            rng=rng,
            index=self.index,
            injection=self,
            sidecarsets=self._lookups,
            protected_kinds=load_table(path),
        )
        handlers = build_handlers(surroundings)
        self.registry: Registry = build_registry(handlers, gates.enabled)
        self._handlers = [handler for handler in handlers if handler.webhook in self.registry.webhooks]
        self._handlers.sort(key=lambda handler: not handler.webhook.mutating)

    @property
    def problems(self) -> tuple[str, ...]:
        """What is wrong with the files now."""
        return tuple(file.problem for file in self._files.values() if file.problem)

    @property
    def summary(self) -> str:
        """What is loaded, in words."""
        return f"{len(self._sets)} SidecarSets and {len(self._namespaces)} Namespaces"

    # ---- reading files

    async def watch(self) -> None:
        """Look for changes for ever."""
        failed = False
        while True:
            await self._clock.sleep(POLL_SECONDS)
            try:
                if await self.reload():
                    logger.info("loaded %s", self.summary)
                failed = False
            except OSError as error:  # no descriptors left, or a file system that is away: what is loaded stays
                if not failed:
                    logger.error("files cannot be looked at, what is loaded stays in force: %s", error)  # noqa: TRY400
                failed = True

    async def reload(self) -> bool:
        """Read what changed since the last look. Returns whether anything did; problems are logged."""
        stamps = self._stamps()
        changed = [
            path for path, stamp in stamps.items() if path not in self._files or self._files[path].stamp != stamp
        ]
        gone = [path for path in self._files if path not in stamps]
        if not changed and not gone:
            return False
        self._version += 1
        for path in gone:
            self._exchange(self._files.pop(path).content, _Content())
        # A file that was refused may be right beside what changed now.
        refused = [path for path, file in self._files.items() if file.problem and path not in changed]
        for path in sorted({*changed, *refused}):
            await self._read(path, stamps[path])
        return True

    def _stamps(self) -> dict[Path, tuple[int, int]]:
        if self._path is None:
            return {}
        found = [self._path] if self._path.is_file() else sorted(self._path.rglob("*"))
        stamps = {}
        for path in found:
            if path.suffix not in _SUFFIXES or path.name in (WEBHOOK_POLICIES, PROTECTED_KINDS):
                continue
            try:
                state = path.stat()
            except OSError:
                continue  # it went between two looks
            stamps[path] = (state.st_mtime_ns, state.st_size)
        return stamps

    async def _read(self, path: Path, stamp: tuple[int, int]) -> None:
        before = self._files.get(path)
        good = before.content if before is not None else _Content()
        problem = ""
        try:
            content = await self._content(read_manifests(path), good)
        except ManifestError as error:
            content, problem = good, str(error)
            if isinstance(error, UnreadableError):
                stamp = _NOT_READ
        self._files[path] = _File(stamp, content, problem)
        self._exchange(good, content)
        if problem and (before is None or before.problem != problem or before.stamp != stamp):
            logger.error("%s%s", problem, " (its last good state stays in force)" if good != _Content() else "")

    async def _content(self, manifests: Sequence[Manifest], before: _Content) -> _Content:
        content = _Content()
        others = [one for one in self._sets if one.name not in before.sidecarsets]
        for manifest in manifests:
            api_version = manifest.object.get("apiVersion")
            if not isinstance(api_version, str) or not manifest.kind:
                raise ManifestError(f"{manifest.at()}: apiVersion and kind: are required")
            if not manifest.name:
                raise ManifestError(f"{manifest.at('metadata')}: {manifest.kind}: metadata.name: is required")
            kind = find_kind(api_version, manifest.kind)
            if kind is not None:
                if kind is SIDECAR_SET:
                    self._refuse_second(manifest, content, before)
                admitted = _with_identity(await self._admitted(manifest, kind, others), self._version)
                if kind is not SIDECAR_SET:
                    called = f"{manifest.kind} {manifest.name}"
                    logger.warning(
                        "%s: %s is right, but nothing is done about it without a cluster", manifest.at(), called
                    )
                    continue
                stored = _Stored(admitted, SidecarSet.model_validate(admitted))
                content.sidecarsets[manifest.name] = stored
                others.append(stored.model)
            elif api_version == "v1" and manifest.kind == "Namespace":
                content.namespaces[manifest.name] = _labels(manifest)
            elif api_version == "apps/v1" and manifest.kind == "ControllerRevision":
                content.revisions.append(_revision(manifest))
            elif api_version == "v1" and manifest.kind == "ConfigMap":
                content.whitelist = _whitelist(manifest) or content.whitelist
            else:
                logger.warning("%s: %s %s is not used without a cluster", manifest.at(), manifest.kind, manifest.name)
        return content

    def _refuse_second(self, manifest: Manifest, content: _Content, before: _Content) -> None:
        elsewhere = manifest.name not in before.sidecarsets and any(
            one.metadata.name == manifest.name for one in self._sets
        )
        if elsewhere or manifest.name in content.sidecarsets:
            raise ManifestError(f"{manifest.at('metadata.name')}: {manifest.kind} {manifest.name} is defined twice")

    async def _admitted(self, manifest: Manifest, kind: KindDefinition, others: list[SidecarSet]) -> dict[str, Any]:
        """The object as an API server with our webhooks would store it. Raises ManifestError."""
        called = f"{manifest.kind} {manifest.name}"
        version = kind.version(str(manifest.object["apiVersion"]))
        if version is None:
            served = ", ".join(f"{kind.group}/{known.name}" for known in kind.versions)
            raise ManifestError(f"{manifest.at('apiVersion')}: {called}: apiVersion: served are {served}")
        for path in unknown_fields(version.schema, manifest.object):
            raise ManifestError(f"{manifest.at(path)}: {called}: {path}: unknown field")
        self._lookups.sidecarsets = lambda: others
        review = Review(
            uid="file",
            operation=Operation.CREATE,
            kind=GroupVersionKind(kind.group, version.name, kind.kind),
            resource=GroupVersionResource(kind.group, version.name, kind.plural),
            name=manifest.name,
            object=manifest.object,
        )
        decided, review = await self.decide(review)
        for _, decision in decided:
            if isinstance(decision, Denied):
                found = _FIELD.search(decision.message)
                raise ManifestError(f"{manifest.at(found.group() if found else '')}: {called}: {decision.message}")
            for warning in decision.warnings:
                logger.warning("%s: %s: %s", manifest.at(), called, warning)
        hub = f"{kind.group}/{kind.hub.name}"
        stored = dict(review.object or {})
        return stored if stored["apiVersion"] == hub else convert(stored, hub)

    def _exchange(self, before: _Content, after: _Content) -> None:
        """Decide with what a file holds now instead of what it held."""
        for name in before.sidecarsets.keys() - after.sidecarsets.keys():
            self.index.remove(name)
        for name, stored in after.sidecarsets.items():
            if stored is not before.sidecarsets.get(name):
                self.index.update(stored.json)
        contents = [file.content for file in self._files.values()]
        self._sets = [stored.model for content in contents for stored in content.sidecarsets.values()]
        self._lookups.sidecarsets = self.known_sets
        self._namespaces = {name: labels for content in contents for name, labels in content.namespaces.items()}
        self._revisions = {}
        for revision in (revision for content in contents for revision in content.revisions):
            of = revision.metadata.labels.get(names.SIDECARSET_NAME, "")
            self._revisions.setdefault(of, []).append(revision)
        self._lookups.whitelist_text = next((c.whitelist for c in contents if c.whitelist is not None), None)

    # ---- deciding

    async def decide(self, review: Review) -> tuple[list[tuple[Handler, Decision]], Review]:
        """What the handlers an API server would ask say, mutating ones first, until one refuses; the review after."""
        decided: list[tuple[Handler, Decision]] = []
        for handler in self._handlers:
            if not any(rule.matches(review) for rule in handler.webhook.rules):
                continue
            outcome = handler.decide(review)
            decision: Decision = outcome if isinstance(outcome, _DECISIONS) else await outcome
            decided.append((handler, decision))
            if isinstance(decision, Denied):
                break
            if isinstance(decision, Patched):
                review = _with_object(review, decision)
        return decided, review

    # ---- what injection asks (the Lookups protocol)

    def namespace_labels(self, namespace: str) -> Mapping[str, str] | None:
        """Labels of a Namespace in the files; of any other, its name alone, which every namespace has."""
        return {**self._namespaces.get(namespace, {}), names.NAMESPACE_NAME: namespace}

    def revisions(self, set_name: str) -> Iterable[ControllerRevision]:
        """ControllerRevisions of a set in the files."""
        return self._revisions.get(set_name, ())

    async def live_sidecarset(self, name: str) -> Mapping[str, Any] | None:  # noqa: ARG002  # the protocol's
        """There is nothing beyond the files; a set that was only reviewed is not stored."""
        return None

    async def live_namespace_labels(self, namespace: str) -> Mapping[str, str] | None:
        """There is nothing beyond the files."""
        return self.namespace_labels(namespace)

    async def live_revisions(self, set_name: str) -> Iterable[ControllerRevision]:
        """There is nothing beyond the files."""
        return self.revisions(set_name)

    def known_sets(self) -> Sequence[SidecarSet]:
        """The SidecarSets in force."""
        return self._sets

    def known_revisions(self) -> Iterable[ControllerRevision]:
        """All ControllerRevisions in the files."""
        return (revision for of_set in self._revisions.values() for revision in of_set)


class _SetLookups(StandaloneLookups):
    """What SidecarSet validation asks, answered from the files."""

    def __init__(self, standalone: Standalone, defaults_allowed: bool) -> None:
        super().__init__(standalone.known_sets, defaults_allowed=defaults_allowed)
        self._standalone = standalone
        self.whitelist_text: str | None = None

    async def whitelist(self) -> str | None:
        """The whitelist of the ConfigMap in the files."""
        return self.whitelist_text

    async def revision(self, name: str) -> ControllerRevision | None:
        """A ControllerRevision in the files."""
        return next((one for one in self._standalone.known_revisions() if one.metadata.name == name), None)

    async def revisions_of(self, set_name: str) -> Iterable[ControllerRevision]:
        """Those labelled with the set."""
        return self._standalone.revisions(set_name)


def _with_object(review: Review, decision: Patched) -> Review:
    # As it will travel: parts of a patch may be JSON already.
    operations = orjson.loads(orjson.dumps([operation.as_json() for operation in decision.operations]))
    return dataclasses.replace(review, object=patches.apply(operations, review.object))


def _with_identity(stored: Mapping[str, Any], version: int) -> dict[str, Any]:
    """What an API server would have given the object: hot upgrades show its resourceVersion (SS-81)."""
    metadata = stored["metadata"]
    uid = str(uuid.uuid5(_UID_SPACE, f"{stored['kind']}/{metadata['name']}"))
    return {**stored, "metadata": {**metadata, "uid": uid, "resourceVersion": str(version)}}


def _labels(manifest: Manifest) -> dict[str, str]:
    labels = manifest.object["metadata"].get("labels") or {}
    if not isinstance(labels, dict) or not all(isinstance(value, str) for value in labels.values()):
        raise ManifestError(
            f"{manifest.at('metadata.labels')}: Namespace {manifest.name}: metadata.labels: must be text"
        )
    return dict(labels)


def _revision(manifest: Manifest) -> ControllerRevision:
    try:
        return decode_controller_revision(orjson.dumps(manifest.object))
    except ValueError as error:
        raise ManifestError(f"{manifest.at()}: ControllerRevision {manifest.name}: {error}") from None


def _whitelist(manifest: Manifest) -> str | None:
    if manifest.name != names.CONFIGURATION_CONFIG_MAP:
        return None
    data = manifest.object.get("data")
    text = data.get(names.PATCH_POD_METADATA_WHITELIST_KEY) if isinstance(data, dict) else None
    return text if isinstance(text, str) else None
