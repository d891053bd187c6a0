"""What OpenKruise's manager left behind is taken over as it is: no restart, no new revision, no write but status."""

import json
import time
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
@pytest.mark.behaviour("CS-56", "CS-69", "CS-70", "CS-72", "CS-75", "CS-53", "CS-58", "CS-61")
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


@virtual
@pytest.mark.behaviour("CS-194", "CS-66", "CS-148")
async def test_an_idle_reconcile_of_a_thousand_pods_sends_no_request() -> None:
    moment = recorded("02-in-place-partition-v1beta1.json")
    owner = next(o for o in moment if o["kind"] == "CloneSet" and o["metadata"]["name"] == "web")
    update = owner["status"]["updateRevision"].rpartition("-")[2]
    pod = next(
        o for o in moment if o["kind"] == "Pod" and o["metadata"]["labels"]["controller-revision-hash"] == update
    )
    shell = Shell()
    owner["spec"]["replicas"] = 1000
    owner["spec"].pop("volumeClaimTemplates")
    shell.show(*(o for o in moment if o["kind"] == "ControllerRevision"), owner)
    for number in range(1000):
        metadata = {**pod["metadata"], "name": f"web-{number:05}", "uid": f"uid-{number}"}
        shell.show({**pod, "metadata": metadata})
    await shell.reconcile("web", "moving")
    assert [path.rsplit("/", 1)[-1] for _, path in shell.writes] == ["status"]
    shell.server.requests.clear()
    await shell.reconcile("web", "moving")
    assert shell.server.requests == []
    best = min([await _timed(shell) for _ in range(20)])
    assert shell.server.requests == []
    print(f"a pass over 1,000 Pods: {best * 1e3:.2f} ms")


async def _timed(shell: Shell) -> float:
    began = time.process_time()
    await shell.reconcile("web", "moving")
    return time.process_time() - began
