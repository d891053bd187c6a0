"""What OpenKruise left behind is taken over as it is: no Pod touched, no new revision, no write but status."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import orjson
import pytest

from app.api.daemonset import DaemonSet
from app.kube.client import Client
from app.kube.events import EventRecorder
from app.kube.objects import Node, ObjectMeta, decode_controller_revision, decode_pod
from app.kube.resources import ObjectKey
from app.kube.virtualtime import VirtualClock
from app.slices import NODES, Stores
from app.workloads.daemonset import controller as daemonset
from app.workloads.daemonset.plan.settings import Gates
from app.workloads.daemonset.reconcile import DaemonSetReconciler
from tests.kube.fakes import virtual
from tests.workloads.cloneset.shell import Noting

RECORDED = Path(__file__).resolve().parents[2] / "data" / "openkruise" / "11-daemonset-jobs.json"
DECODERS = {
    "DaemonSet": ("workloads", DaemonSet.model_validate_json),
    "Pod": ("pods", decode_pod),
    "ControllerRevision": ("revisions", decode_controller_revision),
}


def recorded() -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = json.loads(RECORDED.read_text("utf-8"))["items"]
    return [found for found in items if found["kind"] in DECODERS]


@pytest.mark.behaviour("DS-53", "DS-54", "DS-19", "DS-37", "DS-66", "DS-67", "DS-75")
def test_nothing_is_written_but_status() -> None:
    @virtual
    async def take_over() -> None:
        clock, server = VirtualClock(), Noting()
        client = Client(server, clock)
        stores = Stores(daemonset.WATCHED)
        caches = daemonset.caches_of(stores)
        gates = Gates.of(lambda gate: gate in ("PodWebhook", "InPlaceUpdateEnvFromMetadata"))
        reconciler = DaemonSetReconciler(
            client, caches, stores(NODES), EventRecorder(client, daemonset.NAME), Random(1), gates=gates
        )
        for number in (1, 2, 3):
            stores(NODES).put(Node(metadata=ObjectMeta(name=f"node{number}", uid=f"n{number}")))
        for found in recorded():
            store, decode = DECODERS[found["kind"]]
            getattr(caches, store).put(decode(orjson.dumps(found)))
        for _ in range(2):
            await reconciler(ObjectKey("moving", "ds"))
        writes = [(method, path, body) for method, path, body in server.requests if method != "GET"]
        for method, path, body in writes:
            assert (method, path.rpartition("/")[2]) == ("PATCH", "status"), path
            assert "/daemonsets/" in path
            assert set(body["status"]) <= {"numberUnavailable"}, body

    take_over()
