"""Node lifecycle controller, and a controller that binds volumes."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any, Final

from app.kube.client import Client
from app.kube.clock import rfc3339
from app.kube.controller import Controller, Result, Watch, to_self
from app.kube.errors import AlreadyExists, NotFound
from app.kube.objects import Lease, ObjectMeta, Struct, Taint, decode_lease, decoder
from app.kube.reflector import Reflector
from app.kube.resources import LEASES, NODES, PERSISTENTVOLUMECLAIMS, PODS, ObjectKey
from app.kube.store import Change, Store, key_of
from app.sandbox.controllers.objects import PERSISTENTVOLUMES, Claim
from app.sandbox.filters import tolerates
from app.sandbox.objects import Node, Pod

#: Seconds without a renewal after which a lease counts as expired and its node as unreachable.
GRACE_SECONDS: Final = 40.0
UNREACHABLE: Final = "node.kubernetes.io/unreachable"
_NAMESPACE: Final = "kube-node-lease"


def eviction_delay(pod: Pod, taint: Taint) -> float | None:
    """Return the seconds that a Pod may stay on a node with this taint, or None if there is no limit."""
    matching = [one for one in pod.spec.tolerations if tolerates(one, taint)]
    if not matching:
        return 0.0
    limits = [one.toleration_seconds for one in matching if one.toleration_seconds is not None]
    return float(max(0, min(limits))) if limits else None


class NodeLifecycle:
    """Controller of nodes. The caller fills the store ``nodes``."""

    def __init__(self, client: Client, pods: Store[Pod], nodes: Store[Node], rng: Random) -> None:
        self._client = client
        self._pods = pods
        self._nodes = nodes
        self._silent_since: dict[str, float] = {}
        self.leases: Store[Lease] = Store()
        self._reflector = Reflector(client, LEASES, self.leases, decode=decode_lease, rng=rng, namespace=_NAMESPACE)
        watches: list[Watch[Any]] = [
            Watch(nodes, to_self),
            Watch(self.leases, self._keys_for_lease),
            Watch(pods, lambda _change: ()),
        ]
        self.controller = Controller("sandbox-nodes", client.clock, watches, self._reconcile, workers=1)

    def tasks(self) -> list[Any]:
        """Return the coroutines to run concurrently until canceled."""
        return [self._reflector.run(), self.controller.run()]

    def _keys_for_lease(self, change: Change[Lease]) -> Iterable[ObjectKey]:
        return (ObjectKey("", change.object.metadata.name),)

    async def _reconcile(self, key: ObjectKey) -> Result | None:
        node = self._nodes.by_key(key)
        lease = self.leases.get(key.name, _NAMESPACE)
        if node is None or lease is None or lease.spec.renew_time is None:
            return None
        age = (self._client.clock.now() - lease.spec.renew_time).total_seconds()
        taint = next((one for one in node.spec.taints if one.key == UNREACHABLE and one.effect == "NoExecute"), None)
        try:
            if age < GRACE_SECONDS:
                self._silent_since.pop(key.name, None)
                if taint is not None:
                    await self._mark(node, alive=True)
                return Result(requeue_after=GRACE_SECONDS - age + 0.1)
            if taint is None:
                await self._mark(node, alive=False)
                taint = Taint(UNREACHABLE, "", "NoExecute")
            since = self._silent_since.setdefault(key.name, self._client.clock.monotonic())
            return await self._evict(key.name, taint, self._client.clock.monotonic() - since)
        except NotFound:
            return None

    async def _mark(self, node: Node, *, alive: bool) -> None:
        now = rfc3339(self._client.clock.now())
        others = [
            {"key": one.key, "value": one.value, "effect": one.effect}
            for one in node.spec.taints
            if one.key != UNREACHABLE
        ]
        added = [] if alive else [{"key": UNREACHABLE, "effect": effect} for effect in ("NoSchedule", "NoExecute")]
        status, reason = ("True", "KubeletReady") if alive else ("Unknown", "NodeStatusUnknown")
        condition = {
            "type": "Ready",
            "status": status,
            "reason": reason,
            "message": "simulated" if alive else "Kubelet stopped posting node status.",
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
        }
        name = node.metadata.name
        rest = [{"type": one.type, "status": one.status, "reason": one.reason} for one in node.status.conditions]
        conditions = [*(one for one in rest if one["type"] != "Ready"), condition]
        await self._client.patch(NODES, name, {"status": {"conditions": conditions}}, subresource="status")
        await self._client.patch(NODES, name, {"spec": {"taints": [*others, *added] or None}})
        if not alive:
            for pod in self._on(name):
                await self._unready(pod, now)

    async def _unready(self, pod: Pod, now: str) -> None:
        """Mark a Pod of an unreachable node as not ready."""
        conditions = [
            {"type": one.type, "status": one.status, "reason": one.reason, "message": one.message}
            for one in pod.status.conditions
            if one.type != "Ready"
        ]
        ready = {"type": "Ready", "status": "False", "lastTransitionTime": now, "reason": "NodeNotReady"}
        body = {"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [*conditions, ready]}}
        try:
            await self._client.patch(PODS, pod.metadata.name, body, pod.metadata.namespace, subresource="status")
        except NotFound:
            return

    async def _evict(self, node: str, taint: Taint, silent: float) -> Result | None:
        waits = []
        for pod in self._on(node):
            delay = eviction_delay(pod, taint)
            if delay is None or pod.metadata.deletion_timestamp is not None:
                continue
            if silent < delay:
                waits.append(delay - silent)
                continue
            key = key_of(pod)
            try:
                await self._client.delete(PODS, key.name, key.namespace, uid=pod.metadata.uid)
            except NotFound:
                continue
        return Result(requeue_after=max(0.01, min(waits))) if waits else None

    def _on(self, node: str) -> list[Pod]:
        return [pod for pod in self._pods.list() if pod.spec.node_name == node]


_BOUND = "pv.kubernetes.io/bind-completed"


class _VolumeSpec(Struct, frozen=True):
    claim_ref: dict[str, Any] | None = None
    persistent_volume_reclaim_policy: str = "Delete"


class Volume(Struct, frozen=True):
    """A PersistentVolume."""

    metadata: ObjectMeta = ObjectMeta()
    spec: _VolumeSpec = _VolumeSpec()


class Volumes:
    """Binds claims, and deletes volumes whose claim no longer exists."""

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
        """Return the coroutines to run concurrently until canceled."""
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
