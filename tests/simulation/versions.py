"""A controller never sends a resourceVersion that its own write has replaced.

Such a write conflicts, because it is based on an object from before the controller's last write. The invariant does
not apply if that write got no response, or if the cache did not catch up in time (CS-52).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

from app.kube.wire import Request, Response
from tests.simulation.faults import FaultyTransport

#: Seconds after which a controller no longer expects its write in its cache.
GIVEN_UP_SECONDS = 300.0
_SUBRESOURCES = ("/status", "/resize")


class OwnVersions:
    """The resourceVersions of the last writes of one process's controllers."""

    def __init__(self) -> None:
        #: By controller and path of the object: the resourceVersion, and when the response arrived.
        self._written: dict[tuple[str, str], tuple[int, float]] = {}
        #: The last request that was refused with Retry-After; the client resends it unchanged.
        self._refused: dict[tuple[str, str], Request] = {}

    def broken_by(self, at: float, request: Request) -> str:
        """Return the violation of a request that is about to be sent, or an empty string."""
        version, answered = self._written.get(_key(request), (0, at))
        if not version or at - answered >= GIVEN_UP_SECONDS or not _writes_object(request):
            return ""
        if request is self._refused.get(_key(request)):
            return ""
        insists = str(_metadata(request.body).get("resourceVersion", ""))
        if not insists.isdigit() or int(insists) >= version:
            return ""
        return f"{request.method} {request.path} sends version {insists}, but its sender has written version {version}"

    def answered(self, at: float, request: Request, response: Response) -> None:
        if "Retry-After" in response.headers:
            self._refused[_key(request)] = request
        if response.status == 200 and _writes_object(request):
            version = _metadata(response.body).get("resourceVersion", "")
            if version.isdigit():
                self._written[_key(request)] = (int(version), at)


class AttentiveTransport(FaultyTransport):
    """A faulty connection that checks :class:`OwnVersions` and reports violations to ``breaks``."""

    def __init__(self, *arguments: Any, breaks: Callable[[str], None]) -> None:
        super().__init__(*arguments)
        self._own = OwnVersions()
        self._breaks = breaks

    async def request(self, request: Request) -> Response:
        if sentence := self._own.broken_by(self._clock.monotonic(), request):
            self._breaks(sentence)
        response = await super().request(request)
        self._own.answered(self._clock.monotonic(), request, response)
        return response


def _key(request: Request) -> tuple[str, str]:
    path = request.path
    for name in _SUBRESOURCES:
        path = path.removesuffix(name)
    return request.headers["User-Agent"], path


def _writes_object(request: Request) -> bool:
    """Return whether a request writes to an existing object."""
    written = request.method in ("PATCH", "PUT") and "dryRun" not in request.query
    return written and (request.body or b"").startswith(b"{")


def _metadata(body: bytes | None) -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads(body or b"{}").get("metadata") or {}
    return found
