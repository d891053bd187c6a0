"""PersistentPodState controller: records where Pods run, and generates objects for annotated workloads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

from app.api import names
from app.features.persistentpodstate import plan
from app.features.persistentpodstate.custom_workloads import ListedWorkloads
from app.features.persistentpodstate.kind import PERSISTENT_POD_STATE
from app.features.persistentpodstate.plan import Step, Workload, generation, lost, parse_kinds, recording, status_of
from app.features.persistentpodstate.pod_admission import BY_RECORDED_NODE, STATES_BY_NODE, states_of
from app.features.persistentpodstate.types import PersistentPodState
from app.features.persistentpodstate.validation import KNOWN_TARGETS
from app.features.statefulset.kind import STATEFUL_SET
from app.features.statefulset.types import StatefulSet
from app.framework.feature import ControllerContext, Reconciling
from app.framework.watched import CONFIGURATION, NODES, PODS, STATEFULSETS, Watched
from app.kube.client import Client, get_or_none
from app.kube.controller import Result, Watch
from app.kube.discovery import KindMapper
from app.kube.errors import AlreadyExists, ApiError, Conflict, Forbidden, NotFound, message_of
from app.kube.events import EventRecorder, reference
from app.kube.objects import ConfigMap, Node, ObjectReference, Pod, decode_metadata
from app.kube.objects import Workload as NativeWorkload
from app.kube.patches import merge_difference
from app.kube.resources import ObjectKey
from app.kube.statuses import KnownStatus, newest_status, write_status
from app.kube.store import Change, Store, key_of
from app.pods.custom_workloads import ConfiguredList, GroupKind, ListedKind
from app.pods.predicates import BY_CONTROLLER, is_active, is_controlled_by, is_ready

# Generates PersistentPodStates from annotations and writes their status. [PPS-13 … PPS-29]


RESOURCE: Final = PERSISTENT_POD_STATE.resource()
#: Seconds over which changes to Pods and nodes are coalesced.
GATHER: Final = 0.1
#: Seconds until objects that are not watched are read again: unknown nodes, and workloads of custom kinds.
AGAIN: Final = 5.0
#: Seconds between list requests for all workloads of custom kinds.
LIST_AGAIN: Final = 10.0
#: Maximum number of label sets for which one reconcile searches for a matching node.
MAX_SEARCHES: Final = 100
#: Maximum number of deleted Pods kept for one PersistentPodState until they are recorded. Without a limit, they would
#: accumulate if the status were too large to be written.
MAX_GONE: Final = 1_000
_PLACE_LOST: Final = "PlaceLost"
#: Key under which custom kinds are polled.
CONFIGURED: Final = ObjectKey("", names.CONFIGURATION_CONFIG_MAP)


@dataclass(frozen=True, slots=True)
class Caches:
    """Caches that the controller reads."""

    states: Store[PersistentPodState]
    pods: Store[Pod]
    nodes: Store[Node]
    statefulsets: Store[NativeWorkload]
    advanced_statefulsets: Store[StatefulSet]
    configuration: Store[ConfigMap]


@dataclass(frozen=True, slots=True)
class Options:
    """Options set by the operator."""

    #: Whether spec.ordinals.start of an Advanced StatefulSet is respected.
    start_ordinal: bool = False
    #: Whether records that no longer fit any node are removed. [PPS-43]
    forget_lost: bool = False


class PersistentPodStateReconciler:
    """Reconciles PersistentPodStates. ``listed`` returns the kinds on the operator's current list; ``namespace`` is the
    watched namespace, or "" for all."""

    def __init__(
        self,
        client: Client,
        caches: Caches,
        events: EventRecorder,
        listed: Callable[[], Mapping[GroupKind, ListedKind]],
        options: Options,
        namespace: str,
    ) -> None:
        self._client = client
        self._caches = caches
        self._events = events
        self._kinds = listed
        self._options = options
        self._listed = ListedWorkloads(client, KindMapper(client), namespace)
        #: Pods deleted since the last reconcile, in their last ready state. [PPS-46]
        self._gone: dict[ObjectKey, dict[str, Pod]] = {}
        #: Last written status.
        self._written: dict[ObjectKey, KnownStatus] = {}
        #: The last event message per key, by reason, kind and Pod. Events with the same message are not repeated.
        self._last_events: dict[ObjectKey, dict[tuple[str, str, str], str]] = {}

    def of_state(self, change: Change[PersistentPodState]) -> Iterable[ObjectKey]:
        """Return the key of the object, unless the change is the controller's own write."""
        key, new = key_of(change.object), change.new
        written = self._written.get(key)
        if new is not None and written is not None and written.version == new.metadata.resource_version:
            return ()
        return (key,)

    def of_workload(self, view: Callable[[Any], Workload]) -> Callable[[Change[Any]], Iterable[ObjectKey]]:
        """Return a mapper from a workload to the PersistentPodStates that are generated for it or target it."""

        def keys(change: Change[Any]) -> Iterable[ObjectKey]:
            old = view(change.old) if change.old is not None else None
            new = view(change.new) if change.new is not None else None
            one = new or old
            if one is None or (old is not None and old == new):
                return ()
            found = dict.fromkeys(self._keys_of(one.namespace, (one.group, one.kind, one.name)))
            if any(names.AUTO_GENERATE_PERSISTENT_POD_STATE in each.annotations for each in (old, new) if each):
                found[ObjectKey(one.namespace, one.name)] = None
            return found

        return keys

    def of_pod(self, change: Change[Pod]) -> Iterable[ObjectKey]:
        """Return the objects that target the Pod's controller. [PPS-20]"""
        old, new = change.old, change.new
        if old is not None and new is not None and _facts(old) == _facts(new):
            return ()
        controller = change.object.metadata.controller
        if controller is None:
            return ()
        keys = self._keys_of(change.object.metadata.namespace, (controller.group, controller.kind, controller.name))
        if old is not None and is_active(old) and is_ready(old) and (new is None or not is_active(new)):
            for key in keys:
                gone = self._gone.setdefault(key, {})
                if len(gone) < MAX_GONE:
                    gone[old.metadata.name] = old
        return keys

    def of_node(self, change: Change[Node]) -> Iterable[ObjectKey]:
        """Return the objects that record the node, if its labels changed or it was deleted. [PPS-42, PPS-43]"""
        old, new = change.old, change.new
        if new is not None and (old is None or old.metadata.labels == new.metadata.labels):
            return ()
        return [key_of(one) for one in self._caches.states.by_index(BY_RECORDED_NODE, change.object.metadata.name)]

    def of_configuration(self, _change: Change[ConfigMap]) -> Iterable[ObjectKey]:
        """Return the key under which custom kinds are polled."""
        return (CONFIGURED,)

    def _keys_of(self, namespace: str, workload: tuple[str, str, str]) -> list[ObjectKey]:
        return [key_of(one) for one in states_of(self._caches.states, namespace, workload)]

    async def __call__(self, key: ObjectKey) -> Result | None:
        """Reconcile one object, which may still have to be generated. Raises KubeError."""
        if key == CONFIGURED:
            return await self._look_at_list()
        again = [await self._generate(workload) for workload in await self._workloads(key)]
        state = self._caches.states.by_key(key)
        if state is not None and not state.deleting:
            after = await self._record(key, state)
            return Result(requeue=True) if any(again) else Result(requeue_after=after)
        self._gone.pop(key, None)
        self._written.pop(key, None)
        if any(again):
            return Result(requeue=True)
        self._last_events.pop(key, None)
        return None

    async def _look_at_list(self) -> Result | None:
        """Check the annotations of listed workloads, which are not watched. [PPS-44]"""
        kinds = self._kinds()
        for workload in await self._listed.changed(kinds):
            if await self._generate(workload):
                self._listed.forget(workload)
        return Result(requeue_after=LIST_AGAIN) if kinds else None

    async def _workloads(self, key: ObjectKey) -> list[Workload]:
        """Return the workloads of this name that may have a generated object. Raises KubeError."""
        native = self._caches.statefulsets.by_key(key)
        advanced = self._caches.advanced_statefulsets.by_key(key)
        found = [plan.native(native)] if native is not None else []
        found += [self.advanced(advanced)] if advanced is not None else []
        with suppress(Forbidden):  # reported when the Pods are recorded
            listed = await self._listed.of(key)
            state = self._caches.states.by_key(key)
            if not listed and state is not None and state.metadata.owner_references and self._is_listed(state):
                target = await self._listed_target(state)
                listed = [target] if target is not None and target.name == key.name else []
            found += listed
        return found

    def _is_listed(self, state: PersistentPodState) -> bool:
        return state.spec.target_ref.group_kind in self._kinds()

    def advanced(self, found: StatefulSet) -> Workload:
        """Read an Advanced StatefulSet according to the feature gates."""
        return plan.advanced(found, start_ordinal=self._options.start_ordinal)

    async def _generate(self, workload: Workload) -> bool:
        """Carry out the step that the workload's annotations require. Return whether to retry. Raises KubeError."""
        key = ObjectKey(workload.namespace, workload.name)
        present = self._caches.states.by_key(key)
        wanted = generation(workload, present)
        try:
            if wanted.step is Step.CREATE:
                if not await self._still_exists(workload):
                    return False  # the deletion event will follow
                await self._client.create(RESOURCE, wanted.body or {}, key.namespace, decode=decode_metadata)
            elif wanted.step is Step.CHANGE and present is not None:
                seen = {"uid": present.metadata.uid, "resourceVersion": present.metadata.resource_version}
                body = {**(wanted.body or {}), "metadata": seen}
                await self._client.patch(RESOURCE, key.name, body, key.namespace, decode=decode_metadata)
            elif wanted.step is Step.DELETE and present is not None:
                metadata = present.metadata
                uid, version_seen = metadata.uid, metadata.resource_version
                await self._client.delete(RESOURCE, key.name, key.namespace, uid=uid, resource_version=version_seen)
        except AlreadyExists:
            return False  # the cache lags; the watch will deliver the object
        except (Conflict, NotFound):
            return True
        except ApiError as error:
            self._not_generated(workload, message_of(error))
            return True
        if wanted.step is Step.TAKEN:
            why = "the object of this name belongs to another owner. Delete it, or create one with a different name"
            self._not_generated(workload, why)
        return wanted.step is Step.WAIT

    async def _still_exists(self, workload: Workload) -> bool:
        """Return whether a watched workload still exists. The cache may lag, and an object generated for a deleted
        workload would be garbage-collected and generated again in a tight loop."""
        resource = KNOWN_TARGETS.get((workload.group, workload.kind))
        if resource is None:
            return True
        live = await get_or_none(self._client, resource, workload.name, workload.namespace, decode=decode_metadata)
        return live is not None and live.metadata.uid == workload.uid

    async def _record(self, key: ObjectKey, state: PersistentPodState) -> float:
        """Write the status. Return the seconds until the next check, or 0 if none is needed. Raises KubeError."""
        target = state.spec.target_ref
        watched = target.group_kind in KNOWN_TARGETS
        if not watched and not self._is_listed(state):
            return 0.0  # the kind was removed from the list: keep what is recorded
        try:
            workload = self._watched_target(state) if watched else await self._listed_target(state)
        except Forbidden as error:
            text = f"{target.kind} {key.namespace}/{target.name} cannot be read: {message_of(error)}"
            self._record_events(key, reference(RESOURCE, state), "TargetNotReadable", text)
            return AGAIN
        gone = self._gone.pop(key, {})
        try:
            unknown = await self._write(key, state, workload, gone)
        except BaseException:
            self._gone[key] = {**gone, **self._gone.get(key, {})}
            raise
        return AGAIN if unknown or not watched else 0.0

    async def _listed_target(self, state: PersistentPodState) -> Workload | None:
        target = state.spec.target_ref
        key = ObjectKey(state.metadata.namespace, target.name)
        return await self._listed.get(target.api_version, target.kind, key)

    def _watched_target(self, state: PersistentPodState) -> Workload | None:
        target, namespace = state.spec.target_ref, state.metadata.namespace
        if target.group == STATEFUL_SET.group:
            advanced = self._caches.advanced_statefulsets.get(target.name, namespace)
            return self.advanced(advanced) if advanced is not None else None
        native = self._caches.statefulsets.get(target.name, namespace)
        return plan.native(native) if native is not None else None

    async def _write(
        self, key: ObjectKey, state: PersistentPodState, workload: Workload | None, gone: Mapping[str, Pod]
    ) -> bool:
        """Write the status. Return whether Pods run on nodes that are not in the cache."""
        metadata, spec = state.metadata, state.spec
        pods = list(self._caches.pods.by_index(BY_CONTROLLER, workload.owner.index_key)) if workload is not None else []
        former = [
            pod for pod in gone.values() if workload is not None and is_controlled_by(pod.metadata, workload.owner)
        ]
        ready = {pod.metadata.name for pod in pods if is_active(pod) and is_ready(pod)}
        unknown = False

        def difference(status: Mapping[str, Any]) -> Mapping[str, Any]:
            nonlocal unknown
            found = recording(spec, status.get("podStates") or {}, workload, pods, former, self._labels_of)
            unknown = bool(found.unknown_nodes)
            labels = (node.metadata.labels for node in self._caches.nodes.list())
            homeless = lost(spec, found.states, ready, self._labels_of, labels, MAX_SEARCHES)
            self._record_lost(key, state, homeless)
            if homeless and self._options.forget_lost:
                kept = {name: one for name, one in found.states.items() if name not in homeless}
                found = replace(found, states=kept)
            return merge_difference(status, status_of(found, metadata.generation))

        known = newest_status(state, self._written.get(key))
        written = await write_status(self._client, RESOURCE, metadata, known, difference)
        if written is not None:
            self._written[key] = written
        return unknown

    def _labels_of(self, name: str) -> Mapping[str, str] | None:
        node = self._caches.nodes.get(name) if name else None
        return node.metadata.labels if node is not None else None

    def _record_lost(
        self, key: ObjectKey, state: PersistentPodState, homeless: Mapping[str, Mapping[str, str]]
    ) -> None:
        """Record events for Pods that no longer fit any node. [PPS-43]"""
        for name, labels in homeless.items():
            place = ", ".join(f"{label}={value}" for label, value in labels.items())
            way_out = (
                "its record is removed; delete the Pod if it is pending"
                if self._options.forget_lost
                else "a new Pod stays pending until a matching node exists or its entry in status.podStates is removed"
            )
            text = f"Pod {name} was last ready on a node with {place}, which no longer exists: {way_out}"
            self._record_events(key, reference(RESOURCE, state), _PLACE_LOST, text, name)
        told = self._last_events.get(key, {})
        for one in [one for one in told if one[0] == _PLACE_LOST and one[2] not in homeless]:
            del told[one]

    def _not_generated(self, workload: Workload, why: str) -> None:
        """Record that generating an object failed. [PPS-45]"""
        key = ObjectKey(workload.namespace, workload.name)
        text = f"PersistentPodState {key} cannot be generated from the annotations of this {workload.kind}: {why}"
        regarding = ObjectReference(
            api_version=workload.api_version,
            kind=workload.kind,
            namespace=workload.namespace,
            name=workload.name,
            uid=workload.uid,
        )
        self._record_events(key, regarding, "PersistentPodStateNotGenerated", text)

    def _record_events(self, key: ObjectKey, regarding: ObjectReference, reason: str, text: str, pod: str = "") -> None:
        about = reason, f"{regarding.api_version}/{regarding.kind}", pod
        told = self._last_events.setdefault(key, {})
        if told.get(about) != text:
            told[about] = text
            self._events.event(regarding, "Warning", reason, text)


