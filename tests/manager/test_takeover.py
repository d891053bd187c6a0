"""Taking over from OpenKruise and giving back: the plan, on the sandbox, and on a real API server."""

import asyncio
import base64
import contextlib
import gzip
import itertools
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any

import pytest

from app.cli.takeover import ROLLOUT_SECONDS, run
from app.kube.client import Client
from app.kube.clock import SystemClock
from app.kube.config import load_config
from app.kube.errors import AlreadyExists, CommandError, RequestInfo, TransportError
from app.kube.resources import (
    CONFIGMAPS,
    CUSTOMRESOURCEDEFINITIONS,
    DEPLOYMENTS,
    NAMESPACES,
    PODS,
    SERVICEACCOUNTS,
    SERVICES,
    Resource,
)
from app.kube.transport import AiohttpTransport
from app.kube.wire import Request, Response, Stream, Transport
from app.manager.features import reconciled_kinds
from app.manager.permissions import CLUSTER_ROLE, all_rules, manifests
from app.manager.takeover.model import (
    BACKUP,
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    CONFIGURATIONS,
    DAEMON,
    ROLE_BINDINGS,
    ROLES,
    ROLLING,
    Installed,
    Plan,
    TakeoverError,
    unpacked,
)
from app.manager.takeover.plan import back_plan, takeover_plan
from app.manager.uninstall import DEPLOYMENT
from tests import openkruise
from tests.cluster.controlplane import ControlPlane
from tests.sandbox.cluster import Simulated, in_simulated

NAMESPACE = "kruise-system"
IMAGE = "registry.example/kruise-manager:v0.1.0"
SERVED = {kind.crd_name for kind in reconciled_kinds()}
RESOURCES: dict[str, Resource] = {
    resource.kind: resource
    for resource in (
        *(CUSTOMRESOURCEDEFINITIONS, DEPLOYMENTS, SERVICEACCOUNTS, SERVICES),
        *(CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS, ROLES, ROLE_BINDINGS),
        *(resource for resource, _ in CONFIGURATIONS),
    )
}


def seen(**changes: Any) -> Installed:
    """What OpenKruise's installation looks like, without an object of its kinds."""
    items = openkruise.installed()
    deployment = openkruise.deployment()
    deployment["metadata"] |= {"uid": "1", "resourceVersion": "1"}
    found = Installed(
        NAMESPACE,
        deployment=deployment,
        definitions={one["metadata"]["name"]: one for one in items if one["kind"] == "CustomResourceDefinition"},
        configurations={one["metadata"]["name"]: one for one in items if "webhooks" in one},
        cluster_role=next(one for one in items if one["metadata"]["name"] == CLUSTER_ROLE),
    )
    return replace(found, **changes)


def planned(installed: Installed, image: str = IMAGE, **options: Any) -> Plan:
    return takeover_plan(installed, image, reconciled_kinds(), all_rules(), **options)


def given(*arguments: str) -> dict[str, Any]:
    deployment = seen().deployment
    assert deployment is not None
    deployment["spec"]["template"]["spec"]["containers"][0]["args"] = list(arguments)
    return deployment


def with_unserved(strategy: str = "None") -> Installed:
    spec = {
        "group": "apps.kruise.io",
        "names": {"kind": "NewKind", "plural": "newkinds"},
        "versions": [{"name": "v1alpha1", "served": True, "storage": True}],
        "conversion": {"strategy": strategy},
    }
    definition = {"metadata": {"name": "newkinds.apps.kruise.io"}, "spec": spec}
    return seen(definitions={"newkinds.apps.kruise.io": definition}, objects={"newkinds.apps.kruise.io": 3})


