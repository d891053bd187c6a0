"""Every PersistentVolumeClaim gets a volume made for it at once; nothing is stored on it."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any

from app.kube.client import Client
from app.kube.controller import Controller, Watch, to_self
from app.kube.errors import AlreadyExists, NotFound
from app.kube.objects import ObjectMeta, Struct, decoder
from app.kube.reflector import Reflector
from app.kube.resources import PERSISTENTVOLUMECLAIMS, ObjectKey
from app.kube.store import Change, Store
from app.sandbox.controllers.objects import PERSISTENTVOLUMES, Claim

_BOUND = "pv.kubernetes.io/bind-completed"


class _VolumeSpec(Struct, frozen=True):
    claim_ref: dict[str, Any] | None = None
    persistent_volume_reclaim_policy: str = "Delete"


class Volume(Struct, frozen=True):
    """A PersistentVolume."""

    metadata: ObjectMeta = ObjectMeta()
    spec: _VolumeSpec = _VolumeSpec()


class Volumes:
    """The controller that binds claims, and takes volumes away whose claim is gone."""

    def __init__(self, client: Client, rng: Random) -> None:
        self._client = client
        self.claims: Store[Claim] = Store()
        self.volumes: Store[Volume] = Store()
        self._reflectors: list[Reflector[Any]] = [
            Reflector(client, PERSISTENTVOLUMECLAIMS, self.claims, decode=decoder(Claim), rng=rng),
            Reflector(client, PERSISTENTVOLUMES, self.volumes, decode=decoder(Volume), rng=rng),
        ]
        watches: list[Watch[Any]] = [Watch(self.claims, to_self), Watch(self.volumes, _keys_for_volume)]
        self.controller = Controller("sandbox-volumes", client.clock, watches, self._reconcile, workers=1)

    def tasks(self) -> list[Any]:
        """The coroutines to run side by side until cancelled."""
        return [*(reflector.run() for reflector in self._reflectors), self.controller.run()]

    async def _reconcile(self, key: ObjectKey) -> None:
        claim = self.claims.by_key(key)
        for volume in self.volumes.list():
            reference = volume.spec.claim_ref or {}
            if (reference.get("namespace"), reference.get("name")) != key or reference.get("uid") is None:
                continue
            gone = claim is None or claim.metadata.uid != reference["uid"]
            if gone and volume.spec.persistent_volume_reclaim_policy == "Delete":
                await self._remove(volume)
        if claim is None or claim.metadata.deletion_timestamp is not None or claim.status.phase == "Bound":
            return
        try:
            await self._bind(claim)
        except NotFound:
            return

    async def _remove(self, volume: Volume) -> None:
        try:
            await self._client.delete(PERSISTENTVOLUMES, volume.metadata.name, uid=volume.metadata.uid)
        except NotFound:
            return

    async def _bind(self, claim: Claim) -> None:
        metadata, spec = claim.metadata, claim.spec
        name = spec.volume_name or f"pvc-{metadata.uid}"
        capacity = {"storage": (spec.resources.get("requests") or {}).get("storage", "1Gi")}
        if not spec.volume_name:
            await self._make(claim, name, capacity)
            body = {"metadata": {"uid": metadata.uid, "annotations": {_BOUND: "yes"}}, "spec": {"volumeName": name}}
            await self._client.patch(PERSISTENTVOLUMECLAIMS, metadata.name, body, metadata.namespace)
        status = {"phase": "Bound", "accessModes": list(spec.access_modes), "capacity": capacity}
        body = {"metadata": {"uid": metadata.uid}, "status": status}
        await self._client.patch(PERSISTENTVOLUMECLAIMS, metadata.name, body, metadata.namespace, subresource="status")
        bound = {"status": {"phase": "Bound"}}
        await self._client.patch(PERSISTENTVOLUMES, name, bound, subresource="status")

    async def _make(self, claim: Claim, name: str, capacity: dict[str, Any]) -> None:
        metadata, spec = claim.metadata, claim.spec
        reference = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": metadata.namespace,
            "name": metadata.name,
            "uid": metadata.uid,
        }
        body = {
            "metadata": {"name": name},
            "spec": {
                "capacity": capacity,
                "accessModes": list(spec.access_modes) or ["ReadWriteOnce"],
                "volumeMode": spec.volume_mode,
                "persistentVolumeReclaimPolicy": "Delete",
                "storageClassName": spec.storage_class_name or "",
                "claimRef": reference,
                "hostPath": {"path": f"/simulated/{name}"},
            },
        }
        try:
            await self._client.create(PERSISTENTVOLUMES, body)
        except AlreadyExists:
            return


def _keys_for_volume(change: Change[Volume]) -> Iterable[ObjectKey]:
    reference = change.object.spec.claim_ref or {}
    if not reference.get("name"):
        return ()
    return (ObjectKey(reference.get("namespace", ""), reference["name"]),)
