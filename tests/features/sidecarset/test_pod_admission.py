import asyncio

import pytest

from app.features.sidecarset.pod_admission import refusal_events
from app.features.sidecarset.types import SidecarSet
from app.kube.client import Client
from app.kube.events import EventRecorder
from tests.kit.virtualtime import VirtualClock
from tests.kube.fakes import MemoryServer, running, virtual


@pytest.mark.behaviour("SS-120")
@virtual
async def test_a_refusal_is_a_warning_event_with_a_count() -> None:
    server = MemoryServer()
    recorder = EventRecorder(Client(server, VirtualClock()), "sidecarset-controller")
    known = SidecarSet.model_validate({"metadata": {"name": "logs", "uid": "u", "resourceVersion": "7"}})
    report = refusal_events(recorder, {"logs": known}.get)
    async with running(recorder.run()):
        for _ in range(3):
            report("logs", "Pod shop/web-0: revision logs-1 is not there")
            await asyncio.sleep(1)
        report("vanished", "no object to report to")
        assert await recorder.flush(5)
    [event] = server.objects.values()
    assert event["involvedObject"] == {
        "apiVersion": "apps.kruise.io/v1beta1",
        "kind": "SidecarSet",
        "name": "logs",
        "uid": "u",
        "resourceVersion": "7",
    }
    assert (event["type"], event["reason"], event["count"]) == ("Warning", "FailedInjectPod", 3)
    assert event["message"] == "Pod shop/web-0: revision logs-1 is not there"
    assert event["metadata"]["namespace"] == "default"
