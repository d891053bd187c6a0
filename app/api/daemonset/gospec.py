"""The spec of a DaemonSet as Go reads and prints it, in both versions.

OpenKruise's webhook stores what its Go types print; we store the same, but keep fields we do not know.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from app.api import names
from app.api.daemonset.types import DaemonSetSpec, DaemonSetV1Alpha1Spec
from app.api.gocore import LABEL_SELECTOR
from app.api.gojson import GoType, pointer
from app.api.gomodel import go_struct
from app.api.gopod import POD_TEMPLATE

#: What the models leave schemaless.
_NAMED: Final[Mapping[str, GoType]] = {"selector": pointer(LABEL_SELECTOR), "template": POD_TEMPLATE}
#: API version → its spec.
SPECS: Final[Mapping[str, GoType]] = {
    names.V1BETA1: go_struct(DaemonSetSpec, _NAMED),
    names.V1ALPHA1: go_struct(DaemonSetV1Alpha1Spec, _NAMED),
}
