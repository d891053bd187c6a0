"""The agent against mishaps, by seed: it is ended at any moment, its runtime goes away, the API server fails, Pods are
replaced. ``python -m tests.daemon.test_seeds 500`` tries more."""

from __future__ import annotations

import asyncio
import sys
from collections import defaultdict
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from app.daemon.agent import Agent
from app.daemon.objects import NODE_IMAGES, NODE_POD_PROBES, RECREATE_REQUESTS
from app.kube.client import Client
from app.kube.errors import KubeError, RequestInfo, TransportError
from app.kube.resources import PODS
from app.kube.wire import Request
from tests.daemon.node import NAMESPACE, NODE, Node, node, tag
from tests.kit.runtime import SimulatedContainer
from tests.kit.virtualtime import run
from tests.kube.fakes import running

SEEDS = 30
PODS_OF_NODE = ("a", "b", "c")


class Failing:
    """A transport that loses some requests before they are sent, and some answers."""

    def __init__(self, inner: Any, rng: Random) -> None:
        self.inner = inner
        self.rng = rng
        self.share = 0.0

    async def request(self, request: Request) -> Any:
        if self.rng.random() < self.share:
            raise TransportError(RequestInfo(request.method, request.path), "lost on the way")
        answer = await self.inner.request(request)
        if self.rng.random() < self.share:
            raise TransportError(RequestInfo(request.method, request.path), "the answer was lost")
        return answer

    def stream(self, request: Request) -> Any:
        return self.inner.stream(request)

    async def close(self) -> None:
        await self.inner.close()


