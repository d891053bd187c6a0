"""Whoever answers lifecycle hooks: takes a Pod out of traffic and releases it, puts it back and holds it again."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

from app.api import names
from app.kube.client import Client
from app.kube.errors import KubeError, NotFound
from app.kube.resources import PODS
from tests.simulation.lifecycle import DELETE_HOOK, UPDATE_HOOK
from tests.simulation.users import BY_USER

Json = dict[str, Any]

#: State → label, and what it is set to.
_ANSWERS = {
    "PreparingDelete": (DELETE_HOOK, "done"),
    "PreparingUpdate": (UPDATE_HOOK, "done"),
    "Updated": (UPDATE_HOOK, "true"),
}


class Hooks:
    """Answers hooks some seconds after a Pod asks for it."""

    def __init__(self, client: Client, rng: Random) -> None:
        self._client = client
        self._rng = rng
        self.tasks: set[asyncio.Task[None]] = set()

    def saw(self, before: Json | None, pod: Json) -> None:
        """A Pod was written."""
        state = _state(pod)
        if state not in _ANSWERS or (before is not None and _state(before) == state):
            return
        hook, value = _ANSWERS[state]
        if hook in (pod["metadata"].get("labels") or {}):
            task = asyncio.create_task(self._answer(pod["metadata"], state, hook, value))
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)

    async def _answer(self, metadata: Json, state: str, hook: str, value: str) -> None:
        BY_USER.set(True)
        await self._client.clock.sleep(self._rng.choice((0.1, 1.0, self._rng.uniform(2.0, 15.0))))
        for _ in range(200):
            try:
                live = await self._client.get(PODS, metadata["name"], metadata["namespace"])
                if live["metadata"]["uid"] == metadata["uid"] and _state(live) == state:
                    body = {"metadata": {"uid": metadata["uid"], "labels": {hook: value}}}
                    await self._client.patch(PODS, metadata["name"], body, metadata["namespace"])
            except NotFound:
                return
            except KubeError:
                await self._client.clock.sleep(1.0)
            else:
                return


def _state(pod: Json) -> str:
    return str((pod["metadata"].get("labels") or {}).get(names.LIFECYCLE_STATE, ""))
