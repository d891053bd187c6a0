"""How Pods are updated in place, as workloads that do so write it."""

from __future__ import annotations

from typing import Final

from app.api.model import ApiModel
from app.api.schema import Int32, IntOrString

RECREATE: Final = "ReCreate"
IN_PLACE_IF_POSSIBLE: Final = "InPlaceIfPossible"
IN_PLACE_ONLY: Final = "InPlaceOnly"
POD_UPDATE_POLICIES: Final = (RECREATE, IN_PLACE_IF_POSSIBLE, IN_PLACE_ONLY)
IN_PLACE_POLICIES: Final = (IN_PLACE_IF_POSSIBLE, IN_PLACE_ONLY)
ROLLING_UPDATE: Final = "RollingUpdate"
ON_DELETE: Final = "OnDelete"
UPDATE_TYPES: Final = (ROLLING_UPDATE, ON_DELETE)


class InPlaceUpdateStrategyV1Alpha1(ApiModel):
    """How Pods are updated in place."""

    grace_period_seconds: Int32 = 0
    """How long a Pod is not ready before its containers change, so that traffic can move away."""


class InPlaceUpdateStrategy(InPlaceUpdateStrategyV1Alpha1):
    """How Pods are updated in place."""

    image_pre_download_parallelism: IntOrString | None = None
    """On how many nodes at once new images are pulled ahead of the update; 1 by default."""
    image_pre_download_timeout_seconds: Int32 | None = None
    """How long one pull ahead of the update may take, in seconds; 300 by default."""
    image_pre_download_min_updated_ready_pods: Int32 | None = None
    """How many updated Pods must be ready before images are pulled ahead for the rest; 0 by default."""
