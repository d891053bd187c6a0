"""StatefulSets: actions of users, and invariants of every write of a reconcile."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from random import Random
from typing import Any

from app.api import names
from app.features.statefulset.kind import STATEFUL_SET
from app.pods.ordinals import ordinal_of
from tests.simulation import invariants
from tests.simulation.lifecycle import FINALIZERS, LABELS, lifecycle
from tests.simulation.passes import Pass
from tests.simulation.pods import (
    hash_of,
    held_back,
    is_active,
    is_available,
    main_image,
    none_marked,
    ready_too_early,
    state_of,
    strange_step,
)
from tests.simulation.users import LABEL
from tests.simulation.workloads.cloneset.manifests import claim_template
from tests.simulation.workloads.judge import Judge, Write
from tests.simulation.workloads.remembered import Remembered
from tests.simulation.workloads.subject import Workload, given, template

Json = dict[str, Any]

FOLDERS = ("app.features.podreadiness", "app.features.statefulset")
POLICIES = ("ReCreate", "InPlaceIfPossible", "InPlaceOnly")


@dataclass(frozen=True, slots=True)
class Spec:
    """The fields of a StatefulSet's spec that the judge uses. ``slots``: the ordinals that must have a Pod."""

    slots: tuple[int, ...]
    reserved: frozenset[int]
    partition: int
    max_unavailable: int
    min_ready: float
    ordered: bool
    image: str
    claims: bool
    keeps: bool

    @classmethod
    def of(cls, obj: Json) -> Spec:
        spec = obj["spec"]
        rolling = (spec.get("updateStrategy") or {}).get("rollingUpdate") or {}
        reserved = frozenset(int(one) for one in spec.get("reserveOrdinals") or ())
        slots: list[int] = []
        ordinal = 0
        while len(slots) < spec.get("replicas", 1):
            if ordinal not in reserved:
                slots.append(ordinal)
            ordinal += 1
        return cls(
            tuple(slots),
            reserved,
            rolling.get("partition") or 0,
            max(1, rolling.get("maxUnavailable", 1)),
            rolling.get("minReadySeconds") or 0,
            spec.get("podManagementPolicy") != "Parallel",
            spec["template"]["spec"]["containers"][0]["image"],
            bool(spec.get("volumeClaimTemplates")),
            (spec.get("persistentVolumeClaimRetentionPolicy") or {}).get("whenScaled") != "Delete",
        )

    def rank(self, ordinal: int) -> int:
        """Return the position of the ordinal among the slots, starting at 1; 0 if it has no slot."""
        return self.slots.index(ordinal) + 1 if ordinal in self.slots else 0


