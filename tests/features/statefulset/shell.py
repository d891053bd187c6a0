"""The reconciler on caches that the test fills by hand, and an API server that only notes what is asked of it."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson

from app.features.statefulset import reconcile as statefulset
from app.features.statefulset.plan.settings import Gates
from app.features.statefulset.reconcile import StatefulSetReconciler
from app.features.statefulset.types import StatefulSet
from app.framework.watched import Stores
from app.kube.client import Client
from app.kube.controller import Result
from app.kube.events import EventRecorder
from app.kube.objects import decode_controller_revision, decode_persistent_volume_claim, decode_pod
from app.kube.resources import ObjectKey
from tests.features.cloneset.shell import Noting
from tests.kit.virtualtime import VirtualClock


class Shell:
    """One reconciler. ``show`` puts objects into its caches."""

    def __init__(self, gates: Gates | None = None, **options: Any) -> None:
        self.clock = VirtualClock()
        self.server = Noting()
        client = Client(self.server, self.clock)
        stores = Stores(statefulset.WATCHED)
        self.caches = statefulset.caches_of(stores)
        self.claims = stores(statefulset.ALL_CLAIMS)
        self.recorder = EventRecorder(client, statefulset.NAME)
        self.reconciler = StatefulSetReconciler(client, self.caches, self.claims, self.recorder, gates=gates, **options)

    def show(self, *objects: dict[str, Any]) -> None:
        for found in objects:
            text = orjson.dumps(found)
            match found["kind"]:
                case "StatefulSet":
                    self.caches.workloads.put(StatefulSet.model_validate_json(text))
                case "Pod":
                    self.caches.pods.put(decode_pod(text))
                case "PersistentVolumeClaim":
                    self.claims.put(decode_persistent_volume_claim(text))
                case "ControllerRevision":
                    self.caches.revisions.put(decode_controller_revision(text))

    async def reconcile(self, name: str = "web", namespace: str = "shop") -> Result | None:
        return await self.reconciler(ObjectKey(namespace, name))

    async def events(self) -> list[tuple[str, str]]:
        """Reason and message of the events, as they are sent."""
        sending = asyncio.ensure_future(self.recorder.run())
        await self.recorder.flush(10.0)
        sending.cancel()
        sent = [body for method, path, body in self.server.requests if (method, path[-7:]) == ("POST", "/events")]
        return [(body["reason"], body["message"]) for body in sent]

    @property
    def writes(self) -> list[tuple[str, str]]:
        """Method and path of what was written, without the API's prefix."""
        return [(method, path) for method, path, _ in self.server.requests if method != "GET"]

    def bodies(self, method: str, part: str) -> list[Any]:
        """What was sent by that method to paths that contain ``part``."""
        return [body for found, path, body in self.server.requests if found == method and part in path]
