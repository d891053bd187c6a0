"""JSON as Go's ``encoding/json`` writes it, and the round trip of an object through a Go struct.

Hashes that must equal OpenKruise's are computed from this JSON, so it must match byte for byte. There are two parts:

- :func:`dumps_go` returns a value as compact JSON, with ``<``, ``>``, ``&``, U+2028 and U+2029 escaped;
- *Go types* define how values are unmarshaled and marshaled: the order of fields, and which empty or unknown fields
  are dropped. :func:`go_value` returns a JSON object as Go would marshal it; :func:`normalized` does the same but keeps
  unknown fields. The core types are in :mod:`app.api.gocore` and :mod:`app.api.gopod`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from json.encoder import encode_basestring
from typing import Any, TypeAlias

from app.kube.fielderrors import shortened
from app.kube.quantities import QuantityError, parse

_SURROGATES = re.compile("[\ud800-\udfff]")
_ESCAPES = (("<", "\\u003c"), (">", "\\u003e"), ("&", "\\u0026"), ("\u2028", "\\u2028"), ("\u2029", "\\u2029"))


class GoTypeError(ValueError):
    """A JSON value cannot be unmarshaled into a Go type. The message starts with the field's path."""


def dumps_go(value: Any, *, sort_keys: bool = False) -> str:
    """Return ``value`` as ``json.Marshal`` writes it.

    The keys of objects keep their order, as in a struct; with ``sort_keys`` they are sorted, as in a map.
    Raises TypeError or ValueError for values that JSON cannot express or that are nested too deeply for an API server.
    """
    pieces: list[str] = []
    try:
        _write(value, sort_keys, pieces.append)
    except RecursionError:
        raise ValueError("value is nested too deeply to be written as JSON") from None
    text = escaped("".join(pieces))
    # A lone surrogate is not a valid character; Go reads it as the replacement character.
    return text if text.isascii() else _SURROGATES.sub("\ufffd", text)


def escaped(text: str) -> str:
    """Escape the characters in a JSON text that Go escapes; they can occur only inside strings."""
    for char, escape in _ESCAPES:
        if char in text:
            text = text.replace(char, escape)
    return text


def _write(value: Any, sort_keys: bool, out: Callable[[str], None]) -> None:
    if isinstance(value, str):
        out(encode_basestring(value))
    elif isinstance(value, Mapping):
        separator = "{"
        for key in sorted(value) if sort_keys else value:
            out(f"{separator}{encode_basestring(key)}:")
            _write(value[key], sort_keys, out)
            separator = ","
        out("{}" if separator == "{" else "}")
    elif isinstance(value, list | tuple):
        separator = "["
        for item in value:
            out(separator)
            _write(item, sort_keys, out)
            separator = ","
        out("[]" if separator == "[" else "]")
    else:
        out(_scalar_text(value))


def _scalar_text(value: Any) -> str:
    if value is None:
        return "null"
    if value is True or value is False:
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return _float_text(value)
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


def _float_text(value: float) -> str:
    """Return the shortest digits that round-trip, with an exponent only below 1e-6 or from 1e21 up."""
    if value - value != 0:
        raise ValueError(f"{value} cannot be written as JSON")
    if value == 0 or 1e-6 <= abs(value) < 1e21:
        text = format(Decimal(repr(value)), "f")
        return text.removesuffix(".0")
    mantissa, _, exponent = repr(value).partition("e")
    return f"{mantissa.removesuffix('.0')}e{exponent[0]}{exponent[1:].lstrip('0')}"


# --- Go types


@dataclass(frozen=True, slots=True)
class GoType:
    """How values of one Go type are unmarshaled and marshaled.

    ``read(value, path)`` returns the value to marshal for any JSON value except null, or raises :class:`GoTypeError`.
    ``zero`` replaces null and missing fields. ``empty(value)`` returns whether ``omitempty`` omits a value; a struct is
    never omitted. ``fields`` are those of a struct (or a pointer to one), ``item`` is the element type of a slice or
    map.
    """

    read: Callable[[Any, str], Any]
    zero: Callable[[], Any]
    empty: Callable[[Any], bool]
    fields: Fields = ()
    item: GoType | None = None
    is_map: bool = False


@dataclass(frozen=True, slots=True)
class GoField:
    """One field of a struct. ``kept`` means a JSON tag without ``omitempty``."""

    name: str
    go_type: GoType
    kept: bool = False


Fields: TypeAlias = tuple["GoField", ...]


def _never(_: Any) -> bool:
    return False


def _falsy(value: Any) -> bool:
    return not value


def _mistyped(value: Any, path: str, wanted: str) -> GoTypeError:
    names: dict[type, str] = {str: "string", bool: "boolean", int: "number", float: "number", list: "array"}
    found = "object" if isinstance(value, Mapping) else names.get(type(value), type(value).__name__)
    return GoTypeError(f"{path}: expected {wanted}, found {found}")


def _read_string(value: Any, path: str) -> str:
    if not isinstance(value, str):
        raise _mistyped(value, path, "string")
    return value


def _read_bool(value: Any, path: str) -> bool:
    if not isinstance(value, bool):
        raise _mistyped(value, path, "boolean")
    return value


