"""Decodes protobuf objects, as kubectl's typed clients send them, into JSON. Responses are always JSON.

Field numbers are recorded from the .proto files of the API. JSON inlines some messages into their parent,
such as ``Volume.volumeSource``: a message is inlined if the OpenAPI schema of the parent lacks the field that holds it.

Source: https://kubernetes.io/docs/reference/using-api/api-concepts/#protobuf-encoding
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final, TypeAlias

import orjson

from app.kube.clock import rfc3339, rfc3339_micro
from app.sandbox.apiserver.schemas import builtin_types, kind_field, read_data

Json: TypeAlias = dict[str, Any]

MEDIA_TYPE: Final = "application/vnd.kubernetes.protobuf"
_MAGIC: Final = b"k8s\x00"
_META: Final = "k8s.io.apimachinery.pkg.apis.meta.v1"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class ProtobufError(ValueError):
    """The bytes are not a protobuf object."""


@cache
def _messages() -> Mapping[str, Mapping[str, tuple[str, str, str]]]:
    found: Mapping[str, Mapping[str, tuple[str, str, str]]] = read_data("protobuf.json.gz")
    return found


def decode_object(body: bytes) -> Json:
    """Decode the object in a body. Raises :class:`ProtobufError`."""
    if not body.startswith(_MAGIC):
        raise ProtobufError("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")
    kind = api_version = ""
    raw = b""
    for number, value in _fields(body[len(_MAGIC) :]):
        if number == 1 and isinstance(value, bytes):
            for inner, text in _fields(value):
                if isinstance(text, bytes):
                    if inner == 1:
                        api_version = text.decode()
                    else:
                        kind = text.decode()
        elif number == 2 and isinstance(value, bytes):
            raw = value
    schema = kind_field(api_version, kind)
    if schema is None:
        raise ProtobufError(f'no kind "{kind}" is registered for version "{api_version}"')
    name = "k8s.io." + schema.type_name.removeprefix("io.k8s.")
    return {"kind": kind, "apiVersion": api_version, **_message(name, raw)}


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes | float]]:
    """Yield the field numbers and raw values of a message."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            value, at = _varint(data, at)
            yield number, value
        elif wire == _BYTES:
            size, at = _varint(data, at)
            if at + size > len(data):
                raise ProtobufError("unexpected EOF")
            yield number, data[at : at + size]
            at += size
        elif wire == _FIXED64:
            yield number, struct.unpack_from("<d", data, at)[0]
            at += 8
        elif wire == _FIXED32:
            yield number, struct.unpack_from("<f", data, at)[0]
            at += 4
        else:
            raise ProtobufError(f"proto: illegal wireType {wire}")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise ProtobufError("unexpected EOF")
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


def _message(name: str, data: bytes) -> Any:
    special = _SPECIAL.get(name)
    if special is not None:
        return special(data)
    table = _messages().get(name)
    if table is None:
        raise ProtobufError(f"the type {name} is not known")
    schema = builtin_types().schemas.get("io.k8s." + name.removeprefix("k8s.io."), {})
    known = schema.get("properties")
    found: Json = {}
    for number, raw in _fields(data):
        described = table.get(str(number))
        if described is None:
            continue
        field, kind, times = described
        if times == "map" and isinstance(raw, bytes):
            key, value = _entry(kind, raw)
            found.setdefault(field, {})[key] = value
            continue
        value = _value(kind, raw)
        if times == "list":
            found.setdefault(field, []).append(value)
        elif known is not None and field not in known and isinstance(value, dict):
            found |= value  # inlined into the parent
        elif not _is_zero(field, kind, value, schema):
            found[field] = value
    return found


def _is_zero(field: str, kind: str, value: Any, schema: Mapping[str, Any]) -> bool:
    """Return whether Go omits a value from JSON: a zero value in a field that is not a pointer."""
    if field in schema.get("required", ()):
        return False
    if value == "" or (value in (0, False) and type(value) in (int, bool)):
        return field not in _POINTERS
    return value in ({}, None) and kind.endswith((".Time", ".ObjectMeta", "Status"))


