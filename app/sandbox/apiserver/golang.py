"""Messages of Go's JSON decoder that clients see, for invalid JSON and for duplicate keys."""

from __future__ import annotations

import json
from typing import Any, Final

_SPACE: Final = " \t\r\n"
_ESCAPES: Final = '"\\/bfnrtu'
_END: Final = "unexpected end of JSON input"


#: The Go type into which the server decodes an object's apiVersion and kind.
TYPE_META: Final = (
    'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'
)


class _Broken(Exception):
    """Ends the scan. The text is Go's message."""


def syntax_error(body: bytes) -> str:
    """Return the message of ``encoding/json`` for invalid JSON, or ""."""
    # Go reads single bytes and shows the invalid one as a character.
    text = body.decode("latin-1")
    try:
        at = _skip(text, _value(text, _skip(text, 0)))
    except _Broken as broken:
        return str(broken)
    except RecursionError:
        return "exceeded max depth"
    return _invalid(text[at], "after top-level value") if at < len(text) else ""


def _invalid(char: str, where: str) -> str:
    shown = {"'": "'\\''", '"': "'\"'"}.get(char) or f"'{_quoted(char)}'"
    return f"invalid character {shown} {where}"


def _quoted(char: str) -> str:
    known = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\"}
    if char in known:
        return known[char]
    if char.isprintable():
        return char
    return f"\\x{ord(char):02x}" if ord(char) < 0x80 else f"\\u{ord(char):04x}"


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in _SPACE:
        at += 1
    return at


def _value(text: str, at: int) -> int:
    """Return the position after the value that starts at ``at``."""
    if at >= len(text):
        raise _Broken(_END)
    char = text[at]
    if char == "{":
        return _object(text, at + 1)
    if char == "[":
        return _array(text, at + 1)
    if char == '"':
        return _string(text, at + 1)
    if char == "-" or char.isdigit():
        return _number(text, at)
    for word in ("true", "false", "null"):
        if char == word[0]:
            return _word(text, at, word)
    raise _Broken(_invalid(char, "looking for beginning of value"))


def _object(text: str, at: int) -> int:
    at = _skip(text, at)
    if at < len(text) and text[at] == "}":
        return at + 1
    while True:
        if at >= len(text):
            raise _Broken(_END)
        if text[at] != '"':
            raise _Broken(_invalid(text[at], "looking for beginning of object key string"))
        at = _skip(text, _string(text, at + 1))
        at = _expect(text, at, ":", "after object key")
        at = _skip(text, _value(text, _skip(text, at)))
        if at < len(text) and text[at] == "}":
            return at + 1
        at = _skip(text, _expect(text, at, ",", "after object key:value pair"))


def _array(text: str, at: int) -> int:
    at = _skip(text, at)
    if at < len(text) and text[at] == "]":
        return at + 1
    while True:
        at = _skip(text, _value(text, at))
        if at < len(text) and text[at] == "]":
            return at + 1
        at = _skip(text, _expect(text, at, ",", "after array element"))


def _expect(text: str, at: int, char: str, where: str) -> int:
    if at >= len(text):
        raise _Broken(_END)
    if text[at] != char:
        raise _Broken(_invalid(text[at], where))
    return at + 1


def _string(text: str, at: int) -> int:
    while at < len(text):
        char = text[at]
        if char == '"':
            return at + 1
        if char < " ":
            raise _Broken(_invalid(char, "in string literal"))
        if char == "\\":
            at += 1
            if at < len(text) and text[at] not in _ESCAPES:
                raise _Broken(_invalid(text[at], "in string escape code"))
        at += 1
    raise _Broken(_END)


def _number(text: str, at: int) -> int:
    if text[at] == "-":
        at += 1
        if at >= len(text):
            raise _Broken(_END)
        if not text[at].isdigit():
            raise _Broken(_invalid(text[at], "in numeric literal"))
    at = at + 1 if text[at] == "0" else _digits(text, at, "in numeric literal")
    if at < len(text) and text[at] == ".":
        at = _digits(text, at + 1, "after decimal point in numeric literal")
    if at < len(text) and text[at] in "eE":
        at += 1
        if at < len(text) and text[at] in "+-":
            at += 1
        at = _digits(text, at, "in exponent of numeric literal")
    return at


def _digits(text: str, at: int, where: str) -> int:
    if at >= len(text):
        raise _Broken(_END)
    if not text[at].isdigit():
        raise _Broken(_invalid(text[at], where))
    while at < len(text) and text[at].isdigit():
        at += 1
    return at


def _word(text: str, at: int, word: str) -> int:
    for offset, char in enumerate(word):
        if at + offset >= len(text):
            raise _Broken(_END)
        if text[at + offset] != char:
            raise _Broken(_invalid(text[at + offset], f"in literal {word} (expecting '{char}')"))
    return at + len(word)


def json_type(value: Any) -> str:
    """Return Go's name for the type of a JSON value."""
    match value:
        case None:
            return "null"
        case bool():
            return "bool"
        case str():
            return "string"
        case dict():
            return "object"
        case list():
            return "array"
    return "number"


def summary(data: bytes) -> str:
    """Return the start of a body as shown in messages about unrecognized objects."""
    most = 30
    more = " ..." if len(data) > most else ""
    if not data:
        return "<empty>"
    if data.startswith(b"{"):
        return data[:most].decode("utf-8", "replace") + more
    return data[:most].hex() + more


class _Pairs(list[tuple[str, Any]]):
    """An object with all its keys, including duplicates."""


def duplicate_fields(body: bytes) -> list[str]:
    """Return the paths of duplicate keys in a JSON text."""
    found: list[str] = []
    _collect(json.loads(body, object_pairs_hook=_Pairs), "", found)
    return found


def _collect(value: Any, path: str, found: list[str]) -> None:
    if isinstance(value, _Pairs):
        seen: set[str] = set()
        for key, child in value:
            at = f"{path}.{key}" if path else key
            if key in seen and at not in found:
                found.append(at)
            seen.add(key)
            _collect(child, at, found)
    elif isinstance(value, list):
        for index, child in enumerate(value):
            _collect(child, f"{path}[{index}]", found)
