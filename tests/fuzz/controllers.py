"""Hostile objects in the caches of every controller: what changes mean, and what a reconcile makes of them.

An object that a decoder takes gets into a cache, whatever admission would have said of it. It may fail its own
reconcile, which the controller's loop outlives; no mapper may raise, and nothing may keep the process from all others
for longer than a moment. Found in the list of slices: a new controller is asked without a line here.

``python -m tests.fuzz.controllers [--seed 1] [--changes 100]`` says what failed its own object too.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Iterator
from random import Random
from typing import Any, Final

import msgspec
import orjson

from app.kube import depth, virtualtime
from app.kube.client import Client
from app.kube.errors import KubeError
from app.kube.resources import ObjectKey
from app.kube.store import Change
from app.kube.transport import Request, Response
from app.kube.virtualtime import VirtualClock
from app.manager.gates import GATES
from app.manager.slices import slices
from app.slices import ControllerPart, Watched
from tests.fuzz import objects, targets
from tests.kube.fakes import json_response, status_body
from tests.slicing import context, stores_of

ALL_GATES: Final = ",".join(f"{name}=true" for name in GATES)
#: Processor time of one reconcile.
SECONDS: Final = 0.5
#: Virtual seconds that a reconcile may wait.
PATIENCE: Final = 600.0


class Nobody:
    """An API server that has nothing and takes everything."""

    def __init__(self) -> None:
        self._version = 1_000

    async def request(self, request: Request) -> Response:
        """The answer."""
        if request.method == "GET":
            if request.path.count("/") % 2 and not request.path.endswith("s"):
                return json_response(404, status_body(404, "NotFound"))
            return json_response(200, {"kind": "List", "metadata": {"resourceVersion": "1"}, "items": []})
        self._version += 1
        body = orjson.loads(request.body) if request.body else {}
        body = body if isinstance(body, dict) else {}
        metadata = {"name": "made", "uid": f"u{self._version}", **(body.get("metadata") or {})}
        return json_response(200, {**body, "metadata": {**metadata, "resourceVersion": str(self._version)}})

    def stream(self, request: Request) -> Any:
        """Nobody watches."""
        raise NotImplementedError(request)

    async def close(self) -> None:
        """Nothing is open."""


def parts() -> Iterator[ControllerPart]:
    """Every controller."""
    for one in slices():
        yield from one.controllers


def right(random: Random, one: Watched[Any]) -> objects.Json | None:
    """A right object of what is watched, if one is known."""
    if one.resource.kind == "Pod":
        pod = objects.pod()
        pod["spec"]["nodeName"] = "node1"
        return pod
    return targets.recorded(random, one.resource, one.resource.version)


def _decoded(one: Watched[Any], obj: Any) -> Any:
    try:
        return depth.read(one.decode, objects.encode(obj))
    except (ValueError, msgspec.MsgspecError):
        return None


#: What an API server vouches for in any object.
_VOUCHED: Final = ("name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp")


class Trial:
    """One controller, with a right object of each kind it watches, and hostile ones of one kind after the other."""

    def __init__(self, part: ControllerPart, random: Random) -> None:
        self.part = part
        #: Mappers that raised, and reconciles that took too long.
        self.problems: list[str] = []
        #: Reconciles that raised something else than the API server's refusals: they failed their own object.
        self.failed: list[str] = []
        self.reconciled = 0
        self._random = random
        self._clock = VirtualClock()
        self._stores = stores_of(part)
        client = Client(Nobody(), self._clock)
        made = part.make(context(part, client, self._stores, gates=ALL_GATES, rng=Random(1)))
        self._reconcile, self._watches = made.reconcile, made.watches
        for one in part.watched:
            obj = right(random, one)
            decoded = _decoded(one, obj) if obj is not None else None
            self._stores(one).replace([decoded] if decoded is not None else [])

    async def run(self, changes: int) -> None:
        """So many hostile objects of each kind."""
        for one in self.part.watched:
            for _ in range(changes):
                given = right(self._random, one)
                if given is None:
                    break
                made = objects.hostile(self._random, given)
                metadata = made.object.get("metadata")
                if isinstance(metadata, dict):
                    kept = {key: given["metadata"][key] for key in _VOUCHED if key in given["metadata"]}
                    await self._show(one, {**made.object, "metadata": metadata | kept}, made.what)

    async def _show(self, one: Watched[Any], obj: objects.Json, what: str) -> None:
        decoded = _decoded(one, obj)
        if decoded is None:
            return
        called = f"{self.part.name}: {one.name}: {what}"
        store = self._stores(one)
        changes: list[Change[Any]] = []
        unsubscribe = store.subscribe(changes.append)
        try:
            store.put(decoded)
        except Exception:  # noqa: BLE001 - the reflector sets it aside
            return
        finally:
            unsubscribe()
        keys: dict[ObjectKey, None] = {}
        for change in changes:
            for watch in self._watches:
                if watch.store is store:
                    try:
                        keys.update(dict.fromkeys(watch.keys(change)))
                    except Exception as error:  # noqa: BLE001 - that is what is looked for
                        self.problems.append(f"{called}: a mapper raised {_shown(error)}")
        for key in list(keys)[:20]:
            await self._work_on(key, called)

    async def _work_on(self, key: ObjectKey, called: str) -> None:
        self.reconciled += 1
        started = time.process_time()
        try:
            await self._clock.wait_for(self._reconcile(key), PATIENCE)
        except (KubeError, TimeoutError):
            pass
        except Exception as error:  # noqa: BLE001 - the controller's loop outlives it
            self.failed.append(f"{called}: reconciling {key} raised {_shown(error)}")
        if (seconds := time.process_time() - started) > SECONDS:
            self.problems.append(f"{called}: reconciling {key} took {seconds * 1000:.0f} ms")


def _shown(error: Exception) -> str:
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    where = f"{at.tb_frame.f_code.co_filename.rpartition('/app/')[2]}:{at.tb_lineno}" if at is not None else ""
    return f"{type(error).__name__} at {where}: {str(error)[:150]}"


async def _main(seed: int, changes: int) -> int:
    wrong = 0
    for part in parts():
        trial = Trial(part, Random(f"{seed}:{part.name}"))
        await trial.run(changes)
        wrong += len(trial.problems)
        print(f"{part.name}: {trial.reconciled} reconciles, {len(trial.failed)} failed their object")
        for problem in (*trial.problems[:5], *dict.fromkeys(line.partition(" raised ")[2] for line in trial.failed)):
            print(f"  {problem[:300]}")
    return 1 if wrong else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--changes", type=int, default=100, help="hostile objects of each kind (default: %(default)s)")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    sys.exit(virtualtime.run(_main(options.seed, options.changes)))
