"""Takeover from OpenKruise and back: the plan, on the sandbox, and on a real API server."""

import asyncio
import base64
import contextlib
import gzip
import itertools
import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from app.admission.configurations import CONFIGURATIONS
from app.cli.takeover import ROLLOUT_SECONDS, WORK_SECONDS, _may_work, run
from app.daemon.objects import NODE_IMAGES
from app.kube.client import Client, PatchType
from app.kube.clock import SystemClock
from app.kube.config import load_config
from app.kube.errors import AlreadyExists, CommandError, RequestInfo, ServerError, TransportError
from app.kube.resources import (
    CONFIGMAPS,
    CUSTOMRESOURCEDEFINITIONS,
    DAEMONSETS,
    DEPLOYMENTS,
    NAMESPACES,
    NODES,
    PODS,
    SERVICEACCOUNTS,
    SERVICES,
    Resource,
)
from app.kube.transport import AiohttpTransport
from app.kube.wire import Request, Response, Transport
from app.manager.features import reconciled_kinds
from app.manager.rbac import CLUSTER_ROLE, all_rules, manifests
from app.manager.takeover.agents import work_of
from app.manager.takeover.model import (
    BACKUP,
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    DAEMON,
    DAEMON_ROLE,
    ROLE_BINDINGS,
    ROLES,
    ROLLING,
    Agent,
    Installed,
    Plan,
    TakeoverError,
    container_of,
    unpacked,
)
from app.manager.takeover.plan import back_plan, takeover_plan
from app.manager.uninstall import DEPLOYMENT
from tests import openkruise
from tests.cluster.controlplane import ControlPlane
from tests.kit.cluster import Waiting, scenarios
from tests.kit.objects import definition, version
from tests.kit.transports import Counting
from tests.kube.fakes import json_response
from tests.nightly import NIGHTLY
from tests.sandbox.cluster import Simulated, simulated
from tests.scenarios.world import running

NAMESPACE = "kruise-system"
IMAGE = "registry.example/kruise-manager:v0.1.0"
THEIRS = "openkruise/kruise-manager:v1.8.0"
SERVED = {kind.crd_name for kind in reconciled_kinds()}
#: OpenKruise's permission to read the scale of every kind.
SCALES = {"apiGroups": ["*"], "resources": ["*/scale"], "verbs": ["get", "list", "watch"]}
RESOURCES: dict[str, Resource] = {
    resource.kind: resource
    for resource in (
        *(CUSTOMRESOURCEDEFINITIONS, DAEMONSETS, DEPLOYMENTS, SERVICEACCOUNTS, SERVICES),
        *(CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS, ROLES, ROLE_BINDINGS),
        *(resource for resource, _ in CONFIGURATIONS),
    )
}


def seen(**changes: Any) -> Installed:
    """Return an installation of OpenKruise without objects of its kinds."""
    items = openkruise.installed()
    deployment = openkruise.deployment()
    deployment["metadata"] |= {"uid": "1", "resourceVersion": "1"}
    found = Installed(
        NAMESPACE,
        deployment=deployment,
        definitions={one["metadata"]["name"]: one for one in items if one["kind"] == "CustomResourceDefinition"},
        configurations={one["metadata"]["name"]: one for one in items if "webhooks" in one},
        cluster_role=next(one for one in items if one["metadata"]["name"] == CLUSTER_ROLE),
        agent_role=next(one for one in items if one["metadata"]["name"] == DAEMON_ROLE),
    )
    return replace(found, **changes)


def planned(installed: Installed, image: str = IMAGE, **options: Any) -> Plan:
    return takeover_plan(installed, image, reconciled_kinds(), all_rules(), **options)


def deployment_with(*arguments: str, image: str = THEIRS) -> dict[str, Any]:
    deployment = seen().deployment
    container_of(deployment).update(args=list(arguments), image=image)
    return deployment


def daemon_set(*more: str) -> dict[str, Any]:
    found = openkruise.daemon_set()
    found["metadata"]["uid"] = "2"
    container_of(found)["args"] += more
    return found


def with_unserved(strategy: str = "None") -> Installed:
    unserved = definition(
        "newkinds", "NewKind", version("v1alpha1"), group="apps.kruise.io", conversion={"strategy": strategy}
    )
    return seen(definitions={"newkinds.apps.kruise.io": unserved}, objects={"newkinds.apps.kruise.io": 3})


