"""A Pod to create. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

#: Pods that one reconcile creates at most: whoever asks for millions gets no more memory and no more of a worker's time
#: than others, and the next reconcile goes on.
MAX_CREATIONS: Final = 500


@dataclass(frozen=True, slots=True)
class NewPod:
    """A Pod to create. ``body`` makes its JSON form at the moment it is sent; ``claims``: those to create before it;
    ``managed_fields``: whether the API server is to keep account of who writes which field."""

    name: str
    body: Callable[[datetime], Mapping[str, Any]]
    claims: Sequence[Mapping[str, Any]] = ()
    managed_fields: bool = True
