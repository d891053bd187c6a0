"""Response forms chosen by the Accept header: objects, metadata only, or table rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import orjson

from app.kube.clock import Clock
from app.kube.fielderrors import quote
from app.sandbox.apiserver import status
from app.sandbox.apiserver.kinds import ResourceType
from app.sandbox.apiserver.storage import Entry
from app.sandbox.apiserver.tables.table import TableKind

Shape: TypeAlias = Literal["object", "table", "metadata"]
MEDIA_TYPES: Final = ("application/json", "application/yaml", "application/vnd.kubernetes.protobuf")
_INCLUDES: Final = ("", "Metadata", "None", "Object")
_META_VERSIONS: Final = frozenset({"v1", "v1beta1"})


@dataclass(frozen=True, slots=True)
class Accepted:
    """A negotiated response form: its shape, its encoding, and the meta.k8s.io version of the shape."""

    shape: Shape = "object"
    yaml: bool = False
    version: str = "v1"


PLAIN: Final = Accepted()


def wants_yaml(accept: str) -> bool:
    """Return whether the first accepted encoding is YAML."""
    media = accept.partition(",")[0].partition(";")[0].strip()
    return media in ("application/yaml", "text/yaml")


def negotiate(accept: str, *, listing: bool = False, go_type: str = "") -> Accepted:
    """Return the first supported media type in the Accept header. Rejects the request (406) if none is supported.

    ``go_type`` is named in the error if a list form is requested for a single object, or the reverse.
    """
    known = False
    if not accept or accept == "application/json":
        return PLAIN
    for choice in accept.split(","):
        media, *parameters = (part.strip() for part in choice.split(";"))
        if media in ("*/*", "application/*", "application/json"):
            yaml = False
        elif media in ("application/yaml", "text/yaml"):
            yaml = True
        else:
            continue
        known = True
        values = dict(part.split("=", 1) for part in parameters if "=" in part)
        wanted = values.get("as", "")
        version = values.get("v", "v1")
        if not wanted:
            return Accepted(yaml=yaml)
        if values.get("g") != "meta.k8s.io" or version not in _META_VERSIONS:
            continue
        if wanted == "Table":
            return Accepted("table", yaml, version)
        if wanted in ("PartialObjectMetadata", "PartialObjectMetadataList"):
            if go_type and listing != (wanted == "PartialObjectMetadataList"):
                is_what = "is a list" if listing else "is not a list"
                raise status.wrong_form(f"you requested {wanted}, but the requested object {is_what} ({go_type})")
            return Accepted("metadata", yaml, version)
    raise status.not_acceptable(MEDIA_TYPES) if known else status.not_available(MEDIA_TYPES)


class ObjectForm:
    """Encodes whole objects. ``managed``: whether managed fields are included."""

    def __init__(self, resource: ResourceType, *, managed: bool) -> None:
        self._resource = resource
        self._managed = managed
        self.key: object = (resource.api_version, managed)
        #: Items of built-in lists have no apiVersion and kind.
        self._prefix = b"" if resource.custom is not None else _type_prefix(resource)

    def encode(self, entry: Entry) -> bytes:
        """Encode an object."""
        return entry.full_raw if self._managed else entry.raw

    def item(self, entry: Entry) -> bytes:
        """Encode an object as an item of a list."""
        raw = self.encode(entry)
        return b"{" + raw[len(self._prefix) :] if self._prefix and raw.startswith(self._prefix) else raw

    def listing(self, entries: Sequence[Entry], metadata: dict[str, Any]) -> bytes:
        """Encode a list."""
        items = [self.item(entry) for entry in entries]
        if self._resource.custom is not None:
            metadata = {
                "continue": "",
                **metadata,
            }  # lists of custom resources always include it
        head = {"kind": self._resource.list_name, "apiVersion": self._resource.api_version, "metadata": metadata}
        return orjson.dumps(head)[:-1] + b',"items":[' + b",".join(items) + b"]}\n"

    def bookmark(self, metadata: dict[str, object]) -> bytes:
        """Encode a bookmark: kind, apiVersion and metadata."""
        resource = self._resource
        return orjson.dumps({"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata})


def _type_prefix(resource: ResourceType) -> bytes:
    return orjson.dumps({"kind": resource.kind, "apiVersion": resource.api_version})[:-1] + b","


class MetadataForm:
    """Encodes an object's metadata only, as ``PartialObjectMetadata``."""

    def __init__(self, version: str, *, managed: bool) -> None:
        self._api_version = f"meta.k8s.io/{version}"
        self._managed = managed
        self.key: object = ("metadata", version, managed)

    def encode(self, entry: Entry) -> bytes:
        """Encode an object's metadata."""
        return self.bookmark((entry.full if self._managed else entry.obj)["metadata"])

    def listing(self, entries: Sequence[Entry], metadata: dict[str, Any]) -> bytes:
        """Encode a list of metadata."""
        items = [self.encode(entry) for entry in entries]
        head = {"kind": "PartialObjectMetadataList", "apiVersion": self._api_version, "metadata": metadata}
        return orjson.dumps(head)[:-1] + b',"items":[' + b",".join(items) + b"]}\n"

    def bookmark(self, metadata: dict[str, object]) -> bytes:
        """Encode a bookmark."""
        return orjson.dumps({"kind": "PartialObjectMetadata", "apiVersion": self._api_version, "metadata": metadata})


class TableForm:
    """Encodes a ``Table``: the columns printed by ``kubectl get``."""

    def __init__(
        self, kind: TableKind, clock: Clock, version: str, include: str, *, managed: bool, headers_once: bool = False
    ) -> None:
        self._kind = kind
        self._managed = managed
        self._clock = clock
        self._api_version = f"meta.k8s.io/{version}"
        if include not in _INCLUDES:
            why = f"Invalid value: {quote(include)}: must be 'Metadata', 'Object', 'None', or empty"
            raise status.bad_request(f"Unable to convert to Table as requested: includeObject: {why}")
        self._include = include or "Metadata"
        #: In a watch, only the first event has column definitions.
        self._headers_once = headers_once
        self._headers = True
        self.key: object = object()

    def encode(self, entry: Entry) -> bytes:
        """Encode a table with one row."""
        return self._table([entry], {"resourceVersion": entry.obj["metadata"].get("resourceVersion", "")})

    def listing(self, entries: Sequence[Entry], metadata: dict[str, Any]) -> bytes:
        """Encode a table with all rows."""
        return self._table(entries, metadata) + b"\n"

    def bookmark(self, metadata: dict[str, object]) -> bytes:
        """Encode a table with the bookmark as its only row."""
        partial = {"kind": "PartialObjectMetadata", "apiVersion": self._api_version, "metadata": metadata}
        table = self._kind.table([], self._clock.now(), metadata={"resourceVersion": metadata["resourceVersion"]})
        table["rows"] = [{"cells": [], "object": partial}]
        return orjson.dumps(table)

    def _table(self, entries: Sequence[Entry], metadata: dict[str, Any]) -> bytes:
        now = self._clock.now()
        objects = [entry.full if self._managed and self._include != "None" else entry.obj for entry in entries]
        table = self._kind.table(objects, now, metadata=metadata, include_object=self._include, headers=self._headers)
        self._headers = not self._headers_once
        table["apiVersion"] = self._api_version
        return orjson.dumps(table)


AnyForm: TypeAlias = ObjectForm | MetadataForm | TableForm
