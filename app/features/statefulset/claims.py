"""Creation of claims with fixed names, and volume expansion where their storage class allows it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from app.api.model import KubeObject
from app.features.statefulset.plan.claims import Growth
from app.kube.client import Client, PatchType
from app.kube.errors import AlreadyExists, KubeError, NotFound, message_of
from app.kube.fielderrors import quote
from app.kube.objects import ObjectMeta, PersistentVolumeClaim, Struct, decode_metadata, decoder
from app.kube.resources import PERSISTENTVOLUMECLAIMS, Resource
from app.workloads.writer import Writer

STORAGE_CLASSES: Final = Resource("storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False)
_DEFAULT: Final = "storageclass.kubernetes.io/is-default-class"
_LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)


class StorageClass(Struct, frozen=True):
    """StorageClass fields that the controller reads."""

    metadata: ObjectMeta = ObjectMeta()
    allow_volume_expansion: bool = False


decode_storage_class = decoder(StorageClass)


class Expandable(dict[str, bool | None]):
    """Whether a storage class allows volume expansion, by name; None for a class that does not exist."""

    def __contains__(self, name: object) -> bool:
        """Return True for every name. For "", return whether there is a default class. [AS-31]"""
        return name != "" or super().__contains__(name)

    def __missing__(self, name: str) -> None:
        return None


def expandable(classes: Iterable[StorageClass]) -> Expandable:
    """Return the map of these classes. An unset allowVolumeExpansion means false. The key "" is the default class; if
    there are several, the newest one applies. [AS-31]"""
    found = list(classes)
    known = Expandable({one.metadata.name: one.allow_volume_expansion for one in found})
    defaults = [one for one in found if one.metadata.annotations.get(_DEFAULT) == "true"]
    if defaults:
        newest = max(defaults, key=lambda one: (one.metadata.creation_timestamp or _LONG_AGO, one.metadata.name))
        known[""] = newest.allow_volume_expansion
    return known


async def read_expandable(client: Client) -> Expandable:
    """Read from the API server which storage classes allow expansion. Raises KubeError."""
    return expandable((await client.list(STORAGE_CLASSES, decode=decode_storage_class)).items)


class ClaimGoingError(KubeError):
    """A claim that a Pod needs is being deleted."""


class NamedClaimsWriter(Writer):
    """Writer for claims with fixed names. It needs no expectations: creating a claim twice fails with AlreadyExists."""

    def is_failed_creation(self, error: KubeError) -> bool:
        """Return whether to record an event for the error. A taken name is not reported. [AS-123]"""
        return super().is_failed_creation(error) and not isinstance(error, AlreadyExists)

    async def create_claim(self, workload: KubeObject, claim: Mapping[str, Any]) -> None:
        """Create a claim for a new Pod. Raises any API error. [AS-65, AS-67]"""
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
        """Apply a strategic merge patch to an existing claim. Ignores a missing claim. Raises any other API error."""
        name, namespace = claim.metadata.name, claim.metadata.namespace
        try:
            await self._client.patch(
                PERSISTENTVOLUMECLAIMS, name, body, namespace, kind=PatchType.STRATEGIC, decode=decode_metadata
            )
        except NotFound:
            return

    async def grow_claims(self, workload: KubeObject, wanted: Sequence[tuple[str, Growth]]) -> str:
        """Expand claims. Each is given with the name of its Pod. Return an error message, or "". [AS-104]"""
        try:
            asks = any(growth.storage_class for _, growth in wanted)
            classes = await read_expandable(self._client) if asks else Expandable()
        except KubeError as error:
            return str(error)
        found = [await self._grow_claim(workload, pod, growth, classes) for pod, growth in wanted]
        return "; ".join([problem for problem in found if problem][:3])

    async def _grow_claim(self, workload: KubeObject, pod: str, growth: Growth, classes: Expandable) -> str:
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


def _check_class(name: str, classes: Expandable) -> None:
    """Raise KubeError if the class does not allow expansion. A claim without a class is not checked. [AS-104]"""
    if name and classes[name] is not True:
        raise KubeError(f"storage class {quote(name)} does not allow volume expansion")
