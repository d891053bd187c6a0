"""The differences between two answers, as text."""

from collections.abc import Iterator
from typing import Any


def differences(expected: Any, found: Any, path: str = "") -> list[str]:
    """Return one line per value that differs, with its path."""
    return list(_differences(expected, found, path))


def _differences(expected: Any, found: Any, path: str) -> Iterator[str]:
    if isinstance(expected, dict) and isinstance(found, dict):
        for key in sorted({*expected, *found}, key=str):
            at = f"{path}.{key}" if path else str(key)
            if key not in found:
                yield f"{at}: missing, expected {_shown(expected[key])}"
            elif key not in expected:
                yield f"{at}: not expected, found {_shown(found[key])}"
            else:
                yield from _differences(expected[key], found[key], at)
    elif isinstance(expected, list) and isinstance(found, list):
        for index in range(max(len(expected), len(found))):
            at = f"{path}[{index}]"
            if index >= len(found):
                yield f"{at}: missing, expected {_shown(expected[index])}"
            elif index >= len(expected):
                yield f"{at}: not expected, found {_shown(found[index])}"
            else:
                yield from _differences(expected[index], found[index], at)
    elif type(expected) is not type(found) or expected != found:
        yield f"{path}: expected {_shown(expected)}, found {_shown(found)}"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 400 else f"{text[:400]}…"