@pytest.mark.behaviour("MGR-143")
@pytest.mark.parametrize(
    ("installed", "blocker"),
    [
        (seen(deployment=None), "nothing to take over"),
        (seen(cluster_role=None), "ClusterRole kruise-manager-role: not found"),
        (seen(deployment=deployment_with("--no-such-flag")), "unknown flag --no-such-flag"),
        (seen(deployment=deployment_with("--feature-gates=NoSuchGate=true")), "NoSuchGate"),
        (with_unserved(), "NewKind: 3 objects, not served here"),
        (with_unserved("Webhook"), "readable only in the storage version; delete them, or keep them"),
    ],
)
def test_blockers_are_named_and_nothing_is_planned(installed: Installed, blocker: str) -> None:
    plan = planned(installed)
    assert blocker in " ".join(plan.blockers)
    assert plan.steps == ()


def test_without_an_image_nothing_is_planned() -> None:
    plan = planned(seen(), image="")
    assert [blocker.partition(":")[0] for blocker in plan.blockers] == ["--image"]
    assert plan.steps == ()


@pytest.mark.behaviour("MGR-143")
def test_settings_without_effect_are_reported() -> None:
    assert any("NewKind: 3 objects" in warning for warning in planned(with_unserved(), leave_unserved=True).warnings)
    plan = planned(seen(daemon=daemon_set()))
    assert "CloneSet: served here, 0 objects" in plan.facts
    assert any(fact.startswith("flags that keep their meaning: ") and "--v" in fact for fact in plan.facts)
    assert any("--sync-period" in warning for warning in plan.warnings)
    assert f"DaemonSet {NAMESPACE}/{DAEMON}: unchanged; add --agents to replace the node agents too" in plan.facts
    by_helm = deployment_with()
    by_helm["metadata"]["annotations"] = {"meta.helm.sh/release-name": "kruise"}
    assert any("Helm release kruise" in warning for warning in planned(seen(deployment=by_helm)).warnings)


def told_of(webhooks: list[dict[str, Any]]) -> tuple[str, ...]:
    return planned(seen(configurations={"m": {"webhooks": webhooks}})).warnings


@pytest.mark.behaviour("MGR-143")
def test_webhooks_that_will_no_longer_ignore_failures_are_reported() -> None:
    webhooks = [{"name": "mpod.kb.io", "failurePolicy": "Ignore"}, {"name": "vpod.kb.io", "failurePolicy": "Fail"}]
    text = "failurePolicy Ignore becomes Fail: mpod.kb.io. To keep it: docs/installing.md, Webhooks"
    assert text in told_of(webhooks)
    assert not any("failurePolicy" in one for one in planned(seen()).warnings)


