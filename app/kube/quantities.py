"""Parse, compare and print quantities (``100m``, ``1Gi``), and integers or percentages, as Kubernetes does.

A :class:`Quantity` is an integer times a power of ten, plus the suffix family it was written in. The output equals that
of apimachinery's ``Quantity.String`` byte for byte, because it is hashed: a quantity parsed from a canonical string
keeps that string; all others get the largest suffix that leaves an integer.

Two differences from Go are deliberate: numbers beyond 64 bits stay exact instead of wrapping, and huge exponents are
refused, since ``1e999999999`` would need that many digits in the first comparison.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache, total_ordering

from app.kube.fielderrors import quote


class QuantityError(ValueError):
    """A string that is not a quantity."""


class Format(Enum):
    """The family of suffixes of a quantity."""

    DECIMAL_SI = "DecimalSI"
    BINARY_SI = "BinarySI"
    DECIMAL_EXPONENT = "DecimalExponent"


_NANO, _MILLI = -9, -3
_MAX_INT64 = 2**63 - 1
_MAX_LENGTH = 512
_MAX_EXPONENT = 999
#: Number of digits below which apimachinery computes in 64-bit integers. It determines which strings are kept
#: unchanged.
_FAST_DIGITS = 18

_DECIMAL: Mapping[str, int] = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY: Mapping[str, int] = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_BY_EXPONENT = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_BINARY_BY_EXPONENT = {0: "", **{exponent: suffix for suffix, exponent in _BINARY.items()}}

#: The quantifiers are possessive: otherwise, three runs of digits could split 500 zeros before an invalid character in
#: millions of ways.
_TEXT = re.compile(r"([+-]?)(0*+)([0-9]*+)(?:\.([0-9]*+))?([eEinumkKMGTP]*+(?:[-+]?[0-9]*+)?)", re.ASCII)
_EXPONENT = re.compile(r"[eE]([+-]?[0-9]+)", re.ASCII)


@total_ordering
@dataclass(frozen=True, slots=True, eq=False)
class Quantity:
    """``unscaled × 10**scale``. Equality, order and hash depend only on the value: ``1000m`` equals ``1``."""

    unscaled: int = 0
    scale: int = 0
    format: Format = Format.DECIMAL_SI
    #: The string this was parsed from, if it counts as canonical.
    written: str = ""
    #: Whether it was parsed from a string that Go keeps in arbitrary precision because it does not fit into 64 bits.
    wide: bool = False

    @classmethod
    def of_milli(cls, milli: int, format: Format = Format.DECIMAL_SI) -> Quantity:
        return cls(milli, _MILLI, format)

    def __str__(self) -> str:
        return self.written or self._canonical()

    def _canonical(self) -> str:
        if not self.unscaled:
            return "0"
        if self.format is Format.BINARY_SI and not self._abs_below(1024):
            whole, exact = self._at_scale(0)
            # A fraction cannot be written in powers of 1024: decimal suffixes keep it exact.
            if exact:
                exponent = 0
                while whole % 1024 == 0:
                    whole //= 1024
                    exponent += 10
                return f"{whole}{_BINARY_BY_EXPONENT.get(exponent, '')}"
        unscaled, scale = _without_trailing_zeros(self.unscaled, self.scale)
        shift = scale % 3
        unscaled, scale = unscaled * 10**shift, scale - shift
        if self.format is Format.DECIMAL_EXPONENT:
            return f"{unscaled}e{scale}" if scale else str(unscaled)
        return f"{unscaled}{_DECIMAL_BY_EXPONENT.get(scale, '')}"

    def _at_scale(self, scale: int) -> tuple[int, bool]:
        """Return the number of units of ``10**scale``, rounded away from zero, and whether it is exact."""
        if self.scale >= scale:
            return self.unscaled * 10 ** (self.scale - scale), True
        unit = 10 ** (scale - self.scale)
        whole, rest = divmod(abs(self.unscaled), unit)
        units = whole + 1 if rest else whole
        return (-units if self.unscaled < 0 else units), not rest

    def _abs_below(self, limit: int) -> bool:
        digits = len(str(abs(self.unscaled))) + self.scale  # approximate, to compare huge and tiny values cheaply
        return digits < 5 and abs(self._at_scale(0)[0]) < limit

    @property
    def is_zero(self) -> bool:
        return not self.unscaled

    @property
    def sign(self) -> int:
        """Return -1, 0 or 1."""
        return (self.unscaled > 0) - (self.unscaled < 0)

    def value(self) -> int:
        """Return the number of whole units, rounded away from zero (so any positive quantity is at least 1)."""
        return self._at_scale(0)[0]

    def milli_value(self) -> int:
        """Return the number of thousandths, rounded away from zero."""
        return self._at_scale(_MILLI)[0]

    def round_up(self, scale: int) -> Quantity:
        """Return the quantity rounded away from zero to a multiple of ``10**scale``, or unchanged if it is one."""
        if self.scale >= scale:
            return self
        units, _ = self._at_scale(scale)
        return Quantity(units, scale, self.format)

    def __add__(self, other: Quantity) -> Quantity:
        # A zero takes the suffixes of the other operand, as in Quantity.Add.
        format = self.format if self.unscaled else other.format
        left, right, scale = _aligned(self, other)
        return Quantity(left + right, scale, format)

    def __sub__(self, other: Quantity) -> Quantity:
        format = self.format if self.unscaled else other.format
        left, right, scale = _aligned(self, other)
        return Quantity(left - right, scale, format)

    def __neg__(self) -> Quantity:
        return Quantity(-self.unscaled, self.scale, self.format)

    def __mul__(self, factor: int) -> Quantity:
        return Quantity(self.unscaled * factor, self.scale, self.format)

    def compare(self, other: Quantity) -> int:
        """Return -1, 0 or 1, as this is less than, equal to or greater than ``other``."""
        left, right, _ = _aligned(self, other)
        return (left > right) - (left < right)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Quantity) and self.compare(other) == 0

    def __lt__(self, other: Quantity) -> bool:
        return self.compare(other) < 0

    def __hash__(self) -> int:
        return hash(_without_trailing_zeros(self.unscaled, self.scale))


ZERO = Quantity()


def _aligned(left: Quantity, right: Quantity) -> tuple[int, int, int]:
    """Return both as multiples of a common power of ten, and its exponent. A zero has no exponent of its own."""
    if not left.unscaled or not right.unscaled:
        return left.unscaled, right.unscaled, left.scale if left.unscaled else right.scale
    scale = min(left.scale, right.scale)
    return left.unscaled * 10 ** (left.scale - scale), right.unscaled * 10 ** (right.scale - scale), scale


def _without_trailing_zeros(unscaled: int, scale: int) -> tuple[int, int]:
    if not unscaled:
        return 0, 0
    while unscaled % 10 == 0:
        unscaled //= 10
        scale += 1
    return unscaled, scale


def parse(value: str | int | float) -> Quantity:
    """Parse a string, or a JSON number as the API accepts it. Raises :class:`QuantityError`."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise QuantityError(f"a quantity must be a string or a number, not {type(value).__name__}")
    return _parse(value if isinstance(value, str) else _number_text(value))