@pytest.mark.behaviour("MGR-143")
@pytest.mark.parametrize(
    ("installed", "blocker"),
    [
        (seen(deployment=None), "nothing to take over"),
        (seen(cluster_role=None), "ClusterRole kruise-manager-role: not there"),
        (seen(deployment=given("--no-such-flag")), "unknown flag --no-such-flag"),
        (seen(deployment=given("--feature-gates=NoSuchGate=true")), "NoSuchGate"),
        (with_unserved(), "NewKind: 3 objects, not served here"),
        (with_unserved("Webhook"), "read in the stored version only; delete them, or keep them"),
    ],
)
def test_what_keeps_it_from_being_done_is_named_and_nothing_is_planned(installed: Installed, blocker: str) -> None:
    plan = planned(installed)
    assert blocker in " ".join(plan.blockers)
    assert plan.steps == ()


def test_without_an_image_nothing_is_planned() -> None:
    plan = planned(seen(), image="")
    assert [blocker.partition(":")[0] for blocker in plan.blockers] == ["--image"]
    assert plan.steps == ()


@pytest.mark.behaviour("MGR-143")
def test_what_means_nothing_here_is_said() -> None:
    assert any("NewKind: 3 objects" in warning for warning in planned(with_unserved(), leave_unserved=True).warnings)
    plan = planned(seen(daemon={"metadata": {"name": DAEMON}}))
    assert "CloneSet: served here, 0 objects" in plan.facts
    assert any(fact.startswith("flags that keep their meaning: ") and "--v" in fact for fact in plan.facts)
    assert any("--sync-period" in warning for warning in plan.warnings)
    assert f"DaemonSet {NAMESPACE}/{DAEMON}: stays as it is" in plan.facts
    by_helm = given()
    by_helm["metadata"]["annotations"] = {"meta.helm.sh/release-name": "kruise"}
    assert any("Helm's release kruise" in warning for warning in planned(seen(deployment=by_helm)).warnings)


@pytest.mark.behaviour("MGR-144")
def test_the_order_leaves_no_moment_without_an_answer() -> None:
    steps = planned(seen()).steps
    order = [(step.action, step.resource.kind) for step in steps]
    rights, deployment = order.index(("patch", "ClusterRole")), order.index(("patch", "Deployment"))
    wait = order.index(("wait", "Deployment"))
    assert order[0] == ("create", "ConfigMap")  # what was there is kept before anything changes
    assert rights < deployment < wait
    # Who answers /convert is ours alone when a definition says that there is something to convert.
    changed = [i for i, step in enumerate(steps) if step.name in seen().definitions and step.action == "apply"]
    assert changed
    assert min(changed) > wait
    assert order[-1] == ("patch", "ClusterRole")
    assert [order.count(("patch", "ClusterRole")), len(order) - 1 > wait] == [2, True]
    both = steps[rights].body["rules"]
    role = seen().cluster_role
    assert role is not None
    assert all(rule in both for rule in role["rules"])
    assert all(rule in both for rule in steps[-1].body["rules"])
    strategy = steps[deployment].body["spec"]["strategy"]
    assert strategy["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}


@pytest.mark.behaviour("MGR-144")
def test_definitions_keep_whom_the_api_server_trusts() -> None:
    for step in planned(seen()).steps:
        if step.action == "apply" and step.name in seen().definitions and "conversion" in step.body["spec"]:
            config = step.body["spec"]["conversion"]["webhook"]["clientConfig"]
            assert config["caBundle"].startswith("LS0t")
            assert config["service"]["namespace"] == NAMESPACE


def test_a_backup_that_cannot_be_read_is_said() -> None:
    for content in ({}, {"binaryData": None}, {"binaryData": {"before.json.gz": "!"}}):
        with pytest.raises(TakeoverError, match="cannot be read"):
            unpacked(content)
        with pytest.raises(TakeoverError, match="cannot be read"):
            planned(seen(backup=content))
    whole = gzip.compress(b"{}" * 100)
    for packed, why in ((whole[:20], "EOFError"), (b"BZh9", "error"), (gzip.compress(b"[]"), "TypeError")):
        with pytest.raises(TakeoverError, match=why):
            unpacked({"binaryData": {"before.json.gz": base64.b64encode(packed).decode()}})
    with pytest.raises(TakeoverError, match="EOFError"):  # it would unpack to more than anybody has
        unpacked({"binaryData": {"before.json.gz": base64.b64encode(gzip.compress(bytes(65 << 20), 1)).decode()}})
    assert back_plan(seen()).blockers
    assert back_plan(seen(backup={}, deployment=None)).blockers


# ---- carried out


async def laid(client: Client) -> None:
    """An installation of OpenKruise whose manager has two replicas."""
    labels = {"control-plane": "openkruise"}
    await client.create(
        NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}}
    )
    for item in [*openkruise.installed(), openkruise.deployment()]:
        bare = openkruise.bare(item)
        with contextlib.suppress(AlreadyExists):  # the ServiceAccount that every Namespace gets
            await client.create(RESOURCES[bare["kind"]], bare, bare["metadata"].get("namespace", ""))


