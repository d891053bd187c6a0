"""The spec of an AdvancedCronJob as Go reads and prints it, in both versions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from app.api import names
from app.api.advancedcronjob.types import (
    BROADCAST,
    IMAGES,
    JOB,
    AdvancedCronJobSpec,
    AdvancedCronJobV1Alpha1Spec,
    TemplateMetadata,
)
from app.api.broadcastjob.gospec import SPEC as BROADCAST_JOB_SPEC
from app.api.gocore import always, optional
from app.api.gojson import GoType, pointer, struct
from app.api.gomodel import go_struct
from app.api.gopod import METADATA, POD_TEMPLATE
from app.api.imagepull.gospec import LIST_SPEC

_METADATA: Final = optional("metadata", go_struct(TemplateMetadata, {}))
#: What is not named here of a Job stays as it came.
_JOB: Final = struct(optional("metadata", METADATA), optional("spec", struct(always("template", POD_TEMPLATE))))
_OLDER: Final = (
    optional(JOB, pointer(_JOB)),
    optional(BROADCAST, pointer(struct(_METADATA, optional("spec", BROADCAST_JOB_SPEC)))),
)
_NEWER: Final = (*_OLDER, optional(IMAGES, pointer(struct(_METADATA, optional("spec", LIST_SPEC)))))
#: API version → its spec.
SPECS: Final[Mapping[str, GoType]] = {
    names.V1BETA1: go_struct(AdvancedCronJobSpec, {"template": struct(*_NEWER)}),
    names.V1ALPHA1: go_struct(AdvancedCronJobV1Alpha1Spec, {"template": struct(*_OLDER)}),
}
