"""Claims that are known by their names: created where they are missing, changed, made larger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from app.api.model import KubeObject
from app.kube.client import PatchType
from app.kube.errors import AlreadyExists, KubeError, NotFound, message_of
from app.kube.gotext import quote
from app.kube.objects import PersistentVolumeClaim, decode_metadata
from app.kube.resources import PERSISTENTVOLUMECLAIMS
from app.pods.claimgrowth import Growth
from app.pods.storageclasses import StorageClasses, list_storage_classes
from app.workloads.engine.writer import Writer


class ClaimGoingError(KubeError):
    """A claim that a Pod needs is being deleted."""


class NamedClaimsWriter(Writer):
    """Claims have names that nobody else's have, so nothing has to be expected of them: who comes second finds them."""

    async def create_claim(self, workload: KubeObject, claim: Mapping[str, Any]) -> None:
        """AS-65, AS-67: one claim of a Pod to come. Raises what the API server says."""
        name, namespace = claim["metadata"]["name"], workload.metadata.namespace
        owner = f"{self._kind.resource.kind} {workload.metadata.name}"
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
            text = f"create Claim {name} for Pod {pod} in {owner} failed error: {message_of(error)}"
            self.event(workload, "FailedCreate", text, warning=True)
            raise
        self.event(workload, "SuccessfulCreate", f"create Claim {name} Pod {pod} in {owner} success")

    async def patch_claim(self, claim: PersistentVolumeClaim, body: Mapping[str, Any]) -> None:
        """One strategic merge patch of a claim that is there; nothing if it is gone. Raises what the API server
        says."""
        name, namespace = claim.metadata.name, claim.metadata.namespace
        try:
            await self._client.patch(
                PERSISTENTVOLUMECLAIMS, name, body, namespace, kind=PatchType.STRATEGIC, decode=decode_metadata
            )
        except NotFound:
            return

    async def grow_claims(self, workload: KubeObject, wanted: Sequence[tuple[str, Growth]]) -> str:
        """AS-104: make claims larger, each for the Pod so named. What went wrong, or ""."""
        try:
            asks = any(growth.storage_class for _, growth in wanted)
            classes = await list_storage_classes(self._client) if asks else StorageClasses()
        except KubeError as error:
            return str(error)
        found = [await self._grow_claim(workload, pod, growth, classes) for pod, growth in wanted]
        return "; ".join([problem for problem in found if problem][:3])

    async def _grow_claim(self, workload: KubeObject, pod: str, growth: Growth, classes: StorageClasses) -> str:
        name, owner = growth.claim.metadata.name, f"{self._kind.resource.kind} {workload.metadata.name}"
        if growth.patch is None:
            text = f"failed to update pvc {name}: contains diff other than spec resource, wait pvc to be deleted"
            self.event(workload, "FailedUpdatePVC", text, warning=True)
            return text
        try:
            _check_class(growth.storage_class, classes)
            await self.patch_claim(growth.claim, growth.patch)
        except KubeError as error:
            text = f"resize Claim {name} for Pod {pod} in {owner} failed error: {message_of(error)}"
            self.event(workload, "FailedResize", text, warning=True)
            return message_of(error)
        self.event(workload, "SuccessfulResize", f"resize Claim {name} Pod {pod} in {owner} success")
        return ""


def _check_class(name: str, classes: StorageClasses) -> None:
    """AS-104: a claim without a class is not checked."""
    if name and classes.expandable[name] is not True:
        raise KubeError(f"storage class {quote(name)} does not let claims grow")
