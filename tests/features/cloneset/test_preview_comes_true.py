"""The controller does what ``pykruise plan`` predicts, for random CloneSets, Pods and gates.

``KRUISE_PREVIEWS=2000 pytest tests/features/cloneset/test_preview_comes_true.py`` tries more of them.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from random import Random
from typing import Any

import orjson
import pytest

from app.api import names
from app.features.cloneset.commands import parsed, situation
from app.features.cloneset.plan.settings import Gates
from app.kube.resources import PODS
from app.kube.wire import Request
from app.workloads.reconciler import EventMappers
from app.workloads.report import Action, Preview
from tests.features.cloneset.world import CLONESETS, NAMESPACE, SmallCluster, small_cluster, template
from tests.kube.fakes import virtual
from tests.nightly import examples

SEEDS = range(int(os.environ.get("KRUISE_PREVIEWS", examples(40))))
#: Seconds of the virtual clock after which nothing happens.
REST = 90.0
#: Seconds in which Pods start or stop.
STEP = 40.0
#: Gates that do not affect which Pods change, or that this cluster does not support.
_LEFT_ALONE = {"ready_gate", "managed_fields", "pre_download", "budget"}


@dataclass(frozen=True)
class Case:
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
    """Return the changes of existing Pods, by step."""
    steps: dict[int, set[tuple[Action, str]]] = {}
    for one in found.steps:
        if "(new " not in one.pod:
            steps.setdefault(one.step, set()).add((one.action, one.pod))
    return list(steps.values())


class Noted:
    """Records what the controller does to Pods. ``at`` holds the revisions of existing Pods by name."""

    def __init__(self, cluster: SmallCluster, at: dict[str, str]) -> None:
        self.cluster = cluster
        self.at = at
        self.turns: list[tuple[Action, str]] = []
        self.created = 0
        self.deleted: list[str] = []
        self.last = cluster.clock.monotonic()
        cluster.sent.intercept = self.note

    def note(self, request: Request) -> None:
        _, pods, rest = request.path.partition("/pods")
        if request.method == "GET" or not pods:
            return
        self.last = self.cluster.clock.monotonic()
        name = rest.split("/")[1] if rest else ""
        if request.method == "POST" and not rest:
            self.created += 1
        elif request.method == "DELETE":
            self.deleted.append(name)
            self._turn(Action.DELETE, name)
        elif request.method == "PATCH" and request.body:
            labels = orjson.loads(request.body)["metadata"].get("labels") or {}
            if names.SPECIFIED_DELETE in labels:
                self._turn(Action.RECREATE, name)
            revision = labels.get(names.CONTROLLER_REVISION_HASH, "").rpartition("-")[2]
            if revision and revision != self.at.get(name):
                self._turn(Action.IN_PLACE, name)

    def _turn(self, action: Action, name: str) -> None:
        if name in self.at and (Action.RECREATE, name) not in self.turns:
            self.turns.append((action, name))

    async def until_rest(self) -> None:
        """Wait until nothing was written for a while."""
        while self.cluster.clock.monotonic() - self.last < REST:
            await self.cluster.clock.sleep(1.0)


async def predicted(cluster: SmallCluster, gates: Gates, spec: dict[str, Any]) -> Preview:
    live = await cluster.user.get(CLONESETS, "web", NAMESPACE)
    wanted = parsed({**live, "spec": {**live["spec"], **spec}})
    found = await situation(cluster.user, wanted, gates)
    return found.preview(cluster.clock.now().timestamp())


@pytest.fixture(autouse=True)
def _in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """The preview assumes that Pods changed in one step are available before the next. Delay Pod events, so that the
    controller too reconciles only after changed Pods have become available."""
    monkeypatch.setattr(EventMappers, "coalesce_delay", lambda _self, _change, _key: STEP)


@virtual
@pytest.mark.parametrize("seed", SEEDS)
async def test_the_controller_follows_the_preview(seed: int) -> None:
    case = case_of(seed)
    async with small_cluster(case.gates, seed=seed) as cluster:
        await cluster.deploy(**case.before)
        await cluster.clock.sleep(2 * STEP)
        pods = sorted(await cluster.pods(), key=lambda pod: str(pod["metadata"]["name"]))
        for pod in pods[: case.marked]:
            body = {"metadata": {"labels": {names.SPECIFIED_DELETE: "true"}}}
            await cluster.user.patch(PODS, pod["metadata"]["name"], body, NAMESPACE)
        coming = await predicted(cluster, case.gates, case.after)
        at = {
            pod["metadata"]["name"]: pod["metadata"]["labels"]["controller-revision-hash"].rpartition("-")[2]
            for pod in pods
        }
        noted = Noted(cluster, at)
        await cluster.patch({"spec": case.after})
        await noted.until_rest()
        agree(coming, noted)


def agree(coming: Preview, noted: Noted) -> None:
    """Check that the predicted changes happened, step by step, and the same Pods were created and deleted."""
    left = list(noted.turns)
    for step in by_step(coming):
        assert set(left[: len(step)]) == step, (coming, noted.turns)
        left = left[len(step) :]
    assert not left, (coming, noted.turns)
    replaced = count(coming, Action.RECREATE)
    assert noted.created == replaced + count(coming, Action.CREATE), coming
    assert len(noted.deleted) == replaced + count(coming, Action.DELETE), coming
    gone = {one.pod for one in coming.steps if one.action in (Action.DELETE, Action.RECREATE)}
    assert noted.at.keys() & set(noted.deleted) == noted.at.keys() & gone


def count(coming: Preview, action: Action) -> int:
    return sum(one.action is action for one in coming.steps)
