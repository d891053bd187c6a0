"""The admission service in this process, with the objects of :mod:`tests.fuzz.objects`."""

from __future__ import annotations

import tempfile
from pathlib import Path
from random import Random
from typing import Any

import orjson
import yaml

from app.admission.metrics import AdmissionMetrics
from app.admission.server import create_app
from app.api.conversion import convert
from app.kube.admission import Allowed, Decision, Denied, Handler, Patched, Review
from app.manager.gates import GATES as GATE_TABLE
from app.manager.gates import parse_gates
from app.manager.standalone import Standalone
from tests.fuzz import objects
from tests.kit.asgi import posted as posted
from tests.kit.virtualtime import VirtualClock

#: With these gates, patches of metadata need no ConfigMap.
GATES = "SidecarSetPatchPodMetadataDefaultsAllowed=true"
#: With all gates on, every target is served.
ALL_GATES = ",".join(f"{name}=true" for name in GATE_TABLE)


async def standalone_service(*manifests: objects.Json, gates: str = GATES) -> Standalone:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "objects.yaml"
        path.write_text(yaml.safe_dump_all(manifests), "utf-8")
        standalone = Standalone(path, parse_gates(gates), VirtualClock(), Random(1))
        await standalone.reload()
    assert not standalone.problems, standalone.problems
    return standalone


async def decided(handler: Handler | Decision, review: Review) -> Decision:
    outcome: Any = handler.decide(review) if isinstance(handler, Handler) else handler
    decision: Decision = outcome if isinstance(outcome, Allowed | Patched | Denied) else await outcome
    return decision


class Service:
    """Answers requests like the HTTP service, without a socket."""

    def __init__(self, standalone: Standalone) -> None:
        self._app = create_app(standalone.registry, convert, AdmissionMetrics())

    async def status_and_answer(self, path: str, body: bytes) -> tuple[int, dict[str, Any]]:
        status, answer = await posted(self._app, path, body)
        return status, orjson.loads(answer)

    async def respond(self, path: str, document: Any) -> dict[str, Any]:
        _, answer = await self.status_and_answer(path, objects.encode(document))
        response: dict[str, Any] = answer["response"]
        return response
