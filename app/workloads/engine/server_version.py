"""What the API server can do, by its version: asked when it matters, and again now and then, for servers change."""

from __future__ import annotations

from typing import Final

import orjson

from app.kube.client import Client
from app.pods.inplace.batch import has_resize_subresource

#: Seconds for which an answer is believed.
VERSION_TTL: Final = 600.0


class ServerVersion:
    """The version of the API server behind a client."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._version = ""
        self._until = 0.0

    async def has_resize_subresource(self) -> bool:
        """PM-37: whether resources of a running Pod change by subresource ``resize``. Raises what the server says."""
        now = self._client.clock.monotonic()
        if not self._version or now >= self._until:
            answer = orjson.loads(await self._client.raw("/version"))
            self._version = str(answer.get("gitVersion") or "?") if isinstance(answer, dict) else "?"
            self._until = now + VERSION_TTL
        return has_resize_subresource(self._version)
