"""OpenAPI documents and discovery documents."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final

import orjson
from multidict import CIMultiDict

from app.kube.wire import Response
from app.sandbox.apiserver import discovery, status
from app.sandbox.apiserver.discovery import KUBERNETES_VERSION, Document, ServedResource
from app.sandbox.apiserver.requests import Call
from app.sandbox.apiserver.schemas import (
    GVK,
    LIST_META,
    OBJECT_META,
    REF_PREFIX,
    Schema,
    builtin_types,
    kind_field,
    read_data,
    reference,
)
from app.sandbox.apiserver.storage import Core

# OpenAPI documents, limited to what clients use: types with descriptions, and the query parameters of each operation.
#
# `kubectl explain` reads the types. `kubectl apply` and `kubectl create` read merge keys, and look at the parameters of
# the patch operation to see whether the server supports field validation and dry run. Responses and request bodies are
# left out.

_CONVENTIONS: Final = "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md"
_METADATA: Final = f"Standard object's metadata. More info: {_CONVENTIONS}#metadata"
_LIST_METADATA: Final = f"Standard list metadata. More info: {_CONVENTIONS}#types-kinds"
_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1"
_TYPES_OF_VERBS: Final = {"patch": ("Patch",), "delete": ("DeleteOptions", "Status"), "watch": ("WatchEvent",)}
_WRITES: Final = ("dryRun", "fieldManager", "fieldValidation")
_LIST: Final = (
    "allowWatchBookmarks",
    "continue",
    "fieldSelector",
    "labelSelector",
    "limit",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "timeoutSeconds",
    "watch",
)
_DELETE: Final = ("dryRun", "gracePeriodSeconds", "orphanDependents", "propagationPolicy")
#: HTTP method, OpenAPI action and query parameters by discovery verb.
_ITEM_OPERATIONS: Final = {
    "get": ("get", "get", ()),
    "update": ("put", "put", _WRITES),
    "patch": ("patch", "patch", (*_WRITES, "force")),
    "delete": ("delete", "delete", _DELETE),
}
_COLLECTION_OPERATIONS: Final = {
    "list": ("get", "list", _LIST),
    "create": ("post", "post", _WRITES),
    "deletecollection": ("delete", "deletecollection", (*_LIST, *_DELETE)),
}


# ---- version 3


def index(resources: Iterable[ServedResource], crds: Sequence[Mapping[str, Any]] = ()) -> Document:
    """Return /openapi/v3: the URL of each group version's document, with a hash for caching."""
    resources = list(resources)
    paths = {}
    for group, version in dict.fromkeys((one.group, one.version) for one in resources):
        path = _document_path(group, version)
        digest = _digest(group, version, resources, crds)
        paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={digest}"}
    return {"paths": paths}


def _digest(group: str, version: str, resources: Sequence[ServedResource], crds: Sequence[Mapping[str, Any]]) -> str:
    served = [one for one in resources if (one.group, one.version) == (group, version)]
    specs = [crd["spec"] for crd in crds if crd["spec"]["group"] == group]
    content = [KUBERNETES_VERSION, [repr(one) for one in served], specs]
    return hashlib.sha512(orjson.dumps(content, option=orjson.OPT_SORT_KEYS)).hexdigest().upper()


def _document_path(group: str, version: str) -> str:
    return f"apis/{group}/{version}" if group else f"api/{version}"


def document(
    group: str, version: str, resources: Iterable[ServedResource], crds: Sequence[Mapping[str, Any]] = ()
) -> Document | None:
    """Return /openapi/v3/apis/GROUP/VERSION, or None if it is not served."""
    served = [one for one in resources if (one.group, one.version) == (group, version)]
    if not served:
        return None
    own = [crd for crd in crds if crd["spec"]["group"] == group]
    schemas = custom_schemas(own, version) if own else _builtin_schemas(served)
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": KUBERNETES_VERSION},
        "paths": paths(served),
        "components": {"schemas": schemas},
    }


