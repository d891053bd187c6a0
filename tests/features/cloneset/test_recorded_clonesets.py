"""Every CloneSet OpenKruise was asked about is judged alike: accepted or refused, the message, and what is stored."""

from __future__ import annotations

from typing import Any

import pytest

from app.api.conversion import convert
from app.features.cloneset.webhooks import mutate
from app.kube.admission import Allowed, Patched
from app.kube.patches import apply
from tests.admission.writing import ALPHA, BETA, Written
from tests.features.cloneset.recorded import CASES, IDS, comparable, judged, read_alike
from tests.features.cloneset.writing import Lookups, prefixed, review, write


def judged_alike(written: Written, ok: bool, message: str) -> None:
    if message.startswith("CloneSet."):
        # The API server's own words; it is asked in test_clonesets_controlplane.py.
        assert written.obj is None
    else:
        judged("" if written.obj is not None else prefixed(written.message), ok, message)


@pytest.mark.behaviour(
    "CS-5", "CS-6", "CS-7", "CS-8", "CS-11", "CS-12", "CS-13", "CS-14", "CS-15", "CS-16", "CS-17", "CS-22", "CS-23",
    "CS-24", "CS-25", "CS-26", "CS-27", "CS-28", "CS-29", "CS-30", "CS-31", "CS-35", "CS-36", "CS-37", "CS-39",
)  # fmt: skip
@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_a_recorded_cloneset_is_judged_and_stored_alike(case: dict[str, Any]) -> None:
    manifest = case["manifest"]
    created = write(manifest)
    judged_alike(created, case["ok"], case["message"])
    if not case["ok"]:
        return
    version = manifest["apiVersion"]
    read_alike(created.seen(version), case["created"])
    read_alike(created.seen(ALPHA), case["v1alpha1"])
    read_alike(created.seen(BETA), case["v1beta1"])
    before, update = created.seen(version), case["update"]
    updated = write({**manifest, "metadata": before["metadata"], "spec": update["manifest"]}, before)
    judged_alike(updated, update["ok"], update["message"])
    if updated.obj is not None:
        read_alike(updated.seen(version), update["result"])


@pytest.mark.behaviour("CS-19")
@pytest.mark.parametrize("version", ["v1alpha1", "v1beta1"])
def test_taking_over_a_cloneset_that_openkruise_stored_changes_nothing_in_it(version: str) -> None:
    stored = [case[version] for case in CASES if case["ok"]]
    assert len(stored) > 30
    for obj in stored:
        # The recorder left out the phase of claims.
        for claim in obj["spec"].get("volumeClaimTemplates") or ():
            claim["status"] = {"phase": "Pending"}
        decision = mutate(Lookups(), review(obj, obj))
        if isinstance(decision, Patched):
            # v1alpha1 does not show an empty block that is stored: filled in again, it is the same.
            assert version == "v1alpha1"
            after = apply(decision.operations, obj)
            assert comparable(convert(after, BETA)) == comparable(convert(obj, BETA))
        else:
            assert decision == Allowed()
