"""The admission service as a FastAPI application: one raw ASGI endpoint per webhook path, /convert and /healthz.

Every Pod of a cluster waits for these answers, so the webhook paths take the shortest way through the framework:
``AdmissionApp`` looks the path up in a dict before middleware and routing begin, and the endpoint talks ASGI itself.
A FastAPI route with a Request parameter costs more than reading, deciding and answering a review do together.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, TypeAlias

from fastapi import FastAPI
from starlette.responses import PlainTextResponse
from starlette.routing import Route as StarletteRoute
from starlette.types import Receive, Scope, Send

from app.admission import conversion
from app.admission.aside import Aside
from app.admission.conversion import Convert
from app.admission.conversion_worker import ConversionWorker
from app.admission.endpoints import ConvertEndpoint, Decided, ReviewEndpoint, UnknownPathEndpoint
from app.admission.metrics import AdmissionMetrics, PathStats
from app.admission.registry import Registry, Route
from app.admission.summary import Summary

#: How many decisions the debug page shows.
KEPT_DECISIONS: Final = 100

_Endpoint: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]


class AdmissionApp(FastAPI):
    """The FastAPI application; ``starting`` says why reviews cannot be judged yet, and is empty once they can."""

    def __init__(self) -> None:
        super().__init__(title="pykruise", docs_url=None, redoc_url=None, openapi_url=None)
        self.starting = ""
        #: While stopping, answers ask the client to come back on a new connection, which another replica will take.
        self.draining = False
        #: The last decisions, for the debug page.
        self.decisions: deque[Decided] = deque(maxlen=KEPT_DECISIONS)
        #: What the log says of all reviews.
        self.review_log = Summary((), self._last_decision)
        #: Who decides about what is large.
        self.aside = Aside()
        #: How large a body may be, where a path has a limit of its own.
        self.body_limits = {"/convert": conversion.MAX_BODY_BYTES}
        self._endpoints: dict[str, _Endpoint] = {}
        self._unknown: _Endpoint | None = None

    def _last_decision(self) -> str:
        return self.decisions[-1].line() if self.decisions else "none"

    def count(self, paths: Iterable[PathStats]) -> None:
        """Sum up these paths in the log."""
        self.review_log = Summary(paths, self._last_decision)

    def serve(self, path: str, endpoint: _Endpoint) -> None:
        """Serve a path by an ASGI callable, past the middleware."""
        self._endpoints[path] = endpoint
        self.router.routes.append(StarletteRoute(path, endpoint=endpoint, name=path.lstrip("/"), methods=["POST"]))

    def serve_unknown(self, endpoint: _Endpoint) -> None:
        """Serve POST requests to any other path."""
        self._unknown = endpoint

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI entry: webhook paths directly, all else as FastAPI does it."""
        if scope["type"] == "http":
            endpoint = self._endpoints.get(scope["path"])
            if endpoint is None and scope["method"] == "POST" and scope["path"] != "/healthz":
                endpoint = self._unknown
            if endpoint is not None:
                await endpoint(scope, receive, send)
                return
        await super().__call__(scope, receive, send)


def create_app(
    registry: Registry, convert: Convert, metrics: AdmissionMetrics, worker: ConversionWorker | None = None
) -> AdmissionApp:
    """The application that serves all routes of a registry. ``worker`` takes over what is long to convert."""
    app = AdmissionApp()
    app.router.routes.append(StarletteRoute("/healthz", _Healthz))
    for path, route in registry.routes.items():
        endpoint = ReviewEndpoint(app, route, metrics.path(path))
        app.serve(path, endpoint)
        # MGR-122: an old chart with a new image.
        for alias, target in registry.aliases.items():
            if target == path:
                app.serve(alias, endpoint)
    for path in registry.switched_off:
        # MGR-101: registered by a replica whose gate is on. As far as we are concerned there is nothing to judge.
        app.serve(path, ReviewEndpoint(app, Route(path, {}, frozenset(), unknown_passes=True), metrics.path(path)))
    app.serve("/convert", ConvertEndpoint(app, convert, metrics.path("/convert"), worker))
    app.serve_unknown(UnknownPathEndpoint(app, tuple(registry.routes), metrics.path("unknown")))
    app.count(metrics.path(path) for path in (*registry.routes, *registry.switched_off, "/convert", "unknown"))
    return app


class _Healthz:
    """MGR-21: the webhook port answers /healthz with 200 to any method."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._send = PlainTextResponse("ok")(scope, receive, send)

    def __await__(self) -> Any:
        return self._send.__await__()
