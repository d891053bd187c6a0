"""Roll-outs by seed: sets change, Pods come and go, answers are lost, leaders follow one another; limits hold always.

``python -m tests.features.sidecarset.rolling_seeds 1 500`` runs these seeds.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

from app.api import names
from app.kube.errors import Conflict, KubeError, NotFound
from app.kube.resources import PODS, Resource
from app.kube.wire import Request, Response
from app.sandbox.kubelet.program import Pace
from tests.features.sidecarset.rolling_world import (
    NAMESPACE,
    SETS,
    World,
    hot,
    is_ready,
    managing,
    rolling_world,
    sidecar,
)
from tests.kit import virtualtime
from tests.kube.fakes import json_response, status_body

Json = dict[str, Any]
#: Set → its maxUnavailable and partition, which stay as they are.
LIMITS: Mapping[str, tuple[int, int]] = {"s": (2, 1), "t": (1, 0), "h": (2, 0)}
CONTAINERS: Mapping[str, frozenset[str]] = {
    "s": frozenset({"shipper"}),
    "t": frozenset({"tail"}),
    "h": frozenset({"mesh-1", "mesh-2"}),
}
EMPTY = "e:1"
#: Seconds after which everybody has seen what users did.
SEEN = 3.0
FAULTS = 60.0
PODS_THERE = 6


def set_spec(name: str, version: int) -> Json:
    image = f"{name}:{version}"
    containers = {"s": sidecar(image), "t": sidecar(image, "tail"), "h": hot(image, EMPTY)}
    unavailable, partition = LIMITS[name]
    strategy = {"maxUnavailable": unavailable, "partition": partition}
    return {"containers": [containers[name]], "updateStrategy": strategy}


def images(pod: Json) -> dict[str, str]:
    return {one["name"]: one["image"] for one in pod["spec"]["containers"]}


def is_up(pod: Json) -> bool:
    """Ready, and every container runs what the spec says."""
    statuses = {one["name"]: one for one in pod.get("status", {}).get("containerStatuses", ())}
    runs = all(statuses.get(name, {}).get("image", "").endswith(image) for name, image in images(pod).items())
    return is_ready(pod) and runs


def is_idle(pod: Json) -> bool:
    """No former twin waits to idle."""
    twins = {image for name, image in images(pod).items() if name in CONTAINERS["h"]}
    return not twins or EMPTY in twins


def digest(obj: Json, name: str) -> str:
    record = json.loads(obj["metadata"]["annotations"].get(names.SIDECARSET_HASH, "{}"))
    return str(record.get(name, {}).get("hash", ""))


@dataclass
class Judge:
    """Sees every write, and notes what must not be."""

    world: World
    breaches: list[str] = field(default_factory=list)
    #: Pods that our writes have taken down (uid → by which sets), until they are settled.
    down: dict[str, set[str]] = field(default_factory=dict)
    #: Pods that were ready when a write of ours took them down, ever.
    upgraded: set[str] = field(default_factory=set)
    pods: dict[str, Json] = field(default_factory=dict)
    sets: dict[str, Json] = field(default_factory=dict)
    #: When users last changed something that a manager may not have seen.
    changed: float = 0.0
    updates: Counter[str] = field(default_factory=Counter)
    #: What was written to Pods, a line each.
    history: list[str] = field(default_factory=list)

    def saw(self, verb: str, resource: Resource, before: Json | None, after: Json | None) -> None:
        del verb
        if resource == SETS:
            if after is not None:
                if before is None or before["spec"] != after["spec"]:
                    self.changed = self.world.clock.monotonic()
                self.sets[after["metadata"]["name"]] = after
        elif resource == PODS:
            if after is None or before is None:
                self.changed = self.world.clock.monotonic()
            if after is None:
                gone = (before or {})["metadata"]["uid"]
                self.pods.pop(gone, None)
                self.down.pop(gone, None)
                return
            if before is not None and before["spec"]["containers"] != after["spec"]["containers"]:
                self._updated(before, after)
            uid = after["metadata"]["uid"]
            if before is not None and not before["metadata"].get("deletionTimestamp"):
                self._recorded(before, after)
            self.pods[uid] = after
            if is_up(after):
                self.down.pop(uid, None)
            if any(
                one["restartCount"]
                for one in after.get("status", {}).get("containerStatuses", ())
                if one["name"] == "main"
            ):
                self._say(f"{after['metadata']['name']}: the app's container was restarted")

    def _say(self, text: str) -> None:
        self.breaches.append(f"{self.world.clock.monotonic():.2f} {text}")

    def _updated(self, before: Json, after: Json) -> None:
        """A write of ours: nobody else changes containers here."""
        name, uid = after["metadata"]["name"], after["metadata"]["uid"]
        for one, other in zip(before["spec"]["containers"], after["spec"]["containers"], strict=True):
            if one != other and {**one, "image": ""} != {**other, "image": ""}:
                self._say(f"{name}: more than an image of {one['name']} was changed")
        changed = {one for one, image in images(after).items() if images(before)[one] != image}
        if not changed <= frozenset().union(*CONTAINERS.values()):
            self._say(f"{name}: {changed} was changed")
        twins = {image for one, image in images(after).items() if one in CONTAINERS["h"]}
        if twins == {EMPTY}:
            self._say(f"{name}: both twins idle")
        idled = {one for one in changed & CONTAINERS["h"] if images(after)[one] == EMPTY}
        serving = {
            one["name"]
            for one in before["status"].get("containerStatuses", ())
            if one["name"] in CONTAINERS["h"] and one["ready"]
        }
        if idled and serving and not serving - idled:
            self._say(f"{name}: {idled} idles, and the other twin is not ready")
        by = {owner for owner, own in CONTAINERS.items() if own & changed}
        if len(by) > 1:
            self._say(f"{name}: {by} at once")
        self.updates.update(by)
        self.history.append(f"{self.world.clock.monotonic():.2f} {name} {uid[:4]} by {by}: {images(after)}")
        costly = is_up(before) and uid not in self.down
        updating = {owner for one, owners in self.down.items() for owner in owners if self._is_at_work(one, owner)}
        if costly or uid in self.down:
            # A Pod that is not ready anyway is updated without counting (SS-95).
            self.down.setdefault(uid, set()).update(by)
            self.upgraded.add(uid)
        if not costly:
            return
        for owner in sorted(self._of(after) & (by | updating)):
            taken = sum(1 for uid in self.pods if self._is_down(uid, owner, upgrading=is_idle(before)))
            if taken > LIMITS[owner][0]:
                self._say(f"{name}: written by {by}, {taken} Pods of {owner} are down: {self.down}")

    def _is_at_work(self, uid: str, owner: str) -> bool:
        """Whether a set's own containers are not ready in a Pod that it has taken down."""
        pod = self.pods.get(uid)
        if pod is None:
            return False
        runs = {one["name"]: one for one in pod.get("status", {}).get("containerStatuses", ())}
        own = {name: image for name, image in images(pod).items() if name in CONTAINERS[owner]}
        return any(not runs[name]["ready"] or not runs[name]["image"].endswith(image) for name, image in own.items())

    def _is_down(self, uid: str, owner: str, *, upgrading: bool) -> bool:
        """While a hot upgrade is to begin, Pods whose former twin is still to idle count as well."""
        pod = self.pods[uid]
        return owner in self._of(pod) and (
            uid in self.down or (upgrading and owner == "h" and uid in self.upgraded and not is_idle(pod))
        )

    def _recorded(self, before: Json, after: Json) -> None:
        for owner in self._of(after):
            one = self.sets.get(owner)
            if one is None or self.world.clock.monotonic() - self.changed < SEEN:
                continue
            wanted = one["metadata"]["annotations"][names.SIDECARSET_HASH]
            if digest(before, owner) == wanted or digest(after, owner) != wanted:
                continue
            left = [
                pod
                for uid, pod in self.pods.items()
                if uid != after["metadata"]["uid"] and owner in self._of(pod) and digest(pod, owner) != wanted
            ]
            if len(left) < LIMITS[owner][1]:
                self._say(f"{after['metadata']['name']}: {len(left)} Pods of {owner} keep the former content")

    def _of(self, pod: Json) -> set[str]:
        if pod["metadata"].get("deletionTimestamp"):
            return set()
        return set(pod["metadata"]["annotations"].get(names.SIDECARSET_INJECTED_LIST, "").split(",")) - {""}


