"""Label values that users choose: the first of them as they are, the rest as one, so that metrics stay small."""

from __future__ import annotations

from typing import Final

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
