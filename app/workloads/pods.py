"""Pods of a workload: facts about each Pod, in-place changes, and new Pods. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from math import inf
from typing import Any, Final

from app.api import names
from app.kube.objects import Pod
from app.pods.inplace.completion import is_update_complete
from app.pods.inplace.eligibility import Blocked, InPlaceOptions, blocked_on_pod, update_spec
from app.pods.inplace.state import StateError, UpdateSpec, is_in_grace
from app.pods.inplace.steps import finished_annotations
from app.pods.lifecycle import Lifecycle, LifecycleState, is_hooked, state_of
from app.pods.predicates import available_after, is_active, is_running_and_ready, is_specified_delete
from app.pods.readiness import has_gate, initial_conditions
from app.pods.revisions import Revision, short_hash
from app.workloads.settings import UpdatePolicy, WorkloadSettings


def gets_initial_conditions(pod: Pod, lifecycle: Lifecycle | None) -> bool:
    """Return whether the readiness controller sets a new Pod's first conditions and lifecycle state Normal together."""
    waits_for_hook = lifecycle is not None and lifecycle.pre_normal is not None
    return state_of(pod) == LifecycleState.PREPARING_NORMAL and not waits_for_hook and bool(initial_conditions(pod))


def awaits_initial_conditions(pod: Pod) -> bool:
    """Return whether the write of the first conditions and lifecycle state Normal is pending. Until it is done, nothing
    else is written to the Pod: both writes would require the same resource version, so one would fail."""
    preparing = state_of(pod) == LifecycleState.PREPARING_NORMAL
    return preparing and bool(pod.spec.node_name) and bool(initial_conditions(pod))


# Facts about a Pod, computed once per resource version and generation. Pure. Availability depends on the time, so the
# facts hold the time at which the Pod becomes available.


@dataclass(slots=True, eq=False)
class PodFacts:
    """Facts about an active Pod. Compared by identity."""

    pod: Pod
    name: str
    #: Short hash of the Pod's revision: the last part of the controller-revision-hash label's value. [PM-78]
    revision: str
    lifecycle: str
    #: Whether it is waiting for its preDelete hook.
    preparing_delete: bool
    #: POSIX seconds at which the Pod becomes available; -inf if it is available, inf if it is not ready. [PM-69]
    available_after: float
    #: Ready, regardless of minReadySeconds. [CS-80, PM-69]
    update_ready: bool
    delete_ready: bool
    #: Whether it has the label apps.kruise.io/specified-delete, with any value. [CS-82]
    marked: bool
    #: Whether the preDelete hook holds up the Pod's deletion. [PM-70]
    delete_hooked: bool
    in_grace: bool
    #: Whether the updater's ``refresh`` can skip the Pod. [CS-122]
    settled: bool
    #: Whether the write of its first conditions and lifecycle state Normal is pending.
    awaits_initial_conditions: bool = False
    #: Whether no in-place update is in progress. [PM-54]
    update_complete: bool = True

    def available(self, now: float) -> bool:
        """Return whether the Pod is available at ``now`` (POSIX seconds). [PM-69]"""
        return self.available_after < now


def pod_facts(pod: Pod, settings: WorkloadSettings) -> PodFacts:
    """Return the facts about the Pod under these settings."""
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
        available_after=available_after(pod, settings.min_ready_seconds) if normal and update_ready else inf,
        update_ready=update_ready,
        delete_ready=normal and update_ready,
        marked=is_specified_delete(pod),
        delete_hooked=lifecycle is not None and is_hooked(lifecycle.pre_delete, pod),
        in_grace=in_grace,
        settled=normal
        and not in_grace
        and (names.POD_TEMPLATE_HASH in labels or not settings.gates.template_hash)
        and (in_place.status == "True" if in_place is not None else not has_gate(pod, names.IN_PLACE_UPDATE_READY))
        # Without a lifecycle state, the annotations show whether an update is in progress.
        and ((settings.gates.lifecycle_states and bool(state)) or not finished_annotations(pod)),
        awaits_initial_conditions=awaits_initial_conditions(pod),
        update_complete=_is_update_complete(pod, settings),
    )


