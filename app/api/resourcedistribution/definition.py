"""ResourceDistribution as a kind: its names, versions and columns."""

from __future__ import annotations

from typing import Final

from app.api import names
from app.api.kind import Access, KindDefinition, PrinterColumn, Version
from app.api.resourcedistribution.conversion import (
    canonical_v1alpha1,
    canonical_v1beta1,
    to_v1alpha1,
    to_v1beta1,
)
from app.api.resourcedistribution.types import ResourceDistribution, ResourceDistributionV1Alpha1

_COLUMNS: Final = (
    PrinterColumn("TOTAL", "integer", ".status.desired", "Namespaces that are targets."),
    PrinterColumn("SUCCEED", "integer", ".status.succeeded", "Those that have the resource as it should be."),
    PrinterColumn("FAILED", "integer", ".status.failed", "Those that do not."),
)

RESOURCE_DISTRIBUTION: Final = KindDefinition(
    group=names.APPS_GROUP,
    kind="ResourceDistribution",
    plural="resourcedistributions",
    access=Access("holds the content of Secrets and writes it to other namespaces"),
    namespaced=False,
    short_names=("distributor",),
    versions=(
        Version(names.V1BETA1, ResourceDistribution, _COLUMNS, canonical=canonical_v1beta1),
        Version(
            names.V1ALPHA1,
            ResourceDistributionV1Alpha1,
            _COLUMNS,
            to_hub=to_v1beta1,
            from_hub=to_v1alpha1,
            canonical=canonical_v1alpha1,
        ),
    ),
)
