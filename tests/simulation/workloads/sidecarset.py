"""SidecarSets that roll out to the Pods of CloneSets: actions of users, and invariants of each write to a Pod."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from random import Random
from typing import Any

from app.api import names
from app.features.cloneset.kind import CLONE_SET
from app.features.sidecarset.kind import SIDECAR_SET
from tests.simulation import invariants, passes
from tests.simulation.passes import Pass
from tests.simulation.pods import has_ended
from tests.simulation.script import NAMESPACE
from tests.simulation.users import LABEL
from tests.simulation.workloads.cloneset.judge import CloneSetJudge
from tests.simulation.workloads.judge import Judge, Judges, Write
from tests.simulation.workloads.sidecars import SidecarSetJudge
from tests.simulation.workloads.subject import Beside, Workload, given, template

Json = dict[str, Any]

FOLDERS = ("app.features.podreadiness", "app.features.sidecarset", "app.features.cloneset")
#: The image of the idle twin.
EMPTY = "empty:1"
#: The label of all Pods. Every set selects them all, so most Pods have the containers of two sets.
APP = {"app": "web"}


@dataclass(frozen=True, slots=True)
class Spec:
    """The parts of a set's spec that the judge uses. ``digest`` is the hash of its containers that Pods record."""

    max_unavailable: int
    partition: int
    paused: bool
    image: str
    hot: bool
    digest: str

    @classmethod
    def of(cls, obj: Json) -> Spec:
        strategy, container = obj["spec"]["updateStrategy"], obj["spec"]["containers"][0]
        return cls(
            strategy["maxUnavailable"],
            strategy.get("partition") or 0,
            bool(strategy.get("paused")),
            container["image"],
            (container.get("upgradeStrategy") or {}).get("upgradeType") == "HotUpgrade",
            (obj["metadata"].get("annotations") or {}).get(names.SIDECARSET_HASH, ""),
        )


@dataclass(frozen=True, slots=True)
class _Taken:
    """A Pod that the rollouts of ``sets`` took down, most recently in ``term``."""

    sets: frozenset[str]
    term: object


