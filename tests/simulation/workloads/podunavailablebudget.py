"""CloneSets with PodUnavailableBudgets: users delete and evict Pods, and the CloneSet updates them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from math import ceil
from random import Random
from typing import Any

from app.api import names
from app.features.cloneset.kind import CLONE_SET
from app.features.podunavailablebudget.kind import POD_UNAVAILABLE_BUDGET
from tests.simulation import invariants
from tests.simulation.pods import has_ended, main_image
from tests.simulation.users import LABEL
from tests.simulation.workloads.cloneset.judge import CloneSetJudge
from tests.simulation.workloads.cloneset.manifests import small_clone_set
from tests.simulation.workloads.judge import Judge, Judges, Write
from tests.simulation.workloads.subject import Beside, Workload, target_of

Json = dict[str, Any]

FOLDERS = (
    "app.features.podreadiness",
    "app.features.cloneset",
    "app.features.statefulset",
    "app.features.podunavailablebudget",
)
#: Seconds for which a budget may not know of a Pod lost without a review: the longest delay of a cache.
BEHIND_SECONDS = 600.0
#: Seconds between an answer and its effect.
GRACE_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class _Since:
    at: float
    value: Any


class BudgetJudge(Judge):
    """No admitted deletion or update leaves fewer Pods available than the budget requires; every grant is returned."""

    def __init__(self) -> None:
        self.judged = {POD_UNAVAILABLE_BUDGET.kind: self._budget, CLONE_SET.kind: self._clone, "Pod": self._pod}
        self._budgets: dict[str, list[_Since]] = defaultdict(list)
        #: The desired number of Pods according to the status.
        self._totals: dict[str, list[_Since]] = defaultdict(list)
        self._stored: dict[str, Json] = {}
        self._clones: dict[str, Json] = {}
        self._pods: dict[str, dict[str, Json]] = defaultdict(dict)
        #: By CloneSet: when Pods were lost without a review.
        self._lost: dict[str, list[float]] = defaultdict(list)

    # ---- writes

    def _budget(self, write: Write) -> None:
        name, after = write.name, write.after
        write.kept_in(self._stored, name)
        _changed(self._budgets[name], write.at, after["spec"] if after is not None else None)
        _changed(self._totals[name], write.at, ((after or {}).get("status") or {}).get("totalReplicas", 0))

    def _clone(self, write: Write) -> None:
        write.kept_in(self._clones, write.name)

    def _pod(self, write: Write) -> Iterator[str]:
        at, pod, before, after = write.at, write.obj, write.before, write.after
        name = (pod["metadata"].get("labels") or {}).get(LABEL, "")
        write.kept_in(self._pods[name])
        if before is None or not is_healthy(before) or (after is not None and is_healthy(after)):
            return
        if not related(before) or not _asked(before, after):
            self._lost[name].append(at)
            return
        least = self._least(name, at)
        healthy = sum(map(is_healthy, self._pods[name].values()))
        lost = sum(at - moment < BEHIND_SECONDS for moment in self._lost[name])
        if healthy + lost < least:
            yield f"Pod {invariants.name(pod)} was taken down: {healthy} are available, its budget keeps {least}"

    def _least(self, name: str, at: float) -> int:
        """Return how many Pods must stay available, given what the budget knew recently."""
        specs = [one.value for one in _recent(self._budgets[name], at, GRACE_SECONDS)]
        if None in specs or not specs:
            return 0
        totals = [one.value for one in _recent(self._totals[name], at, GRACE_SECONDS)]
        return min((desired(spec, total) for spec in specs for total in totals), default=0)

    # ---- at rest

    def at_rest(self, now: datetime) -> Iterable[str]:
        """Statuses are correct, and every Pod of a CloneSet is protected."""
        for name, budget in self._stored.items():
            clone = self._clones.get(name)
            replicas = clone["spec"]["replicas"] if clone is not None else 0
            uid = clone["metadata"]["uid"] if clone is not None and replicas else ""
            pods = [pod for pod in self._pods[name].values() if invariants.owner_of(pod) == uid]
            healthy, least = sum(map(is_healthy, pods)), desired(budget["spec"], replicas)
            true = {
                "observedGeneration": budget["metadata"]["generation"],
                "currentAvailable": healthy,
                "desiredAvailable": least,
                "totalReplicas": replicas,
                "unavailableAllowed": max(0, healthy - least),
            }
            status = budget.get("status") or {}
            yield from invariants.status_is(f"PodUnavailableBudget {name}", status, true)
            for field in ("disruptedPods", "unavailablePods"):
                if status.get(field):
                    yield f"PodUnavailableBudget {name} at rest: status.{field} is {status[field]}"
            left = [invariants.name(pod) for pod in self._pods[name].values() if invariants.owner_of(pod) != uid]
            if left and replicas:
                yield f"PodUnavailableBudget {name} at rest: Pods {left} belong to a deleted CloneSet"
            bare = [invariants.name(pod) for pod in pods if not related(pod)]
            if bare:
                yield f"PodUnavailableBudget {name} at rest: Pods {bare} do not name their budget"


def _changed(known: list[_Since], at: float, value: Any) -> None:
    if not known or known[-1].value != value:
        known.append(_Since(at, value))


def _recent(known: list[_Since], at: float, seconds: float) -> list[_Since]:
    """Return the values that applied at some time during the last ``seconds``."""
    ends = [*(one.at for one in known[1:]), float("inf")]
    return [one for one, end in zip(known, ends, strict=True) if end >= at - seconds]


def _asked(before: Json, after: Json | None) -> bool:
    """Return whether a budget is charged for the write: the Pod is deleted, gets another image, or becomes unready for
    an in-place update."""
    if after is None:
        return not before["metadata"].get("deletionTimestamp")
    deleted = bool(after["metadata"].get("deletionTimestamp")) and not before["metadata"].get("deletionTimestamp")
    begun = invariants.condition(after, names.IN_PLACE_UPDATE_READY) == "False"
    return deleted or begun or main_image(before) != main_image(after)


def is_healthy(pod: Json) -> bool:
    if has_ended(pod) or pod["metadata"].get("deletionTimestamp") or invariants.condition(pod, "Ready") != "True":
        return False
    runs = invariants.statuses(pod).get("main", {}).get("image", "")
    return str(runs).endswith(main_image(pod))


def related(pod: Json) -> bool:
    return names.RELATED_PUB in (pod["metadata"].get("annotations") or {})


def desired(spec: Json, replicas: int) -> int:
    most, least = spec.get("maxUnavailable"), spec.get("minAvailable")
    if most is not None:
        return max(0, replicas - _of(most, replicas))
    return _of(least, replicas) if replicas else 0


def _of(value: int | str, replicas: int) -> int:
    return ceil(replicas * int(value.removesuffix("%")) / 100) if isinstance(value, str) else int(value)


# ---- actions of users


def budget(rng: Random, name: str) -> Json:
    most = rng.choice((1, 1, 2, 3, "20%", "40%"))
    whom = ({"targetRef": target_of(CLONE_SET, name)}, {"selector": {"matchLabels": {LABEL: name}}})
    return {**rng.choice(whom), "maxUnavailable": most}


BUDGETS = Workload(
    folders=FOLDERS,
    kind=CLONE_SET,
    judge=lambda: Judges(CloneSetJudge(), BudgetJudge()),
    spec=partial(small_clone_set, least=3, unavailable=5),
    changes=[
        (5, "/spec/template/spec/containers/0/image", lambda rng: f"clone:{rng.randrange(9)}"),
        (1, "/spec/replicas", lambda rng: rng.randrange(1, 9)),
    ],
    gates=("PodUnavailableBudgetUpdateGate",),
    fails=False,
    beside=Beside(
        POD_UNAVAILABLE_BUDGET, budget, [(1, "/spec/maxUnavailable", lambda rng: rng.choice((1, 2, 3, "30%")))]
    ),
)
