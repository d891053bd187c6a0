"""The HTTPS service that answers AdmissionReviews and ConversionReviews."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections import deque
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Final, NamedTuple, TypeAlias, TypeVarTuple

import msgspec
from fastapi import FastAPI
from starlette.responses import PlainTextResponse
from starlette.routing import Route as StarletteRoute
from starlette.types import Receive, Scope, Send

from app.admission import conversion, running
from app.admission.conversion import Convert
from app.admission.conversion_worker import SMALL_BYTES, ConversionWorker
from app.admission.metrics import AdmissionMetrics, PathStats, Summary
from app.admission.registry import Registry, Route
from app.admission.requests import MAX_BODY_BYTES, MAX_CONVERSION_BYTES, DisconnectedError, is_large, read_body
from app.admission.review import Refusal, answer, read_review, refusal_answer, too_large, wrong_content_type
from app.admission.running import LargeReviews, in_time
from app.kube.admission import LEAVES_NO_TRACE, NAMESPACE, Allowed, Decision, Denied, Handler, Patched, Review
from app.kube.errors import KubeError
from app.kube.text import quoted

# Raw ASGI endpoints: one for the reviews of each path, one for unknown paths, and one for conversions. Each reads a
# bounded body, responds, and counts the request.

logger = logging.getLogger(__name__)

Ts = TypeVarTuple("Ts")
#: Fraction of a webhook's timeout after which we respond, so that the API server reports our message instead of a
#: timeout.
_PART_OF_TIMEOUT: Final = 0.9
#: Webhook paths of any version of pykruise, and of OpenKruise.
_WEBHOOK_PATH: Final = re.compile(r"/(mutate|validate)-[a-z0-9-]{1,100}")
#: Maximum number of unknown paths to log.
_LOGGED_PATHS: Final = 64
#: Bytes of a response to send at once; encrypting a long response in one piece would block other requests.
_SLICE: Final = 256 * 1024
#: Maximum number of unconverted objects to log.
_MAX_LOGGED: Final = 1000
_DECISIONS: Final = (Allowed, Patched, Denied)
_OUTCOMES: Final = {Allowed: "allowed", Patched: "patched", Denied: "denied"}

#: HTTP status, and the body or its parts.
_Answer: TypeAlias = tuple[int, bytes | list[bytes]]


class _Request(NamedTuple):
    path: str
    content_type: str
    parts: list[bytes]

    @property
    def body(self) -> bytes:
        """Return the whole body. This is slow for large bodies, because it joins their parts."""
        return b"".join(self.parts)


class Decided(NamedTuple):
    """A decision as shown on the debug page."""

    at: float
    webhook: str
    outcome: str
    operation: str
    object: str
    user: str
    message: str

    def line(self) -> str:
        """Return one line of text without control characters."""
        stamp = datetime.fromtimestamp(self.at, UTC).isoformat(timespec="milliseconds")
        text = f"{stamp} {self.outcome:<7} {self.webhook} {self.operation} {self.object} by {self.user} {self.message}"
        return "".join(character if character.isprintable() else "?" for character in text).rstrip()


class _PostEndpoint:
    """Base class of the POST endpoints: reads a bounded body, sends the subclass's response, and counts the request."""

    max_body_bytes = MAX_BODY_BYTES

    def __init__(self, app: AdmissionApp, stats: PathStats) -> None:
        self._app = app
        self._stats = stats

    async def answer(self, request: _Request) -> _Answer:
        """Return the HTTP status and JSON body for a complete request body."""
        raise NotImplementedError

    def refuse(self, refusal: Refusal) -> _Answer:
        """Count a request that is not a valid review and return the response."""
        self._stats.bad_request(refusal.reason)
        logger.log(
            logging.WARNING if self._app.review_log.one_more_line() else logging.DEBUG,
            "bad request: %s",
            refusal.message,
            extra={"webhook": self._stats.path, "reason": refusal.reason},
        )
        return refusal_answer(refusal)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        stats = self._stats
        started = time.perf_counter()
        stats.in_flight += 1
        self._app.review_log.begin()
        try:
            status, payload = await self._respond(scope, receive)
        except DisconnectedError:
            stats.bad_request("disconnected")
            return
        finally:
            stats.in_flight -= 1
        stats.finished(status, time.perf_counter() - started)
        pieces = _pieces(payload)
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % sum(map(len, pieces)))]
        if self._app.draining:
            headers.append((b"connection", b"close"))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        for piece in pieces[:-1]:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
            await asyncio.sleep(0)
        await send({"type": "http.response.body", "body": pieces[-1]})

    async def _respond(self, scope: Scope, receive: Receive) -> _Answer:
        if scope["method"] != "POST":
            message = f"method: expected POST, got {scope['method']}"
            return self.refuse(Refusal("wrong_method", message, code=405))
        content_type: bytes = dict(scope["headers"]).get(b"content-type", b"")
        parts, complete = await read_body(scope, receive, self.max_body_bytes)
        if not complete:
            return self.refuse(too_large(parts[0], self.max_body_bytes))
        return await self.answer(_Request(scope["path"], content_type.decode("latin-1"), parts))


