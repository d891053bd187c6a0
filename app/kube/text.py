"""Make text from users safe for log lines and metric labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

#: Maximum length of a quoted value in a log line.
QUOTED_BYTES: Final = 256
#: Characters kept even though Python does not consider them printable: line breaks, tabs, and spaces of other scripts.
_SPACES: Final = frozenset("\n\t\u00a0\u1680\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B))))


def quoted(value: object, limit: int = QUOTED_BYTES) -> str:
    """Return the value as escaped text of at most ``limit`` bytes. A truncated value ends with its total length."""
    text = value if type(value) is str else _text(value)
    if len(text) <= limit and text.isascii() and text.isprintable():
        return text
    # Each character takes at least one byte, so later characters cannot fit.
    head = one_line(text[: limit + 1]).encode("utf-8")
    if len(text) <= limit and len(head) <= limit:
        return head.decode("utf-8")
    return f"{head[:limit].decode('utf-8', 'ignore')}… ({len(text)} characters)"


def one_line(text: str) -> str:
    """Return the text on one line, with all non-printable characters escaped."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)


def printable(text: str) -> str:
    """Return the text with all non-printable characters escaped, except line breaks, tabs and spaces.

    The escaped characters include control characters and those that change the text direction. The escapes use JSON
    syntax, so they are valid inside a JSON string.
    """
    if all(line.isprintable() for line in text.replace("\t", "").split("\n")):
        return text
    return "".join(one if one.isprintable() or one in _SPACES else _escaped(one) for one in text)


def truncated(text: str, limit: int) -> str:
    """Return the text with at most ``limit`` characters; a truncated one ends with an ellipsis."""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def first_of(words: Sequence[str], limit: int, separator: str = ", ") -> str:
    """Return the first ``limit`` words and the number of others: ``a, b and 3 more``."""
    others = f"{separator.rstrip(', ')} and {len(words) - limit} more" if len(words) > limit else ""
    return separator.join(words[:limit]) + others


def _escaped(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def _text(value: object) -> str:
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - an integer of 5,000 digits, or an object whose __str__ fails
        return f"a {type(value).__name__} that cannot be printed"


OTHER: Final = "other"
#: Maximum length of one value. Object names are never longer; user names can have any length.
MAX_LENGTH: Final = 253


class BoundedLabels:
    """The label values of one metric. After ``limit`` distinct combinations, all others are counted as ``other``."""

    def __init__(self, limit: int = 500) -> None:
        self._limit = limit
        self._known: set[tuple[str, ...]] = set()

    def of(self, *values: str) -> tuple[str, ...]:
        labels = tuple(value[:MAX_LENGTH] for value in values)
        if labels in self._known:
            return labels
        if len(self._known) >= self._limit:
            return (OTHER,) * len(values)
        self._known.add(labels)
        return labels