@pytest.mark.behaviour("MGR-143", "PW-3")
@pytest.mark.parametrize(
    ("expression", "shown"),
    [
        ({"key": "control-plane", "operator": "DoesNotExist"}, "control-plane DoesNotExist; pykruise in all but"),
        ({"key": "control-plane", "operator": "NotIn", "values": ["openkruise"]}, ""),
        ({"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", NAMESPACE]}, ""),
        ({"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["a", "b"]}, "NotIn a, b; pykruise"),
    ],
)
def test_namespaces_that_lose_their_exemption_are_reported(expression: dict[str, Any], shown: str) -> None:
    webhooks = [
        {"name": "mpod.kb.io", "namespaceSelector": {"matchExpressions": [expression]}},
        {"name": "vpodprobemarker.kb.io", "namespaceSelector": {}},
    ]
    found = [one for one in told_of(webhooks) if "reviews Pods" in one]
    assert len(found) == bool(shown)
    assert all(shown in one for one in found)


@pytest.mark.behaviour("MGR-144")
def test_the_order_of_steps_leaves_no_gap_in_service() -> None:
    steps = planned(seen()).steps
    order = [(step.action, step.resource.kind) for step in steps]
    rights, deployment = order.index(("patch", "ClusterRole")), order.index(("patch", "Deployment"))
    wait = order.index(("wait", "Deployment"))
    assert order[0] == ("create", "ConfigMap")  # the backup comes before any change
    assert rights < deployment < wait
    # Definitions change only when our manager alone answers /convert.
    definitions = seen().definitions
    changed = [i for i, step in enumerate(steps) if step.name in definitions and step.action == "apply"]
    assert changed
    assert min(changed) > wait
    assert order[-1] == ("patch", "ClusterRole")
    assert [order.count(("patch", "ClusterRole")), len(order) - 1 > wait] == [2, True]
    both = steps[rights].body["rules"]
    role = seen().cluster_role
    assert all(rule in both for rule in role["rules"])
    assert all(rule in both for rule in steps[-1].body["rules"])
    strategy = steps[deployment].body["spec"]["strategy"]
    assert strategy["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}


@pytest.mark.behaviour("MGR-161")
def test_rights_to_read_additional_kinds_are_kept() -> None:
    games = {"apiGroups": ["game.example.com"], "resources": ["gameservers"], "verbs": ["get", "patch"]}
    role = seen().cluster_role
    without = planned(seen()).steps[-1].body["rules"]
    left = planned(seen(cluster_role={**role, "rules": [*role["rules"], games]})).steps[-1].body["rules"]
    assert [rule for rule in left if rule not in without] == [{**games, "verbs": ["get"]}]
    assert [rule for rule in left if "*" in rule["apiGroups"]] == [SCALES]


@pytest.mark.behaviour("MGR-144")
def test_definitions_keep_their_trusted_authority() -> None:
    definitions = seen().definitions
    for step in planned(seen()).steps:
        if step.action == "apply" and step.name in definitions and "conversion" in step.body["spec"]:
            config = step.body["spec"]["conversion"]["webhook"]["clientConfig"]
            assert config["caBundle"].startswith("LS0t")
            assert config["service"]["namespace"] == NAMESPACE


def test_an_unreadable_backup_is_reported() -> None:
    for content in ({}, {"binaryData": None}, {"binaryData": {"before.json.gz": "!"}}):
        with pytest.raises(TakeoverError, match="cannot be read"):
            unpacked(content)
        with pytest.raises(TakeoverError, match="cannot be read"):
            planned(seen(backup=content))
    whole = gzip.compress(b"{}" * 100)
    for packed, why in ((whole[:20], "EOFError"), (b"BZh9", "error"), (gzip.compress(b"[]"), "TypeError")):
        with pytest.raises(TakeoverError, match=why):
            unpacked({"binaryData": {"before.json.gz": base64.b64encode(packed).decode()}})
    with pytest.raises(TakeoverError, match="EOFError"):  # it would unpack to more than the limit
        unpacked({"binaryData": {"before.json.gz": base64.b64encode(gzip.compress(bytes(65 << 20), 1)).decode()}})
    assert back_plan(seen()).blockers
    assert back_plan(seen(backup={}, deployment=None)).blockers


# ---- feature gates


@pytest.mark.behaviour("MGR-161")
@pytest.mark.parametrize(
    ("image", "given", "kept"),
    [
        # 1.8 and newer do not protect by default, 1.4 to 1.7 do.
        ("openkruise/x:v1.8.0", ["--v=4"], ["--v=4", "--feature-gates=ResourcesDeletionProtection=false"]),
        ("openkruise/x:v1.10.1@sha256:1", [], ["--feature-gates=ResourcesDeletionProtection=false"]),
        ("registry:5000/x:1.6.3", ["--v=4"], ["--v=4"]),
        # The webhook configurations show what an image without a version serves.
        ("registry:5000/x", ["--v=4"], ["--v=4"]),
        # Given gates stay as written.
        ("x:v1.8.0", ["--feature-gates=ResourcesDeletionProtection=true"], None),
        ("x:v1.6.0", ["--feature-gates", "ResourcesDeletionProtection=false"], None),
        ("x:v1.8.0", ["-feature-gates=AllBeta=true"], None),
        ("x:v1.8.0", ["--feature-gates=AllBeta=false,AllAlpha=true"], None),
        (
            "x:v1.8.0",
            ["--feature-gates", "DeletionProtectionForCRDCascadingGate=true", "--v=4"],
            ["--feature-gates=DeletionProtectionForCRDCascadingGate=true,ResourcesDeletionProtection=false", "--v=4"],
        ),
        # Repeated flags add up.
        ("x:v1.6.0", ["--feature-gates=WorkloadSpread=false", "--v=4", "--feature_gates=ImagePullJobGate=true"], None),
        (
            "x:v1.8.0",
            ["--feature-gates=WorkloadSpread=false", "--v=4", "--feature_gates=ImagePullJobGate=true"],
            ["--feature-gates=WorkloadSpread=false,ImagePullJobGate=true,ResourcesDeletionProtection=false", "--v=4"],
        ),
    ],
)
def test_gates_keep_the_values_that_were_in_effect(image: str, given: list[str], kept: list[str] | None) -> None:
    deployment = deployment_with(*given, image=image)
    step = next(one for one in planned(seen(deployment=deployment)).steps if one.resource is DEPLOYMENTS)
    assert container_of(step.body)["args"] == (given if kept is None else kept)


def test_deletion_protection_stays_off_if_an_untagged_image_did_not_serve_it() -> None:
    plan = planned(seen(deployment=deployment_with("--v=4", image="registry:5000/x"), configurations={}))
    assert any("written into --feature-gates: ResourcesDeletionProtection=false" in fact for fact in plan.facts)
    assert any(r"--set 'featureGates=ResourcesDeletionProtection=false'" in fact for fact in plan.facts)


@pytest.mark.behaviour("MGR-161")
@pytest.mark.parametrize(
    ("given", "added"),
    [
        ((), ""),
        (("--feature-gates=ResourcesDeletionProtection=true",), ""),
        (
            ("--feature-gates=KruiseDaemon=false",),
            ",DaemonWatchingPod=false,PodProbeMarkerGate=false,InPlaceUpdateEnvFromMetadata=false",
        ),
        (("--feature-gates=AllBeta=false,PodProbeMarkerGate=true",), ",PodProbeMarkerGate=false"),
    ],
)
def test_agents_keep_their_gates_too(given: tuple[str, ...], added: str) -> None:
    """AllBeta=false disables KruiseDaemon and everything that needs the agent."""
    daemon = daemon_set()
    arguments = [*container_of(daemon)["args"][:-1], *given]
    container_of(daemon)["args"] = list(arguments)
    step = next(
        one
        for one in planned(seen(daemon=daemon), agents=True).steps
        if "template" in one.body.get("spec", {}) and one.resource is DAEMONSETS
    )
    assert container_of(step.body)["args"] == [*arguments[:-1], arguments[-1] + added]


# ---- node agents


def agent(node: str, *, newest: bool = False, ready: bool = True) -> Agent:
    return Agent(node, f"kruise-daemon-{node}", node, newest, ready)


@pytest.mark.behaviour("MGR-162")
def test_agents_are_replaced_last_and_only_on_delete() -> None:
    nodes = tuple(agent(f"node{number:02}") for number in range(12))
    plan = planned(seen(daemon=daemon_set(), agents=nodes), agents=True)
    order = [(step.action, step.resource.kind, step.name) for step in plan.steps]
    at = order.index(("patch", "DaemonSet", DAEMON))
    template, handing, strategy = plan.steps[at : at + 3]
    assert min(order.index(("wait", "Deployment", DEPLOYMENT)), order.index(("create", "Namespace", _PULLS))) < at
    assert template.body["spec"]["updateStrategy"]["type"] == "OnDelete"
    assert handing.does.startswith("replace the agents of 12 nodes, one node at a time: node00, node01, ")
    assert handing.does.endswith("node09 and 2 more")
    assert strategy.body["spec"]["updateStrategy"]["rollingUpdate"] == {"maxUnavailable": "10%"}
    assert plan.steps[-1].exact
    assert plan.steps[-1].name == DAEMON_ROLE
    changed = container_of(template.body)
    assert (changed["command"], changed["readinessProbe"]["httpGet"]["port"]) == (["pykruise", "daemon"], 10221)


@pytest.mark.behaviour("MGR-162")
@pytest.mark.parametrize(
    ("changes", "blocker"),
    [
        ({}, "DaemonSet kruise-system/kruise-daemon: not found, so there are no node agents to hand over"),
        ({"daemon": daemon_set(), "agent_role": None}, "ClusterRole kruise-daemon-role: not found"),
        ({"daemon": daemon_set("--no-such-flag")}, "arguments of the DaemonSet: unrecognized arguments"),
    ],
)
def test_blockers_of_the_agent_handover_are_named(changes: dict[str, Any], blocker: str) -> None:
    plan = planned(seen(**changes), agents=True)
    assert blocker in " ".join(plan.blockers)
    assert plan.steps == ()


@pytest.mark.behaviour("MGR-162")
def test_an_agent_is_busy_while_it_has_pulls_or_restart_requests() -> None:
    def image(*phases: str) -> dict[str, Any]:
        tags = [{"tag": str(number), "phase": phase} for number, phase in enumerate(phases)]
        return {"status": {"imageStatuses": {"nginx": {"tags": tags}}}}

    def request(phase: str) -> dict[str, Any]:
        return {"metadata": {"namespace": "shop"}, "spec": {"podName": "web-0"}, "status": {"phase": phase}}

    assert work_of(None, [{"metadata": {"namespace": "shop"}, "spec": {}}]) == ""
    assert work_of(image("Succeeded", "Failed", "Waiting"), [request("Completed"), request("Pending")]) == ""
    assert work_of(image("Succeeded", "Pulling"), []) == "pulls nginx:1"
    assert work_of(image("Pulling"), [request("Recreating")]) == "pulls nginx:0 and restarts containers of shop/web-0"


@pytest.mark.behaviour("MGR-162")
@pytest.mark.parametrize(
    ("changes", "may_work"),
    [({}, True), ({"ready": False}, False), ({"newest": True}, False), ({"leaving": True}, False)],
)
def test_only_a_running_agent_of_openkruise_may_be_busy(changes: dict[str, bool], may_work: bool) -> None:
    assert _may_work(replace(agent("node"), **changes)) is may_work


# ---- carried out


async def laid(client: Client) -> None:
    """Create an installation of OpenKruise with two replicas of its manager and an agent on each node."""
    labels = {"control-plane": "openkruise"}
    await client.create(
        NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}}
    )
    for item in [*openkruise.installed(), openkruise.deployment(), openkruise.daemon_set()]:
        bare = openkruise.bare(item)
        with contextlib.suppress(AlreadyExists):  # every namespace gets this ServiceAccount
            await client.create(RESOURCES[bare["kind"]], bare, bare["metadata"].get("namespace", ""))