class RollOutJudge(Judge):
    """Rollouts, including those of other sets, never take down more Pods than a set allows and respect the partition;
    only images of a set's own containers change; twins are never both idle; no application container restarts."""

    def __init__(self) -> None:
        self.judged = {SIDECAR_SET.kind: self._set, "Pod": self._pod}
        self._sets: dict[str, Json] = {}
        #: By set (uid) and generation.
        self._specs: dict[str, dict[int, Spec]] = defaultdict(dict)
        self._pods: dict[str, Json] = {}
        self._down: dict[str, _Taken] = {}
        #: Pods that were ready when a rollout took them down.
        self._upgraded: set[str] = set()
        #: When a former leader, whose requests may arrive late, last wrote a Pod.
        self._late = -1.0
        self._last: object = None

    # ---- writes

    def _set(self, write: Write) -> None:
        write.kept_in(self._sets, write.name)
        if (one := write.after) is not None:
            self._specs[write.uid].setdefault(one["metadata"]["generation"], Spec.of(one))

    def _pod(self, write: Write) -> Iterator[str]:
        uid, name, before, after = write.uid, write.name, write.before, write.after
        if not APP.items() <= (write.obj["metadata"].get("labels") or {}).items():
            return
        if after is None:
            self._pods.pop(uid, None)
            self._down.pop(uid, None)
            return
        if before is not None and before["spec"]["containers"] != after["spec"]["containers"]:
            for sentence in self._updated(write.at, before, after, write.known):
                yield f"Pod {name}: {sentence}"
        self._pods[uid] = after
        # The sets are not responsible for a Pod that is unready for other reasons.
        if uid in self._down and not any(self._is_at_work(uid, one) for one in self._down[uid].sets):
            del self._down[uid]
        main = invariants.statuses(after).get("main")
        if main is not None and main["restartCount"]:
            yield f"Pod {name}: the application container restarted"

    def _updated(self, at: float, before: Json, after: Json, known: Pass | None) -> Iterator[str]:
        """Only rollouts of sets change the containers of a Pod."""
        changed = set()
        for one, other in zip(before["spec"]["containers"], after["spec"]["containers"], strict=True):
            if one != other:
                changed.add(one["name"])
                if {**one, "image": ""} != {**other, "image": ""}:
                    yield f"more than the image of {one['name']} was changed"
        by = {owner_of(container) for container in changed}
        if len(by) > 1 or "" in by:
            yield f"one write changed containers of {sorted(by)}: {sorted(changed)}"
            return
        (owner,) = by
        yield from self._idle_twins(before, after, changed, owner)
        if known is None:
            yield f"{owner} was rolled out outside a reconcile"
            return
        yield from self._limits(at, before, after, known, owner)

    @staticmethod
    def _idle_twins(before: Json, after: Json, changed: Iterable[str], owner: str) -> Iterator[str]:
        now = images(after)
        twins = [one for one in now if owner_of(one) == owner]
        if len(twins) > 1 and all(now[one] == EMPTY for one in twins):
            yield f"both twins of {owner} are idle"
        idled = {one for one in changed if now[one] == EMPTY}
        runs = invariants.statuses(before)
        serving = {one for one in twins if (runs.get(one) or {}).get("ready")}
        if idled and serving and serving <= idled:
            yield f"{sorted(idled)} idles although the other twin is not ready"

    # ---- limits

    def _limits(self, at: float, before: Json, after: Json, known: Pass, owner: str) -> Iterator[str]:
        uid, spec = after["metadata"]["uid"], self._specs.get(known.uid, {}).get(known.generation)
        if self._last is not None and known.term is not self._last:
            self._late = at
        if passes.works(known.term):
            self._last = known.term
        seen = known.pod(uid)
        fair = passes.works(known.term) and self._late < known.at
        # Updating a Pod seen as unready does not count (SS-95), even if it has become ready since.
        costly = is_up(before) and uid not in self._down and (seen is None or is_up(seen))
        if is_up(before) or uid in self._down:
            sets = self._down[uid].sets if uid in self._down else frozenset()
            self._down[uid] = _Taken(sets | {owner}, known.term)
            self._upgraded.add(uid)
        if spec is None or not fair:
            return
        self._pods[uid] = after
        if costly:
            yield from self._too_many(before, after, owner, spec)
        if digest(before, owner) != spec.digest == digest(after, owner):
            yield from self._past_partition(known, uid, owner, spec)

    def _too_many(self, before: Json, after: Json, owner: str, spec: Spec) -> Iterator[str]:
        at_work = {one for uid, taken in self._down.items() for one in taken.sets if self._is_at_work(uid, one)}
        for one in sorted(sets_of(after) & ({owner} | at_work)):
            limit = spec.max_unavailable if one == owner else self._loosest(one)
            upgrading = is_idle(before, one) and not self._idles(before, after)
            down = sorted(invariants.name(self._pods[uid]) for uid in self._pods if self._is_down(uid, one, upgrading))
            if len(down) > limit:
                yield f"updated by {owner} while {', '.join(down)} of {one} are down: {limit} allowed"

    @staticmethod
    def _idles(before: Json, after: Json) -> bool:
        former = images(before)
        return any(image == EMPTY != former[name] for name, image in images(after).items())

    def _loosest(self, name: str) -> int:
        """Return the largest limit that a set has had."""
        one = self._sets.get(name)
        specs = self._specs[one["metadata"]["uid"]].values() if one is not None else ()
        return max((spec.max_unavailable for spec in specs), default=len(self._pods))

    def _is_at_work(self, uid: str, owner: str) -> bool:
        """Return whether a set's own containers are not ready in a Pod."""
        pod = self._pods.get(uid)
        if pod is None:
            return False
        runs = invariants.statuses(pod)
        own = {one: image for one, image in images(pod).items() if owner_of(one) == owner}
        return any(not runs.get(one, {}).get("ready") or not runs[one]["image"].endswith(own[one]) for one in own)

    def _is_down(self, uid: str, owner: str, upgrading: bool) -> bool:
        """Return whether a Pod counts as down. When a hot upgrade starts, a Pod whose twins both run does too."""
        pod = self._pods[uid]
        waits = upgrading and uid in self._upgraded and is_up(pod) and not is_idle(pod, owner)
        return owner in sets_of(pod) and (uid in self._down or waits)

    def _past_partition(self, known: Pass, uid: str, owner: str, spec: Spec) -> Iterator[str]:
        """Of the Pods that the reconcile knew, at least ``partition`` keep the old revision."""
        kept = 0
        for pod in known.pods:
            other = pod.metadata.uid
            found = self._pods.get(other) or known.pod(other)
            if other != uid and found is not None and owner in sets_of(known.pod(other) or {}):
                kept += digest(found, owner) != spec.digest
        if kept < spec.partition:
            yield f"updated by {owner} past the partition {spec.partition}: {kept} keep the old revision"

    # ---- at rest

    def at_rest(self, now: datetime) -> Iterable[str]:
        """Every set is rolled out as far as its partition allows, and one twin of each pair idles."""
        for name, one in sorted(self._sets.items()):
            spec = Spec.of(one)
            pods = [pod for pod in self._pods.values() if name in sets_of(pod)]
            old = sorted(invariants.name(pod) for pod in pods if not has(pod, name, spec.image))
            if not spec.paused and len(old) > spec.partition:
                yield f"SidecarSet {name} at rest: {', '.join(old)} lack {spec.image}, {spec.partition} may"
            for pod in pods:
                if not is_up(pod):
                    yield f"SidecarSet {name} at rest: Pod {invariants.name(pod)} is not ready"
                if not is_idle(pod, name):
                    yield f"SidecarSet {name} at rest: both twins of Pod {invariants.name(pod)} are active"
            updated = sum(digest(pod, name) == spec.digest for pod in pods)
            if (told := (one.get("status") or {}).get("updatedPods")) != updated:
                yield f"SidecarSet {name} at rest: status.updatedPods is {told}, want {updated}"


