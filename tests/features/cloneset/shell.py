"""The reconciler on caches that the test fills by hand, and an API server that only notes what is asked of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

import orjson

from app.features.cloneset import reconcile as cloneset
from app.features.cloneset.plan.settings import Gates
from app.features.cloneset.reconcile import CloneSetReconciler
from app.features.cloneset.types import CloneSet
from app.framework.watched import Stores
from app.kube.client import Client
from app.kube.controller import Result
from app.kube.events import EventRecorder
from app.kube.objects import decode_controller_revision, decode_persistent_volume_claim, decode_pod
from app.kube.resources import ObjectKey
from app.kube.wire import Request, Response
from tests.kit.virtualtime import VirtualClock
from tests.kube.fakes import json_response, status_body

DECODERS = {
    "CloneSet": ("workloads", CloneSet.model_validate_json),
    "Pod": ("pods", decode_pod),
    "PersistentVolumeClaim": ("claims", decode_persistent_volume_claim),
    "ControllerRevision": ("revisions", decode_controller_revision),
}


class Noting:
    """Takes every write, and answers with what was sent under the next resourceVersion."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, Any]] = []
        #: Which requests are forbidden, with the message "no".
        self.refuse: Callable[[Request], bool] = lambda _: False
        #: Which requests have no answer that tells what came of them.
        self.lost: Callable[[Request], bool] = lambda _: False
        #: What a GET of that path finds; any other finds nothing. Who insists on another version of it has a conflict.
        self.stored: dict[str, dict[str, Any]] = {}
        #: Path → HTTP status and reason of what is answered whatever is asked.
        self.answer: dict[str, tuple[int, str]] = {}
        self.version = 1_000_000

    async def request(self, request: Request) -> Response:
        body = orjson.loads(request.body) if request.body else None
        self.requests.append((request.method, request.path, body))
        if self.refuse(request):
            return json_response(403, status_body(403, "Forbidden", "no"))
        if self.lost(request):
            return json_response(500, status_body(500, "InternalError"))
        if request.path in self.answer:
            code, reason = self.answer[request.path]
            return json_response(code, status_body(code, reason))
        if request.method == "GET":
            found = self.stored.get(request.path)
            return json_response(200, found) if found else json_response(404, status_body(404, "NotFound"))
        metadata = body.get("metadata", {}) if isinstance(body, dict) else {}
        known = self.stored.get(request.path.removesuffix("/status"))
        if known and metadata.get("resourceVersion", "") not in ("", known["metadata"]["resourceVersion"]):
            return json_response(409, status_body(409, "Conflict"))
        self.version += 1
        whole = body if request.method == "POST" else {}
        metadata = {"uid": f"uid-{self.version}", **metadata, "resourceVersion": str(self.version)}
        return json_response(200, {**whole, "metadata": metadata})

    def stream(self, request: Request) -> Any:
        raise NotImplementedError(request)

    async def close(self) -> None:
        """Nothing is open."""


class Shell:
    """One reconciler. ``show`` puts objects into its caches."""

    def __init__(self, gates: Gates | None = None, **options: Any) -> None:
        self.clock = VirtualClock()
        self.server = Noting()
        client = Client(self.server, self.clock)
        self.caches = cloneset.caches_of(Stores(cloneset.WATCHED))
        self.recorder = EventRecorder(client, cloneset.NAME)
        self.reconciler = CloneSetReconciler(
            client,
            self.caches,
            self.recorder,
            Random(1),
            gates=gates,
            **options,
        )

    def show(self, *objects: dict[str, Any]) -> None:
        for found in objects:
            store, decode = DECODERS[found["kind"]]
            getattr(self.caches, store).put(decode(orjson.dumps(found)))

    async def reconcile(self, name: str = "web", namespace: str = "default") -> Result | None:
        return await self.reconciler(ObjectKey(namespace, name))

    async def events(self, reason: str) -> list[dict[str, Any]]:
        """The bodies of the events with this reason, as they are sent."""
        sending = asyncio.ensure_future(self.recorder.run())
        await self.recorder.flush(10.0)
        sending.cancel()
        sent = [body for method, path, body in self.server.requests if (method, path[-7:]) == ("POST", "/events")]
        return [body for body in sent if body["reason"] == reason]

    @property
    def writes(self) -> list[tuple[str, str]]:
        return [(method, path) for method, path, _ in self.server.requests if method != "GET"]
