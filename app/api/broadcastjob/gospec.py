"""The spec of a BroadcastJob as Go reads and prints it, in both versions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from app.api import names
from app.api.broadcastjob.types import BroadcastJobSpec
from app.api.gojson import GoType
from app.api.gomodel import go_struct
from app.api.gopod import POD_TEMPLATE

SPEC: Final[GoType] = go_struct(BroadcastJobSpec, {"template": POD_TEMPLATE})
#: API version → its spec.
SPECS: Final[Mapping[str, GoType]] = {names.V1BETA1: SPEC, names.V1ALPHA1: SPEC}