@contextlib.asynccontextmanager
async def installation(nodes: int) -> AsyncIterator[Simulated]:
    """A simulated cluster with OpenKruise."""
    async with simulated(nodes) as world:
        await laid(world.client)
        yield world


in_installation = scenarios(installation)


async def everything(client: Client) -> dict[str, Any]:
    """Return all that a takeover may change, without fields that only an API server writes."""
    found = {}
    for resource in RESOURCES.values():
        for item in (await client.list(resource, NAMESPACE if resource.namespaced else "")).items:
            name = item["metadata"]["name"]
            if "kruise" in name:
                kept = {key: value for key, value in item.items() if key not in ("metadata", "status")}
                found[f"{resource.kind} {name}"] = json.loads(json.dumps(kept))
    return found


async def replicas(client: Client) -> set[str]:
    pods = await client.list(PODS, NAMESPACE, label_selector="control-plane=controller-manager")
    return {pod["metadata"]["uid"] for pod in pods.items}


async def check_there_and_back(client: Client) -> None:
    """Without --yes nothing changes; with it, image, definitions and permissions are ours; --back restores them."""
    before = await everything(client)
    told: list[str] = []
    await run(client, NAMESPACE, IMAGE, say=told.append)
    assert await everything(client) == before
    assert told[-1] == "Nothing was changed; --yes applies the steps."
    pods = await replicas(client)

    await run(client, NAMESPACE, IMAGE, yes=True, say=told.append)
    taken = await everything(client)
    container = container_of(taken["Deployment kruise-controller-manager"])
    arguments = container_of(openkruise.deployment())["args"]
    gates = arguments.index("--feature-gates=ImagePullJobGate=true")
    arguments[gates] += ",ResourcesDeletionProtection=false"  # the gate in effect, whatever our default is
    assert (container["image"], container["args"]) == (IMAGE, arguments)
    assert "cpu" not in container["resources"]["limits"]
    for name in SERVED & {one["metadata"]["name"] for one in openkruise.installed()}:
        assert "description" in json.dumps(taken[f"CustomResourceDefinition {name}"])
    assert pods.isdisjoint(await replicas(client))
    assert IMAGE not in await agents(client)
    await run(client, NAMESPACE, IMAGE, yes=True, say=told.append)
    assert "already taken over" in told[-2]
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


