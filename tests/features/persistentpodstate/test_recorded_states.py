"""Every PersistentPodState OpenKruise was asked about is judged and stored alike, but for weights no Pod may have."""

from __future__ import annotations

from typing import Any

import pytest

from app.features.persistentpodstate.kind import PERSISTENT_POD_STATE
from app.features.persistentpodstate.webhooks import StandaloneLookups, handlers
from app.kube.store import Store
from tests.admission.recorded import cases, hold_against, names_of
from tests.admission.writing import written

Json = dict[str, Any]
CASES = cases("persistentpodstate")
HANDLERS = handlers(StandaloneLookups(Store(), Store(), "kruise-system"))


def impossible_weight(spec: Json) -> bool:
    return any(not 1 <= term["weight"] <= 100 for term in spec.get("preferredPersistentTopology") or ())


def mended(value: Any) -> Any:
    """With weights that a Pod may have."""
    if isinstance(value, list):
        return [mended(item) for item in value]
    if isinstance(value, dict):
        return {key: 10 if key == "weight" else mended(item) for key, item in value.items()}
    return value


@pytest.mark.behaviour("PPS-1", "PPS-2", "PPS-3", "PPS-4", "PPS-5", "PPS-6")
@pytest.mark.parametrize("case", CASES, ids=names_of(CASES))
def test_a_recorded_state_is_judged_and_stored_alike(case: Json) -> None:
    hold_against(PERSISTENT_POD_STATE, HANDLERS, mended(case))


IMPOSSIBLE = [case for case in CASES if case["ok"] and impossible_weight(case["manifest"]["spec"])]


@pytest.mark.behaviour("PPS-40")
@pytest.mark.parametrize("case", IMPOSSIBLE, ids=names_of(IMPOSSIBLE))
def test_a_weight_no_pod_may_have_is_refused(case: Json) -> None:
    refused = written(PERSISTENT_POD_STATE, HANDLERS, case["manifest"])
    assert refused.obj is None
    assert "spec.preferredPersistentTopology[0].weight: Invalid value" in refused.message
    assert "must be in the range 1-100" in refused.message
