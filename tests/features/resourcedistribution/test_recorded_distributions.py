"""Every ResourceDistribution OpenKruise was asked about is judged and stored alike."""

from __future__ import annotations

from typing import Any

import pytest

from app.features.resourcedistribution.kind import RESOURCE_DISTRIBUTION
from app.features.resourcedistribution.webhooks import StandaloneLookups, handlers
from tests.admission.recorded import cases, hold_against, names_of

CASES = cases("resourcedistribution")


@pytest.mark.behaviour("RD-1", "RD-12", "RD-13", "RD-14", "RD-16")
@pytest.mark.parametrize("case", CASES, ids=names_of(CASES))
def test_a_recorded_distribution_is_judged_and_stored_alike(case: dict[str, Any]) -> None:
    hold_against(RESOURCE_DISTRIBUTION, handlers(StandaloneLookups(), enabled=True), case)
