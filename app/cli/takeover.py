"""The ``takeover`` and ``prepare-uninstall`` commands."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from app.cli.terminal import Context, Kubeconfig, failed, with_cluster, write
from app.framework.commands import left_behind
from app.kube import logs
from app.kube.errors import ApiError, CommandError, ConfigError, Conflict, KubeError, NotFound, ServerError, sentence
from app.manager.features import reconciled_kinds, workloads

if TYPE_CHECKING:
    from app.kube.client import Client
    from app.kube.resources import Resource
    from app.manager.takeover.model import Agent, Installed, Plan, Step


#: Timeout of a rollout, or of the rollout on one node, in seconds.
ROLLOUT_SECONDS: Final = 300.0
#: Seconds to wait for agents that are pulling images or restarting containers, once all others have been replaced.
WORK_SECONDS: Final = 900.0
_POLL_SECONDS: Final = 1.0
#: Maximum number of objects to count per kind.
_COUNTED: Final = 500
_ATTEMPTS: Final = 10
#: Maximum number of Pods named in an error.
_SHOWN_PODS: Final = 3
_RESUME: Final = "run the same command to resume"
_OR_GO_BACK: Final = "or pykruise takeover --back --yes to restore the previous installation"


def takeover(
    image: Annotated[str, typer.Option("--image", metavar="IMAGE", help="pykruise image that the nodes can pull")] = "",
    yes: Annotated[bool, typer.Option("--yes", help="Apply the changes; by default they are only listed")] = False,
    agents: Annotated[
        bool, typer.Option("--agents", help="Also replace the node agents, one node after another")
    ] = False,
    back: Annotated[bool, typer.Option("--back", help="Restore the previous installation")] = False,
    leave_unserved: Annotated[
        bool,
        typer.Option("--leave-unserved", help="Proceed even if there are objects of kinds that are not served"),
    ] = False,
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", metavar="NAME", help="Namespace of OpenKruise")
    ] = "kruise-system",
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """Replace a running OpenKruise with pykruise, or go back.

    Admission reviews are served throughout, no container restarts, and feature gates keep their values.

    Without --yes nothing is changed. If interrupted, run the same command to resume. Exit code 1: the takeover is not
    possible, or failed.
    """

    async def work(client: Client, where: str) -> None:
        await run(client, where, image, yes=yes, agents=agents, back=back, leave_unserved=leave_unserved, say=write)

    with_cluster(kubeconfig, context, namespace, work)


async def run(
    client: Client,
    namespace: str,
    image: str,
    *,
    yes: bool = False,
    agents: bool = False,
    back: bool = False,
    leave_unserved: bool = False,
    say: Callable[[str], None] = write,
) -> None:
    """Print what is installed and what would be done; with ``yes``, do it. Raises CommandError or KubeError."""
    from app.manager.rbac import all_rules
    from app.manager.takeover.model import TakeoverError
    from app.manager.takeover.plan import back_plan, takeover_plan

    seen = await observed(client, namespace)
    try:
        plan = (
            back_plan(seen)
            if back
            else takeover_plan(
                seen, image, reconciled_kinds(), all_rules(), agents=agents, leave_unserved=leave_unserved
            )
        )
    except TakeoverError as error:
        raise CommandError(str(error)) from None
    for line in shown(plan):
        say(line)
    if plan.blockers:
        raise CommandError("not possible, see above")
    if not plan.steps:
        say("Nothing to do; --back restores the previous installation.")
        return
    if not yes:
        say("Nothing was changed; --yes applies the steps.")
        return
    again = _RESUME if back else f"{_RESUME}, {_OR_GO_BACK}"
    for number, step in enumerate(plan.steps, 1):
        where = f"{number}/{len(plan.steps)} {_named(step)}"
        say(f"{where}: {step.does}")
        await carry_out_or_explain(client, step, where, again, first=number == 1, say=say)
    say("Done." if back else "Done. --back restores the previous installation.")


async def carry_out_or_explain(
    client: Client, step: Step, where: str, again: str, *, first: bool, say: Callable[[str], None] = write
) -> None:
    """Carry out one step. If it fails or is interrupted, say what is left and how to resume."""
    try:
        with left_behind(lambda: f"{where}: may have been applied, later steps were not; {again}"):
            await carried_out(client, step, say)
    except (KubeError, OSError) as error:
        # An API server that fails or times out may have carried out the write.
        nothing = first and isinstance(error, ApiError) and not isinstance(error, ServerError)
        raise CommandError(f"{where}: {sentence(error)}; {'nothing was changed' if nothing else again}") from None


def shown(plan: Plan) -> list[str]:
    """Return a plan as readable lines."""
    lines = [f"  {fact}" for fact in plan.facts]
    lines += [f"! {warning}" for warning in plan.warnings]
    lines += [f"✗ {blocker}" for blocker in plan.blockers]
    if plan.steps:
        lines += ["", "Steps:"]
        lines += [f"{number:>3}. {_named(step)}: {step.does}" for number, step in enumerate(plan.steps, 1)]
    return lines


def _named(step: Step) -> str:
    return f"{step.resource.kind} {f'{step.namespace}/' if step.namespace else ''}{step.name}"


async def observed(client: Client, namespace: str) -> Installed:
    """Return what is installed."""
    from app.admission.configurations import CONFIGURATIONS
    from app.api import names
    from app.kube.resources import CONFIGMAPS, CUSTOMRESOURCEDEFINITIONS, DAEMONSETS, DEPLOYMENTS, NAMESPACES
    from app.manager import rbac
    from app.manager.takeover.model import (
        BACKUP,
        CLUSTER_ROLE_BINDINGS,
        CLUSTER_ROLES,
        DAEMON,
        DAEMON_PULL_ROLE,
        DAEMON_ROLE,
        ROLE_BINDINGS,
        ROLES,
        Installed,
        in_scope,
    )
    from app.manager.uninstall import DEPLOYMENT

    listed = (await client.list(CUSTOMRESOURCEDEFINITIONS, page_size=20)).items
    definitions: dict[str, Any] = {
        one["metadata"]["name"]: {
            **one,
            "apiVersion": CUSTOMRESOURCEDEFINITIONS.api_version,
            "kind": "CustomResourceDefinition",
        }
        for one in listed
        if in_scope(one)
    }
    configurations = {name: await _get(client, resource, name) for resource, name in CONFIGURATIONS}
    ours = (
        (CLUSTER_ROLE_BINDINGS, f"{rbac.CLUSTER_ROLE}binding", ""),
        (ROLES, rbac.NAMESPACED_ROLE, namespace),
        (ROLE_BINDINGS, f"{rbac.NAMESPACED_ROLE}binding", namespace),
        (CLUSTER_ROLES, rbac.EXTENSION_ROLE, ""),
        (CLUSTER_ROLE_BINDINGS, rbac.EXTENSION_BINDING, ""),
        (NAMESPACES, names.DAEMON_CONFIG_NAMESPACE, ""),
        (ROLES, DAEMON_PULL_ROLE, names.DAEMON_CONFIG_NAMESPACE),
        (ROLE_BINDINGS, f"{DAEMON_PULL_ROLE}binding", names.DAEMON_CONFIG_NAMESPACE),
    )
    granted = {(resource.kind, name): await _get(client, resource, name, where) for resource, name, where in ours}
    daemon = await _get(client, DAEMONSETS, DAEMON, namespace)
    return Installed(
        namespace,
        deployment=await _get(client, DEPLOYMENTS, DEPLOYMENT, namespace),
        daemon=daemon,
        definitions=definitions,
        objects={name: await _count(client, one) for name, one in definitions.items()},
        configurations={name: one for name, one in configurations.items() if one is not None},
        cluster_role=await _get(client, CLUSTER_ROLES, rbac.CLUSTER_ROLE),
        agent_role=await _get(client, CLUSTER_ROLES, DAEMON_ROLE),
        agents=() if daemon is None else await _agents(client, daemon, namespace),
        backup=await _get(client, CONFIGMAPS, BACKUP, namespace),
        granted={key: one for key, one in granted.items() if one is not None},
    )


async def _get(client: Client, resource: Resource, name: str, namespace: str = "") -> dict[str, Any] | None:
    from app.kube.client import get_or_none

    found: dict[str, Any] | None = await get_or_none(client, resource, name, namespace)
    return found


async def _count(client: Client, definition: dict[str, Any]) -> int:
    from app.kube.resources import Resource

    spec = definition["spec"]
    # The stored version needs no conversion.
    version = next(one["name"] for one in spec["versions"] if one["storage"])
    resource = Resource(spec["group"], version, spec["names"]["plural"], spec["names"]["kind"])
    try:
        return len((await client.list_page(resource, limit=_COUNTED, metadata_only=True)).items)
    except NotFound:  # the CRD is new or not established, so there are no objects
        return 0


async def carried_out(client: Client, step: Step, say: Callable[[str], None] = write) -> None:
    """Carry out one step."""
    from app.kube.client import PatchType

    where = (step.resource, step.name)
    if step.action == "create":
        await client.create(step.resource, step.body, step.namespace)
    elif step.action == "apply":
        body, kind = step.body, PatchType.APPLY
        await client.patch(*where, body, step.namespace, kind=kind, force=True, field_manager="pykruise-takeover")
    elif step.action == "patch":
        known = step.resource.group in ("", "apps")
        kind = PatchType.STRATEGIC if known else PatchType.MERGE
        await client.patch(*where, step.body, step.namespace, kind=kind)
    elif step.action == "replace":
        for attempt in range(_ATTEMPTS):
            live = await client.get(*where, step.namespace)
            body = {**step.body, "metadata": live["metadata"]}
            try:
                await client.replace(*where, body, step.namespace)
                return
            except Conflict:
                if attempt == _ATTEMPTS - 1:
                    raise
    elif step.action == "delete":
        try:
            await client.delete(*where, step.namespace)
        except NotFound:
            return
    elif step.action == "hand over":
        await _handed_over(client, step, say)
    else:
        await _rolled_out(client, step)


async def _rolled_out(client: Client, step: Step) -> None:
    """Wait until every replica has the newest template and is available."""
    from app.manager.takeover.model import is_rolled_out, replica_counts

    deadline = client.clock.monotonic() + ROLLOUT_SECONDS
    while True:
        live = await client.get(step.resource, step.name, step.namespace)
        if is_rolled_out(live):
            return
        if client.clock.monotonic() > deadline:
            updated, wanted, _, available = replica_counts(live)
            reasons = await _obstacles(client, live, step.namespace)
            raise CommandError(
                f"{_named(step)}: {updated} of {wanted} replicas updated, {available} available after "
                f"{ROLLOUT_SECONDS:g} s; the old ones keep serving. {reasons}"
                f"kubectl describe pods -n {step.namespace} shows "
                f"what blocks the new ones; {_RESUME}, if necessary with another --image, {_OR_GO_BACK}"
            )
        await client.clock.sleep(_POLL_SECONDS)


async def _obstacles(client: Client, workload: dict[str, Any], namespace: str, node: str = "") -> str:
    """Return what keeps the workload's Pods from being ready, as a sentence, or an empty string if unknown."""
    from app.kube.objects import decode_pod
    from app.kube.resources import PODS
    from app.pods.not_ready_reasons import obstacles

    query, on = _selected(workload, node)
    pods = (await client.list(PODS, namespace, label_selector=query, field_selector=on, decode=decode_pod)).items
    if not pods:
        return "There is no Pod. "
    found = [f"Pod {pod.metadata.name}: {one.what}" for pod in pods for one in obstacles(pod)[:1]]
    found += [f"Pod {pod.metadata.name} is still being deleted" for pod in pods if pod.metadata.deletion_timestamp]
    return f"{'; '.join(found[:_SHOWN_PODS])}. " if found else ""


