"""The API server: dispatches requests, whether made in this process or over HTTPS."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any, Final, Protocol, TypeAlias

import orjson
import yaml
from multidict import CIMultiDict

from app.kube.client import PatchType
from app.kube.clock import Clock
from app.kube.errors import RequestInfo, TransportError
from app.kube.fielderrors import invalid
from app.kube.resources import Resource
from app.kube.wire import Request, Response, Stream, Transport
from app.sandbox.apiserver import reading, status
from app.sandbox.apiserver.admission import AdmissionChain
from app.sandbox.apiserver.applying import apply_transform
from app.sandbox.apiserver.bodies import parse_body, read_object
from app.sandbox.apiserver.catalog import Catalog
from app.sandbox.apiserver.collector import Collector
from app.sandbox.apiserver.customresources import CustomResources
from app.sandbox.apiserver.deleting import DeleteOptions, Deleter, read_body
from app.sandbox.apiserver.forms import Accepted, AnyForm, MetadataForm, ObjectForm, TableForm, negotiate, wants_yaml
from app.sandbox.apiserver.hooks import HookCaller, WebhookConverter
from app.sandbox.apiserver.kinds import ResourceType
from app.sandbox.apiserver.openapi import Documents
from app.sandbox.apiserver.patching import patch_type, transform
from app.sandbox.apiserver.requests import Call, User, check_options, route
from app.sandbox.apiserver.status import Refusal
from app.sandbox.apiserver.steps import fresh
from app.sandbox.apiserver.storage import Collection, Core, Entry, Verb
from app.sandbox.apiserver.subresources import Subresources
from app.sandbox.apiserver.versions import Versions
from app.sandbox.apiserver.watching import Watcher
from app.sandbox.apiserver.writing import Json, Writer


class Server(Protocol):
    """Anything that serves requests."""

    async def serve(self, call: Call) -> Answer:
        """Serve one request."""
        ...


class InProcessTransport:
    """Implements ``app.kube.transport.Transport`` on a server in this process.

    With ``managed``, the client sees managed fields, as HTTPS clients do.
    """

    def __init__(self, server: Server, user: User, *, managed: bool = False) -> None:
        self._server = server
        self._user = user
        self._managed = managed
        self._closed = False

    def _call(self, request: Request) -> Call:
        if self._closed:
            raise TransportError(RequestInfo(request.method, request.target), "the transport is closed")
        headers = {name.lower(): value for name, value in request.headers.items()}
        call = Call(request.method, request.path, request.query, headers, request.body or b"", self._user)
        call.managed = self._managed
        return call

    async def request(self, request: Request) -> Response:
        """Send a request and read the whole response."""
        answer = await self._server.serve(self._call(request))
        if isinstance(answer, Watcher):
            body = b"".join([chunk async for chunk in answer.chunks()])
            return Response(200, _watch_headers(), body)
        return answer

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Stream]:
        """Send a request and stream the response."""
        answer = await self._server.serve(self._call(request))
        if isinstance(answer, Watcher):
            try:
                yield Stream(200, _watch_headers(), answer.chunks())
            finally:
                answer.close()
        else:
            yield Stream(answer.status, answer.headers, _once(answer.body))

    async def close(self) -> None:
        """Reject further requests."""
        self._closed = True


def _watch_headers() -> CIMultiDict[str]:
    return CIMultiDict({"Content-Type": "application/json"})


async def _once(body: bytes) -> AsyncIterator[bytes]:
    if body:
        yield body


# ApiServer: an in-memory Kubernetes API server.
#
#     api = ApiServer(clock=SystemClock(), rng=Random(1))
#     client = Client(api.transport(), clock)
#
# All requests, in process or over HTTPS, go through :meth:`ApiServer.serve`.

logger = logging.getLogger(__name__)

Answer: TypeAlias = Response | Watcher
#: Called after every committed write with the verb, the resource, and the object before and after it (None if it does
#: not exist).
OnWrite: TypeAlias = Callable[[Verb, Resource, Json | None, Json | None], None]

_JSON: Final = "application/json"
_YAML: Final = "application/yaml"
_NAMESPACES: Final = ("default", "kube-node-lease", "kube-public", "kube-system")


class ApiServer:
    """The API server of one control plane. The same clock, seed and requests produce the same history."""

    def __init__(self, *, clock: Clock, rng: Random) -> None:
        self.core = Core(clock, rng)
        self.catalog = Catalog()
        self.versions = Versions(self.core)
        #: Calls webhooks. Set their addresses or in-process handlers in ``webhooks.services`` and ``webhooks.local``.
        self.webhooks = HookCaller(clock)
        self.versions.webhook = WebhookConverter(self.webhooks, self.core.new_uid).convert
        self.admission = AdmissionChain(self.core, self.catalog, self.versions, self.webhooks)
        self.writer = Writer(self.core, self.catalog, self.admission, self.versions)
        self.deleter = Deleter(self.core, self.catalog, self.admission)
        self.collector = Collector(self.core, self.deleter)
        self.documents = Documents(self.core)
        self.custom = CustomResources(self.core, self.documents.forget)
        self.subresources = Subresources(self.core, self.catalog, self.writer, self.deleter)
        for name in _NAMESPACES:
            self._make_namespace(name)

    def transport(
        self, user: str = "system:admin", groups: tuple[str, ...] = ("system:masters",), *, managed_fields: bool = False
    ) -> Transport:
        """Return an in-process connection for this user.

        ``managed_fields``: whether the client sees managed fields. Off by default: they cost time, and most in-process
        clients ignore them.
        """
        return InProcessTransport(self, User(user, (*groups, "system:authenticated")), managed=managed_fields)

    def on_write(self, callback: OnWrite) -> None:
        """Call ``callback`` after every committed write, in commit order."""

        def listener(verb: Verb, collection: Collection, before: Entry | None, after: Entry | None) -> None:
            row = self.core.registry.named(collection.name)
            if row is not None:
                new = None if verb == "delete" or after is None else after.obj
                callback(verb, row.resource, before.obj if before is not None else None, new)

        self.core.storage.listeners.append(listener)

    def objects(self, resource: Resource) -> list[Json]:
        """Return all stored objects of a resource. They must not be changed."""
        row = self.core.registry.find(resource.group, resource.version, resource.plural)
        return [] if row is None else [entry.obj for entry in self.core.collection(row).objects.values()]

    def compact(self, revision: int | None = None) -> None:
        """Drop the history up to a version (default: the current one). Watches that start before it fail with 410."""
        self.core.storage.compact(revision)

    def close(self) -> None:
        """Stop background work, and end all watches and connections."""
        self.collector.close()
        self.webhooks.abandon()
        self.end_watches()

    async def aclose(self) -> None:
        """Close, and wait until the connections to webhooks are closed."""
        await self.webhooks.close()
        self.close()

    def end_watches(self) -> None:
        """End all watches, as a restarting server does."""
        for collection in self.core.storage.collections.values():
            for sink in tuple(collection.sinks):
                if isinstance(sink, Watcher):
                    sink.close()

    def _make_namespace(self, name: str) -> None:
        resource = self.core.registry.find("", "v1", "namespaces")
        if resource is None:  # pragma: no cover  # a built-in kind
            raise LookupError("namespaces")
        obj: Json = {"metadata": {"name": name}}
        strategy = self.catalog.strategy(resource)
        strategy.default(obj)
        strategy.prepare_create(obj)
        metadata = obj["metadata"]
        metadata["uid"], metadata["creationTimestamp"] = self.core.new_uid(), self.core.now()
        found = {"kind": "Namespace", "apiVersion": "v1", **obj}
        self.core.storage.create(self.core.collection(resource), name, found)

    # ---- dispatch

    async def serve(self, call: Call) -> Answer:
        """Serve one request. For a watch, return its watcher."""
        try:
            return await self._serve(call)
        except Refusal as refusal:
            return self._refused(call, refusal)
        except Exception:
            logger.exception("%s %s: internal error", call.method, call.path)
            return self._refused(call, status.internal("the sandbox raised an exception; see its log"))

    def _refused(self, call: Call, refusal: Refusal) -> Response:
        headers = _headers(_JSON, call.warnings)
        if seconds := refusal.details.get("retryAfterSeconds"):
            headers["Retry-After"] = str(seconds)
        if refusal.text is not None:
            headers["Content-Type"] = "text/plain; charset=utf-8"
            return Response(refusal.code, headers, refusal.text.encode())
        if call.method == "HEAD":
            return Response(refusal.code, headers, b"")
        if wants_yaml(call.headers.get("accept", "")):
            headers["Content-Type"] = _YAML
            return Response(refusal.code, headers, _as_yaml(refusal.as_json()))
        return Response(refusal.code, headers, refusal.body())

    async def _serve(self, call: Call) -> Answer:
        if not route(call, self.core.registry):
            return self.documents.answer(call)
        check_options(call)
        if warning := _deprecated(call.resource):
            call.warnings.append(warning)
        if call.subresource and (found := await self.subresources.answer(call)) is not None:
            return found if isinstance(found, Response) else await self._object(call, found[0], found[1])
        match call.verb:
            case "get":
                return await self._object(call, reading.get(self.core, call))
            case "list":
                return await self._list(call)
            case "watch":
                return self._watch(call)
            case "create":
                return await self._create(call)
            case "update":
                return await self._update(call)
            case "patch":
                return await self._patch(call)
            case "delete":
                return await self._delete(call)
        return await self._delete_collection(call)

    # ---- verbs

    async def _create(self, call: Call) -> Response:
        if "get" not in call.resource.verbs:
            return await self.subresources.post(call)
        document, duplicates = parse_body(call)
        obj = read_object(call, document, self.catalog.checker(call.resource), duplicates)
        return await self._object(call, await self.writer.create(call, obj), 201)

    async def _update(self, call: Call) -> Response:
        document, duplicates = parse_body(call)
        obj = read_object(call, document, self.catalog.checker(call.resource), duplicates)
        metadata = obj.get("metadata") if isinstance(obj.get("metadata"), dict) else {}
        name = (metadata or {}).get("name") or ""
        if name != call.name:
            raise status.name_mismatch(name, call.name)
        namespace = (metadata or {}).get("namespace")
        if namespace and call.namespace and namespace != call.namespace:
            raise status.namespace_mismatch()
        uid = (metadata or {}).get("uid") or ""
        if metadata and (document.get("metadata") or {}).get("managedFields") == []:
            metadata["managedFields"] = [{}]  # an empty list resets the managed fields, but decoding drops empty lists
        allow = call.resource.create_on_update and not call.subresource
        entry, created = await self.writer.update(call, lambda _old: fresh(obj), allow_create=allow, uid=uid)
        return await self._object(call, entry, 201 if created else 200)

    async def _patch(self, call: Call) -> Response:
        kind = patch_type(call)
        schema, reader = self.catalog.schema(call.resource), self.catalog.checker(call.resource)
        if kind is PatchType.APPLY:
            change = apply_transform(self.core, call, schema, reader)
        else:
            strategy = self.catalog.strategy(call.resource)
            apart = call.subresource == "status" and strategy.default_status is not None
            change = transform(call, kind, schema, reader, apart=apart)
        allow = kind is PatchType.APPLY and not call.subresource
        entry, created = await self.writer.update(call, change, allow_create=allow)
        return await self._object(call, entry, 201 if created else 200)

    async def _delete(self, call: Call) -> Response:
        options = DeleteOptions.read(call, read_body(call))
        found, code = await self.deleter.delete(call, options)
        if isinstance(found, Entry):
            return await self._object(call, found, code)
        return Response(code, _headers(_JSON, call.warnings), orjson.dumps(found) + b"\n")

    async def _delete_collection(self, call: Call) -> Response:
        options = DeleteOptions.read(call, read_body(call))
        entries, metadata = reading.list_objects(self.core, call)
        for entry in entries:
            namespace, _, name = entry.key.rpartition("/")
            one = Call(call.method, call.path, call.query, call.headers, b"", call.user, namespace, name)
            one.resource, one.verb, one.warnings = call.resource, "delete", call.warnings
            one.of_many = True
            try:
                await self.deleter.delete(one, options)
            except Refusal as refusal:
                if refusal.code != 404:
                    raise
        form = ObjectForm(call.resource, managed=call.managed)
        return Response(200, _headers(_JSON, call.warnings), form.listing(entries, metadata))

    async def _list(self, call: Call) -> Response:
        accepted = negotiate(call.headers.get("accept", ""), listing=True, go_type=_go_type(call, "List"))
        entries, metadata = reading.list_objects(self.core, call)
        shown = await self.versions.shown(call.resource, entries)
        form = self._form(call, accepted)
        return _response(200, call, accepted, form.listing(shown, metadata))

    def _watch(self, call: Call) -> Watcher:
        accepted = negotiate(call.headers.get("accept", ""))
        form = self._form(call, accepted, watching=True)
        return reading.watch(self.core, call, form, self.versions.watched(call.resource))

    # ---- forms

    def _form(self, call: Call, accepted: Accepted, *, watching: bool = False) -> AnyForm:
        match accepted.shape:
            case "table":
                include = call.query.get("includeObject", "")
                if include not in _INCLUDED:
                    error = invalid("includeObject", include, "must be 'Metadata', 'Object', 'None', or empty")
                    raise status.bad_request(f"Unable to convert to Table as requested: {error}")
                table = self.catalog.table(call.resource)
                version, managed = accepted.version, call.managed
                return TableForm(table, self.core.clock, version, include, managed=managed, headers_once=watching)
            case "metadata":
                return MetadataForm(accepted.version, managed=call.managed)
        return ObjectForm(call.resource, managed=call.managed)

    async def _object(self, call: Call, entry: Entry, code: int = 200) -> Response:
        if entry.api_version != call.resource.api_version:
            [entry] = await self.versions.shown(call.resource, [entry])
        accepted = negotiate(call.headers.get("accept", ""), go_type=_go_type(call))
        if accepted.shape == "object" and not accepted.yaml:
            raw = entry.full_raw if call.managed else entry.raw
            return Response(code, _headers(_JSON, call.warnings), raw)
        return _response(code, call, accepted, self._form(call, accepted).encode(entry))


_INCLUDED: Final = ("", "Metadata", "Object", "None")
_DEPRECATED: Final = {
    "endpoints": "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
}


def _deprecated(resource: ResourceType) -> str:
    """Return the warning for a deprecated resource, or ""."""
    if resource.custom is not None:
        return resource.custom.deprecation
    return _DEPRECATED.get(resource.key, "")


def _go_type(call: Call, suffix: str = "") -> str:
    """Return the name of the response's Go type in messages."""
    resource = call.resource
    if resource.custom is not None:
        return f"*unstructured.Unstructured{suffix}"
    return f"*{resource.group.partition('.')[0] or 'core'}.{resource.kind}{suffix}"


def _headers(media: str, warnings: list[str]) -> CIMultiDict[str]:
    headers = CIMultiDict({"Content-Type": media})
    for text in dict.fromkeys(warnings):
        escaped = text.replace("\\", "\\\\").replace('"', '\\"')
        headers.add("Warning", f'299 - "{escaped}"')
    return headers


def _response(code: int, call: Call, accepted: Accepted, body: bytes) -> Response:
    if not accepted.yaml:
        return Response(code, _headers(_JSON, call.warnings), body)
    return Response(code, _headers(_YAML, call.warnings), _as_yaml(orjson.loads(body)))


def _as_yaml(document: Any) -> bytes:
    return yaml.safe_dump(document, sort_keys=True, allow_unicode=True).encode()
