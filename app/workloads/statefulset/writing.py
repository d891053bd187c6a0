"""What a StatefulSet writes beside its Pods: claims. And what people are told of it, in OpenKruise's words (AS-123)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.api.model import KubeObject
from app.kube.client import Client, PatchType
from app.kube.errors import AlreadyExists, KubeError, NotFound, message_of
from app.kube.events import EventRecorder
from app.kube.objects import PersistentVolumeClaim, decode_metadata
from app.kube.resources import PERSISTENTVOLUMECLAIMS
from app.workloads.engine.kind import Owner
from app.workloads.engine.wording import Wording
from app.workloads.engine.writer import Writer
from app.workloads.statefulset.plan.resolved import KIND


class ClaimGoingError(KubeError):
    """A claim that a Pod needs is being deleted."""


class StatefulSetWording(Wording):
    """Texts of events."""

    __slots__ = ()

    def created(self, owner: Owner, pod: str) -> str:
        """A Pod was created."""
        return f"create Pod {pod} in StatefulSet {owner.name} successful"

    def not_created(self, owner: Owner, pod: str, why: str, body: str) -> str:  # noqa: ARG002
        """A creation was refused."""
        return f"create Pod {pod} in StatefulSet {owner.name} failed error: {why}"

    def deleted(self, owner: Owner, pod: str) -> str:
        """A Pod was deleted."""
        return f"delete Pod {pod} in StatefulSet {owner.name} successful"

    def not_deleted(self, owner: Owner, pod: str, why: str) -> str:
        """A deletion was refused."""
        return f"delete Pod {pod} in StatefulSet {owner.name} failed error: {why}"


class StatefulSetWriter(Writer):
    """Claims have names that nobody else's have, so nothing has to be expected of them: who comes second finds them."""

    def __init__(self, client: Client, events: EventRecorder) -> None:
        super().__init__(client, events, KIND, StatefulSetWording())

    async def create_claim(self, workload: KubeObject, claim: Mapping[str, Any]) -> None:
        """AS-65, AS-67: one claim of a Pod to come. Raises what the API server says."""
        name, namespace = claim["metadata"]["name"], workload.metadata.namespace
        pod = f"{workload.metadata.name}-{name.rpartition('-')[2]}"
        try:
            try:
                await self._client.create(PERSISTENTVOLUMECLAIMS, claim, namespace, decode=decode_metadata)
            except AlreadyExists:
                found = await self._client.get(PERSISTENTVOLUMECLAIMS, name, namespace, decode=decode_metadata)
                if found.metadata.deletion_timestamp is not None:
                    raise ClaimGoingError(f"pvc {name} is to be deleted") from None
                return
        except KubeError as error:
            text = f"create Claim {name} for Pod {pod} in StatefulSet {workload.metadata.name} failed error: "
            self.event(workload, "FailedCreate", text + message_of(error), warning=True)
            raise
        text = f"create Claim {name} Pod {pod} in StatefulSet {workload.metadata.name} success"
        self.event(workload, "SuccessfulCreate", text)

    async def patch_claim(self, claim: PersistentVolumeClaim, body: Mapping[str, Any]) -> None:
        """One strategic merge patch of a claim that is there; nothing if it is gone. Raises what the API server
        says."""
        metadata = claim.metadata
        try:
            await self._client.patch(
                PERSISTENTVOLUMECLAIMS,
                metadata.name,
                body,
                metadata.namespace,
                kind=PatchType.STRATEGIC,
                decode=decode_metadata,
            )
        except NotFound:
            return
