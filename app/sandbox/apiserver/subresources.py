"""Subresources: parts of an object with their own endpoint, and actions on Pods."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

import orjson
from multidict import CIMultiDict

from app.kube import patches
from app.kube.client import PatchType
from app.kube.fielderrors import FieldError, forbidden, invalid
from app.kube.wire import Response
from app.sandbox.apiserver import patching, status
from app.sandbox.apiserver.access import review, service_account_token
from app.sandbox.apiserver.bodies import check_types, parse_body, read_object
from app.sandbox.apiserver.catalog import Catalog
from app.sandbox.apiserver.deleting import Deleter
from app.sandbox.apiserver.kinds import ResourceType
from app.sandbox.apiserver.managing import with_managed
from app.sandbox.apiserver.patching import invalid_patch, patch_type, transform
from app.sandbox.apiserver.podactions import PodActions, only_ephemeral, only_resources
from app.sandbox.apiserver.requests import Call
from app.sandbox.apiserver.scaling import paths_of, scale_managed, scale_of, scaled, value_at
from app.sandbox.apiserver.steps import fresh
from app.sandbox.apiserver.storage import Core, Entry
from app.sandbox.apiserver.typecheck import WrongType
from app.sandbox.apiserver.writing import Transform, Writer

Json: TypeAlias = dict[str, Any]
Found: TypeAlias = Response | tuple[Entry, int]
#: Returns a log, given the namespace, the Pod, the container and the query parameters.
LogSource: TypeAlias = Callable[[str, str, str, Mapping[str, str]], Awaitable[bytes | AsyncIterator[bytes]]]

_STREAMS: Final = frozenset({"attach", "exec", "portforward", "proxy"})
_NARROWED: Final[Mapping[str, Callable[[Json, Json], Json]]] = {
    "ephemeralcontainers": only_ephemeral,
    "resize": only_resources,
}


class Subresources:
    """Serves requests for subresources."""

    def __init__(self, core: Core, catalog: Catalog, writer: Writer, deleter: Deleter) -> None:
        self._core = core
        self._catalog = catalog
        self._writer = writer
        self._pods = PodActions(core, catalog, writer, deleter)
        #: The source of container logs. The caller sets it if kubelets are simulated.
        self.logs: LogSource | None = None

    async def answer(self, call: Call) -> Found | None:
        """Serve a request for a subresource. Returns None for those that the ordinary verbs handle (status)."""
        name = call.subresource
        if name in _STREAMS:
            entry = self._core.entry(call)
            if call.resource.key == "pods" and name != "proxy" and not entry.obj["spec"].get("nodeName"):
                raise status.bad_request(f"pod {call.name} does not have a host assigned")
            raise status.not_implemented(f"{call.resource.plural}/{name}")
        if name == "scale":
            return await self._scale(call)
        if name == "log":
            return await self._log(call)
        if name in ("binding", "eviction", "token"):
            return await self.post(call)
        if name in ("finalize", "approval") and call.verb == "update":
            return await self._replace(call, _only("spec" if name == "finalize" else "status"))
        if name in _NARROWED and call.verb in ("update", "patch"):
            return await self._replace(call, _NARROWED[name])
        return None

    async def post(self, call: Call) -> Response:
        """Serve create-only kinds: actions, reviews and tokens."""
        if call.verb != "create":
            raise status.method_not_allowed()
        kind, api_version = call.resource.kind, call.resource.api_version
        if call.subresource:
            posted = call.resource.served.subresource(call.subresource)
            if posted is not None:
                kind = posted.kind
                api_version = f"{posted.group}/{posted.version}" if posted.group else posted.version
        document, duplicates = parse_body(call)
        checker = self._catalog.checker_of(api_version, kind)
        if not isinstance(document, dict):
            raise status.bad_request(f"the object provided is unrecognized (must be of type {kind})")
        if document.get("kind") not in (None, "", kind):
            given, version = document["kind"], str(document.get("apiVersion", "")).rpartition("/")[2]
            group = api_version.partition(".")[0].partition("/")[0] if "/" in api_version else "core"
            raise status.bad_request(
                f'{given} in version "{version}" cannot be handled as a {kind}: converting ({version}.{given}) to '
                f"({group}.{kind}): unknown conversion"
            )
        document.setdefault("kind", kind)
        document.setdefault("apiVersion", api_version)
        obj = check_types(call, document, checker, duplicates) if checker is not None else document
        if call.namespace and isinstance(obj.get("metadata"), dict):
            obj["metadata"].setdefault("namespace", call.namespace)
        if call.subresource == "token":
            found = service_account_token(self._core, call, obj)
        elif kind == "Binding":
            found = await self._pods.bind(call, obj)
        elif kind == "Eviction":
            found = await self._pods.evict(call, obj)
        elif (reviewed := review(call, obj)) is not None:
            found = reviewed
        else:
            raise status.not_implemented(f"{call.resource.plural}/{call.subresource}")
        return Response(201, _json_headers(), orjson.dumps(found) + b"\n")

    # ---- writes to a part of an object

    async def _replace(self, call: Call, narrow: Callable[[Json, Json], Json]) -> tuple[Entry, int]:
        """Update or patch a part of an object."""
        if call.verb == "patch":
            kind = patch_type(call)
            change = transform(call, kind, self._catalog.schema(call.resource), self._catalog.checker(call.resource))
        else:
            document, duplicates = parse_body(call)
            obj = read_object(call, document, self._catalog.checker(call.resource), duplicates)

            def change(_old: Json | None) -> Json:
                return fresh(obj)  # type: ignore[no-any-return]  # orjson's

        entry, _ = await self._writer.update(call, _narrowed(change, narrow))
        return entry, 200

    # ---- scale

    async def _scale(self, call: Call) -> Response:
        resource, paths = call.resource, paths_of(call.resource)
        if call.verb == "get":
            entry = self._core.entry(call)
            if resource.custom is not None and value_at(entry.obj, paths.wanted) is None:
                path = ".".join(paths.wanted)
                raise status.internal(f'the spec replicas field ".{path}" does not exist')
            return _scale_response(call, entry)
        if call.verb not in ("update", "patch"):
            raise status.method_not_allowed()
        wanted: Json | None = None
        if call.verb == "update":
            document, duplicates = parse_body(call)
            checker = self._catalog.checker_of("autoscaling/v1", "Scale")
            if checker is not None and isinstance(document, dict):
                wanted = check_types(call, document, checker, duplicates)
                name = (wanted.get("metadata") or {}).get("name") or call.name
                if name != call.name:
                    raise status.name_mismatch(name, call.name)

        def change(old: Json | None) -> Json:
            if old is None:
                raise status.not_found(resource, call.name)
            current = scale_of(old, paths)
            scale = wanted if wanted is not None else self._patched_scale(call, current)
            _check_scale(resource, call.name, scale)
            return scaled(fresh(old), scale, paths)

        entry, _ = await self._writer.update(call, change)
        return _scale_response(call, entry)

    def _patched_scale(self, call: Call, scale: Json) -> Json:
        kind = patch_type(call)
        if kind is PatchType.APPLY:
            raise status.not_implemented("server-side apply of a scale")
        document = orjson.loads(call.body)
        scale["spec"].setdefault("replicas", 0)
        try:
            if kind is PatchType.JSON:
                found: Json = patching.apply(document, scale)
            else:
                found = patches.merge_patch(scale, document)
        except patching.JsonPatchError:
            raise status.patch_failed() from None
        except patches.PatchError as error:
            raise status.bad_request(str(error)) from None
        checker = self._catalog.checker_of("autoscaling/v1", "Scale")
        try:
            return dict(checker.read(found)[0]) if checker is not None else found
        except WrongType as error:
            raise invalid_patch(found, str(error)) from None

    # ---- logs

    async def _log(self, call: Call) -> Response:
        entry = self._core.entry(call)
        _check_log_options(call)
        spec = entry.obj.get("spec") or {}
        names = [one["name"] for key in ("containers", "initContainers", "ephemeralContainers")
                 for one in spec.get(key) or ()]  # fmt: skip
        container = call.query.get("container", "")
        if not container:
            regular = [one["name"] for one in spec.get("containers") or ()]
            if len(regular) != 1:
                raise status.bad_request(
                    f"a container name must be specified for pod {call.name}, choose one of: [{' '.join(regular)}]"
                )
            container = regular[0]
        if container not in names:
            raise status.bad_request(f"container {container} is not valid for pod {call.name}")
        if self.logs is None or not spec.get("nodeName"):
            return Response(200 if spec.get("nodeName") else 204, CIMultiDict({"Content-Type": "text/plain"}), b"")
        found = await self.logs(call.namespace, call.name, container, call.query)
        if not isinstance(found, bytes):
            found = b"".join([piece async for piece in found])
        return Response(200, CIMultiDict({"Content-Type": "text/plain"}), found)


def _check_log_options(call: Call) -> None:
    errors: list[FieldError] = []
    for name, least in (("tailLines", 0), ("limitBytes", 1), ("sinceSeconds", 1)):
        value = call.number(name)
        if value is not None and value < least:
            message = f"must be greater than {'or equal to ' if not least else ''}0"
            errors.append(invalid(name, value, message))
    if call.query.get("sinceSeconds") and call.query.get("sinceTime"):
        errors.append(forbidden("[]", "at most one of `sinceTime` or `sinceSeconds` may be specified"))
    if errors:
        raise status.invalid_kind("", "PodLogOptions", call.name, errors)


def _narrowed(change: Transform, narrow: Callable[[Json, Json], Json]) -> Transform:
    def apply(old: Json | None) -> Json:
        wanted = change(old)
        return narrow(wanted, old or {})

    return apply


def _only(part: str) -> Callable[[Json, Json], Json]:
    """Return a function that takes one part and the resourceVersion from the new object, and the rest from the old
    one."""

    def narrow(wanted: Json, old: Json) -> Json:
        found: Json = fresh(old)
        if part in wanted:
            found[part] = wanted[part]
        else:
            found.pop(part, None)
        found["metadata"]["resourceVersion"] = (wanted.get("metadata") or {}).get("resourceVersion")
        return found

    return narrow


def _check_scale(resource: ResourceType, name: str, scale: Json) -> None:
    replicas = (scale.get("spec") or {}).get("replicas") or 0
    errors: list[FieldError] = []
    if replicas < 0 and resource.custom is None:
        errors.append(invalid("spec.replicas", replicas, "must be greater than or equal to 0"))
    if errors:
        raise status.invalid_kind("autoscaling", "Scale", name or resource.kind, errors)


def _scale_response(call: Call, entry: Entry) -> Response:
    paths = paths_of(call.resource)
    scale = scale_of(entry.obj, paths)
    if call.managed:
        scale = with_managed(scale, scale_managed(entry.managed, paths))
    return Response(200, _json_headers(), orjson.dumps(scale) + b"\n")


def _json_headers() -> CIMultiDict[str]:
    return CIMultiDict({"Content-Type": "application/json"})
