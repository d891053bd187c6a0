"""What OpenKruise left is taken over by all controllers at once: nothing is written but what was wrong or missing."""

from __future__ import annotations

import json
import re
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.kube.resources import EVENTS, LEASES, NODES, Resource
from app.manager.features import features, kinds
from tests import openkruise
from tests.kit import cluster
from tests.kit.cluster import scenarios

Json = dict[str, Any]
KINDS = {kind.kind: kind.resource() for kind in kinds()}
OF_SERVERS = ("resourceVersion", "managedFields", "generation")
RUN = re.compile(r"create Job/acj-\d+|update AdvancedCronJob/acj: status")


def left(now: datetime) -> list[Json]:
    """Return what OpenKruise left, with times shifted so that nothing has expired."""
    shift = now - datetime(2026, 11, 22, 14, 11, tzinfo=UTC)

    def later(found: re.Match[str]) -> str:
        return f"{datetime.fromisoformat(found.group()) + shift:%Y-%m-%dT%H:%M:%SZ}"

    def due_later(found: re.Match[str]) -> str:
        return f"acj-{int(found[1]) + int(shift / timedelta(seconds=1))}"

    text = json.dumps(openkruise.recorded())
    text = re.sub(r"2026-11-22T14:\d\d:\d\dZ", later, re.sub(r"acj-(\d{10})", due_later, text))
    return openkruise.owners_first(json.loads(text))


class World(cluster.World):
    namespace = "moving"

    def note(self, verb: str, resource: Resource, before: Json | None, after: Json | None) -> None:
        """Record which parts of an object were written."""
        if resource in (EVENTS, LEASES):
            return
        found = after or before or {}
        written = f"{verb} {resource.kind}/{found['metadata']['name']}"
        if verb == "update":
            parts = [part for part in found if _part(before, part) != _part(after, part)]
            if not parts:
                return
            written += f": {', '.join(sorted(parts))}"
        self.writes.append(written)


def _part(obj: Json | None, part: str) -> Any:
    found = (obj or {}).get(part)
    return {key: found[key] for key in found if key not in OF_SERVERS} if part == "metadata" else found


async def leave(there: World) -> None:
    items = left(there.clock.now())
    for item in items:
        if item["kind"] == "NodeImage":
            metadata = {key: item["metadata"][key] for key in ("name", "labels")}
            await there.client.create(NODES, {"metadata": metadata})
    await openkruise.leave(there.client, items)


def world() -> AbstractAsyncContextManager[World]:
    return cluster.cluster(World, *features(), namespaces=["kruise-system", "moving"], before=leave)


in_world = scenarios(world)


#: What is written at first: statuses that are wrong or lack conditions, Pods that were recorded while two objects set
#: their deletion cost, probes under the uids of this cluster, and a copy in a namespace that is new.
WRONG = {
    *(f"update CloneSet/{name}: status" for name in ("web", "hooked", "spread", "ud-three-j8sm6")),
    "update UnitedDeployment/ud: status",
    *(f"update NodePodProbe/node{number}: spec" for number in (1, 2, 3)),
    *(f"update Pod/spread-{name}: metadata" for name in ("8r6pf", "b6j6s", "mc4ml", "pwnjv", "xwqtz")),
    "create ConfigMap/shared-settings",
}
DELETED_JOB = {"delete BroadcastJob/bj", "update Pod/bj-*: metadata", "delete Pod/bj-*"}
FEWER_IN_A = [{"name": "a", "maxReplicas": 1}, {"name": "b"}]
JUDGED = "update PodUnavailableBudget/pub: status"
TTL = {"ttlSecondsAfterFinished": 0}
SETTINGS = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "shared-settings"}, "data": {"level": "new"}}
#: Changes of what was taken over, and the writes that follow (* is a random suffix), without statuses of workloads.
CHANGES = [
    ("WorkloadSpread", "ws", {"subsets": FEWER_IN_A}, {"update Pod/spread-*: metadata"}),
    ("PodUnavailableBudget", "pub", {"maxUnavailable": "20%"}, {JUDGED}),
    ("CloneSet", "spread", {"replicas": 6}, {"create Pod/spread-*", "update Pod/spread-*: metadata", JUDGED}),
    ("StatefulSet", "st", {"replicas": 5}, {"create PersistentVolumeClaim/d-st-5", "create Pod/st-5"}),
    ("DaemonSet", "ds", {"updateStrategy": {"rollingUpdate": {"partition": 0}}}, {"update Pod/ds-*: metadata, spec"}),
    ("AdvancedCronJob", "acj", {"paused": True, "successfulJobsHistoryLimit": 1}, {"delete Job/acj-*"}),
    ("BroadcastJob", "bj", {"completionPolicy": TTL}, DELETED_JOB),
    ("EphemeralJob", "ej", TTL, {"update EphemeralJob/ej: metadata", "delete EphemeralJob/ej"}),
    ("ResourceDistribution", "rd", {"resource": SETTINGS}, {"update ConfigMap/shared-settings: data, metadata"}),
]


@pytest.mark.behaviour("ACJ-14", "BJ-16", "DS-48", "EJ-3", "EJ-4", "PM-80", "PUB-50", "PUB-58", "RD-34", "RD-36")
@pytest.mark.behaviour("UD-48", "WS-50", "WS-63", "WS-74")
@in_world
async def test_takeover_writes_what_is_wrong_and_later_changes_apply(there: World) -> None:
    await there.settled(55)
    assert {one for one in there.writes if not RUN.fullmatch(one)} == WRONG
    for kind, name, spec, wanted in CHANGES:
        there.writes.clear()
        await there.change(KINDS[kind], name, {"spec": spec})
        await there.settled(20)
        by_user = f"update {kind}/{name}: spec"
        others = (one for one in there.writes if one == JUDGED or not (RUN.fullmatch(one) or one.endswith(": status")))
        written = {re.sub(r"(?<=Pod/)(spread|ds|bj)-\w+|(?<=Job/)(acj)-\d+", r"\1\2-*", one) for one in others}
        assert written - {by_user} == wanted, kind
