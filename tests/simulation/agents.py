"""Node agents, each a process that may be killed at any time, and their container runtimes.

The agents run the code of ``pykruise daemon``, each with its own watches and connection. A runtime outlives its agent
and completes a stop even if no caller waits for the answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from random import Random
from typing import Any

from app.api.names import KRUISE_POD_READY
from app.daemon.agent import Agent
from app.daemon.cri.types import (
    Auth,
    Container,
    ContainerDetails,
    ContainerState,
    ExecResult,
    Image,
    RuntimeUnavailable,
)
from app.daemon.main import USER_AGENT
from app.daemon.objects import RecreateContainer, RecreateRequest
from app.features.containerrecreate.kind import CONTAINER_RECREATE_REQUEST
from app.features.podprobe.kind import POD_PROBE_MARKER
from app.kube.client import Client
from app.kube.errors import AlreadyExists, NotFound
from app.kube.resources import PODS
from app.sandbox.agents import PodRuntime, PodRuntimes, SimulatedNetwork
from app.sandbox.nodes import Nodes
from tests.simulation.faults import FaultyTransport
from tests.simulation.script import NAMESPACE
from tests.simulation.streams import RandomByTask, Streams
from tests.simulation.users import UserAction, Users
from tests.simulation.workloads.judge import Judge
from tests.simulation.workloads.subject import RunContext

logger = logging.getLogger(__name__)

Json = dict[str, Any]

CONDITION = "example.com/who"
#: A command that prints the uid of the Pod that it runs in.
WHO = "whoami"
CONTAINERS = ("main", "side")
REQUESTS = CONTAINER_RECREATE_REQUEST.resource()
MARKERS = POD_PROBE_MARKER.resource()
#: Seconds within which an action must be handled: containers in back-off start late.
_SECONDS = 600.0
UID = "io.kubernetes.pod.uid"
#: Attempts to reuse a name, and seconds between them.
_LOOKS, _LOOK_SECONDS = 50, 0.2
#: The request and container name for which an agent stops a container.
_REQUEST: ContextVar[tuple[RecreateRequest, str] | None] = ContextVar("request", default=None)


class JudgeOfAgents(Judge):
    """Also judges the calls that agents make to runtimes."""

    def stops(self, request: RecreateRequest | None, name: str, pod_uid: str, container_id: str) -> Iterable[str]:
        raise NotImplementedError

    def pulls(self, node: str, reference: str) -> Iterable[str]:
        raise NotImplementedError


class _Runtimes(PodRuntimes):
    def __init__(self, agents: NodeAgents) -> None:
        super().__init__(agents.context.nodes.kubelets, agents.context.admin.clock)
        self.agents = agents


class _Runtime(PodRuntime):
    """The runtime of one node: slow, and unreachable until ``away_until``."""

    def __init__(self, all_of_them: _Runtimes, node: str) -> None:
        super().__init__(all_of_them, node)
        self._agents = all_of_them.agents
        self._clock = all_of_them.clock
        self._rng = Random(f"runtime {node} {self._agents.context.seed}")
        self.away_until = 0.0

    def _check(self) -> None:
        if self._clock.monotonic() < self.away_until:
            raise RuntimeUnavailable("simulated: connection refused")

    async def images(self, seconds: float) -> Sequence[Image]:
        self._check()
        return await super().images(seconds)

    async def containers(self, pod_uid: str) -> Sequence[Container]:
        self._check()
        return await super().containers(pod_uid)

    async def details(self, container_id: str) -> ContainerDetails:
        self._check()
        return await super().details(container_id)

    async def pull(
        self,
        reference: str,
        auth: Auth | None,
        labels: Mapping[str, str],
        annotations: Mapping[str, str],
        seconds: float,
    ) -> None:
        self._check()
        self._agents.pulls(self._node, reference)
        await self._clock.sleep(self._rng.choice((0.1, 2.0, 9.0)))
        self._check()
        await super().pull(reference, auth, labels, annotations, seconds)
        self._check()

    async def stop(self, container_id: str, grace: int) -> None:
        """Stop a container. The answer may be late or lost."""
        self._check()
        details = await super().details(container_id)
        if details.state is ContainerState.RUNNING:
            self._agents.stops(details.labels[UID], f"{self.name}://{container_id}")
        stopping = self._agents.context.start(super().stop(container_id, grace))
        await self._clock.sleep(self._rng.choice((0.0, 0.0, 0.5, 3.0)))
        self._check()
        await asyncio.shield(stopping)
        self._check()

    async def execute(self, container_id: str, command: Sequence[str], seconds: float) -> ExecResult:
        """Run a command. ``whoami`` prints the uid of the Pod."""
        self._check()
        await self._clock.sleep(self._rng.choice((0.0, 0.4)))
        details = await super().details(container_id)
        if list(command) == [WHO]:
            return ExecResult(0, details.labels[UID].encode())
        return await super().execute(container_id, command, seconds)


class _Process:
    """The agent of one node, restarted some time after it dies."""

    def __init__(self, agents: NodeAgents, node: str, runtime: _Runtime) -> None:
        self.node = node
        self.runtime = runtime
        self._agents = agents
        self._context = agents.context
        self._streams = Streams(f"agent {node} {self._context.seed}")
        self._life: asyncio.Task[None] | None = None
        self._transport: FaultyTransport | None = None

    def kill(self, when: str) -> None:
        if self._life is None:
            return
        logger.info("killing the agent of %s %s", self.node, when)
        life, self._life = self._life, None
        if self._transport is not None:
            self._transport.dead = True
        life.cancel()

    async def run(self) -> None:
        while True:
            self._life = life = asyncio.create_task(self._live(), name=f"agent of {self.node}")
            try:
                await asyncio.wait({life})
            finally:
                life.cancel()
            if not life.cancelled():
                self._context.breaks(f"the agent of {self.node} ended by itself: {life.exception()!r}")
            await self._context.admin.clock.sleep(self._streams("starts").choice((0.1, 1.0, 15.0)))

    async def _live(self) -> None:
        self._transport = transport = self._context.connect(f"agent-{self.node}", self.kill)
        client = Client(transport, self._context.admin.clock, user_agent=USER_AGENT)
        rng = RandomByTask(f"agent {self.node} {self._streams('lives').random()}")
        agent = Agent(self.node, client, [self.runtime], rng, network=SimulatedNetwork())
        stop = agent.recreator._kill

        async def known(request: RecreateRequest, container: RecreateContainer, *rest: Any) -> Any:
            token = _REQUEST.set((request, container.name))
            try:
                return await stop(request, container, *rest)
            finally:
                _REQUEST.reset(token)

        agent.recreator._kill = known  # type: ignore[method-assign]
        try:
            await agent.run()
        finally:
            transport.dead = True


class NodeAgents:
    """The agents of all nodes, and the actions on them, their Pods and their requests."""

    def __init__(self, context: RunContext) -> None:
        self.context = context
        if not isinstance(context.judge, JudgeOfAgents):
            raise TypeError("the judge must be a JudgeOfAgents")
        self._judge = context.judge
        self._nodes: Nodes = context.nodes
        runtimes = _Runtimes(self)
        self._agents = {node: _Process(self, node, _Runtime(runtimes, node)) for node in context.node_names}
        self.user_actions: Mapping[str, UserAction] = {
            "create marker": UserAction(self._create_marker, _SECONDS),
            "replace pod": UserAction(self._replace_pod, _SECONDS),
            "crash container": UserAction(self._crash_container, _SECONDS),
            "restart containers": UserAction(self._restart_containers, _SECONDS),
            "kill agent": UserAction(self._kill_agent, _SECONDS),
            "kill agents": UserAction(self._kill_agents, _SECONDS),
            "stop runtime": UserAction(self._stop_runtime, _SECONDS),
        }

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for agent in self._agents.values():
                tasks.create_task(agent.run(), name=f"process of the agent of {agent.node}")

    def stops(self, pod_uid: str, container_id: str) -> None:
        request, name = _REQUEST.get() or (None, "")
        self.context.say(f"stops {container_id} for {request.metadata.name if request is not None else 'no request'}")
        for sentence in self._judge.stops(request, name, pod_uid, container_id):
            self.context.breaks(sentence)

    def pulls(self, node: str, reference: str) -> None:
        self.context.say(f"{node} pulls {reference}")
        for sentence in self._judge.pulls(node, reference):
            self.context.breaks(sentence)

    # ---- actions

    async def _create_marker(self, _users: Users) -> None:
        """Probe every Pod's uid once a second."""
        probe = {"exec": {"command": [WHO]}, "periodSeconds": 1}
        asked = {"name": "who", "containerName": "main", "podConditionType": CONDITION, "probe": probe}
        spec = {"selector": {"matchLabels": {"app": "web"}}, "probes": [asked]}
        body = {"apiVersion": MARKERS.api_version, "kind": MARKERS.kind, "metadata": {"name": "ask"}, "spec": spec}
        await self.context.admin.create(MARKERS, body, NAMESPACE)

    async def _replace_pod(self, _users: Users, name: str, node: str, seconds: int) -> None:
        """Delete a Pod and create another with its name as soon as possible."""
        client = self.context.admin
        with suppress(NotFound):
            await client.delete(PODS, name, NAMESPACE, grace_period_seconds=seconds)
        for _ in range(_LOOKS):
            with suppress(AlreadyExists):
                await client.create(PODS, pod(name, node), NAMESPACE)
                return
            await client.clock.sleep(_LOOK_SECONDS)

    async def _crash_container(self, _users: Users, pod_name: str, container: str) -> None:
        found = self._nodes.pods.get(pod_name, NAMESPACE)
        if found is not None:
            self._nodes.kubelets.end_container(found, container, 1)

    async def _restart_containers(
        self, users: Users, name: str, spec: Json, again: bool = False, then: str = "", seconds: float = 0.0
    ) -> None:
        """Request a restart of containers. ``again``: replace a request with the same name; ``then``: what happens
        ``seconds`` later."""
        client = self.context.admin
        body = {"apiVersion": REQUESTS.api_version, "kind": REQUESTS.kind, "metadata": {"name": name}, "spec": spec}
        if again:
            with suppress(NotFound):
                await client.delete(REQUESTS, name, NAMESPACE)
        await client.create(REQUESTS, body, NAMESPACE)
        found = self._nodes.pods.get(spec["podName"], NAMESPACE)
        node = found.spec.node_name if found is not None else ""
        await client.clock.sleep(seconds)
        if then == "kill agent" and node:
            await self._kill_agent(users, node)
        elif then == "stop runtime" and node:
            await self._stop_runtime(users, node, 4.0)
        elif then == "replace pod" and node:
            await self._replace_pod(users, spec["podName"], node, 0)

    async def _kill_agent(self, _users: Users, node: str) -> None:
        self._agents[node].kill("by the script")

    async def _stop_runtime(self, _users: Users, node: str, seconds: float) -> None:
        runtime = self._agents[node].runtime
        runtime.away_until = max(runtime.away_until, self.context.admin.clock.monotonic() + seconds)

    async def _kill_agents(self, _users: Users) -> None:
        for agent in self._agents.values():
            agent.kill("by the script")


def pod(name: str, node: str) -> Json:
    return {
        "metadata": {"name": name, "labels": {"app": "web"}},
        "spec": {
            "containers": [{"name": one, "image": "app:1"} for one in CONTAINERS],
            "nodeName": node,
            "readinessGates": [{"conditionType": KRUISE_POD_READY}],
            "terminationGracePeriodSeconds": 1,
        },
    }
