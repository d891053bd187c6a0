"""Every WorkloadSpread OpenKruise was asked about is judged and stored alike."""

from __future__ import annotations

from typing import Any

import pytest

from app.features.workloadspread.kind import WORKLOAD_SPREAD
from app.features.workloadspread.webhooks import StandaloneLookups, handlers
from app.kube.store import Store
from tests.admission.recorded import cases, hold_against, names_of

CASES = cases("workloadspread")


@pytest.mark.behaviour("WS-1", "WS-3", "WS-4", "WS-6", "WS-7", "WS-8", "WS-9", "WS-12", "WS-14", "WS-30")
@pytest.mark.parametrize("case", CASES, ids=names_of(CASES))
def test_a_recorded_spread_is_judged_and_stored_alike(case: dict[str, Any]) -> None:
    lookups = StandaloneLookups(Store(), Store(), "kruise-system")
    hold_against(WORKLOAD_SPREAD, handlers(lookups, enabled=True), case)