def paths(served: Iterable[ServedResource]) -> Document:
    """Return the paths of the resources with their operations."""
    found: Document = {}
    for resource in served:
        root = f"/{_document_path(resource.group, resource.version)}"
        scoped = f"{root}/namespaces/{{namespace}}" if resource.namespaced else root
        own = (resource.group, resource.version, resource.kind)
        collection = _operations(resource.verbs, _COLLECTION_OPERATIONS, own)
        item = _operations(resource.verbs, _ITEM_OPERATIONS, own)
        named = ["namespace"] if resource.namespaced else []
        if collection:
            found[f"{scoped}/{resource.plural}"] = collection | _path_parameters(*named)
        if item:
            found[f"{scoped}/{resource.plural}/{{name}}"] = item | _path_parameters("name", *named)
        for one in resource.subresources:
            operations = _operations(one.verbs, _ITEM_OPERATIONS, (one.group, one.version, one.kind))
            if "create" in one.verbs:
                operations |= _operations(("create",), _COLLECTION_OPERATIONS, (one.group, one.version, one.kind))
            path = f"{scoped}/{resource.plural}/{{name}}/{one.name}"
            found[path] = operations | _path_parameters("name", *named)
    return found


def _operations(
    verbs: Iterable[str], known: Mapping[str, tuple[str, str, tuple[str, ...]]], kind: tuple[str, str, str]
) -> Document:
    group, version, name = kind
    return {
        known[verb][0]: {
            "x-kubernetes-action": known[verb][1],
            GVK: {"group": group, "version": version, "kind": name},
            "parameters": [_parameter(parameter, "query") for parameter in known[verb][2]],
            "responses": {"200": {"description": "OK"}},
        }
        for verb in verbs
        if verb in known
    }


def _path_parameters(*names: str) -> Document:
    return {"parameters": [*(_parameter(name, "path") for name in names), _parameter("pretty", "query")]}


def _parameter(name: str, place: str) -> Document:
    required = {"required": True} if place == "path" else {}
    return {"name": name, "in": place, **required, "schema": {"type": "string", "uniqueItems": True}}


# ---- types


@cache
def _descriptions() -> Mapping[str, Mapping[str, str]]:
    """Return descriptions by type and field. The empty field name is the type itself."""
    found: Mapping[str, Mapping[str, str]] = read_data("descriptions.json.gz")
    return found


def described(name: str) -> Document:
    """Return a built-in type with its descriptions."""
    schema: Document = dict(builtin_types().schemas[name])
    texts = _descriptions().get(name, {})
    if "" in texts:
        schema["description"] = texts[""]
    if "properties" in schema:
        schema["properties"] = {
            field: {**child, "description": texts[field]} if field in texts else child
            for field, child in schema["properties"].items()
        }
    return schema


def _builtin_schemas(served: Sequence[ServedResource]) -> Document:
    """Return the types used in requests and responses for built-in resources."""
    starts = {f"{_META}.APIResourceList"}
    for resource in served:
        kinds = {(resource.api_version, resource.kind)}
        if "list" in resource.verbs:
            kinds.add((resource.api_version, resource.list_kind))
        for one in resource.subresources:
            kinds.add((f"{one.group}/{one.version}" if one.group else one.version, one.kind))
        starts |= {field.type_name for kind in kinds if (field := kind_field(*kind)) is not None}
        starts |= {f"{_META}.{name}" for verb in resource.verbs for name in _TYPES_OF_VERBS.get(verb, ())}
    return _closure(starts)


def _closure(starts: Iterable[str]) -> Document:
    """Return these types and all types that they refer to."""
    found: Document = {}
    waiting = list(starts)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = described(name)
            waiting += _references(found[name])
    return dict(sorted(found.items()))


