"""Whether the cluster has any budget: where it has none, an eviction costs no look at its Pod.

The watch says so first. It may lag, or be cut off, while the very first budget comes, so where it knows of none the API
server is asked too, once for all who ask within a second.
"""

from __future__ import annotations

from typing import Final

from app.api.podunavailablebudget import POD_UNAVAILABLE_BUDGET
from app.kube.client import Client
from app.kube.coalesced import Coalesced
from app.kube.errors import NotFound
from app.kube.objects import decode_metadata
from app.protection.podunavailablebudget.claims import Claims

#: Seconds for which an answer of the API server is remembered.
REMEMBERED: Final = 1.0


class AnyBudget:
    """Asks the cache, then the API server. ``namespace``: the one in which budgets are watched; "": in all."""

    def __init__(self, claims: Claims, client: Client, namespace: str = "") -> None:
        self._claims = claims
        self._client = client
        self._namespace = namespace
        self._ask: Coalesced[str, bool] = Coalesced(self._is_there)
        self._until = 0.0
        self._answer = False

    async def __call__(self, namespace: str) -> bool:
        """Whether a Pod of this namespace may have one. Raises ``KubeError`` where nobody can say."""
        if self._namespace not in ("", namespace):
            return False
        if self._claims:
            return True
        if self._client.clock.monotonic() < self._until:
            return self._answer
        return await self._ask("")

    async def _is_there(self, _: str) -> bool:
        asked = self._client.clock.monotonic()
        try:
            page = await self._client.list_page(
                POD_UNAVAILABLE_BUDGET.resource(), self._namespace, limit=1, metadata_only=True, decode=decode_metadata
            )
        except NotFound:
            found = False  # the kind is not installed
        else:
            found = bool(page.items)
        self._until, self._answer = asked + REMEMBERED, found
        return found
