"""Probing containers: the state machine, and an agent with a simulated runtime."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.daemon import probe_plan
from app.daemon.agent import Features
from app.daemon.cri.types import ContainerDetails, ContainerState, CriError, ExecResult, RuntimeUnavailable
from app.daemon.objects import NODE_POD_PROBES, Probe, decode_node_pod_probe
from app.daemon.probe_plan import Key, ProbeProgress, Result, Wanted
from app.daemon.prober import AT_ONCE, PER_SECOND
from app.daemon.probes_and_hooks import MAX_MESSAGE, Outcome, ProbeError, text_of
from app.kube.resources import EVENTS, NAMESPACES, PODS
from tests.daemon.node import NAMESPACE, NODE, Agent, Listening, Node, node_with_agent, on_bare_node, on_node, pod_probe
from tests.kube.fakes import running, virtual

WALL = 1_900_000_000.0


def container(id_: str = "c1", state: ContainerState = ContainerState.RUNNING, ago: float = 100) -> ContainerDetails:
    started = int((WALL - ago) * 1e9)
    return ContainerDetails(id_, "main", state, started, started)


PLAIN = Wanted(Probe(), "10.0.0.1")


@pytest.mark.behaviour("KD-61")
@pytest.mark.parametrize("number", [-5, 0, 1, 7])
def test_unset_fields_default_to_one(number: int) -> None:
    want = Wanted(Probe(None, None, None, number, number, number, number, number), "")
    assert {want.period, want.timeout, want.delay} == {float(max(1, number))}
    assert {want.threshold(True), want.threshold(False)} == {max(1, number)}


@pytest.mark.behaviour("KD-63", "KD-93")
@pytest.mark.parametrize(
    ("progress", "seen", "state", "probes", "changed"),
    [
        (ProbeProgress(), None, "", False, False),
        (ProbeProgress("c1", state="Succeeded"), None, "Succeeded", False, False),
        (ProbeProgress(), container(), "Unknown", True, True),
        (ProbeProgress("c0", True, 5, "Succeeded"), container(), "Unknown", True, True),
        (ProbeProgress("c1", True, 5, "Succeeded"), container(), "Succeeded", True, False),
        (ProbeProgress("c1", True, 5, "Succeeded"), container(state=ContainerState.EXITED), "Failed", False, True),
        (ProbeProgress("c1"), container(ago=0.5), "", False, False),
    ],
)
def test_a_probe_starts_after_its_initial_delay(
    progress: ProbeProgress, seen: ContainerDetails | None, state: str, probes: bool, changed: bool
) -> None:
    step = probe_plan.before(progress, seen, PLAIN, 0.0, WALL)
    assert (step.progress.state, step.probe, step.changed) == (state, probes, changed)


@pytest.mark.behaviour("KD-63", "KD-66")
def test_a_result_counts_after_consecutive_repetitions() -> None:
    want = Wanted(Probe(success_threshold=2, failure_threshold=3), "")
    progress, said = ProbeProgress("c1", state="Unknown"), []
    for outcome in (True, True, False, False, True, False, False, False):
        step = probe_plan.after(progress, Outcome(outcome, "m"), want, 0.0)
        progress = step.progress
        said.append(progress.state if step.changed else "")
    assert said == ["", "Succeeded", "", "", "", "", "", "Failed"]


@pytest.mark.behaviour("KD-66")
def test_the_same_result_is_reported_again_after_ten_minutes() -> None:
    progress = probe_plan.after(ProbeProgress("c1"), Outcome(True, "m"), PLAIN, 100.0).progress
    assert not probe_plan.after(progress, Outcome(True, "m"), PLAIN, 699.0).changed
    assert probe_plan.after(progress, Outcome(True, "m"), PLAIN, 700.0).changed
    assert probe_plan.after(progress, Outcome(True, "other"), PLAIN, 101.0).changed


@pytest.mark.behaviour("KD-65")
@given(st.binary(max_size=4000))
def test_messages_are_cut_at_whole_characters(output: bytes) -> None:
    message = text_of(output)
    assert len(message) <= MAX_MESSAGE
    assert "\x00" not in message
    assert text_of(("é" * 2000).encode()) == "é" * 512
    assert text_of(("é" * 1024).encode()) == "é" * 1024, "as long as it has no more characters it stays"


def node_pod_probe(*states: dict[str, str]) -> Any:
    probes = [{"name": f"ppm#{name}", "containerName": "main", "probe": {}} for name in ("a", "b")]
    spec = {"podProbes": [{"name": "p", "namespace": "ns", "uid": "u", "IP": "", "probes": probes}]}
    status = {"podProbeStatuses": [{"name": "p", "namespace": "ns", "uid": "u", "probeStates": list(states)}]}
    return decode_node_pod_probe(msgspec.json.encode({"metadata": {"name": "n"}, "spec": spec, "status": status}))


KEY = Key("ns", "p", "u", "main", "ppm#a")
THEN, NOW = "2030-01-01T00:00:00Z", "2030-01-01T01:00:00Z"


@pytest.mark.behaviour("KD-67", "KD-66")
@pytest.mark.parametrize(
    ("before", "result", "after", "news"),
    [
        ([], Result("Succeeded", "m", NOW), {"lastTransitionTime": NOW, "state": "Succeeded"}, 1),
        (
            [{"name": "ppm#a", "state": "Succeeded", "lastTransitionTime": THEN, "lastProbeTime": THEN}],
            Result("Succeeded", "", NOW),
            {"lastTransitionTime": THEN, "lastProbeTime": NOW},
            0,
        ),
        (
            [{"name": "ppm#a", "state": "Failed", "lastTransitionTime": THEN}],
            Result("Succeeded", "", NOW),
            {"lastTransitionTime": NOW},
            1,
        ),
    ],
)
def test_the_status_has_the_time_of_the_transition(
    before: Any, result: Result, after: dict[str, str], news: int
) -> None:
    report = probe_plan.report(node_pod_probe(*before), {KEY: result})
    assert report.status is not None
    state = report.status["podProbeStatuses"][0]["probeStates"][0]
    assert state.items() >= after.items()
    assert len(report.news) == news


@pytest.mark.behaviour("KD-67", "KD-66")
def test_the_status_drops_removed_probes_and_is_written_once() -> None:
    gone = {"name": "ppm#gone", "state": "Succeeded"}
    report = probe_plan.report(node_pod_probe(gone), {KEY: Result("Succeeded", "", NOW)})
    assert report.status is not None
    assert [state["name"] for state in report.status["podProbeStatuses"][0]["probeStates"]] == ["ppm#a"]
    same = {"name": "ppm#a", "state": "Succeeded", "lastProbeTime": NOW, "lastTransitionTime": NOW}
    assert probe_plan.report(node_pod_probe(same), {KEY: Result("Succeeded", "", NOW)}).status is None


@pytest.mark.behaviour("KD-98")
@pytest.mark.parametrize(("character", "stored"), [("漢", 3), ("a", 1), ("<", 6), ("\x01", 6), ("\u2028", 6), ('"', 2)])
def test_many_verbose_probes_do_not_fill_the_object(character: str, stored: int) -> None:
    probes = [{"name": f"ppm#{number}", "containerName": "main", "probe": {}} for number in range(2_000)]
    pod = {"name": "p", "namespace": "ns", "uid": "u", "IP": "", "probes": probes}
    asked = decode_node_pod_probe(json.dumps({"spec": {"podProbes": [pod]}}).encode())
    said = character * 1024
    results = {Key("ns", "p", "u", "main", probe["name"]): Result("Succeeded", said, NOW) for probe in probes}
    report = probe_plan.report(asked, results)
    assert report.status is not None
    messages = [state["message"] for state in report.status["podProbeStatuses"][0]["probeStates"]]
    # Each message gets an equal share of the stored JSON.
    assert set(messages) == {said[: probe_plan.MAX_MESSAGES // 2_000 // stored]}
    assert {result.message for _, result in report.news} == set(messages)
    # A truncated message is not a change the next time.
    written = json.dumps({"spec": {"podProbes": [pod]}, "status": report.status}).encode()
    assert probe_plan.report(decode_node_pod_probe(written), results) == probe_plan.Report(None)


@pytest.mark.behaviour("KD-67")
def test_a_result_is_not_assigned_to_another_pod_of_the_name() -> None:
    report = probe_plan.report(node_pod_probe(), {KEY._replace(uid="other"): Result("Failed", "", NOW)})
    assert report.news == ()
    assert report.status == {"podProbeStatuses": None}, "nothing is known of this one, and nothing empty is left"


# --- On a node


def command(*words: str, **more: Any) -> dict[str, Any]:
    return {"exec": {"command": list(words)}, **more}


async def states(one: Node) -> list[str]:
    status = await one.status(NODE_POD_PROBES)
    pods = status.get("podProbeStatuses", [])
    return [f"{state['state']}:{state.get('message', '')}" for pod in pods for state in pod["probeStates"]]


async def until_states(one: Node, *wanted: str) -> None:
    await one.becomes(lambda: states(one), list(wanted), 120)


async def probed_pod(one: Node, *probes: dict[str, Any]) -> dict[str, Any]:
    pod = await one.pod({"name": "main"})
    await one.probes(pod_probe(pod, *probes))
    return pod


async def version(one: Node) -> str:
    return str((await one.client.get(NODE_POD_PROBES, NODE))["metadata"]["resourceVersion"])


@pytest.mark.behaviour("KD-60", "KD-64", "KD-68", "KD-90")
@on_node
async def test_probes_of_one_container_have_separate_results(one: Node, agent: Agent) -> None:
    await one.clock.sleep(10)  # the probes begin at the same time
    await probed_pod(
        one,
        command("echo", "idle"),
        command("cat", "/none"),
        command("sleep", "9", timeoutSeconds=2),
        command("true", container="absent"),
    )
    await until_states(
        one, "Succeeded:idle\n", "Failed:cat: not found", 'Failed:command timed out: "sleep 9" timed out after 2s'
    )
    assert await one.events("KruiseProbeSucceeded") == ["KruiseProbeSucceeded: idle\n"]
    assert "KruiseProbeFailed: cat: not found" in await one.events("KruiseProbeFailed")
    places = {event["involvedObject"]["namespace"] for event in (await one.client.list(EVENTS)).items}
    assert places == {NAMESPACE}


@pytest.mark.behaviour("KD-63", "KD-69")
@on_node
async def test_an_impossible_probe_is_reported_once_and_keeps_other_results(one: Node, agent: Agent) -> None:
    pod = await one.pod({"name": "main"})
    container = one.newest(pod["metadata"]["uid"], "main")
    missing = iter(range(10_000))

    def away(_command: Any) -> ExecResult:
        raise RuntimeUnavailable("connection refused")

    def execute(_command: Any) -> ExecResult:
        raise CriError(f'exec "{next(missing)}" failed: /no/such: no such file or directory')

    container.execute = away
    await one.probes(pod_probe(pod, command("/no/such")))
    await until_states(one, "Unknown:")
    await one.clock.sleep(20)
    assert await states(one) == ["Unknown:"], "the runtime says nothing about the container while it restarts"
    container.execute = execute
    await until_states(one, 'Unknown:exec "0" failed: /no/such: no such file or directory')
    before = await version(one)
    await one.clock.sleep(500)
    assert await version(one) == before
    assert len(await one.events("KruiseProbeFailed")) == 2, "Unknown, and why"
    container.execute = lambda _command: ExecResult(0, stdout=b"fine")
    await until_states(one, "Succeeded:fine")
    container.execute = execute
    await one.clock.sleep(60)
    assert await states(one) == ["Succeeded:fine"]


@pytest.mark.behaviour("KD-66")
@on_node
async def test_a_stable_probe_writes_nothing(one: Node, agent: Agent) -> None:
    await probed_pod(one, command("sleep", "2", timeoutSeconds=3))
    await until_states(one, "Succeeded:")
    before = await version(one)
    asked, listed = len(one.runtime.commands), one.runtime.lists
    await one.clock.sleep(500)
    assert await version(one) == before
    assert 95 <= len(one.runtime.commands) - asked <= 101
    assert one.runtime.lists - listed <= 51


@pytest.mark.behaviour("KD-66")
@on_node
async def test_probes_whose_messages_always_change_are_written_once_a_second(one: Node, agent: Agent) -> None:
    """Each write holds the results of all Pods, and the manager reads each."""
    pod = await one.pod({"name": "main"})
    number = 0

    def execute(_command: Any) -> ExecResult:
        nonlocal number
        number += 1
        return ExecResult(0, stdout=f"{min(number, 500)}".encode())

    one.newest(pod["metadata"]["uid"], "main").execute = execute
    await one.probes(pod_probe(pod, *(command("count", str(index), periodSeconds=1) for index in range(10))))
    versions = set()
    for _ in range(200):
        await one.clock.sleep(0.1)
        versions.add(await version(one))
    assert 20 <= len(versions) <= 31
    await until_states(one, *["Succeeded:500"] * 10)


@pytest.mark.behaviour("KD-62")
@on_bare_node
async def test_probes_are_spread_only_after_a_start_of_the_agent(one: Node) -> None:
    pod = await one.pod({"name": "main"})
    async with running(one.agent().run()):
        done = []
        for number in range(20, 60, 20):
            await one.probes(pod_probe(pod, *(command(str(index), periodSeconds=60) for index in range(number))))
            for seconds in (2, 59):
                await one.clock.sleep(seconds)
                done.append(len({words for _, words in one.runtime.commands}))
    assert 0 < done[0] < 5
    assert done[1:] == [20, 40, 40]


@pytest.mark.behaviour("KD-63")
@pytest.mark.parametrize(
    ("watched", "sign", "seconds"),
    [
        (True, "none", 11),
        (False, "none", 2),
        (True, "the Pod is updated", 2),
        (True, "another container has ended", 2),
        (True, "the probe fails", 3),
        (True, "the probe cannot run", 3),
    ],
)
@virtual
async def test_a_restarted_container_is_noticed(watched: bool, sign: str, seconds: float) -> None:
    network = Listening()
    async with node_with_agent(network=network, features=Features(pods=watched)) as (one, agent):
        pod = await one.pod({"name": "main"}, {"name": "side"})
        first, side = (one.newest(pod["metadata"]["uid"], name) for name in ("main", "side"))
        if sign == "another container has ended":
            side.state = ContainerState.EXITED
        await one.probes(pod_probe(pod, {"tcpSocket": {"port": 80}, "periodSeconds": 1, "initialDelaySeconds": 30}))
        await until_states(one, "Succeeded:")
        await one.clock.sleep(12)
        one.restart(first)
        if sign == "the Pod is updated":
            await one.client.patch(PODS, "web-0", {"metadata": {"labels": {"a": "b"}}}, NAMESPACE)
        network.answer = {"the probe fails": Outcome(False), "the probe cannot run": ProbeError()}.get(
            sign, Outcome(True)
        )
        await one.clock.sleep(seconds)
        assert agent.prober is not None
        assert [*agent.prober.results.values()] == ["Unknown"]


@pytest.mark.behaviour("KD-60")
@on_node
async def test_a_removed_probe_ends_without_others_of_its_pod(one: Node, agent: Agent) -> None:
    pod = await one.pod({"name": "main"})
    truly = one.runtime.containers

    async def slow(uid: str) -> Any:
        await one.clock.sleep(3)
        return await truly(uid)

    one.runtime.containers = slow  # type: ignore[method-assign]
    await one.clock.sleep(10)
    await one.probes(pod_probe(pod, command("echo", "kept"), command("echo", "removed")))
    await one.clock.sleep(1)  # both wait for the containers
    await one.probes(pod_probe(pod, command("echo", "kept")))
    await until_states(one, "Succeeded:kept\n")
    await one.clock.sleep(20)
    assert {words[1] for _, words in one.runtime.commands} == {"kept"}


@pytest.mark.behaviour("KD-60", "KD-63")
@on_node
async def test_a_restarted_container_and_a_changed_probe_start_from_unknown(one: Node, agent: Agent) -> None:
    pod = await probed_pod(one, command("true", initialDelaySeconds=20))
    await until_states(one, "Succeeded:")
    first = one.newest(pod["metadata"]["uid"], "main")
    first.state = ContainerState.EXITED
    await until_states(one, "Failed:Container(main) is Non-running")
    one.restart(first)
    await until_states(one, "Unknown:")
    await until_states(one, "Succeeded:")
    await one.probes(pod_probe(pod, command("false", initialDelaySeconds=20)))
    await until_states(one, "Failed:")
    await one.probes()
    await until_states(one)


@pytest.mark.behaviour("KD-62")
@on_node
async def test_a_slow_probe_never_overlaps_with_itself(one: Node, agent: Agent) -> None:
    pod = await one.pod({"name": "main"})
    now, most, seconds = 0, 0, 12

    async def slow(_command: Any) -> ExecResult:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await one.clock.sleep(seconds)
        now -= 1
        return ExecResult(0)

    one.newest(pod["metadata"]["uid"], "main").execute = slow
    await one.probes(pod_probe(pod, command("slow", timeoutSeconds=30)))
    await until_states(one, "Succeeded:")
    await one.clock.sleep(120)
    assert most == 1
    # Missed probes are skipped.
    seconds, before = 0, len(one.runtime.commands)
    await one.clock.sleep(30)
    assert len(one.runtime.commands) - before <= 6
    seconds = 12
    # Results of the former probe do not count for the new one.
    runtime, made = one.newest(pod["metadata"]["uid"], "main"), one.clock.monotonic()
    while not now:
        await one.clock.sleep(1)
    await one.probes(pod_probe(pod, command("other", timeoutSeconds=30)))

    async def fails(_command: Any) -> ExecResult:
        await one.clock.sleep(30)
        return ExecResult(1)

    runtime.execute = fails
    found = []
    while one.clock.monotonic() - made < 40:
        await one.clock.sleep(1)
        found += await states(one)
    assert "Unknown:" in found
    assert found[found.index("Unknown:") :].count("Succeeded:") == 0


@pytest.mark.behaviour("KD-105")
@on_node
async def test_probes_of_one_namespace_are_limited_and_delay_no_other(one: Node, agent: Agent) -> None:
    await one.client.create(NAMESPACES, {"metadata": {"name": "others"}})
    running_now = 0

    async def forever(_command: Any) -> ExecResult:
        nonlocal running_now
        running_now += 1
        await one.clock.sleep(10**9)
        return ExecResult(0)

    probes = []
    for number in range(3):
        pod = await one.pod({"name": "main"}, name=f"web-{number}")
        one.newest(pod["metadata"]["uid"], "main").execute = forever
        commands = [command("x", str(index), timeoutSeconds=2**31 - 1) for index in range(20)]
        probes.append(pod_probe(pod, *commands))
    other = await one.pod({"name": "main"}, name="other", namespace="others")
    await one.probes(*probes, pod_probe(other, command("echo", "fine")))
    await one.clock.sleep(60)
    assert running_now == AT_ONCE
    assert agent.prober is not None
    assert [state for key, state in agent.prober.results.items() if key.namespace == "others"] == ["Succeeded"]


@pytest.mark.behaviour("KD-105")
@on_node
async def test_the_probes_of_one_namespace_have_a_maximum_rate(one: Node, agent: Agent) -> None:
    await one.client.create(NAMESPACES, {"metadata": {"name": "others"}})
    pods = [await one.pod({"name": "main"}, name=name, namespace=name) for name in (NAMESPACE, "others")]
    many = [command("echo", "many", periodSeconds=1) for _ in range(200)]
    few = [command("echo", "few", periodSeconds=5) for _ in range(3)]
    await one.probes(pod_probe(pods[0], *many), pod_probe(pods[1], *few))
    began = one.clock.monotonic()
    await one.clock.sleep(60)
    ran = Counter(words[1] for _, words in one.runtime.commands)
    assert 0.8 * PER_SECOND < ran["many"] / (one.clock.monotonic() - began) <= PER_SECOND
    assert ran["few"] == pytest.approx(36, abs=3)
    # Neither a longer period, which applies to the next Pod, nor new probes, which start at once, raise the rate.
    for number in range(10):
        changed = pod_probe(pods[0], *(command("echo", "many", periodSeconds=20) for _ in range(200)))
        for probe in changed["probes"]:
            probe["name"] += "x" * max(0, number - 5)
        await one.probes(changed, pod_probe(pods[1], *few))
        await one.clock.sleep(1)
    ran = Counter(words[1] for _, words in one.runtime.commands)
    assert ran["many"] / (one.clock.monotonic() - began) <= PER_SECOND


@pytest.mark.behaviour("KD-67")
@on_node
async def test_a_replaced_pod_is_not_probed_under_its_old_uid(one: Node, agent: Agent) -> None:
    await probed_pod(one, command("true"))
    await until_states(one, "Succeeded:")
    await one.client.delete(PODS, "web-0", NAMESPACE, grace_period_seconds=0)
    one.runtime.known.clear()
    again = await one.pod({"name": "main"})
    asked = len(one.runtime.commands)
    await one.clock.sleep(60)
    assert len(one.runtime.commands) == asked
    await one.probes(pod_probe(again, command("false")))
    await until_states(one, "Failed:")
    uids = [entry["uid"] for entry in (await one.status(NODE_POD_PROBES))["podProbeStatuses"]]
    assert uids == [again["metadata"]["uid"]]


@pytest.mark.behaviour("KD-16", "KD-63")
@pytest.mark.parametrize("away", [True, False])
@on_node
async def test_probes_continue_after_an_error_of_the_runtime(one: Node, agent: Agent, away: bool) -> None:
    pod = await probed_pod(one, command("true"))
    await until_states(one, "Succeeded:")
    container, one.runtime.away = one.newest(pod["metadata"]["uid"], "main"), away

    def buggy(_command: Any) -> ExecResult:
        raise ZeroDivisionError

    container.execute = buggy
    await one.clock.sleep(60)
    assert await states(one) == ["Succeeded:"]
    container.execute = lambda _command: ExecResult(3, stderr=b"no")
    one.runtime.away = False
    await until_states(one, "Failed:no")