def owner_of(container: str) -> str:
    """Return the set that a container belongs to; empty for the application."""
    return container.partition("-side")[0] if "-side" in container else ""


def images(pod: Json) -> dict[str, str]:
    return {one["name"]: one["image"] for one in pod["spec"]["containers"]}


def is_up(pod: Json) -> bool:
    """Return whether a Pod is Ready and every container runs the image in the spec."""
    runs = invariants.statuses(pod)
    current = all(str((runs.get(name) or {}).get("image")).endswith(image) for name, image in images(pod).items())
    return current and invariants.condition(pod, "Ready") == "True"


def is_idle(pod: Json, owner: str) -> bool:
    """Return whether one of the set's twins is idle, or the Pod has no twins."""
    twins = [image for name, image in images(pod).items() if owner_of(name) == owner]
    return len(twins) < 2 or EMPTY in twins


def has(pod: Json, owner: str, image: str) -> bool:
    """Return whether the spec gives the image to a set's container or one of its twins."""
    return any(found == image for name, found in images(pod).items() if owner_of(name) == owner)


def sets_of(pod: Json) -> set[str]:
    """Return the sets that injected a Pod; none for a Pod that does not count."""
    if not pod or pod["metadata"].get("deletionTimestamp") or has_ended(pod):
        return set()
    return set((pod["metadata"].get("annotations") or {}).get(names.SIDECARSET_INJECTED_LIST, "").split(",")) - {""}


def digest(pod: Json, owner: str) -> str:
    recorded: Mapping[str, Json] = json.loads(
        (pod["metadata"].get("annotations") or {}).get(names.SIDECARSET_HASH) or "{}"
    )
    return str((recorded.get(owner) or {}).get("hash", ""))


# ---- actions of users


def clone_set(rng: Random, name: str) -> Json:
    rolling = {"podUpdatePolicy": "ReCreate", "maxUnavailable": 1, "maxSurge": 0, "partition": 0}
    return {
        "replicas": rng.randrange(2, 7),
        "selector": {"matchLabels": {LABEL: name}},
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": rolling},
        "template": template(name, "main:1", labels=APP),
    }


def sidecar_set(rng: Random, name: str) -> Json:
    container = {"name": f"{name}-side", "image": f"side:{rng.randrange(3)}", "podInjectPolicy": "AfterAppContainer"}
    upgrade = {"upgradeType": "HotUpgrade", "hotUpgradeEmptyImage": EMPTY} if rng.random() < 0.4 else None
    return {
        "selector": {"matchLabels": APP},
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}},
        "updateStrategy": {"type": "RollingUpdate", "maxUnavailable": rng.randrange(1, 4), "partition": 0},
        "containers": [{**container, **given(upgradeStrategy=upgrade)}],
    }


SIDECAR_SETS = Workload(
    folders=FOLDERS,
    kind=CLONE_SET,
    judge=lambda: Judges(SidecarSetJudge(), CloneSetJudge(), RollOutJudge()),
    spec=clone_set,
    changes=[(2, "/spec/replicas", lambda rng: rng.randrange(8))],
    marks=False,
    beside=Beside(
        SIDECAR_SET,
        sidecar_set,
        [
            (6, "/spec/containers/0/image", lambda rng: f"side:{rng.randrange(9)}"),
            (2, "/spec/updateStrategy/partition", lambda rng: rng.choice((0, 0, 1, 3))),
            (1, "/spec/updateStrategy/maxUnavailable", lambda rng: rng.randrange(1, 4)),
            (2, "/spec/updateStrategy/paused", lambda rng: rng.random() < 0.3),
        ],
    ),
)