def _is_update_complete(pod: Pod, settings: WorkloadSettings) -> bool:
    try:
        return is_update_complete(pod, vertical_scaling=settings.gates.vertical_scaling)
    except StateError:
        return False  # an unreadable state never counts as complete


@dataclass(frozen=True, slots=True)
class ObservedPods:
    """The Pods a workload controls: ``active`` match its selector; ``foreign`` no longer match and are released;
    ``inactive`` have ended or are being deleted. [MGR-61, CS-55]"""

    active: list[PodFacts]
    foreign: list[Pod]
    inactive: list[Pod]


def observed_pods(
    pods: Iterable[Pod],
    known: dict[str, PodFacts],
    settings: WorkloadSettings,
    *,
    matches: Callable[[Pod], bool],
    releases_inactive: bool,
) -> tuple[ObservedPods, dict[str, PodFacts]]:
    """Classify cached ``pods``, reusing the facts in ``known`` (by UID). Return the Pods, and the facts for the next
    call.

    ``matches`` returns whether the workload's selector matches a Pod. CloneSets release only active Pods; with
    ``releases_inactive``, the others are released too. [AS-38, DS-20]
    """
    facts: dict[str, PodFacts] = {}
    observed = ObservedPods([], [], [])
    for pod in pods:
        uid = pod.metadata.uid
        found = known.get(uid)
        if found is None or found.pod is not pod:
            active = is_active(pod)
            if (active or releases_inactive) and not matches(pod):
                observed.foreign.append(pod)
                continue
            if not active:
                observed.inactive.append(pod)
                continue
            found = pod_facts(pod, settings)
        facts[uid] = found
        observed.active.append(found)
    return observed, facts


@dataclass(slots=True)
class InPlaceUpdates:
    """Caches the differences between revisions of one workload at one generation."""

    specs: dict[tuple[str, str], UpdateSpec | Blocked] = field(default_factory=dict)

    def obstacle(
        self, pod: PodFacts, target: Revision, ordered: Sequence[Revision], settings: WorkloadSettings
    ) -> str | None:
        found = self.spec_between(pod.revision, target, ordered, settings)
        replaceable = settings.update_policy == UpdatePolicy.IN_PLACE_IF_POSSIBLE
        if not isinstance(found, Blocked) and replaceable:
            found = blocked_on_pod(pod.pod, found) or found
        return str(found) if isinstance(found, Blocked) else None

    def spec_between(
        self, at: str, target: Revision, ordered: Sequence[Revision], settings: WorkloadSettings
    ) -> UpdateSpec | Blocked:
        """Return what an in-place update from the revision with this short hash changes; computed once per pair.
        ``ordered`` holds all revisions."""
        key = (at, target.name)
        found = self.specs.get(key)
        if found is None:
            gates, policy = settings.gates, settings.update_policy
            own = next((revision for revision in ordered if short_hash(revision.name) == at), None)
            options = InPlaceOptions(
                env_from_metadata=gates.env_from_metadata,
                vertical_scaling=gates.vertical_scaling,
                # InPlaceOnly ignores claim templates. [PM-15]
                compare_claim_templates=gates.recreate_on_claim_change
                and policy is not None
                and policy != UpdatePolicy.IN_PLACE_ONLY,
            )
            bears = short_hash(target.name) if gates.update_hash else ""
            found = update_spec(own, target, options, grace_seconds=settings.grace_seconds or 0, revision=bears)
            if own is not None:  # without it, the result may change once the cache has the revision
                self.specs[key] = found
        return found


#: Maximum number of Pods created in one reconcile; the next reconcile creates more. This keeps a workload with
#: millions of Pods from taking memory and worker time from others.
MAX_CREATIONS: Final = 500


@dataclass(frozen=True, slots=True)
class NewPod:
    """A Pod to create. ``body`` returns its JSON when the request is sent; ``claims`` are created first;
    ``managed_fields`` asks the API server to track field managers."""

    name: str
    body: Callable[[datetime], Mapping[str, Any]]
    claims: Sequence[Mapping[str, Any]] = ()
    managed_fields: bool = True
