"""Sidecars of jobs end with them: the manager, its webhooks and the agents of simulated nodes."""

from __future__ import annotations

from typing import Any

import pytest

from app.api import names
from app.features.sidecarset.kind import SIDECAR_SET
from app.kube.resources import JOBS, NODES
from tests.managed import events_of, in_managed, restart_requests, unresponsive_nodes
from tests.sandbox.cluster import Simulated

Json = dict[str, Any]
GATE = "--feature-gates=SidecarTerminator=true"

TRUE = {names.ENV_TERMINATE_SIDECAR: "true"}
IGNORED = {**TRUE, names.ENV_TERMINATE_SIDECAR_IGNORE_EXIT_CODE: "true"}
#: Exit code of a container that is stopped.
CLEAN = "trap 'exit 0' TERM; sleep 1000000"
UNCLEAN = "trap 'exit 3' TERM; sleep 1000000"


def container(name: str, command: str, env: Json | None = None) -> Json:
    return {
        "name": name,
        "image": "busybox:1.36",
        "command": ["/bin/sh", "-c", command],
        "env": [{"name": key, "value": value} for key, value in (env or {}).items()],
    }


def job(*containers: Json) -> Json:
    spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 5, "containers": list(containers)}
    return {"metadata": {"name": "once"}, "spec": {"backoffLimit": 0, "template": {"spec": spec}}}


async def pod(there: Simulated) -> Json:
    (found,) = await there.pods("batch.kubernetes.io/job-name=once")
    return found


async def ended(there: Simulated, condition: str = "Complete") -> Json:
    async def look() -> bool:
        conditions = (await there.get(JOBS, "once")).get("status", {}).get("conditions") or []
        return any(one["type"] == condition and one["status"] == "True" for one in conditions)

    await there.until(look, 120)
    return await pod(there)


@pytest.mark.behaviour("SS-111")
@in_managed
async def test_without_the_gate_no_container_is_stopped(there: Simulated) -> None:
    await there.create(JOBS, job(container("main", "sleep 5"), container("side", CLEAN, TRUE)))
    await there.client.clock.sleep(300)
    states = {one["name"]: [*one["state"]] for one in (await pod(there))["status"]["containerStatuses"]}
    assert states == {"main": ["terminated"], "side": ["running"]}
    assert not await restart_requests(there)


@pytest.mark.behaviour("SS-115")
@in_managed(GATE)
async def test_the_exit_code_of_a_sidecar_fails_the_job_unless_it_is_ignored(there: Simulated) -> None:
    await there.create(JOBS, job(container("main", "sleep 5"), container("side", UNCLEAN, TRUE)))
    assert (await ended(there, "Failed"))["status"]["phase"] == "Failed"


@pytest.mark.behaviour("SS-114")
@in_managed(GATE, number=1)
async def test_on_a_virtual_node_the_sidecar_gets_the_exiting_image(there: Simulated) -> None:
    (node,) = (await there.client.list(NODES)).items
    await there.patch(NODES, node["metadata"]["name"], {"metadata": {"labels": {"type": "virtual-kubelet"}}})
    env = {names.ENV_TERMINATE_SIDECAR_WITH_IMAGE: "exit-quickly:1"}
    body = job(container("main", "sleep 5"), container("side", CLEAN, env), container("other", CLEAN, TRUE))
    await there.create(JOBS, body)

    await there.until(there.pods)

    async def image() -> str:
        return str((await pod(there))["spec"]["containers"][1]["image"])

    await there.becomes(image, "exit-quickly:1")
    assert not await restart_requests(there)
    told = await events_of(there, (await pod(there))["metadata"]["name"], "SidecarTerminator")
    events = {one["type"]: one["message"] for one in told}
    how = "using in-place update"
    assert events["Normal"] == f"Kruise SidecarTerminator is trying to terminate sidecar [side] {how}"
    assert "cannot terminate sidecar [other]: " in events["Warning"]


@pytest.mark.behaviour("SS-113")
@in_managed(GATE)
async def test_an_unresponsive_node_is_asked_again(there: Simulated) -> None:
    async with unresponsive_nodes(there):
        await there.create(JOBS, job(container("main", "sleep 5"), container("side", CLEAN, TRUE)))
    assert (await ended(there))["status"]["phase"] == "Succeeded"


@pytest.mark.behaviour("SS-116")
@in_managed(GATE)
async def test_a_pod_with_its_final_phase_leaves_its_sidecarset(there: Simulated) -> None:
    sets = SIDECAR_SET.resource()
    side = container("side", UNCLEAN, IGNORED)
    spec = {"selector": {"matchLabels": {"app": "once"}}, "containers": [side]}
    head = {"apiVersion": sets.api_version, "kind": sets.kind, "metadata": {"name": "shippers"}}
    await there.create(sets, {**head, "spec": spec})
    body = job(container("main", "sleep 5"))
    body["spec"]["template"]["metadata"] = {"labels": {"app": "once"}}
    await there.client.clock.sleep(1)
    await there.create(JOBS, body)
    await there.status(sets, "shippers", matchedPods=1)
    await ended(there)
    await there.status(sets, "shippers", matchedPods=0)
    # A change of the set no longer reaches the Pod.
    image = [{**side, "image": "busybox:1.37"}]
    await there.patch(sets, "shippers", {"spec": {"containers": image}})
    await there.client.clock.sleep(30)
    images = {one["name"]: one["image"] for one in (await pod(there))["spec"]["containers"]}
    assert images["side"] == "busybox:1.36"