def _selected(workload: dict[str, Any], node: str = "") -> tuple[str, str]:
    """Return the label selector and the field selector of a workload's Pods, or of those on one node."""
    labels = (workload["spec"].get("selector") or {}).get("matchLabels") or {}
    query = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
    return query, f"spec.nodeName={node}" if node else ""


async def _agents(client: Client, daemon: dict[str, Any], namespace: str, node: str = "") -> tuple[Agent, ...]:
    from app.kube.resources import CONTROLLERREVISIONS, PODS
    from app.manager.takeover.agents import agents_of, newest_revision

    query, on = _selected(daemon, node)
    revisions = (await client.list(CONTROLLERREVISIONS, namespace, label_selector=query)).items
    pods = (await client.list(PODS, namespace, label_selector=query, field_selector=on)).items
    return agents_of(daemon, pods, newest_revision(daemon, revisions))


async def _handed_over(client: Client, step: Step, say: Callable[[str], None]) -> None:
    """Replace the node agents one by one. Busy agents come last; agents on nodes that are down are left to the
    DaemonSet controller."""
    from app.manager.takeover.model import agents_left

    told: set[str] = set()
    done, since = 0, client.clock.monotonic()
    while True:
        daemon = await client.get(step.resource, step.name, step.namespace)
        observed = (daemon.get("status") or {}).get("observedGeneration", 0) >= daemon["metadata"].get("generation", 0)
        left = agents_left(await _agents(client, daemon, step.namespace)) if observed else []
        working: dict[str, str] = {}
        waiting = len(left)
        for agent in left:
            text = f"  node {agent.node} is not ready: the DaemonSet replaces its agent once it is ready"
            if not await _node_is_ready(client, agent.node):
                waiting -= 1
            elif _may_work(agent) and (work := await _work_on(client, agent.node)):
                working[agent.node] = work
                text = f"  node {agent.node} is deferred: its agent {work}"
            else:
                waiting -= 1
                if await _replaced(client, step, daemon, agent, f"{done} nodes done"):
                    done, since = done + 1, client.clock.monotonic()
                    text = f"  node {agent.node}: agent replaced, {waiting} to go"
            if text not in told:
                told.add(text)
                say(text)
        if observed and not working:
            return
        if client.clock.monotonic() - since > WORK_SECONDS:
            busy = "; ".join(f"the agent on node {node} still {work}" for node, work in working.items())
            raise CommandError(
                f"{_named(step)}: {busy or 'the DaemonSet controller has not observed it'} after "
                f"{WORK_SECONDS:g} s; {_RESUME}, {_OR_GO_BACK}"
            )
        await client.clock.sleep(_POLL_SECONDS)


