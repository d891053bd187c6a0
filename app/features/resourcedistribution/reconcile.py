"""ResourceDistribution controller: writes and removes copies."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Coroutine, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from app.features.resourcedistribution.kind import RESOURCE_DISTRIBUTION
from app.features.resourcedistribution.plan import (
    FIELD_MANAGER,
    NAMESPACE_MISSING,
    RETRIED,
    Failure,
    TargetRule,
    Template,
    TemplateError,
    conflict_reason,
    copies_to_delete,
    existing_namespaces,
    is_copy_of,
    missing_targets,
    newly_failed,
    status_of,
    status_patch,
    update_patch,
)
from app.features.resourcedistribution.types import (
    CONFLICT,
    CREATE_FAILED,
    DELETE_FAILED,
    GET_FAILED,
    NO_NAMESPACE,
    UPDATE_FAILED,
    ResourceDistribution,
)
from app.framework.feature import ControllerContext, Reconciling
from app.framework.watched import NAMESPACES, Scope, Watched
from app.kube.client import Client, get_or_none, retry_conflicts
from app.kube.clock import rfc3339
from app.kube.concurrency import batches
from app.kube.controller import Result, Watch
from app.kube.errors import AlreadyExists, Conflict, KubeError, NotFound, is_namespace_ending, message_of
from app.kube.events import EventRecorder, reference
from app.kube.objects import Metadata, Namespace, decode_metadata
from app.kube.resources import CONFIGMAPS, SECRETS, ObjectKey, Resource
from app.kube.selector_query import SelectorError
from app.kube.statuses import KnownStatus, newest_status, write_status
from app.kube.store import Change, Store
from app.kube.text import first_of
from app.pods.predicates import BY_CONTROLLER, owner_key, refers_to
from app.workloads.settings import WorkloadKind

# Reads caches and copies, applies the plan, and writes the status. [RD-30 … RD-55]

logger = logging.getLogger(__name__)

#: Maximum number of namespaces processed concurrently, as one batch. The first batch has one namespace. [RD-32]
MAX_CONCURRENT_WRITES: Final = 32
#: Maximum number of copies that are read one by one. Beyond that, a single list request is cheaper.
MAX_SINGLE_READS: Final = 4
#: Maximum number of attempts to create a copy if the API server reports AlreadyExists but then returns no object.
CREATE_ATTEMPTS: Final = 3
#: Seconds until a namespace with a conflicting object is retried. [RD-72]
CONFLICT_RETRY_SECONDS: Final = 60.0
#: Seconds to delay a reconcile triggered by copies and namespaces, so that a burst of events causes few reconciles.
COALESCE_SECONDS: Final = 0.1
_KIND: Final = WorkloadKind(RESOURCE_DISTRIBUTION.resource())


@dataclass(frozen=True, slots=True)
class Caches:
    """Caches the controller reads. ``configmaps`` and ``secrets`` contain the metadata of objects controlled by this
    kind."""

    distributions: Store[ResourceDistribution]
    namespaces: Store[Namespace]
    configmaps: Store[Metadata]
    secrets: Store[Metadata]


@dataclass(slots=True)
class _State:
    """State of one ResourceDistribution kept between reconciles. After a restart, it is rebuilt from the API server."""

    uid: str
    generation: int = -1
    rule: TargetRule | None = None
    template: Template | None = None
    #: Namespace → UID and resourceVersion of the copy that was last up to date.
    verified: dict[str, tuple[str, str]] = field(default_factory=dict)
    status: KnownStatus | None = None


class ResourceDistributionReconciler:
    """Maintains the copies of ResourceDistributions."""

    def __init__(self, client: Client, caches: Caches, events: EventRecorder) -> None:
        self._client = client
        self._clock = client.clock
        self._caches = caches
        self._events = events
        self._states: dict[ObjectKey, _State] = {}

    # ---- event mapping (RD-30)

    def keys_for_distribution(self, change: Change[ResourceDistribution]) -> Iterable[ObjectKey]:
        """Return the ResourceDistribution itself unless only its status or metadata changed."""
        old, new = change.old, change.new
        if old is not None and new is not None and old.metadata.generation == new.metadata.generation:
            return ()
        return (ObjectKey("", change.object.name),)

    def keys_for_namespace(self, change: Change[Namespace]) -> Iterable[ObjectKey]:
        """Return the ResourceDistributions for which the namespace is, or was, a target."""
        old, new = change.old, change.new
        if old is not None and new is not None and _same_namespace(old, new):
            return []
        either = [one.metadata for one in (old, new) if one is not None]
        return [
            ObjectKey("", distribution.name)
            for distribution in self._caches.distributions.list()
            if (rule := self._resolved(distribution).rule) is not None
            and any(rule.matches(one.name, one.labels) for one in either)
        ]

    def keys_for_copy(self, change: Change[Metadata]) -> Iterable[ObjectKey]:
        """Return the ResourceDistribution that manages the copy, unless this version of the copy is known to be up to
        date."""
        keys: dict[ObjectKey, None] = {}
        for one in (change.old, change.new):
            reference = _KIND.managing_reference(one.metadata) if one is not None else None
            if reference is None:
                continue
            key = ObjectKey("", reference.name)
            state = self._states.get(key)
            metadata = change.new.metadata if change.new is not None else None
            if (
                metadata is not None
                and state is not None
                and state.template is not None
                and refers_to(reference, metadata.namespace, state.template.controller)
                and state.verified.get(metadata.namespace) == (metadata.uid, metadata.resource_version)
            ):
                continue
            keys[key] = None
        return keys

    # ---- reconcile

    async def __call__(self, key: ObjectKey) -> Result | None:
        """Update the copies and the status of one ResourceDistribution."""
        distribution = self._caches.distributions.get(key.name)
        if distribution is None:
            self._states.pop(key, None)
            return None
        if distribution.deleting:
            return None  # The garbage collector deletes its copies. [RD-40, RD-73]
        state = self._resolved(distribution)
        template = state.template
        if state.rule is None or template is None:
            return None
        namespaces = [one.metadata for one in self._caches.namespaces.list()]
        existing = existing_namespaces(namespaces)
        targets = state.rule.namespaces({one.name: one.labels for one in namespaces})
        if self._lost_copies(state, template, existing) and not await self._still_exists(distribution):
            return None  # the garbage collector deletes the copies; a deletion event follows
        failures = missing_targets(targets, existing)
        failures += await self._bring_up_to_date(state, template, [name for name in targets if name in existing])
        failures += await self._clean_up(state, template, set(targets), existing)
        await self._report(distribution, state, targets, failures)
        kinds = {one.condition for one in failures}
        if kinds & RETRIED:
            return Result(requeue=True)
        return Result(requeue_after=CONFLICT_RETRY_SECONDS) if CONFLICT in kinds else None

    def _resolved(self, distribution: ResourceDistribution) -> _State:
        """Return the state with compiled targets and template, or without them if the spec is invalid. [RD-31]"""
        key = ObjectKey("", distribution.name)
        metadata = distribution.metadata
        state = self._states.get(key)
        if state is None or state.uid != metadata.uid:
            state = self._states[key] = _State(metadata.uid)
        if state.generation == metadata.generation:
            return state
        try:
            template = Template.of(distribution.name, metadata.uid, distribution.spec.resource)
            state.rule = TargetRule.of(distribution.spec.targets)
        except (TemplateError, SelectorError) as error:
            logger.warning("ignoring ResourceDistribution %s: %s", distribution.name, error)
            state.rule = state.template = None
        else:
            if state.template is None or state.template.digest != template.digest:
                state.verified.clear()
            state.template = template
        state.generation = metadata.generation
        return state

    # ---- copies

    def _lost_copies(self, state: _State, template: Template, existing: Collection[str]) -> bool:
        """Return whether an up-to-date copy has disappeared from an existing namespace."""
        copies = self._copies(template).by_index(BY_CONTROLLER, template.controller.index_key)
        present = {one.metadata.namespace for one in copies}
        return any(name in existing and name not in present for name in state.verified)

    async def _still_exists(self, distribution: ResourceDistribution) -> bool:
        """Return whether the ResourceDistribution exists and is not being deleted, according to the API server; the
        cache may lag."""
        resource = RESOURCE_DISTRIBUTION.resource()
        live = await get_or_none(self._client, resource, distribution.name, decode=decode_metadata)
        return (
            live is not None
            and live.metadata.uid == distribution.metadata.uid
            and live.metadata.deletion_timestamp is None
        )

    def _copies(self, template: Template) -> Store[Metadata]:
        return self._caches.secrets if template.resource.kind == "Secret" else self._caches.configmaps

    async def _bring_up_to_date(self, state: _State, template: Template, namespaces: Sequence[str]) -> list[Failure]:
        """Update every existing target. No requests are sent for copies known to be up to date. [RD-33]"""
        present = {
            one.metadata.namespace: (one.metadata.uid, one.metadata.resource_version)
            for one in self._copies(template).by_index(BY_CONTROLLER, template.controller.index_key)
            if one.metadata.deletion_timestamp is None
        }
        for gone in state.verified.keys() - present.keys() - set(namespaces):
            del state.verified[gone]
        open_ = [name for name in namespaces if name not in present or state.verified.get(name) != present[name]]
        unread = [name for name in open_ if name in present]
        read: dict[str, dict[str, Any]] = {}
        if len(unread) > MAX_SINGLE_READS:
            try:
                read = await self._read_all(template)
            except KubeError as error:
                return [Failure(name, GET_FAILED, message_of(error)) for name in open_]
        return await self._in_batches(
            [self._one(state, template, name, name in present, read.get(name)) for name in open_]
        )

    async def _read_all(self, template: Template) -> dict[str, dict[str, Any]]:
        """Return all objects of the template's kind and name by namespace."""
        found = await self._client.list(template.resource, field_selector=f"metadata.name={template.name}", decode=None)
        return {one["metadata"]["namespace"]: one for one in found.items}

    async def _one(
        self, state: _State, template: Template, namespace: str, exists: bool, copy: dict[str, Any] | None
    ) -> Failure | None:
        """Update one target. ``exists`` is set if the cache has our copy; ``copy`` is the object as read."""
        for _ in range(CREATE_ATTEMPTS):
            try:
                if exists and copy is None:
                    copy = await self._client.get(template.resource, template.name, namespace)
            except NotFound:
                logger.debug("%s %s/%s was deleted concurrently", template.resource.kind, namespace, template.name)
            except KubeError as error:
                return Failure(namespace, GET_FAILED, message_of(error))
            if copy is not None:
                return await self._update(state, template, namespace, copy)
            try:
                return await self._create(state, template, namespace)
            except AlreadyExists:
                exists = True  # the object may be deleted before it is read
        what = f"{template.resource.kind} {namespace}/{template.name}"
        return Failure(
            namespace, CREATE_FAILED, f"{what} existed on every attempt to create it, but not when it was read"
        )

    async def _create(self, state: _State, template: Template, namespace: str) -> Failure | None:
        """Create the copy. Raises AlreadyExists."""
        try:
            made = await self._client.create(
                template.resource,
                template.copy(namespace),
                namespace,
                field_manager=FIELD_MANAGER,
                decode=decode_metadata,
            )
        except AlreadyExists:
            raise
        except NotFound:
            return Failure(namespace, NO_NAMESPACE, NAMESPACE_MISSING)
        except KubeError as error:
            if is_namespace_ending(error):
                return Failure(namespace, NO_NAMESPACE, NAMESPACE_MISSING)
            return Failure(namespace, CREATE_FAILED, message_of(error))
        state.verified[namespace] = (made.metadata.uid, made.metadata.resource_version)
        return None

    async def _update(self, state: _State, template: Template, namespace: str, copy: dict[str, Any]) -> Failure | None:
        resource, name = template.resource, template.name

        async def update(attempt: int) -> Failure | None:
            try:
                live = await self._client.get(resource, name, namespace) if attempt else copy
            except KubeError as error:
                return Failure(namespace, GET_FAILED, message_of(error))
            metadata = live["metadata"]
            state.verified.pop(namespace, None)
            if not is_copy_of(live, template):
                reason = conflict_reason(namespace, resource.api_version, resource.kind, name)
                return Failure(namespace, CONFLICT, reason)
            patch = update_patch(template, live)
            if not patch:
                state.verified[namespace] = (metadata["uid"], metadata["resourceVersion"])
                return None
            # UID and resourceVersion make the patch conflict after a concurrent write, so that the copy is read again.
            known = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
            patch["metadata"] = {**patch.get("metadata", {}), **known}
            written = await self._client.patch(
                resource, name, patch, namespace, field_manager=FIELD_MANAGER, decode=decode_metadata
            )
            state.verified[namespace] = (written.metadata.uid, written.metadata.resource_version)
            return None

        try:
            return await retry_conflicts(self._client, update)
        except KubeError as error:
            return Failure(namespace, UPDATE_FAILED, message_of(error))

    async def _clean_up(
        self, state: _State, template: Template, targets: set[str], existing: set[str]
    ) -> list[Failure]:
        copies = self._copies(template).by_index(BY_CONTROLLER, template.controller.index_key)
        left = copies_to_delete((one.metadata for one in copies), template, targets, existing)

        async def delete(name: str, namespace: str, uid: str) -> Failure | None:
            try:
                with suppress(NotFound, Conflict):  # it is gone, or the name belongs to another object
                    await self._client.delete(template.resource, name, namespace, uid=uid, decode=decode_metadata)
            except KubeError as error:
                return Failure(namespace, DELETE_FAILED, message_of(error))
            state.verified.pop(namespace, None)
            return None

        return await self._in_batches([delete(one.name, one.namespace, one.uid) for one in left])

    async def _in_batches(self, work: Sequence[Coroutine[Any, Any, Failure | None]]) -> list[Failure]:
        """Run the work in batches of 1, 2, 4, 8, … A failure does not stop later batches. [RD-32]"""
        failures: list[Failure] = []
        for batch in batches(work, MAX_CONCURRENT_WRITES):
            failures += [failure for failure in await asyncio.gather(*batch) if failure is not None]
        return failures

    # ---- status and events

    async def _report(
        self, distribution: ResourceDistribution, state: _State, targets: Sequence[str], failures: Sequence[Failure]
    ) -> None:
        now = rfc3339(self._clock.now())
        metadata = distribution.metadata
        present = newest_status(distribution, state.status)

        def difference(status: Any) -> dict[str, Any]:
            return status_patch(status_of(targets, failures, status, metadata.generation, now), status)

        wanted = status_of(targets, failures, present.status, metadata.generation, now)
        self._record_events(distribution, newly_failed(wanted, present.status), failures)
        resource = RESOURCE_DISTRIBUTION.resource()
        state.status = await write_status(self._client, resource, metadata, present, difference) or state.status

    def _record_events(
        self, distribution: ResourceDistribution, conditions: Iterable[str], failures: Sequence[Failure]
    ) -> None:
        """Record a Warning for each new failure. [RD-76]"""
        regarding = reference(RESOURCE_DISTRIBUTION.resource(), distribution)
        for condition in conditions:
            failed = [one for one in failures if one.condition == condition]
            places = first_of(sorted(one.namespace for one in failed), 10)
            self._events.event(regarding, "Warning", condition, f"in {places}: {failed[-1].reason}")


