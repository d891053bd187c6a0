"""CloneSets left by OpenKruise are taken over without a restart or a new revision; only the status is written."""

import json
from pathlib import Path

import pytest

from tests.features.cloneset.shell import KINDS, Shell
from tests.kube.fakes import virtual

RECORDED = Path(__file__).resolve().parents[2] / "data" / "openkruise"
MOMENTS = sorted(path.name for path in RECORDED.glob("0*.json"))


def recorded(moment: str) -> list[dict]:
    items = json.loads((RECORDED / moment).read_text())["items"]
    return [found for found in items if found["kind"] in KINDS and found["metadata"]["namespace"] == "moving"]


@pytest.mark.parametrize("moment", [name for name in MOMENTS if "v1beta1" in name and "hooks" not in name])
@pytest.mark.behaviour("PM-85", "CS-69", "PM-83", "CS-72", "PM-78", "MGR-61", "CS-58", "CS-61")
def test_takeover_writes_only_the_status(moment: str) -> None:
    @virtual
    async def take_over() -> None:
        shell = Shell()
        shell.show(*recorded(moment))
        for name in ("web", "hooked"):
            await shell.reconcile(name, "moving")
        assert shell.server.requests, "OpenKruise left a FailedUpdate that is no longer true"
        for method, path, body in shell.server.requests:
            assert (method, path.rsplit("/", 1)[-1]) == ("PATCH", "status"), path
            assert "/clonesets/" in path
            assert set(body["status"]) <= {"conditions"}, body

    take_over()
