"""DaemonSets: what users ask for, and what must hold of every write that a pass of the controller does."""

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
from tests.simulation.lifecycle import LABELS, held_metadata, lifecycle
from tests.simulation.passes import Pass
from tests.simulation.pods import (
    has_ended,
    hash_of,
    held_back,
    is_available,
    main_image,
    ready_too_early,
    strange_step,
)
from tests.simulation.users import LABEL
from tests.simulation.workloads.judge import Judge
from tests.simulation.workloads.remembered import Remembered
from tests.simulation.workloads.subject import Workload

Json = dict[str, Any]

FOLDERS = ("app.features.podreadiness", "app.features.daemonset")
#: Nodes of a run, all of which are to have a Pod.
NODES = 3


@dataclass(frozen=True, slots=True)
class Spec:
    """One state of a DaemonSet's spec, as far as it is judged."""

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
    """At most one Pod per node unless surging; no more nodes without a serving Pod than maxUnavailable allows; no more
    new Pods than the partition leaves."""

    def __init__(self) -> None:
        self._remembered = Remembered("DaemonSet", Spec.of, lambda spec: spec.min_ready)

    def wrote(self, at: float, kind: str, before: Json | None, after: Json | None, known: Pass | None) -> Iterable[str]:
        """Return the promises that a write breaks."""
        if kind == "DaemonSet":
            self._remembered.wrote_object(before, after)
        elif kind == "Pod":
            yield from self._pod(at, before, after, known)

    def _pod(self, at: float, before: Json | None, after: Json | None, known: Pass | None) -> Iterator[str]:
        judged = self._remembered.wrote_pod(at, before, after, known)
        pod = after if after is not None else before
        if pod is None:
            return
        if before is not None and after is not None and invariants.owner_of(after) in self._remembered.specs:
            yield from ready_too_early(before, after)
            yield from strange_step(before, after)
        if judged is None or known is None:
            return
        uid, spec = judged
        name = invariants.name(pod)
        if before is None and after is not None:
            yield from self._created(uid, spec, after, known)
        if before is not None and after is not None:
            for sentence in held_back(before, after):
                yield f"Pod {name} {sentence}"
            if hash_of(before) != hash_of(after):
                yield from self._moved_on(uid, spec, after)
        if self._remembered.taken(at, before, after, known, spec):
            yield from self._too_many_out(at, uid, spec, pod, known)

    def _created(self, uid: str, spec: Spec, pod: Json, known: Pass) -> Iterator[str]:
        nodes = Counter(node_of(one) for one in self._remembered.pods_of(uid) if _stays(one))
        node, most = node_of(pod), 1 + (spec.max_surge > 0)
        if nodes[node] > most:
            yield f"Pod {invariants.name(pod)} is one too many on {node}: {nodes[node]} are there, {most} may be"
        # One that is not in service, as the pass saw it, is replaced whatever the surge (DS-46).
        seen = (known.pod(one["metadata"]["uid"]) for one in self._remembered.pods_of(uid))
        serving = {node_of(one) for one in seen if one is not None and is_available(one, known.at, spec.min_ready)}
        doubled = sum(count > 1 and name in serving for name, count in nodes.items())
        if nodes[node] > 1 and doubled > spec.max_surge:
            yield f"Pod {invariants.name(pod)} surges too far: on {doubled} nodes, {spec.max_surge} may be"

    def _moved_on(self, uid: str, spec: Spec, pod: Json) -> Iterator[str]:
        if not spec.partition or main_image(pod) != spec.image:
            return
        new = sum(hash_of(one) == hash_of(pod) for one in self._remembered.pods_of(uid))
        most = max(0, NODES - spec.partition)
        if new > most:
            yield f"Pod {invariants.name(pod)} came past the partition: {new} are new, {most} may be"

    def _too_many_out(self, at: float, uid: str, spec: Spec, pod: Json, known: Pass) -> Iterator[str]:
        if spec.partition:
            return  # DS-41: nodes beyond it do not count
        serving = [one for one in self._remembered.pods_of(uid) if is_available(one, at, spec.min_ready)]
        unknown = self._remembered.unknown(known, at, spec.min_ready)
        least, there = NODES - spec.max_unavailable, {node_of(one) for one in serving}
        seen = there.union(map(node_of, unknown))
        if len(there) < least and len(seen) < least and node_of(pod) not in seen:
            name = invariants.name(pod)
            yield f"Pod {name} was taken: {len(there)} nodes have one in service, {least} have to"

    def at_rest(self, now: datetime) -> Iterable[str]:
        """One Pod on every node, the new ones as the partition has it, and a true status."""
        for obj, spec in self._remembered.standing():
            name, status = invariants.name(obj), obj.get("status") or {}
            pods = self._remembered.pods_of(obj["metadata"]["uid"])
            nodes = Counter(map(node_of, pods))
            if len(pods) != NODES or len(nodes) != NODES:
                yield f"DaemonSet {name} at rest: has Pods on {dict(nodes)}, there are {NODES} nodes"
            marked = sum(names.SPECIFIED_DELETE in (pod["metadata"].get("labels") or {}) for pod in pods)
            if marked:
                yield f"DaemonSet {name} at rest: {marked} Pods are still to be replaced"
            new, least = sum(main_image(pod) == spec.image for pod in pods), NODES - spec.partition
            if new < least:
                yield f"DaemonSet {name} at rest: {new} Pods have {spec.image}, at least {least} should"
            wanted = dict.fromkeys(("currentNumberScheduled", "numberReady", "numberAvailable"), NODES)
            wanted["observedGeneration"] = obj["metadata"]["generation"]
            for field, value in wanted.items():
                if (status.get(field) or 0) != value:
                    yield f"DaemonSet {name} at rest: status.{field} is {status.get(field)}, asked for is {value}"


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