def canonical(value: str | int | float) -> str:
    """Return ``value`` as the API server would store it. Raises :class:`QuantityError`."""
    return str(parse(value))


def _number_text(number: int | float) -> str:
    if isinstance(number, int):
        if number.bit_length() > 4 * _MAX_LENGTH:
            raise QuantityError("quantity has too many digits")
        return str(number)
    return repr(number)


@lru_cache(maxsize=4096)
def _parse(text: str) -> Quantity:
    """Parse a string. Results are cached: quantities repeat often in a cluster and are immutable."""
    if len(text) > _MAX_LENGTH:
        raise QuantityError(f"quantity has {len(text)} characters, more than the {_MAX_LENGTH} allowed")
    stripped = text.strip(" \t\r\n\v\f\x85\xa0")
    match = _TEXT.fullmatch(stripped) if stripped else None
    if match is None:
        pattern = "^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$"
        raise QuantityError(f"quantities must match the regular expression '{pattern}': {quote(text)}")
    sign, zeros, digits, fraction, suffix = match.groups()
    format, exponent = _suffix(suffix, text)
    number = _Number(sign == "-", zeros, digits, fraction or "")
    return _kept(number, format, exponent, stripped) or _rounded(number, format, exponent, text)


@dataclass(frozen=True, slots=True)
class _Number:
    """The parts of the number before the suffix; ``zeros`` are the leading ones."""

    negative: bool
    zeros: str
    digits: str
    fraction: str

    def signed(self, magnitude: int) -> int:
        return -magnitude if self.negative else magnitude