def managing_distribution(copy: Metadata) -> list[str]:
    """Index function for copies: the ResourceDistribution that manages the object, if any."""
    reference = _KIND.managing_reference(copy.metadata)
    return [owner_key(reference, "")] if reference is not None else []


def _same_namespace(old: Namespace, new: Namespace) -> bool:
    still = (old.metadata.deletion_timestamp is None) == (new.metadata.deletion_timestamp is None)
    return still and old.metadata.labels == new.metadata.labels


NAME: Final = "resourcedistribution-controller"
DISTRIBUTIONS: Final = Watched.kind(RESOURCE_DISTRIBUTION, ResourceDistribution)


def _copies(name: str, resource: Resource) -> Watched[Metadata]:
    return Watched(
        name,
        resource,
        decode_metadata,
        Scope.CLUSTER,
        indexes={BY_CONTROLLER: managing_distribution},
        keep=lambda copy: bool(managing_distribution(copy)),
    )


COPIES_OF_CONFIG_MAPS: Final = _copies("ConfigMaps that are distributed", CONFIGMAPS)
COPIES_OF_SECRETS: Final = _copies("Secrets that are distributed", SECRETS)
WATCHED: Final = (DISTRIBUTIONS, NAMESPACES, COPIES_OF_CONFIG_MAPS, COPIES_OF_SECRETS)


def resourcedistribution_controller(context: ControllerContext) -> Reconciling:
    """Return the ResourceDistribution controller."""
    caches = Caches(*map(context.stores, WATCHED))  # type: ignore[arg-type]
    reconciler = ResourceDistributionReconciler(context.client, caches, context.events)
    return Reconciling(
        reconciler,
        [
            Watch(caches.namespaces, reconciler.keys_for_namespace, COALESCE_SECONDS),
            Watch(caches.configmaps, reconciler.keys_for_copy, COALESCE_SECONDS),
            Watch(caches.secrets, reconciler.keys_for_copy, COALESCE_SECONDS),
            Watch(caches.distributions, reconciler.keys_for_distribution),
        ],
    )
