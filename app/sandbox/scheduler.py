"""Binds Pods to nodes one by one, and reports why a Pod does not fit on any node."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from random import Random
from typing import Any, Final

from app.kube.client import Client, PatchType
from app.kube.clock import rfc3339
from app.kube.controller import Controller, Result, Watch
from app.kube.errors import Conflict, NotFound
from app.kube.events import EventRecorder, reference
from app.kube.objects import Namespace, ObjectMeta, Struct, decode_namespace, decoder
from app.kube.reflector import Reflector
from app.kube.resources import NAMESPACES, NODES, PERSISTENTVOLUMECLAIMS, PODS, ObjectKey
from app.kube.store import Change, Store, key_of
from app.sandbox.filters import NodeInfo, choose_node
from app.sandbox.objects import Node, Pod, decode_node, decode_pod

NAME: Final = "default-scheduler"
#: Maximum seconds until an unschedulable Pod is retried.
AGAIN_SECONDS: Final = 30.0
_WORKERS: Final = 8


class _ClaimStatus(Struct, frozen=True):
    phase: str = ""


class _Claim(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    status: _ClaimStatus = _ClaimStatus()


class Scheduler:
    """Binds unbound Pods whose scheduler is ``default-scheduler``. ``only`` restricts the nodes."""

    def __init__(
        self,
        client: Client,
        *,
        rng: Random,
        pods: Store[Pod] | None = None,
        only: Collection[str] | None = None,
        events: bool = False,
    ) -> None:
        self._client = client
        self._only = only
        self._infos: dict[str, NodeInfo] = {}
        self._refused: set[ObjectKey] = set()
        self._recorder = EventRecorder(client, NAME) if events else None
        self.pods: Store[Pod] = pods if pods is not None else Store()
        self.nodes: Store[Node] = Store()
        self.namespaces: Store[Namespace] = Store()
        self.claims: Store[_Claim] = Store()
        self.nodes.subscribe(self._note_node)
        self.pods.subscribe(self._note_pod)
        self.reflectors: list[Reflector[Any]] = [
            Reflector(client, NODES, self.nodes, decode=decode_node, rng=rng),
            Reflector(client, NAMESPACES, self.namespaces, decode=decode_namespace, rng=rng),
            Reflector(client, PERSISTENTVOLUMECLAIMS, self.claims, decode=decoder(_Claim), rng=rng),
        ]
        if pods is None:
            self.reflectors.append(Reflector(client, PODS, self.pods, decode=decode_pod, rng=rng))
        self.controller = Controller(
            "sandbox-scheduler",
            client.clock,
            [
                Watch(self.pods, self._keys_for_pod),
                Watch(self.nodes, self._all_waiting),
                Watch(self.claims, self._all_waiting),
                Watch(self.namespaces, lambda _change: ()),
            ],
            self._reconcile,
            workers=_WORKERS,
        )

    def tasks(self) -> list[Any]:
        """Return the coroutines to run concurrently until canceled."""
        recorder = [self._recorder.run()] if self._recorder is not None else []
        return [*(reflector.run() for reflector in self.reflectors), self.controller.run(), *recorder]

    # ---- Pods by node

    def _note_node(self, change: Change[Node]) -> None:
        name = change.object.metadata.name
        if self._only is not None and name not in self._only:
            return
        old = self._infos.pop(name, None)
        if change.new is None:
            return
        info = self._infos[name] = NodeInfo(change.new)
        pods = old.pods.values() if old is not None else [p for p in self.pods.list() if p.spec.node_name == name]
        for pod in pods:
            if _counts(pod):
                info.add(pod)

    def _note_pod(self, change: Change[Pod]) -> None:
        if change.new is not None and _waits(change.new) and _was_refused(change.new):
            self._refused.add(key_of(change.new))
        else:
            self._refused.discard(key_of(change.object))
        for pod in (change.old, change.new):
            info = self._infos.get(pod.spec.node_name) if pod is not None else None
            if pod is None or info is None:
                continue
            if pod is change.new and _counts(pod):
                info.add(pod)
            elif (pod is change.old and change.new is None) or not _counts(pod):
                info.remove(pod.metadata.uid)

    def _keys_for_pod(self, change: Change[Pod]) -> Iterable[ObjectKey]:
        pod = change.new
        if pod is not None and _waits(pod):
            return (key_of(pod),)
        if pod is None or not _counts(pod):
            return self._all_waiting(change)  # frees resources for other Pods
        return ()

    def _all_waiting(self, _change: Change[Any]) -> Iterable[ObjectKey]:
        return list(self._refused)

    # ---- reconcile

    async def _reconcile(self, key: ObjectKey) -> Result | None:
        pod = self.pods.by_key(key)
        if pod is None or not _waits(pod):
            return None
        node, why = "", self._missing_claim(pod)
        if not why:
            labels = {one.metadata.name: one.metadata.labels for one in self.namespaces.list()}
            node, why = choose_node(pod, list(self._infos.values()), labels)
        try:
            if node:
                await self._bind(pod, node)
                return None
            await self._refuse(pod, why)
        except (NotFound, Conflict):
            return None
        return Result(requeue_after=AGAIN_SECONDS)

    def _missing_claim(self, pod: Pod) -> str:
        for volume in pod.spec.volumes:
            source = volume.persistent_volume_claim
            if source is None:
                continue
            claim = self.claims.get(source.claim_name, pod.metadata.namespace)
            nodes = f"0/{len(self._infos)} nodes are available"
            if claim is None:
                return f'{nodes}: persistentvolumeclaim "{source.claim_name}" not found. {_not_helpful(nodes)}'
            if claim.status.phase != "Bound":
                return f"{nodes}: pod has unbound immediate PersistentVolumeClaims. {_not_helpful(nodes)}"
        return ""

    async def _bind(self, pod: Pod, node: str) -> None:
        metadata = pod.metadata
        info = self._infos[node]
        info.add(pod)  # before the response, so that the next Pod does not take the same resources
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = {"metadata": {"name": metadata.name, "uid": metadata.uid}, "target": target}
        try:
            await self._client.create(PODS, body, metadata.namespace, name=metadata.name, subresource="binding")
        except BaseException:
            info.remove(metadata.uid)
            raise
        if self._recorder is not None:
            text = f"Successfully assigned {metadata.namespace}/{metadata.name} to {node}"
            self._recorder.event(reference(PODS, pod), "Normal", "Scheduled", text)

    async def _refuse(self, pod: Pod, why: str) -> None:
        old = next((one for one in pod.status.conditions if one.type == "PodScheduled"), None)
        if old is not None and (old.reason, old.message) == ("Unschedulable", why):
            return
        now = rfc3339(self._client.clock.now())
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": why}
        if old is None or old.status != "False":
            condition["lastTransitionTime"] = now
        metadata = pod.metadata
        await self._client.patch(
            PODS,
            metadata.name,
            {"metadata": {"uid": metadata.uid}, "status": {"conditions": [condition]}},
            metadata.namespace,
            kind=PatchType.STRATEGIC,
            subresource="status",
        )
        if self._recorder is not None:
            self._recorder.event(reference(PODS, pod), "Warning", "FailedScheduling", why)


def _waits(pod: Pod) -> bool:
    spec = pod.spec
    unbound = not spec.node_name and not spec.scheduling_gates and spec.scheduler_name in ("", NAME)
    return unbound and pod.metadata.deletion_timestamp is None and _counts(pod)


def _counts(pod: Pod) -> bool:
    return pod.status.phase not in ("Succeeded", "Failed")


def _was_refused(pod: Pod) -> bool:
    return any(one.type == "PodScheduled" and one.status == "False" for one in pod.status.conditions)


def _not_helpful(nodes: str) -> str:
    return f"preemption: {nodes}: {nodes.partition('/')[2].partition(' ')[0]} Preemption is not helpful for scheduling."
