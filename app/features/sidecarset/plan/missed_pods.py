"""Pods that bypassed injection: which ones, why, and how to repair them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from app.api import names
from app.features.cloneset import defaults as cloneset
from app.features.sidecarset.injection.selection import SidecarSetIndex, in_scope, replaced_bases
from app.features.sidecarset.plan.settings import injected_sets
from app.kube.clock import rfc3339
from app.kube.jsonvalues import as_object
from app.kube.objects import Pod
from app.kube.quantities import IntOrPercentError, scaled
from app.kube.selectors import Selector
from app.kube.text import first_of
from app.pods.predicates import is_active, is_ready

# Conditions about Pods that were created without their sidecars. Condition ``SidecarsMissing`` of a Pod names the sets;
# it is written once, when the webhook is registered again, and survives a restart of the manager. Condition
# ``PodsMissed`` of a set counts the Pods that still run without its containers. [MGR-123, SS-136]

#: The index of Pods by the sets whose containers they lack.
MISSED_BY: Final = "missed-by-sidecarset"
SIDECARS_MISSING: Final = "SidecarsMissing"
PODS_MISSED: Final = "PodsMissed"
CREATED_UNREVIEWED: Final = "CreatedWithoutReview"
#: Maximum number of Pods named in a set's condition.
NAMED: Final = 3
#: Maximum length of a condition message to parse. The messages we write are shorter.
_READ: Final = 16384
_SETS: Final = re.compile(r"SidecarSet ([a-z0-9.-]+(?:, [a-z0-9.-]+)*)")


def message(sets: Sequence[str]) -> str:
    """Return the message of a Pod's event and condition."""
    return (
        "created while the webhook was not registered, without the containers of SidecarSet "
        f"{', '.join(sets)}; delete the Pod, so that it is recreated with them"
    )


def missing_from(pod: Pod) -> tuple[str, ...]:
    """Return the sets that the Pod's condition names and that have not injected it since. Index function."""
    condition = pod.condition(SIDECARS_MISSING)
    if condition is None or condition.status != "True" or not is_active(pod):
        return ()
    found = _SETS.search((condition.message or "")[:_READ])
    if found is None:
        return ()
    injected = injected_sets(pod.metadata.annotations)
    return tuple(dict.fromkeys(name for name in found[1].split(", ") if name not in injected))


