"""OpenAPI documents, as far as clients read them: types with descriptions, and which parameters each path takes.

`kubectl explain` reads the types; `kubectl apply` and `create` read their merge keys, and learn from the parameters of
the patch operation that the server validates fields and knows dry runs. Responses and request bodies are left out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final

import orjson

from app.sandbox.apiserver.discovery import KUBERNETES_VERSION, Document, ServedResource
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
#: HTTP method, action as OpenAPI names it and query parameters, by verb of discovery.
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
    """/openapi/v3: where the document of each group and version is, with its hash for caches."""
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
    """/openapi/v3/apis/GROUP/VERSION; None where that is not served. ``crds``: those of the group, or all."""
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
    """The paths of resources, each with its operations."""
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
    """By type and field; the type's own under the empty name."""
    found: Mapping[str, Mapping[str, str]] = read_data("descriptions.json.gz")
    return found


def described(name: str) -> Document:
    """A built-in type with its descriptions."""
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
    """The types that the operations of built-in resources take and give."""
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
    """These types and all they refer to."""
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
    """The types of custom resources in one version, their lists, and what they refer to."""
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
    """/openapi/v2 in JSON: the definitions of all types, for older clients."""
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
    """Version 2 has no unions: what may be two things is a text with a format, and references stand alone."""
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
