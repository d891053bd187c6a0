"""The spec of a CloneSet as Go reads and prints it, in both versions, made from the models.

OpenKruise's webhook stores what its Go types print: without what is empty, with canonical quantities. We store the
same, so that manifests, revisions and what is compared with them look alike, but keep fields we do not know.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from app.api import names
from app.api.cloneset.types import CloneSetSpec, CloneSetV1Alpha1Spec
from app.api.gocore import LABEL_SELECTOR
from app.api.gojson import GoType, list_of, pointer
from app.api.gomodel import go_struct
from app.api.gopod import CLAIM, POD_TEMPLATE

#: What the models leave schemaless.
_NAMED: Final[Mapping[str, GoType]] = {
    "selector": pointer(LABEL_SELECTOR),
    "matchSelector": LABEL_SELECTOR,
    "template": POD_TEMPLATE,
    "volumeClaimTemplates": list_of(CLAIM),
}

#: API version → its spec.
SPECS: Final[Mapping[str, GoType]] = {
    # CS-8: without enablePVCReuse the schema would fill in false, so it is always said.
    names.V1BETA1: go_struct(CloneSetSpec, _NAMED),
    names.V1ALPHA1: go_struct(CloneSetV1Alpha1Spec, _NAMED),
}
