"""Text from others made fit for log lines and metric labels."""

from __future__ import annotations

from typing import Final

#: What a log line quotes of any one value.
QUOTED_BYTES: Final = 256
#: What stands as it is though Python does not print it: lines, tabs, and the spaces of other scripts.
_SPACES: Final = frozenset("\n\t\u00a0\u1680\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B))))


def quoted(value: object, limit: int = QUOTED_BYTES) -> str:
    """The value as text of at most ``limit`` bytes, escaped; what is cut off is counted behind it."""
    text = value if type(value) is str else _text(value)
    if len(text) <= limit and text.isascii() and text.isprintable():
        return text
    # A character becomes at least one byte, so no more than these can matter.
    head = one_line(text[: limit + 1]).encode("utf-8")
    if len(text) <= limit and len(head) <= limit:
        return head.decode("utf-8")
    return f"{head[:limit].decode('utf-8', 'ignore')}… ({len(text)} characters)"


def one_line(text: str) -> str:
    """The text without line breaks or anything else that is not printed as it is."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)


def printable(text: str) -> str:
    """The text with its lines, tabs and spaces of every width, but nothing else that is not printed as it is: control
    characters, and those that change in which direction others are read. What is escaped is written as in JSON, where
    it means the same."""
    if all(line.isprintable() for line in text.replace("\t", "").split("\n")):
        return text
    return "".join(one if one.isprintable() or one in _SPACES else _escaped(one) for one in text)


def _escaped(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def _text(value: object) -> str:
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - an integer of 5,000 digits, or an object whose __str__ fails
        return f"a {type(value).__name__} that has no text"


OTHER: Final = "other"
#: What is kept of one value: names of objects have at most 253 characters, names of users any number.
MAX_LENGTH: Final = 253


class BoundedLabels:
    """The label values of one metric. At most ``limit`` combinations are told apart; what comes after them is counted
    under ``other`` in every place."""

    def __init__(self, limit: int = 500) -> None:
        self._limit = limit
        self._known: set[tuple[str, ...]] = set()

    def of(self, *values: str) -> tuple[str, ...]:
        """The values to count under."""
        labels = tuple(value[:MAX_LENGTH] for value in values)
        if labels in self._known:
            return labels
        if len(self._known) >= self._limit:
            return (OTHER,) * len(values)
        self._known.add(labels)
        return labels
