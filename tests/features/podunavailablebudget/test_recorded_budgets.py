"""Every budget OpenKruise was asked about is judged alike: accepted or refused, the message, and what is stored."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.features.cloneset.recorded import comparable
from tests.features.podunavailablebudget.writing import ALPHA, BETA, as_seen, prefixed, write

DATA = Path(__file__).parents[2] / "data" / "openkruise" / "samples-podunavailablebudget.json"
CASES: list[dict[str, Any]] = json.loads(DATA.read_text("utf-8"))
#: Recorded messages were cut to this many characters.
RECORDED = 400


@pytest.mark.behaviour("PUB-10", "PUB-11", "PUB-12", "PUB-13", "PUB-14", "PUB-15", "PUB-18")
@pytest.mark.parametrize("case", CASES, ids=[case["manifest"]["metadata"]["name"] for case in CASES])
def test_a_recorded_budget_is_judged_and_stored_alike(case: dict[str, Any]) -> None:
    manifest = case["manifest"]
    created = write(manifest)
    judged(created.message, case["ok"], case["message"])
    if not case["ok"]:
        return
    assert created.obj is not None
    version = manifest["apiVersion"]
    assert comparable(created.obj) == case["created"]
    for other in (ALPHA, BETA):
        assert comparable(as_seen(created.obj, other)) == case[other.rpartition("/")[2]]
    update = case["update"]
    updated = write({**manifest, "spec": update["manifest"]}, created.obj)
    judged(updated.message, update["ok"], update["message"])
    if updated.obj is not None:
        assert comparable(as_seen(updated.obj, version)) == update["result"]


def judged(message: str, ok: bool, recorded: str) -> None:
    assert (prefixed(message)[:RECORDED] if message else "") == recorded[:RECORDED]
    assert (not message) is ok