def _pieces(payload: bytes | list[bytes]) -> list[bytes]:
    """Split a response into at least one piece to send."""
    parts = payload if isinstance(payload, list) else [payload]
    return [part[start : start + _SLICE] for part in parts for start in range(0, len(part), _SLICE)] or [b""]


def _is_json(content_type: str) -> bool:
    return content_type == "application/json" or content_type.partition(";")[0].strip().lower() == "application/json"


class ReviewEndpoint(_PostEndpoint):
    """Answers the AdmissionReviews of one path."""

    def __init__(self, app: AdmissionApp, route: Route, stats: PathStats) -> None:
        super().__init__(app, stats)
        self._route = route

    async def answer(self, request: _Request) -> _Answer:
        if not _is_json(request.content_type):
            return self.refuse(wrong_content_type(request.content_type, request.parts[0]))
        body = request.body
        review = read_review(body)
        if isinstance(review, Refusal):
            return self.refuse(review)
        if self._app.starting:
            # A Pod admitted before the SidecarSets are synced would never get its sidecars.
            self._stats.decided("", "starting")
            return 200, answer(review.uid, Denied(f"pykruise is starting: {self._app.starting}", code=503))
        if LEAVES_NO_TRACE.get():
            review = msgspec.structs.replace(review, dry_run=True)
        handler = self._route.handler_for(review)
        if not isinstance(handler, Handler):
            self._stats.decided("", _OUTCOMES[type(handler)])
            return 200, answer(review.uid, handler)
        NAMESPACE.set(review.namespace)
        of_pod = review.resource.resource == "pods"
        aside = not of_pod and (is_large(body) or handler.is_slow(review))
        asked = review
        if not of_pod:
            found, outcome = await self._read(handler, review, aside, running.prepared, review, len(body))
            if found is not None and not isinstance(found, Review):
                self._stats.decided(handler.webhook.name, outcome)
                return 200, answer(review.uid, found)
            asked = found or review
        decision, outcome = await self._decide(handler, asked, aside=aside)
        if not of_pod and not handler.webhook.mutating and not isinstance(decision, Denied):
            stored, outcome_of_stored = await self._read(handler, review, aside, running.stored_form, asked)
            if isinstance(stored, Review):
                as_stored, outcome_of_stored = await self._decide(handler, stored, aside=aside)
                if isinstance(as_stored, Denied):
                    message = f"stored as {stored.kind.version}: {as_stored.message}"
                    decision, outcome = msgspec.structs.replace(as_stored, message=message), outcome_of_stored
            elif stored is not None:
                decision, outcome = stored, outcome_of_stored
        try:
            payload = answer(review.uid, decision)
        except TypeError as error:
            # The handler is at fault, not the request: a value in its patch is not JSON.
            payload = answer(review.uid, self._failed(handler, review, error))
            outcome = "error"
        self._stats.decided(handler.webhook.name, outcome)
        message = decision.message if isinstance(decision, Denied) else ""
        self._app.decisions.append(
            Decided(
                time.time(),
                handler.webhook.name,
                outcome,
                review.operation.value,
                _named(review),
                quoted(review.username),
                message[:300],
            )
        )
        return 200, payload

    async def _read(
        self,
        handler: Handler,
        review: Review,
        aside: bool,
        read: Callable[[*Ts], Review | Denied | None],
        *args: *Ts,
    ) -> tuple[Review | Decision | None, str]:
        """Read a review of one of our kinds: convert the object and check it against its schema, in the thread if it is
        large. Return the result, and the outcome to count if the result is a decision."""
        limit = handler.webhook.timeout_seconds * _PART_OF_TIMEOUT
        try:
            found = await self._app.aside.run(review.namespace, limit, read, *args) if aside else read(*args)
        except TimeoutError:
            return self._undecided(handler, review, f"no answer within {limit:g} s", 503)
        except Exception as error:  # noqa: BLE001 - one review must not end the service
            return self._failed(handler, review, error), "error"
        return found, "denied"

    async def _decide(self, handler: Handler, review: Review, *, aside: bool) -> tuple[Decision, str]:
        limit = handler.webhook.timeout_seconds * _PART_OF_TIMEOUT
        try:
            decision = await self._app.aside.decide(handler.decide, review, limit) if aside else handler.decide(review)
            if not isinstance(decision, _DECISIONS):
                decision = await in_time(decision, limit)
        except TimeoutError as error:
            return self._undecided(handler, review, f"{error}" or f"no answer within {limit:g} s", 503)
        except KubeError as error:
            # Internal errors have code 500. The log needs only the API server's message. [MGR-45]
            return self._undecided(handler, review, f"{error}", 500)
        except RecursionError:
            # Handlers recurse only as deep as the object is nested, so the object is at fault.
            return Denied(f"{_named(review)} is nested too deeply", code=400), "denied"
        except Exception as error:  # noqa: BLE001 - one review must not end the service; counted and logged with its object
            return self._failed(handler, review, error), "error"
        if isinstance(decision, Denied):
            logger.log(
                logging.INFO if self._app.review_log.one_more_line() else logging.DEBUG,
                "denied %s %s: %s",
                review.operation,
                _named(review),
                decision.message,
                extra={"webhook": handler.webhook.name, "code": decision.code, "user": review.username},
            )
        elif logger.isEnabledFor(logging.DEBUG):
            self._log_decision(handler, review, decision)
        return decision, _OUTCOMES[type(decision)]

    def _undecided(self, handler: Handler, review: Review, why: str, code: int) -> tuple[Decision, str]:
        """Apply the webhook's failure policy when the data for a decision is unavailable. [MGR-155]"""
        message = f"{handler.webhook.name} could not check {_named(review)}: {why}"
        if self._app.review_log.one_more_line():
            logger.error("%s", message)
        if handler.webhook.failure_policy == "Ignore":
            return Allowed((message,)), "error"
        return Denied(message, code=code), "error"

    def _failed(self, handler: Handler, review: Review, error: Exception) -> Denied:
        self._stats.panics += 1
        if self._app.review_log.one_more_line():
            logger.error("%s failed on %s", handler.webhook.name, _named(review), exc_info=error)
        text = f"{handler.webhook.name} failed on {_named(review)}: {type(error).__name__}: {quoted(error)}"
        return Denied(text, code=500)

    def _log_decision(self, handler: Handler, review: Review, decision: Decision) -> None:
        operations = decision.operations if isinstance(decision, Patched) else ()
        rules = sorted({operation.rule for operation in operations if operation.rule})
        logger.debug(
            "%s %s %s",
            _OUTCOMES[type(decision)],
            review.operation,
            _named(review),
            extra={"webhook": handler.webhook.name, "rules": ",".join(rules)},
        )