@pytest.mark.behaviour("MGR-162")
@in_installation(3)
async def test_agents_are_replaced_one_by_one_on_the_sandbox(world: Simulated) -> None:
    await check_agents(world.client)


@pytest.mark.behaviour("MGR-143", "MGR-144", "MGR-145")
@in_installation(2)
async def test_takes_over_and_reverts_on_the_sandbox(world: Simulated) -> None:
    await check_there_and_back(world.client)


_PULLS = "kruise-daemon-config"


async def agents(client: Client) -> dict[str, int]:
    images = [
        container_of({"spec": {"template": pod}})["image"]
        for pod in (await client.list(PODS, NAMESPACE, label_selector="control-plane=daemon")).items
        if any(one["type"] == "Ready" and one["status"] == "True" for one in pod["status"].get("conditions", ()))
    ]
    return dict(Counter(images))


async def until_agents(client: Client, wanted: dict[str, int]) -> None:
    await Waiting(client.clock).becomes(lambda: agents(client), wanted)


class OneAway:
    """Fails if an agent is deleted while another one is unavailable. A node has no agent right after a deletion."""

    def __init__(self, client: Client, number: int) -> None:
        self.client, self.inner, self.number = client, client.transport, number
        self.stream, self.close = self.inner.stream, self.inner.close
        self.empty = False

    async def request(self, request: Request) -> Response:
        if request.method == "DELETE" and "/pods/" in request.path:
            assert orjson.loads(request.body or b"")["preconditions"]["uid"]  # not of a Pod that replaced it
            assert sum((await agents(self.client)).values()) == self.number, request.path
            self.empty = True
        elif self.empty and request.query.get("fieldSelector", "").startswith("spec.nodeName="):
            self.empty = False
            return json_response(200, {"metadata": {}, "items": []})
        return await self.inner.request(request)


async def begin_pull(client: Client, *nodes: str) -> None:
    for resource, name in CONFIGURATIONS:  # no manager runs that could answer
        await client.delete(resource, name)
    for node in nodes:
        image = {"apiVersion": NODE_IMAGES.api_version, "kind": "NodeImage", "metadata": {"name": node}, "spec": {}}
        while True:
            try:
                await client.create(NODE_IMAGES, image)
                break
            except ServerError as error:  # the API server notices a deleted configuration a moment later
                if "failed calling webhook" not in str(error):
                    raise
                await client.clock.sleep(0.1)
        await set_pull(client, node, "Pulling")


