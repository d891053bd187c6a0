"""The client: the verbs of the Kubernetes API as coroutines that take and return decoded objects."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from enum import StrEnum
from typing import Any, Literal, TypeAlias, cast

import msgspec
import orjson
from typing_extensions import TypeVar

from app.kube import jsonvalues
from app.kube.clock import Clock, TokenBucket
from app.kube.errors import ApiError, DecodeError, Gone, NotFound, RequestInfo, TooManyRequests, api_error
from app.kube.objects import decode_metadata
from app.kube.resources import Resource
from app.kube.wire import USER_AGENT, Listing, Request, Response, Stream, Transport, read_list

# Client: the verbs of the Kubernetes API on any resource, typed by the decoder that is handed in.
#
#     pod = await client.get(PODS, "web-0", "shop", decode=decode_pod)     # a Pod
#     raw = await client.get(PODS, "web-0", "shop")                        # a dict
#     await client.patch(PODS, "web-0", {"metadata": {"labels": {"a": "b"}}}, "shop")
#
# A decoder is any function from JSON bytes to an object: ``decode_pod``, a model's ``model_validate_json``; without
# one the answer is a dict. Refusals raise ``ApiError`` by reason, missing answers ``TransportError``, unreadable ones
# ``DecodeError``.

logger = logging.getLogger(__name__)

JsonObject: TypeAlias = dict[str, Any]
T = TypeVar("T", default=JsonObject)
Decode: TypeAlias = Callable[[bytes], T]
Body: TypeAlias = bytes | Mapping[str, Any] | Sequence[Mapping[str, Any]] | msgspec.Struct

JSON = "application/json"
#: Asks for an object's metadata alone.
METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
#: Asks for a list whose items are PartialObjectMetadata.
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
#: Objects per page of a list; what client-go uses.
PAGE_SIZE = 500
#: How often a request is sent again at most, and the longest wait before it, where the server asks for a later try.
MAX_RETRIES = 5
MAX_RETRY_AFTER = 30.0


class PatchType(StrEnum):
    """The ways to patch, by their content type."""

    JSON = "application/json-patch+json"
    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    APPLY = "application/apply-patch+yaml"


class Client:
    """A client for one API server. It keeps no state but its rate limit, so it may be shared by everything."""

    def __init__(
        self,
        transport: Transport,
        clock: Clock,
        *,
        user_agent: str = USER_AGENT,
        limiter: TokenBucket | None = None,
        limit: Callable[[], TokenBucket | None] = lambda: None,
        dry_run: bool = False,
    ) -> None:
        """``limiter``: the rate limit of this client. ``limit`` makes one for each client that is named after it.
        ``dry_run``: the API server stores nothing of what this client writes."""
        self.transport = transport
        self.clock = clock
        self._user_agent = user_agent
        self._limiter = limiter
        self._limit = limit
        self._dry_run = dry_run
        self._warned: set[str] = set()

    def named(self, name: str, *, limited: bool = True, limiter: TokenBucket | None = None) -> Client:
        """The same connections under the user agent ``kruise-manager/<name>`` and a rate limit of its own (MGR-11)."""
        if limited and limiter is None:
            limiter = self._limit()
        return Client(
            self.transport, self.clock, user_agent=f"{USER_AGENT}/{name}", limiter=limiter, dry_run=self._dry_run
        )

    # ---- reading

    async def get(
        self,
        resource: Resource,
        name: str,
        namespace: str = "",
        *,
        subresource: str = "",
        decode: Decode[T] | None = None,
    ) -> T:
        """One object as it is now."""
        return await self._send("GET", resource.path(namespace, name, subresource), {}, decode)

    async def list(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        page_size: int = PAGE_SIZE,
        decode: Decode[T] | None = None,
    ) -> Listing[T]:
        """All objects, fetched in pages. Items of core kinds carry no apiVersion and kind of their own."""
        items: list[T] = []
        token = ""
        while True:
            try:
                page = await self.list_page(
                    resource,
                    namespace,
                    label_selector=label_selector,
                    field_selector=field_selector,
                    limit=page_size,
                    continue_token=token,
                    decode=decode,
                )
            except Gone:
                if not token:
                    raise
                # The pages so far are too old to be continued: once more, in one piece.
                items, token, page_size = [], "", 0
                continue
            items += page.items
            token = page.continue_token
            if not token:
                return Listing(items, page.resource_version)

    async def list_page(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        limit: int = PAGE_SIZE,
        continue_token: str = "",
        metadata_only: bool = False,
        decode: Decode[T] | None = None,
    ) -> Listing[T]:
        """One page; ``continue_token`` of its answer asks for the next. With ``metadata_only`` the server sends no
        more than that of each object."""
        query = selectors(label_selector, field_selector)
        if limit:
            query["limit"] = str(limit)
        if continue_token:
            query["continue"] = continue_token
        accept = METADATA_LIST if metadata_only else JSON
        request = self._request("GET", resource.path(namespace), query, accept=accept)
        raw = _decoded(request, read_list, (await self._exchange(request)).body)
        item: Decode[T] = decode or cast("Decode[T]", orjson.loads)
        items = [_decoded(request, item, bytes(part)) for part in raw.items or ()]
        return Listing(items, raw.metadata.resource_version, raw.metadata.continue_token)

    @asynccontextmanager
    async def watch(self, resource: Resource, namespace: str, query: Mapping[str, str]) -> AsyncIterator[Stream]:
        """The stream of a watch, as bytes; ``query`` says from where. Raises ``ApiError`` if it is refused."""
        request = self._request("GET", resource.path(namespace), {**query, "watch": "true"})
        if self._limiter is not None:
            await self._limiter.take()
        async with self.transport.stream(request) as stream:
            if stream.status >= 300:
                body = b"".join([chunk async for chunk in stream.chunks])
                raise api_error(_info(request), stream.status, body, stream.headers.get("Retry-After"))
            yield stream

    # ---- writing

    async def create(
        self,
        resource: Resource,
        body: Body,
        namespace: str = "",
        *,
        name: str = "",
        subresource: str = "",
        dry_run: bool = False,
        field_manager: str = "",
        field_validation: Literal["", "Ignore", "Warn", "Strict"] = "",
        decode: Decode[T] | None = None,
    ) -> T:
        """Create an object; with ``name`` and ``subresource``, post to that (eviction, binding, token)."""
        if resource.namespaced and not namespace:
            raise ValueError(f"{resource.kind}: creating one needs a namespace")
        query = _write_query(dry_run or self._dry_run, field_manager, field_validation)
        return await self._send("POST", resource.path(namespace, name, subresource), query, decode, body)

    async def replace(
        self,
        resource: Resource,
        name: str,
        body: Body,
        namespace: str = "",
        *,
        subresource: str = "",
        dry_run: bool = False,
        field_manager: str = "",
        field_validation: Literal["", "Ignore", "Warn", "Strict"] = "",
        decode: Decode[T] | None = None,
    ) -> T:
        """Put a whole object; its ``resourceVersion``, where it carries one, must still be the current one."""
        query = _write_query(dry_run or self._dry_run, field_manager, field_validation)
        return await self._send("PUT", resource.path(namespace, name, subresource), query, decode, body)

    async def patch(
        self,
        resource: Resource,
        name: str,
        patch: Body,
        namespace: str = "",
        *,
        kind: PatchType = PatchType.MERGE,
        subresource: str = "",
        dry_run: bool = False,
        field_manager: str = "",
        field_validation: Literal["", "Ignore", "Warn", "Strict"] = "",
        force: bool = False,
        decode: Decode[T] | None = None,
    ) -> T:
        """Change what ``patch`` says. ``force`` takes fields over from other managers (server-side apply only)."""
        query = _write_query(dry_run or self._dry_run, field_manager, field_validation)
        if kind is PatchType.APPLY:
            query.setdefault("fieldManager", USER_AGENT)
            if force:
                query["force"] = "true"
        path = resource.path(namespace, name, subresource)
        return await self._send("PATCH", path, query, decode, patch, content_type=kind.value)

    async def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str = "",
        *,
        grace_period_seconds: int | None = None,
        propagation_policy: Literal["", "Orphan", "Background", "Foreground"] = "",
        uid: str = "",
        resource_version: str = "",
        dry_run: bool = False,
        decode: Decode[T] | None = None,
    ) -> T:
        """Delete an object; ``uid`` and ``resource_version`` are preconditions (else ``Conflict``). The answer is the
        object where something keeps it for now, else a Status."""
        options: JsonObject = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if grace_period_seconds is not None:
            options["gracePeriodSeconds"] = grace_period_seconds
        if propagation_policy:
            options["propagationPolicy"] = propagation_policy
        if preconditions := {k: v for k, v in (("uid", uid), ("resourceVersion", resource_version)) if v}:
            options["preconditions"] = preconditions
        query = _write_query(dry_run or self._dry_run, "", "")
        return await self._send("DELETE", resource.path(namespace, name), query, decode, options)

    async def raw(self, path: str, query: Mapping[str, str] | None = None) -> bytes:
        """The body of a GET on any path (``/version``, ``/apis``, ``/openapi/v3``)."""
        return (await self._exchange(self._request("GET", path, query or {}))).body

    # ---- how

    async def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        decode: Decode[T] | None,
        body: Body | None = None,
        content_type: str = JSON,
    ) -> T:
        request = self._request(method, path, query, body, content_type, accept=_form(method, decode))
        response = await self._exchange(request)
        return _decoded(request, decode or cast("Decode[T]", orjson.loads), response.body)

    def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Body | None = None,
        content_type: str = JSON,
        accept: str = JSON,
    ) -> Request:
        headers = {"Accept": accept, "User-Agent": self._user_agent}
        if body is None:
            return Request(method, path, query, headers)
        headers["Content-Type"] = content_type
        return Request(method, path, query, headers, encode(body))

    async def _exchange(self, request: Request) -> Response:
        """The successful answer. Where the server asks to come again later, that is done a few times first."""
        retries = 0
        while True:
            if self._limiter is not None:
                await self._limiter.take()
            response = await self.transport.request(request)
            if response.status < 300:
                if warning := response.headers.get("Warning"):
                    self._warn(request, warning)
                return response
            error = api_error(_info(request), response.status, response.body, response.headers.get("Retry-After"))
            if retries >= MAX_RETRIES or not _may_retry(request.method, error):
                raise error
            retries += 1
            await self.clock.sleep(min(error.retry_after or 0.0, MAX_RETRY_AFTER))

    def _warn(self, request: Request, warning: str) -> None:
        """Pass on what the server warns about (deprecated versions, unknown fields), each text once."""
        if warning not in self._warned and len(self._warned) < 1000:
            self._warned.add(warning)
            logger.warning("%s: the API server warns: %s", _info(request), warning)


def encode(body: Body) -> bytes:
    """JSON bytes of a body; bytes pass as they are."""
    if isinstance(body, bytes):
        return body
    if isinstance(body, msgspec.Struct):
        return msgspec.json.encode(body)
    try:
        return orjson.dumps(body)
    except TypeError:
        # Numbers of many digits, halves of letters, more levels than it goes: what is copied out of others' objects.
        return json.dumps(body).encode("ascii")


def selectors(label_selector: str, field_selector: str) -> dict[str, str]:
    """The part of a query that narrows a list or watch."""
    pairs = (("labelSelector", label_selector), ("fieldSelector", field_selector))
    return {key: value for key, value in pairs if value}


def _write_query(dry_run: bool, field_manager: str, field_validation: str) -> dict[str, str]:
    query = {"dryRun": "All"} if dry_run else {}
    if field_manager:
        query["fieldManager"] = field_manager
    if field_validation:
        query["fieldValidation"] = field_validation
    return query


def _form(method: str, decode: Decode[Any] | None) -> str:
    """What to ask for as the answer to a write: who reads nothing but the metadata gets no more."""
    return METADATA if decode is decode_metadata and method in ("POST", "PATCH", "PUT") else JSON


def _may_retry(method: str, error: ApiError) -> bool:
    """What is refused for overload was never begun: any verb may come again. Otherwise only reads."""
    if error.retry_after is None:
        return False
    return isinstance(error, TooManyRequests) or (method == "GET" and error.code >= 500)


def _info(request: Request) -> RequestInfo:
    return RequestInfo(request.method, request.target)


def if_readable(decode: Decode[T]) -> Decode[T | None]:
    """The same with None for what cannot be read: where one object that somebody stored past admission must not keep
    others from being looked at. Nobody hides an object of his by the depth of its managed fields."""

    def read(body: bytes) -> T | None:
        try:
            return jsonvalues.read(decode, body)
        except (msgspec.MsgspecError, ValueError):
            return None

    return read


def _decoded(request: Request, decode: Decode[T], body: bytes) -> T:
    try:
        return jsonvalues.read(decode, body)
    except (msgspec.MsgspecError, ValueError) as error:
        raise DecodeError(_info(request), str(error)) from error


Found = TypeVar("Found")


async def get_or_none(
    client: Client,
    resource: Resource,
    name: str,
    namespace: str = "",
    *,
    subresource: str = "",
    decode: Decode[Found] | None = None,
) -> Found | None:
    """The object as it is now; None if there is none. Raises what else the API server says."""
    try:
        return await client.get(resource, name, namespace, subresource=subresource, decode=decode)
    except NotFound:
        return None
