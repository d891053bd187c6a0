"""Recorded StatefulSets are admitted, refused and stored as by OpenKruise."""

from __future__ import annotations

import re
from typing import Any

import pytest

from app.features.statefulset.kind import STATEFUL_SET
from app.features.statefulset.webhooks import mutate
from app.kube.admission import Allowed
from tests.admission.recorded import RECORDED_LENGTH, cases, comparable, names_of, read_alike
from tests.admission.writing import ALPHA, BETA, Written, review_of
from tests.features.statefulset.writing import lookups, write

CASES = cases("statefulset")
#: OpenKruise prints this block with memory addresses; we print its content.
_ADDRESSES = re.compile(r"^(.*rollingUpdate: Invalid value: )v1beta1\.RollingUpdateStatefulSetStrategy\{")


def judged_alike(written: Written, ok: bool, message: str) -> None:
    assert (written.obj is not None) is ok, written.message
    if message.startswith("StatefulSet."):
        # A message of the API server.
        return
    if found := _ADDRESSES.match(message):
        assert written.shown.startswith(found[1] + "{")
        assert written.shown.endswith("only allowed for updateStrategy 'RollingUpdate'")
    else:
        assert written.shown[:RECORDED_LENGTH] == message


@pytest.mark.behaviour(
    "AS-1", "AS-2", "AS-3", "AS-5", "AS-6", "AS-7", "AS-8", "AS-11", "AS-13", "AS-14", "AS-16", "AS-17", "AS-18",
    "AS-20", "AS-21", "AS-22", "AS-23", "AS-24", "AS-25", "AS-26", "AS-27", "AS-28",
)  # fmt: skip
@pytest.mark.parametrize("case", CASES, ids=names_of(CASES))
def test_a_recorded_statefulset_is_validated_and_stored_alike(case: dict[str, Any]) -> None:
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


@pytest.mark.behaviour("AS-10", "AS-12")
@pytest.mark.parametrize("version", ["v1alpha1", "v1beta1"])
def test_taking_over_an_openkruise_statefulset_changes_nothing(version: str) -> None:
    stored = [case[version] for case in CASES if case["ok"]]
    assert len(stored) > 30
    for obj in stored:
        # The recorder left out the phase of claims.
        for claim in obj["spec"].get("volumeClaimTemplates") or ():
            claim["status"] = {"phase": "Pending"}
        if version == "v1beta1" and not obj["spec"]["volumeClaimUpdateStrategy"]:
            continue  # written in v1alpha1, which lacks this default
        assert mutate(lookups(), review_of(STATEFUL_SET, obj, obj)) == Allowed(), comparable(obj)
