"""Limits the managers of a run to the features of its subject.

Watches and writes of other kinds, and every kind added later, would change the history of a seed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from app.manager import features


@contextmanager
def listed(folders: Sequence[str]) -> Iterator[None]:
    """Inside the context, list only these features."""
    before = [*features.FOLDERS]
    features.FOLDERS[:] = [*folders]
    features.features.cache_clear()
    try:
        yield
    finally:
        features.FOLDERS[:] = before
        features.features.cache_clear()
