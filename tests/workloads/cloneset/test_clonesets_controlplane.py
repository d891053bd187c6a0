"""The same CloneSets on a real API server, with our manager behind its webhooks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.controlplane import ControlPlane
from tests.scenarios.world import manager
from tests.workloads.cloneset.recorded import CASES, IDS, judged, read_alike

pytestmark = pytest.mark.controlplane

NAMESPACE = "diff"


def path(version: str, name: str = "") -> str:
    return f"/apis/apps.kruise.io/{version}/namespaces/{NAMESPACE}/clonesets/{name}".rstrip("/")


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane with our manager."""
    with ControlPlane() as control_plane, manager(control_plane, tmp_path_factory.mktemp("manager")):
        control_plane.request("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        yield control_plane


@pytest.mark.behaviour("CS-4", "CS-20", "CS-21", "CS-22", "CS-24", "CS-173")
@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_a_recorded_cloneset_is_judged_and_stored_alike_on_an_api_server(
    api: ControlPlane, case: dict[str, Any]
) -> None:
    manifest = case["manifest"]
    name, version = manifest["metadata"]["name"], manifest["apiVersion"].rpartition("/")[2]
    code, answer = api.request("POST", path(version), manifest)
    judged("" if code == 201 else answer["message"], case["ok"], case["message"])
    if not case["ok"]:
        return
    read_alike(answer, case["created"])
    for read in ("v1alpha1", "v1beta1"):
        read_alike(api.request("GET", path(read, name))[1], case[read])
    update = case["update"]
    code = 409
    while code == 409:
        # The controller reports the status of the new CloneSet meanwhile.
        before = api.request("GET", path(version, name))[1]
        code, answer = api.request("PUT", path(version, name), {**before, "spec": update["manifest"]})
    judged("" if code == 200 else answer["message"], update["ok"], update["message"])
    if code == 200:
        read_alike(answer, update["result"])
