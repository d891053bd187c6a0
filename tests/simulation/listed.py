"""Limits the managers of a run to the features of its subject.

The watches and writes of other kinds would change the history of a seed, and so would every kind that is added.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from app.manager import features


@contextmanager
def listed(folders: Sequence[str]) -> Iterator[None]:
    """List only these features inside the context."""
    before = [*features.FOLDERS]
    features.FOLDERS[:] = [*folders]
    features.features.cache_clear()
    try:
        yield
    finally:
        features.FOLDERS[:] = before
        features.features.cache_clear()