def _suffix(suffix: str, text: str) -> tuple[Format, int]:
    """Return the family and the power (of 10 or of 2) of a suffix."""
    if suffix in _DECIMAL:
        return Format.DECIMAL_SI, _DECIMAL[suffix]
    if suffix in _BINARY:
        return Format.BINARY_SI, _BINARY[suffix]
    match = _EXPONENT.fullmatch(suffix)
    if match is None:
        raise QuantityError(f"unable to parse quantity's suffix: {quote(text)}")
    exponent = int(match[1])
    if abs(exponent) > _MAX_EXPONENT:
        raise QuantityError(f"quantity's exponent must be between -{_MAX_EXPONENT} and {_MAX_EXPONENT}: {quote(text)}")
    return Format.DECIMAL_EXPONENT, exponent


def _kept(number: _Number, format: Format, exponent: int, text: str) -> Quantity | None:
    """Return the quantity if it fits Go's 64-bit representation, where many strings count as canonical."""
    digits = number.digits or "0"
    if format is Format.BINARY_SI:
        # 1Mi has about 6 decimal digits, so the number of digits left depends on the suffix.
        precision = 15 - len(digits) - exponent * 3 // 10 - 1
        scale, factor = 0, 1 << exponent
        if number.fraction:
            return None
    else:
        precision = _FAST_DIGITS - len(digits) - len(number.fraction)
        scale, factor = exponent - len(number.fraction), 1
    if precision < 0 or scale < _NANO:
        return None
    shifted = digits + number.fraction
    magnitude = int(shifted)
    if magnitude * factor > _MAX_INT64:
        return None
    if format is Format.BINARY_SI:
        keep = bool(magnitude & 7)
    else:
        keep = scale % 3 == 0 and not shifted.endswith("000") and shifted[0] != "0"
    return Quantity(number.signed(magnitude * factor), scale, format, text if keep or text == "0" else "")


def _rounded(number: _Number, format: Format, exponent: int, text: str) -> Quantity:
    """Return the quantity in arbitrary precision, rounded up to nano units, and capped at 2**63 - 1 if binary."""
    if not (number.zeros or number.digits or number.fraction):
        raise QuantityError(f"unable to parse numeric part of quantity: {quote(text)}")
    magnitude = int((number.digits + number.fraction) or "0")
    scale = -len(number.fraction)
    if format is Format.BINARY_SI:
        magnitude <<= exponent
    else:
        scale += exponent
    if scale < _NANO:
        # A positive fraction of a nano unit is rounded up to one.
        magnitude, scale = Quantity(magnitude, scale)._at_scale(_NANO)[0], _NANO
    if format is Format.BINARY_SI and magnitude:
        rounded = Quantity(magnitude, scale)
        if rounded.compare(Quantity(_MAX_INT64)) > 0:
            magnitude, scale = _MAX_INT64, 0
        elif rounded.compare(Quantity(1)) < 0:
            format = Format.DECIMAL_SI
    return Quantity(number.signed(magnitude), scale, format, wide=True)


# Int-or-string fields that hold a count or a percentage: ``maxUnavailable: 1`` or ``"25%"``.
#
# Percentages are scaled with exact integers. Go uses floating point, with the same result for every count that can
# occur in a cluster.

# As in strconv.Atoi: an optional sign and ASCII digits.
_percent = re.compile(r"([+-]?[0-9]{1,18})%").fullmatch


class IntOrPercentError(ValueError):
    """A value that is neither an integer nor a percentage."""


def is_percent(value: int | str | None) -> bool:
    """Return whether ``value`` is a string that consists of an integer and a percent sign."""
    return isinstance(value, str) and _percent(value) is not None


def percentage(value: str) -> int:
    """Return the number before the percent sign. Raises :class:`IntOrPercentError`."""
    match = _percent(value)
    if match is None:
        raise IntOrPercentError(f'{quote(value)} is neither an integer nor a percentage such as "25%"')
    return int(match[1])


def scaled(value: int | str | None, total: int, round_up: bool) -> int:
    """Return ``value`` as a count: an integer unchanged, a percentage of ``total`` rounded up or down.

    Raises :class:`IntOrPercentError` for None and for a string that is not a percentage.
    """
    if isinstance(value, bool) or value is None:
        raise IntOrPercentError(f"{'null' if value is None else value} is neither an integer nor a percentage")
    if isinstance(value, int):
        return value
    part = percentage(value) * total
    return -(-part // 100) if round_up else part // 100


def is_more_than_all(value: object) -> bool:
    """Return whether ``value`` is a percentage over 100, which has the same effect as 100 %."""
    number = value.removesuffix("%") if isinstance(value, str) and value.endswith("%") else ""
    return number.replace(".", "", 1).isdecimal() and float(number) > 100
