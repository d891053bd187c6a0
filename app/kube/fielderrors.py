"""Field errors: what is wrong with which field, printed exactly as Kubernetes' ``field.Error`` and ``ErrorList``
print it.

Pure values. ``aggregate`` gives the text of a refusal: one error as it is, several as ``[a, b]`` with repeats left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from app.kube.gotext import format_float, quote


class ErrorType(StrEnum):
    """What kind of mistake it is; the values are the causes' reasons in a Status."""

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
    """Where a field is: ``Path("spec").child("containers").index(0)`` is ``spec.containers[0]``."""

    text: str = ""

    def child(self, *names: str) -> Path:
        """The path of a field of this one (of a field of that field, and so on)."""
        joined = ".".join(names)
        return Path(f"{self.text}.{joined}" if self.text else joined)

    def index(self, index: int) -> Path:
        """The path of one item of a list."""
        return Path(f"{self.text}[{index}]")

    def key(self, key: str) -> Path:
        """The path of one entry of a map."""
        return Path(f"{self.text}[{key}]")

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class GoLiteral:
    """A bad value that is printed as it stands, for the places where OpenKruise prints a whole Go struct."""

    text: str

    def __str__(self) -> str:
        return self.text


class _OmitValue:
    __slots__ = ()


_OMIT = _OmitValue()


def _value_text(value: object) -> str:
    match value:
        case None:
            # A nil pointer is the word null, in quotes like any string (SS-26's text).
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
    """One mistake in one field. ``str()`` is the whole sentence, ``body`` the same without the field."""

    type: ErrorType
    field: str
    value: object = ""
    detail: str = ""

    @property
    def body(self) -> str:
        """The message without the field's path."""
        text = _TITLES[self.type]
        if self.type not in _WITHOUT_VALUE and self.value is not _OMIT:
            text = f"{text}: {_value_text(self.value)}"
        return f"{text}: {self.detail}" if self.detail else text

    def __str__(self) -> str:
        return f"{self.field}: {self.body}"

    def as_cause(self) -> dict[str, str]:
        """The error as an entry of ``status.details.causes``."""
        return {"reason": str(self.type), "message": self.body, "field": self.field}


def required(path: Path | str, detail: str = "") -> FieldError:
    """A value that must be given is missing."""
    return FieldError(ErrorType.REQUIRED, str(path), "", detail)


def invalid(path: Path | str, value: object, detail: str = "") -> FieldError:
    """A value is malformed or out of bounds. Wrap a value that must be printed as it stands in :class:`GoLiteral`."""
    return FieldError(ErrorType.INVALID, str(path), value, detail)


def type_invalid(path: Path | str, value: object, detail: str = "") -> FieldError:
    """A value has another type than the schema says."""
    return FieldError(ErrorType.TYPE_INVALID, str(path), value, detail)


def not_supported(path: Path | str, value: object, supported: Iterable[str] = ()) -> FieldError:
    """A value is none of an enumeration; ``supported`` is printed in the order given."""
    known = ", ".join(map(quote, supported))
    return FieldError(ErrorType.NOT_SUPPORTED, str(path), value, f"supported values: {known}" if known else "")


def not_found(path: Path | str, value: object, detail: str = "") -> FieldError:
    """A value names something that is not there."""
    return FieldError(ErrorType.NOT_FOUND, str(path), value, detail)


def duplicate(path: Path | str, value: object) -> FieldError:
    """A value that must be unique occurs twice."""
    return FieldError(ErrorType.DUPLICATE, str(path), value)


def forbidden(path: Path | str, detail: str) -> FieldError:
    """A value that is well formed is not permitted here."""
    return FieldError(ErrorType.FORBIDDEN, str(path), "", detail)


def too_long(path: Path | str, max_length: int) -> FieldError:
    """A text has more than ``max_length`` bytes (a negative number leaves the limit out)."""
    if max_length < 0:
        detail = "value is too long"
    else:
        detail = f"may not be more than {max_length} {'byte' if max_length == 1 else 'bytes'}"
    return FieldError(ErrorType.TOO_LONG, str(path), "", detail)


def too_many(path: Path | str, actual: int, maximum: int) -> FieldError:
    """A list has more than ``maximum`` items; a negative ``actual`` leaves the count out."""
    if maximum < 0:
        detail = "has too many items"
    else:
        detail = f"must have at most {maximum} {'item' if maximum == 1 else 'items'}"
    return FieldError(ErrorType.TOO_MANY, str(path), actual if actual >= 0 else _OMIT, detail)


def internal(path: Path | str, detail: str) -> FieldError:
    """Something failed that is not the user's doing."""
    return FieldError(ErrorType.INTERNAL, str(path), "", detail)


def aggregate(errors: Iterable[FieldError | str]) -> str:
    """The text of all errors as ``ErrorList.ToAggregate`` prints it; empty for none."""
    messages = list(dict.fromkeys(map(str, errors)))
    if len(messages) == 1:
        return messages[0]
    return f"[{', '.join(messages)}]" if messages else ""


def go_string_map(value: Mapping[str, str] | None) -> str:
    """``value`` as ``%#v`` prints a ``map[string]string``: keys sorted, nil told apart from empty."""
    if value is None:
        return "map[string]string(nil)"
    return "map[string]string{" + ", ".join(f"{quote(k)}:{quote(value[k] or '')}" for k in sorted(value)) + "}"


def go_string_slice(value: Sequence[str] | None) -> str:
    """``value`` as ``%#v`` prints a ``[]string``."""
    if value is None:
        return "[]string(nil)"
    return "[]string{" + ", ".join(map(quote, value)) + "}"


def go_int_or_string(value: int | str | None) -> GoLiteral:
    """``value`` as ``%#v`` prints an ``intstr.IntOrString``; none is 0."""
    if isinstance(value, str):
        return GoLiteral(f"intstr.IntOrString{{Type:1, IntVal:0, StrVal:{quote(value)}}}")
    return GoLiteral(f'intstr.IntOrString{{Type:0, IntVal:{value or 0}, StrVal:""}}')