def _references(value: Any) -> Iterable[str]:
    if isinstance(value, Mapping):
        ref = value.get("$ref")
        if isinstance(ref, str) and ref.startswith(REF_PREFIX):
            yield ref.removeprefix(REF_PREFIX)
        for child in value.values():
            yield from _references(child)
    elif isinstance(value, list):
        for child in value:
            yield from _references(child)


def custom_schemas(crds: Iterable[Mapping[str, Any]], version: str) -> Document:
    """Return the types of custom resources in one version, their lists, and all types that they refer to."""
    found = _closure([OBJECT_META, LIST_META])
    for crd in crds:
        for declared in crd["spec"]["versions"]:
            if declared["name"] == version and declared.get("served"):
                found |= _custom_types(crd, declared)
    return dict(sorted(found.items()))


def _custom_types(crd: Mapping[str, Any], version: Mapping[str, Any]) -> Document:
    spec, names = crd["spec"], crd["spec"]["names"]
    group, kind, list_kind = spec["group"], names["kind"], names.get("listKind") or f"{names['kind']}List"
    prefix = ".".join([*reversed(group.split(".")), version["name"]])
    schema = (version.get("schema") or {}).get("openAPIV3Schema")
    one: Document = {"type": "object"} if schema is None else _with_envelope(schema)
    one[GVK] = [{"group": group, "kind": kind, "version": version["name"]}]
    items = {"type": "array", "items": _ref(f"{prefix}.{kind}")}
    items["description"] = f"List of {names['plural']}. More info: {_CONVENTIONS}"
    many = {
        "type": "object",
        "description": f"{list_kind} is a list of {kind}",
        "required": ["items"],
        "properties": {**_type_meta(), "items": items, "metadata": _ref(LIST_META) | {"description": _LIST_METADATA}},
        GVK: [{"group": group, "kind": list_kind, "version": version["name"]}],
    }
    return {f"{prefix}.{kind}": one, f"{prefix}.{list_kind}": many}


def _with_envelope(schema: Schema) -> Document:
    metadata = {"allOf": [_ref(OBJECT_META)], "description": _METADATA}
    properties = {**schema.get("properties", {}), **_type_meta(), "metadata": metadata}
    return {**schema, "properties": properties}


@cache
def _type_meta() -> Mapping[str, Schema]:
    fields = described("io.k8s.api.core.v1.Pod")["properties"]
    return {name: fields[name] for name in ("apiVersion", "kind")}


def _ref(name: str) -> Document:
    return {"$ref": f"{REF_PREFIX}{name}"}


# ---- version 2


def swagger(resources: Iterable[ServedResource], crds: Sequence[Mapping[str, Any]] = ()) -> Document:
    """Return /openapi/v2 as JSON: the definitions of all types, for older clients."""
    definitions: Document = _closure(builtin_types().schemas)
    for crd in crds:
        for version in crd["spec"]["versions"]:
            definitions |= custom_schemas([crd], version["name"])
    return {
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": KUBERNETES_VERSION},
        "paths": paths(resources),
        "definitions": {name: _version_2(schema) for name, schema in sorted(definitions.items())},
    }


def _version_2(schema: Schema) -> Document:
    """Convert a schema to version 2, which has no unions (they become strings) and no allOf around references."""
    converted: Document = {
        key: value for key, value in schema.items() if key not in ("oneOf", "anyOf", "allOf", "$ref")
    }
    if "properties" in schema:
        converted["properties"] = {name: _version_2(child) for name, child in schema["properties"].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), Mapping):
            converted[key] = _version_2(schema[key])
    if name := reference(schema):
        converted["$ref"] = f"#/definitions/{name}"
    if "oneOf" in schema:
        converted["type"] = "string"
    return converted


_OPENAPI_2: Final = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_HEALTH: Final = frozenset({"/healthz", "/livez", "/readyz"})
_ROOTS: Final = ("/api", "/api/v1", "/apis", "/healthz", "/livez", "/openapi/v2", "/openapi/v3", "/readyz", "/version")


