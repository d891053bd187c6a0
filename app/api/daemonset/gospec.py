"""The spec of a DaemonSet as Go reads and prints it, in both versions.

OpenKruise's webhook stores what its Go types print; we store the same, but keep fields we do not know.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from app.api import names
from app.api.gocore import LABEL_SELECTOR, always, optional
from app.api.gojson import BOOL, INT32, GoField, GoType, pointer, struct
from app.api.gopod import POD_TEMPLATE
from app.api.goworkload import COUNT, LIFECYCLE

_ROLLING: Final = struct(
    optional("rollingUpdateType"),
    optional("maxUnavailable", COUNT),
    optional("maxSurge", COUNT),
    optional("selector", pointer(LABEL_SELECTOR)),
    optional("partition", COUNT),
    optional("paused", pointer(BOOL)),
)
_COMMON: Final[tuple[GoField, ...]] = (
    always("selector", pointer(LABEL_SELECTOR)),
    always("template", POD_TEMPLATE),
    optional("updateStrategy", struct(optional("type"), optional("rollingUpdate", pointer(_ROLLING)))),
    optional("minReadySeconds", INT32),
    optional("burstReplicas", COUNT),
    optional("revisionHistoryLimit", pointer(INT32)),
    optional("lifecycle", pointer(LIFECYCLE)),
)
#: API version → its spec.
SPECS: Final[Mapping[str, GoType]] = {
    names.V1BETA1: struct(*_COMMON, optional("scaleStrategy", pointer(struct(optional("partitionedScaling", BOOL))))),
    names.V1ALPHA1: struct(*_COMMON),
}
