"""Every UnitedDeployment OpenKruise was asked about is judged and stored alike."""

from __future__ import annotations

from typing import Any

import pytest

from app.features.uniteddeployment.kind import UNITED_DEPLOYMENT
from app.features.uniteddeployment.webhooks import handlers
from app.pods.template_check import StandaloneTemplates
from tests.admission.recorded import cases, hold_against, names_of
from tests.admission.writing import written

CASES = cases("uniteddeployment")
HANDLERS = handlers(StandaloneTemplates())
OF_THE_API_SERVER = ("should be a non-negative integer", "spec.selector in body must be of type object")


@pytest.mark.behaviour("UD-4", "UD-5", "UD-6", "UD-8", "UD-12", "UD-13", "UD-14", "UD-15", "UD-16")
@pytest.mark.parametrize("case", CASES, ids=names_of(CASES))
def test_a_recorded_object_is_judged_and_stored_alike(case: dict[str, Any]) -> None:
    if any(said in str(case) for said in OF_THE_API_SERVER):
        # Refused by both; there the words are those of the API server, about a negative scale or a missing selector.
        created = written(UNITED_DEPLOYMENT, HANDLERS, case["manifest"])
        assert (created.obj is not None) is case["ok"]
        if created.obj is not None:
            update = {**case["manifest"], "spec": case["update"]["manifest"]}
            updated = written(UNITED_DEPLOYMENT, HANDLERS, update, created.obj)
            assert (updated.obj is not None) is case["update"]["ok"]
        return
    # Refusals begin alike; behind that stands what is refused here alone (UD-18), and numbers instead of addresses.
    hold_against(UNITED_DEPLOYMENT, HANDLERS, case, words=140)
