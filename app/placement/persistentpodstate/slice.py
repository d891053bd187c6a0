"""The slice of PersistentPodState."""

from __future__ import annotations

from typing import Final

from app.api.persistentpodstate import PERSISTENT_POD_STATE
from app.slices import Slice

SLICE: Final = Slice(name="persistentpodstate", kinds=(PERSISTENT_POD_STATE,))