class UnknownPathEndpoint(_PostEndpoint):
    """Answers reviews sent to a path that this version does not serve.

    Another version, or OpenKruise, may have registered the path. Reviews sent to it are allowed; otherwise every write
    of the registered kind would fail until the registration is removed. Paths that are not webhook paths are refused.
    [MGR-141]
    """

    def __init__(self, app: AdmissionApp, served: tuple[str, ...], stats: PathStats) -> None:
        super().__init__(app, stats)
        self._served = ", ".join(sorted(served))
        self._logged: set[str] = set()

    async def answer(self, request: _Request) -> _Answer:
        """Allow a review at a webhook path; refuse any other request, with the uid if the body has one."""
        review = read_review(request.body)
        if _WEBHOOK_PATH.fullmatch(request.path) is None:
            message = f"no webhook is served at {request.path[:200]}; served paths are {self._served}"
            return self.refuse(Refusal("unknown_path", message, code=404, uid=review.uid))
        if isinstance(review, Refusal):
            return self.refuse(review)
        self._stats.decided("unserved", "allowed")
        if request.path not in self._logged and len(self._logged) < _LOGGED_PATHS:
            self._logged.add(request.path)
            logger.warning("allowing reviews at %s, which this version does not serve", request.path)
        return 200, answer(review.uid, Allowed())


class ConvertEndpoint(_PostEndpoint):
    """Answers ConversionReviews. [MGR-50]"""

    max_body_bytes = MAX_CONVERSION_BYTES

    def __init__(self, app: AdmissionApp, convert: Convert, stats: PathStats, worker: ConversionWorker | None) -> None:
        super().__init__(app, stats)
        self._convert = convert
        self._worker = worker
        self._logged: set[str] = set()

    async def answer(self, request: _Request) -> _Answer:
        if not _is_json(request.content_type):
            return self.refuse(wrong_content_type(request.content_type, request.parts[0]))
        try:
            answer = await self._converted(request)
        except Exception as error:  # An error in one review must not end the service.
            self._stats.panics += 1
            if self._app.review_log.one_more_line():
                logger.exception("/convert failed")
            self._stats.decided("convert", "error")
            return conversion.failed_review(request.body, f"conversion failed: {type(error).__name__}: {error}")
        if answer.status == 200:
            self._stats.decided("convert", answer.outcome)
        else:
            self._stats.bad_request(answer.outcome)
        if answer.unconverted:
            self._stats.decided("convert", "unconverted", answer.unconverted)
            self._log_unconverted(answer)
        return answer.status, answer.parts

    async def _converted(self, request: _Request) -> conversion.Converted:
        if self._worker is None or sum(map(len, request.parts)) <= SMALL_BYTES:
            return conversion.convert_review(request.body, self._convert)
        return await self._worker.answer(request.parts)

    def _log_unconverted(self, answer: conversion.Converted) -> None:
        """Log each object that cannot be converted, but only once."""
        told = [reason for reason in answer.reasons if reason not in self._logged]
        if not told or len(self._logged) >= _MAX_LOGGED:
            return
        self._logged.update(told)
        logger.error("/convert returned %d objects unconverted: %s", answer.unconverted, "; ".join(told))