class Story:
    def __init__(self, one: Node, rng: Random) -> None:
        self.one = one
        self.rng = rng
        self.transport = Failing(one.api.transport(), rng)
        self.client = Client(self.transport, one.clock)
        #: Which containers were ended, by Pod and name; and those that requests were about when they were made.
        self.ended: list[SimulatedContainer] = []
        self.requests: dict[str, tuple[str, tuple[str, ...], bool]] = {}
        self.number = 0
        one.runtime.on_stop = self._restart

    def _restart(self, container: SimulatedContainer) -> None:
        self.ended.append(container)
        self.one.restart(container)

    async def begin(self) -> None:
        for name in PODS_OF_NODE:
            await self.one.pod({"name": "app"}, {"name": "side"}, name=name)
        self.one.runtime.registry.default_seconds = 3
        await self.one.node_image()
        await self.one.probes()

    async def mishap(self) -> None:
        """One thing that a user, the machine or the network does."""
        one, rng = self.one, self.rng
        match rng.choice(("request", "request", "pull", "probe", "away", "faults", "replace")):
            case "request":
                await self._request()
            case "pull":
                tags = [tag(str(number), rng.randrange(3)) for number in rng.sample(range(5), 2)]
                await one.node_image(nginx={"tags": tags})
            case "probe":
                pod = await one.client.get(PODS, rng.choice(PODS_OF_NODE), NAMESPACE)
                probe = {"exec": {"command": [rng.choice(("true", "false"))]}, "periodSeconds": 1}
                probes = [{"name": "m#p", "containerName": "app", "probe": probe}]
                identity = {"name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
                await one.probes({**identity, "namespace": NAMESPACE, "IP": "", "probes": probes})
            case "away":
                one.runtime.away = not one.runtime.away
            case "faults":
                self.transport.share = rng.choice((0.0, 0.1, 0.4))
            case "replace":
                await self._replace(rng.choice(PODS_OF_NODE))

    async def _request(self) -> None:
        self.number += 1
        pod_name, name = self.rng.choice(PODS_OF_NODE), f"r{self.number}"
        containers = tuple(self.rng.sample(("app", "side"), self.rng.randint(1, 2)))
        forced = self.rng.random() < 0.4
        pod = await self.one.report(pod_name)
        await self.one.request(
            pod, *containers, name=name, forceRecreate=forced, orderedRecreate=self.rng.random() < 0.3
        )
        self.requests[name] = (pod["metadata"]["uid"], containers, forced)

    async def _replace(self, name: str) -> None:
        """The Pod is deleted, and another one takes its name."""
        old = await self.one.client.get(PODS, name, NAMESPACE)
        await self.one.client.delete(PODS, name, NAMESPACE, grace_period_seconds=0)
        for key, container in list(self.one.runtime.known.items()):
            if container.pod_uid == old["metadata"]["uid"]:
                del self.one.runtime.known[key]
        await self.one.pod({"name": "app"}, {"name": "side"}, name=name)

    async def manage(self) -> None:
        """Acts as the manager: reports containers that run again, and ends requests for Pods that are gone."""
        for name, (uid, containers, _) in self.requests.items():
            status = await self.one.status(RECREATE_REQUESTS, name)
            if status.get("completionTime") or not status.get("phase"):
                continue
            if not any(container.pod_uid == uid for container in self.one.runtime.known.values()):
                ended = {"phase": "Completed", "completionTime": "2030-01-01T00:00:00Z", "message": "pod has gone"}
                body = {"status": ended}
                await self.one.client.patch(RECREATE_REQUESTS, name, body, NAMESPACE, subresource="status")
            else:
                await self.one.snapshot(uid, *containers, name=name)

    # ---- what must hold

    async def check(self) -> bool:
        """No container was ended more often than asked for, no result is of another Pod. Whether all results are of
        Pods that are to be probed, as they are in the end."""
        asked: dict[tuple[str, str], int] = defaultdict(int)
        for uid, containers, _ in self.requests.values():
            for container in containers:
                asked[uid, container] += 1
        done: dict[tuple[str, str], int] = defaultdict(int)
        for ended in self.ended:
            done[ended.pod_uid, ended.name] += 1
        for key, times in done.items():
            assert times <= asked[key], (key, times, asked[key])
        status = await self.one.status(NODE_POD_PROBES)
        spec = (await self.one.client.get(NODE_POD_PROBES, NODE))["spec"].get("podProbes", [])
        created = {pod["metadata"]["uid"]: pod["metadata"]["creationTimestamp"] for pod in await self._pods()}
        for pod in status.get("podProbeStatuses", []):
            for state in pod["probeStates"]:
                # Nothing is known of a Pod from before its time.
                assert state["lastProbeTime"] >= created.get(pod["uid"], ""), (pod, created)
        return {pod["uid"] for pod in status.get("podProbeStatuses", [])} <= {pod["uid"] for pod in spec}

    async def _pods(self) -> list[dict[str, Any]]:
        return (await self.one.client.list(PODS, NAMESPACE)).items

    async def settle(self) -> None:
        """Without further mishaps everything comes to its end."""
        self.one.runtime.away, self.transport.share = False, 0.0

        async def over() -> bool:
            await self.manage()
            statuses = [await self.one.status(RECREATE_REQUESTS, name) for name in self.requests]
            images = await self.one.client.get(NODE_IMAGES, NODE)
            wanted = [entry["tag"] for each in images["spec"].get("images", {}).values() for entry in each["tags"]]
            ended = [entry for entry in (await self.one.tags()).values() if entry.get("completionTime")]
            return all(each.get("completionTime") for each in statuses) and len(wanted) == len(ended)

        await self.one.until(over, 600)


async def story(seed: int) -> None:
    rng = Random(seed)
    async with node() as one:
        told = Story(one, rng)
        await told.begin()
        for _ in range(4):
            async with running(Agent(NODE, told.client, [one.runtime], Random(seed)).run()):
                for _ in range(rng.randint(1, 5)):
                    await told.mishap()
                    await one.clock.sleep(rng.random() * rng.choice((0.1, 2.0, 15.0)))
                    with suppress(KubeError):
                        await told.manage()
                    await told.check()
        agent = Agent(NODE, told.client, [one.runtime], Random(seed))
        async with running(agent.run()):
            await told.settle()
            await one.clock.sleep(60)
            assert await told.check()
            assert agent.failing() == ""
            assert agent.puller.pulls == {}
        assert not [task for task in asyncio.all_tasks() if task.get_name().startswith(("pull ", "probe "))]


@pytest.mark.behaviour("KD-17", "CRR-37", "CRR-50", "KD-67")
@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_action_runs_twice_and_all_requests_complete(seed: int) -> None:
    run(story(seed))


if __name__ == "__main__":
    for number in range(int(sys.argv[1])):
        try:
            run(story(number))
        except BaseException:
            print(f"seed {number}")
            raise
