"""The spec of an Advanced StatefulSet as Go reads and prints it, in both versions.

OpenKruise's webhook stores what its Go types print; we store the same, but keep fields we do not know.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from app.api import names
from app.api.gocore import LABEL_SELECTOR, always, optional
from app.api.gojson import BOOL, INT32, INT_OR_STRING, GoField, GoType, list_of, pointer, struct
from app.api.gopod import CLAIM, POD_TEMPLATE
from app.api.goworkload import COUNT, IN_PLACE, LIFECYCLE, PRIORITY

_ROLLING: Final = struct(
    optional("partition", pointer(INT32)),
    optional("maxUnavailable", COUNT),
    optional("podUpdatePolicy"),
    optional("paused", BOOL),
    optional("unorderedUpdate", pointer(struct(optional("priorityStrategy", pointer(PRIORITY))))),
    optional("inPlaceUpdateStrategy", pointer(IN_PLACE)),
    optional("minReadySeconds", pointer(INT32)),
)
_COMMON: Final[tuple[GoField, ...]] = (
    optional("replicas", pointer(INT32)),
    always("selector", pointer(LABEL_SELECTOR)),
    always("template", POD_TEMPLATE),
    optional("volumeClaimTemplates", list_of(CLAIM)),
    optional("serviceName"),
    optional("podManagementPolicy"),
    optional("updateStrategy", struct(optional("type"), optional("rollingUpdate", pointer(_ROLLING)))),
    optional("revisionHistoryLimit", pointer(INT32)),
)
#: API version → its spec.
SPECS: Final[Mapping[str, GoType]] = {
    names.V1BETA1: struct(
        *_COMMON,
        optional("volumeClaimUpdateStrategy", struct(optional("type"))),
        optional("reserveOrdinals", list_of(INT_OR_STRING)),
        optional("lifecycle", pointer(LIFECYCLE)),
        optional("scaleStrategy", pointer(struct(optional("maxUnavailable", COUNT)))),
        optional(
            "persistentVolumeClaimRetentionPolicy", pointer(struct(optional("whenDeleted"), optional("whenScaled")))
        ),
        optional("ordinals", pointer(struct(always("start", INT32)))),
    ),
    names.V1ALPHA1: struct(*_COMMON),
}