class Faults:
    """What goes wrong with requests of the manager, until ``stop``."""

    def __init__(self, world: World, rng: Random) -> None:
        self._world, self._rng = world, rng
        self.stop = False
        self._send = world.sent.request
        world.sent.request = self.request  # type: ignore[method-assign]

    async def request(self, request: Request) -> Response:
        if self.stop or request.method != "PATCH" or "/pods/" not in request.path:
            return await self._send(request)
        luck = self._rng.random()
        if luck < 0.05:
            return json_response(500, status_body(500, "InternalError", "down"))
        if luck < 0.10:
            await self._send(request)
            return json_response(504, status_body(504, "Timeout", "the answer is lost"))
        if luck < 0.15:
            return json_response(403, status_body(403, "Forbidden", "not now"))
        await self._world.clock.sleep(self._rng.random() * 0.3)
        return await self._send(request)


async def run(seed: int) -> Judge:
    """One seed, to its end."""
    rng = Random(seed)
    pace = Pace(start=rng.random(), restart=rng.random() * 4, stop=rng.random() * 0.5)
    async with rolling_world(pace=pace, seed=seed, managed=False) as world:
        judge = Judge(world)
        world.api.on_write(judge.saw)
        versions = dict.fromkeys(LIMITS, 1)
        for name in LIMITS:
            await world.apply(name, **set_spec(name, 1))
        names_of_pods = iter(f"p{number}" for number in range(10_000))
        await world.pods_of(*(next(names_of_pods) for _ in range(PODS_THERE)))
        faults = Faults(world, rng)
        until = world.clock.monotonic() + FAULTS
        while world.clock.monotonic() < until:
            # A leader, until it is stopped or the faults end.
            ends = min(until, world.clock.monotonic() + 5 + rng.random() * FAULTS)
            async with managing(world, rng):
                while world.clock.monotonic() < ends:
                    await _something_happens(world, rng, versions, names_of_pods)
                    await world.clock.sleep(rng.random() * 6)
        faults.stop = True
        async with managing(world, rng):
            await _comes_to_rest(world, judge, versions)
        return judge