class StatefulSetJudge(Judge):
    """Each ordinal has one Pod, reserved and unneeded ones have none; at most maxUnavailable Pods are unavailable; no
    Pod is updated past the partition; no claim that must be kept is deleted."""

    def __init__(self) -> None:
        self._remembered = Remembered("StatefulSet", Spec.of, lambda spec: spec.min_ready)
        self.judged = {
            "StatefulSet": self._remembered.wrote_object,
            "Pod": self._pod,
            "PersistentVolumeClaim": self._claim,
        }
        #: Claims (uid) and the set (uid) they were created for.
        self._made_for: dict[str, str] = {}

    # ---- Pods

    def _pod(self, write: Write) -> Iterator[str]:
        judged = self._remembered.wrote_pod(write)
        before, after, known = write.before, write.after, write.known
        if before is not None and after is not None and invariants.owner_of(after) in self._remembered.specs:
            yield from ready_too_early(before, after)
            if (state_of(before), state_of(after)) != ("PreparingDelete", "Normal"):  # AS-101: it returns at once
                yield from strange_step(before, after)
        if judged is None or known is None:
            return
        uid, spec = judged
        name = write.name
        ordinal = ordinal_of(invariants.name(self._remembered.objects[uid]), name)
        if before is None:
            yield from self._created(uid, spec, ordinal, name, known)
        elif after is not None:
            for sentence in held_back(before, after):
                yield f"Pod {name} {sentence}"
        if after is not None and spec.rank(ordinal) and (before is None or hash_of(before) != hash_of(after)):
            yield from self._moved_on(uid, spec, ordinal, after)
        if ordinal in spec.slots and self._remembered.taken(write, known, spec):
            yield from self._too_many_out(write.at, uid, spec, name, known)

    def _created(self, uid: str, spec: Spec, ordinal: int, name: str, known: Pass) -> Iterator[str]:
        same = [
            one
            for one in self._remembered.pods_of(uid)
            if ordinal_of(invariants.name(self._remembered.objects[uid]), invariants.name(one)) == ordinal
        ]
        if len(same) > 1:
            yield f"Pod {name} is the second at its ordinal"
        if ordinal in spec.reserved:
            yield f"Pod {name} was created although its ordinal is reserved"
        elif ordinal not in spec.slots:
            yield f"Pod {name} was created although its ordinal needs no Pod"
        if spec.ordered:
            there = {one.metadata.name for one in known.pods}
            prefix = name.rpartition("-")[0]
            missing = [lower for lower in spec.slots if lower < ordinal and f"{prefix}-{lower}" not in there]
            if missing:
                yield f"Pod {name} was created before ordinal {missing[0]}"

    def _moved_on(self, uid: str, spec: Spec, ordinal: int, after: Json) -> Iterator[str]:
        current = self._remembered.current.get(uid)
        if not spec.partition or not current or hash_of(after) in current or main_image(after) != spec.image:
            return
        if spec.rank(ordinal) <= spec.partition:
            yield f"Pod {invariants.name(after)} was updated past the partition {spec.partition}"

    def _too_many_out(self, at: float, uid: str, spec: Spec, name: str, known: Pass) -> Iterator[str]:
        owner = invariants.name(self._remembered.objects[uid])

        def in_slots(pods: Iterable[Json]) -> int:
            return len({ordinal_of(owner, invariants.name(one)) for one in pods} & {*spec.slots})

        serving = [one for one in self._remembered.pods_of(uid) if is_available(one, at, spec.min_ready)]
        least, there = len(spec.slots) - spec.max_unavailable, in_slots(serving)
        if there < least and in_slots([*serving, *self._remembered.unknown(known, at, spec.min_ready)]) < least:
            yield f"Pod {name} was taken down: {there} are available, {least} must be"

    # ---- claims

    def _claim(self, write: Write) -> Iterator[str]:
        if write.before is None and write.after is not None:
            self._claim_made(write.after)
        elif write.before is not None and not _goes(write.before) and _goes(write.after):
            yield from self._claim_goes(write.before)

    def _claim_made(self, claim: Json) -> None:
        for uid, obj in self._remembered.objects.items():
            if ordinal_of(invariants.name(obj), invariants.name(claim).removeprefix("data-")) >= 0:
                self._made_for[claim["metadata"]["uid"]] = uid

    def _claim_goes(self, claim: Json) -> Iterator[str]:
        """A claim lives as long as its set if whenScaled is Retain or its ordinal was never dropped."""
        name, uid = invariants.name(claim), self._made_for.get(claim["metadata"]["uid"], "")
        obj = self._remembered.objects.get(uid)
        if obj is None:
            return
        ordinal = ordinal_of(invariants.name(obj), name.removeprefix("data-"))
        if self._remembered.newest(uid).keeps:
            yield f"claim {name} was deleted although whenScaled is Retain"
        elif all(ordinal in spec.slots for spec in self._remembered.specs[uid].values()):
            yield f"claim {name} was deleted although its ordinal was never dropped"

    # ---- at rest

    def at_rest(self, now: datetime) -> Iterable[str]:
        """Each ordinal has one Pod, Pods are updated as far as the partition allows, and the status is correct."""
        for obj, spec in self._remembered.standing():
            name = invariants.name(obj)
            pods = {
                ordinal_of(name, invariants.name(pod)): pod for pod in self._remembered.pods_of(obj["metadata"]["uid"])
            }
            if {*pods} != {*spec.slots}:
                yield f"StatefulSet {name} at rest: has Pods {sorted(pods)}, want {sorted(spec.slots)}"
            yield from none_marked(f"StatefulSet {name}", pods.values())
            for ordinal, pod in pods.items():
                if spec.rank(ordinal) > spec.partition and main_image(pod) != spec.image:
                    yield f"StatefulSet {name} at rest: Pod {ordinal} has {main_image(pod)}, not {spec.image}"
                if not is_active(pod):
                    yield f"StatefulSet {name} at rest: Pod {ordinal} is not active"
            true = dict.fromkeys(("replicas", "readyReplicas", "availableReplicas"), len(spec.slots))
            true["observedGeneration"] = obj["metadata"]["generation"]
            yield from invariants.status_is(f"StatefulSet {name}", obj.get("status") or {}, true)


def _goes(obj: Json | None) -> bool:
    return obj is None or bool(obj["metadata"].get("deletionTimestamp"))


# ---- actions of users


def spec(rng: Random, name: str) -> Json:
    parallel, replicas = rng.random() < 0.6, rng.randrange(1, 6)
    rolling = {
        "podUpdatePolicy": rng.choice(POLICIES),
        "maxUnavailable": rng.randrange(1, 4) if parallel else 1,
        "partition": 0,
    }
    image = f"clone:{rng.randrange(3)}"
    rolling["minReadySeconds"] = rng.choice((0, 0, 4))
    hook = rng.choice((LABELS, FINALIZERS, "", "", ""))
    mark, claims, keeps = rng.random() < 0.3, rng.random() < 0.5, rng.random() < 0.5
    mounts = [{"name": "data", "mountPath": "/data"}] if claims else None
    gates = [{"conditionType": names.IN_PLACE_UPDATE_READY}]
    containers = [given(name="main", image=image, volumeMounts=mounts)]
    return {
        "replicas": replicas,
        "serviceName": name,
        "podManagementPolicy": "Parallel" if parallel else "OrderedReady",
        "selector": {"matchLabels": {LABEL: name}},
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": rolling},
        **given(lifecycle=lifecycle(hook, mark_not_ready=mark)),
        **given(volumeClaimTemplates=[claim_template("data")] if claims else None),
        "persistentVolumeClaimRetentionPolicy": {"whenScaled": "Retain" if keeps else "Delete"},
        "template": template(name, image, hook, readinessGates=gates, containers=containers),
    }


STATEFUL_SETS = Workload(
    folders=FOLDERS,
    kind=STATEFUL_SET,
    judge=StatefulSetJudge,
    spec=spec,
    changes=[
        (4, "/spec/replicas", lambda rng: rng.randrange(7)),
        (5, "/spec/template/spec/containers/0/image", lambda rng: f"clone:{rng.randrange(9)}"),
        (2, "/spec/updateStrategy/rollingUpdate/partition", lambda rng: rng.choice((0, 0, 1, 3))),
        (3, "/spec/reserveOrdinals", lambda rng: sorted(rng.sample(range(8), rng.randrange(3)))),
    ],
)
