"""The spec of a SidecarSet as Go reads and prints it, in both versions.

OpenKruise's webhook stores what its Go types print: without what is empty, with canonical quantities. We store the
same, so that manifests, revisions and what is compared with them look alike, but keep fields we do not know.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from app.api import names
from app.api.gocore import LABEL_SELECTOR, always, optional
from app.api.gojson import BOOL, INT32, INT_OR_STRING, STRING, GoField, GoType, list_of, map_of, pointer, struct
from app.api.govolumes import VOLUME
from app.sidecars.sidecarset.hashing import SIDECAR_CONTAINER

_SELECTOR: Final = pointer(LABEL_SELECTOR)
_PRIORITY: Final = struct(
    optional("orderPriority", list_of(struct(always("orderedKey")))),
    optional("weightPriority", list_of(struct(always("weight", INT32), always("matchSelector", LABEL_SELECTOR)))),
)
_UPDATE_STRATEGY: Final = struct(
    optional("type"),
    optional("paused", BOOL),
    optional("selector", _SELECTOR),
    optional("partition", pointer(INT_OR_STRING)),
    optional("maxUnavailable", pointer(INT_OR_STRING)),
    optional("priorityStrategy", pointer(_PRIORITY)),
    optional("scatterStrategy", list_of(struct(always("key"), always("value")))),
)
_INJECTION_STRATEGY: Final = struct(
    optional("paused", BOOL),
    optional(
        "revision",
        pointer(
            struct(
                optional("customVersion", pointer(STRING)),
                optional("revisionName", pointer(STRING)),
                optional("policy"),
            )
        ),
    ),
)
#: What a revision records (SS-73).
RECORDED_FIELDS: Final[Mapping[str, GoType]] = {
    "containers": list_of(SIDECAR_CONTAINER),
    "initContainers": list_of(SIDECAR_CONTAINER),
    "volumes": list_of(VOLUME),
    "imagePullSecrets": list_of(struct(optional("name"))),
    "patchPodMetadata": list_of(struct(optional("annotations", map_of(STRING)), optional("patchPolicy"))),
}


def _spec(own: str) -> GoType:
    # A secret's name has a default in the schema: left out, the API server would put it back.
    secrets = list_of(struct(always("name")))
    return struct(
        optional("selector", _SELECTOR),
        optional("namespaceSelector", _SELECTOR),
        *(GoField(name, go_type) for name, go_type in {**RECORDED_FIELDS, "imagePullSecrets": secrets}.items()),
        optional("updateStrategy", _UPDATE_STRATEGY),
        optional("injectionStrategy", _INJECTION_STRATEGY),
        optional("revisionHistoryLimit", pointer(INT32)),
        optional(own),
    )


#: API version → its spec.
SPECS: Final[Mapping[str, GoType]] = {names.V1BETA1: _spec("customVersion"), names.V1ALPHA1: _spec("namespace")}
