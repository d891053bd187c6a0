"""The actor that answers lifecycle hooks: it releases Pods before deletion and update and then holds them again."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

from app.api import names
from app.kube.client import Client
from app.kube.errors import KubeError, NotFound
from app.kube.resources import PODS
from tests.simulation import passes
from tests.simulation.lifecycle import DELETE_HOOK, FINALIZERS, KIND, UPDATE_HOOK

Json = dict[str, Any]

_GOING = "going"
#: State → hook, and whether it holds the Pod from then on.
_ANSWERS = {
    "PreparingDelete": (DELETE_HOOK, False),
    "PreparingUpdate": (UPDATE_HOOK, False),
    "Updated": (UPDATE_HOOK, True),
    _GOING: (DELETE_HOOK, False),
}


class Hooks:
    """Answers a hook some seconds after a Pod starts to wait, and releases Pods that another actor deletes."""

    def __init__(self, client: Client, rng: Random) -> None:
        self._client = client
        self._rng = rng
        self.tasks: set[asyncio.Task[None]] = set()

    def saw(self, before: Json | None, pod: Json) -> None:
        state = _state(pod)
        if state not in _ANSWERS or (before is not None and _state(before) == state):
            return
        if _change(pod, state) is not None:
            task = asyncio.create_task(self._answer(pod["metadata"], state))
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)

    async def _answer(self, metadata: Json, state: str) -> None:
        passes.leave()
        await self._client.clock.sleep(self._rng.choice((0.1, 1.0, self._rng.uniform(2.0, 15.0))))
        for _ in range(200):
            try:
                live = await self._client.get(PODS, metadata["name"], metadata["namespace"])
                change = _change(live, state)
                if live["metadata"]["uid"] == metadata["uid"] and _state(live) == state and change is not None:
                    body = {"metadata": {"uid": metadata["uid"], **change}}
                    await self._client.patch(PODS, metadata["name"], body, metadata["namespace"])
            except NotFound:
                return
            except KubeError:
                await self._client.clock.sleep(1.0)
            else:
                return


def _change(pod: Json, state: str) -> Json | None:
    """Return the patch that releases or holds a Pod in this state; None if there is nothing to change."""
    hook, holds = _ANSWERS[state]
    labels, finalizers = pod["metadata"].get("labels") or {}, pod["metadata"].get("finalizers") or ()
    if hook in labels:
        return {"labels": {hook: "true" if holds else "done"}}
    if labels.get(KIND) != FINALIZERS or (state == _GOING and not finalizers):
        return None
    if state == _GOING:
        return {"finalizers": []}
    return {"finalizers": [name for name in finalizers if name != hook] + ([hook] if holds else [])}


def _state(pod: Json) -> str:
    if pod["metadata"].get("deletionTimestamp"):
        return _GOING
    return str((pod["metadata"].get("labels") or {}).get(names.LIFECYCLE_STATE, ""))