async def set_pull(client: Client, node: str, phase: str) -> None:
    tag = {"tag": "1.29", "phase": phase, "version": 1}
    status = {"desired": 1, "imageStatuses": {"nginx": {"tags": [tag]}}}
    await client.patch(NODE_IMAGES, node, {"status": status}, subresource="status", kind=PatchType.MERGE)


async def check_agents(client: Client) -> None:
    """Agents of three nodes are replaced one by one; one that pulls an image waits until it is done."""
    await until_agents(client, {THEIRS: 3})
    before = (await client.get(DAEMONSETS, DAEMON, NAMESPACE))["spec"]
    busy = sorted(one["metadata"]["name"] for one in (await client.list(NODES)).items)[0]
    await begin_pull(client, busy)
    told: list[str] = []
    done: list[asyncio.Task[None]] = []

    async def pulled() -> None:
        assert await agents(client) == {THEIRS: 1, IMAGE: 2}
        await set_pull(client, busy, "Succeeded")

    def say(text: str) -> None:
        told.append(text)
        if sum("agent replaced" in line for line in told) == 2 and not done:
            done.append(asyncio.create_task(pulled()))

    watched = Client(OneAway(client, 3), client.clock)
    await run(watched, NAMESPACE, IMAGE, agents=True, say=say)
    previewed = told.index("Steps:")
    assert not done
    await run(watched, NAMESPACE, IMAGE, agents=True, yes=True, say=say)
    await asyncio.gather(*done)
    again = told.index("Steps:", previewed + 1)
    steps = [line for line in told[previewed:again] if line[:4].strip().rstrip(".").isdigit()]
    assert steps == [line for line in told[again:] if line[:4].strip().rstrip(".").isdigit()]
    nodes = [line.split()[1].rstrip(":") for line in told if "agent replaced" in line]
    assert (len(nodes), nodes[-1]) == (3, busy)
    assert f"  node {busy} is deferred: its agent pulls nginx:1.29" in told
    assert await agents(client) == {IMAGE: 3}
    daemon = await client.get(DAEMONSETS, DAEMON, NAMESPACE)
    assert daemon["spec"]["updateStrategy"]["type"] == "RollingUpdate"
    container = container_of(daemon)
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert container["securityContext"]["runAsUser"] == 0

    await run(watched, NAMESPACE, "", agents=True, yes=True, say=told.append)
    assert told[-1] == "Nothing to do; --back restores the previous installation."
    await run(watched, NAMESPACE, "", yes=True, back=True, say=told.append)
    assert await agents(client) == {THEIRS: 3}
    assert (await client.get(DAEMONSETS, DAEMON, NAMESPACE))["spec"] == before


@pytest.mark.behaviour("MGR-162")
@in_installation(3)
async def test_nodes_that_are_down_or_go_down_are_left_to_the_daemon_set(world: Simulated) -> None:
    await until_agents(world.client, {THEIRS: 3})
    pods = (await world.client.list(PODS, NAMESPACE, label_selector="control-plane=daemon")).items
    by_node = {one["spec"]["nodeName"]: one["metadata"]["name"] for one in pods}
    down, goes_down, up = sorted(by_node)
    kubelets = world.cluster.nodes.kubelets
    kubelets.stop(down)
    await until_agents(world.client, {THEIRS: 2})

    def stop_with_its_agent(request: Request) -> None:
        if request.method == "DELETE" and request.path.endswith(by_node[goes_down]):
            kubelets.stop(goes_down)

    watched = Counting(world.client.transport)
    watched.intercept = stop_with_its_agent
    told: list[str] = []
    await run(Client(watched, world.client.clock), NAMESPACE, IMAGE, agents=True, yes=True, say=told.append)
    assert [line for line in told if line.startswith("  node ")] == [
        f"  node {down} is not ready: the DaemonSet replaces its agent once it is ready",
        f"  node {goes_down} is not ready: the DaemonSet replaces its agent once it is ready",
        f"  node {up}: agent replaced, 0 to go",
    ]
    assert told[-1].startswith("Done.")
    for node in (down, goes_down):
        kubelets.start(node)
    await until_agents(world.client, {IMAGE: 3})


