"""Results that are remembered by texts that users write.

What repeats in a cluster (images, names, hashes of them) is worth remembering; but who may write an object chooses the
text, and a cache of four thousand results of a megabyte each would be the end of the process. Longer texts are computed
each time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, Final, TypeVar

#: Far more than any honest name, image or path has.
LONGEST: Final = 1024
F = TypeVar("F", bound=Callable[..., Any])


def remembered(maxsize: int, longest: int = LONGEST) -> Callable[[F], F]:
    """As ``lru_cache``, for functions of texts: only for those that are no longer than ``longest`` all together."""

    def decorate(function: F) -> F:
        cached = lru_cache(maxsize)(function)

        @wraps(function)
        def call(*texts: str) -> Any:
            if sum(map(len, texts)) > longest:
                return function(*texts)
            return cached(*texts)

        call.cache_info = cached.cache_info  # type: ignore[attr-defined]
        return call  # type: ignore[return-value]

    return decorate