def _may_work(agent: Agent) -> bool:
    """Return whether an agent may be pulling or restarting something and has not begun to stop."""
    return agent.ready and not (agent.newest or agent.leaving)


async def _node_is_ready(client: Client, name: str) -> bool:
    from app.kube.resources import NODES

    node = await _get(client, NODES, name)
    conditions = ((node or {}).get("status") or {}).get("conditions") or ()
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


async def _work_on(client: Client, node: str) -> str:
    """Return what the agent of a node is doing, or an empty string if it may be replaced."""
    from app.api import names
    from app.daemon.objects import NODE_IMAGES, RECREATE_REQUESTS
    from app.manager.takeover.agents import work_of

    try:
        query = f"{names.CRR_NODE_NAME}={node}"
        requests = (await client.list(RECREATE_REQUESTS, label_selector=query)).items
    except NotFound:  # the CustomResourceDefinition is missing
        requests = []
    return work_of(await _get(client, NODE_IMAGES, node), requests)


async def _replaced(client: Client, step: Step, daemon: dict[str, Any], agent: Agent, progress: str) -> bool:
    """Delete an agent's Pod unless it is up to date, and wait until the node's new Pod is ready. Return False if the
    node goes down first."""
    from app.kube.resources import PODS

    if not (agent.newest or agent.leaving):
        with contextlib.suppress(NotFound, Conflict):  # the agent has been replaced meanwhile
            await client.delete(PODS, agent.pod, step.namespace, uid=agent.uid)
    deadline = client.clock.monotonic() + ROLLOUT_SECONDS
    while True:
        there = await _agents(client, daemon, step.namespace, agent.node)
        if there and all(one.newest and one.ready for one in there):
            return True
        if not await _node_is_ready(client, agent.node):
            return False
        if client.clock.monotonic() > deadline:
            where = f"-n {step.namespace} --field-selector spec.nodeName={agent.node}"
            reasons = await _obstacles(client, daemon, step.namespace, agent.node)
            raise CommandError(
                f"{_named(step)}: the new agent on node {agent.node} is not ready after {ROLLOUT_SECONDS:g} s; "
                f"{progress}, other nodes keep their agents. {reasons}kubectl describe pods {where} shows more; "
                f"{_RESUME}, if necessary with another --image, {_OR_GO_BACK}"
            )
        await client.clock.sleep(_POLL_SECONDS)