@pytest.mark.behaviour("MGR-162")
@in_installation(2)
async def test_an_agent_that_does_not_start_ends_the_handover_at_its_node(world: Simulated) -> None:
    await until_agents(world.client, {THEIRS: 2})
    broken = {"initContainers": [{"name": "setup", "image": "registry.invalid/setup:1"}]}
    changed = {"updateStrategy": {"type": "OnDelete", "rollingUpdate": None}, "template": {"spec": broken}}
    await world.client.patch(DAEMONSETS, DAEMON, {"spec": changed}, NAMESPACE)
    message = await stopped(world.client, "", 1000, agents=True)
    assert "agent on node node1 is not ready after 300 s; 0 nodes done, other nodes keep their agents. " in message
    assert "image registry.invalid/setup:1 of container setup cannot be pulled (ImagePullBackOff)" in message
    assert "command to resume, if necessary with another --image, or pykruise takeover --back --yes" in message
    assert await agents(world.client) == {THEIRS: 1}
    mended = {"spec": {"template": {"spec": {"initContainers": None}}}}
    await world.client.patch(DAEMONSETS, DAEMON, mended, NAMESPACE)
    await run(world.client, NAMESPACE, IMAGE, agents=True, yes=True, say=lambda _: None)
    assert await agents(world.client) == {IMAGE: 2}


@pytest.mark.behaviour("MGR-162")
@in_installation(2)
async def test_an_agent_that_stays_busy_is_not_replaced(world: Simulated) -> None:
    await until_agents(world.client, {THEIRS: 2})
    await begin_pull(world.client, "node1")
    message = await stopped(world.client, "", 1000, agents=True)
    assert "the agent on node node1 still pulls nginx:1.29 after 900 s; run the same" in message
    assert await agents(world.client) == {THEIRS: 1, IMAGE: 1}


@pytest.mark.behaviour("MGR-162")
@in_installation(2)
async def test_a_handover_of_busy_agents_is_not_given_up_while_agents_are_replaced(world: Simulated) -> None:
    await until_agents(world.client, {THEIRS: 2})
    await begin_pull(world.client, "node1", "node2")

    async def pulled() -> None:
        for node in ("node1", "node2"):
            await world.client.clock.sleep(0.8 * WORK_SECONDS)
            assert (await agents(world.client))[THEIRS] == (2 if node == "node1" else 1)
            await set_pull(world.client, node, "Succeeded")

    pulls = asyncio.create_task(pulled())
    assert await stopped(world.client, "", 1000, agents=True) == ""
    await pulls
    assert await agents(world.client) == {IMAGE: 2}


@pytest.mark.behaviour("MGR-144", "MGR-150")
@in_installation(0)
async def test_a_broken_image_changes_nothing_else_and_is_corrected_by_the_same_command(world: Simulated) -> None:
    started = world.client.clock.monotonic()
    message = await stopped(world.client, "", 1000, image=f"{IMAGE}-wrong")
    assert "0 available after 300 s; the old ones keep serving" in message
    assert "if necessary with another --image" in message
    assert world.client.clock.monotonic() - started >= ROLLOUT_SECONDS
    found = await world.client.get(CUSTOMRESOURCEDEFINITIONS, "clonesets.apps.kruise.io")
    assert "description" not in json.dumps(found["spec"])
    assert await kept(world.client)
    told: list[str] = []
    await run(world.client, NAMESPACE, IMAGE, say=told.append)
    assert any(f"run {IMAGE}" in line for line in told)
    assert not any("add pykruise's permissions" in line for line in told)


# ---- interrupted


class Stopping:
    """A connection whose writes fail midway: after ``writes`` of them, the next one ends as ``ends`` says."""

    def __init__(self, inner: Transport, ends: str, writes: int = 0) -> None:
        self.inner, self.ends, self.writes = inner, ends, writes
        self.stream, self.close = inner.stream, inner.close

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


async def stopped(client: Client, ends: str, writes: int, *, image: str = IMAGE, **options: bool) -> str:
    """Return the outcome of a takeover that is interrupted after some writes; empty if it completes."""
    stopping = Client(Stopping(client.transport, ends, writes), client.clock)
    try:
        await run(stopping, NAMESPACE, image, yes=True, say=lambda _: None, **options)
    except CommandError as error:
        return str(error)
    return ""


def is_taken_over(found: Mapping[str, Any]) -> bool:
    """Return whether Deployment, definitions and permissions are ours, and nothing is left to do."""
    container = container_of(found["Deployment kruise-controller-manager"])
    wanted = next(one for one in manifests(all_rules(), NAMESPACE) if one["kind"] == "ClusterRole")
    return (
        (container["image"], container["command"]) == (IMAGE, ["pykruise", "manager"])
        and all("description" in json.dumps(found[f"CustomResourceDefinition {name}"]) for name in SERVED)
        and found[f"ClusterRole {CLUSTER_ROLE}"]["rules"] == [*wanted["rules"], SCALES]
    )