def _named(review: Review) -> str:
    """Return kind, namespace and name for messages, truncated: callers other than the API server may send long ones."""
    name = review.name
    if not name and review.object is not None:
        metadata = review.object.get("metadata")
        if isinstance(metadata, dict):
            named = metadata.get("name") or metadata.get("generateName")
            name = named if isinstance(named, str) else ""
    kind = quoted(review.kind.kind)
    if review.subresource:
        kind = f"{kind}/{quoted(review.subresource)}"
    return f"{kind} {quoted(review.namespace)}/{quoted(name)}" if review.namespace else f"{kind} {quoted(name)}"


# The FastAPI application: a raw ASGI endpoint for each webhook path, plus /convert and /healthz. Every Pod creation
# waits for these responses, so ``AdmissionApp`` looks up webhook paths in a dict before middleware and routing. A
# FastAPI route with a Request parameter would more than double the cost of a review.

#: Number of decisions shown on the debug page.
KEPT_DECISIONS: Final = 100

_Endpoint: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]


class AdmissionApp(FastAPI):
    """The FastAPI application. ``starting`` says why reviews cannot be answered yet; it is empty once they can be."""

    def __init__(self) -> None:
        super().__init__(title="pykruise", docs_url=None, redoc_url=None, openapi_url=None)
        self.starting = ""
        #: Set while stopping: responses close the connection, so that the client reconnects to another replica.
        self.draining = False
        #: Recent decisions for the debug page.
        self.decisions: deque[Decided] = deque(maxlen=KEPT_DECISIONS)
        #: Periodic log summary of all reviews.
        self.review_log = Summary((), self._last_decision)
        #: Decides large reviews.
        self.aside = LargeReviews()
        #: Body size limits by path, where they differ from the default.
        self.body_limits = {"/convert": MAX_CONVERSION_BYTES}
        self._endpoints: dict[str, _Endpoint] = {}
        #: Answers POST requests to all other paths.
        self.unknown: _Endpoint | None = None

    def _last_decision(self) -> str:
        return self.decisions[-1].line() if self.decisions else "none"

    def serve(self, path: str, endpoint: _Endpoint) -> None:
        """Serve a path with an ASGI callable, bypassing middleware."""
        self._endpoints[path] = endpoint
        self.router.routes.append(StarletteRoute(path, endpoint=endpoint, name=path.lstrip("/"), methods=["POST"]))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI entry: dispatch webhook paths directly and everything else through FastAPI."""
        if scope["type"] == "http":
            endpoint = self._endpoints.get(scope["path"])
            if endpoint is None and scope["method"] == "POST" and scope["path"] != "/healthz":
                endpoint = self.unknown
            if endpoint is not None:
                await endpoint(scope, receive, send)
                return
        await super().__call__(scope, receive, send)


def create_app(
    registry: Registry, convert: Convert, metrics: AdmissionMetrics, worker: ConversionWorker | None = None
) -> AdmissionApp:
    """Create the application that serves all routes of a registry. ``worker`` handles large conversions."""
    app = AdmissionApp()
    # The route accepts any HTTP method. [MGR-21]
    app.router.routes.append(StarletteRoute("/healthz", PlainTextResponse("ok")))
    for path, route in registry.routes.items():
        endpoint = ReviewEndpoint(app, route, metrics.path(path))
        app.serve(path, endpoint)
        # Charts older than the image use the old paths. [MGR-122]
        for alias, target in registry.aliases.items():
            if target == path:
                app.serve(alias, endpoint)
    for path in registry.switched_off:
        # Another replica, where the gate is on, registered the path. Here the gate is off: allow all reviews. [MGR-101]
        app.serve(path, ReviewEndpoint(app, Route(path, {}, frozenset(), unknown_passes=True), metrics.path(path)))
    app.serve("/convert", ConvertEndpoint(app, convert, metrics.path("/convert"), worker))
    app.unknown = UnknownPathEndpoint(app, tuple(registry.routes), metrics.path("unknown"))
    paths = (*registry.routes, *registry.switched_off, "/convert", "unknown")
    app.review_log.paths = tuple(map(metrics.path, paths))
    return app
