"""Sixty Pods that OpenKruise admitted, sent again through a real API server with our manager: each result is the same.

Recorded with all feature gates on save EnableExternalCerts and TemplateNoDefaults; volumes and pull secrets are sorted
by name because the original's order is random; times are left out.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.controlplane import ControlPlane
from tests.scenarios.world import eventually, manager

pytestmark = pytest.mark.controlplane

CASES: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "data" / "openkruise" / "samples-injection.json").read_text("utf-8")
)
GATES = "--feature-gates=AllAlpha=true,AllBeta=true,EnableExternalCerts=false,TemplateNoDefaults=false"
HASHES = ("kruise.io/sidecarset-hash", "kruise.io/sidecarset-hash-without-image")
SETS = "/apis/apps.kruise.io/v1beta1/sidecarsets"


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A separate control plane: the cases' SidecarSets match Pods of any namespace."""
    with ControlPlane() as control_plane, manager(control_plane, tmp_path_factory.mktemp("recorded"), GATES):
        control_plane.kubectl("create", "namespace", "other")
        yield control_plane


@pytest.mark.behaviour("SS-41", "SS-57", "SS-73", "SS-74", "SS-15")
@pytest.mark.parametrize("number", range(len(CASES)))
def test_a_recorded_pod_is_restored_alike(api: ControlPlane, number: int) -> None:
    case = CASES[number]
    names = []
    try:
        for manifest, accepted in zip(case["sets"], case["accepted"], strict=True):
            version = manifest["apiVersion"].rpartition("/")[2]
            status, answer = api.request("POST", SETS.replace("v1beta1", version), manifest)
            assert (status == 201) is accepted, answer
            if accepted:
                names.append(manifest["metadata"]["name"])
        for name in names:
            eventually(lambda name=name: latest_revision(api, name), f"SidecarSet {name} has a revision", 10)
        eventually(lambda: comes_back_alike(api, case), f"Pod of case {number} is admitted alike", 5)
    finally:
        for name in names:
            api.request("DELETE", f"{SETS}/{name}")
            eventually(lambda name=name: api.request("GET", f"{SETS}/{name}")[0] == 404, f"{name} is deleted", 10)


def latest_revision(api: ControlPlane, name: str) -> str:
    """Return status.latestRevision of a set, empty while it has none."""
    _, found = api.request("GET", f"{SETS}/{name}")
    return str(found.get("status", {}).get("latestRevision", ""))


def comes_back_alike(api: ControlPlane, case: dict[str, Any]) -> bool:
    """Create the Pod in a dry run and compare the answer with the recorded one."""
    namespace = case["pod"]["metadata"].get("namespace", "default")
    status, answer = api.request("POST", f"/api/v1/namespaces/{namespace}/pods?dryRun=All", case["pod"])
    result = case["result"]
    if "denied" in result:
        assert status >= 400, answer
        assert answer["message"] == case["message"]
        return True
    assert status == 201, answer
    assert answer["metadata"].get("labels") == result["labels"]
    assert annotations(answer["metadata"].get("annotations")) == (result["annotations"] or {})
    assert spec(answer["spec"]) == spec(result["spec"])
    return True


def annotations(given: dict[str, str] | None) -> dict[str, Any]:
    """Return the annotations as recorded: JSON is parsed, the time of injection removed."""
    read: dict[str, Any] = {}
    for key, text in (given or {}).items():
        try:
            read[key] = json.loads(text)
        except ValueError:
            read[key] = text
        if key in HASHES:
            for entry in read[key].values():
                assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", entry.pop("updateTimestamp"))
    return read


def spec(given: dict[str, Any]) -> dict[str, Any]:
    """Return the Pod's spec without the token volume's random name and random orders."""
    text = re.sub(r"kube-api-access-[a-z0-9]{5}", "kube-api-access", json.dumps(given))
    made: dict[str, Any] = copy.deepcopy(json.loads(text))
    for field in ("volumes", "imagePullSecrets"):
        if field in made:
            made[field].sort(key=lambda item: item["name"])
    return made
