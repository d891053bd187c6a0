"""NodePodProbe controller: maintains one object per node, drops the probes of Pods that are gone, and marks Pods with
the results. [PPM-20 … PPM-27]"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import Any

from app.features.podprobe.objects import BY_MARKER, BY_POD, NODE_POD_PROBES, NodePodProbe
from app.features.podprobe.plan.probes import Marks, marks_of
from app.features.podprobe.reconcile.markers import change_probes
from app.features.podprobe.types import PodProbeMarker
from app.kube.client import Client, PatchType, get_or_none
from app.kube.errors import KubeError, NotFound
from app.kube.expectations import is_at_least
from app.kube.objects import Node, Pod, decode_metadata, decode_pod
from app.kube.resources import PODS, ObjectKey
from app.kube.statuses import create_for_node, delete_without_node
from app.kube.store import Change, Store, key_of
from app.pods.node_agents import is_ready, may_run_agent
from app.pods.predicates import is_active

logger = logging.getLogger(__name__)


class NodePodProbeReconciler:
    """Reconciles NodePodProbes."""

    def __init__(
        self,
        client: Client,
        nodes: Store[Node],
        node_pod_probes: Store[NodePodProbe],
        pods: Store[Pod],
        markers: Store[PodProbeMarker],
    ) -> None:
        self._client = client
        self._nodes = nodes
        self._node_pod_probes = node_pod_probes
        self._pods = pods
        self._markers = markers
        #: The resource version after we last patched a Pod, by its UID, until the cache has caught up; None if the
        #: API server did not respond.
        self._marked: dict[str, str | None] = {}

    # ---- event mapping

    def keys_for_node(self, change: Change[Node]) -> Iterable[ObjectKey]:
        """Return the node if its NodePodProbe may have to be created or deleted. [PPM-20]"""
        node, name = change.new, change.object.metadata.name
        present = self._node_pod_probes.get(name) is not None
        if not may_run_agent(node):
            return (ObjectKey("", name),) if present else ()
        return (ObjectKey("", name),) if node is not None and not present and is_ready(node) else ()

    def keys_for_pod(self, change: Change[Pod]) -> Iterable[ObjectKey]:
        """Return the nodes that still probe a Pod that is gone. [PPM-21]"""
        uid = change.object.metadata.uid
        if change.new is None or self._shows_marks(change.new):
            self._marked.pop(uid, None)
        if change.new is not None and is_active(change.new):
            return ()
        found = self._node_pod_probes.by_index(BY_POD, uid)
        return [ObjectKey("", one.metadata.name) for one in found]

    def keys_for_marker(self, change: Change[PodProbeMarker]) -> Iterable[ObjectKey]:
        """Return the nodes that run probes of a marker whose spec changed."""
        old, new = change.old, change.new
        if old is None or new is None or old.metadata.generation == new.metadata.generation:
            return ()
        found = self._node_pod_probes.by_index(BY_MARKER, str(key_of(new)))
        return [ObjectKey("", one.metadata.name) for one in found]

    # ---- reconcile

    async def __call__(self, key: ObjectKey) -> None:
        node, node_pod_probe = self._nodes.get(key.name), self._node_pod_probes.get(key.name)
        if not may_run_agent(node):
            if node_pod_probe is not None and not node_pod_probe.deleting:
                await delete_without_node(self._client, NODE_POD_PROBES, node_pod_probe.metadata, self._nodes)
            return
        if node_pod_probe is None:
            if node is not None and is_ready(node):
                await create_for_node(self._client, NODE_POD_PROBES, key.name)
            return
        if node_pod_probe.deleting:
            return
        gone = await self._gone(node_pod_probe)
        if gone:
            await self._drop(node_pod_probe, gone)
        errors = await self._apply(node_pod_probe)
        if errors:
            raise errors[0]

    async def _gone(self, node_pod_probe: NodePodProbe) -> set[str]:
        """Return the UIDs of Pods that are gone. Pods missing from the cache are looked up on the API server.
        [PPM-22]"""
        gone = set()
        for entry in node_pod_probe.spec.pod_probes:
            pod = self._pods.get(entry.name, entry.namespace)
            if pod is None:
                with suppress(ValueError):  # an entry without a namespace
                    pod = await get_or_none(self._client, PODS, entry.name, entry.namespace, decode=decode_pod)
            if pod is None or pod.metadata.uid != entry.uid or not is_active(pod):
                gone.add(entry.uid)
        return gone

    async def _drop(self, node_pod_probe: NodePodProbe, gone: set[str]) -> None:
        def drop(spec: dict[str, Any]) -> None:
            left = [entry for entry in spec.get("podProbes") or () if entry.get("uid") not in gone]
            spec["podProbes"] = left
            if not left:
                del spec["podProbes"]

        await change_probes(self._client, node_pod_probe.metadata.name, drop)

    # ---- results

    async def _apply(self, node_pod_probe: NodePodProbe) -> list[KubeError]:
        """Mark Pods with the results. Results apply only to Pods on the node that reports them, and only for requested
        probes. A Pod that cannot be written does not block the others. [PPM-23 … PPM-26]"""
        asked = {entry.uid: frozenset(probe.name for probe in entry.probes) for entry in node_pod_probe.spec.pod_probes}
        errors = []
        for status in node_pod_probe.status.pod_probe_statuses:
            pod = self._pods.get(status.name, status.namespace)
            if pod is None or pod.metadata.uid != status.uid or not is_active(pod):
                self._marked.pop(status.uid, None)
                continue
            if pod.spec.node_name != node_pod_probe.metadata.name:
                continue
            marker_of = partial(self._markers.get, namespace=status.namespace)
            marks = marks_of(status.probe_states, asked.get(status.uid, frozenset()), marker_of)
            try:
                await self._mark(pod, marks)
            except KubeError as error:
                logger.warning("Pod %s cannot be marked: %s", key_of(pod), error)
                errors.append(error)
        return errors

    async def _mark(self, pod: Pod, marks: Marks) -> None:
        """Patch metadata and conditions of the Pod with this UID. Until the cache has caught up with our last patch,
        the next one contains all marks, because the cached state may match while the live Pod does not. [PPM-26]"""
        metadata = pod.metadata
        shown = pod if self._shows_marks(pod) else None
        change, conditions = marks.metadata_patch(shown), marks.condition_patch(shown)
        try:
            if change:
                body: dict[str, Any] = {"metadata": {"uid": metadata.uid, **change}}
                await self._patch(pod, body)
            if conditions:
                quiet = [{**one, "message": one["message"] or None} for one in conditions]
                body = {"metadata": {"uid": metadata.uid}, "status": {"conditions": quiet}}
                await self._patch(pod, body, kind=PatchType.STRATEGIC, subresource="status")
        except NotFound:
            logger.debug("Pod %s is gone", key_of(pod))
            self._marked.pop(metadata.uid, None)

    def _shows_marks(self, pod: Pod) -> bool:
        """Return whether the Pod is at least as new as our last patch."""
        metadata = pod.metadata
        if metadata.uid not in self._marked:
            return True
        version = self._marked[metadata.uid]
        return version is not None and is_at_least(metadata.resource_version, version)

    async def _patch(self, pod: Pod, body: dict[str, Any], **how: Any) -> None:
        metadata = pod.metadata
        self._marked[metadata.uid] = None
        written = await self._client.patch(PODS, metadata.name, body, metadata.namespace, decode=decode_metadata, **how)
        self._marked[metadata.uid] = written.metadata.resource_version
