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


def job(*containers: Json, policy: str = "Never") -> Json:
    spec = {"restartPolicy": policy, "terminationGracePeriodSeconds": 5, "containers": list(containers)}
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


async def all_over(there: Simulated) -> dict[str, int]:
    """Container → exit code, once none runs."""

    async def look() -> dict[str, int] | None:
        statuses = (await pod(there))["status"]["containerStatuses"]
        codes = {one["name"]: one["state"].get("terminated", {}).get("exitCode") for one in statuses}
        return codes if None not in codes.values() else None

    found: dict[str, int] = await there.until(look, 120)
    return found


@pytest.mark.behaviour("SS-111")
@pytest.mark.parametrize(("env", "flags"), [({}, [GATE]), (TRUE, [])], ids=["no env", "gate off"])
def test_other_containers_are_left_alone(env: Json, flags: list[str]) -> None:
    async def scenario(there: Simulated) -> None:
        await there.create(JOBS, job(container("main", "sleep 5"), container("side", CLEAN, env)))
        await there.client.clock.sleep(300)
        states = {one["name"]: [*one["state"]] for one in (await pod(there))["status"]["containerStatuses"]}
        assert states == {"main": ["terminated"], "side": ["running"]}
        assert not await restart_requests(there)

    in_managed(*flags)(scenario)()


@pytest.mark.behaviour("SS-112")
@in_managed(GATE)
async def test_a_restarted_main_container_is_waited_for(there: Simulated) -> None:
    await there.create(
        JOBS, job(container("main", "sleep 5; exit 1"), container("side", CLEAN, TRUE), policy="OnFailure")
    )

    async def failed() -> bool:
        found = await there.pods("batch.kubernetes.io/job-name=once")
        statuses = found[0]["status"].get("containerStatuses", []) if found else []
        return any(one["restartCount"] for one in statuses)

    await there.until(failed)
    assert not await restart_requests(there)


@pytest.mark.behaviour("SS-115")
@pytest.mark.parametrize(
    ("env", "condition", "phase"), [(TRUE, "Failed", "Failed"), (IGNORED, "Complete", "Succeeded")]
)
@in_managed(GATE)
async def test_the_exit_code_of_a_sidecar_counts_unless_it_says_otherwise(
    there: Simulated, env: Json, condition: str, phase: str
) -> None:
    await there.create(JOBS, job(container("main", "sleep 5"), container("side", UNCLEAN, env)))
    found = await ended(there, condition)
    assert found["status"]["phase"] == phase
    assert await all_over(there) == {"main": 0, "side": 3}
    assert (await pod(there))["status"]["phase"] == phase


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