#: Pointer fields, whose zero values are kept. In all other fields, a zero value equals a missing one.
_POINTERS: Final = frozenset(
    [
        "activeDeadlineSeconds",
        "allocateLoadBalancerNodePorts",
        "allowPrivilegeEscalation",
        "attachRequired",
        "automountServiceAccountToken",
        "backoffLimit",
        "backoffLimitPerIndex",
        "blockOwnerDeletion",
        "completions",
        "controller",
        "defaultMode",
        "deletionGracePeriodSeconds",
        "enableServiceLinks",
        "expirationSeconds",
        "failedJobsHistoryLimit",
        "force",
        "fsGroup",
        "gracePeriodSeconds",
        "hostUsers",
        "immutable",
        "manualSelector",
        "maxFailedIndexes",
        "minReplicas",
        "mode",
        "optional",
        "orphanDependents",
        "parallelism",
        "partition",
        "podInfoOnMount",
        "priority",
        "privileged",
        "progressDeadlineSeconds",
        "readOnlyRootFilesystem",
        "replicas",
        "revisionHistoryLimit",
        "runAsGroup",
        "runAsNonRoot",
        "runAsUser",
        "setHostnameAsFQDN",
        "shareProcessNamespace",
        "startingDeadlineSeconds",
        "successfulJobsHistoryLimit",
        "suspend",
        "terminationGracePeriodSeconds",
        "tolerationSeconds",
        "ttlSecondsAfterFinished",
    ]
)


def _entry(kind: str, data: bytes) -> tuple[str, Any]:
    key, value = "", _value(kind, b"") if kind == "string" else None
    for number, raw in _fields(data):
        if number == 1 and isinstance(raw, bytes):
            key = raw.decode()
        elif number == 2:
            value = _value(kind, raw)
    return key, value


def _value(kind: str, raw: int | bytes | float) -> Any:
    if isinstance(raw, bytes):
        if kind == "string":
            return raw.decode("utf-8", "replace")
        if kind == "bytes":
            return base64.b64encode(raw).decode()
        return _message(kind, raw)
    if kind == "bool":
        return bool(raw)
    if isinstance(raw, float):
        return raw
    return _signed(raw)


# ---- types with a JSON form of their own


def _parts(data: bytes) -> dict[int, int | bytes | float]:
    return dict(_fields(data))


def _time(data: bytes) -> str | None:
    parts = _parts(data)
    seconds = parts.get(1, 0)
    if not isinstance(seconds, int) or not parts:
        return None
    return rfc3339(datetime.fromtimestamp(_signed(seconds), UTC))


def _micro_time(data: bytes) -> str | None:
    parts = _parts(data)
    seconds, nanos = parts.get(1, 0), parts.get(2, 0)
    if not isinstance(seconds, int) or not isinstance(nanos, int) or not parts:
        return None
    return rfc3339_micro(datetime.fromtimestamp(_signed(seconds), UTC).replace(microsecond=nanos // 1000))


def _quantity(data: bytes) -> str:
    text = _parts(data).get(1, b"0")
    return text.decode() if isinstance(text, bytes) else "0"


def _int_or_string(data: bytes) -> int | str:
    parts = _parts(data)
    if parts.get(1):
        text = parts.get(3, b"")
        return text.decode() if isinstance(text, bytes) else ""
    number = parts.get(2, 0)
    return _signed(number) if isinstance(number, int) else 0


def _embedded(data: bytes) -> Any:
    raw = _parts(data).get(1, b"")
    return orjson.loads(raw) if isinstance(raw, bytes) and raw else None


_SPECIAL: Final[Mapping[str, Callable[[bytes], Any]]] = {
    f"{_META}.Time": _time,
    f"{_META}.MicroTime": _micro_time,
    f"{_META}.FieldsV1": _embedded,
    "k8s.io.apimachinery.pkg.api.resource.Quantity": _quantity,
    "k8s.io.apimachinery.pkg.util.intstr.IntOrString": _int_or_string,
    "k8s.io.apimachinery.pkg.runtime.RawExtension": _embedded,
}
