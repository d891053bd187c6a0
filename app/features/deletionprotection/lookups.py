"""Cluster lookups for deletion protection. Objects are read from the API server, because lookups are rare and must be
accurate.

Lists stop at the first page with an object that counts. Pods and custom resources are listed by metadata only.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

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

    async def active_pods(self, namespace: str) -> Count:
        """Count the active Pods. The API server filters out finished ones. [DP-22]"""
        return await self._in_time(
            self._count(PODS, namespace, _decode_named, _is_live, field_selector=_NOT_FINISHED, metadata_only=True)
        )

    async def bound_claims(self, namespace: str) -> Count:
        """Count the bound volume claims. [DP-23]"""
        return await self._in_time(self._count(PERSISTENTVOLUMECLAIMS, namespace, _decode_claim, _is_bound))

    async def custom_resources(self, resource: Resource) -> Count:
        """Count the custom resources by metadata only, because they may be large. [DP-27, DP-51]"""
        return await self._in_time(self._count(resource, "", _decode_named, _is_live, metadata_only=True))

    async def _in_time(self, asking: Awaitable[T]) -> T:
        try:
            return await self._client.clock.wait_for(asking, LIST_SECONDS)
        except TimeoutError:
            raise TimeoutError(f"no response from the API server within {LIST_SECONDS:g} s") from None

    async def _count(
        self,
        resource: Resource,
        namespace: str,
        decode: Decode[T],
        counts: Callable[[T], bool],
        *,
        field_selector: str = "",
        metadata_only: bool = False,
    ) -> Count:
        token = ""
        while True:
            page = await self._client.list_page(
                resource,
                namespace,
                field_selector=field_selector,
                limit=PAGE_SIZE,
                continue_token=token,
                metadata_only=metadata_only,
                decode=decode,
            )
            found = sum(map(counts, page.items))
            token = page.continue_token
            if found or not token:
                return Count(found, at_least=bool(token))


def _is_live(obj: _Named) -> bool:
    return obj.metadata.deletion_timestamp is None


def _is_bound(claim: _Claim) -> bool:
    return claim.status.phase == "Bound" and claim.metadata.deletion_timestamp is None