def _integer(bits: int) -> GoType:
    limit = 1 << (bits - 1)

    def read(value: Any, path: str) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise (
                _mistyped(value, path, "integer")
                if not isinstance(value, float)
                else GoTypeError(f"{path}: expected integer, found {value}")
            )
        if not -limit <= value < limit:
            raise GoTypeError(f"{path}: {value} does not fit in {bits} bits")
        return value

    return GoType(read, lambda: 0, _falsy)


def _read_quantity(value: Any, path: str) -> str:
    try:
        return str(parse(value))
    except QuantityError as error:
        raise GoTypeError(f"{path}: {error}") from error


def _read_int_or_string(value: Any, path: str) -> int | str:
    return value if isinstance(value, str) else INT32.read(value, path)


def pointer(go_type: GoType) -> GoType:
    """Return the type of a pointer. Only null counts as empty, so ``false``, ``0`` and ``""`` are marshaled."""
    return GoType(go_type.read, lambda: None, lambda value: value is None, go_type.fields, go_type.item, go_type.is_map)


def list_of(go_type: GoType) -> GoType:
    """Return the type of a slice. A null item becomes the zero value of its type."""

    def read(value: Any, path: str) -> list[Any]:
        if not isinstance(value, list | tuple):
            raise _mistyped(value, path, "array")
        return [_read(go_type, item, f"{path}[{index}]") for index, item in enumerate(value)]

    return GoType(read, lambda: None, _falsy, item=go_type)


def map_of(go_type: GoType) -> GoType:
    """Return the type of a map with string keys, which are marshaled in sorted order."""

    def read(value: Any, path: str) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise _mistyped(value, path, "object")
        # The path is copied for each value below a key, and a key can be a megabyte long.
        return {key: _read(go_type, value[key], f"{path}[{shortened(key)}]") for key in sorted(value)}

    return GoType(read, lambda: None, _falsy, item=go_type, is_map=True)


def struct(*fields: GoField) -> GoType:
    """Return the type of a struct with the fields in this order. Unknown fields are dropped, as in Go."""
    plan = tuple(
        (field.name, field.go_type, field.kept, field.kept or not field.go_type.empty(field.go_type.zero()))
        for field in fields
    )

    def read(value: Any, path: str) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise _mistyped(value, path, "object")
        printed: dict[str, Any] = {}
        prefix = f"{path}." if path else ""
        for name, go_type, kept, shown_always in plan:
            given = value.get(name)
            if given is None:
                if shown_always:
                    printed[name] = go_type.zero()
                continue
            shown = go_type.read(given, prefix + name)
            if kept or not go_type.empty(shown):
                printed[name] = shown
        return printed

    return GoType(read, lambda: read({}, ""), _never, fields)


def _read(go_type: GoType, value: Any, path: str) -> Any:
    return go_type.zero() if value is None else go_type.read(value, path)


STRING = GoType(_read_string, str, _falsy)
BOOL = GoType(_read_bool, bool, _falsy)
INT32 = _integer(32)
INT64 = _integer(64)
#: Quantities and int-or-strings are structs in Go, so they are marshaled even when zero.
QUANTITY = GoType(_read_quantity, lambda: "0", _never)
INT_OR_STRING = GoType(_read_int_or_string, lambda: 0, _never)


def go_value(go_type: GoType, value: Any, path: str = "") -> Any:
    """Return what Go marshals after unmarshaling ``value`` into ``go_type``, as a JSON value in Go's order.

    Raises :class:`GoTypeError` if Go could not unmarshal it.
    """
    try:
        return _read(go_type, value, path)
    except RecursionError:
        raise GoTypeError(f"{path}: nested too deeply") from None


def go_error(go_type: GoType, value: Any, path: str) -> str:
    """Return why Go cannot unmarshal ``value`` into ``go_type``, or "" if it can."""
    try:
        go_value(go_type, value, path)
    except GoTypeError as error:
        return str(error)
    return ""


def normalized(go_type: GoType, value: Any, path: str = "") -> Any:
    """Like :func:`go_value`, but keep unknown fields unchanged, after the known ones.

    A Go program would store the same value, except for fields newer than its types. Raises :class:`GoTypeError`.
    """
    try:
        return _normalized(go_type, value)
    except (GoTypeError, RecursionError):
        go_value(go_type, value, path)  # raises an error with the path
        raise


def _normalized(go_type: GoType, value: Any) -> Any:
    if value is None:
        return go_type.zero()
    if go_type.fields:
        return _normalized_struct(go_type.fields, value)
    if go_type.item is None:
        return go_type.read(value, "")
    item_type = go_type.item
    if go_type.is_map:
        if not isinstance(value, Mapping):
            raise _mistyped(value, "", "object")
        return {key: _normalized(item_type, value[key]) for key in sorted(value)}
    if not isinstance(value, list | tuple):
        raise _mistyped(value, "", "array")
    return [_normalized(item_type, item) for item in value]


def _normalized_struct(fields: Fields, value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise _mistyped(value, "", "object")
    printed: dict[str, Any] = {}
    found = 0
    for field in fields:
        go_type = field.go_type
        given = value.get(field.name)
        found += field.name in value
        shown = go_type.zero() if given is None else _normalized(go_type, given)
        if field.kept or not go_type.empty(shown):
            printed[field.name] = shown
    if found == len(value):
        return printed
    known = {field.name for field in fields}
    return printed | {key: item for key, item in value.items() if key not in known}
