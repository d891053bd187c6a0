"""CloneSets with WorkloadSpreads: actions of users, and invariants of subsets, counts and deletion costs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from functools import partial
from math import ceil
from random import Random
from typing import Any

import orjson

from app.api import names
from app.features.cloneset.kind import CLONE_SET
from app.features.workloadspread.kind import WORKLOAD_SPREAD
from tests.simulation import invariants
from tests.simulation.pods import is_alive
from tests.simulation.users import LABEL
from tests.simulation.workloads.cloneset.judge import CloneSetJudge
from tests.simulation.workloads.cloneset.manifests import small_clone_set
from tests.simulation.workloads.judge import Judge, Judges, Review, Write
from tests.simulation.workloads.subject import Beside, Workload, given, target_of

Json = dict[str, Any]

FOLDERS = (
    "app.features.podreadiness",
    "app.features.cloneset",
    "app.features.statefulset",
    "app.features.workloadspread",
)
#: Seconds for which the limit of an older spec may still apply to a Pod.
GRACE_SECONDS = 60.0
#: A Pod may be refused only after this many failed status updates, or this many seconds.
FAILURES, TRYING_SECONDS = 3, 2.0
SUBSETS = ("first", "second", "last")
#: The group of Pods without a subset in the order of deletion costs (WS-56).
_NOWHERE = ""


class SpreadJudge(Judge):
    """A subset never exceeds its limit; counts and deletion costs are correct at rest; and no Pod is refused while the
    status update may still succeed."""

    def __init__(self) -> None:
        self.judged = {WORKLOAD_SPREAD.kind: self._spread, CLONE_SET.kind: self._clone, "Pod": self._pod}
        self._spreads: dict[str, Json] = {}
        self._clones: dict[str, Json] = {}
        self._pods: dict[str, dict[str, Json]] = defaultdict(dict)
        #: By spread and subset: its limits (None: unlimited), and since when each applies.
        self._limits: dict[tuple[str, str], list[tuple[float, int | None]]] = defaultdict(list)
        #: By spread and subset: deletions that were admitted and freed a place, but did not happen.
        self._not_gone: Counter[tuple[str, str]] = Counter()
        #: By Pod (uid): when it joined its subset.
        self._came: dict[str, float] = {}
        #: UIDs of Pods whose spread has no room for all of its Pods (WS-51).
        self._beyond: set[str] = set()

    # ---- writes

    def _spread(self, write: Write) -> None:
        write.kept_in(self._spreads, write.name)
        self._noted(write.name, write.before, write.after)
        self._limited(write.at, write.name)

    def _clone(self, write: Write) -> None:
        write.kept_in(self._clones, write.name)
        self._limited(write.at, write.name)

    def _limited(self, at: float, name: str) -> None:
        """Record the current limits of the subsets."""
        for subset, limit in self._limits_of(name).items():
            known = self._limits[name, subset]
            if not known or known[-1][1] != limit:
                known.append((at, limit))

    def _limits_of(self, name: str) -> Mapping[str, int | None]:
        spread = self._spreads.get(name)
        wanted = self._clones[name]["spec"]["replicas"] if name in self._clones else 0
        return {one["name"]: limit_of(one, wanted) for one in spread["spec"]["subsets"]} if spread else {}

    def _noted(self, name: str, before: Json | None, after: Json | None) -> None:
        """Record Pods that still exist although the spread no longer expects their deletion."""
        awaited = [dict(_deleting(one)) for one in (before, after)]
        for pod, subset in awaited[0].items():
            found = next((one for one in self._pods[name].values() if one["metadata"]["name"] == pod), None)
            if pod not in awaited[1] and found is not None and is_alive(found):
                self._not_gone[name, subset] += 1

    def _pod(self, write: Write) -> Iterator[str]:
        name, uid = (write.obj["metadata"].get("labels") or {}).get(LABEL, ""), write.uid
        write.kept_in(self._pods[name])
        before, after = write.before, write.after
        if after is None:
            self._came.pop(uid, None)
            return
        subset = subset_of(after, name)
        if subset == (subset_of(before, name) if before is not None else _NOWHERE):
            return
        if before is not None and subset_of(before, name) != _NOWHERE:
            yield f"Pod {invariants.name(after)} moved from subset {subset_of(before, name)} to {subset}"
        self._came[uid] = write.at
        if before is not None and None not in self._limits_of(name).values():
            self._beyond.add(uid)

    # ---- reviews

    def reviewed(self, review: Review) -> Iterable[str]:
        if review.path != "/mutate-pod" or review.failures >= FAILURES or review.seconds >= TRYING_SECONDS:
            return
        text = str((review.response.get("status") or {}).get("message"))
        if not review.response.get("allowed") and "no place could be reserved" in text:
            yield f"a Pod was refused after {review.failures} failures in {review.seconds:.3f} s: {text}"

    # ---- at rest

    def at_rest(self, now: datetime) -> Iterable[str]:
        """Subsets are within their limits; counts and deletion costs are correct."""
        for name, spread in self._spreads.items():
            clone = self._clones.get(name)
            uid = clone["metadata"]["uid"] if clone is not None else ""
            pods = [pod for pod in self._pods[name].values() if is_alive(pod) and invariants.owner_of(pod) == uid]
            by_subset: dict[str, list[Json]] = defaultdict(list)
            for pod in pods:
                by_subset[subset_of(pod, name)].append(pod)
            limits = self._limits_of(name)
            yield from self._crowded(name, by_subset, limits)
            yield from _untrue(spread, by_subset, limits)
            yield from _costs(name, by_subset, limits)

    def _crowded(
        self, name: str, by_subset: Mapping[str, list[Json]], limits: Mapping[str, int | None]
    ) -> Iterator[str]:
        """A Pod keeps its place, so the nth Pod must have joined when the limit was at least n. [WS-74]"""
        for subset in limits:
            uids = [pod["metadata"]["uid"] for pod in by_subset.get(subset, ())]
            spare = self._not_gone[name, subset]
            for number, (at, uid) in enumerate(sorted((self._came[uid], uid) for uid in uids), start=1):
                most = self._most(name, subset, at)
                if most is not None and number > most + spare and uid not in self._beyond:
                    yield f"WorkloadSpread {name} at rest: {number} Pods in subset {subset}, {most} allowed"
                    break

    def _most(self, name: str, subset: str, at: float) -> int | None:
        """Return the largest limit of a subset at that time or shortly before."""
        known = self._limits[name, subset]
        ends = [*(moment for moment, _ in known[1:]), float("inf")]
        valid = [
            limit
            for (since, limit), until in zip(known, ends, strict=True)
            if since <= at and until >= at - GRACE_SECONDS
        ]
        counted = [limit for limit in valid if limit is not None]
        return None if len(counted) < len(valid) else max(counted, default=0)


def _untrue(spread: Json, by_subset: Mapping[str, list[Json]], limits: Mapping[str, int | None]) -> Iterator[str]:
    """Compare the status with the Pods of each subset."""
    name, status = invariants.name(spread), spread.get("status") or {}
    if status.get("observedGeneration") != spread["metadata"]["generation"]:
        yield f"WorkloadSpread {name} at rest: observedGeneration is {status.get('observedGeneration')}"
    true = {
        subset: (
            len(by_subset.get(subset, ())),
            -1 if limit is None else max(0, limit - len(by_subset.get(subset, ()))),
        )
        for subset, limit in limits.items()
    }
    versions = (status.get("versionedSubsetStatuses") or {}).items()
    for version, found in (("", status.get("subsetStatuses") or []), *versions):
        counts = {one["name"]: (one["replicas"], one["missingReplicas"]) for one in found}
        if counts != true:
            yield f"WorkloadSpread {name} at rest: status {version} counts {counts}, want {true}"
        for one in found:
            if one.get("creatingPods") or one.get("deletingPods"):
                yield f"WorkloadSpread {name} at rest: subset {one['name']} still waits for Pods"


def _costs(name: str, by_subset: Mapping[str, list[Json]], limits: Mapping[str, int | None]) -> Iterator[str]:
    """Deletion costs order Pods by subset, surplus Pods first. [WS-55, WS-56]"""
    for place, (subset, limit) in enumerate(limits.items()):
        pods = by_subset.get(subset, [])
        surplus = max(0, len(pods) - limit) if limit is not None else 0
        true = Counter({str(100 * (len(limits) - place)): len(pods) - surplus, str(-100 * (place + 1)): surplus})
        if +true != (found := Counter(map(cost_of, pods))):
            yield f"WorkloadSpread {name} at rest: deletion costs in {subset} are {dict(found)}, want {dict(+true)}"
    nowhere = {cost_of(pod) for pod in by_subset.get(_NOWHERE, ())} - {str(-100 * (len(limits) + 1))}
    if nowhere:
        yield f"WorkloadSpread {name} at rest: Pods without a subset have the deletion costs {nowhere}"


def limit_of(subset: Json, wanted: int) -> int | None:
    """Return the limit of a subset; None means unlimited."""
    most = subset.get("maxReplicas")
    if isinstance(most, str):
        return ceil(wanted * int(most.removesuffix("%")) / 100)
    return None if most is None else int(most)


def subset_of(pod: Json, spread: str) -> str:
    """Return the subset of a spread that a Pod records, or an empty string."""
    text = (pod["metadata"].get("annotations") or {}).get(names.MATCHED_WORKLOAD_SPREAD)
    record = orjson.loads(text) if text else {}
    return str(record["subset"]) if record.get("name") == spread else _NOWHERE


def cost_of(pod: Json) -> str:
    return str((pod["metadata"].get("annotations") or {}).get(names.POD_DELETION_COST))


def _deleting(spread: Json | None) -> Iterator[tuple[str, str]]:
    """Yield the Pods whose deletion the spread expects, with their subsets."""
    status = (spread or {}).get("status") or {}
    for subsets in (status.get("versionedSubsetStatuses") or {}).values():
        for one in subsets:
            yield from ((pod, one["name"]) for pod in one.get("deletingPods") or ())


# ---- actions of users


def limits_by_seed(rng: Random) -> list[int | str | None]:
    count = rng.randrange(2, 4)
    if rng.random() < 0.3:
        return [*([f"{100 // (count + 1)}%"] * (count - 1)), None]
    most = [rng.randrange(4) for _ in range(count - 1)]
    return [*most, None if rng.random() < 0.7 else rng.randrange(4)]


def workload_spread(rng: Random, name: str) -> Json:
    subsets = [
        given(name=subset, patch={"metadata": {"labels": {"tier": subset}}}, maxReplicas=limit)
        for subset, limit in zip(SUBSETS, limits_by_seed(rng), strict=False)
    ]
    return {"targetRef": target_of(CLONE_SET, name), "subsets": subsets}


WORKLOAD_SPREADS = Workload(
    folders=FOLDERS,
    kind=CLONE_SET,
    judge=lambda: Judges(CloneSetJudge(), SpreadJudge()),
    spec=partial(small_clone_set, least=2, unavailable=2),
    changes=[
        (6, "/spec/replicas", lambda rng: rng.randrange(9)),
        (3, "/spec/template/spec/containers/0/image", lambda rng: f"clone:{rng.randrange(9)}"),
    ],
    beside=Beside(WORKLOAD_SPREAD, workload_spread, [(1, "/spec/subsets/0/maxReplicas", lambda rng: rng.randrange(5))]),
)
