"""Resource quantities and the expressions of a resourcesPolicy (SS-64 to SS-67), evaluated slowly and simply."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from tests.property.branches import Branches

DECIMAL = {"m": Fraction(1, 1000), "": Fraction(1), "k": Fraction(10**3), "M": Fraction(10**6), "G": Fraction(10**9)}
DECIMAL |= {"T": Fraction(10**12), "P": Fraction(10**15)}
BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50}


class BadExpression(Exception):
    """The expression has no value; ``branch`` names the rule."""

    def __init__(self, branch: str) -> None:
        super().__init__(branch)
        self.branch = branch


@dataclass(frozen=True)
class Quantity:
    """An exact amount and its suffix family."""

    value: Fraction
    binary: bool = False

    def __add__(self, other: Quantity) -> Quantity:
        # Zero has no suffix family.
        return Quantity(self.value + other.value, other.binary if self.value == 0 else self.binary)

    def __sub__(self, other: Quantity) -> Quantity:
        return Quantity(self.value - other.value, other.binary if self.value == 0 else self.binary)

    def scaled(self, factor: float, *, divide: bool) -> Quantity:
        """Multiply or divide the value in milli as a float, truncate it, and keep the suffix family. [SS-65]"""
        milli = float(self.value * 1000)
        return Quantity(Fraction(int(milli / factor if divide else milli * factor), 1000), self.binary)

    def text(self) -> str:
        whole = self.value.denominator == 1
        if self.binary and whole and abs(self.value) >= 1024:
            number, suffix = int(self.value), ""
            for name in BINARY:
                if number % 1024:
                    break
                number, suffix = number // 1024, name
            return f"{number}{suffix}"
        if self.value == 0:
            return "0"
        for suffix, unit in reversed(DECIMAL.items()):
            if (self.value / unit).denominator == 1:
                return f"{self.value / unit}{suffix}"
        raise AssertionError(f"finer than a thousandth: {self.value}")


def parse(text: str | int | float) -> Quantity:
    found = re.fullmatch(r"(-?[0-9]*\.?[0-9]*)([a-zA-Z]*)", str(text))
    if found is None or not found[1]:
        raise AssertionError(f"not a quantity of this generator: {text!r}")
    if found[2] in BINARY:
        return Quantity(Fraction(found[1]) * BINARY[found[2]], binary=True)
    return Quantity(Fraction(found[1]) * DECIMAL[found[2]])


#: A number or a quantity.
Value = float | Quantity

TOKEN = re.compile(
    r"\s*(?:(?P<quantity>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[KMGTP]i|[mkMGTP])(?![a-zA-Z0-9]))"
    r"|(?P<percent>(?:[0-9]+\.?[0-9]*|\.[0-9]+)%)"
    r"|(?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"
    r"|(?P<word>[a-zA-Z]+)|(?P<sign>[-+*/(),]))"
)


def evaluate(text: str, variable: str, value: Quantity, branches: Branches) -> Quantity:
    """Return the value of an expression as a non-negative quantity."""
    result = _Reader(text, variable, value, branches).all()
    if not isinstance(result, Quantity):
        branches.hit("SS-66 plain number")
        result = _as_quantity(result)
    if result.value < 0:
        raise BadExpression("SS-65 negative result refused")
    return result


def _as_quantity(value: Value) -> Quantity:
    return value if isinstance(value, Quantity) else Quantity(Fraction(int(value * 1000), 1000))


class _Reader:
    """Parses sum → product → sign → atom from left to right and evaluates while parsing."""

    def __init__(self, text: str, variable: str, value: Quantity, branches: Branches) -> None:
        self.variable, self.value, self.branches = variable, value, branches
        self.tokens: list[tuple[str, str]] = []
        position = 0
        while text[position:].strip():
            found = TOKEN.match(text, position)
            if found is None:
                raise AssertionError(f"not an expression of this generator: {text!r}")
            self.tokens.append((str(found.lastgroup), found[str(found.lastgroup)]))
            position = found.end()

    def all(self) -> Value:
        result = self.sum()
        if self.tokens:
            raise AssertionError(f"text behind the expression: {self.tokens}")
        return result

    def take(self, *wanted: str) -> str:
        """Consume and return the next sign if it is in ``wanted``, else return an empty string."""
        if self.tokens and self.tokens[0][0] == "sign" and self.tokens[0][1] in wanted:
            return self.tokens.pop(0)[1]
        return ""

    def sum(self) -> Value:
        left = self.product()
        while sign := self.take("+", "-"):
            left = self.added(left, sign, self.product())
        return left

    def added(self, left: Value, sign: str, right: Value) -> Value:
        self.branches.hit(f"SS-64 {sign}")
        if not isinstance(left, Quantity) and not isinstance(right, Quantity):
            return left + right if sign == "+" else left - right
        both = isinstance(left, Quantity) and isinstance(right, Quantity)
        self.branches.hit("SS-65 two quantities added" if both else "SS-65 number and quantity added")
        one, other = _as_quantity(left), _as_quantity(right)
        result = one + other if sign == "+" else one - other
        if result.value < 0:
            self.branches.hit("SS-65 negative on the way")
        return result

    def product(self) -> Value:
        left = self.signed()
        while sign := self.take("*", "/"):
            right = self.signed()
            self.branches.hit(f"SS-64 {sign}")
            left = self.multiplied(left, right) if sign == "*" else self.divided(left, right)
        return left

    def multiplied(self, left: Value, right: Value) -> Value:
        if isinstance(left, Quantity) and isinstance(right, Quantity):
            raise BadExpression("SS-65 quantity times quantity refused")
        if isinstance(left, Quantity) and not isinstance(right, Quantity):
            self.branches.hit("SS-65 quantity times number")
            return left.scaled(right, divide=False)
        if isinstance(right, Quantity) and not isinstance(left, Quantity):
            self.branches.hit("SS-65 quantity times number")
            return right.scaled(left, divide=False)
        assert not isinstance(left, Quantity)
        assert not isinstance(right, Quantity)
        return left * right

    def divided(self, left: Value, right: Value) -> Value:
        if isinstance(right, Quantity):
            raise BadExpression("SS-65 division by a quantity refused")
        if right == 0:
            raise BadExpression("SS-65 division by 0 refused")
        if isinstance(left, Quantity):
            self.branches.hit("SS-65 quantity by number")
            return left.scaled(right, divide=True)
        return left / right

    def signed(self) -> Value:
        if not self.take("-"):
            return self.atom()
        self.branches.hit("SS-64 unary minus")
        value = self.signed()
        return Quantity(-value.value, value.binary) if isinstance(value, Quantity) else -value

    def atom(self) -> Value:
        if self.take("("):
            self.branches.hit("SS-64 parentheses")
            value = self.sum()
            assert self.take(")")
            return value
        kind, text = self.tokens.pop(0)
        if kind == "word":
            return self.word(text)
        if kind == "quantity":
            self.branches.hit("SS-64 quantity with suffix")
            return parse(text)
        if kind == "percent":
            self.branches.hit("SS-64 percentage")
            return float(text[:-1]) / 100
        if not text.isdigit():
            self.branches.hit("SS-64 decimal or exponent")
        return float(text)

    def word(self, text: str) -> Value:
        if text.lower() not in ("max", "min"):
            if text != self.variable:
                raise BadExpression("SS-64 unknown variable refused")
            self.branches.hit("SS-64 variable")
            return self.value
        self.branches.hit(f"SS-64 {text.lower()}")
        if text != text.lower():
            self.branches.hit("SS-64 upper-case function")
        assert self.take("(")
        left = self.sum()
        assert self.take(",")
        right = self.sum()
        assert self.take(")")
        if isinstance(left, Quantity) or isinstance(right, Quantity):
            if not isinstance(left, Quantity) or not isinstance(right, Quantity):
                self.branches.hit("SS-65 mixed comparison")
            one, other = _as_quantity(left), _as_quantity(right)
            if text.lower() == "max":
                return other if other.value > one.value else one
            return other if other.value < one.value else one
        return max(left, right) if text.lower() == "max" else min(left, right)
