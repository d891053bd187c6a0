"""The spec of an Advanced StatefulSet as Go reads and prints it, in both versions.

OpenKruise's webhook stores what its Go types print; we store the same, but keep fields we do not know.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from app.api import names
from app.api.gocore import LABEL_SELECTOR
from app.api.gojson import GoType, list_of, pointer
from app.api.gomodel import go_struct
from app.api.gopod import CLAIM, POD_TEMPLATE
from app.api.statefulset.types import StatefulSetSpec, StatefulSetV1Alpha1Spec

#: What the models leave schemaless.
_NAMED: Final[Mapping[str, GoType]] = {
    "selector": pointer(LABEL_SELECTOR),
    "matchSelector": LABEL_SELECTOR,
    "template": POD_TEMPLATE,
    "volumeClaimTemplates": list_of(CLAIM),
}
#: API version → its spec.
SPECS: Final[Mapping[str, GoType]] = {
    names.V1BETA1: go_struct(StatefulSetSpec, _NAMED),
    names.V1ALPHA1: go_struct(StatefulSetV1Alpha1Spec, _NAMED),
}
