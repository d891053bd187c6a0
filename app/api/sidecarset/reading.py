"""SidecarSets as a cluster stores them: one that is not what the schema says is read too, as one that says so.

An API server refuses most of them; what was stored under another schema, or while no webhook answered, it gives out as
it is. One such object must not keep the others from being read.
"""

from __future__ import annotations

from typing import Any

import orjson
from pydantic import ValidationError

from app.api.model import ObjectMeta
from app.api.sidecarset.types import SidecarSet


class MalformedSidecarSet(SidecarSet):
    """A SidecarSet of which only the metadata can be read: it selects nothing."""

    problem: str
    """Which field does not hold what it must."""


def read_sidecar_set(raw: bytes) -> SidecarSet:
    """The set, or a :class:`MalformedSidecarSet`. Raises ValueError for what has no readable metadata either."""
    try:
        return SidecarSet.model_validate_json(raw)
    except ValidationError as error:
        obj: Any = orjson.loads(raw)
        metadata = ObjectMeta.model_validate(obj.get("metadata") if isinstance(obj, dict) else None)
        first = error.errors(include_url=False, include_input=False)[0]
        problem = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        return MalformedSidecarSet(metadata=metadata, problem=problem)
