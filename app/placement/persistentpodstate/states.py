"""PersistentPodStates as they are watched: found by the workload whose Pods they remember, and by nodes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

from app.api.persistentpodstate import PERSISTENT_POD_STATE, PersistentPodState
from app.api.persistentpodstate.validation import group_of
from app.kube.store import Store
from app.slices import Watched

#: Group, kind and name of a workload.
WorkloadName: TypeAlias = tuple[str, str, str]
BY_TARGET: Final = "target"
BY_RECORDED_NODE: Final = "recorded node"


def _targets(state: PersistentPodState) -> Iterable[str]:
    target = state.spec.target_ref
    return (_key(state.metadata.namespace, (group_of(target), target.kind, target.name)),)


def _nodes(state: PersistentPodState) -> Iterable[str]:
    states = (state.status.pod_states if state.status is not None else None) or {}
    return {one.node_name for one in states.values()}


STATES: Final = Watched.kind(PERSISTENT_POD_STATE, PersistentPodState, **{BY_TARGET: _targets})
#: With the index that only the controller needs.
STATES_BY_NODE: Final = STATES.indexed(**{BY_RECORDED_NODE: _nodes})


def states_of(states: Store[PersistentPodState], namespace: str, workload: WorkloadName) -> list[PersistentPodState]:
    """Those of a workload, the oldest first; admission lets there be no more than one."""
    found = [one for one in states.by_index(BY_TARGET, _key(namespace, workload)) if not one.deleting]
    return sorted(found, key=lambda one: (one.metadata.creation_timestamp, one.name)) if len(found) > 1 else found


def state_of(states: Store[PersistentPodState], namespace: str, workload: WorkloadName) -> PersistentPodState | None:
    """That of a workload."""
    found = states_of(states, namespace, workload)
    return found[0] if found else None


def _key(namespace: str, workload: WorkloadName) -> str:
    return "/".join((namespace, *workload))
