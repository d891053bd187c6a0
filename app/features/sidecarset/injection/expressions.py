"""The expressions of a resourcesPolicy, such as ``max(cpu*50%, 50m)``: parsed once, evaluated for every Pod.

Grammar [SS-64]: ``+ - * /``, unary minus, parentheses, ``max(a, b)`` and ``min(a, b)`` (case-insensitive), numbers,
percentages, quantities with a suffix, and one variable named like the resource. A value is a plain number (floating
point) or a quantity [SS-65]. An expression compiles to a short program for a stack machine, so that no input can make
evaluation recurse.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, NoReturn, TypeAlias

from app.kube.fielderrors import quote
from app.kube.quantities import Quantity, parse

MAX_LENGTH = 512
MAX_DEPTH = 32

#: Exclusive upper limit of quantities, in thousandths.
_MAX_MILLI = 2**63 * 1000
_SUFFIXES = ("m", "k", "M", "G", "T", "P", "Ki", "Mi", "Gi", "Ti", "Pi")
_FUNCTIONS = ("max", "min")

Value: TypeAlias = float | Quantity


class ExpressionError(ValueError):
    """An expression that cannot be parsed, or has no usable value for its input."""


class NegativeResultError(ExpressionError):
    """An expression with a negative value, which is not a valid amount of a resource."""


class _Operation(Enum):
    VARIABLE = "variable"
    NEGATE = "unary -"
    ADD = "+"
    SUBTRACT = "-"
    MULTIPLY = "*"
    DIVIDE = "/"
    MAX = "max"
    MIN = "min"


_Instruction: TypeAlias = Value | _Operation


@dataclass(frozen=True, slots=True)
class Expression:
    """A parsed expression."""

    text: str
    program: tuple[_Instruction, ...]

    def evaluate(self, variable: Value) -> Quantity:
        """Return the result for a value of the variable, as a non-negative quantity. Raises ExpressionError."""
        try:
            result = _as_quantity(_run(self.program, variable))
        except ExpressionError as error:
            raise ExpressionError(f"expression {quote(self.text)}: {error}") from None
        if result.sign < 0:
            # Intermediate results may be negative, but the final result must not. [SS-65]
            raise NegativeResultError(f"expression {quote(self.text)} gives {result}, which is negative")
        return result


def compile_expression(text: str, variable: str) -> Expression:
    """Parse the expression ``text`` with its one variable. Raises :class:`ExpressionError`."""
    if len(text) > MAX_LENGTH:
        raise ExpressionError(f"expression has {len(text)} characters, more than the {MAX_LENGTH} allowed")
    return Expression(text, _Parser(text, variable).program())


# --- evaluating ------------------------------------------------------------------------------------------------------


def _run(program: tuple[_Instruction, ...], variable: Value) -> Value:
    stack: list[Value] = []
    for instruction in program:
        if not isinstance(instruction, _Operation):
            stack.append(instruction)
        elif instruction is _Operation.VARIABLE:
            stack.append(variable)
        elif instruction is _Operation.NEGATE:
            stack.append(-stack.pop())
        else:
            right = stack.pop()
            stack.append(_BINARY[instruction](stack.pop(), right))
    return stack.pop()


def _as_quantity(value: Value) -> Quantity:
    """Convert a plain number to whole thousandths, truncating the rest. [SS-65, SS-66]"""
    return value if isinstance(value, Quantity) else Quantity.of_milli(_truncated(value * 1000))


def _truncated(milli: float) -> int:
    if not math.isfinite(milli) or abs(milli) >= _MAX_MILLI:
        raise ExpressionError("a value is out of range")
    return int(milli)


def _milli(quantity: Quantity) -> float:
    milli = quantity.milli_value()
    if abs(milli) >= _MAX_MILLI:
        raise ExpressionError("a value is out of range")
    return float(milli)


def _exact(operation: Callable[[Any, Any], Any]) -> Callable[[Value, Value], Value]:
    """Make the operation convert both operands to quantities if either is one."""

    def apply(left: Value, right: Value) -> Value:
        if isinstance(left, Quantity) or isinstance(right, Quantity):
            left, right = _as_quantity(left), _as_quantity(right)
        result: Value = operation(left, right)
        return result

    return apply


def _multiply(left: Value, right: Value) -> Value:
    if not isinstance(left, Quantity):
        left, right = right, left
    if not isinstance(left, Quantity):
        return left * right  # type: ignore[operator]  # neither is a quantity: checked above
    if isinstance(right, Quantity):
        raise ExpressionError("a quantity cannot be multiplied by a quantity")
    return Quantity.of_milli(_truncated(_milli(left) * right), left.format)


def _divide(left: Value, right: Value) -> Value:
    if isinstance(right, Quantity):
        raise ExpressionError("nothing can be divided by a quantity")
    if right == 0:
        raise ExpressionError("division by zero")
    if isinstance(left, Quantity):
        return Quantity.of_milli(_truncated(_milli(left) / right), left.format)
    return left / right


_BINARY: Mapping[_Operation, Callable[[Value, Value], Value]] = {
    _Operation.ADD: _exact(operator.add),
    _Operation.SUBTRACT: _exact(operator.sub),
    _Operation.MULTIPLY: _multiply,
    _Operation.DIVIDE: _divide,
    _Operation.MAX: _exact(max),
    _Operation.MIN: _exact(min),
}


# --- parsing ---------------------------------------------------------------------------------------------------------

_SPACE = re.compile(r"[ \t\r\n]*")
_TOKEN = re.compile(
    r"(?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)(?P<suffix>[%\w.]*)|(?P<word>[A-Za-z_]\w*)|[-+*/(),]",
    re.ASCII,
)
_ADDITIVE = {"+": _Operation.ADD, "-": _Operation.SUBTRACT}
_MULTIPLICATIVE = {"*": _Operation.MULTIPLY, "/": _Operation.DIVIDE}


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    column: int
    value: Value | None = None
    word: bool = False

    @property
    def shown(self) -> str:
        return f"found {quote(self.text)}" if self.text else "found the end"


class _Parser:
    """Recursive descent parser that emits the program in postfix order."""

    def __init__(self, text: str, variable: str) -> None:
        self._text = text
        self._variable = variable
        self._position = 0
        self._depth = 0
        self._out: list[_Instruction] = []
        self._next = self._token()

    def program(self) -> tuple[_Instruction, ...]:
        self._sum()
        if self._next.text:
            self._fail("an operator or the end")
        return tuple(self._out)

    def _token(self) -> _Token:
        start = _SPACE.match(self._text, self._position).end()  # type: ignore[union-attr]  # matches anything
        match = _TOKEN.match(self._text, start)
        if match is None:
            if start < len(self._text):
                raise ExpressionError(f"column {start + 1}: unexpected character {quote(self._text[start])}")
            return _Token("", start + 1)
        self._position = match.end()
        number, suffix = match["number"], match["suffix"]
        value = None if number is None else _literal(number, suffix, start + 1)
        return _Token(match[0], start + 1, value, match["word"] is not None)

    def _take(self) -> _Token:
        token, self._next = self._next, self._token()
        return token

    def _fail(self, wanted: str) -> NoReturn:
        raise ExpressionError(f"column {self._next.column}: expected {wanted}, {self._next.shown}")

    def _expect(self, symbol: str) -> None:
        if self._next.text != symbol:
            self._fail(quote(symbol))
        self._take()

    def _sum(self) -> None:
        # All nesting passes through this method, so it limits the depth.
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise ExpressionError(f"column {self._next.column}: nested deeper than {MAX_DEPTH} levels")
        self._product()
        while operation := _ADDITIVE.get(self._next.text):
            self._take()
            self._product()
            self._out.append(operation)
        self._depth -= 1

    def _product(self) -> None:
        self._signed()
        while operation := _MULTIPLICATIVE.get(self._next.text):
            self._take()
            self._signed()
            self._out.append(operation)

    def _signed(self) -> None:
        minus = 0
        while self._next.text == "-":
            self._take()
            minus += 1
        self._operand()
        self._out.extend([_Operation.NEGATE] * (minus % 2))

    def _operand(self) -> None:
        token = self._next
        if token.value is not None:
            self._take()
            self._out.append(token.value)
        elif token.word:
            self._take()
            self._word(token)
        elif token.text == "(":
            self._take()
            self._sum()
            self._expect(")")
        else:
            self._fail(f"a number, a quantity, {self._variable}, max, min or '('")

    def _word(self, token: _Token) -> None:
        name = token.text.lower()
        if name in _FUNCTIONS:
            self._expect("(")
            self._sum()
            self._expect(",")
            self._sum()
            self._expect(")")
            self._out.append(_Operation(name))
        elif token.text == self._variable:
            self._out.append(_Operation.VARIABLE)
        else:
            known = f"the variable is {self._variable}, the functions are max and min"
            raise ExpressionError(f"column {token.column}: unknown name {quote(token.text)}; {known}")


def _literal(number: str, suffix: str, column: int) -> Value:
    if suffix in _SUFFIXES and number.lower().find("e") < 0:
        return parse(number + suffix)
    if suffix not in ("", "%"):
        known = ", ".join(("%", *_SUFFIXES))
        raise ExpressionError(f"column {column}: unknown suffix in {quote(number + suffix)}; known are {known}")
    value = float(number)
    if not math.isfinite(value):
        raise ExpressionError(f"column {column}: {number} is out of range")
    return value / 100 if suffix else value