def prepare_uninstall(
    namespace: Annotated[
        str,
        typer.Option(
            "--namespace",
            "-n",
            metavar="NAME",
            help="Namespace of the manager; default: $POD_NAMESPACE, or kruise-system",
        ),
    ] = "",
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """Stop the manager and remove its webhooks.

    The command refuses to run while Kruise workloads exist. helm uninstall runs it automatically. Exit code 1: refused
    by this command or by the API server.
    """
    from app.api import names
    from app.manager.uninstall import UninstallRefusedError

    logs.configure("text", logs.level_for(2))
    try:
        where = namespace or os.environ.get("POD_NAMESPACE") or names.MANAGER_NAMESPACE
        asyncio.run(_with_cluster(where, kubeconfig, context))
    except ConfigError as error:
        raise failed(str(error), 2) from None
    except (UninstallRefusedError, KubeError) as error:
        raise failed(sentence(error)) from None


async def _with_cluster(namespace: str, kubeconfig: str, context: str) -> None:
    from app.kube.client import Client
    from app.kube.clock import SystemClock
    from app.kube.config import load_config
    from app.kube.transport import AiohttpTransport
    from app.manager.uninstall import prepare_uninstall as prepare

    transport = AiohttpTransport(await load_config(kubeconfig, context or None))
    try:
        await prepare(Client(transport, SystemClock(), user_agent="pykruise"), namespace, workloads())
    finally:
        await transport.close()
