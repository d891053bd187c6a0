"""Checks the types in documents from clients, with the server's messages, and finds and drops unknown fields.

Nearly all documents are valid, so a fast check runs first: closures that are compiled once per type and do not track
paths. Only a document that fails it goes through the slow check, which tracks the path of every value.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, Protocol, TypeAlias

from app.kube.quantities import QuantityError, canonical
from app.sandbox.apiserver.schemas import Field, FieldType

Check: TypeAlias = Callable[[Any], bool]

_TIME: Final = re.compile(
    r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])T([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d+)?(Z|[+-]\d{2}:\d{2})"
)
_BASE64: Final = re.compile(r"[A-Za-z0-9+/]*")
_GO_NUMBERS: Final = {"int32": "int32", "int64": "int64", "double": "float64", "float": "float32"}
_INT_LIMITS: Final = {"int32": 2**31, "int64": 2**63}
_QUANTITY_MESSAGE: Final = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"


class WrongType(ValueError):
    """A value of the wrong type. The text is the message of Go's decoder."""


class Reader(Protocol):
    """Decodes documents of one kind."""

    def read(self, value: Any) -> tuple[Any, list[str]]:
        """Return the cleaned document and the paths of unknown fields. Raises :class:`WrongType`."""
        ...


@dataclass(slots=True)
class Findings:
    """Unknown fields that the slow check found."""

    unknown: list[str] = field(default_factory=list)


class Checker:
    """Checks documents of one type."""

    def __init__(self, top: Field) -> None:
        self._top = top
        self._named: dict[str, Check] = {}
        #: The fast checks of each type's fields. Unnamed types are keyed by their field.
        self._tables: dict[str | Field, dict[str, Check]] = {}
        self._quick = self._compile(top)

    def read(self, value: Any) -> tuple[Any, list[str]]:
        """Return the document without nulls, empty lists and unknown fields, and the paths of the unknown fields.

        Returns the same object if nothing needs to change. Raises :class:`WrongType`.
        """
        if self._quick(value):
            return value, []
        findings = Findings()
        return _Slow(findings, self._tables).read(self._top, value, "", ""), findings.unknown

    # ---- the fast check

    def _compile(self, wanted: Field) -> Check:
        if wanted.type_name and wanted.type is FieldType.OBJECT:
            name = wanted.type_name
            if name not in self._named:
                # A type may contain itself: references compiled before it is complete look it up when called.
                self._named[name] = lambda value: self._named[name](value)
                self._named[name] = self._object(wanted)
            return self._named[name]
        match wanted.type:
            case FieldType.OBJECT:
                return self._object(wanted)
            case FieldType.MAP:
                return self._map(wanted)
            case FieldType.LIST:
                return self._list(wanted)
            case FieldType.INTEGER:
                limit = _INT_LIMITS.get(wanted.format, 2**63)
                return lambda value: type(value) is int and -limit <= value < limit
            case FieldType.STRING if wanted.format == "byte":
                return lambda value: type(value) is str and _base64_fault(value) < 0
            case _:
                return _SIMPLE[wanted.type]

    def _object(self, wanted: Field) -> Check:
        table = {name: self._compile(child) for name, child in wanted.properties.items()}
        self._tables[wanted.type_name or wanted] = table
        get = table.get

        def check(value: Any) -> bool:
            if type(value) is not dict:
                return False
            for key, item in value.items():
                test = get(key)
                if test is None or not test(item):
                    return False
            return True

        return check

    def _map(self, wanted: Field) -> Check:
        test = self._compile(wanted.values) if wanted.values is not None else _anything

        def check(value: Any) -> bool:
            return type(value) is dict and bool(value) and all(map(test, value.values()))

        return check

    def _list(self, wanted: Field) -> Check:
        test = self._compile(wanted.items) if wanted.items is not None else _anything

        def check(value: Any) -> bool:
            return type(value) is list and bool(value) and all(map(test, value))

        return check


@lru_cache(1024)
def _base64_fault(text: str) -> int:
    """Return the position of the first byte that is not valid base64, or -1."""
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        match = _BASE64.match(text)
        return match.end() if match is not None else 0
    return -1


def _anything(_value: Any) -> bool:
    return True


@lru_cache(4096)
def _canonical(text: str) -> str:
    """Return the quantity in canonical form, or ""."""
    try:
        return canonical(text)
    except QuantityError:
        return ""


def _quantity(value: Any) -> bool:
    return type(value) is str and _canonical(value) == value


_SIMPLE: Final[dict[FieldType, Check]] = {
    FieldType.STRING: lambda value: type(value) is str,
    FieldType.BOOLEAN: lambda value: type(value) is bool,
    FieldType.NUMBER: lambda value: type(value) is int or type(value) is float,
    FieldType.TIME: lambda value: type(value) is str and _TIME.fullmatch(value) is not None,
    FieldType.QUANTITY: _quantity,
    FieldType.INT_OR_STRING: lambda value: type(value) is int or type(value) is str,
    FieldType.ANY: _anything,
}


