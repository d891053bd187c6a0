"""PodProbeMarker controller: writes the probes that each node must run. [PPM-10 … PPM-15, PPM-31]"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from app.api import names
from app.features.podprobe.kind import POD_PROBE_MARKER
from app.features.podprobe.objects import BY_MARKER, NODE_POD_PROBES, NodePodProbe
from app.features.podprobe.plan.probes import (
    MAX_BYTES,
    RenderedProbe,
    impossible,
    is_probed,
    marks_of_conditions,
    matching,
    pod_probes,
    rendered,
    replace_probes,
    stored_probes,
)
from app.features.podprobe.types import SEPARATOR, PodProbeMarker
from app.framework.watched import BY_NAMESPACE
from app.kube.client import Client, retry_conflicts
from app.kube.controller import Result
from app.kube.errors import NotFound
from app.kube.events import EventRecorder, reference
from app.kube.objects import Node, Pod, decode_metadata
from app.kube.patches import merge_difference
from app.kube.resources import ObjectKey
from app.kube.selector_query import SelectorError
from app.kube.selectors import Selector, compile_selector, label_keys, selector_keys
from app.kube.statuses import KnownStatus, newest_status, patch_pod_metadata, write_status
from app.kube.store import Change, Store, key_of
from app.pods.node_agents import is_virtual

Json = dict[str, Any]


async def change_probes(client: Client, node: str, edit: Callable[[Json], object]) -> None:
    """Change the spec of a node's NodePodProbe with ``edit``, which works in place. Do nothing if the node has no
    NodePodProbe."""

    async def change(_: int) -> None:
        live: Json = await client.get(NODE_POD_PROBES, node)
        before = live.get("spec") or {}
        edited = dict(before)
        edit(edited)
        if patch := merge_difference(before, edited):
            known = {"uid": live["metadata"]["uid"], "resourceVersion": live["metadata"]["resourceVersion"]}
            await client.patch(NODE_POD_PROBES, node, {"metadata": known, "spec": patch}, decode=decode_metadata)

    with suppress(NotFound):
        await retry_conflicts(client, change)


logger = logging.getLogger(__name__)

MARKERS: Final = POD_PROBE_MARKER.resource()
#: Seconds over which changes to Pods are coalesced.
COALESCE_SECONDS: Final = 0.2
#: Maximum number of problems with a marker that are reported at once.
_MAX_EVENTS: Final = 5
#: Seconds until probes that did not fit are retried, in case other namespaces use less space by then.
ROOM_SECONDS: Final = 60.0


#: Name of the index of markers by a requirement in their selector.
BY_SELECTOR: Final = "by-selector"


def by_namespace(marker: PodProbeMarker) -> list[str]:
    """Index markers by namespace."""
    return [marker.metadata.namespace]


def by_selector(marker: PodProbeMarker) -> Sequence[str]:
    """Index markers by selector, to find the candidates for a Pod. An invalid selector matches no Pod."""
    try:
        return selector_keys(marker.metadata.namespace, compile_selector(marker.spec.selector))
    except SelectorError:
        return ()


@dataclass(frozen=True, slots=True)
class Caches:
    """Caches the controller reads."""

    markers: Store[PodProbeMarker]
    pods: Store[Pod]
    nodes: Store[Node]
    node_pod_probes: Store[NodePodProbe]


class PodProbeMarkerReconciler:
    """Reconciles PodProbeMarkers."""

    def __init__(self, client: Client, caches: Caches, events: EventRecorder, *, serverless: bool) -> None:
        self._client = client
        self._caches = caches
        self._events = events
        self._serverless = serverless
        #: Compiled selectors, by marker UID.
        self._selectors: dict[str, Selector | None] = {}
        #: Reported problems, by marker UID.
        self._last_events: dict[str, set[str]] = {}
        #: Last written statuses that the cache has not caught up with, by marker UID.
        self._statuses: dict[str, KnownStatus] = {}

    # ---- event mapping

    def keys_for_marker(self, change: Change[PodProbeMarker]) -> Iterable[ObjectKey]:
        old, new = change.old, change.new
        if old is None or new is None or old.metadata.generation != new.metadata.generation:
            self._selectors.pop(change.object.metadata.uid, None)
            self._last_events.pop(change.object.metadata.uid, None)
        if new is None:
            self._statuses.pop(change.object.metadata.uid, None)
        return (key_of(change.object),)

    def keys_for_pod(self, change: Change[Pod]) -> Iterable[ObjectKey]:
        """Return the markers that select the Pod, or selected it before the change. If only its labels changed, return
        only the markers that started or stopped selecting it: two markers that set a label to different values would
        otherwise trigger each other. [PPM-10, PPM-41]"""
        old, new = change.old, change.new
        if old is None or new is None or not self._same(old, new):
            return sorted({key for pod in (old, new) if pod is not None for key in self._selecting(pod)})
        if old.metadata.labels == new.metadata.labels:
            return ()
        return sorted(self._selecting(old) ^ self._selecting(new))

    def _selecting(self, pod: Pod) -> set[ObjectKey]:
        labels = pod.metadata.labels
        return {
            key_of(marker)
            for key in label_keys(pod.metadata.namespace, labels)
            for marker in self._caches.markers.by_index(BY_SELECTOR, key)
            if (selector := self._selector(marker)) is not None and selector.matches(labels)
        }

    def keys_for_node(self, change: Change[Node]) -> Iterable[ObjectKey]:
        """Return the markers that may have Pods on a node that was added, removed or became virtual."""
        old, new = change.old, change.new
        if old is not None and new is not None and is_virtual(old) == is_virtual(new):
            return ()
        return map(key_of, self._caches.markers.list())

    def keys_for_node_pod_probe(self, change: Change[NodePodProbe]) -> Iterable[ObjectKey]:
        """Return all markers for a new NodePodProbe, which still lacks their probes. For a changed one, return the
        markers whose probes changed, because a reconcile may have compared them with an older copy. [PPM-42]"""
        old, new = change.old, change.new
        if old is None:
            return map(key_of, self._caches.markers.list())
        if new is None or old.spec == new.spec:
            return ()
        before, after = ({(pod.namespace, pod.uid): pod for pod in one.spec.pod_probes} for one in (old, new))
        changed = [pod for pod in old.spec.pod_probes if after.get((pod.namespace, pod.uid)) != pod]
        changed += [pod for pod in new.spec.pod_probes if before.get((pod.namespace, pod.uid)) != pod]
        keys = (ObjectKey(pod.namespace, probe.name.partition(SEPARATOR)[0]) for pod in changed for probe in pod.probes)
        return [key for key in dict.fromkeys(keys) if key in self._caches.markers]

    def _same(self, old: Pod, new: Pod) -> bool:
        """Return whether everything except labels that affects the Pod's probes and marks is unchanged."""
        return (
            old.status.pod_ip == new.status.pod_ip
            and is_probed(old) == is_probed(new)
            and not (self._serverless and old.status.conditions != new.status.conditions)
        )

    def _selector(self, marker: PodProbeMarker) -> Selector | None:
        uid = marker.metadata.uid
        if uid not in self._selectors:
            try:
                self._selectors[uid] = compile_selector(marker.spec.selector)
            except SelectorError as error:
                logger.warning("ignoring PodProbeMarker %s: %s", key_of(marker), error)
                self._selectors[uid] = None
        return self._selectors[uid]

    # ---- reconcile

    async def __call__(self, key: ObjectKey) -> Result | None:
        marker = self._caches.markers.by_key(key)
        selector = self._selector(marker) if marker is not None else None
        if marker is None or selector is None:
            return None
        by_node: dict[str, list[Pod]] = defaultdict(list)
        serverless = []
        for pod in matching(selector, self._caches.pods.by_index(BY_NAMESPACE, key.namespace)):
            node = self._caches.nodes.get(pod.spec.node_name)
            if node is not None and is_virtual(node):
                serverless.append(pod)
            elif node is not None:
                by_node[pod.spec.node_name].append(pod)
        metadata, known = marker.metadata, newest_status(marker, self._statuses.get(marker.metadata.uid or ""))
        if marker.deleting:
            await self._write(marker, [], {}, by_node, leaving=True)
            if names.NODE_POD_PROBE_CLEANUP in metadata.finalizers:
                left = [one for one in metadata.finalizers if one != names.NODE_POD_PROBE_CLEANUP]
                await self._set_finalizers(marker, known, left)
            return None
        # If the cache does not have our last write yet, the finalizer is already set.
        if names.NODE_POD_PROBE_CLEANUP not in metadata.finalizers and metadata.uid not in self._statuses:
            finalizers = [*metadata.finalizers, names.NODE_POD_PROBE_CLEANUP]
            known = await self._set_finalizers(marker, known, finalizers)
        probes = [rendered(one) for one in marker.spec.probes]
        wrong = impossible(probes, (pod for pods in by_node.values() for pod in pods))
        full = await self._write(marker, probes, by_node, by_node)
        self._record_events(marker, wrong | full)
        if self._serverless:
            for pod in serverless:
                await self._mark(marker, pod)
        await self._report(marker, known, sum(map(len, by_node.values())) + len(serverless))
        # No event reports that another namespace uses less space.
        return Result(requeue_after=ROOM_SECONDS) if full else None

    async def _write(
        self,
        marker: PodProbeMarker,
        rendered_probes: Sequence[RenderedProbe],
        wanted: Mapping[str, Sequence[Pod]],
        nodes: Iterable[str],
        *,
        leaving: bool = False,
    ) -> dict[str, str]:
        """Ensure that the marker probes exactly the ``wanted`` Pods. Check ``nodes`` and those that have probes of the
        marker according to the cache. Return a message for each node where the probes do not fit.

        If the marker is being deleted, the live object of every node is checked, because a probe that is not in the
        cache yet would otherwise never be removed.
        """
        full: dict[str, str] = {}
        namespace, name = marker.metadata.namespace, marker.name
        there = self._caches.node_pod_probes.by_index(BY_MARKER, f"{namespace}/{name}")
        for node in sorted({*(one.metadata.name for one in there), *nodes}):
            cached = self._caches.node_pod_probes.get(node)
            if cached is None:
                continue  # Its creation event is still to come. [PPM-42]
            probes, left = pod_probes(name, rendered_probes, wanted.get(node, ()))
            changes, without = _preview(stored_probes(cached, namespace), namespace, name, probes)
            if changes and not leaving:
                # Entries of other namespaces affect only the space left, so convert them only if something changes.
                changes, without = _preview(stored_probes(cached, None), namespace, name, probes)
            if changes or leaving:
                without = await self._change(node, namespace, name, probes)
            if without:
                count = len(without) + left
                full[node] = (
                    f"node {node}: no room for the probes of {count} Pods, such as {without[0]}: of a node's "
                    f"{MAX_BYTES} bytes for probes, one namespace may use half of what other namespaces leave free; "
                    "use shorter or fewer probes"
                )
        return full

    async def _change(self, node: str, namespace: str, marker: str, probes: Mapping[str, Json]) -> list[str]:
        """Update one node. Return the names of the Pods whose probes do not fit."""
        without: list[str] = []

        def edit(spec: Json) -> None:
            without[:] = replace_probes(spec, namespace, marker, probes)

        await change_probes(self._client, node, edit)
        return without

    def _record_events(self, marker: PodProbeMarker, wrong: Mapping[str, str]) -> None:
        """Record an event for each problem, but only once while it lasts. [PPM-46, PPM-47]"""
        told = self._last_events.pop(marker.metadata.uid, set())
        for what in sorted(wrong.keys() - told)[:_MAX_EVENTS]:
            self._events.event(reference(MARKERS, marker), "Warning", "NotProbed", wrong[what])
        if wrong:
            self._last_events[marker.metadata.uid] = set(wrong)

    async def _mark(self, marker: PodProbeMarker, pod: Pod) -> None:
        """Mark a serverless Pod according to its conditions. [PPM-31]"""
        change = marks_of_conditions(marker, pod).metadata_patch(pod)
        if change:
            await patch_pod_metadata(self._client, pod, change)

    async def _set_finalizers(self, marker: PodProbeMarker, known: KnownStatus, finalizers: list[str]) -> KnownStatus:
        """Set the finalizers, and return the known status with the new resource version."""
        metadata = marker.metadata
        body = {"metadata": {"uid": metadata.uid, "resourceVersion": known.version, "finalizers": finalizers or None}}
        try:
            written = await self._client.patch(MARKERS, metadata.name, body, metadata.namespace, decode=decode_metadata)
        except NotFound:
            return known
        found = self._statuses[metadata.uid] = KnownStatus(known.status, written.metadata.resource_version)
        return found

    async def _report(self, marker: PodProbeMarker, known: KnownStatus, matched: int) -> None:
        """Write the status if it changed. [PPM-15]"""
        wanted = {"observedGeneration": marker.metadata.generation, "matchedPods": matched}
        if not known.status.get("matchedPods") and not matched:
            # A missing number and zero are equivalent.
            known = KnownStatus({**known.status, "matchedPods": matched}, known.version)
        written = await write_status(
            self._client,
            MARKERS,
            marker.metadata,
            known,
            lambda status: {key: value for key, value in wanted.items() if status.get(key) != value},
        )
        if written is not None:
            self._statuses[marker.metadata.uid] = written


def _preview(present: Json, namespace: str, marker: str, probes: Mapping[str, Json]) -> tuple[bool, list[str]]:
    """Return whether the marker's probes change these entries, and the names of the Pods whose probes do not fit."""
    edited = dict(present)
    without = replace_probes(edited, namespace, marker, probes)
    return edited.get("podProbes", []) != present["podProbes"], without
