"""Text as Go's fmt and strconv write it: what Kubernetes' own messages are made of.

Validation messages are read by people and matched by tools that were written against Kubernetes and OpenKruise, so
values in them are quoted and formatted the way Go does it.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

_SHORT = {
    "\a": r"\a",
    "\b": r"\b",
    "\f": r"\f",
    "\n": r"\n",
    "\r": r"\r",
    "\t": r"\t",
    "\v": r"\v",
    "\\": r"\\",
    '"': r"\"",
}
_PLAIN = re.compile(r"[ !#-\[\]-~]*", re.ASCII)


def _escaped(char: str) -> str:
    if char in _SHORT:
        return _SHORT[char]
    if char.isprintable():
        return char
    code = ord(char)
    if code < 0x20 or code == 0x7F:
        return f"\\x{code:02x}"
    if 0xD800 <= code <= 0xDFFF:
        # A lone surrogate is no rune in Go: it prints the replacement character.
        return "\ufffd"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def shortened(text: str, limit: int = 256) -> str:
    """``text``, cut where it is longer than ``limit`` characters: messages may quote it, however long it came."""
    return text if len(text) <= limit else f"{text[:limit]}…"


def quote(text: str) -> str:
    """``text`` as ``strconv.Quote`` and ``%q`` print it."""
    if _PLAIN.fullmatch(text):
        return f'"{text}"'
    return '"' + "".join(map(_escaped, text)) + '"'


def format_float(value: float) -> str:
    """``value`` as ``%v`` prints it: the shortest digits, with an exponent below 1e-4 and from 1e6 on.

    >>> format_float(1e6), format_float(0.5), format_float(123456.7)
    ('1e+06', '0.5', '123456.7')
    """
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "+Inf" if value > 0 else "-Inf"
    if value == 0:
        return "-0" if str(value).startswith("-") else "0"
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)  # noqa: S101  # finite, so never 'n', 'N' or 'F'
    point = len(digits) + exponent - 1
    text = "".join(map(str, digits))
    if -4 <= point < 6:
        body = format(Decimal((0, digits, exponent)), "f")
    else:
        body = text[0] + ("." + text[1:] if len(text) > 1 else "") + f"e{'-' if point < 0 else '+'}{abs(point):02d}"
    return ("-" if sign else "") + body


def printed(value: Any) -> str:
    """A JSON value as Go prints it with ``%v``: ``map[a:1 b:[x y]]``."""
    match value:
        case dict():
            return "map[" + " ".join(f"{key}:{printed(value[key])}" for key in sorted(value)) + "]"
        case list():
            return "[" + " ".join(map(printed, value)) + "]"
        case None:
            return "<nil>"
        case bool():
            return "true" if value else "false"
        case float():
            return format_float(value)
    return str(value)


def duration(seconds: float) -> str:
    """A time span as ``time.Duration`` prints it, to the microsecond.

    >>> duration(0.0352), duration(1.5), duration(90), duration(3600), duration(0)
    ('35.2ms', '1.5s', '1m30s', '1h0m0s', '0s')
    """
    micros = round(seconds * 1_000_000)
    if abs(micros) < 1000:
        return f"{micros}µs" if micros else "0s"
    if abs(micros) < 1_000_000:
        return f"{Decimal(micros).scaleb(-3).normalize():f}ms"
    sign, micros = "-" if micros < 0 else "", abs(micros)
    minutes, rest = divmod(micros, 60_000_000)
    hours, minutes = divmod(minutes, 60)
    text = f"{Decimal(rest).scaleb(-6).normalize():f}s"
    if hours:
        text = f"{hours}h{minutes}m{text}"
    elif minutes:
        text = f"{minutes}m{text}"
    return sign + text
