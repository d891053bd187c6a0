"""The spec of a SidecarSet as Go reads and prints it, in both versions, made from the models.

OpenKruise's webhook stores what its Go types print: without what is empty, with canonical quantities. We store the
same, so that manifests, revisions and what is compared with them look alike, but keep fields we do not know.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from app.api import names
from app.api.gocore import CONTAINER_FIELDS, LABEL_SELECTOR, optional
from app.api.gojson import GoType, list_of, pointer, struct
from app.api.gomodel import go_struct
from app.api.govolumes import VOLUME
from app.api.sidecarset.types import PatchPodMetadata, SidecarContainer, SidecarSetSpec, SidecarSetV1Alpha1Spec

#: SS-12, SS-13: the core Container inline, then OpenKruise's own fields in the model's order, which the hashes are
#: made in.
SIDECAR_CONTAINER: Final = struct(*CONTAINER_FIELDS, *go_struct(SidecarContainer, {}).fields)

#: What a revision records (SS-73). Here a secret without a name is empty; in the spec the API server fills it in.
RECORDED_FIELDS: Final[Mapping[str, GoType]] = {
    "containers": list_of(SIDECAR_CONTAINER),
    "initContainers": list_of(SIDECAR_CONTAINER),
    "volumes": list_of(VOLUME),
    "imagePullSecrets": list_of(struct(optional("name"))),
    "patchPodMetadata": list_of(go_struct(PatchPodMetadata, {})),
}

#: What the models leave schemaless.
_NAMED: Final[Mapping[str, GoType]] = {
    "selector": pointer(LABEL_SELECTOR),
    "namespaceSelector": pointer(LABEL_SELECTOR),
    "matchSelector": LABEL_SELECTOR,
    "containers": list_of(SIDECAR_CONTAINER),
    "initContainers": list_of(SIDECAR_CONTAINER),
    "volumes": list_of(VOLUME),
}

#: API version → its spec.
SPECS: Final[Mapping[str, GoType]] = {
    names.V1BETA1: go_struct(SidecarSetSpec, _NAMED),
    names.V1ALPHA1: go_struct(SidecarSetV1Alpha1Spec, _NAMED),
}
