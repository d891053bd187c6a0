"""Hostile objects in the caches of every controller, for its event mappers and its reconcile.

An object that a decoder accepts gets into a cache, even if admission would reject it. Mappers and reconciles must not
raise anything but the API server's refusals, block the process for longer than a moment, or write to a namespace other
than the one of their key. Objects also get valid and forged owner references. The controllers come from the list of
features, so new ones are covered automatically; a controller that no change reaches is a failure too.

``python -m tests.fuzz.controllers [--seed 1] [--changes 20]`` prints a line per controller and fails on any problem.
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

from app.framework.feature import ControllerPart
from app.framework.watched import Watched
from app.kube import jsonvalues
from app.kube.client import Client
from app.kube.errors import KubeError
from app.kube.events import EventRecorder
from app.kube.objects import ObjectReference
from app.kube.resources import ObjectKey
from app.kube.store import Change
from app.kube.wire import Request, Response
from app.manager.features import features
from app.manager.gates import GATES
from tests.deadline import cpu_slowness
from tests.fuzz import cluster, objects
from tests.kit import virtualtime
from tests.kit.features import context, stores_of
from tests.kit.virtualtime import VirtualClock
from tests.kube.fakes import json_response, status_body

ALL_GATES: Final = ",".join(f"{name}=true" for name in GATES)
#: Maximum CPU seconds of one reconcile.
SECONDS: Final = 0.5 * cpu_slowness()
#: Virtual seconds for which a reconcile may wait.
PATIENCE: Final = 600.0
OWN_NAMESPACE: Final = "kruise-system"
#: The namespaces that the manager may write to.
_OURS: Final = (OWN_NAMESPACE, "kruise-daemon-config")


class OneObject:
    """An API server that returns the last shown object and accepts and records every write."""

    def __init__(self) -> None:
        self._version = 1_000
        self.shown: tuple[str, bytes] = ("", b"")
        self.writes: list[Request] = []

    async def request(self, request: Request) -> Response:
        if request.method == "GET":
            path, body = self.shown
            if path and request.path.endswith(path):
                return Response(200, {}, body)
            if request.path.count("/") % 2 and not request.path.endswith("s"):
                return json_response(404, status_body(404, "NotFound"))
            return json_response(200, {"kind": "List", "metadata": {"resourceVersion": "1"}, "items": []})
        self.writes.append(request)
        self._version += 1
        body = orjson.loads(request.body) if request.body else {}
        body = body if isinstance(body, dict) else {}
        metadata = {"name": "made", "uid": f"u{self._version}", **(body.get("metadata") or {})}
        return json_response(200, {**body, "metadata": {**metadata, "resourceVersion": str(self._version)}})

    def stream(self, request: Request) -> Any:
        raise NotImplementedError(request)

    async def close(self) -> None:
        pass


def parts() -> Iterator[ControllerPart]:
    for one in features():
        yield from one.controllers


def decoded(one: Watched[Any], obj: Any) -> Any:
    """Return the object as the cache would hold it; None if its decoder rejects it."""
    try:
        return jsonvalues.read(one.decode, objects.encode(obj))
    except (ValueError, msgspec.MsgspecError):
        return None


#: Fields that the API server guarantees in every object.
_VOUCHED: Final = ("name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp")


class Events(EventRecorder):
    """Keeps the messages of Warning events."""

    def __init__(self, client: Client) -> None:
        super().__init__(client, "fuzz")
        self.warnings: list[str] = []

    def event(self, regarding: ObjectReference, type_: str, reason: str, message: str) -> None:
        if type_ == "Warning":
            self.warnings.append(message)


class Trial:
    """Shows hostile objects to one controller, which starts with a valid object of each kind it watches."""

    def __init__(self, part: ControllerPart, random: Random) -> None:
        self.part = part
        #: Exceptions, and writes to foreign namespaces.
        self.problems: list[str] = []
        #: Slow reconciles and their CPU seconds; they count as failures only if nothing else runs.
        self.slow: dict[str, float] = {}
        self.reconciled = 0
        #: Every write: the reconciled key, method, path and body.
        self.writes: list[tuple[ObjectKey, str, str, bytes]] = []
        self._random = random
        self._clock = VirtualClock()
        self._stores = stores_of(part)
        self.server = OneObject()
        client = Client(self.server, self._clock)
        self.events = Events(client)
        made = part.make(context(part, client, self._stores, gates=ALL_GATES, rng=Random(1), events=self.events))
        self._reconcile, self._watches = made.reconcile, made.watches
        self.right: dict[str, objects.Json] = {}
        for one in part.watched:
            obj = cluster.right(random, one.resource)
            if obj is None:
                self.problems.append(f"{part.name}: tests/fuzz/cluster.py has no right {one.resource.kind}")
                continue
            self.right[one.name] = obj
            found = decoded(one, obj)
            self._stores(one).replace([found] if found is not None else [])

    async def run(self, changes: int) -> None:
        for one in self.part.watched:
            for number in range(changes + 1):
                given = cluster.right(self._random, one.resource)
                if given is None:
                    break
                made = objects.hostile(self._random, given) if number else objects.Hostile("right", given)
                metadata = made.object.get("metadata")
                if isinstance(metadata, dict):
                    kept = {key: given["metadata"][key] for key in _VOUCHED if key in given["metadata"]}
                    owned = self._owned(metadata) if self._random.random() < 0.5 else metadata
                    self._newer(kept)
                    await self.show(one, {**made.object, "metadata": {**owned, **kept}}, made.what)

    def _newer(self, kept: objects.Json) -> None:
        self._version = getattr(self, "_version", 10) + 1
        kept["resourceVersion"] = str(self._version)

    def _owned(self, metadata: objects.Json) -> objects.Json:
        """Add an owner reference: valid, forged in one field, or broken."""
        owner = self._random.choice(list(self.right.values()))
        field = self._random.choice(("", "", "apiVersion", "kind", "name", "uid"))
        wrong = self._random.choice(("x", "apps/v1", "ReplicaSet", "a/b", "../x", "", "x" * 300))
        reference = cluster.controller_reference(owner, **({field: wrong} if field else {}))
        if self._random.random() < 0.2:
            reference = objects.hostile(self._random, reference).object
        return {**metadata, "ownerReferences": [reference] * self._random.choice((1, 1, 1, 2, 200))}

    async def show(self, one: Watched[Any], obj: objects.Json, what: str) -> None:
        """Put an object into a cache and reconcile all keys that the change maps to."""
        found = decoded(one, obj)
        if found is None:
            return
        metadata = obj["metadata"]
        self.server.shown = (f"/{one.resource.plural}/{metadata.get('name')}", objects.encode(obj))
        called = f"{self.part.name}: {one.name}: {what}"
        store = self._stores(one)
        changes: list[Change[Any]] = []
        unsubscribe = store.subscribe(changes.append)
        changes.clear()
        try:
            store.put(found)
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
                    except Exception as error:  # noqa: BLE001 - reported as a finding
                        self.problems.append(f"{called}: a mapper raised {_shown(error)}")
        for key in list(keys)[:20]:
            await self.work_on(key, called)
        await self._clock.sleep(1.0)

    async def work_on(self, key: ObjectKey, called: str) -> None:
        self.reconciled += 1
        self.server.writes.clear()
        started = time.process_time()
        try:
            await self._clock.wait_for(self._reconcile(key), PATIENCE)
        except (KubeError, TimeoutError):
            pass
        except Exception as error:  # noqa: BLE001 - reported as a finding
            self.problems.append(f"{called}: reconciling {key} raised {_shown(error)}")
        if (seconds := time.process_time() - started) > SECONDS:
            self.slow[f"{called}: reconciling {key}"] = seconds
        for write in self.server.writes:
            self.writes.append((key, write.method, write.path, bytes(write.body or b"")))
            namespace = _namespace_of(write.path)
            if key.namespace and namespace not in ("", key.namespace, *_OURS):
                self.problems.append(f"{called}: reconciling {key} sent {write.method} {write.path}")


def _namespace_of(path: str) -> str:
    parts_ = path.split("/")
    return parts_[parts_.index("namespaces") + 1] if "namespaces" in parts_[:-1] else ""


def _shown(error: Exception) -> str:
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    where = f"{at.tb_frame.f_code.co_filename.rpartition('/app/')[2]}:{at.tb_lineno}" if at is not None else ""
    return f"{type(error).__name__} at {where}: {str(error)[:150]}"


async def _run(part: ControllerPart, seed: int, changes: int) -> Trial:
    trial = Trial(part, Random(f"{seed}:{part.name}"))
    await trial.run(changes)
    return trial


async def tried(part: ControllerPart, seed: int, changes: int) -> Trial:
    """Run the trial of one controller; a controller that no change reaches has a problem."""
    trial = await _run(part, seed, changes)
    # On a busy machine, the same work takes more processor time. Repeat all of it: a second reconcile of an object may
    # find results of the first.
    for _ in range(2):
        if trial.slow:
            again = await _run(part, seed, changes)
            trial.slow = {what: min(trial.slow[what], again.slow[what]) for what in trial.slow if what in again.slow}
    if not trial.reconciled:
        trial.problems.append(f"{part.name}: no change reached a reconcile; see tests/fuzz/cluster.py")
    return trial


async def _main(seed: int, changes: int) -> int:
    wrong = 0
    for part in parts():
        trial = await tried(part, seed, changes)
        slow = [f"{what} took {seconds * 1000:.0f} ms" for what, seconds in trial.slow.items()]
        problems = [*trial.problems, *slow]
        wrong += len(problems)
        print(f"{part.name}: {trial.reconciled} reconciles, {len(problems)} problems")
        by_cause = {problem.partition(" raised ")[2] or problem: problem for problem in problems}
        for problem in list(by_cause.values())[:10]:
            print(f"  {problem[:400]}")
    return 1 if wrong else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--changes", type=int, default=60, help="hostile objects of each kind (default: %(default)s)")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    sys.exit(virtualtime.run(_main(options.seed, options.changes)))
