"""DaemonSets: actions of users, and invariants of every write of a reconcile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from random import Random
from typing import Any

from app.api import names
from app.features.daemonset.kind import DAEMON_SET
from tests.simulation import invariants
from tests.simulation.lifecycle import LABELS, lifecycle
from tests.simulation.passes import Pass
from tests.simulation.pods import (
    hash_of,
    held_back,
    is_alive,
    is_available,
    main_image,
    none_marked,
    ready_too_early,
    strange_step,
)
from tests.simulation.users import LABEL
from tests.simulation.workloads.judge import Judge, Write
from tests.simulation.workloads.remembered import Remembered
from tests.simulation.workloads.subject import Workload, given, template

Json = dict[str, Any]

FOLDERS = ("app.features.podreadiness", "app.features.daemonset")
#: Nodes of a run; each must have a Pod.
NODES = 3


@dataclass(frozen=True, slots=True)
class Spec:
    """The fields of a DaemonSet's spec that the judge uses."""

    partition: int
    max_unavailable: int
    max_surge: int
    min_ready: float
    image: str

    @classmethod
    def of(cls, obj: Json) -> Spec:
        spec = obj["spec"]
        rolling = (spec.get("updateStrategy") or {}).get("rollingUpdate") or {}
        surge = rolling.get("maxSurge") or 0
        return cls(
            rolling.get("partition") or 0,
            rolling.get("maxUnavailable", 0 if surge else 1),
            surge,
            spec.get("minReadySeconds") or 0,
            spec["template"]["spec"]["containers"][0]["image"],
        )


class DaemonSetJudge(Judge):
    """Each node has at most one Pod unless surging; at most maxUnavailable nodes lack an available Pod; no more Pods
    are updated than the partition allows."""

    def __init__(self) -> None:
        self._remembered = Remembered("DaemonSet", Spec.of, lambda spec: spec.min_ready)

        self.judged = {"DaemonSet": self._remembered.wrote_object, "Pod": self._pod}

    def _pod(self, write: Write) -> Iterator[str]:
        judged = self._remembered.wrote_pod(write)
        before, after, known = write.before, write.after, write.known
        if before is not None and after is not None and invariants.owner_of(after) in self._remembered.specs:
            yield from ready_too_early(before, after)
            yield from strange_step(before, after)
        if judged is None or known is None:
            return
        uid, spec = judged
        if before is None and after is not None:
            yield from self._created(uid, spec, after, known)
        if before is not None and after is not None:
            for sentence in held_back(before, after):
                yield f"Pod {write.name} {sentence}"
            if hash_of(before) != hash_of(after):
                yield from self._moved_on(uid, spec, after)
        if self._remembered.taken(write, known, spec):
            yield from self._too_many_out(write.at, uid, spec, write.obj, known)

    def _created(self, uid: str, spec: Spec, pod: Json, known: Pass) -> Iterator[str]:
        nodes = Counter(node_of(one) for one in self._remembered.pods_of(uid) if is_alive(one))
        node, most = node_of(pod), 1 + (spec.max_surge > 0)
        if nodes[node] > most:
            yield f"Pod {invariants.name(pod)} is one too many on {node}: {nodes[node]} Pods, {most} allowed"
            # A Pod that the reconcile saw unavailable is replaced regardless of maxSurge (DS-46).
        seen = (known.pod(one["metadata"]["uid"]) for one in self._remembered.pods_of(uid))
        serving = {node_of(one) for one in seen if one is not None and is_available(one, known.at, spec.min_ready)}
        doubled = sum(count > 1 and name in serving for name, count in nodes.items())
        if nodes[node] > 1 and doubled > spec.max_surge:
            yield f"Pod {invariants.name(pod)} exceeds maxSurge: two Pods on {doubled} nodes, not {spec.max_surge}"

    def _moved_on(self, uid: str, spec: Spec, pod: Json) -> Iterator[str]:
        if not spec.partition or main_image(pod) != spec.image:
            return
        new = sum(hash_of(one) == hash_of(pod) for one in self._remembered.pods_of(uid))
        most = max(0, NODES - spec.partition)
        if new > most:
            yield f"Pod {invariants.name(pod)} exceeds the partition: {new} are updated, {most} allowed"

    def _too_many_out(self, at: float, uid: str, spec: Spec, pod: Json, known: Pass) -> Iterator[str]:
        if spec.partition:
            return  # DS-41: nodes beyond the partition do not count
        serving = [one for one in self._remembered.pods_of(uid) if is_available(one, at, spec.min_ready)]
        unknown = self._remembered.unknown(known, at, spec.min_ready)
        least, there = NODES - spec.max_unavailable, {node_of(one) for one in serving}
        seen = there.union(map(node_of, unknown))
        if len(there) < least and len(seen) < least and node_of(pod) not in seen:
            name = invariants.name(pod)
            yield f"Pod {name} was taken down: {len(there)} nodes have an available Pod, {least} must"

    def at_rest(self, now: datetime) -> Iterable[str]:
        """Every node has one Pod, Pods are updated as far as the partition allows, and the status is correct."""
        for obj, spec in self._remembered.standing():
            name = invariants.name(obj)
            pods = self._remembered.pods_of(obj["metadata"]["uid"])
            nodes = Counter(map(node_of, pods))
            if len(pods) != NODES or len(nodes) != NODES:
                yield f"DaemonSet {name} at rest: has Pods on {dict(nodes)}, want one on each of {NODES} nodes"
            yield from none_marked(f"DaemonSet {name}", pods)
            new, least = sum(main_image(pod) == spec.image for pod in pods), NODES - spec.partition
            if new < least:
                yield f"DaemonSet {name} at rest: {new} Pods have {spec.image}, want at least {least}"
            true = dict.fromkeys(("currentNumberScheduled", "numberReady", "numberAvailable"), NODES)
            true["observedGeneration"] = obj["metadata"]["generation"]
            yield from invariants.status_is(f"DaemonSet {name}", obj.get("status") or {}, true)


