"""Which steps of a takeover are done, read from what is there. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from app.kube.resources import CONFIGMAPS, CUSTOMRESOURCEDEFINITIONS, DEPLOYMENTS
from app.manager.takeover.model import CLUSTER_ROLES, Installed, Step, by_text, container_of

#: What our Deployment runs.
COMMAND: Final = ("pykruise", "manager")


def runs_ours(deployment: Mapping[str, Any]) -> bool:
    """Whether a takeover has changed the Deployment."""
    return tuple(container_of(deployment).get("command") or ()) == COMMAND


def remaining(steps: Sequence[Step], seen: Installed) -> tuple[Step, ...]:
    """The steps that are not done, in their order."""
    deployment = seen.deployment or {}
    changed = all(_is_done(step, seen) for step in steps if step.resource is DEPLOYMENTS and step.action == "patch")
    only_ours = changed and is_rolled_out(deployment)
    ours = next((step for step in steps if step.exact), None)
    left = []
    for step in steps:
        if step.action == "wait":
            done = only_ours
        elif step.resource is CLUSTER_ROLES and only_ours and ours is not None and not step.exact:
            # What only OpenKruise's manager needed may be gone already.
            done = _missing(ours, seen) == 0
        else:
            done = _is_done(step, seen)
        if not done:
            left.append(step)
    return tuple(left)


def is_rolled_out(deployment: Mapping[str, Any]) -> bool:
    """Whether every replica is of the newest template and available."""
    status = deployment.get("status") or {}
    updated, wanted, *rest = replica_counts(deployment)
    seen = status.get("observedGeneration", 0) >= deployment["metadata"].get("generation", 0)
    return bool(seen) and [updated, *rest] == [wanted] * 3


def replica_counts(deployment: Mapping[str, Any]) -> tuple[int, int, int, int]:
    """How many replicas are updated, wanted, there and available."""
    status = deployment.get("status") or {}
    updated, there, available = (status.get(name, 0) for name in ("updatedReplicas", "replicas", "availableReplicas"))
    return updated, deployment["spec"].get("replicas", 1), there, available


def _is_done(step: Step, seen: Installed) -> bool:
    if step.resource is CONFIGMAPS:
        return seen.backup is not None
    if step.resource is CUSTOMRESOURCEDEFINITIONS:
        return _covers(seen.definitions.get(step.name), step.body)
    if step.resource is DEPLOYMENTS:
        wanted = container_of(step.body)
        running = container_of(seen.deployment or step.body)
        return all((running.get(name) or []) == wanted[name] for name in ("image", "command", "args"))
    if step.resource is CLUSTER_ROLES:
        return _missing(step, seen) == 0 and (not step.exact or _held(seen) == by_text(step.body["rules"]).keys())
    return _covers(seen.granted.get((step.resource.kind, step.name)), step.body)


def _held(seen: Installed) -> set[bytes]:
    return set(by_text((seen.cluster_role or {}).get("rules") or []))


def _missing(step: Step, seen: Installed) -> int:
    return len(by_text(step.body["rules"]).keys() - _held(seen))


def _covers(live: Any, wanted: Any) -> bool:
    """Whether everything that is wanted is there; an API server adds defaults."""
    if isinstance(wanted, Mapping):
        return isinstance(live, Mapping) and all(_covers(live.get(key), value) for key, value in wanted.items())
    if isinstance(wanted, list):
        return isinstance(live, list) and len(live) == len(wanted) and all(map(_covers, live, wanted))
    return bool(live == wanted)
