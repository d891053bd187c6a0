"""CloneSets in the simulation: what users ask for, and what must hold of them at rest."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from random import Random
from typing import Any

from app.api import names
from app.api.cloneset import CLONE_SET
from tests.simulation import invariants
from tests.simulation.lifecycle import FINALIZERS, LABELS, held_metadata, lifecycle
from tests.simulation.promises import Spec, main_image

Json = dict[str, Any]

#: Images that only the end of a run asks for: no Pod has one of an earlier roll-out.
NEVER_BEFORE = ("clone:part",)
POLICIES = ("ReCreate", "InPlaceIfPossible", "InPlaceOnly")
#: What API servers put on claims, so that none goes before the Pods that use it.
PROTECTION = "kubernetes.io/pvc-protection"


def spec_by_seed(rng: Random, *, largest: int = 6) -> Json:
    """How a user sets one up. ``largest``: Pods at most; half as many at least, where there are many."""
    policy, surge, unit = rng.choice(POLICIES), rng.choice((0, 0, 1, 2)), max(1, largest // 6)
    return {
        "replicas": rng.randrange(1 if unit == 1 else largest // 2, largest + 1),
        "policy": policy,
        "max_unavailable": rng.randrange(1, 3) * unit,
        "max_surge": 0 if policy == "InPlaceOnly" else surge,
        "image": f"clone:{rng.randrange(3)}",
        "min_ready": rng.choice((0, 0, 4, 10)),
        "grace": rng.choice((0, 0, 3)),
        "hook": rng.choice((LABELS, LABELS, FINALIZERS, "", "", "", "")),
        "mark": rng.random() < 0.3,
        "claims": rng.choice((0, 0, 1, 1, 2)),
        "reuse": rng.random() < 0.6,
        "limit": rng.choice((0, 0, 0, 1, 2)) * unit,
        "exclude": rng.random() < 0.3,
    }


def clone_set(
    name: str,
    namespace: str,
    *,
    replicas: int,
    policy: str,
    max_unavailable: int,
    max_surge: int,
    image: str,
    min_ready: int = 0,
    grace: int = 0,
    hook: str = "",
    mark: bool = False,
    claims: int = 0,
    reuse: bool = False,
    limit: int = 0,
    exclude: bool = False,
) -> Json:
    """The object a user applies. ``hook``: the kind of its hooks, ``mark``: they take Pods out of service; ``claims``:
    how many volumes each Pod has, ``reuse``: whether they are used again; ``limit``: Pods that may be unavailable when
    it is scaled out, 0: any; ``exclude``: Pods that wait for their preDelete hook count no longer."""
    rolling = {"podUpdatePolicy": policy, "maxUnavailable": max_unavailable, "maxSurge": max_surge, "partition": 0}
    rolling["inPlaceUpdateStrategy"] = {"gracePeriodSeconds": grace}
    held = held_metadata(hook)
    container = {"name": "main", "image": image}
    mounts = [{"name": f"data{number}", "mountPath": f"/data{number}"} for number in range(claims)]
    return {
        "apiVersion": CLONE_SET.resource().api_version,
        "kind": CLONE_SET.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "replicas": replicas,
            "minReadySeconds": min_ready,
            "selector": {"matchLabels": {"clone": name}},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": rolling},
            "scaleStrategy": {
                "enablePVCReuse": reuse,
                "excludePreparingDelete": exclude,
                **({"maxUnavailable": limit} if limit else {}),
            },
            **({"lifecycle": lifecycle(hook, mark_not_ready=mark)} if hook else {}),
            **({"volumeClaimTemplates": [_claim_template(mount["name"]) for mount in mounts]} if mounts else {}),
            "template": {
                "metadata": {**held, "labels": {"clone": name, "app": "clones", **held.get("labels", {})}},
                "spec": {
                    "terminationGracePeriodSeconds": 1,
                    "containers": [container | ({"volumeMounts": mounts} if mounts else {})],
                },
            },
        },
    }


def _claim_template(name: str) -> Json:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return {"metadata": {"name": name, "finalizers": [PROTECTION]}, "spec": spec}


def revives(obj: Json) -> bool:
    """Whether Pods that wait for their preDelete hook may come back into service (CS-97)."""
    hooks = obj["spec"].get("lifecycle") or {}
    return bool(hooks) and not any((hook or {}).get("markPodNotReady") for hook in hooks.values())


def at_rest(obj: Json, pods: Iterable[Json], came_back: Collection[str]) -> Iterator[str]:
    """At rest: as many Pods as asked for, all ready, as many of them new as the partition leaves, and a true status.

    ``came_back``: Pods (uid) that came back from their preDelete hook, which does not go by their revision (CS-97).
    """
    mine = [pod for pod in pods if invariants.owner_of(pod) == obj["metadata"]["uid"]]
    spec, status, name = obj["spec"], obj.get("status") or {}, invariants.name(obj)
    partition = Spec.of(obj).partition
    paused = ((spec.get("updateStrategy") or {}).get("rollingUpdate") or {}).get("paused", False)
    wanted = dict.fromkeys(("replicas", "readyReplicas", "availableReplicas"), spec["replicas"])
    wanted |= dict.fromkeys(("updatedReadyReplicas", "updatedAvailableReplicas"), status.get("updatedReplicas") or 0)
    wanted["observedGeneration"] = obj["metadata"]["generation"]
    for field, value in wanted.items():
        if (status.get(field) or 0) != value:
            yield f"CloneSet {name} at rest: status.{field} is {status.get(field)}, asked for is {value}"
    marked = sum(names.SPECIFIED_DELETE in (pod["metadata"].get("labels") or {}) for pod in mine)
    if marked:
        yield f"CloneSet {name} at rest: {marked} Pods are still to be replaced"
    if len(mine) != spec["replicas"]:
        yield f"CloneSet {name} at rest: {len(mine)} Pods, asked for are {spec['replicas']}"
    image = spec["template"]["spec"]["containers"][0]["image"]
    updated = [pod for pod in mine if main_image(pod) == image]
    new = len(updated)
    least = max(0, spec["replicas"] - partition)
    if new < least and not paused:
        yield f"CloneSet {name} at rest: {new} Pods have {image}, at least {least} should"
    # CS-145: once all Pods that are left are new, nothing is held back any more.
    forgotten = status.get("currentRevision") == status.get("updateRevision")
    held = sum(pod["metadata"]["uid"] not in came_back for pod in updated)
    if held > least and image in NEVER_BEFORE and not forgotten:
        yield f"CloneSet {name} at rest: {new} Pods have {image}, {least} should: {partition} are to be held back"
