"""Implements ``pykruise restart pod/NAME -c CONTAINER``, and lists the restarts that a node agent is performing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from random import SystemRandom
from typing import Any, Final

from app.api import names
from app.features.containerrecreate.kind import REQUESTS
from app.features.containerrecreate.types import COMPLETED, SUCCEEDED
from app.framework.options import Enabled
from app.framework.verbs import Call, LastSaid, Option, Request, Verb
from app.kube.client import Client
from app.kube.errors import CommandError, Forbidden, NotFound
from app.kube.hashes import random_suffix
from app.kube.objects import Node, Pod, decode_pod
from app.kube.resources import PODS

Json = dict[str, Any]
POLL_SECONDS: Final = 0.5
#: Seconds to keep a completed request that this command created.
TTL_SECONDS: Final = 600
_MAX_NAME: Final = 200


def new_request(pod: str, containers: Sequence[str], call: Call, suffix: str) -> Json:
    """Return the ContainerRecreateRequest for the command."""
    strategy: Json = {"failurePolicy": "Ignore" if call.flag("keep-going") else "Fail"}
    for option, field in (("ordered", "orderedRecreate"), ("force", "forceRecreate")):
        if call.flag(option):
            strategy[field] = True
    if call.text("grace"):
        strategy["terminationGracePeriodSeconds"] = call.seconds("grace")
    spec: Json = {
        "podName": pod,
        "containers": [{"name": name} for name in containers],
        "strategy": strategy,
        "ttlSecondsAfterFinished": TTL_SECONDS,
    }
    if call.seconds("deadline"):
        spec["activeDeadlineSeconds"] = call.seconds("deadline")
    metadata = {"name": f"restart-{pod[:_MAX_NAME]}-{suffix}"}
    return {"apiVersion": REQUESTS.api_version, "kind": REQUESTS.kind, "metadata": metadata, "spec": spec}


async def restart(call: Call) -> int:
    """Create the request. With ``--wait``, print the progress of each container."""
    name = call.object_name("pod", "pods", "po")
    containers = [one for one in call.text("container").split(",") if one]
    try:
        pod = await call.client.get(PODS, name, call.namespace, decode=decode_pod)
        containers = _chosen(containers, pod)
    except NotFound:
        raise CommandError(f"Pod {call.namespace}/{name}: not found; use -n to specify another namespace") from None
    except Forbidden:
        # A user may be allowed to create requests but not to read Pods. The webhook validates the names as well.
        if not containers:
            raise
    body = new_request(name, containers, call, random_suffix(SystemRandom()))
    text, ended_by = f"{', '.join(containers)} of Pod {name}", "skip the remaining containers"
    return await Request(REQUESTS, body, text, "restarting", ended_by, POLL_SECONDS, _reporter()).make(call)


def _chosen(wanted: list[str], pod: Pod) -> list[str]:
    """Return the containers to restart. Raises CommandError if the choice is ambiguous or invalid."""
    shown = f"Pod {pod.metadata.namespace}/{pod.metadata.name}"
    there = [one.name for one in pod.spec.containers]
    if not wanted and len(there) > 1:
        raise CommandError(f"{shown}: name the container with -c: {', '.join(there)}")
    for name in wanted:
        if any(one.name == name for one in pod.spec.init_containers):
            raise CommandError(f"{shown}: {name} is an init container, which cannot be restarted")
        if name not in there:
            raise CommandError(f"{shown}: has no container {name}; name one with -c: {', '.join(there)}")
    return wanted or there


def _reporter() -> Callable[[Call, Json], Awaitable[int | None]]:
    said = LastSaid()

    async def report(call: Call, found: Json) -> int | None:
        status = found.get("status") or {}
        states = status.get("containerRecreateStates") or ()
        for one in states:
            word = one["phase"] + (f": {one['message']}" if one.get("message") else "")
            if said.is_news(one["name"], word):
                call.say(f"{one['name']}: {word}")
        if status.get("phase") != COMPLETED:
            return None
        done, wanted = sum(one["phase"] == SUCCEEDED for one in states), len(found["spec"]["containers"])
        why = f"; {status['message']}" if status.get("message") else ""
        call.say(f"{done} of {wanted} containers restarted{why}")
        return 0 if done == wanted else 1

    return report


async def explain_node(client: Client, node: Node, enabled: Enabled) -> Sequence[str]:
    """Return the restarts that the node's agent is performing, one per line."""
    if not enabled("KruiseDaemon"):
        return []
    query = f"{names.CRR_NODE_NAME}={node.metadata.name},{names.CRR_ACTIVE}=true"
    lines = []
    for found in (await client.list(REQUESTS, label_selector=query)).items:
        metadata, spec, status = found["metadata"], found["spec"], found.get("status") or {}
        states = {one["name"]: one["phase"] for one in status.get("containerRecreateStates") or ()}
        told = ", ".join(f"{one['name']} {states.get(one['name'], 'not begun')}" for one in spec["containers"])
        phase = status.get("phase") or "not seen by the agent yet"
        where = f"Pod {metadata['namespace']}/{spec['podName']}"
        lines.append(f"restarts: {where}: {told} ({metadata['name']}: {phase})")
    return lines


RESTART: Final = Verb(
    "restart",
    "Restart containers of a Pod in place. Creates a ContainerRecreateRequest.",
    "pod/NAME",
    (
        Option(
            "container",
            "Container names separated by commas; optional if the Pod has only one",
            short="c",
            takes="NAMES",
        ),
        Option("wait", "Show progress until all containers are done; exit code 1 if one failed", flag=True, short="w"),
        Option("ordered", "Restart one container at a time, each after the previous one is ready", flag=True),
        Option("force", "Also restart containers that have restarted in the meantime", flag=True),
        Option("keep-going", "Continue if a container cannot be stopped", flag=True),
        Option("grace", "Grace period, such as 30s; defaults to that of the Pod", takes="DURATION"),
        Option("deadline", "Give up after this time, such as 5m; 0 means never", default="0", takes="DURATION"),
    ),
    restart,
)
