"""What each controller has written itself: it never insists on a version that it knows it has replaced.

A write that does is refused with a conflict, and was decided on an object as it was before the controller's own last
write. Whoever got no answer does not know, and whoever waited for its cache in vain (CS-52) goes by what that shows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

from app.kube.wire import Request, Response
from tests.simulation.faults import FaultyTransport

#: Seconds after which a controller gives up to expect its write of its cache.
GIVEN_UP_SECONDS = 300.0
_SUBRESOURCES = ("/status", "/resize")


class OwnVersions:
    """What the controllers of one process were answered: the version that each last write of an object made."""

    def __init__(self) -> None:
        #: By controller and path of the object: the version, and when it was answered.
        self._written: dict[tuple[str, str], tuple[int, float]] = {}

    def broken_by(self, at: float, request: Request) -> str:
        """What is wrong with a request that is about to be sent; empty: nothing."""
        version, answered = self._written.get(_key(request), (0, at))
        if not version or at - answered >= GIVEN_UP_SECONDS or not _writes_object(request):
            return ""
        insists = str(_metadata(request.body).get("resourceVersion", ""))
        if not insists.isdigit() or int(insists) >= version:
            return ""
        return f"{request.method} {request.path} insists on version {insists}: its sender made version {version} of it"

    def answered(self, at: float, request: Request, response: Response) -> None:
        if response.status == 200 and _writes_object(request):
            version = _metadata(response.body).get("resourceVersion", "")
            if version.isdigit():
                self._written[_key(request)] = (int(version), at)


class AttentiveTransport(FaultyTransport):
    """A connection through the weather at which it is noticed what a process should have known (:class:`OwnVersions`).
    ``breaks``: told what it is."""

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
    """Return whether a request writes an object, or the part of one, to what is there."""
    written = request.method in ("PATCH", "PUT") and "dryRun" not in request.query
    return written and (request.body or b"").startswith(b"{")


def _metadata(body: bytes | None) -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads(body or b"{}").get("metadata") or {}
    return found
