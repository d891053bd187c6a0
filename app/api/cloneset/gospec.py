"""The spec of a CloneSet as Go reads and prints it, in both versions.

OpenKruise's webhook stores what its Go types print: without what is empty, with canonical quantities. We store the
same, so that manifests, revisions and what is compared with them look alike, but keep fields we do not know.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from app.api import names
from app.api.gocore import LABEL_SELECTOR, always, optional
from app.api.gojson import BOOL, INT32, INT_OR_STRING, STRING, GoField, GoType, list_of, map_of, pointer, struct
from app.api.gopod import CLAIM, POD_TEMPLATE

_COUNT: Final = pointer(INT_OR_STRING)
_HOOK: Final = pointer(
    struct(
        optional("labelsHandler", map_of(STRING)),
        optional("finalizersHandler", list_of(STRING)),
        optional("markPodNotReady", BOOL),
    )
)
_LIFECYCLE: Final = struct(optional("preDelete", _HOOK), optional("inPlaceUpdate", _HOOK), optional("preNormal", _HOOK))
_PRIORITY: Final = struct(
    optional("orderPriority", list_of(struct(always("orderedKey")))),
    optional("weightPriority", list_of(struct(always("weight", INT32), always("matchSelector", LABEL_SELECTOR)))),
)
_ROLLING: Final[tuple[GoField, ...]] = (
    optional("partition", _COUNT),
    optional("maxUnavailable", _COUNT),
    optional("maxSurge", _COUNT),
    optional("paused", BOOL),
    optional("priorityStrategy", pointer(_PRIORITY)),
    optional("scatterStrategy", list_of(struct(always("key"), always("value")))),
)
_GRACE: Final = optional("gracePeriodSeconds", INT32)
_IN_PLACE: Final = struct(
    _GRACE,
    optional("imagePreDownloadParallelism", _COUNT),
    optional("imagePreDownloadTimeoutSeconds", pointer(INT32)),
    optional("imagePreDownloadMinUpdatedReadyPods", pointer(INT32)),
)
_SCALE: Final[tuple[GoField, ...]] = (optional("podsToDelete", list_of(STRING)), optional("maxUnavailable", _COUNT))


def _spec(scale: GoType, update: GoType) -> GoType:
    return struct(
        optional("replicas", pointer(INT32)),
        always("selector", pointer(LABEL_SELECTOR)),
        always("template", POD_TEMPLATE),
        optional("volumeClaimTemplates", list_of(CLAIM)),
        optional("scaleStrategy", scale),
        optional("updateStrategy", update),
        optional("revisionHistoryLimit", pointer(INT32)),
        optional("minReadySeconds", INT32),
        optional("lifecycle", pointer(_LIFECYCLE)),
        optional("progressDeadlineSeconds", pointer(INT32)),
    )


#: API version → its spec.
SPECS: Final[Mapping[str, GoType]] = {
    # CS-8: without enablePVCReuse the schema would fill in false, so it is always said.
    names.V1BETA1: _spec(
        struct(*_SCALE, always("enablePVCReuse", BOOL), optional("excludePreparingDelete", BOOL)),
        struct(
            optional("type"),
            optional(
                "rollingUpdate",
                pointer(
                    struct(
                        optional("podUpdatePolicy"),
                        *_ROLLING,
                        optional("inPlaceUpdateStrategy", pointer(_IN_PLACE)),
                    )
                ),
            ),
        ),
    ),
    names.V1ALPHA1: _spec(
        struct(*_SCALE, optional("disablePVCReuse", BOOL)),
        struct(optional("type"), *_ROLLING, optional("inPlaceUpdateStrategy", pointer(struct(_GRACE)))),
    ),
}
