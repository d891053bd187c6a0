"""Field errors as the API server reports them, with values formatted as Go prints them.

Validation messages are read by users and matched by tools written for Kubernetes and OpenKruise.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Any, Final

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
        # A lone surrogate is not a rune: Go prints the replacement character instead.
        return "\ufffd"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def shortened(text: str, limit: int = 256) -> str:
    """Return ``text``, cut to ``limit`` characters, so that messages can quote text of any length."""
    return text if len(text) <= limit else f"{text[:limit]}…"


def quote(text: str) -> str:
    """Return ``text`` as ``strconv.Quote`` and ``%q`` print it."""
    if _PLAIN.fullmatch(text):
        return f'"{text}"'
    return '"' + "".join(map(_escaped, text)) + '"'


def format_float(value: float) -> str:
    """Return ``value`` as ``%v`` prints it: the shortest digits, with an exponent below 1e-4 and from 1e6.

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
    """Return a JSON value as Go prints it with ``%v``: ``map[a:1 b:[x y]]``."""
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
    """Return a duration as ``time.Duration`` prints it, to the microsecond.

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


_DURATION_PART: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h)")
_UNITS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def parse_duration(text: str) -> float:
    """Parse a Go duration (``1h30m``, ``15s``, ``0``) into seconds. Raises ValueError."""
    sign, body = (-1.0, text[1:]) if text.startswith("-") else (1.0, text.removeprefix("+"))
    if body == "0":
        return 0.0
    parts = _DURATION_PART.findall(body)
    if not parts or "".join(number + unit for number, unit in parts) != body:
        raise ValueError("expected a duration such as 15s or 2m30s")
    return sign * sum(float(number) * _UNITS[unit] for number, unit in parts)


class ErrorType(StrEnum):
    """Types of field errors. The values are the reasons of causes in a Status."""

    NOT_FOUND = "FieldValueNotFound"
    REQUIRED = "FieldValueRequired"
    DUPLICATE = "FieldValueDuplicate"
    INVALID = "FieldValueInvalid"
    NOT_SUPPORTED = "FieldValueNotSupported"
    FORBIDDEN = "FieldValueForbidden"
    TOO_LONG = "FieldValueTooLong"
    TOO_MANY = "FieldValueTooMany"
    INTERNAL = "InternalError"
    TYPE_INVALID = "FieldValueTypeInvalid"


_TITLES = {
    ErrorType.NOT_FOUND: "Not found",
    ErrorType.REQUIRED: "Required value",
    ErrorType.DUPLICATE: "Duplicate value",
    ErrorType.INVALID: "Invalid value",
    ErrorType.NOT_SUPPORTED: "Unsupported value",
    ErrorType.FORBIDDEN: "Forbidden",
    ErrorType.TOO_LONG: "Too long",
    ErrorType.TOO_MANY: "Too many",
    ErrorType.INTERNAL: "Internal error",
    ErrorType.TYPE_INVALID: "Invalid value",
}
_WITHOUT_VALUE = frozenset({ErrorType.REQUIRED, ErrorType.FORBIDDEN, ErrorType.TOO_LONG, ErrorType.INTERNAL})


@dataclass(frozen=True, slots=True)
class Path:
    """The path of a field: ``Path("spec").child("containers").index(0)`` is ``spec.containers[0]``."""

    text: str = ""

    def child(self, *names: str) -> Path:
        joined = ".".join(names)
        return Path(_short(f"{self.text}.{joined}" if self.text else joined))

    def index(self, index: int) -> Path:
        return Path(_short(f"{self.text}[{index}]"))

    def key(self, key: str) -> Path:
        return Path(_short(f"{self.text}[{key}]"))

    def __str__(self) -> str:
        return self.text


#: Maximum length of a path: a key of a megabyte may be part of the paths of a hundred thousand fields.
_LONGEST_PATH: Final = 1_000


def _short(path: str) -> str:
    return path if len(path) <= _LONGEST_PATH else shortened(path, _LONGEST_PATH // 2)


@dataclass(frozen=True, slots=True)
class GoLiteral:
    """A bad value that is printed verbatim, for messages in which OpenKruise prints a whole Go struct."""

    text: str

    def __str__(self) -> str:
        return self.text


def _value_text(value: object) -> str:
    match value:
        case None:
            # A nil pointer is printed as the word null, quoted like any string. [SS-26]
            return '"null"'
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return format_float(value)
        case str():
            return quote(value)
        case GoLiteral():
            return value.text
        case Mapping() | Sequence():
            return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        case _:
            return str(value)


@dataclass(frozen=True, slots=True)
class FieldError:
    """An error in one field. ``str()`` returns the whole message."""

    type: ErrorType
    field: str
    value: object = ""
    detail: str = ""

    @property
    def body(self) -> str:
        """Return the message without the field's path."""
        text = _TITLES[self.type]
        if self.type not in _WITHOUT_VALUE:
            text = f"{text}: {_value_text(self.value)}"
        return f"{text}: {self.detail}" if self.detail else text

    def __str__(self) -> str:
        return f"{self.field}: {self.body}"

    def as_cause(self) -> dict[str, str]:
        """Return the error as an entry of ``status.details.causes``."""
        return {"reason": str(self.type), "message": self.body, "field": self.field}


