"""The manager's caches: which kinds it watches, and the questions admission asks of them.

Admission needs SidecarSets, Namespaces and the revisions of the own namespace; Pods are watched for the controllers
only, so that a process that serves webhooks alone holds none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import Any

from app.api import names
from app.api.cloneset import CLONE_SET, CloneSet
from app.api.sidecarset import SIDECAR_SET, SidecarSet
from app.kube.client import Client
from app.kube.errors import KubeError
from app.kube.objects import (
    ControllerRevision,
    Namespace,
    PersistentVolumeClaim,
    Pod,
    decode_controller_revision,
    decode_namespace,
    decode_persistent_volume_claim,
    decode_pod,
)
from app.kube.reflector import Reflector, ReflectorMetrics
from app.kube.resources import CONTROLLERREVISIONS, NAMESPACES, PERSISTENTVOLUMECLAIMS, PODS
from app.kube.store import Change, Store
from app.sidecars.sidecarset.controller import REVISION_SELECTOR
from app.sidecars.sidecarset.reconcile import INJECTED_BY, by_injecting_set
from app.sidecars.sidecarset.record import RECORDED_SET, by_recorded_set
from app.sidecars.sidecarset.selection import SidecarSetIndex
from app.workloads.cloneset import controller as cloneset
from app.workloads.cloneset.reconcile import CloneSetCaches
from app.workloads.engine.kind import OWNER


class Caches:
    """Stores and the reflectors that fill them. ``own_namespace`` is where revisions live."""

    def __init__(self, own_namespace: str) -> None:
        self.own_namespace = own_namespace
        self.sidecarsets: Store[SidecarSet] = Store()
        self.namespaces: Store[Namespace] = Store()
        self.revisions: Store[ControllerRevision] = Store(indexes={RECORDED_SET: by_recorded_set})
        self.pods: Store[Pod] = Store(indexes={INJECTED_BY: by_injecting_set, OWNER: cloneset.POD_OWNER})
        self.clonesets: Store[CloneSet] = Store()
        self.claims: Store[PersistentVolumeClaim] = Store(indexes={OWNER: cloneset.CLAIM_OWNER})
        self.workload_revisions: Store[ControllerRevision] = Store(indexes={OWNER: cloneset.REVISION_OWNER})
        self.index = SidecarSetIndex()
        self.sidecarsets.subscribe(self._index_sidecarset)

    @property
    def by_name(self) -> Mapping[str, Store[Any]]:
        """All stores, by what a person calls them."""
        return {
            **self.for_admission,
            "Pods": self.pods,
            "CloneSets": self.clonesets,
            "PersistentVolumeClaims": self.claims,
            "ControllerRevisions of workloads": self.workload_revisions,
        }

    @property
    def for_admission(self) -> Mapping[str, Store[Any]]:
        """The stores that must be filled before a review can be judged, by what a person calls them."""
        return {
            "SidecarSets": self.sidecarsets,
            "Namespaces": self.namespaces,
            "ControllerRevisions": self.revisions,
        }

    def common_reflectors(self, client: Client, rng: Random, metrics: ReflectorMetrics) -> Sequence[Reflector[Any]]:
        """What fills the stores that admission and controllers read, to be run as tasks."""
        return (
            Reflector(
                client,
                SIDECAR_SET.resource(),
                self.sidecarsets,
                decode=SidecarSet.model_validate_json,
                rng=rng,
                metrics=metrics,
            ),
            Reflector(client, NAMESPACES, self.namespaces, decode=decode_namespace, rng=rng, metrics=metrics),
            Reflector(
                client,
                CONTROLLERREVISIONS,
                self.revisions,
                decode=decode_controller_revision,
                rng=rng,
                namespace=self.own_namespace,
                label_selector=REVISION_SELECTOR,
                metrics=metrics,
            ),
        )

    @property
    def for_clonesets(self) -> CloneSetCaches:
        """What the CloneSet controller reads."""
        return CloneSetCaches(self.clonesets, self.pods, self.claims, self.workload_revisions)

    def controller_reflectors(
        self, client: Client, rng: Random, metrics: ReflectorMetrics, namespace: str
    ) -> Sequence[Reflector[Any]]:
        """What fills the stores that only controllers read, of one namespace or (empty) of all."""
        return (
            Reflector(client, PODS, self.pods, decode=decode_pod, rng=rng, namespace=namespace, metrics=metrics),
            Reflector(
                client,
                CLONE_SET.resource(),
                self.clonesets,
                decode=CloneSet.model_validate_json,
                rng=rng,
                namespace=namespace,
                metrics=metrics,
            ),
            Reflector(
                client,
                PERSISTENTVOLUMECLAIMS,
                self.claims,
                decode=decode_persistent_volume_claim,
                rng=rng,
                namespace=namespace,
                label_selector=cloneset.CLAIM_SELECTOR,
                metrics=metrics,
            ),
            Reflector(
                client,
                CONTROLLERREVISIONS,
                self.workload_revisions,
                decode=decode_controller_revision,
                rng=rng,
                namespace=namespace,
                label_selector=cloneset.REVISION_SELECTOR,
                metrics=metrics,
            ),
        )

    def _index_sidecarset(self, change: Change[SidecarSet]) -> None:
        if change.new is not None:
            self.index.update(change.new.to_dict())
        elif change.old is not None:
            self.index.remove(change.old.metadata.name)


class InjectionLookups:
    """What injection asks: the caches first, the API server where they are behind."""

    def __init__(self, caches: Caches, client: Client) -> None:
        self._caches = caches
        self._client = client

    def namespace_labels(self, namespace: str) -> Mapping[str, str] | None:
        """Labels of a cached namespace."""
        found = self._caches.namespaces.get(namespace)
        return None if found is None else found.metadata.labels

    def revisions(self, set_name: str) -> Iterable[ControllerRevision]:
        """Cached revisions of a set."""
        return self._caches.revisions.by_index(RECORDED_SET, set_name)

    async def live_sidecarset(self, name: str) -> Mapping[str, Any] | None:
        """A SidecarSet as the API server has it now; None if it cannot be read."""
        try:
            found: Mapping[str, Any] = await self._client.get(SIDECAR_SET.resource(), name)
        except KubeError:
            return None
        return found

    async def live_namespace_labels(self, namespace: str) -> Mapping[str, str] | None:
        """Labels of a namespace as the API server has it now; None if it cannot be read (SS-35)."""
        try:
            found = await self._client.get(NAMESPACES, namespace, decode=decode_namespace)
        except KubeError:
            return None
        return found.metadata.labels

    async def live_revisions(self, set_name: str) -> Iterable[ControllerRevision]:
        """Revisions of a set as the API server has them now; none if they cannot be read."""
        try:
            listing = await self._client.list(
                CONTROLLERREVISIONS,
                self._caches.own_namespace,
                label_selector=f"{names.SIDECARSET_NAME}={set_name}",
                decode=decode_controller_revision,
            )
        except KubeError:
            return ()
        return listing.items
