"""The manager's caches: their indexes, and which process holds which cache; and how a process stops."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from random import Random

import orjson
import pytest

from app.features.cloneset.reconcile import SET_CLAIMS
from app.features.sidecarset.history import RECORDED_SET
from app.features.sidecarset.reconcile import INJECTED_BY
from app.framework.feature import ControllerPart, Feature
from app.framework.watched import PODS, REVISIONS
from app.kube.client import Client
from app.kube.objects import decode_controller_revision, decode_persistent_volume_claim, decode_pod
from app.kube.reflector import ReflectorMetrics
from app.manager.flags import parse_flags
from app.manager.process import Caches, Process
from app.manager.settings import read_settings
from app.manager.shared_state import Replica
from app.pods.predicates import BY_CONTROLLER, Owner, ownerless
from tests.kit.objects import reference
from tests.kit.virtualtime import VirtualClock
from tests.kube.fakes import MemoryServer, virtual

OWNED = {
    "name": "web-abcde",
    "namespace": "shop",
    "uid": "1",
    "labels": {"kruise.io/sidecarset-name": "mesh"},
    "annotations": {"kruise.io/sidecarset-injected-list": "logs,mesh"},
    "ownerReferences": [reference("apps.kruise.io/v1beta1", "CloneSet", "web", "web-uid")],
}

WEB = Owner("apps.kruise.io/v1alpha1", "CloneSet", "web", "shop", "web-uid")


@pytest.mark.behaviour("MGR-61")
def test_indexes_find_objects_of_a_workload_or_sidecarset() -> None:
    caches = Caches("kruise-system")
    raw = orjson.dumps({"metadata": OWNED})
    pods, claims, revisions = map(caches.stores, (PODS, SET_CLAIMS, REVISIONS))
    recorded = caches.by_name["ControllerRevisions"]
    pods.replace([decode_pod(raw)])
    claims.replace([decode_persistent_volume_claim(raw)])
    revisions.replace([decode_controller_revision(raw)])
    recorded.replace([decode_controller_revision(raw)])
    for store in (pods, claims, revisions):
        assert [found.metadata.name for found in store.by_index(BY_CONTROLLER, WEB.index_key)] == ["web-abcde"]
        assert not list(store.by_index(BY_CONTROLLER, replace(WEB, uid="other").index_key))
        assert not list(store.by_index(BY_CONTROLLER, ownerless("shop")))
    assert [found.metadata.name for found in pods.by_index(INJECTED_BY, "mesh")] == ["web-abcde"]
    assert [found.metadata.name for found in recorded.by_index(RECORDED_SET, "mesh")] == ["web-abcde"]


def test_review_processes_cache_no_pods() -> None:
    caches, client = Caches("kruise-system", "shop"), Client(MemoryServer(), VirtualClock())
    admission = caches.admission_reflectors(client, Random(1), ReflectorMetrics())
    controllers = caches.controller_reflectors(client, Random(1), ReflectorMetrics())
    filled = [reflector.store for reflector in (*admission, *controllers)]
    assert len(filled) == len({id(store) for store in filled}) == len(caches.by_name)
    assert "Pods" not in caches.for_admission
    assert {id(store) for store in caches.for_admission.values()} == {id(one.store) for one in admission}


def test_disabled_controllers_watch_nothing() -> None:
    part = ControllerPart("c", (PODS,), make=lambda _context: pytest.fail("not made"), gates=("A", "B"))
    assert not Caches("own", enabled=lambda gate: gate == "C", declared=[Feature("s", controllers=(part,))]).by_name
    assert Caches("own", enabled=lambda gate: gate == "B", declared=[Feature("s", controllers=(part,))]).by_name


@virtual
async def test_a_stopped_process_finishes_what_is_in_progress_and_cancels_the_rest() -> None:
    answered, cancelled = [], []

    class Serving:
        def __init__(self, process: Process) -> None:
            self.process, self.stopping = process, asyncio.Event()

        async def start(self) -> None:
            self.process.tasks.start(self.serve(), "server", finish=self.stopping.set)
            self.process.tasks.start(self.watch(), "watch")
            asyncio.get_running_loop().call_later(5, self.process.stop.set)

        async def serve(self) -> None:
            await self.stopping.wait()
            await asyncio.sleep(1)
            answered.append(self.process.state.stopping)

        async def watch(self) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.append(list(answered))

        async def stop(self) -> None:
            pass

        def debug_pages(self) -> Mapping[str, list[str]]:
            return {}

    clock, replica = VirtualClock(), Replica(("one",))
    settings = read_settings(parse_flags(["--webhook-host=localhost"]), {"POD_NAMESPACE": "kruise-system"})
    process = Process("one", replica, settings, {}, lambda process: [Serving(process)], clock=clock)
    await process.work(Client(MemoryServer(), clock))
    assert (answered, cancelled) == ([True], [[True]])
    replica.close()
