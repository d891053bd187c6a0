"""CloneSets as users apply them."""

from __future__ import annotations

from random import Random
from typing import Any

from app.features.cloneset.kind import CLONE_SET
from tests.simulation.lifecycle import FINALIZERS, LABELS, lifecycle
from tests.simulation.users import LABEL
from tests.simulation.workloads.subject import given, template

Json = dict[str, Any]

CLONE_SETS = CLONE_SET.resource()
POLICIES = ("ReCreate", "InPlaceIfPossible", "InPlaceOnly")
#: The finalizer that protects a claim while Pods use it.
PROTECTION = "kubernetes.io/pvc-protection"


def spec_by_seed(rng: Random, *, largest: int = 6) -> Json:
    """Draw the arguments of :func:`clone_set`. ``largest``: maximum number of Pods; large sets have at least half."""
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
    """Return the spec of a CloneSet. ``hook``: the kind of its lifecycle hooks, ``mark``: markPodNotReady;
    ``claims``: volumes per Pod, ``reuse``: enablePVCReuse; ``limit``: scaleStrategy.maxUnavailable, 0: none;
    ``exclude``: excludePreparingDelete."""
    rolling = {"podUpdatePolicy": policy, "maxUnavailable": max_unavailable, "maxSurge": max_surge, "partition": 0}
    rolling["inPlaceUpdateStrategy"] = {"gracePeriodSeconds": grace}
    mounts = [{"name": f"data{number}", "mountPath": f"/data{number}"} for number in range(claims)]
    containers = [given(name="main", image=image, volumeMounts=mounts or None)]
    return {
        "replicas": replicas,
        "minReadySeconds": min_ready,
        "selector": {"matchLabels": {LABEL: name}},
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": rolling},
        "scaleStrategy": given(enablePVCReuse=reuse, excludePreparingDelete=exclude, maxUnavailable=limit or None),
        **given(lifecycle=lifecycle(hook, mark_not_ready=mark)),
        **given(volumeClaimTemplates=[claim_template(mount["name"]) for mount in mounts] or None),
        "template": template(name, image, hook, {"app": "clones"}, containers=containers),
    }


def small_clone_set(rng: Random, name: str, *, least: int, unavailable: int) -> Json:
    """Draw the spec of a CloneSet with ``least`` to 7 Pods, of which up to ``unavailable`` may be unavailable."""
    return clone_set(
        name,
        replicas=rng.randrange(least, 8),
        policy=rng.choice(("ReCreate", "InPlaceIfPossible")),
        max_unavailable=rng.randrange(1, unavailable + 1),
        max_surge=rng.choice((0, 0, 1, 2)),
        image=f"clone:{rng.randrange(3)}",
    )


def claim_template(name: str) -> Json:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return {"metadata": {"name": name, "finalizers": [PROTECTION]}, "spec": spec}
