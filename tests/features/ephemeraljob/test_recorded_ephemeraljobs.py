"""Every EphemeralJob OpenKruise was asked about is judged alike: accepted or refused, the message, what is stored."""

from __future__ import annotations

from typing import Any

import pytest

from app.features.ephemeraljob.kind import EPHEMERAL_JOB
from app.features.ephemeraljob.webhooks import handlers
from tests.admission.recorded import cases, hold_against, names_of
from tests.admission.writing import written

CASES = cases("ephemeraljob")


@pytest.mark.behaviour("EJ-1", "EJ-2")
@pytest.mark.parametrize("case", CASES, ids=names_of(CASES))
def test_a_recorded_ephemeraljob_is_judged_and_stored_alike(case: dict[str, Any]) -> None:
    update = case.get("update")
    if update and update["message"].startswith("EphemeralJob."):
        # The API server's own words.
        created = written(EPHEMERAL_JOB, handlers(), case["manifest"])
        changed = {**case["manifest"], "spec": update["manifest"]}
        assert written(EPHEMERAL_JOB, handlers(), changed, created.obj).obj is None
        case = {**case, "update": None}
    if case["message"].startswith("EphemeralJob."):
        assert written(EPHEMERAL_JOB, handlers(), case["manifest"]).obj is None
        return
    # How it was read later is what OpenKruise's controller had made of it when it added its finalizer.
    hold_against(EPHEMERAL_JOB, handlers(), {key: value for key, value in case.items() if key != "v1alpha1"})