@pytest.mark.behaviour("MGR-150", "CLI-23")
@pytest.mark.parametrize("ends", ["before", "Ctrl-C"])
@in_installation(2)
async def test_a_takeover_interrupted_after_any_write_resumes(world: Simulated, ends: str) -> None:
    ends_of: list[str] = []
    for _ in range(60):
        # If failed writes are lost, each attempt gets one write further; otherwise each attempt adds one write.
        if not (end := await stopped(world.client, ends, ends == "before", agents=True)):
            break
        ends_of.append(end)
    taken = await everything(world.client)
    assert is_taken_over(taken)
    assert await agents(world.client) == {IMAGE: 2}
    assert len(ends_of) > 28
    assert all("run the same command to resume" in end for end in ends_of)


@pytest.mark.behaviour("MGR-145", "MGR-150")
@in_installation(2)
async def test_a_takeover_can_be_reverted_or_completed_from_any_state(world: Simulated) -> None:
    before = await everything(world.client)
    before["Deployment kruise-controller-manager"]["spec"]["strategy"] = dict(ROLLING)
    writes = 0
    while await stopped(world.client, "after", writes, agents=True):
        writes += 1 if NIGHTLY else 3
        assert writes < 60
        # The reversal is interrupted too, a little later each time; then the user changes their mind.
        if await stopped(world.client, "Ctrl-C", writes % 13, back=True) and writes % 2:
            await run(world.client, NAMESPACE, IMAGE, yes=True, agents=True, say=lambda _: None)
            assert is_taken_over(await everything(world.client))
            assert await agents(world.client) == {IMAGE: 2}
        if (await everything(world.client)) != before and await kept(world.client):
            await run(world.client, NAMESPACE, "", yes=True, back=True, say=lambda _: None)
        after = await everything(world.client)
        assert {name: after[name] for name in before} == before
        assert await agents(world.client) == {THEIRS: 2}
    assert writes > 28


async def kept(client: Client) -> bool:
    return any(one["metadata"]["name"] == BACKUP for one in (await client.list(CONFIGMAPS, NAMESPACE)).items)


@pytest.mark.behaviour("MGR-150")
@in_installation(2)
async def test_a_resumed_takeover_lists_what_is_left_without_an_image(world: Simulated) -> None:
    assert await stopped(world.client, "after", 8)
    told: list[str] = []
    await run(world.client, NAMESPACE, IMAGE, say=told.append)
    assert any(re.search(r"  a takeover is in progress: 10 of its \d+ steps are done", line) for line in told)
    assert [line.partition(".")[0] for line in told if line.startswith("  1.")] == ["  1"]
    await run(world.client, NAMESPACE, "", yes=True, say=told.append)
    assert is_taken_over(await everything(world.client))


@pytest.mark.behaviour("MGR-150")
@in_installation(2)
async def test_changes_during_a_takeover_do_not_enter_the_backup(world: Simulated) -> None:
    assert await stopped(world.client, "after", 3)
    newer = {"spec": {"template": {"spec": {"containers": [{"name": "manager", "image": "openkruise/x:v2"}]}}}}
    await world.client.patch(DEPLOYMENTS, DEPLOYMENT, newer, NAMESPACE)
    told: list[str] = []
    with pytest.raises(CommandError):
        await run(world.client, NAMESPACE, IMAGE, yes=True, say=told.append)
    assert f"holds a Deployment with {THEIRS}" in told[-1]


@contextlib.asynccontextmanager
async def real(control_plane: ControlPlane) -> AsyncIterator[Client]:
    transport = AiohttpTransport(await load_config(str(control_plane.kubeconfig), None))
    try:
        yield Client(transport, SystemClock())
    finally:
        await transport.close()


@pytest.mark.controlplane
@pytest.mark.behaviour("MGR-143", "MGR-144", "MGR-145", "MGR-150", "MGR-161", "MGR-162")
async def test_takes_over_and_reverts_on_a_real_api_server(tmp_path: Path) -> None:
    """First the manager, then with agents, then both with an interruption after each write, in both directions."""
    with ControlPlane(controller_manager_args=["--node-monitor-grace-period=10m"]) as started:
        nodes = ["app.sandbox.nodes", "--nodes", "3", "--bind", "--kubeconfig", str(started.kubeconfig)]
        with running(nodes, tmp_path / "nodes.log"):
            async with real(started) as client:
                await laid(client)
                before = await everything(client)
                before["Deployment kruise-controller-manager"]["spec"]["strategy"] = dict(ROLLING)
                await check_there_and_back(client)
                await check_agents(client)
                arrive = itertools.count(1)
                while await stopped(client, "after", next(arrive), agents=True):
                    pass
                assert is_taken_over(await everything(client))
                assert await agents(client) == {IMAGE: 3}
                arrive = itertools.count(1)
                while await kept(client):
                    await stopped(client, "after", next(arrive), back=True)
                after = await everything(client)
                for name, was in before.items():
                    assert name.endswith("webhook-configuration") or after[name] == was
                assert await agents(client) == {THEIRS: 3}
