"""Print a Pod template as Go's ``spew`` does. Kubernetes hashes this text, for example for ``pod-template-hash``.
[DS-53]

Every field of every struct is printed with its Go type, whether it is set or not. The text, and with it every hash,
therefore depends on the Kubernetes release whose types a program is built with: fields added later are missing.
``pod_template_types.txt`` lists the structs, one line per field: name, type, JSON name and, for fields newer than 1.32,
the release that added them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeAlias

import orjson

from app.kube.quantities import QuantityError, parse

#: The release whose types OpenKruise is built with, and the release of the cluster in our tests.
OPENKRUISE: Final = "1.32"
NEWEST: Final = "1.34"
LIMIT: Final = 512 * 1024
"""Maximum number of characters. Each container or volume takes about 3,000, all of which are hashed."""

_TYPES: Final = Path(__file__).with_name("pod_template_types.txt")
_NIL: Final = "<nil>"
_TIME: Final = "{Time:(time.Time){wall:(uint64)0 ext:(int64)0 loc:(*time.Location)<nil>}}"
_DECIMAL: Final = "{i:(resource.int64Amount){value:(int64)%d scale:(resource.Scale)%d} d:(resource.infDecAmount){Dec:"
_NO_DECIMAL: Final = "(*inf.Dec)<nil>"
_WIDE: Final = "(*inf.Dec){unscaled:(big.Int){neg:(bool)%s abs:(big.nat)[%s]} scale:(inf.Scale)%d}"
_NO_QUANTITY: Final = _DECIMAL % (0, 0) + _NO_DECIMAL + "} s:(string) Format:(resource.Format)}"
#: Go rounds arbitrary-precision numbers to this many decimal places.
_PRECISION: Final = 9
_MAX_INT64: Final = 2**63 - 1


class TextError(ValueError):
    """A template that Go could not read, or whose text would be too long."""


class _Text:
    """The text printed so far."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self._left = LIMIT

    def add(self, piece: str) -> None:
        self._left -= len(piece)
        if self._left < 0:
            raise TextError(f"the text is longer than {LIMIT} characters")
        self.pieces.append(piece)


#: Prints a value that is not null, without its type.
_Print: TypeAlias = Callable[[Any, _Text], None]
#: How to print a type, and what to print for a missing value.
_Printer: TypeAlias = tuple[_Print, str]


def template_text(template: Mapping[str, Any], release: str = OPENKRUISE) -> str:
    """Return ``template`` as a program built with the types of that release prints it.

    Fields unknown to that release, which no Go program prints, follow at the end, so that templates that differ only in
    such fields have different hashes. Raises :class:`TextError`.
    """
    printer, _ = _printers(release)("v1.PodTemplateSpec")
    text = _Text()
    text.add("(v1.PodTemplateSpec)")
    try:
        printer(template, text)
    except RecursionError:
        raise TextError("the template is nested too deeply") from None
    return "".join(text.pieces)


@cache
def _printers(release: str) -> Callable[[str], _Printer]:
    """Return the cached printers of all types for a release."""
    named, structs = _definitions(release)

    @cache
    def printer(type_: str) -> _Printer:
        if type_ in _BY_HAND:
            return _BY_HAND[type_]
        if type_ in named:
            return printer(named[type_])
        if type_.startswith("*"):
            return printer(type_[1:])[0], _NIL
        if type_.startswith("[]"):
            return _list_of(printer(type_[2:])), _NIL
        if type_.startswith("map["):
            return _map_of(printer(type_.partition("]")[2])), _NIL
        fields = tuple((f"{go}:({one})", json or keys(one), *printer(one)) for go, one, json in structs[type_])
        return _struct(fields, keys(type_)), "{" + " ".join(head + zero for head, _, _, zero in fields) + "}"

    @cache
    def keys(type_: str) -> frozenset[str]:
        return frozenset().union(*({json} if json else keys(one) for _, one, json in structs[type_]))

    return printer


def _definitions(release: str) -> tuple[Mapping[str, str], Mapping[str, list[tuple[str, str, str]]]]:
    """Return two maps: type name → definition, and struct → Go name, type and JSON name of each field ("" for an
    inlined struct)."""
    named: dict[str, str] = {}
    structs: dict[str, list[tuple[str, str, str]]] = {}
    fields: list[tuple[str, str, str]] = []
    for line in _TYPES.read_text("utf-8").splitlines():
        name, *rest = line.split()
        if not line.startswith(" "):
            if rest:
                named[name] = rest[1]
            else:
                fields = structs.setdefault(name, [])
        elif len(rest) < 3 or _number(rest[2]) <= _number(release):
            fields.append((name, rest[0], rest[1].removeprefix("-")))
    return named, structs