async def everything(client: Client) -> dict[str, Any]:
    """What a takeover may change, without what only an API server writes."""
    found = {}
    for resource in RESOURCES.values():
        for item in (await client.list(resource, NAMESPACE if resource.namespaced else "")).items:
            name = item["metadata"]["name"]
            if "kruise" in name:
                kept = {key: value for key, value in item.items() if key not in ("metadata", "status")}
                found[f"{resource.kind} {name}"] = json.loads(json.dumps(kept))
    return found


async def check_there_and_back(client: Client) -> None:
    """Nothing without --yes; then our image, our definitions and rights; then everything as it was."""
    before = await everything(client)
    told: list[str] = []
    await run(client, NAMESPACE, IMAGE, say=told.append)
    assert await everything(client) == before
    assert told[-1] == "Nothing was changed; --yes applies the steps."
    pods = {pod["metadata"]["uid"] for pod in (await client.list(PODS, NAMESPACE)).items}

    await run(client, NAMESPACE, IMAGE, yes=True, say=told.append)
    taken = await everything(client)
    container = taken["Deployment kruise-controller-manager"]["spec"]["template"]["spec"]["containers"][0]
    arguments = openkruise.deployment()["spec"]["template"]["spec"]["containers"][0]["args"]
    assert (container["image"], container["args"]) == (IMAGE, arguments)
    assert "cpu" not in container["resources"]["limits"]
    for name in SERVED & {one["metadata"]["name"] for one in openkruise.installed()}:
        assert "description" in json.dumps(taken[f"CustomResourceDefinition {name}"])
    assert {pod["metadata"]["uid"] for pod in (await client.list(PODS, NAMESPACE)).items}.isdisjoint(pods)
    await run(client, NAMESPACE, IMAGE, yes=True, say=told.append)
    assert "taken over already" in told[-2]
    assert told[-1] == "Nothing to do; --back restores the previous installation."
    assert await everything(client) == taken
    with pytest.raises(CommandError):
        await run(client, NAMESPACE, "other", yes=True, say=told.append)
    assert "kubectl set image -n kruise-system deployment/kruise-controller-manager '*=other'" in told[-1]

    await run(client, NAMESPACE, "", yes=True, back=True, say=told.append)
    after = await everything(client)
    new = {f"CustomResourceDefinition {name}" for name in SERVED} - before.keys()
    assert after.keys() - new == before.keys()
    deployment = after["Deployment kruise-controller-manager"]["spec"]
    assert deployment.pop("strategy")["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}
    before["Deployment kruise-controller-manager"]["spec"].pop("strategy")
    for name, was in before.items():
        assert after[name] == was, name
    with pytest.raises(CommandError):
        await run(client, NAMESPACE, "", yes=True, back=True, say=told.append)


@pytest.mark.behaviour("MGR-143", "MGR-144", "MGR-145")
@in_simulated(2)
async def test_there_and_back_on_the_sandbox(world: Simulated) -> None:
    await laid(world.client)
    await check_there_and_back(world.client)


@pytest.mark.behaviour("MGR-144")
@in_simulated(0)
async def test_an_image_that_does_not_come_up_changes_nothing_else_and_can_be_given_back(world: Simulated) -> None:
    await laid(world.client)
    started = world.client.clock.monotonic()
    with pytest.raises(CommandError, match="0 available after 300 s; the old ones still serve"):
        await run(world.client, NAMESPACE, IMAGE, yes=True, say=lambda _: None)
    assert world.client.clock.monotonic() - started >= ROLLOUT_SECONDS
    definition = await world.client.get(CUSTOMRESOURCEDEFINITIONS, "clonesets.apps.kruise.io")
    assert "description" not in json.dumps(definition["spec"])
    assert await world.client.get(CONFIGMAPS, BACKUP, NAMESPACE)


# ---- interrupted


class Stopping:
    """Connections of somebody whose writes end in the middle: the first few arrive, the next one does what ``ends``
    says."""

    def __init__(self, inner: Transport, ends: str, writes: int = 0) -> None:
        self.inner, self.ends, self.writes = inner, ends, writes

    async def request(self, request: Request) -> Response:
        if request.method == "GET" or self.writes > 0:
            self.writes -= request.method != "GET"
            return await self.inner.request(request)
        if self.ends == "before":
            raise TransportError(RequestInfo(request.method, request.path), "connection refused")
        await self.inner.request(request)
        if self.ends == "Ctrl-C":
            raise asyncio.CancelledError
        raise TransportError(RequestInfo(request.method, request.path), "connection reset by peer")

    def stream(self, request: Request) -> AbstractAsyncContextManager[Stream]:
        return self.inner.stream(request)

    async def close(self) -> None:
        await self.inner.close()


async def stopped(client: Client, ends: str, writes: int, *, image: str = IMAGE, back: bool = False) -> str:
    """How a takeover ends of which only the first writes arrive; nothing if those are all."""
    stopping = Client(Stopping(client.transport, ends, writes), client.clock)
    try:
        await run(stopping, NAMESPACE, image, yes=True, back=back, say=lambda _: None)
    except CommandError as error:
        return str(error)
    return ""


def is_taken_over(found: Mapping[str, Any]) -> bool:
    """Deployment, definitions and rights are ours, and nothing else is left."""
    container = found["Deployment kruise-controller-manager"]["spec"]["template"]["spec"]["containers"][0]
    wanted = next(one for one in manifests(all_rules(), NAMESPACE) if one["kind"] == "ClusterRole")
    return (
        (container["image"], container["command"]) == (IMAGE, ["pykruise", "manager"])
        and all("description" in json.dumps(found[f"CustomResourceDefinition {name}"]) for name in SERVED)
        and found[f"ClusterRole {CLUSTER_ROLE}"]["rules"] == wanted["rules"]
    )


@pytest.mark.behaviour("MGR-150", "CLI-23")
@pytest.mark.parametrize("ends", ["before", "after", "Ctrl-C"])
@in_simulated(2)
async def test_a_takeover_that_is_interrupted_after_each_write_in_turn_goes_on_where_it_stands(
    world: Simulated, ends: str
) -> None:
    await laid(world.client)
    ends_of: list[str] = []
    for _ in range(60):
        # Where nothing of a write arrives, one more arrives each time; else each is the last of its own command.
        if not (end := await stopped(world.client, ends, ends == "before")):
            break
        ends_of.append(end)
    taken = await everything(world.client)
    assert is_taken_over(taken)
    assert len(ends_of) > 20
    assert all("run the same command to resume" in end for end in ends_of)


async def refused(client: Client, **options: Any) -> str:
    told: list[str] = []
    with pytest.raises(CommandError):
        await run(client, NAMESPACE, IMAGE, say=told.append, **options)
    return told[-1]


@pytest.mark.behaviour("MGR-145", "MGR-150")
@in_simulated(2)
async def test_from_wherever_it_stands_it_is_given_back_or_taken_over_after_all(world: Simulated) -> None:
    await laid(world.client)
    before = await everything(world.client)
    before["Deployment kruise-controller-manager"]["spec"]["strategy"] = dict(ROLLING)
    writes = 0
    while await stopped(world.client, "after", writes):
        writes += 1
        # Also giving back is interrupted, a little later each time; then somebody thinks better of it.
        if await stopped(world.client, "Ctrl-C", writes % 9, back=True) and writes % 2:
            await run(world.client, NAMESPACE, IMAGE, yes=True, say=lambda _: None)
            assert is_taken_over(await everything(world.client))
        if (await everything(world.client)) != before and await kept(world.client):
            await run(world.client, NAMESPACE, "", yes=True, back=True, say=lambda _: None)
        after = await everything(world.client)
        assert {name: after[name] for name in before} == before
    assert writes > 20


async def kept(client: Client) -> bool:
    return any(one["metadata"]["name"] == BACKUP for one in (await client.list(CONFIGMAPS, NAMESPACE)).items)


@pytest.mark.behaviour("MGR-150")
@in_simulated(2)
async def test_what_is_left_is_said_and_needs_no_image(world: Simulated) -> None:
    await laid(world.client)
    assert await stopped(world.client, "after", 8)
    told: list[str] = []
    await run(world.client, NAMESPACE, IMAGE, say=told.append)
    assert any("  a takeover was begun: 10 of its 26 steps are done" in line for line in told)
    assert [line.partition(".")[0] for line in told if line.startswith("  1.")] == ["  1"]
    await run(world.client, NAMESPACE, "", yes=True, say=told.append)
    assert is_taken_over(await everything(world.client))


@pytest.mark.behaviour("MGR-150")
@in_simulated(0)
async def test_an_image_that_does_not_come_up_is_corrected_by_the_same_command(world: Simulated) -> None:
    await laid(world.client)
    assert "if need be with another --image" in await stopped(world.client, "", 1000, image=f"{IMAGE}-wrong")
    told: list[str] = []
    await run(world.client, NAMESPACE, IMAGE, say=told.append)
    assert any(f"run {IMAGE}" in line for line in told)
    assert not any("add our rights" in line for line in told)


@pytest.mark.behaviour("MGR-150")
@in_simulated(2)
async def test_what_somebody_changed_after_it_was_begun_is_not_taken_for_what_is_kept(world: Simulated) -> None:
    await laid(world.client)
    assert await stopped(world.client, "after", 3)
    newer = {"spec": {"template": {"spec": {"containers": [{"name": "manager", "image": "openkruise/x:v2"}]}}}}
    await world.client.patch(DEPLOYMENTS, DEPLOYMENT, newer, NAMESPACE)
    assert "holds a Deployment with openkruise/kruise-manager:v1.8.0" in await refused(world.client, yes=True)


async def mark_ready(client: Client) -> None:
    """What kubelets would say of Pods; there are no nodes."""
    while True:
        for pod in (await client.list(PODS, NAMESPACE)).items:
            if (pod.get("status") or {}).get("phase") != "Running" and "deletionTimestamp" not in pod["metadata"]:
                await client.patch(PODS, pod["metadata"]["name"], _READY, NAMESPACE, subresource="status")
        await asyncio.sleep(0.2)


_READY: Mapping[str, Any] = {
    "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
}


@contextlib.asynccontextmanager
async def real(control_plane: ControlPlane) -> AsyncIterator[Client]:
    transport = AiohttpTransport(await load_config(str(control_plane.kubeconfig), None))
    client = Client(transport, SystemClock())
    kubelets = asyncio.create_task(mark_ready(client))
    try:
        yield client
    finally:
        kubelets.cancel()
        await asyncio.gather(kubelets, return_exceptions=True)
        await transport.close()


@pytest.mark.controlplane
@pytest.mark.behaviour("MGR-143", "MGR-144", "MGR-145", "MGR-150")
async def test_there_and_back_on_a_real_api_server() -> None:
    with ControlPlane(controller_manager_args=["--controllers=*,-podgc"]) as started:
        async with real(started) as client:
            await laid(client)
            await check_there_and_back(client)
            arrive = itertools.count(1)
            while await stopped(client, "after", next(arrive)):
                pass
            assert is_taken_over(await everything(client))