async def _something_happens(world: World, rng: Random, versions: dict[str, int], more: Iterator[str]) -> None:
    luck = rng.random()
    name = rng.choice(sorted(LIMITS))
    if luck < 0.4:
        # To a new image, or back to the one before.
        versions[name] = max(1, versions[name] + rng.choice((1, 1, -1)))
        with suppress(Conflict):
            await world.apply(name, **set_spec(name, versions[name]))
    elif luck < 0.55:
        pods = [one for one in await world.pods() if "deletionTimestamp" not in one["metadata"]]
        if len(pods) > 3:
            await world.user.delete(PODS, rng.choice(pods)["metadata"]["name"], NAMESPACE, grace_period_seconds=1)
    elif luck < 0.7 and len(await world.pods()) < PODS_THERE + 2:
        await world.pods_of(next(more))


async def _comes_to_rest(world: World, judge: Judge, versions: Mapping[str, int]) -> None:
    for name in LIMITS:
        with suppress(Conflict):
            await world.apply(name, **set_spec(name, versions[name]))

    async def done() -> bool:
        pods = [one for one in await world.pods() if "deletionTimestamp" not in one["metadata"]]
        for name, (_, partition) in LIMITS.items():
            matched, updated, ready, _ = await world.counts(name)
            # What Pods were created with counts as updated, too, so there may be fewer that keep the former content.
            if not (matched == ready == len(pods) and updated >= matched - partition):
                return False
        return all(is_up(pod) and is_idle(pod) for pod in pods)

    try:
        await world.until(done, "all is rolled out", 600)
    except (AssertionError, KubeError, NotFound) as error:
        judge.breaches.append(f"at rest: {error}")


def main() -> int:
    """The command."""
    first, last = int(sys.argv[1]), int(sys.argv[2])
    broken, began = 0, time.monotonic()
    for seed in range(first, last + 1):
        judge = virtualtime.run(run(seed))
        if judge.breaches:
            broken += 1
            print(f"seed {seed}: {judge.breaches[:3]}")
    print(f"{last - first + 1} seeds, {broken} broken, {time.monotonic() - began:.0f} s")
    return broken > 0


if __name__ == "__main__":
    raise SystemExit(main())
