"""Which features the managers of a run have: those that its world is about, however many there are by now.

What other kinds watch and write would change what happens to the ones that are looked at, and with each kind that is
added the seeds would show something else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from app.manager import features


@contextmanager
def listed(folders: Sequence[str]) -> Iterator[None]:
    """Inside, the list of features has only these."""
    before = [*features.FOLDERS]
    features.FOLDERS[:] = [*folders]
    features.features.cache_clear()
    try:
        yield
    finally:
        features.FOLDERS[:] = before
        features.features.cache_clear()