def _number(release: str) -> tuple[int, ...]:
    return tuple(map(int, release.split(".")))


def _struct(fields: tuple[tuple[str, str | frozenset[str], _Print, str], ...], known: frozenset[str]) -> _Print:
    """Return the printer of a struct. Each of ``fields`` holds the text before the value, its JSON key (or the keys of
    an inlined struct), its printer, and the text for a missing value. ``known`` contains all keys."""

    def print_struct(value: Any, text: _Text) -> None:
        _expect(value, dict)
        separator = "{"
        for head, json, printer, zero in fields:
            if isinstance(json, str):
                given = value.get(json)
            else:
                given = {key: item for key, item in value.items() if key in json}
            if given is None:
                text.add(f"{separator}{head}{zero}")
            else:
                text.add(separator + head)
                printer(given, text)
            separator = " "
        if not known.issuperset(value):
            _print_unknown({key: item for key, item in value.items() if key not in known}, text)
        text.add("}")

    return print_struct


def _print_unknown(value: Mapping[str, Any], text: _Text) -> None:
    set_ = {key: item for key, item in value.items() if item is not None}
    if set_:
        text.add(f" {orjson.dumps(set_, option=orjson.OPT_SORT_KEYS).decode()}")


def _list_of(item: _Printer) -> _Print:
    printer, zero = item

    def print_list(value: Any, text: _Text) -> None:
        _expect(value, list)
        separator = "["
        for one in value:
            text.add(separator)
            _or_zero(printer, zero, one, text)
            separator = " "
        text.add("]" if value else "[]")

    return print_list


def _map_of(item: _Printer) -> _Print:
    printer, zero = item

    def print_map(value: Any, text: _Text) -> None:
        _expect(value, dict)
        separator = "map["
        for key in sorted(value):
            text.add(f"{separator}{key}:")
            _or_zero(printer, zero, value[key], text)
            separator = " "
        text.add("]" if value else "map[]")

    return print_map


def _or_zero(printer: _Print, zero: str, value: Any, text: _Text) -> None:
    if value is None:
        text.add(zero)
    else:
        printer(value, text)


def _expect(value: Any, type_: type) -> None:
    if type(value) is not type_:
        raise TextError(f"expected {type_.__name__}, found {type(value).__name__}")


def _print_string(value: Any, text: _Text) -> None:
    _expect(value, str)
    text.add(value)


def _print_bool(value: Any, text: _Text) -> None:
    _expect(value, bool)
    text.add("true" if value else "false")


def _print_integer(value: Any, text: _Text) -> None:
    _expect(value, int)
    text.add(str(value))


def _print_int_or_string(value: Any, text: _Text) -> None:
    if type(value) is str:
        text.add(f"{{Type:(intstr.Type)1 IntVal:(int32)0 StrVal:(string){value}}}")
    else:
        _expect(value, int)
        text.add(f"{{Type:(intstr.Type)0 IntVal:(int32){value} StrVal:(string)}}")


def _print_quantity(value: Any, text: _Text) -> None:
    try:
        quantity = parse(value)
    except QuantityError as error:
        raise TextError(str(error)) from error
    if quantity.wide:
        text.add(_DECIMAL % (0, 0) + _wide(quantity.unscaled, quantity.scale))
    else:
        text.add(_DECIMAL % (quantity.unscaled, quantity.scale) + _NO_DECIMAL)
    text.add(f"}} s:(string){quantity.written} Format:(resource.Format){quantity.format.value}}}")


def _wide(unscaled: int, scale: int) -> str:
    """Print a number in Go's arbitrary-precision form: 64-bit words, lowest first."""
    places = -scale
    if unscaled and abs(unscaled) != _MAX_INT64:
        unscaled, places = unscaled * 10 ** (_PRECISION - places), _PRECISION
    rest, words = abs(unscaled), []
    while rest:
        words.append(str(rest & (1 << 64) - 1))
        rest >>= 64
    return _WIDE % ("true" if unscaled < 0 else "false", " ".join(words), places)


def _refuse(value: Any, text: _Text) -> None:  # noqa: ARG001
    raise TextError("template metadata must not contain times or managed fields")


_BY_HAND: Final[Mapping[str, _Printer]] = {
    "string": (_print_string, ""),
    "types.UID": (_print_string, ""),
    "bool": (_print_bool, "false"),
    "int32": (_print_integer, "0"),
    "int64": (_print_integer, "0"),
    "intstr.IntOrString": (_print_int_or_string, "{Type:(intstr.Type)0 IntVal:(int32)0 StrVal:(string)}"),
    "resource.Quantity": (_print_quantity, _NO_QUANTITY),
    "v1.Time": (_refuse, _TIME),
    "v1.FieldsV1": (_refuse, _NIL),
}
