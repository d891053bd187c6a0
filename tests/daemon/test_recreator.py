"""Restarting containers: plans, and an agent with a simulated runtime."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from app.daemon import recreate_plan
from app.daemon.agent import Features
from app.daemon.cri.types import POD_UID, ContainerDetails, ContainerState, CriError, NoSuchContainer
from app.daemon.objects import RECREATE_REQUESTS, Condition, RecreateRequest, decode_recreate_request
from app.daemon.probes_and_hooks import PORTS
from app.daemon.recreate_plan import Found
from app.daemon.recreator import POD_NAMESPACE
from app.kube.resources import NAMESPACES, PODS
from tests.daemon.node import NAMESPACE, Agent, Listening, Node, node_with_agent, on_bare_node, on_node
from tests.kube.fakes import running, virtual

NOW = datetime(2030, 1, 1, 0, 1, tzinfo=UTC)
OLD, NEW = "containerd://old", "containerd://new"


def request(
    states: list[dict[str, Any]] | None = None, snapshot: list[dict[str, Any]] | None = None, **strategy: Any
) -> RecreateRequest:
    containers = [{"name": name, "statusContext": {"containerID": OLD, "restartCount": 0}} for name in ("app", "side")]
    body = {
        "metadata": {"name": "r", "namespace": NAMESPACE, "labels": {"crr.apps.kruise.io/pod-uid": "u"}},
        "spec": {"podName": "p", "containers": containers, "strategy": strategy},
        "status": {
            "phase": "Recreating",
            "containerRecreateStates": states or [],
            "containerStatusSnapshot": snapshot or [],
        },
    }
    return decode_recreate_request(msgspec.json.encode(body))


@pytest.mark.behaviour("CRR-30")
def test_the_agent_keeps_only_what_it_reads_of_a_request() -> None:
    many = {f"example.com/{number}": "x" for number in range(10_000)}
    metadata = {
        "name": "r",
        "labels": {**many, "crr.apps.kruise.io/pod-uid": "u"},
        "annotations": {"a": "x" * 200_000},
        "finalizers": [*many],
        "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": name} for name in many],
    }
    kept = decode_recreate_request(msgspec.json.encode({"metadata": metadata}))
    assert kept.pod_uid == "u"
    assert len(msgspec.json.encode(kept)) < 200


def found(
    id_: str = "old",
    state: ContainerState = ContainerState.RUNNING,
    *,
    ago: float = 30,
    count: int = 0,
    restarts: bool = True,
) -> Found:
    started = int((NOW.timestamp() - ago) * 1e9)
    return Found(ContainerDetails(id_, "app", state, started, started), count, restarts)


def state(phase: str, *, killed: bool = False, message: str = "", name: str = "app") -> dict[str, Any]:
    return {"name": name, "phase": phase, "isKilled": killed, "message": message}


READY = [{"name": "app", "ready": True, "containerID": NEW}]


@pytest.mark.behaviour("CRR-35", "CRR-40", "CRR-42")
@pytest.mark.parametrize(
    ("asked", "container", "phase", "killed"),
    [
        (request([state("Succeeded", killed=True)]), found(), "Succeeded", True),
        (request([state("Failed")]), None, "Failed", False),
        (request(), None, "Pending", False),
        (request(), found(), "Pending", False),
        (request([state("Pending")]), found(state=ContainerState.EXITED), "Recreating", False),
        (request([state("Recreating", killed=True)]), found(state=ContainerState.EXITED), "Recreating", True),
        (request([state("Recreating")]), found(state=ContainerState.EXITED, restarts=False), "Failed", False),
        (request(), found("new"), "Recreating", False),
        (request(), found(count=1), "Recreating", False),
        (request(snapshot=READY), found("new"), "Succeeded", False),
        (request([state("Recreating", killed=True)], READY), found("new"), "Succeeded", True),
        (request(snapshot=[{**READY[0], "ready": False}]), found("new"), "Recreating", False),
        (request(snapshot=[{**READY[0], "containerID": OLD}]), found("new"), "Recreating", False),
        (request(snapshot=READY, minStartedSeconds=60), found("new"), "Recreating", False),
        (request(snapshot=READY, minStartedSeconds=10), found("new"), "Succeeded", False),
        (request(snapshot=READY, forceRecreate=True), found("new"), "Pending", False),
        (request([state("Recreating", killed=True)], READY, forceRecreate=True), found("new"), "Succeeded", True),
        # The announcement tells a restarted agent that its predecessor was stopping the container.
        (request([state("Pending", message=f"stopping {OLD}")], forceRecreate=True), found("new"), "Recreating", True),
        (request([state("Pending", message=f"stopping {OLD}")], forceRecreate=True), found(), "Pending", False),
        (
            request([state("Pending", message=f"stopping {OLD}")], forceRecreate=True),
            found(state=ContainerState.EXITED),
            "Recreating",
            True,
        ),
    ],
)
def test_the_state_of_a_container_follows_its_restart(
    asked: RecreateRequest, container: Found | None, phase: str, killed: bool
) -> None:
    first = recreate_plan.states(asked, "containerd", {"app": container} if container else {}, NOW)[0]
    assert (first.phase, first.is_killed) == (phase, killed)


@pytest.mark.behaviour("CRR-37", "CRR-39")
@pytest.mark.parametrize(
    ("states", "strategy", "kill", "ended", "killed"),
    [
        (["Pending", "Pending"], {}, "app", False, [False, False]),
        (["Recreating", "Pending"], {}, "side", False, [True, False]),
        (["Recreating", "Pending"], {"orderedRecreate": True}, None, False, [True, False]),
        (["Succeeded", "Pending"], {"orderedRecreate": True}, "side", False, [False, False]),
        (["Failed", "Pending"], {}, None, True, [False, False]),
        (["Failed", "Pending"], {"failurePolicy": "Ignore"}, "side", False, [False, False]),
        (["Failed", "Succeeded"], {"failurePolicy": "Ignore"}, None, True, [False, False]),
        (["Succeeded", "Succeeded"], {}, None, True, [False, False]),
        (["Succeeded", "Recreating"], {}, None, False, [False, True]),
    ],
)
def test_one_pass_kills_one_container_or_ends_the_request(
    states: list[str], strategy: dict[str, Any], kill: str | None, ended: bool, killed: list[bool]
) -> None:
    asked = request([state(phase, name=name) for name, phase in zip(("app", "side"), states, strict=True)], **strategy)
    current = asked.status.container_recreate_states
    walk = recreate_plan.walk(asked, current, {"app": found(), "side": found()})
    assert (walk.kill.name if walk.kill else None, walk.ended) == (kill, ended)
    assert [one.is_killed for one in walk.states] == killed


@pytest.mark.behaviour("CRR-37")
def test_a_container_missing_on_the_node_is_waited_for() -> None:
    asked = request([state("Pending"), state("Pending", name="side")])
    assert recreate_plan.walk(asked, asked.status.container_recreate_states, {"side": found()}).kill is None


@pytest.mark.behaviour("CRR-34")
@pytest.mark.parametrize(
    ("ids", "name"),
    [
        (["containerd://a", "containerd://b"], "containerd"),
        (["cri-o://a"], "cri-o"),
        (["containerd://a", "docker://b"], None),
        ([""], None),
        (["abc"], None),
        (["://abc"], None),
        ([], None),
    ],
)
def test_all_containers_of_a_request_use_one_runtime(ids: list[str], name: str | None) -> None:
    containers = [{"name": f"c{n}", "statusContext": {"containerID": one}} for n, one in enumerate(ids)]
    asked = decode_recreate_request(msgspec.json.encode({"metadata": {}, "spec": {"containers": containers}}))
    if name is None:
        with pytest.raises(ValueError):
            recreate_plan.runtime_name(asked)
    else:
        assert recreate_plan.runtime_name(asked) == name


# --- On a node


async def state_of(one: Node, name: str = "again") -> dict[str, Any]:
    status = await one.status(RECREATE_REQUESTS, name)
    return {
        "phase": status.get("phase", ""),
        **{entry["name"]: entry["phase"] for entry in status.get("containerRecreateStates", [])},
    }


async def until_state(one: Node, name: str = "again", **wanted: str) -> None:
    await one.becomes(lambda: state_of(one, name), wanted, 120)


async def stopped(one: Node) -> None:
    """Wait until one container was stopped."""
    await one.until(lambda: len(one.runtime.stops) == 1)


@pytest.mark.behaviour("CRR-30", "CRR-32", "CRR-36", "CRR-38", "CRR-41", "KD-50", "KD-52")
@on_node
async def test_two_containers_are_stopped_in_turn_and_wait_for_their_successors(one: Node, agent: Agent) -> None:
    one.runtime.on_stop = one.restart
    pod = await one.pod({"name": "app"}, {"name": "side"})
    uid = pod["metadata"]["uid"]
    await one.request(pod, "app", "side")
    await until_state(one, phase="Recreating", app="Recreating", side="Recreating")
    assert len(one.runtime.stops) == 2
    await one.snapshot(uid, "app")
    await until_state(one, phase="Recreating", app="Succeeded", side="Recreating")
    await one.snapshot(uid, "app", "side")
    await until_state(one, phase="Completed", app="Succeeded", side="Succeeded")
    status = await one.status(RECREATE_REQUESTS, "again")
    assert status["completionTime"]
    assert "message" not in status
    assert [grace for _, grace in one.runtime.stops] == [30, 30]
    assert await one.events("Killing") == [
        f"Killing: Stopping container {name} by ContainerRecreateRequest again" for name in ("app", "side")
    ]


@pytest.mark.behaviour("CRR-31", "CRR-30")
@on_node
async def test_requests_for_one_pod_are_processed_in_turn(one: Node, agent: Agent) -> None:
    one.runtime.on_stop = one.restart
    pod = await one.pod({"name": "app"}, {"name": "side"})
    await one.request(pod, "app", name="first")
    await one.clock.sleep(2)
    await one.request(pod, "side", name="second")
    await until_state(one, "first", phase="Recreating", app="Recreating")
    await until_state(one, "second", phase="Pending")
    await one.snapshot(pod["metadata"]["uid"], "app", name="first")
    await until_state(one, "first", phase="Completed", app="Succeeded")
    await until_state(one, "second", phase="Recreating", side="Recreating")


@pytest.mark.behaviour("CRR-33")
@pytest.mark.parametrize(
    ("asked", "left"), [(None, 0.0), (0, 0.0), (60, 0.0), (61, 1.1), (2**63 - 1, 2.0**63), (-1, 0.0)]
)
def test_containers_are_stopped_after_the_unready_grace_period(asked: int | None, left: float) -> None:
    """A huge value must not overflow a date."""
    since = msgspec.structs.replace(
        request(unreadyGracePeriodSeconds=asked).status,
        conditions=(Condition("PreRecreateGrace", "True", NOW - timedelta(seconds=60)),),
    )
    held = msgspec.structs.replace(request(unreadyGracePeriodSeconds=asked), status=since)
    assert recreate_plan.grace_left(held, NOW) == pytest.approx(left)


@pytest.mark.behaviour("CRR-33")
@on_node
async def test_the_pod_is_unready_before_its_containers_are_stopped(one: Node, agent: Agent) -> None:
    pod = await one.pod({"name": "app"})
    await one.request(pod, "app", unreadyGracePeriodSeconds=30)
    await until_state(one, phase="Recreating")
    await one.clock.sleep(100)
    assert one.runtime.stops == []
    since = one.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
    condition = {"type": "PreRecreateGrace", "status": "True", "reason": "PreRecreateGrace", "message": ""}
    status = {"conditions": [{**condition, "lastTransitionTime": since}]}
    await one.client.patch(RECREATE_REQUESTS, "again", {"status": status}, NAMESPACE, subresource="status")
    await one.clock.sleep(25)
    assert one.runtime.stops == []
    await one.clock.sleep(10)
    assert len(one.runtime.stops) == 1


@pytest.mark.behaviour("CRR-39", "CRR-40")
@pytest.mark.parametrize(
    ("error", "policy", "after"),
    [
        (CriError("it will not"), "Fail", {"phase": "Completed", "app": "Failed", "side": "Pending"}),
        (CriError("it will not"), "Ignore", {"phase": "Recreating", "app": "Failed", "side": "Recreating"}),
        (NoSuchContainer("gone"), "Fail", {"phase": "Recreating", "app": "Recreating", "side": "Recreating"}),
    ],
)
@on_node
async def test_a_container_that_cannot_be_stopped_fails_its_restart_unless_it_has_gone(
    one: Node, agent: Agent, error: CriError, policy: str, after: dict[str, str]
) -> None:
    pod = await one.pod({"name": "app"}, {"name": "side"})
    stop, broken = one.runtime.stop, one.newest(pod["metadata"]["uid"], "app")

    async def refusing(container_id: str, grace: int) -> None:
        if container_id == broken.id:
            if isinstance(error, NoSuchContainer):
                broken.state = ContainerState.EXITED
            raise error
        await stop(container_id, grace)

    one.runtime.stop = refusing  # type: ignore[method-assign]
    await one.request(pod, "app", "side", failurePolicy=policy)
    await until_state(one, **after)
    states = (await one.status(RECREATE_REQUESTS, "again"))["containerRecreateStates"]
    failed = after["app"] == "Failed"
    assert states[0].get("message") == ("kill container error: it will not" if failed else None)


@pytest.mark.behaviour("CRR-40")
@pytest.mark.parametrize(
    ("policy", "code", "after"),
    [
        ("Always", 0, {"phase": "Recreating", "app": "Recreating"}),
        ("OnFailure", 1, {"phase": "Recreating", "app": "Recreating"}),
        ("OnFailure", 0, {"phase": "Completed", "app": "Failed"}),
        ("Never", 1, {"phase": "Completed", "app": "Failed"}),
    ],
)
@on_node
async def test_a_container_that_the_kubelet_will_not_start_again_is_not_waited_for(
    one: Node, agent: Agent, policy: str, code: int, after: dict[str, str]
) -> None:
    pod = await one.pod({"name": "app"}, restart_policy=policy)
    container = one.newest(pod["metadata"]["uid"], "app")
    container.state, container.exit_code = ContainerState.EXITED, code
    await one.request(pod, "app")
    await until_state(one, **after)


@pytest.mark.behaviour("KD-50", "KD-51", "CRR-61")
@pytest.mark.parametrize(
    ("hook", "grace", "left", "warning"),
    [
        ({"exec": {"command": ["sleep", "4"]}}, 10, 6, ""),
        ({"exec": {"command": ["sleep", "40"]}}, 10, 2, "preStop hook not completed in grace period of 10 s"),
        (
            {"exec": {"command": ["false"]}},
            10,
            10,
            'Exec lifecycle hook ([false]) for Container "app" in Pod "{pod}" failed - '
            "error: command 'false' exited with 1: , message: \"\"",
        ),
        (
            {"exec": {"command": ["/no/such"]}},
            10,
            10,
            'Exec lifecycle hook ([/no/such]) for Container "app" in Pod "{pod}" failed - '
            'error: exec failed: "/no/such": no such file or directory, message: ""',
        ),
        ({"sleep": {"seconds": 3}}, 10, 7, ""),
        ({"sleep": {"seconds": 3}}, 10**9, 86397, ""),
        (
            {"tcpSocket": {"port": 1}},
            10,
            10,
            "Cannot run handler: invalid handler: exec, httpGet or sleep is required",
        ),
        (
            {"httpGet": {"port": "http", "path": "/end"}},
            10,
            10,
            'HTTP lifecycle hook (/end) for Container "app" in Pod "{pod}" failed - '
            "error: the container has no port 'http', message: \"\"",
        ),
        ({"exec": {"command": ["true"]}}, 0, 2, ""),
    ],
)
@on_node
async def test_hooks_count_toward_the_grace_period(
    one: Node, agent: Agent, hook: dict[str, Any], grace: int, left: int, warning: str
) -> None:
    pod = await one.pod({"name": "app"})
    hooks = {"app": {"preStop": hook}}
    await one.request(pod, "app", terminationGracePeriodSeconds=grace, hooks=hooks)
    await until_state(one, phase="Recreating", app="Recreating")
    assert [grace for _, grace in one.runtime.stops] == [left]
    metadata = pod["metadata"]
    told = warning.replace("{pod}", f"{metadata['name']}_{metadata['namespace']}({metadata['uid']})")
    assert await one.events("FailedPreStopHook") == ([f"FailedPreStopHook: {told}"] if warning else [])
    if not grace:
        assert one.runtime.commands == []


@pytest.mark.behaviour("CRR-50", "CRR-61", "CRR-68")
@pytest.mark.parametrize("watched", [True, False])
@virtual
async def test_a_hook_is_that_of_the_container_and_sent_to_its_own_pod(watched: bool) -> None:
    network, own = Listening(), []
    async with node_with_agent(network=network, features=Features(pods=watched)) as (one, _):
        for name in ("forged", "recorded", "replaced", "gone"):
            pod = await one.pod({"name": "app"}, name=name)
            own.append(one.newest(pod["metadata"]["uid"], "app"))
            own[-1].annotations[PORTS] = '[{"name": "http", "containerPort": 80}]'
            if name in ("replaced", "gone"):
                await one.client.delete(PODS, name, NAMESPACE, grace_period_seconds=0)
            if name == "replaced":
                await one.pod({"name": "app"}, name=name)
            said = {"preStop": {"httpGet": {"host": "169.254.169.254", "path": "/latest/meta-data", "port": 80}}}
            hooks = {"app": {"preStop": {"httpGet": {"port": "http"}}}} if name != "forged" else {}
            await one.request(pod, "app", name=name, said=said, hooks=hooks)
            await until_state(one, name, phase="Recreating", app="Recreating")
        assert "the IP address of the Pod is unknown" in (await one.events("FailedPreStopHook"))[0]
    assert network.asked == ["127.0.0.1:80"]
    assert [container for container, _ in one.runtime.stops] == [container.id for container in own]


@pytest.mark.behaviour("CRR-67")
@on_node
async def test_endless_hooks_in_several_namespaces_block_no_other_pod(one: Node, agent: Agent) -> None:
    for namespace in ("tenant", "others"):
        await one.client.create(NAMESPACES, {"metadata": {"name": namespace}})
    hooks = {"app": {"preStop": {"sleep": {"seconds": 10**9}}}}
    for number in range(110):  # a kubelet's default maximum
        namespace = (NAMESPACE, "tenant")[number % 2]
        pod = await one.pod({"name": "app"}, name=f"slow-{number}", namespace=namespace)
        asked = {"terminationGracePeriodSeconds": 10**9, "hooks": hooks}
        await one.request(pod, "app", name=f"slow-{number}", **asked)
    await one.clock.sleep(60)
    pod = await one.pod({"name": "app"}, namespace="others")
    await one.request(pod, "app")
    await stopped(one)
    stops = [container for container, _ in one.runtime.stops]
    assert stops == [one.newest(pod["metadata"]["uid"], "app").id]


@pytest.mark.behaviour("CRR-50", "KD-99")
@pytest.mark.parametrize("label", [POD_NAMESPACE, POD_UID])
@on_node
async def test_a_container_of_another_pod_or_namespace_is_not_stopped(one: Node, agent: Agent, label: str) -> None:
    pod = await one.pod({"name": "app"})
    container = one.newest(pod["metadata"]["uid"], "app")
    container.labels[label] = "another"
    await one.request(pod, "app", forceRecreate=True)
    await until_state(one, phase="Recreating", app="Pending")
    await one.clock.sleep(60)
    assert one.runtime.stops == []
    del container.labels[label]
    await stopped(one)


@pytest.mark.behaviour("CRR-34")
@on_node
async def test_a_missing_runtime_fails_the_request(one: Node, agent: Agent) -> None:
    pod = await one.pod({"name": "app"})
    pod["status"]["containerStatuses"][0]["containerID"] = "docker://abc"
    await one.request(pod, "app")
    await until_state(one, phase="Completed")
    status = await one.status(RECREATE_REQUESTS, "again")
    assert status["message"] == "failed to find runtime service: no runtime docker on this node"


@pytest.mark.behaviour("KD-17", "CRR-37")
@pytest.mark.parametrize("forced", [False, True])
@pytest.mark.parametrize("after", range(1, 14, 2))
@on_bare_node
async def test_an_interrupted_agent_stops_each_container_once(one: Node, forced: bool, after: int) -> None:
    one.runtime.on_stop = one.restart
    pod = await one.pod({"name": "app"})
    one.newest(pod["metadata"]["uid"], "app").stop_seconds = 1.0
    await one.request(pod, "app", forceRecreate=forced)
    async with running(one.agent().run()):
        await one.clock.sleep(after / 8)
    async with running(one.agent().run()):
        await one.until(lambda: len(one.runtime.known) == 2)
        await one.clock.sleep(60)
        await one.snapshot(pod["metadata"]["uid"], "app")
        await until_state(one, phase="Completed", app="Succeeded")
    # The same container may be stopped twice, but never its successor.
    assert len({container for container, _ in one.runtime.stops}) == 1
    assert len(one.runtime.known) == 2


@pytest.mark.behaviour("KD-16")
@pytest.mark.parametrize("stopping", [False, True])
@on_node
async def test_an_unavailable_runtime_is_waited_for(one: Node, agent: Agent, stopping: bool) -> None:
    one.runtime.on_stop = one.restart
    pod = await one.pod({"name": "app"})
    one.newest(pod["metadata"]["uid"], "app").stop_seconds = 1.0
    one.runtime.away = not stopping
    await one.request(pod, "app")
    if stopping:
        await stopped(one)
        one.runtime.away = True
    else:
        await until_state(one, phase="Recreating")
    await one.clock.sleep(60)
    one.runtime.away = False
    await until_state(one, phase="Recreating", app="Recreating")


@pytest.mark.behaviour("CRR-35", "CRR-38")
@on_node
async def test_a_container_counts_after_its_minimum_running_time(one: Node, agent: Agent) -> None:
    one.runtime.on_stop = one.restart
    pod = await one.pod({"name": "app"})
    await one.request(pod, "app", minStartedSeconds=10)
    await until_state(one, phase="Recreating", app="Recreating")
    began = one.clock.monotonic()
    await one.snapshot(pod["metadata"]["uid"], "app")
    await one.clock.sleep(9)
    await until_state(one, phase="Recreating", app="Recreating")
    await until_state(one, phase="Completed", app="Succeeded")
    # The node polls every ten seconds.
    assert 10 <= one.clock.monotonic() - began <= 21


@pytest.mark.behaviour("CRR-63")
@pytest.mark.parametrize("forced", [False, True])
@on_node
async def test_final_container_states_are_kept(one: Node, agent: Agent, forced: bool) -> None:
    """Results that arrive after the end of the request are ignored."""
    pod = await one.pod({"name": "app"})
    one.newest(pod["metadata"]["uid"], "app").stop_seconds = 10.0
    await one.request(pod, "app", forceRecreate=forced)

    await stopped(one)
    # Unrelated writes in the meantime.
    snapshot = {"containerStatusSnapshot": [{"name": "app", "containerID": "x", "ready": True, "restartCount": 0}]}
    await one.client.patch(RECREATE_REQUESTS, "again", {"status": snapshot}, NAMESPACE, subresource="status")
    states = [{"name": "app", "phase": "Failed", "message": "the Pod has ended"}]
    ended = {"phase": "Completed", "completionTime": "2030-01-01T00:00:00Z", "containerRecreateStates": states}
    await one.client.patch(RECREATE_REQUESTS, "again", {"status": ended}, NAMESPACE, subresource="status")
    await one.clock.sleep(60)
    assert (await one.status(RECREATE_REQUESTS, "again"))["containerRecreateStates"] == states
    assert len(one.runtime.stops) == 1


@pytest.mark.behaviour("CRR-41")
@on_node
async def test_states_written_by_another_agent_are_kept(one: Node, agent: Agent) -> None:
    """While an agent is replaced, the former one may still be stopping a container."""
    pod = await one.pod({"name": "app"})
    one.newest(pod["metadata"]["uid"], "app").stop_seconds = 10.0
    await one.request(pod, "app")
    await stopped(one)
    states = [{"name": "app", "phase": "Succeeded"}]
    body = {"status": {"containerRecreateStates": states}}
    await one.client.patch(RECREATE_REQUESTS, "again", body, NAMESPACE, subresource="status")
    await until_state(one, phase="Completed", app="Succeeded")
    assert len(one.runtime.stops) == 1
