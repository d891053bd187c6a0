"""The admission service in this process, with the objects of :mod:`tests.fuzz.objects`."""

from __future__ import annotations

import tempfile
from pathlib import Path
from random import Random
from typing import Any

import httpx
import yaml

from app.admission.metrics import AdmissionMetrics
from app.admission.server import create_app
from app.api.conversion import convert
from app.manager.gates import GATES as GATE_TABLE
from app.manager.gates import parse_gates
from app.manager.standalone import Standalone
from tests.fuzz import objects
from tests.kit.virtualtime import VirtualClock

#: Patches of metadata then need no ConfigMap.
GATES = "SidecarSetPatchPodMetadataDefaultsAllowed=true"
#: Every target.
ALL_GATES = ",".join(f"{name}=true" for name in GATE_TABLE)
_JSON = {"Content-Type": "application/json"}


async def standalone_service(*manifests: objects.Json, gates: str = GATES) -> Standalone:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "objects.yaml"
        path.write_text(yaml.safe_dump_all(manifests), "utf-8")
        standalone = Standalone(path, parse_gates(gates), VirtualClock(), Random(1))
        await standalone.reload()
    assert not standalone.problems, standalone.problems
    return standalone


class Service:
    """Answers requests like the HTTP service, without a socket."""

    def __init__(self, standalone: Standalone) -> None:
        app = create_app(standalone.registry, convert, AdmissionMetrics())
        self._http = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="https://service")

    async def status_and_answer(self, path: str, body: bytes) -> tuple[int, dict[str, Any]]:
        answer = await self._http.post(path, content=body, headers=_JSON)
        return answer.status_code, answer.json()

    async def respond(self, path: str, document: Any) -> dict[str, Any]:
        _, answer = await self.status_and_answer(path, objects.encode(document))
        response: dict[str, Any] = answer["response"]
        return response
