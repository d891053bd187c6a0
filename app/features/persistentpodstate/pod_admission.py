"""Adds the recorded node affinity to new Pods."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Final, TypeAlias

from app.api import names
from app.features.persistentpodstate.kind import PERSISTENT_POD_STATE
from app.features.persistentpodstate.plan import affinity_with, node_selector_with, restored_annotations
from app.features.persistentpodstate.types import PersistentPodState
from app.features.persistentpodstate.validation import KNOWN_TARGETS
from app.framework.watched import Watched
from app.kube.admission import Denied, Review
from app.kube.store import Store
from app.pods.admission import MutatorOrder
from app.pods.admission_draft import PodDraft
from app.pods.custom_workloads import GroupKind
from app.pods.predicates import controller_of

#: Group, kind and name of a workload.
WorkloadName: TypeAlias = tuple[str, str, str]
BY_TARGET: Final = "target"
BY_RECORDED_NODE: Final = "recorded node"


def _targets(state: PersistentPodState) -> Iterable[str]:
    target = state.spec.target_ref
    return (_key(state.metadata.namespace, target.identity),)


def _nodes(state: PersistentPodState) -> Iterable[str]:
    return {one.node_name for one in state.records.values()}


STATES: Final = Watched.kind(PERSISTENT_POD_STATE, PersistentPodState, **{BY_TARGET: _targets})
#: STATES with an additional index that only the controller needs.
STATES_BY_NODE: Final = STATES.indexed(**{BY_RECORDED_NODE: _nodes})


def states_of(states: Store[PersistentPodState], namespace: str, workload: WorkloadName) -> list[PersistentPodState]:
    """Return the PersistentPodStates of a workload, oldest first. Admission allows only one."""
    found = [one for one in states.by_index(BY_TARGET, _key(namespace, workload)) if not one.deleting]
    return sorted(found, key=lambda one: (one.metadata.creation_timestamp, one.name)) if len(found) > 1 else found


def state_of(states: Store[PersistentPodState], namespace: str, workload: WorkloadName) -> PersistentPodState | None:
    """Return the PersistentPodState of a workload, if any."""
    found = states_of(states, namespace, workload)
    return found[0] if found else None


def _key(namespace: str, workload: WorkloadName) -> str:
    return "/".join((namespace, *workload))


# Pod creation step that makes a recreated Pod return to nodes with the labels recorded for it. [PPS-31 … PPS-37]


class PersistentPodStateStep:
    """Applies a Pod's record, as read from the cache."""

    order: Final = MutatorOrder.FORMER_NODE

    def __init__(self, states: Store[PersistentPodState], listed: Callable[[], Collection[GroupKind]]) -> None:
        """``listed`` returns the custom kinds on the operator's current list."""
        self._states = states
        self._listed = listed

    def __call__(self, draft: PodDraft, review: Review) -> Denied | None:  # noqa: ARG002
        """Apply the Pod's record. A Pod with a generated name or an assigned node is left unchanged."""
        if not draft.name or draft.spec.get("nodeName"):
            return None
        controller = controller_of(draft.owner_references)
        if controller is None:
            return None
        kind = controller.group, controller.kind
        if kind not in KNOWN_TARGETS and kind not in self._listed():
            return None
        state = state_of(self._states, draft.namespace, (*kind, controller.name))
        if state is not None:
            inject(draft, state)
        return None


def inject(draft: PodDraft, state: PersistentPodState) -> None:
    """Apply the record to the Pod. [PPS-32 … PPS-36]"""
    record = state.records.get(draft.name)
    if record is None:
        return
    if restored := restored_annotations(state, record, draft.annotations):
        draft.set_annotations(restored, "PPS-36")
    selector, affinity = node_selector_with(state, record, draft.spec), affinity_with(state, record, draft.spec)
    if selector is not None:
        draft.change_field("spec", "nodeSelector", selector, "PPS-33")
    if affinity is not None:
        draft.change_field("spec", "affinity", affinity, "PPS-34")
    if selector is not None or affinity is not None:
        draft.set_annotations({names.INJECTED_PERSISTENT_POD_STATE: state.name}, "PPS-35")
