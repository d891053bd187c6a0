"""The spec of an ImageListPullJob as Go reads and prints it."""

from __future__ import annotations

from typing import Final

from app.api.gocore import LABEL_SELECTOR, optional
from app.api.gojson import STRING, GoType, list_of, pointer, struct
from app.api.gomodel import go_struct
from app.api.imagepull.types import ImageListPullJobSpec

_NODES: Final = struct(optional("names", list_of(STRING)), *LABEL_SELECTOR.fields)
LIST_SPEC: Final[GoType] = go_struct(
    ImageListPullJobSpec, {"selector": pointer(_NODES), "podSelector": pointer(LABEL_SELECTOR)}
)