def _stays(pod: Json) -> bool:
    return not pod["metadata"].get("deletionTimestamp") and not has_ended(pod)


# ---- what users ask for


def spec_by_seed(rng: Random) -> Json:
    """Create one, as a user would."""
    surge = rng.choice((0, 0, 1, 2))
    return {
        "way": "Standard" if surge else rng.choice(("Standard", "InPlaceIfPossible")),
        "max_unavailable": rng.choice((0, 1)) if surge else rng.randrange(1, 3),
        "max_surge": surge,
        "image": f"clone:{rng.randrange(3)}",
        "min_ready": rng.choice((0, 0, 4)),
        "hook": rng.choice((LABELS, "", "")),
    }


def daemon_set(
    name: str,
    namespace: str,
    *,
    way: str,
    max_unavailable: int,
    max_surge: int,
    image: str,
    min_ready: int,
    hook: str,
) -> Json:
    """The object a user applies."""
    held = held_metadata(hook)
    rolling = {"rollingUpdateType": way, "maxUnavailable": max_unavailable, "maxSurge": max_surge, "partition": 0}
    return {
        "apiVersion": DAEMON_SET.resource().api_version,
        "kind": DAEMON_SET.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "minReadySeconds": min_ready,
            "selector": {"matchLabels": {LABEL: name}},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": rolling},
            **({"lifecycle": lifecycle(hook, mark_not_ready=False)} if hook else {}),
            "template": {
                "metadata": {**held, "labels": {LABEL: name, **held.get("labels", {})}},
                "spec": {
                    "terminationGracePeriodSeconds": 1,
                    "readinessGates": [{"conditionType": names.IN_PLACE_UPDATE_READY}],
                    "containers": [{"name": "main", "image": image}],
                },
            },
        },
    }


def _image(rng: Random) -> tuple[str, Any]:
    return "/spec/template/spec/containers/0/image", f"clone:{rng.randrange(9)}"


def _partition(rng: Random) -> tuple[str, Any]:
    return "/spec/updateStrategy/rollingUpdate/partition", rng.choice((0, 0, 1, 2))


def _min_ready(rng: Random) -> tuple[str, Any]:
    return "/spec/minReadySeconds", rng.choice((0, 2, 6))


DAEMON_SETS = Workload(
    FOLDERS,
    DAEMON_SET.resource(),
    DaemonSetJudge,
    spec_by_seed,
    daemon_set,
    {"roll": (5, _image), "partition": (2, _partition), "min ready": (1, _min_ready)},
    gates=("DaemonSetStrictMaxUnavailable",),
    marks=False,
)
