"""The Pods of a workload: facts about each, what changes in place, and what a new Pod is. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from math import inf
from typing import Any, Final

from app.api import names
from app.kube.objects import OwnerReference, Pod
from app.pods.inplace.completion import is_update_complete
from app.pods.inplace.eligibility import Blocked, InPlaceOptions, blocked_on_pod, update_spec
from app.pods.inplace.state import StateError, UpdateSpec, is_in_grace
from app.pods.inplace.steps import finished_annotations
from app.pods.lifecycle import Lifecycle, LifecycleState, is_hooked, state_members, state_of
from app.pods.predicates import is_active, is_running_and_ready, is_specified_delete, ready_since
from app.pods.readiness import InitialMetadata, has_gate, initial_conditions
from app.pods.revisions import Revision, short_hash
from app.workloads.settings import UpdatePolicy, WorkloadKind, WorkloadSettings


def gets_initial_conditions(pod: Pod, lifecycle: Lifecycle | None) -> bool:
    """Whether a new Pod's first conditions and its step to Normal are one write, made by the readiness controller."""
    waits_for_hook = lifecycle is not None and lifecycle.pre_normal is not None
    return state_of(pod) == LifecycleState.PREPARING_NORMAL and not waits_for_hook and bool(initial_conditions(pod))


def awaits_initial_conditions(pod: Pod) -> bool:
    """Whether that write is under way, or about to be. Nobody else moves the Pod until then: one of both would be
    refused, for both insist on the version they saw."""
    preparing = state_of(pod) == LifecycleState.PREPARING_NORMAL
    return preparing and bool(pod.spec.node_name) and bool(initial_conditions(pod))


def initial_metadata(
    kind: WorkloadKind, lifecycle_of: Callable[[OwnerReference, str], tuple[Lifecycle | None] | None]
) -> InitialMetadata:
    """CS-135: a Pod without a preNormal hook becomes Normal once it is scheduled; its first conditions go into the same
    write. One that no node takes shows them all the same, for it may stay so.

    ``lifecycle_of``: the hooks of the workload that a reference in a namespace means, in a tuple; None where it is not
    there, is another one, or is going.
    """

    def members(pod: Pod, now: datetime) -> Mapping[str, Any] | None:
        reference = kind.managing_reference(pod.metadata)
        found = lifecycle_of(reference, pod.metadata.namespace) if reference is not None else None
        if found is None or not gets_initial_conditions(pod, found[0]):
            return {}
        if not pod.spec.node_name:
            scheduled = pod.condition("PodScheduled")
            return {} if scheduled is not None and scheduled.status == "False" else None
        labels, annotations = state_members(LifecycleState.NORMAL, now)
        return {"labels": labels, "annotations": annotations}

    return members


# What plans know of one Pod: worked out once per resourceVersion and generation, then only read. Pure.
#
# Whether a Pod is available depends on the time; so that the facts do not, they hold the moment from which it is.


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


@dataclass(slots=True)
class InPlaceUpdates:
    """The ways between revisions that were worked out, of one workload at one generation."""

    specs: dict[tuple[str, str], UpdateSpec | Blocked] = field(default_factory=dict)

    def spec_of(
        self, pod: PodFacts, target: Revision, ordered: Sequence[Revision], settings: WorkloadSettings
    ) -> UpdateSpec | Blocked:
        """What an in-place update of the Pod changes. ``ordered``: all revisions there are."""
        return self.spec_between(pod.revision, target, ordered, settings)

    def obstacle(
        self, pod: PodFacts, target: Revision, ordered: Sequence[Revision], settings: WorkloadSettings
    ) -> str | None:
        """Why the Pod cannot be updated in place; None: it can."""
        found = self.spec_of(pod, target, ordered, settings)
        replaceable = settings.update_policy == UpdatePolicy.IN_PLACE_IF_POSSIBLE
        if not isinstance(found, Blocked) and replaceable:
            found = blocked_on_pod(pod.pod, found) or found  # B-4
        return str(found) if isinstance(found, Blocked) else None

    def spec_between(
        self, at: str, target: Revision, ordered: Sequence[Revision], settings: WorkloadSettings
    ) -> UpdateSpec | Blocked:
        """What an in-place update from the revision of that short hash changes; worked out once per pair."""
        key = (at, target.name)
        found = self.specs.get(key)
        if found is None:
            gates, policy = settings.gates, settings.update_policy
            own = next((revision for revision in ordered if short_hash(revision.name) == at), None)
            options = InPlaceOptions(
                env_from_metadata=gates.env_from_metadata,
                vertical_scaling=gates.vertical_scaling,
                # PM-15: InPlaceOnly does not ask for the claims.
                compare_claim_templates=gates.recreate_on_claim_change
                and policy is not None
                and policy != UpdatePolicy.IN_PLACE_ONLY,
            )
            bears = short_hash(target.name) if gates.update_hash else ""
            found = update_spec(own, target, options, grace_seconds=settings.grace_seconds or 0, revision=bears)
            if own is not None:  # else the cache may be behind: what it lacks now it may have next time
                self.specs[key] = found
        return found


#: Pods that one reconcile creates at most: whoever asks for millions gets no more memory and no more of a worker's time
#: than others, and the next reconcile goes on.
MAX_CREATIONS: Final = 500


@dataclass(frozen=True, slots=True)
class NewPod:
    """A Pod to create. ``body`` makes its JSON form at the moment it is sent; ``claims``: those to create before it;
    ``managed_fields``: whether the API server is to keep account of who writes which field."""

    name: str
    body: Callable[[datetime], Mapping[str, Any]]
    claims: Sequence[Mapping[str, Any]] = ()
    managed_fields: bool = True
