"""Revisions and Pods written by OpenKruise are read, and would be written alike."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson
import pytest

from app.api import names
from app.kube.objects import decode_controller_revision, decode_pod
from app.pods.claims import claim_templates_hash
from app.pods.container_meta import is_env_current, is_image_current, runtime_meta
from app.pods.inplace.completion import is_update_complete
from app.pods.inplace.eligibility import InPlaceOptions, update_spec
from app.pods.inplace.state import UpdateSpec, update_state
from app.pods.inplace.steps import RefreshAction, refresh, start, unready_patch
from app.pods.readiness import needs_condition
from app.pods.revisions import Revision, recorded_template, revision_hash, revision_name, revision_of, template_data
from tests.pods.inplace.pods import patched

DATA = Path(__file__).parents[2] / "data" / "openkruise"
MOMENTS = sorted(DATA.glob("0*.json"))


def items(moment: Path, kind: str) -> list[dict[str, Any]]:
    return [item for item in json.loads(moment.read_text())["items"] if item["kind"] == kind]


def revisions(moment: Path) -> dict[str, Revision]:
    found = (decode_controller_revision(orjson.dumps(item)) for item in items(moment, "ControllerRevision"))
    return {revision.metadata.name: revision_of(revision) for revision in found}


@pytest.mark.parametrize("moment", MOMENTS, ids=lambda path: path.stem)
@pytest.mark.behaviour("PM-80", "PM-82", "PM-83", "PM-84", "PM-87")
def test_revisions_are_recorded_to_the_byte(moment: Path) -> None:
    recorded = revisions(moment)
    for workload in items(moment, "CloneSet"):
        name, status = workload["metadata"]["name"], workload["status"]
        data = template_data(workload["spec"]["template"])
        assert revision_name(name, revision_hash(data, status["collisionCount"])) == status["updateRevision"]
        revision = recorded[status["updateRevision"]]
        assert revision.data == data
        assert recorded_template(revision) == workload["spec"]["template"]
        claims = claim_templates_hash(workload["spec"].get("volumeClaimTemplates"))
        assert revision.annotations[names.CLAIM_TEMPLATES_HASH] == claims


@pytest.mark.parametrize("moment", MOMENTS, ids=lambda path: path.stem)
@pytest.mark.behaviour("PM-45", "PM-48", "PM-50")
def test_pods_are_taken_over_without_a_write(moment: Path) -> None:
    now = datetime.fromisoformat("2026-11-21T04:00:00+00:00")
    for item in items(moment, "Pod"):
        pod = decode_pod(orjson.dumps(item))
        step = refresh(pod, now)
        assert (step.action, step.reason) == (RefreshAction.NOTHING, ""), pod.metadata.name
        assert is_update_complete(pod)
        assert not needs_condition(pod)
        if (meta := runtime_meta(pod)) is not None:
            assert is_image_current(pod, meta)
            assert is_env_current(pod, meta)


@pytest.mark.behaviour("PM-24", "PM-34", "PM-20")
def test_the_state_annotation_matches() -> None:
    before = {item["metadata"]["name"]: item for item in items(DATA / "01-created-v1beta1.json", "Pod")}
    moment = DATA / "02-in-place-partition-v1beta1.json"
    recorded = revisions(moment)
    spec = update_spec(recorded["web-6b8bf4668d"], recorded["web-7f649596bb"], InPlaceOptions())
    assert isinstance(spec, UpdateSpec)
    updated = [item for item in items(moment, "Pod") if names.IN_PLACE_UPDATE_STATE in item["metadata"]["annotations"]]
    assert len(updated) == 3
    for item in updated:
        text = item["metadata"]["annotations"][names.IN_PLACE_UPDATE_STATE]
        state = update_state(decode_pod(orjson.dumps(item)))
        assert state is not None
        assert state.as_json() == text
        assert state.update_timestamp is not None
        raw = before[item["metadata"]["name"]]
        raw = patched(raw, unready_patch(decode_pod(orjson.dumps(raw)), spec, state.update_timestamp))
        begin = start(decode_pod(orjson.dumps(raw)), spec, state.update_timestamp, labels={})
        written = begin.patch["metadata"]["annotations"][names.IN_PLACE_UPDATE_STATE]
        # Keys that OpenKruise lacks come last.
        assert written.startswith(text.removesuffix("}"))
        assert begin.patch["spec"]["containers"] == [{"name": "main", "image": "nginx:1.15.1"}]
