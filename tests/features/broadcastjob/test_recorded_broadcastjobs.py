"""Every BroadcastJob OpenKruise was asked about is judged alike: accepted or refused, the message, what is stored."""

from __future__ import annotations

from typing import Any

import pytest

from app.features.broadcastjob.kind import BROADCAST_JOB
from app.features.broadcastjob.webhooks import handlers, mutate
from app.kube.admission import Allowed
from app.pods.template_check import StandaloneTemplates
from tests.admission.recorded import cases, hold_against, names_of
from tests.admission.writing import review_of

CASES = cases("broadcastjob")
LOOKUPS = StandaloneTemplates()


@pytest.mark.behaviour("BJ-2", "BJ-3", "BJ-4")
@pytest.mark.parametrize("case", CASES, ids=names_of(CASES))
def test_a_recorded_broadcastjob_is_judged_and_stored_alike(case: dict[str, Any]) -> None:
    hold_against(BROADCAST_JOB, handlers(LOOKUPS), case)


@pytest.mark.behaviour("BJ-2")
@pytest.mark.parametrize("version", ["v1alpha1", "v1beta1"])
def test_taking_over_a_broadcastjob_that_openkruise_stored_changes_nothing_in_it(version: str) -> None:
    stored = [case[version] for case in CASES if case["ok"]]
    assert len(stored) > 30
    for obj in stored:
        assert mutate(LOOKUPS, review_of(BROADCAST_JOB, obj, obj)) == Allowed()
