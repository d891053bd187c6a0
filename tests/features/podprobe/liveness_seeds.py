"""Randomized liveness runs: ``python -m tests.features.podprobe.liveness_seeds 1 100`` runs these seeds.

Containers fail, responses are lost and managers are killed. No healthy container may be restarted, and no workload
may lose more Pods than its budget.
"""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass, field
from datetime import datetime
from random import Random
from typing import Any

from app.api import names
from app.features.cloneset.kind import CLONE_SET
from app.features.containerrecreate.kind import CONTAINER_RECREATE_REQUEST
from app.kube.clock import parsed_rfc3339
from app.kube.resources import PODS, Resource
from app.sandbox.kubelet.program import Pace
from tests.kit import virtualtime
from tests.managed import managed
from tests.sandbox.cluster import Simulated
from tests.simulation.faults import CALM, Weather, weather

Json = dict[str, Any]
SETS, REQUESTS = CLONE_SET.resource(), CONTAINER_RECREATE_REQUEST.resource()
#: Seconds a container stays healthy: longer than restarting all of them in turn.
LIFE = 90
#: Seconds within which a restart allowed by the budget must be requested.
PATIENCE = 10
STORM, CALM_SECONDS = 400.0, 600.0


@dataclass
class Judge:
    """Checks every write. ``bears``: how many Pods may be out of service."""

    there: Simulated
    bears: int
    breaches: list[str] = field(default_factory=list)
    pods: dict[str, Json] = field(default_factory=dict)
    requests: dict[str, Json] = field(default_factory=dict)
    restarts: int = 0

    def wrote(self, verb: str, resource: Resource, before: Json | None, after: Json | None) -> None:
        known = {PODS: self.pods, REQUESTS: self.requests}.get(resource)
        if known is None:
            return
        name = ((after or before) or {})["metadata"]["name"]
        if after is None:
            known.pop(name, None)
            return
        known[name] = after
        if resource == REQUESTS and verb == "create":
            self._requested(after)

    def waits_for_nothing(self) -> list[str]:
        """Return the unhealthy Pods that are not restarted although the budget allows it."""
        now = self.there.client.clock.now()
        if len(self._out()) >= self.bears:
            return []
        started = {name: _started(pod, "main") for name, pod in self.pods.items()}
        return [name for name, at in started.items() if at is not None and (now - at).total_seconds() > LIFE + 30]

    def _out(self) -> set[str]:
        requested = {
            one["spec"]["podName"] for one in self.requests.values() if not one.get("status", {}).get("completionTime")
        }
        return {name for name, pod in self.pods.items() if not is_ready(pod) or name in requested}

    def _requested(self, request: Json) -> None:
        self.restarts += 1
        name, (container,) = request["spec"]["podName"], request["spec"]["containers"]
        started, now = _started(self.pods[name], container["name"]), self.there.client.clock.now()
        if container["name"] != "main":
            self.breaches.append(f"{now}: {container['name']} of {name} is restarted, which lives")
        elif started is None or (now - started).total_seconds() < LIFE:
            self.breaches.append(f"{now}: {name} is restarted although it lives: started {started}")
        if len(self._out()) > self.bears:
            self.breaches.append(f"{now}: out of service are {sorted(self._out())}")


def _started(pod: Json, container: str) -> datetime | None:
    (status,) = [one for one in pod["status"]["containerStatuses"] if one["name"] == container]
    return parsed_rfc3339(status.get("state", {}).get("running", {}).get("startedAt", ""))


def is_ready(pod: Json) -> bool:
    conditions = {one["type"]: one["status"] for one in pod.get("status", {}).get("conditions", [])}
    return conditions.get("Ready") == "True"


def clone_set(replicas: int, *containers: Json, max_unavailable: Any = 1, **pod_spec: Any) -> Json:
    return {
        "apiVersion": SETS.api_version,
        "kind": SETS.kind,
        "metadata": {"name": "web"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": max_unavailable}},
            "template": {
                "metadata": {"labels": {"app": "web"}, "annotations": {names.USING_ENHANCED_LIVENESS: "true"}},
                "spec": {"terminationGracePeriodSeconds": 3, "containers": list(containers), **pod_spec},
            },
        },
    }


def failing_set(replicas: int, bears: int, start: int) -> Json:
    command = f"sleep {start}; touch /alive; sleep {LIFE}; rm /alive; sleep 1000000"
    probe = {"exec": {"command": ["cat", "/alive"]}, "periodSeconds": 2}
    main = {
        "name": "main",
        "image": "busybox:1",
        "command": ["/bin/sh", "-c", command],
        "startupProbe": {**probe, "failureThreshold": 100},
        "livenessProbe": {**probe, "failureThreshold": 2},
    }
    side = {"name": "side", "image": "busybox:1", "livenessProbe": {**probe, "exec": {"command": ["echo", "fine"]}}}
    return clone_set(replicas, main, side, max_unavailable=bears)


async def run(seed: int) -> Judge:
    """Run one seed and return its history and violations."""
    rng = Random(seed)
    replicas, bears = rng.randint(3, 6), rng.randint(1, 2)
    storm, now = weather(Random(f"weather {seed}")), [CALM]

    def current() -> Weather:
        return now[0]

    gate = "--feature-gates=EnhancedLivenessProbe=true"
    pace = Pace(start=rng.choice((0.0, 1.0)), restart=rng.choice((0.0, 2.0)), stop=rng.choice((0.0, 1.0)))
    async with managed(gate, number=3, seed=seed, pace=pace, weather=current) as there:
        judge = Judge(there, bears)
        there.api.on_write(judge.wrote)
        await there.create(SETS, failing_set(replicas, bears, rng.randint(1, 4)))
        await there.status(SETS, "web", readyReplicas=replicas)
        now[0] = storm
        await there.client.clock.sleep(STORM)
        now[0] = CALM
        await there.client.clock.sleep(CALM_SECONDS)
        seen = 0
        for _ in range(60):
            await there.client.clock.sleep(1)
            seen = seen + 1 if judge.waits_for_nothing() else 0
            if seen > PATIENCE:
                judge.breaches.append(f"not restarted although there is room: {judge.waits_for_nothing()}")
                break
    return judge


def main() -> int:
    """Run a range of seeds."""
    first, last = int(sys.argv[1]), int(sys.argv[2])
    logging.basicConfig(level=logging.CRITICAL)
    broken = restarts = 0
    for seed in range(first, last + 1):
        judge = virtualtime.run(run(seed))
        restarts += judge.restarts
        if judge.breaches:
            broken += 1
            print(f"seed {seed}: {judge.breaches[:3]}", flush=True)
    print(f"{last - first + 1} seeds, {restarts} restarts, {broken} broken")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
