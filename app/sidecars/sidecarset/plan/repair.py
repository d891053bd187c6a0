"""Which Pod that lacks its sidecars is evicted next, so that its workload creates it anew with them. Pure. SS-137."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.kube.intorpercent import IntOrPercentError, scaled
from app.kube.objects import Pod
from app.pods.predicates import is_ready


@dataclass(frozen=True, slots=True)
class Limits:
    """How many Pods a workload wants, and how many of them may be unavailable by its own update strategy."""

    replicas: int
    max_unavailable: int


@dataclass(frozen=True, slots=True)
class Step:
    """What to do about the Pods of one workload: evict one, wait for its others, or leave it, and why."""

    evict: Pod | None = None
    waits: str = ""
    left: str = ""


def limits_of(group: str, kind: str, workload: Mapping[str, Any]) -> Limits:
    """The limits that a stored workload names; its kind's default where it names none. Raises IntOrPercentError."""
    spec, status = _mapping(workload, "spec"), _mapping(workload, "status")
    strategy = _mapping(spec, "strategy" if kind == "Deployment" else "updateStrategy")
    rolling = _mapping(strategy, "rollingUpdate")
    if kind == "DaemonSet":
        replicas = _count(status.get("desiredNumberScheduled"), 0)
    else:
        replicas = _count(spec.get("replicas"), 1)
    # A Deployment rounds down and never ends at nothing unless its surge says so; the others round up.
    if kind == "Deployment":
        surge = scaled(rolling.get("maxSurge", "25%"), replicas, round_up=True)
        allowed = scaled(rolling.get("maxUnavailable", "25%"), replicas, round_up=False)
        return Limits(replicas, 1 if not surge and not allowed else allowed)
    if (group, kind) == ("apps.kruise.io", "CloneSet"):
        return Limits(replicas, scaled(rolling.get("maxUnavailable", "20%"), replicas, round_up=True))
    if kind == "ReplicaSet":
        return Limits(replicas, 1)
    return Limits(replicas, scaled(rolling.get("maxUnavailable", 1), replicas, round_up=True))


def next_step(pods: Sequence[Pod], missed: Sequence[Pod], limits: Limits) -> Step:
    """``pods``: the active Pods of the workload; ``missed``: those of them that lack their sidecars, in their order.

    One at a time: none goes before as many Pods are there as are wanted. One that is not ready goes first.
    """
    if not missed:
        return Step()
    if len(pods) < limits.replicas:
        return Step(waits=f"{limits.replicas - len(pods)} of its Pods are missing")
    unready = next((pod for pod in missed if not is_ready(pod)), None)
    if unready is not None:
        return Step(evict=unready)
    if limits.max_unavailable < 1:
        return Step(left="its update strategy allows no Pod to be unavailable; delete the Pods yourself, or allow one")
    unavailable = sum(not is_ready(pod) for pod in pods)
    if unavailable >= limits.max_unavailable:
        return Step(waits=f"{unavailable} of its Pods are not ready")
    return Step(evict=missed[0])


def _mapping(obj: Mapping[str, Any], field: str) -> Mapping[str, Any]:
    found = obj.get(field)
    return found if isinstance(found, Mapping) else {}


def _count(value: object, default: int) -> int:
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int):
        raise IntOrPercentError("the number of Pods is no integer")
    return value
