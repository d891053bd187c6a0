"""``pykruise explain`` for PersistentPodStates: what is recorded, and where recreated Pods will run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic import ValidationError

from app.api.webhooks import unreadable
from app.features.persistentpodstate.kind import PERSISTENT_POD_STATE
from app.features.persistentpodstate.plan import Labels, affinity_with, node_selector_with, required_labels
from app.features.persistentpodstate.types import PersistentPodState
from app.framework.commands import Commands, Report, Stored
from app.framework.options import Enabled
from app.kube.client import Client
from app.kube.errors import CommandError
from app.kube.objects import Pod, decode_node, decode_pod
from app.kube.resources import NODES, PODS
from app.pods.predicates import is_ready

COLUMNS: Final = ("pod", "remembered", "now", "next")


def rows(
    state: PersistentPodState, pods: Mapping[str, Pod], nodes: Mapping[str, Labels]
) -> list[tuple[str, str, str, str]]:
    """Return a table row per Pod. ``pods`` holds the workload's Pods by name, ``nodes`` the node labels by name."""
    known = state.records
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
    record = state.records.get(name)
    if record is None:
        return "any node: the Pod has not been ready yet"
    bound = required_labels(state.spec, record.node_topology_labels)
    said = []
    if node_selector_with(state, record, {}):
        place = ", ".join(f"{key}={value}" for key, value in bound.items())
        fitting = sum(all(labels.get(key) == value for key, value in bound.items()) for labels in nodes.values())
        nowhere = (
            "no matching node: the Pod would stay pending"
            if not fitting
            else f"{fitting} node{'s' if fitting > 1 else ''}"
        )
        said.append(f"only {place} ({nowhere})")
    if affinity := affinity_with(state, record, {}):
        (terms,) = affinity["nodeAffinity"].values()
        wanted = (one for term in terms for one in term["preference"]["matchExpressions"])
        said.append("preferably " + ", ".join(dict.fromkeys(f"{one['key']}={one['values'][0]}" for one in wanted)))
    return "; ".join(said) or "any node: no node labels are recorded"


async def explain_object(client: Client, stored: Stored, _enabled: Enabled) -> Report:
    """Return a table row for each Pod that is recorded or exists. Raises CommandError or KubeError."""
    try:
        state = PersistentPodState.model_validate(dict(stored))
    except ValidationError as error:
        name = (stored.get("metadata") or {}).get("name")
        raise CommandError(f"PersistentPodState {name}: {unreadable(error)}") from None
    target = state.spec.target_ref
    listed = (await client.list(PODS, state.metadata.namespace, decode=decode_pod)).items
    pods = {pod.metadata.name: pod for pod in listed if _controlled_by(pod, target.identity)}
    nodes: Mapping[str, Mapping[str, Any]] = {
        node.metadata.name: node.metadata.labels for node in (await client.list(NODES, decode=decode_node)).items
    }
    head = f"PersistentPodState {state.metadata.namespace}/{state.name}: Pods of {target.kind} {target.name}"
    found = rows(state, pods, nodes)
    return Report(head, COLUMNS, found, [] if found else ["none of its Pods has been ready yet: nothing is recorded"])


def _controlled_by(pod: Pod, workload: tuple[str, str, str]) -> bool:
    owner = pod.metadata.controller
    return owner is not None and (owner.group, owner.kind, owner.name) == workload


COMMANDS: Final = Commands(PERSISTENT_POD_STATE, explain_object=explain_object, pausable=False, history=False)
