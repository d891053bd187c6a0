"""Every AdvancedCronJob OpenKruise was asked about is judged alike: accepted or refused, the message, what is stored.

But for Jobs whose Pods are always restarted: OpenKruise admits them, though no API server takes such a Job.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from app.features.advancedcronjob.kind import ADVANCED_CRON_JOB
from app.features.advancedcronjob.webhooks import handlers, mutate
from app.kube.admission import Allowed
from app.pods.template_check import StandaloneTemplates
from tests.admission.recorded import cases, hold_against, names_of
from tests.admission.writing import review_of, written
from tests.features.cloneset.recorded import comparable

CASES = cases("advancedcronjob")
LOOKUPS = StandaloneTemplates()
HANDLERS = handlers(LOOKUPS, lambda: datetime(2026, 11, 22, tzinfo=UTC))


def always_restarts(spec: dict[str, Any]) -> bool:
    pod = spec["template"].get("jobTemplate", {}).get("spec", {}).get("template", {}).get("spec", {})
    return pod.get("restartPolicy") == "Always"


@pytest.mark.behaviour("ACJ-1", "ACJ-2", "ACJ-3", "ACJ-4", "ACJ-5", "ACJ-25", "U-55")
@pytest.mark.parametrize("case", CASES, ids=names_of(CASES))
def test_a_recorded_advancedcronjob_is_judged_and_stored_alike(case: dict[str, Any]) -> None:
    if always_restarts(case["manifest"]["spec"]):
        refused = written(ADVANCED_CRON_JOB, HANDLERS, case["manifest"])
        assert refused.obj is None
        assert "pod restartPolicy can only be Never or OnFailure" in refused.message
        return
    update = case.get("update")
    created = written(ADVANCED_CRON_JOB, HANDLERS, case["manifest"])
    if update and always_restarts(update["manifest"]):
        changed = {**case["manifest"], "spec": update["manifest"]}
        refused = written(ADVANCED_CRON_JOB, HANDLERS, changed, created.obj)
        assert refused.obj is None
        assert "pod restartPolicy can only be Never or OnFailure" in refused.message
        update = None
    if update and not update["ok"] and update["message"].startswith("AdvancedCronJob."):
        # The API server's own words.
        changed = {**case["manifest"], "spec": update["manifest"]}
        assert written(ADVANCED_CRON_JOB, HANDLERS, changed, created.obj).obj is None
        update = None
    # The recorder left times out of templates only where workloads have them.
    hold_against(ADVANCED_CRON_JOB, HANDLERS, comparable({**case, "update": update}))


@pytest.mark.behaviour("ACJ-2")
@pytest.mark.parametrize("version", ["v1alpha1", "v1beta1"])
def test_taking_over_an_advancedcronjob_that_openkruise_stored_changes_nothing_in_it(version: str) -> None:
    stored = [case[version] for case in CASES if case["ok"] and version in case]
    assert len(stored) > 30
    for obj in stored:
        assert mutate(LOOKUPS, review_of(ADVANCED_CRON_JOB, obj, obj)) == Allowed()