class _Slow:
    """The slow check: walks a document and tracks the path of every value."""

    def __init__(self, findings: Findings, tables: Mapping[str | Field, Mapping[str, Check]]) -> None:
        self._findings = findings
        self._tables = tables

    def read(self, wanted: Field, value: Any, path: str, struct: str) -> Any:
        """Return a cleaned copy. ``struct`` is the name of the innermost enclosing named type in Go's messages."""
        match wanted.type:
            case FieldType.OBJECT:
                return self._object(wanted, value, path, struct)
            case FieldType.MAP:
                _demand(isinstance(value, dict), wanted, value, path, struct)
                values = wanted.values
                if values is None:
                    return value
                # The path in Go's message contains fields, but not map keys.
                simple = values.type is not FieldType.OBJECT
                return {
                    key: self.read(values, item, path if simple else _child(path, key), struct)
                    for key, item in value.items()
                    if item is not None or values.type is FieldType.STRING
                }
            case FieldType.LIST:
                return self._list(wanted, value, path, struct)
            case FieldType.ANY:
                return value
            case FieldType.STRING if value is None:
                return ""  # a null in a map of strings becomes ""
        return _scalar(wanted, value, path, struct)

    def _object(self, wanted: Field, value: Any, path: str, struct: str) -> Any:
        _demand(isinstance(value, dict), wanted, value, path, struct)
        struct = wanted.short_name or struct
        kept: dict[str, Any] = {}
        quick = self._tables.get(wanted.type_name or wanted, {})
        for key, item in value.items():
            child = wanted.properties.get(key)
            if item is not None and key in quick and quick[key](item):
                kept[key] = item
            elif child is None:
                self._findings.unknown.append(_child(path, key))
            elif item is not None:
                read = self.read(child, item, _child(path, key), struct)
                empty = child.type in (FieldType.LIST, FieldType.MAP) and not read
                if not empty or key in wanted.required:
                    kept[key] = read
        return kept

    def _list(self, wanted: Field, value: Any, path: str, struct: str) -> Any:
        _demand(isinstance(value, list), wanted, value, path, struct)
        items = wanted.items
        if items is None:
            return value
        empty: Any = {} if items.type is FieldType.OBJECT else ""
        return [
            empty if item is None else self.read(items, item, f"{path}[{index}]", struct)
            for index, item in enumerate(value)
        ]


def _scalar(wanted: Field, value: Any, path: str, struct: str) -> Any:
    match wanted.type:
        case FieldType.QUANTITY:
            if isinstance(value, bool) or not isinstance(value, str | int | float):
                raise WrongType(f"json: cannot unmarshal {_json_type(value)} into Go value of type string")
            text = _canonical(value if isinstance(value, str) else str(value))
            if not text:
                raise WrongType(_QUANTITY_MESSAGE)
            return text
        case FieldType.INTEGER if isinstance(value, float) and value.is_integer():
            value = int(value)
        case FieldType.TIME if isinstance(value, str) and not _SIMPLE[FieldType.TIME](value):
            raise WrongType(f'parsing time "{value}" as "2006-01-02T15:04:05Z07:00": cannot parse "{value}" as "2006"')
        case FieldType.INT_OR_STRING if type(value) not in (int, str):
            raise WrongType(f"json: cannot unmarshal {_json_type(value)} into Go value of type int32")
    if wanted.type is FieldType.INTEGER:
        limit = _INT_LIMITS.get(wanted.format, 2**63)
        if type(value) is int and not -limit <= value < limit:
            _demand(False, wanted, value, path, struct, shown=f"number {value}")
        _demand(type(value) is int, wanted, value, path, struct)
    else:
        _demand(_SIMPLE[wanted.type](value), wanted, value, path, struct)
        if wanted.format == "byte" and (fault := _base64_fault(value)) >= 0:
            raise WrongType(f"illegal base64 data at input byte {fault}")
    return value


def _demand(fits: bool, wanted: Field, value: Any, path: str, struct: str, *, shown: str = "") -> None:
    if fits:
        return
    place = re.sub(r"\[\d+\]", "", path)
    found = shown or _json_type(value)
    if not place:
        raise WrongType(f"json: cannot unmarshal {found} into Go value of type {_go_type(wanted)}")
    raise WrongType(f"json: cannot unmarshal {found} into Go struct field {struct}.{place} of type {_go_type(wanted)}")


def _json_type(value: Any) -> str:
    match value:
        case bool():
            return "bool"
        case str():
            return "string"
        case float():
            return f"number {value}"
        case int():
            return "number"
        case dict():
            return "object"
        case list():
            return "array"
    return "null"


def _go_type(wanted: Field) -> str:
    match wanted.type:
        case FieldType.OBJECT:
            parts = wanted.type_name.split(".")
            return f"{parts[-2]}.{parts[-1]}" if len(parts) > 1 else "map[string]interface {}"
        case FieldType.MAP:
            return f"map[string]{_go_type(wanted.values)}" if wanted.values is not None else "map[string]interface {}"
        case FieldType.LIST:
            return f"[]{_go_type(wanted.items)}" if wanted.items is not None else "[]interface {}"
        case FieldType.BOOLEAN:
            return "bool"
        case FieldType.INTEGER | FieldType.NUMBER:
            return _GO_NUMBERS.get(wanted.format, "int64" if wanted.type is FieldType.INTEGER else "float64")
    return "string"


def _child(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def strict_errors(unknown: Iterable[str], duplicates: Iterable[str] = ()) -> list[str]:
    """Return a strict decoder's errors for unknown and duplicate fields."""
    return [f'duplicate field "{name}"' for name in duplicates] + [f'unknown field "{name}"' for name in unknown]
