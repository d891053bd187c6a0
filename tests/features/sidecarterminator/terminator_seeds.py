"""Jobs with sidecars by seed: answers are lost, managers die; no main container is stopped, every Job ends, and its end
is what its containers say.

``python -m tests.features.sidecarterminator.terminator_seeds 1 100`` runs these seeds.
"""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass, field
from random import Random
from typing import Any

from app.api import names
from app.features.containerrecreate.kind import CONTAINER_RECREATE_REQUEST
from app.kube.resources import JOBS, PODS, Resource
from app.sandbox.kubelet.program import Pace
from tests.kit import virtualtime
from tests.managed import managed
from tests.sandbox.cluster import Simulated
from tests.simulation.faults import CALM, Weather, weather

Json = dict[str, Any]
REQUESTS = CONTAINER_RECREATE_REQUEST.resource()
JOBS_THERE = 8
#: Requests that meet a storm are made again after a while.
STORM, CALM_SECONDS = 120.0, 400.0
NORMAL = {names.ENV_TERMINATE_SIDECAR: "true"}
IGNORED = {**NORMAL, names.ENV_TERMINATE_SIDECAR_IGNORE_EXIT_CODE: "true"}


@dataclass
class Story:
    """One Job: how its containers end, and so the Job."""

    policy: str
    #: By container: what it is asked to exit with, and its env.
    sidecars: dict[str, tuple[int, Json]]
    main: list[tuple[int, int]]

    @property
    def succeeds(self) -> bool:
        """Whether the Job completes: SS-115, with a sidecar whose exit code is ignored main containers alone count."""
        kinds = [env for _, env in self.sidecars.values()]
        counting = [] if IGNORED in kinds else [code for code, _ in self.sidecars.values()]
        return not any(code for _, code in self.main) and not any(counting)

    def job(self, name: str) -> Json:
        containers = [
            _container(f"main-{index}", f"sleep {seconds}; exit {code}", {})
            for index, (seconds, code) in enumerate(self.main)
        ]
        containers += [
            _container(side, f"trap 'exit {code}' TERM; sleep 1000000", env)
            for side, (code, env) in self.sidecars.items()
        ]
        spec = {"restartPolicy": self.policy, "terminationGracePeriodSeconds": 5, "containers": containers}
        return {"metadata": {"name": name}, "spec": {"backoffLimit": 0, "template": {"spec": spec}}}


def _container(name: str, command: str, env: Json) -> Json:
    entries = [{"name": key, "value": value} for key, value in env.items()]
    return {"name": name, "image": "busybox:1", "command": ["/bin/sh", "-c", command], "env": entries}


def story(rng: Random) -> Story:
    """With OnFailure all ends well: what does not is started again."""
    policy = rng.choice(("Never", "Never", "OnFailure"))
    codes = (0, 0, 0, 3) if policy == "Never" else (0,)
    kinds = [rng.choice((NORMAL, IGNORED)) for _ in range(rng.randint(1, 3))]
    sidecars = {
        f"side-{index}": (rng.choice((0, 3)) if env is IGNORED and policy == "Never" else rng.choice(codes), env)
        for index, env in enumerate(kinds)
    }
    return Story(policy, sidecars, [(rng.randint(1, 60), rng.choice(codes)) for _ in range(rng.randint(1, 2))])


@dataclass
class Judge:
    there: Simulated
    stories: dict[str, Story]
    breaches: list[str] = field(default_factory=list)
    pods: dict[str, Json] = field(default_factory=dict)
    requests: int = 0

    def wrote(self, verb: str, resource: Resource, before: Json | None, after: Json | None) -> None:
        if resource == PODS and after is not None:
            self.pods[after["metadata"]["name"]] = after
        elif resource == REQUESTS and verb == "create" and after is not None:
            self._requested(after)

    def _requested(self, request: Json) -> None:
        self.requests += 1
        pod = self.pods[request["spec"]["podName"]]
        told = self.stories[pod["metadata"]["labels"]["batch.kubernetes.io/job-name"]]
        stopped = {one["name"] for one in request["spec"]["containers"]}
        if not stopped <= told.sidecars.keys():
            self.breaches.append(f"main containers are stopped: {sorted(stopped)}")
        running = {one["name"] for one in pod["status"]["containerStatuses"] if "terminated" not in one["state"]}
        if running & {f"main-{index}" for index in range(len(told.main))}:
            self.breaches.append(f"{sorted(stopped)} stopped while {sorted(running)} run")
        ignored = {name for name, (_, env) in told.sidecars.items() if env is IGNORED}
        if stopped & ignored and (running - ignored or pod["status"]["phase"] == "Running"):
            self.breaches.append(
                f"{sorted(stopped)} stopped too early: {pod['status']['phase']}, {sorted(running)} run"
            )

    async def at_rest(self) -> None:
        """Every Job has ended as it should, and nothing of it runs."""
        for name, told in self.stories.items():
            conditions = (await self.there.get(JOBS, name)).get("status", {}).get("conditions") or []
            ended = {one["type"] for one in conditions if one["status"] == "True"}
            wanted = "Complete" if told.succeeds else "Failed"
            if wanted not in ended:
                self.breaches.append(f"{name} is {sorted(ended)}, not {wanted}: {told}")
        for name, pod in self.pods.items():
            if any("running" in one["state"] for one in pod["status"].get("containerStatuses", [])):
                self.breaches.append(f"{name} still runs")


async def run(seed: int) -> Judge:
    """One seed, its history and its findings."""
    rng = Random(seed)
    storm, now = weather(Random(f"weather {seed}")), [CALM]

    def current() -> Weather:
        return now[0]

    pace = Pace(start=rng.choice((0.0, 1.0)), restart=rng.choice((0.0, 2.0)), stop=rng.choice((0.0, 1.0)))
    gate = "--feature-gates=SidecarTerminator=true"
    async with managed(gate, number=3, seed=seed, pace=pace, weather=current) as there:
        judge = Judge(there, {f"job-{number}": story(rng) for number in range(JOBS_THERE)})
        there.api.on_write(judge.wrote)
        now[0] = storm
        for name, told in judge.stories.items():
            await there.create(JOBS, told.job(name))
            await there.client.clock.sleep(rng.uniform(0, 10))
        await there.client.clock.sleep(STORM)
        now[0] = CALM
        await there.client.clock.sleep(CALM_SECONDS)
        await judge.at_rest()
    return judge


def main() -> int:
    """Run the seeds from one to the other."""
    logging.basicConfig(level=logging.CRITICAL)
    first, last = int(sys.argv[1]), int(sys.argv[2])
    broken = requests = 0
    for seed in range(first, last + 1):
        judge = virtualtime.run(run(seed))
        requests += judge.requests
        if judge.breaches:
            broken += 1
            print(f"seed {seed}: {judge.breaches[:3]}", flush=True)
    print(f"{last - first + 1} seeds, {requests} requests, {broken} broken")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