def _facts(pod: Pod) -> tuple[Any, ...]:
    return (
        is_active(pod),
        is_ready(pod),
        pod.spec.node_name,
        pod.metadata.annotations,
        pod.metadata.controller,
    )


# Controller declaration: watches and mappers. [PPS-20]

NAME: Final = "persistentpodstate-controller"
FORGET_LOST: Final = "PersistentPodStateForgetsLostNodes"
START_ORDINAL: Final = "StatefulSetStartOrdinal"

ADVANCED_STATEFUL_SETS: Final = Watched.kind(STATEFUL_SET, StatefulSet)
WATCHED: Final = (STATES_BY_NODE, PODS, NODES, STATEFULSETS, ADVANCED_STATEFUL_SETS, CONFIGURATION)


def persistentpodstate_controller(context: ControllerContext) -> Reconciling:
    """Build the controller."""
    caches = Caches(*map(context.stores, WATCHED))  # type: ignore[arg-type]
    reconciler = PersistentPodStateReconciler(
        context.client,
        caches,
        context.events,
        ConfiguredList(
            caches.configuration, context.own_namespace, names.PPS_CUSTOM_WORKLOAD_WHITELIST_KEY, parse_kinds
        ),
        Options(context.enabled(START_ORDINAL), context.enabled(FORGET_LOST)),
        context.flags.text("namespace"),
    )
    return Reconciling(
        reconciler,
        [
            Watch(caches.states, reconciler.of_state),
            Watch(caches.statefulsets, reconciler.of_workload(plan.native)),
            Watch(caches.advanced_statefulsets, reconciler.of_workload(reconciler.advanced)),
            Watch(caches.nodes, reconciler.of_node, GATHER),
            Watch(caches.configuration, reconciler.of_configuration),
            Watch(caches.pods, reconciler.of_pod, GATHER),
        ],
    )
