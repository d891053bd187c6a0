"""What the specs of workloads have in common, as Go reads and prints it."""

from __future__ import annotations

from typing import Final

from app.api.gocore import LABEL_SELECTOR, always, optional
from app.api.gojson import BOOL, INT32, INT_OR_STRING, STRING, list_of, map_of, pointer, struct

COUNT: Final = pointer(INT_OR_STRING)
_HOOK: Final = pointer(
    struct(
        optional("labelsHandler", map_of(STRING)),
        optional("finalizersHandler", list_of(STRING)),
        optional("markPodNotReady", BOOL),
    )
)
LIFECYCLE: Final = struct(optional("preDelete", _HOOK), optional("inPlaceUpdate", _HOOK), optional("preNormal", _HOOK))
PRIORITY: Final = struct(
    optional("orderPriority", list_of(struct(always("orderedKey")))),
    optional("weightPriority", list_of(struct(always("weight", INT32), always("matchSelector", LABEL_SELECTOR)))),
)
GRACE: Final = optional("gracePeriodSeconds", INT32)
IN_PLACE: Final = struct(
    GRACE,
    optional("imagePreDownloadParallelism", COUNT),
    optional("imagePreDownloadTimeoutSeconds", pointer(INT32)),
    optional("imagePreDownloadMinUpdatedReadyPods", pointer(INT32)),
)
