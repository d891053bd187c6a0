"""The volume controllers of kube-controller-manager."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any
from zlib import crc32

from app.kube.client import Client
from app.kube.errors import Conflict, Invalid, NotFound
from app.kube.resources import PERSISTENTVOLUMECLAIMS
from tests.simulation import invariants, passes

Json = dict[str, Any]

#: Seconds until a claim is handled, and until some of the claims that are being deleted are released.
SECONDS = 0.05
SLOW_SECONDS = 12.0


class Volumes:
    """Binds claims, and releases claims that are being deleted once no Pod uses them."""

    def __init__(self, client: Client) -> None:
        self._client = client
        #: Claims by name.
        self._claims: dict[str, Json] = {}
        #: Names of the Pods that use a claim, by claim.
        self._users: dict[str, set[str]] = {}
        self.tasks: set[asyncio.Task[None]] = set()

    def saw_claim(self, before: Json | None, after: Json | None) -> None:
        if after is None:
            if before is not None:
                self._claims.pop(before["metadata"]["name"], None)
            return
        self._claims[after["metadata"]["name"]] = after
        if before is None:
            self._start(self._write(after["metadata"], {"status": {"phase": "Bound"}}, "status"))
        self._look(after["metadata"]["name"])

    def saw_pod(self, before: Json | None, after: Json | None) -> None:
        if before is not None and after is not None:
            return
        pod = after if after is not None else before
        for name in claims_of(pod or {}):
            users = self._users.setdefault(name, set())
            if after is not None:
                users.add(invariants.name(after))
            else:
                users.discard(invariants.name(pod or {}))
                self._look(name)

    def _look(self, name: str) -> None:
        claim = self._claims.get(name)
        if claim is None or self._users.get(name) or not claim["metadata"].get("deletionTimestamp"):
            return
        slow = crc32(name.encode()) % 2  # a slow controller, so the name may be needed again before
        change = {"metadata": {"finalizers": None}}
        self._start(self._write(claim["metadata"], change, after=SLOW_SECONDS if slow else SECONDS))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _write(self, metadata: Json, change: Json, subresource: str = "", after: float = SECONDS) -> None:
        passes.leave()
        await self._client.clock.sleep(after)
        body = {**change, "metadata": {**change.get("metadata", {}), "uid": metadata["uid"]}}
        with suppress(NotFound, Conflict, Invalid):  # Invalid: another claim has the name by now
            name, namespace = metadata["name"], metadata["namespace"]
            await self._client.patch(PERSISTENTVOLUMECLAIMS, name, body, namespace, subresource=subresource)


def claims_of(pod: Json) -> list[str]:
    volumes = (pod.get("spec") or {}).get("volumes") or ()
    return [one["persistentVolumeClaim"]["claimName"] for one in volumes if "persistentVolumeClaim" in one]