def required(path: Path | str, detail: str = "") -> FieldError:
    """Return the error for a missing required value."""
    return FieldError(ErrorType.REQUIRED, str(path), "", detail)


def invalid(path: Path | str, value: object, detail: str = "") -> FieldError:
    """Return the error for a malformed or out-of-bounds value. Wrap values to be printed verbatim in
    :class:`GoLiteral`."""
    return FieldError(ErrorType.INVALID, str(path), value, detail)


def type_invalid(path: Path | str, value: object, detail: str = "") -> FieldError:
    """Return the error for a value of the wrong type."""
    return FieldError(ErrorType.TYPE_INVALID, str(path), value, detail)


def not_supported(path: Path | str, value: object, supported: Iterable[str] = ()) -> FieldError:
    """Return the error for a value that is not in an enumeration. ``supported`` is printed in the given order."""
    known = ", ".join(map(quote, supported))
    return FieldError(ErrorType.NOT_SUPPORTED, str(path), value, f"supported values: {known}" if known else "")


def not_found(path: Path | str, value: object, detail: str = "") -> FieldError:
    """Return the error for a reference to something that does not exist."""
    return FieldError(ErrorType.NOT_FOUND, str(path), value, detail)


def duplicate(path: Path | str, value: object) -> FieldError:
    """Return the error for a duplicate of a value that must be unique."""
    return FieldError(ErrorType.DUPLICATE, str(path), value)


def forbidden(path: Path | str, detail: str) -> FieldError:
    """Return the error for a well-formed value that is not permitted here."""
    return FieldError(ErrorType.FORBIDDEN, str(path), "", detail)


def too_long(path: Path | str, max_length: int) -> FieldError:
    """Return the error for a string of more than ``max_length`` bytes."""
    detail = f"may not be more than {max_length} {'byte' if max_length == 1 else 'bytes'}"
    return FieldError(ErrorType.TOO_LONG, str(path), "", detail)


def too_many(path: Path | str, actual: int, maximum: int) -> FieldError:
    """Return the error for a list of more than ``maximum`` items."""
    detail = f"must have at most {maximum} {'item' if maximum == 1 else 'items'}"
    return FieldError(ErrorType.TOO_MANY, str(path), actual, detail)


def internal(path: Path | str, detail: str) -> FieldError:
    """Return an internal error, not caused by the user."""
    return FieldError(ErrorType.INTERNAL, str(path), "", detail)


def new_errors(errors: Iterable[FieldError], former: Iterable[FieldError]) -> list[FieldError]:
    """Return the errors that the former object does not have, so that objects admitted earlier stay editable."""
    known = set(map(str, former))
    return [error for error in errors if str(error) not in known]


#: Number of characters after which :func:`aggregate` omits further errors. Each error may quote a whole list, so the
#: full text could grow with the square of the object's size.
MAX_AGGREGATE: Final = 64 * 1024


def aggregate(errors: Iterable[FieldError | str]) -> str:
    """Return the text of the errors as ``ErrorList.ToAggregate`` prints it, or "" if there are none."""
    found: dict[str, None] = {}
    size = 0
    for error in errors:
        text = str(error)
        found[text] = None
        size += len(text)
        if size > MAX_AGGREGATE:
            break
    messages = list(found)
    if len(messages) == 1:
        return messages[0]
    return f"[{', '.join(messages)}]" if messages else ""


def go_string_map(value: Mapping[str, str] | None) -> str:
    """Return ``value`` as ``%#v`` prints a ``map[string]string``: keys sorted, nil distinct from empty."""
    if value is None:
        return "map[string]string(nil)"
    return "map[string]string{" + ", ".join(f"{quote(k)}:{quote(value[k] or '')}" for k in sorted(value)) + "}"


def go_string_slice(value: Sequence[str] | None) -> str:
    """Return ``value`` as ``%#v`` prints a ``[]string``."""
    if value is None:
        return "[]string(nil)"
    return "[]string{" + ", ".join(map(quote, value)) + "}"


def go_int_or_string(value: int | str | None) -> GoLiteral:
    """Return ``value`` as ``%#v`` prints an ``intstr.IntOrString``; None is 0."""
    if isinstance(value, str):
        return GoLiteral(f"intstr.IntOrString{{Type:1, IntVal:0, StrVal:{quote(value)}}}")
    return GoLiteral(f'intstr.IntOrString{{Type:0, IntVal:{value or 0}, StrVal:""}}')
