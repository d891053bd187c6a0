"""Cluster lookups for deletion protection: which objects count, and how they are counted.

Objects are read from the API server, because lookups are rare and must be accurate. Lists stop at the first page with
an object that counts. Pods and custom resources are listed by metadata only.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, TypeVar

from app.features.deletionprotection.plan import Count
from app.kube.client import Client, Decode
from app.kube.errors import NotFound
from app.kube.objects import ObjectMeta, Struct, decoder
from app.kube.resources import PERSISTENTVOLUMECLAIMS, PODS, Resource

T = TypeVar("T")

#: Page size of lists. Large enough to count ordinary namespaces exactly.
PAGE_SIZE: Final = 500
#: Timeout of a lookup, below the webhook's own timeout of 10 s.
LIST_SECONDS: Final = 8.0
_NOT_FINISHED: Final = "status.phase!=Succeeded,status.phase!=Failed"


class _Named(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()


class _ClaimStatus(Struct, frozen=True):
    phase: str = ""


class _Claim(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    status: _ClaimStatus = _ClaimStatus()


_decode_named = decoder(_Named)
_decode_claim = decoder(_Claim)


def _is_live(obj: _Named) -> bool:
    return obj.metadata.deletion_timestamp is None


def _is_bound(claim: _Claim) -> bool:
    return claim.status.phase == "Bound" and claim.metadata.deletion_timestamp is None


@dataclass(frozen=True, slots=True)
class _Counted(Generic[T]):
    """Describes how objects are listed and which of them count."""

    resource: Resource
    decode: Decode[T]
    counts: Callable[[T], bool]
    field_selector: str = ""
    metadata_only: bool = False


def _metadata_of(resource: Resource, field_selector: str = "") -> _Counted[_Named]:
    return _Counted(resource, _decode_named, _is_live, field_selector, metadata_only=True)


class NamespaceContent(NamedTuple):
    """Objects that prevent the deletion of their namespace, and the words for them in messages."""

    listed: str
    found: str
    objects: _Counted[Any]


#: Contents of a namespace in counting order. The API server filters out finished Pods. [DP-22, DP-23]
CONTENTS: Final = (
    NamespaceContent("pods", "active pods", _metadata_of(PODS, _NOT_FINISHED)),
    NamespaceContent("pvc", '"Bound" status pvc', _Counted(PERSISTENTVOLUMECLAIMS, _decode_claim, _is_bound)),
)


class DeletionLookups:
    """Counts objects that must be deleted before the protected object. Raises KubeError or TimeoutError if a list
    fails."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def uid(self, resource: Resource, name: str) -> str:
        """Return the object's UID. [DP-57]"""
        try:
            found = await self._in_time(self._client.get(resource, name, decode=_decode_named))
        except NotFound:
            return ""
        return found.metadata.uid

    async def contents(self, content: NamespaceContent, namespace: str) -> Count:
        """Count the objects of this kind that prevent the deletion of the namespace. [DP-22, DP-23]"""
        return await self._in_time(self._count(content.objects, namespace))

    async def custom_resources(self, resource: Resource) -> Count:
        """Count the custom resources by metadata only, because they may be large. [DP-27, DP-51]"""
        return await self._in_time(self._count(_metadata_of(resource), ""))

    async def _in_time(self, asking: Awaitable[T]) -> T:
        try:
            return await self._client.clock.wait_for(asking, LIST_SECONDS)
        except TimeoutError:
            raise TimeoutError(f"no response from the API server within {LIST_SECONDS:g} s") from None

    async def _count(self, objects: _Counted[Any], namespace: str) -> Count:
        token = ""
        while True:
            page = await self._client.list_page(
                objects.resource,
                namespace,
                field_selector=objects.field_selector,
                limit=PAGE_SIZE,
                continue_token=token,
                metadata_only=objects.metadata_only,
                decode=objects.decode,
            )
            found = sum(map(objects.counts, page.items))
            token = page.continue_token
            if found or not token:
                return Count(found, at_least=bool(token))
