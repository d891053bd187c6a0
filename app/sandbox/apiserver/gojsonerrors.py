"""What Go's JSON decoder says about bytes that are no JSON, and how a server shows the beginning of a body. Pure."""

from __future__ import annotations

import json
from typing import Any, Final

_SHOWN: Final = 30
_ENDED: Final = "unexpected end of JSON input"


def go_json_error(body: bytes) -> str:
    """The complaint about ``body``, which does not parse."""
    text = body.decode("utf-8", "replace")
    if not text.strip():
        return _ENDED
    try:
        _, end = json.JSONDecoder().raw_decode(text.lstrip())
    except json.JSONDecodeError as error:
        at = error.pos
        stripped = text.lstrip()
        if at >= len(stripped) or not stripped[at:].strip():
            return _ENDED
        char = stripped[at]
        where = {
            "Expecting value": "looking for beginning of value",
            "Expecting property name enclosed in double quotes": "looking for beginning of object key string",
            "Expecting ':' delimiter": "after object key",
            "Expecting ',' delimiter": "after object key:value pair",
        }.get(error.msg, "looking for beginning of value")
        if error.msg.startswith("Unterminated string"):
            return _ENDED
        return f"invalid character {_quoted(char)} {where}"
    rest = text.lstrip()[end:].lstrip()
    return f"invalid character {_quoted(rest[:1])} after top-level value" if rest else _ENDED


def _quoted(char: str) -> str:
    return "'\\''" if char == "'" else "'\"'" if char == '"' else f"'{char}'"


def summary(body: bytes) -> str:
    """The beginning of a body, as refusals show it."""
    if not body:
        return "<empty>"
    cut = body[:_SHOWN]
    more = " ..." if len(body) > _SHOWN else ""
    shown = cut.decode("utf-8", "replace") if body.startswith(b"{") else cut.hex()
    return shown + more


def duplicate_fields(body: bytes, document: Any, encoded: bytes) -> list[str]:
    """Paths of fields that occur twice. ``encoded``: the document as it was understood, for a quick look first."""
    if not isinstance(document, dict) or body.count(b'":') <= encoded.count(b'":'):
        return []
    found: list[str] = []
    try:
        _walk(json.loads(body, object_pairs_hook=_Pairs), "", found)
    except (json.JSONDecodeError, RecursionError):
        return []
    return found


class _Pairs(list[Any]):
    """An object as the pairs it was written with."""


def _walk(value: Any, path: str, found: list[str]) -> None:
    if isinstance(value, _Pairs):
        seen: set[str] = set()
        for key, item in value:
            here = f"{path}.{key}" if path else key
            if key in seen:
                found.append(here)
            seen.add(key)
            _walk(item, here, found)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _walk(item, f"{path}[{index}]", found)