class Documents:
    """Serves the paths outside resources: discovery, OpenAPI and health."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._address = "127.0.0.1:6443"
        #: Expensive documents, cached until a CRD changes.
        self._kept: dict[str, bytes] = {}

    def served_at(self, address: str) -> None:
        """Set the address that /api reports to clients."""
        self._address = address

    def forget(self) -> None:
        """Drop cached documents because the served resources changed."""
        self._kept.clear()

    def answer(self, call: Call) -> Response:
        """Return the document at the request's path. Rejects unknown paths."""
        if call.method not in ("GET", "HEAD"):
            raise status.method_not_allowed()
        path = call.path.rstrip("/") or "/"
        if path == "/openapi/v2" and "proto-openapi" in call.headers.get("accept", ""):
            # Clients that support version 3 request this only for kinds that are not served: send an empty document.
            return Response(200, CIMultiDict({"Content-Type": _OPENAPI_2}), b"\x0a\x032.0")
        if path in _HEALTH or any(path.startswith(f"{root}/") for root in _HEALTH):
            return Response(200, CIMultiDict({"Content-Type": "text/plain; charset=utf-8"}), b"ok")
        if path in ("/api", "/apis"):
            return self._groups(call, path)
        make = self._maker(path)
        if make is None:
            raise status.page_not_found()
        return _json(self._once(path, make))

    def _maker(self, path: str) -> Callable[[], Any] | None:
        parts = path.split("/")[1:]
        resources = self._core.registry.served
        match parts:
            case [""]:
                return lambda: {"paths": list(_ROOTS)}
            case ["version"]:
                return discovery.version_info
            case ["api", version]:
                return lambda: discovery.resource_list("", version, resources())
            case ["apis", group]:
                return lambda: discovery.api_group(group, resources())
            case ["apis", group, version]:
                return lambda: discovery.resource_list(group, version, resources())
            case ["openapi", "v2"]:  # in JSON; see :meth:`answer` for the other encoding
                return lambda: swagger(resources(), self._crds())
            case ["openapi", "v3"]:
                return lambda: index(resources(), self._crds())
            case ["openapi", "v3", "api", version]:
                return lambda: document("", version, resources(), self._crds())
            case ["openapi", "v3", "apis", group, version]:
                return lambda: document(group, version, resources(), self._crds())
        return None

    def _crds(self) -> list[dict[str, Any]]:
        return [entry.obj for entry in self._core.named("customresourcedefinitions.apiextensions.k8s.io").select("")]

    def _groups(self, call: Call, path: str) -> Response:
        """Return /api or /apis, in aggregated form if the client accepts it."""
        for choice in call.headers.get("accept", "").split(","):
            if set(discovery.AGGREGATED_ACCEPT) <= {part.strip() for part in choice.split(";")}:
                body = self._once(
                    f"aggregated {path}",
                    lambda: discovery.aggregated(self._core.registry.served(), core=path == "/api"),
                )
                return _json(body, discovery.AGGREGATED_TYPE)
            if "application/json" in choice and "as=" not in choice:
                break
        if path == "/api":
            return _json(orjson.dumps(discovery.api_versions(self._address)))
        return _json(self._once(path, lambda: discovery.api_groups(self._core.registry.served())))

    def _once(self, name: str, make: Callable[[], Any]) -> bytes:
        body = self._kept.get(name)
        if body is None:
            found = make()
            if found is None:
                raise _nothing_at(name)
            body = self._kept[name] = orjson.dumps(found) + b"\n"
        return body


def _nothing_at(path: str) -> status.Refusal:
    """Return the error for a group or version that is not served."""
    if path.startswith("/openapi/"):
        refusal = status.page_not_found()
        refusal.text = ""
        return refusal
    return status.no_such_path() if path.startswith("/api/") else status.page_not_found()


def _json(body: bytes, media: str = "application/json") -> Response:
    return Response(200, CIMultiDict({"Content-Type": media}), body)
