"""The client: the verbs of the Kubernetes API as coroutines, for any resource.

    pod = await client.get(PODS, "web-0", "shop", decode=decode_pod)     # a Pod
    raw = await client.get(PODS, "web-0", "shop")                        # a dict
    await client.patch(PODS, "web-0", {"metadata": {"labels": {"a": "b"}}}, "shop")

A decoder is any function from JSON bytes to an object: ``decode_pod``, or a model's ``model_validate_json``. Without
one, the result is a dict. API errors raise a subclass of ``ApiError``, missing responses ``TransportError``, and
undecodable responses ``DecodeError``.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from enum import StrEnum
from typing import Any, Literal, TypeAlias, cast

import msgspec
import orjson
from typing_extensions import TypeVar

from app.kube import jsonvalues
from app.kube.clock import CONFLICT_ATTEMPTS, Clock, TokenBucket, conflict_wait
from app.kube.errors import ApiError, Conflict, DecodeError, Gone, NotFound, RequestInfo, TooManyRequests, api_error
from app.kube.objects import Meta, ObjectMeta, decode_metadata
from app.kube.resources import Resource
from app.kube.wire import USER_AGENT, Listing, Request, Response, Stream, Transport, read_list

logger = logging.getLogger(__name__)

JsonObject: TypeAlias = dict[str, Any]
T = TypeVar("T", default=JsonObject)
Decode: TypeAlias = Callable[[bytes], T]
Body: TypeAlias = bytes | Mapping[str, Any] | Sequence[Mapping[str, Any]] | msgspec.Struct

JSON = "application/json"
#: Accept header that requests only an object's metadata.
METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
#: Accept header that requests a list of PartialObjectMetadata.
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
#: Objects per page of a list, as in client-go.
PAGE_SIZE = 500
#: Limits on retries after a Retry-After header: the number of retries, and the longest wait before each.
MAX_RETRIES = 5
MAX_RETRY_AFTER = 30.0
#: The warnings in a header such as ``299 - "unknown field", 299 - "deprecated"``.
_WARNING = re.compile(r'[0-9]{3} [^ "]+ "((?:[^"\\]|\\.)*)"')


class PatchType(StrEnum):
    """Patch types. The values are their content types."""

    JSON = "application/json-patch+json"
    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    APPLY = "application/apply-patch+yaml"


class Client:
    """A client for one API server. It holds no state except its rate limit, so it can be shared."""

    def __init__(
        self,
        transport: Transport,
        clock: Clock,
        *,
        user_agent: str = USER_AGENT,
        limiter: TokenBucket | None = None,
        limit: Callable[[], TokenBucket | None] = lambda: None,
        dry_run: bool = False,
        warned: Callable[[str], None] | None = None,
    ) -> None:
        """Create a client.

        ``limiter`` is the rate limit of this client; ``limit`` creates one for each client derived with ``named``. With
        ``dry_run``, the API server persists none of this client's writes. ``warned`` receives each warning from the
        server; by default, warnings are logged.
        """
        self.transport = transport
        self.clock = clock
        self._user_agent = user_agent
        self._limiter = limiter
        self._limit = limit
        self._dry_run = dry_run
        self._warned = warned
        self._warnings: set[str] = set()

    def named(self, name: str, *, limited: bool = True, limiter: TokenBucket | None = None) -> Client:
        """Return a client on the same connections with the user agent ``kruise-manager/<name>`` and its own rate limit.
        [MGR-11]"""
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
        return await self._send("GET", resource.path_of(namespace, name, subresource), {}, decode)

    async def list(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        page_size: int = PAGE_SIZE,
        metadata_only: bool = False,
        decode: Decode[T] | None = None,
    ) -> Listing[T]:
        """Return all objects, fetched in pages. Items of core kinds have no apiVersion or kind. With
        ``metadata_only``, the server sends only the metadata of each object."""
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
                    metadata_only=metadata_only,
                    decode=decode,
                )
            except Gone:
                if not token:
                    raise
                # The continue token has expired: list again without paging.
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
        """Return one page; the ``continue_token`` in the result requests the next."""
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
        """Return the byte stream of a watch; ``query`` sets where it starts. Raises ``ApiError`` if the watch is
        refused."""
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
        """Create an object. With ``name`` and ``subresource``, POST to that subresource (eviction, binding, token)."""
        if resource.namespaced and not namespace:
            raise ValueError(f"{resource.kind}: a namespace is required to create one")
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
        """Replace an object. If the body has a ``resourceVersion``, it must be the current one."""
        query = _write_query(dry_run or self._dry_run, field_manager, field_validation)
        return await self._send("PUT", resource.path_of(namespace, name, subresource), query, decode, body)

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
        """Apply ``patch``. ``force`` takes over fields from other managers (server-side apply only)."""
        query = _write_query(dry_run or self._dry_run, field_manager, field_validation)
        if kind is PatchType.APPLY:
            query.setdefault("fieldManager", USER_AGENT)
            if force:
                query["force"] = "true"
        path = resource.path_of(namespace, name, subresource)
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
        """Delete an object.

        ``uid`` and ``resource_version`` are preconditions; if they do not match, ``Conflict`` is raised. Returns the
        object if its deletion is pending, otherwise a Status.
        """
        options: JsonObject = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if grace_period_seconds is not None:
            options["gracePeriodSeconds"] = grace_period_seconds
        if propagation_policy:
            options["propagationPolicy"] = propagation_policy
        if preconditions := {k: v for k, v in (("uid", uid), ("resourceVersion", resource_version)) if v}:
            options["preconditions"] = preconditions
        query = _write_query(dry_run or self._dry_run, "", "")
        return await self._send("DELETE", resource.path_of(namespace, name), query, decode, options)

    async def raw(self, path: str) -> bytes:
        """Return the body of a GET request for any path (``/version``, ``/apis``, ``/openapi/v3``)."""
        return (await self._exchange(self._request("GET", path, {}))).body

    # ---- internals

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
        """Send the request and return the response. Retries a few times if the server sends Retry-After."""
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

    def _warn(self, request: Request, header: str) -> None:
        """Report each warning from the server (deprecated versions, unknown fields) once."""
        for quoted in _WARNING.findall(header):
            warning = re.sub(r"\\(.)", r"\1", quoted)
            if warning in self._warnings or len(self._warnings) >= 1000:
                continue
            self._warnings.add(warning)
            if self._warned is not None:
                self._warned(warning)
            else:
                logger.warning("%s: warning from the API server: %s", _info(request), warning)


def encode(body: Body) -> bytes:
    """Return the body as JSON bytes; bytes are returned unchanged."""
    if isinstance(body, bytes):
        return body
    if isinstance(body, msgspec.Struct):
        return msgspec.json.encode(body)
    try:
        return orjson.dumps(body)
    except TypeError:
        # orjson rejects large integers, lone surrogates and deep nesting, which values of other objects may contain.
        return json.dumps(body).encode("ascii")


def selectors(label_selector: str, field_selector: str) -> dict[str, str]:
    """Return the query parameters that narrow a list or watch."""
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
    """Return the Accept header. A write requests only the metadata if that is all the caller decodes."""
    return METADATA if decode is decode_metadata and method in ("POST", "PATCH", "PUT") else JSON


def _may_retry(method: str, error: ApiError) -> bool:
    """Return whether a request may be retried. If the server rejected it because of overload, it was never started, so
    any verb may be retried; otherwise, only reads may be."""
    if error.retry_after is None:
        return False
    return isinstance(error, TooManyRequests) or (method == "GET" and error.code >= 500)


def _info(request: Request) -> RequestInfo:
    return RequestInfo(request.method, request.target)


def if_readable(decode: Decode[T]) -> Decode[T | None]:
    """Wrap a decoder to return None for an unreadable object.

    One object stored without admission must not block the processing of others. Deeply nested managedFields do not make
    an object unreadable.
    """

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
    decode: Decode[Found] | None = None,
) -> Found | None:
    """Return the current object, or None if it does not exist. Raises any other API error."""
    try:
        return await client.get(resource, name, namespace, decode=decode)
    except NotFound:
        return None


async def retry_conflicts(client: Client, attempt: Callable[[int], Awaitable[Found]]) -> Found:
    """Call ``attempt`` with 0, 1, 2 … while it raises Conflict, up to the limit. Return its result."""
    for number in range(CONFLICT_ATTEMPTS - 1):
        try:
            return await attempt(number)
        except Conflict:
            await client.clock.sleep(conflict_wait(number))
    return await attempt(CONFLICT_ATTEMPTS - 1)


async def patch_seen_status(client: Client, resource: Resource, seen: Meta, status: Mapping[str, Any]) -> ObjectMeta:
    """Patch the status of an object unless it has changed since ``seen``. Return its new metadata. Raises KubeError."""
    body = {"metadata": {"uid": seen.uid, "resourceVersion": seen.resource_version}, "status": status}
    written = await client.patch(
        resource, seen.name, body, seen.namespace or "", subresource="status", decode=decode_metadata
    )
    return written.metadata


async def delete_if_present(client: Client, resource: Resource, metadata: Meta) -> bool:
    """Delete exactly this object; its dependents are deleted in the background. Returns False if it is already gone."""
    try:
        await client.delete(
            resource,
            metadata.name,
            metadata.namespace or "",
            uid=metadata.uid or "",
            propagation_policy="Background",
            decode=decode_metadata,
        )
    except NotFound:
        return False
    return True