def node_of(pod: Json) -> str:
    spec = pod["spec"]
    if spec.get("nodeName"):
        return str(spec["nodeName"])
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    ) or {}
    for term in required.get("nodeSelectorTerms") or ():
        for field in term.get("matchFields") or ():
            if field["key"] == "metadata.name":
                return str(field["values"][0])
    return ""


# ---- actions of users


def spec(rng: Random, name: str) -> Json:
    surge = rng.choice((0, 0, 1, 2))
    rolling = {
        "rollingUpdateType": "Standard" if surge else rng.choice(("Standard", "InPlaceIfPossible")),
        "maxUnavailable": rng.choice((0, 1)) if surge else rng.randrange(1, 3),
        "maxSurge": surge,
        "partition": 0,
    }
    image, min_ready, hook = f"clone:{rng.randrange(3)}", rng.choice((0, 0, 4)), rng.choice((LABELS, "", ""))
    gates = [{"conditionType": names.IN_PLACE_UPDATE_READY}]
    return {
        "minReadySeconds": min_ready,
        "selector": {"matchLabels": {LABEL: name}},
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": rolling},
        **given(lifecycle=lifecycle(hook, mark_not_ready=False)),
        "template": template(name, image, hook, readinessGates=gates),
    }


DAEMON_SETS = Workload(
    folders=FOLDERS,
    kind=DAEMON_SET,
    judge=DaemonSetJudge,
    spec=spec,
    changes=[
        (5, "/spec/template/spec/containers/0/image", lambda rng: f"clone:{rng.randrange(9)}"),
        (2, "/spec/updateStrategy/rollingUpdate/partition", lambda rng: rng.choice((0, 0, 1, 2))),
        (1, "/spec/minReadySeconds", lambda rng: rng.choice((0, 2, 6))),
    ],
    gates=("DaemonSetStrictMaxUnavailable",),
    marks=False,
)