def pod_patch(pod: Pod, sets: Sequence[str], now: datetime) -> dict[str, Any]:
    """Return the strategic merge patch of the Pod's status that names the sets whose containers are missing."""
    condition = {
        "type": SIDECARS_MISSING,
        "status": "True",
        "reason": CREATED_UNREVIEWED,
        "message": message(sets),
        "lastTransitionTime": rfc3339(now),
    }
    return {"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [condition]}}


def missed_pods(pods: Iterable[Pod], name: str) -> list[Pod]:
    """Return the Pods that lack this set's containers, sorted by namespace and name."""
    found = [pod for pod in pods if name in missing_from(pod)]
    return sorted(found, key=lambda pod: (pod.metadata.namespace, pod.metadata.name))


def set_conditions(present: object, missed: Sequence[Pod], now: datetime) -> list[Mapping[str, Any]] | None:
    """Return the set's conditions, keeping those of other types; None if nothing changes."""
    conditions = [one for one in present if isinstance(one, Mapping)] if isinstance(present, list) else []
    known = next((one for one in conditions if one.get("type") == PODS_MISSED), None)
    others = [one for one in conditions if one.get("type") != PODS_MISSED]
    if not missed:
        return others if known is not None else None
    named = first_of([f"{pod.metadata.namespace}/{pod.metadata.name}" for pod in missed], NAMED)
    number = f"{len(missed)} Pods run" if len(missed) > 1 else "1 Pod runs"
    text = f"{number} without the containers, created while no webhook was called: {named}"
    if known is not None and known.get("message") == text and known.get("status") == "True":
        return None
    since = known.get("lastTransitionTime") if known is not None and known.get("status") == "True" else None
    return [
        *others,
        {
            "type": PODS_MISSED,
            "status": "True",
            "lastTransitionTime": since or rfc3339(now),
            "reason": CREATED_UNREVIEWED,
            "message": text,
        },
    ]


# Choose which Pod without its sidecars to evict next; its workload recreates it with them. [SS-137]


@dataclass(frozen=True, slots=True)
class Limits:
    """Replicas of a workload, and how many may be unavailable according to its update strategy."""

    replicas: int
    max_unavailable: int


@dataclass(frozen=True, slots=True)
class Step:
    """Next action for the Pods of one workload: evict one, leave the Pods alone for the reason in ``left``, or wait."""

    evict: Pod | None = None
    left: str = ""


def limits_of(group: str, kind: str, workload: Mapping[str, Any]) -> Limits:
    """Return the limits of a stored workload, or the defaults of its kind. Raises IntOrPercentError."""
    spec, status = as_object(workload.get("spec")), as_object(workload.get("status"))
    strategy = as_object(spec.get("strategy" if kind == "Deployment" else "updateStrategy"))
    rolling = as_object(strategy.get("rollingUpdate"))
    if kind == "DaemonSet":
        replicas = _count(status.get("desiredNumberScheduled"), 0)
    else:
        replicas = _count(spec.get("replicas"), 1)
    # A Deployment rounds maxUnavailable down, but to at least one if maxSurge is zero; other workloads round it up.
    if kind == "Deployment":
        surge = scaled(rolling.get("maxSurge", "25%"), replicas, round_up=True)
        allowed = scaled(rolling.get("maxUnavailable", "25%"), replicas, round_up=False)
        return Limits(replicas, 1 if not surge and not allowed else allowed)
    if (group, kind) == ("apps.kruise.io", "CloneSet"):
        return Limits(
            replicas, scaled(rolling.get("maxUnavailable", cloneset.MAX_UNAVAILABLE), replicas, round_up=True)
        )
    if kind == "ReplicaSet":
        return Limits(replicas, 1)
    return Limits(replicas, scaled(rolling.get("maxUnavailable", 1), replicas, round_up=True))


def next_step(pods: Sequence[Pod], missed: Sequence[Pod], limits: Limits) -> Step:
    """Return the next action. ``pods`` are the active Pods of the workload, ``missed`` those that lack their sidecars
    (at least one, in order).

    Pods are evicted one at a time, and only while all replicas exist. Pods that are not ready come first.
    """
    if len(pods) < limits.replicas:
        return Step()
    unready = next((pod for pod in missed if not is_ready(pod)), None)
    if unready is not None:
        return Step(evict=unready)
    if limits.max_unavailable < 1:
        return Step(left="its update strategy allows no Pod to be unavailable; delete the Pods or raise maxUnavailable")
    if sum(not is_ready(pod) for pod in pods) >= limits.max_unavailable:
        return Step()
    return Step(evict=missed[0])


def _count(value: object, default: int) -> int:
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int):
        raise IntOrPercentError("the number of Pods is not an integer")
    return value


# Pods that bypassed admission: a SidecarSet selects them, but they were created without its containers. This happens
# after the webhook configuration is deleted or changed: until a replica restores it, the API server does not call the
# webhook, and nothing else shows that sidecars are missing. [MGR-123]

REASON: Final = "SidecarsMissing"
#: Maximum difference between the API server's clock and ours. A larger value would do no harm, because every
#: reviewed Pod records its sets.
CLOCK_SKEW: Final = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class Bypassed:
    """A Pod and the names of the sets whose containers it lacks."""

    pod: Pod
    sets: tuple[str, ...]

    @property
    def message(self) -> str:
        return message(self.sets)


def bypassed_pods(
    pods: Iterable[Pod],
    since: datetime,
    index: SidecarSetIndex,
    created: Mapping[str, datetime],
    namespaces: Mapping[str, Mapping[str, str]],
    reviewed: Selector,
) -> list[Bypassed]:
    """Return the Pods created after ``since`` (timezone-aware, by our clock) that lack the containers of a set that
    is older than the Pod.

    ``created`` maps sets to their creation times, and ``namespaces`` maps namespaces to their labels. ``reviewed``
    selects the namespaces whose Pods the API server sends to the webhook.
    """
    found = []
    for pod in pods:
        at = pod.metadata.creation_timestamp
        if at is None or at < since - CLOCK_SKEW or not is_active(pod) or names.MIRROR_POD in pod.metadata.annotations:
            continue
        labels = namespaces.get(pod.metadata.namespace)
        if labels is None or not reviewed.matches(labels):
            continue
        lacking = lacking_sets(pod, index, labels)
        old_enough = tuple(name for name in lacking if name in created and created[name] <= at)
        if old_enough:
            found.append(Bypassed(pod, old_enough))
    return found


def lacking_sets(pod: Pod, index: SidecarSetIndex, labels: Mapping[str, str]) -> list[str]:
    """Return the sets that would inject the Pod if it were created now, but have not injected it."""
    sets = in_scope(index.candidates(pod.metadata.namespace, pod.metadata.labels), labels)
    present, replaced = injected_sets(pod.metadata.annotations), replaced_bases(sets)
    return [prepared.name for prepared in sets if prepared.name not in present and prepared.name not in replaced]
