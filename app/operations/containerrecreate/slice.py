"""The slice of ContainerRecreateRequest."""

from __future__ import annotations

from typing import Final

from app.api.containerrecreate import CONTAINER_RECREATE_REQUEST
from app.slices import Slice

SLICE: Final = Slice(name="containerrecreate", kinds=(CONTAINER_RECREATE_REQUEST,))
