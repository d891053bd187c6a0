"""A Pod to create. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class NewPod:
    """A Pod to create. ``body`` makes its JSON form at the moment it is sent; ``claims``: those to create before it;
    ``managed_fields``: whether the API server is to keep account of who writes which field."""

    name: str
    body: Callable[[datetime], Mapping[str, Any]]
    claims: Sequence[Mapping[str, Any]] = ()
    managed_fields: bool = True
