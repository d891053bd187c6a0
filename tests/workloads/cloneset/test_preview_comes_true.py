"""What ``pykruise plan`` says is what the controller then does, for random CloneSets, Pods and gates, on the sandbox.

``KRUISE_PREVIEWS=2000 pytest tests/workloads/cloneset/test_preview_comes_true.py`` tries more of them.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from random import Random
from typing import Any

import pytest

from app.cli.clonesets import parsed, situation, surroundings
from app.kube.resources import PODS
from app.workloads.cloneset.plan.preview import Action, Preview, PreviewStep, preview
from app.workloads.cloneset.plan.settings import Gates
from tests.kube.fakes import virtual
from tests.workloads.cloneset.world import CLONESETS, NAMESPACE, SmallCluster, small_cluster, template

SEEDS = range(int(os.environ.get("KRUISE_PREVIEWS", "40")))
#: Seconds of the virtual clock after which nothing happens any more.
REST = 60.0
#: Gates that have no say in which Pods change, or for which the cluster here has no counterpart.
_LEFT_ALONE = {"ready_gate", "managed_fields", "pre_download", "budget"}


@dataclass(frozen=True)
class Case:
    """A CloneSet at rest, and what is changed then."""

    before: dict[str, Any]
    after: dict[str, Any]
    marked: int
    gates: Gates


def case_of(seed: int) -> Case:
    """Everything about the case follows from its seed."""
    rng = Random(seed)
    replicas = rng.randint(1, 5)
    gates = Gates(**{one.name: rng.random() < 0.3 for one in fields(Gates) if one.name not in _LEFT_ALONE})
    policy = rng.choice(("InPlaceIfPossible", "InPlaceIfPossible", "ReCreate", "InPlaceOnly"))
    surge = 0 if policy == "InPlaceOnly" else rng.choice((0, 0, 1, 2, "50%"))
    unavailable = rng.choice((1, 1, 2, "50%", *((0,) if surge else ())))
    block = {
        "podUpdatePolicy": policy,
        "maxSurge": surge,
        "maxUnavailable": unavailable,
        "partition": rng.choice((0, 0, 0, 1, 2, "50%")),
        "paused": rng.random() < 0.1,
    }
    change = rng.choice(("image", "image", "image", "env", "nothing"))
    image = "nginx:2" if change == "image" else "nginx:1"
    after = template(image=image)
    if change == "env":
        after["spec"]["containers"][0]["env"] = [{"name": "A", "value": "1"}]
    strategy = {"type": "OnDelete"} if rng.random() < 0.05 else {"type": "RollingUpdate", "rollingUpdate": block}
    return Case(
        before={"replicas": replicas, "template": template()},
        after={
            "replicas": max(0, replicas + rng.choice((0, 0, 0, 0, 1, -1))),
            "template": after,
            "updateStrategy": strategy,
            "scaleStrategy": {"excludePreparingDelete": rng.random() < 0.2},
        },
        marked=rng.choice((0, 0, 0, 1)),
        gates=gates,
    )


def by_step(found: Preview) -> list[set[tuple[Action, str]]]:
    """Of the Pods that are there: what happens to them, together and one after the other."""
    steps: dict[int, set[tuple[Action, str]]] = {}
    for one in found.steps:
        if "(new " not in one.pod:
            steps.setdefault(one.step, set()).add((one.action, one.pod))
    return list(steps.values())


class Watched:
    """What the controller does to Pods, from the requests it sends."""

    def __init__(self, cluster: SmallCluster) -> None:
        self.cluster = cluster
        self.uids: dict[str, str] = {}
        self.turns: list[tuple[Action, str]] = []
        self.created: list[str] = []
        self.deleted: list[str] = []

    async def run(self, revision: dict[str, str]) -> None:
        """Until nothing has changed for a while; ``revision``: of the Pods that are there."""
        pods = {name: (at, False) for name, at in revision.items()}
        quiet = 0.0
        while quiet < REST:
            await self.cluster.clock.sleep(0.01)
            quiet += 0.01
            live = {pod["metadata"]["name"]: pod["metadata"] for pod in self.cluster.api.objects(PODS)}
            for name, metadata in live.items():
                at = metadata["labels"]["controller-revision-hash"].rpartition("-")[2]
                marked = "apps.kruise.io/specified-delete" in metadata["labels"]
                if name not in pods:
                    self.created.append(name)
                    quiet = 0.0
                elif pods[name] != (at, marked):
                    quiet = 0.0
                    if name in revision and pods[name][0] != at:
                        self.turns.append((Action.IN_PLACE, name))
                    elif name in revision and marked:
                        self.turns.append((Action.RECREATE, name))
                pods[name] = (at, marked)
            for name in [one for one in pods if one not in live or "deletionTimestamp" in live[one]]:
                if name not in live:
                    quiet = 0.0
                    del pods[name]
                if name not in self.deleted:
                    quiet = 0.0
                    self.deleted.append(name)
                    if name in revision and (Action.RECREATE, name) not in self.turns:
                        self.turns.append((Action.DELETE, name))


async def foretold(cluster: SmallCluster, gates: Gates, spec: dict[str, Any]) -> Preview:
    """What ``pykruise plan`` says of that spec."""
    live = await cluster.user.get(CLONESETS, "web", NAMESPACE)
    wanted = parsed({**live, "spec": {**live["spec"], **spec}})
    found = situation(wanted, await surroundings(cluster.user, wanted), gates)
    now = cluster.clock.now().timestamp()
    return preview(found.resolved, found.pods, found.revisions, now, found.node_labels)


@virtual
@pytest.mark.parametrize("seed", SEEDS)
async def test_the_controller_does_what_the_preview_says(seed: int) -> None:
    case = case_of(seed)
    async with small_cluster(case.gates, seed=seed) as cluster:
        await cluster.apply(**case.before)
        await cluster.settled(readyReplicas=case.before["replicas"])
        await cluster.clock.sleep(5.0)
        pods = sorted(await cluster.pods(), key=lambda pod: str(pod["metadata"]["name"]))
        marked = [pod["metadata"]["name"] for pod in pods[: case.marked]]
        scaling = {**case.after["scaleStrategy"], "podsToDelete": marked}
        spec = {**case.after, "scaleStrategy": scaling}
        coming = await foretold(cluster, case.gates, spec)
        at = {
            pod["metadata"]["name"]: pod["metadata"]["labels"]["controller-revision-hash"].rpartition("-")[2]
            for pod in pods
        }
        await cluster.patch({"spec": spec})
        watched = Watched(cluster)
        await watched.run(at)
        agree(coming, watched, at)


def agree(coming: Preview, watched: Watched, at: dict[str, str]) -> None:
    """The same turns in the same order, where what stands in one step may come in any; the same Pods come and go."""
    left = list(watched.turns)
    for step in by_step(coming):
        assert set(left[: len(step)]) == step, (coming, watched.turns)
        left = left[len(step) :]
    assert not left, (coming, watched.turns)
    replaced = sum(one.action is Action.RECREATE for one in coming.steps)
    assert len(watched.created) == replaced + count(coming, Action.CREATE), coming
    assert len(watched.deleted) == replaced + count(coming, Action.DELETE), coming
    assert {name for name in at if name not in watched.deleted} == {
        name for name in at if not any(one.pod == name and gone(one) for one in coming.steps)
    }


def count(coming: Preview, action: Action) -> int:
    return sum(one.action is action for one in coming.steps)


def gone(one: PreviewStep) -> bool:
    return one.action in (Action.DELETE, Action.RECREATE)
