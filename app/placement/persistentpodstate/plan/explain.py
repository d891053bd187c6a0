"""Where Pods were, are, and would go. Pure; the words are those of ``pykruise explain persistentpodstate``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from app.api.persistentpodstate import PersistentPodState
from app.kube.objects import Pod
from app.placement.persistentpodstate.plan.injection import affinity_with, node_selector_with
from app.placement.persistentpodstate.plan.recording import Labels, required_labels
from app.pods.predicates import is_ready

COLUMNS: Final = ("pod", "remembered", "now", "next")


def rows(
    state: PersistentPodState, pods: Mapping[str, Pod], nodes: Mapping[str, Labels]
) -> list[tuple[str, str, str, str]]:
    """``pods``: those of the workload, by name. ``nodes``: labels by name."""
    known = (state.status.pod_states if state.status is not None else None) or {}
    found = []
    for name in sorted({*known, *pods}, key=_in_order):
        record = known.get(name)
        at = record.node_name if record is not None else "-"
        found.append((name, at, _now(pods.get(name)), _next(state, name, nodes)))
    return found


def _in_order(name: str) -> tuple[str, int, str]:
    prefix, _, digits = name.rpartition("-")
    return (prefix, int(digits), name) if digits.isdecimal() and len(digits) < 20 else (name, -1, name)


def _now(pod: Pod | None) -> str:
    if pod is None:
        return "gone"
    where = f"on {pod.spec.node_name}" if pod.spec.node_name else "without a node"
    return where if is_ready(pod) else f"{where}, not ready"


def _next(state: PersistentPodState, name: str, nodes: Mapping[str, Labels]) -> str:
    record = ((state.status.pod_states if state.status is not None else None) or {}).get(name)
    if record is None:
        return "anywhere: no Pod of this name was ready yet"
    bound = required_labels(state.spec, record.to_dict())
    said = []
    if node_selector_with(state, record, {}):
        place = ", ".join(f"{key}={value}" for key, value in bound.items())
        fitting = sum(all(labels.get(key) == value for key, value in bound.items()) for labels in nodes.values())
        nowhere = "no node any more: it would wait" if not fitting else f"{fitting} node{'s' if fitting > 1 else ''}"
        said.append(f"only {place} ({nowhere})")
    if affinity := affinity_with(state, record, {}):
        (terms,) = affinity["nodeAffinity"].values()
        wanted = (one for term in terms for one in term["preference"]["matchExpressions"])
        said.append("rather " + ", ".join(dict.fromkeys(f"{one['key']}={one['values'][0]}" for one in wanted)))
    return "; ".join(said) or "anywhere: no label of its node is remembered"
