"""The slice of probes in containers."""

from __future__ import annotations

from typing import Final

from app.api.podprobe import NODE_POD_PROBE, POD_PROBE_MARKER
from app.slices import Slice

SLICE: Final = Slice(name="podprobe", kinds=(POD_PROBE_MARKER, NODE_POD_PROBE))
