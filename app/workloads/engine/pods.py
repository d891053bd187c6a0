"""What plans know of one Pod: worked out once per resourceVersion and generation, then only read. Pure.

Whether a Pod is available depends on the time; so that the facts do not, they hold the moment from which it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import inf

from app.api import names
from app.kube.objects import Pod
from app.pods.inplace import StateError, finished_annotations, is_in_grace, is_update_complete
from app.pods.lifecycle import LifecycleState, is_hooked
from app.pods.predicates import is_active, is_running_and_ready, is_specified_delete, ready_since
from app.pods.readiness.plan import has_gate
from app.pods.revisions import short_hash
from app.workloads.engine.initial_conditions import awaits_initial_conditions
from app.workloads.engine.settings import WorkloadSettings


@dataclass(slots=True, eq=False)
class PodFacts:
    """One active Pod. Objects are compared by identity."""

    pod: Pod
    name: str
    #: The short hash of its revision: the last part of the label's value (CS-75).
    revision: str
    lifecycle: str
    #: Its preDelete hook is waited for.
    preparing_delete: bool
    #: POSIX seconds after which the Pod is available; -inf: it is; inf: not as it stands (CS-81).
    available_after: float
    #: CS-80, CS-81 without minReadySeconds.
    update_ready: bool
    delete_ready: bool
    #: The label apps.kruise.io/specified-delete is there, with whatever value (CS-82).
    marked: bool
    #: Somebody's hook is on the Pod (CS-134).
    delete_hooked: bool
    update_hooked: bool
    in_grace: bool
    #: There is nothing to refresh on it, whatever the time is (CS-122).
    settled: bool
    #: Its first conditions are about to be written, and with them its step to Normal.
    awaits_initial_conditions: bool = False
    #: PM-54: no update in place is under way on it.
    update_complete: bool = True

    def available(self, now: float) -> bool:
        """CS-81 at ``now``, POSIX seconds."""
        return self.available_after < now


def pod_facts(pod: Pod, settings: WorkloadSettings) -> PodFacts:
    """All that follows from the Pod and the settings, but for the time."""
    labels = pod.metadata.labels
    state = labels.get(names.LIFECYCLE_STATE, "")
    normal = state in ("", LifecycleState.NORMAL)
    in_place = pod.condition(names.IN_PLACE_UPDATE_READY)
    ready = is_running_and_ready(pod)
    update_ready = ready and (in_place is None or in_place.status == "True")
    lifecycle, in_grace = settings.lifecycle, is_in_grace(pod)
    return PodFacts(
        pod=pod,
        name=pod.metadata.name,
        revision=short_hash(labels.get(names.CONTROLLER_REVISION_HASH, "")),
        lifecycle=state,
        preparing_delete=state == LifecycleState.PREPARING_DELETE,
        available_after=_available_after(pod, settings.min_ready_seconds) if normal and update_ready else inf,
        update_ready=update_ready,
        delete_ready=normal and update_ready,
        marked=is_specified_delete(pod),
        delete_hooked=lifecycle is not None and is_hooked(lifecycle.pre_delete, pod),
        update_hooked=lifecycle is not None and is_hooked(lifecycle.in_place_update, pod),
        in_grace=in_grace,
        settled=normal
        and not in_grace
        and (names.POD_TEMPLATE_HASH in labels or not settings.gates.template_hash)
        and (in_place.status == "True" if in_place is not None else not has_gate(pod, names.IN_PLACE_UPDATE_READY))
        # What no lifecycle shows, the state of the update does.
        and (settings.gates.lifecycle_states or not finished_annotations(pod)),
        awaits_initial_conditions=awaits_initial_conditions(pod),
        update_complete=_is_update_complete(pod, settings),
    )


def _is_update_complete(pod: Pod, settings: WorkloadSettings) -> bool:
    try:
        return is_update_complete(pod, vertical_scaling=settings.gates.vertical_scaling)
    except StateError:
        return False  # what was begun cannot be told to have ended


def _available_after(pod: Pod, min_ready_seconds: int) -> float:
    """CS-79: of a Pod that is ready."""
    if min_ready_seconds <= 0:
        return -inf
    since = ready_since(pod)
    return inf if since is None else since.timestamp() + min_ready_seconds


@dataclass(frozen=True, slots=True)
class ObservedPods:
    """CS-53, CS-55: the Pods a workload controls. ``active``: those that match its selector; ``foreign``: active ones
    that no longer do; ``inactive``: those that have ended or are being deleted."""

    active: list[PodFacts]
    foreign: list[Pod]
    inactive: list[Pod]


def observed_pods(
    pods: Iterable[Pod],
    known: dict[str, PodFacts],
    settings: WorkloadSettings,
    *,
    matches: Callable[[Pod], bool],
) -> tuple[ObservedPods, dict[str, PodFacts]]:
    """Sort ``pods``, those of the cache, with the facts known of them by uid; and the facts to keep for the next time.

    ``matches``: whether the workload's selector matches the Pod.
    """
    facts: dict[str, PodFacts] = {}
    observed = ObservedPods([], [], [])
    for pod in pods:
        uid = pod.metadata.uid
        found = known.get(uid)
        if found is None or found.pod is not pod:
            if not is_active(pod):
                observed.inactive.append(pod)
                continue
            if not matches(pod):
                observed.foreign.append(pod)
                continue
            found = pod_facts(pod, settings)
        facts[uid] = found
        observed.active.append(found)
    return observed, facts
