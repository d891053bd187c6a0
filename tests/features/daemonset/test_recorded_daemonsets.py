"""Every DaemonSet OpenKruise was asked about is judged alike: accepted or refused, the message, and what is stored."""

from __future__ import annotations

from typing import Any

import pytest

from app.features.daemonset.kind import DAEMON_SET
from app.features.daemonset.webhooks import handlers, mutate
from app.kube.admission import Allowed
from app.pods.template_check import StandaloneTemplates
from tests.admission.recorded import cases, hold_against, names_of
from tests.admission.writing import review_of, written

CASES = cases("daemonset")
HANDLERS = handlers(StandaloneTemplates())


@pytest.mark.behaviour("DS-1", "DS-2", "DS-4", "DS-5", "DS-6", "DS-7", "DS-8", "DS-9", "DS-10", "DS-11", "DS-15")
@pytest.mark.parametrize("case", CASES, ids=names_of(CASES))
def test_a_recorded_daemonset_is_judged_and_stored_alike(case: dict[str, Any]) -> None:
    update = case.get("update")
    if update and update["message"].startswith("DaemonSet."):
        # The API server's own words.
        created = written(DAEMON_SET, HANDLERS, case["manifest"])
        assert written(DAEMON_SET, HANDLERS, {**case["manifest"], "spec": update["manifest"]}, created.obj).obj is None
        case = {**case, "update": None}
    hold_against(DAEMON_SET, HANDLERS, case)


@pytest.mark.behaviour("DS-4")
@pytest.mark.parametrize("version", ["v1alpha1", "v1beta1"])
def test_taking_over_a_daemonset_that_openkruise_stored_changes_nothing_in_it(version: str) -> None:
    stored = [case[version] for case in CASES if case["ok"]]
    assert len(stored) > 30
    for obj in stored:
        assert mutate(review_of(DAEMON_SET, obj, obj)) == Allowed()
