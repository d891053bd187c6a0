"""Recorded PersistentPodStates read alike in both versions; what OpenKruise's schema refuses, ours does too."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.api import structural
from app.api.conversion import convert
from app.api.persistentpodstate import PERSISTENT_POD_STATE
from app.manager.slices import kinds
from tests.admission.writing import ALPHA, BETA
from tests.openkruise import FOLDER
from tests.workloads.cloneset.recorded import read_alike

CASES: list[dict[str, Any]] = json.loads((FOLDER / "samples-persistentpodstate.json").read_text("utf-8"))


def without_empty_lists(value: Any) -> Any:
    """As OpenKruise's Go types print it, to the harm of v1beta1, which requires the list."""
    if isinstance(value, dict):
        return {key: without_empty_lists(item) for key, item in value.items() if item != []}
    return [without_empty_lists(item) for item in value] if isinstance(value, list) else value


@pytest.mark.behaviour("PPS-1", "PPS-2")
@pytest.mark.parametrize("case", CASES, ids=[case["manifest"]["metadata"]["name"] for case in CASES])
def test_a_recorded_object_is_stored_alike(case: dict[str, Any]) -> None:
    assert PERSISTENT_POD_STATE in kinds()
    manifest = case["manifest"]
    version = PERSISTENT_POD_STATE.version(manifest["apiVersion"])
    assert version is not None
    given = structural.pruned(version.schema, manifest)
    refusal = structural.invalid_message(PERSISTENT_POD_STATE, version, given)
    if not case["ok"]:
        if case["message"].startswith("PersistentPodState."):
            assert refusal
        return
    assert not refusal
    for api_version, recorded in ((ALPHA, case["v1alpha1"]), (BETA, case["v1beta1"])):
        seen = given if api_version == manifest["apiVersion"] else convert(given, api_version)
        read_alike(without_empty_lists(seen), recorded)
