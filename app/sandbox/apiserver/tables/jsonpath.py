"""JSONPath in printer columns, with the syntax that Kubernetes supports: fields, indexes, slices, unions, filters and
``..``.

    parse(".status.conditions[?(@.type=='Ready')].status").find(obj)      # ["True"]

Missing fields yield nothing. A path that does not fit the value (an index out of bounds) raises ``JsonPathError``.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, TypeAlias

Step: TypeAlias = Callable[[list[Any]], list[Any]]

_KEY = re.compile(r"'([^']*)'")
_SLICE = re.compile(r"(-?\d*)(:-?\d*)?(:-?\d*)?")
_COMPARISON = re.compile(r"([^!<>=]+)([!<>=]+)(.+)", re.DOTALL)
_FIELD = re.compile(r"((?:\\.|[^\s.,\[\]$@{}\\])*)")
_NUMBER = re.compile(r"[+-]?[\d.]+")
_COMPARE: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "<": operator.lt,
    ">": operator.gt,
    "==": operator.eq,
    "!=": operator.ne,
    "<=": operator.le,
    ">=": operator.ge,
}


class JsonPathError(ValueError):
    """The path is invalid, or does not fit the value."""


@dataclass(frozen=True, slots=True)
class JsonPath:
    """A parsed path."""

    steps: Sequence[Step]

    def find(self, value: Any) -> list[Any]:
        """Return all values at the path."""
        found = [value]
        for step in self.steps:
            found = step(found)
        return found


@cache
def parse(text: str) -> JsonPath:
    """Parse a path such as ``.spec.replicas``. Raises ``JsonPathError``."""
    steps: list[Step] = []
    position = 0
    while position < len(text):
        position = _parse_step(text, position, steps)
    return JsonPath(tuple(steps))


def _parse_step(text: str, at: int, steps: list[Step]) -> int:
    """Append the step that starts at ``at``. Returns the position of the next step."""
    if text.startswith("[?(", at):
        end = _filter_end(text, at + 3)
        steps.append(_filter(text[at + 3 : end]))
        return end + 2
    if text.startswith("..", at):
        steps.append(_descend)
        return at + 2 if text[at + 2 : at + 3] in ("[", "") else at + 1
    char = text[at]
    if char in " @$":
        return at + 1
    if char == "[":
        end = text.find("]", at)
        if end < 0:
            raise JsonPathError("unterminated array")
        steps.append(_array(text[at + 1 : end]))
        return end + 1
    if char in "\"'":
        end = _quote_end(text, at)
        steps.append(_constant(text[at + 1 : end].replace("\\", "")))
        return end + 1
    if char == ".":
        match = _FIELD.match(text, at + 1)
        name = match.group(1) if match else ""
        steps.append(_every if name == "*" else _field(name.replace("\\", "")))
        return at + 1 + len(name)
    return _parse_constant(text, at, steps)


def _parse_constant(text: str, at: int, steps: list[Step]) -> int:
    match = _NUMBER.match(text, at)
    if match:
        number = match.group()
        steps.append(_constant(float(number) if "." in number else int(number)))
        return match.end()
    for word, value in (("true", True), ("false", False)):
        if text.startswith(word, at):
            steps.append(_constant(value))
            return at + len(word)
    raise JsonPathError(f"unrecognized character in action: {text[at]!r}")


def _filter_end(text: str, at: int) -> int:
    quoted = ""
    for index in range(at, len(text)):
        char = text[index]
        if quoted:
            quoted = "" if char == quoted and text[index - 1] != "\\" else quoted
        elif char in "\"'":
            quoted = char
        elif text.startswith(")]", index):
            return index
    raise JsonPathError("unterminated filter")


def _quote_end(text: str, at: int) -> int:
    for index in range(at + 1, len(text)):
        if text[index] == text[at] and text[index - 1] != "\\":
            return index
    raise JsonPathError("unterminated quoted string")


# ---- steps


def _constant(value: Any) -> Step:
    return lambda values: [value for _ in values]


def _field(name: str) -> Step:
    if not name:
        return lambda values: values
    return lambda values: [value[name] for value in values if isinstance(value, Mapping) and name in value]


def _children(value: Any) -> Iterable[Any]:
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, list) else ()


def _every(values: list[Any]) -> list[Any]:
    return [child for value in values for child in _children(value)]


def _descend(values: list[Any]) -> list[Any]:
    found = []
    for value in values:
        children = list(_children(value))
        if children:
            found += [value, *_descend(children)]
    return found


def _array(text: str) -> Step:
    parts = text.split(",")
    if len(parts) > 1:
        steps = [_array(part.strip(" ")) for part in parts]
        return lambda values: [found for step in steps for found in step(values)]
    key = _KEY.fullmatch(text)
    if key:
        return _field(key.group(1).replace("\\", ""))
    match = _SLICE.fullmatch(":" if text == "*" else text)
    if match is None:
        raise JsonPathError(f"invalid array index {text}")
    first, last, step = match.groups()
    if last is None:
        return _index(int(first or 0))
    return _slice(int(first or 0), int(last[1:]) if last[1:] else None, int(step[1:]) if step and step[1:] else 1)


def _index(index: int) -> Step:
    return lambda values: [_lists(value)[_bounded(index, value)] for value in values if value is not None]


def _slice(first: int, last: int | None, step: int) -> Step:
    if step <= 0:
        raise JsonPathError("step must be > 0")
    return lambda values: [item for value in values if value is not None for item in _lists(value)[first:last:step]]


def _lists(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise JsonPathError(f"{type(value).__name__} is not array or slice")
    return value


def _bounded(index: int, value: Any) -> int:
    length = len(_lists(value))
    found = index + length if index < 0 else index
    if not 0 <= found < length:
        raise JsonPathError(f"array index out of bounds: index {found}, length {length}")
    return found


def _filter(text: str) -> Step:
    match = _COMPARISON.fullmatch(text)
    if match is None:
        wanted = parse(text)
        return lambda values: [item for value in values for item in _lists(value) if wanted.find(item)]
    left, sign, right = parse(match.group(1)), match.group(2), parse(match.group(3))
    if sign not in _COMPARE:
        raise JsonPathError(f"unrecognized filter operator {sign}")

    def passes(item: Any) -> bool:
        lefts, rights = left.find(item), right.find(item)
        if not lefts or not rights:
            return False
        if len(lefts) > 1 or len(rights) > 1:
            raise JsonPathError("can only compare one element at a time")
        if isinstance(lefts[0], str) != isinstance(rights[0], str):
            raise JsonPathError("incompatible types for comparison")
        return _COMPARE[sign](lefts[0], rights[0])

    return lambda values: [item for value in values for item in _lists(value) if passes(item)]
