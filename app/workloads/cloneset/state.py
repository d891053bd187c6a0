"""What the controller remembers of each CloneSet between passes; all of it can be worked out anew."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from app.api.cloneset import CLONE_SET, CloneSet
from app.kube.expectations import is_at_least
from app.kube.objects import ControllerRevision, ObjectMeta, OwnerReference, PersistentVolumeClaim, Pod
from app.kube.resources import ObjectKey
from app.kube.statuses import KnownStatus
from app.kube.store import Store
from app.pods.inplace import Blocked, InPlaceOptions, UpdateSpec, blocked_on_pod, update_spec
from app.pods.predicates import is_active
from app.pods.revisions import Revision, revision_name, short_hash
from app.workloads.cloneset.creation import pod_name
from app.workloads.cloneset.history import OWNER
from app.workloads.cloneset.pods import PodFacts, pod_facts
from app.workloads.cloneset.resolved import ResolvedSpec
from app.workloads.cloneset.settings import UpdatePolicy


@dataclass(frozen=True, slots=True)
class Caches:
    """What the controller reads. All but the sets have index OWNER."""

    sets: Store[CloneSet]
    pods: Store[Pod]
    claims: Store[PersistentVolumeClaim]
    revisions: Store[ControllerRevision]

    def name_taken(self, owner: CloneSet) -> Callable[[str], bool]:
        """Of an instance id: whether a Pod, whoever's it is, has the name that belongs to it."""
        name, namespace = owner.name, owner.metadata.namespace
        return lambda instance: self.pods.get(pod_name(name, instance), namespace) is not None


class Metrics(Protocol):
    """Hooks for counting."""

    def expectation_leaked(self, namespace: str, name: str) -> None: ...
    def in_place_started(self, namespace: str) -> None: ...
    def in_place_failed(self, namespace: str) -> None: ...
    def in_place_finished(self, namespace: str, seconds: float) -> None: ...


class NoMetrics:
    """Counts nothing."""

    def expectation_leaked(self, namespace: str, name: str) -> None: ...
    def in_place_started(self, namespace: str) -> None: ...
    def in_place_failed(self, namespace: str) -> None: ...
    def in_place_finished(self, namespace: str, seconds: float) -> None: ...


def managing_reference(metadata: ObjectMeta) -> OwnerReference | None:
    """The CloneSet that manages an object, by group and kind in whatever version (D-2)."""
    reference = metadata.controller
    if reference is not None and reference.kind == CLONE_SET.kind and reference.group == CLONE_SET.group:
        return reference
    return None


def owned(obj: Pod | PersistentVolumeClaim) -> Iterable[str]:
    """The index function of OWNER for Pods and claims."""
    reference = managing_reference(obj.metadata)
    return (reference.uid,) if reference is not None else ()


@dataclass(slots=True)
class CloneSetState:
    """One CloneSet."""

    uid: str
    key: ObjectKey
    resolved: ResolvedSpec | None = None
    resolved_key: object = None
    facts: dict[str, PodFacts] = field(default_factory=dict)
    specs: dict[tuple[str, str], UpdateSpec | Blocked] = field(default_factory=dict)
    last_reconcile: float = 0.0
    #: The time that passes asked for by Pods are put off to, until a pass begins at or after it.
    next_reconcile: float | None = None
    #: Whether somebody else took Pods since a pass: the CloneSet may be gone (see the reconciler).
    pods_deleted_by_others: bool = False
    #: Instance ids of Pods whose creation failed, to be used first: a request whose answer was lost cannot make two.
    failed_ids: set[str] = field(default_factory=set)
    #: Instance ids of Pods we deleted, as long as claims of theirs are there.
    deleted_ids: set[str] = field(default_factory=set)
    #: Refused creations in a row, and before when none is tried again (on the monotonic scale).
    refused_creations: int = 0
    create_after: float = 0.0
    #: The limit that was told last, and when (B-14).
    limited_to: int | None = None
    limited_at: float = 0.0
    #: Why Pods were not updated in place though they should be, as it was told last (B-22).
    not_in_place_for: str = ""
    #: Names of revisions that Pods or the status speak of, and that are recorded nowhere.
    unrecorded: set[str] = field(default_factory=set)
    #: The update revision, and what was done for it about images to be pulled ahead (CS-140).
    pulls: tuple[str, str] = ("", "")
    #: The status as we wrote it last, which the cache may not show yet.
    written: KnownStatus | None = None

    def present_status(self, owner: CloneSet) -> KnownStatus:
        """The newest status known: that of the cache, or what we wrote if the cache is not there yet."""
        version, written = owner.metadata.resource_version, self.written
        if written is not None and not is_at_least(version, written.version):
            return written
        return KnownStatus(owner.status.to_dict() if owner.status is not None else {}, version)

    def pods(self, caches: Caches, resolved: ResolvedSpec) -> tuple[list[PodFacts], list[Pod], list[Pod]]:
        """CS-53, CS-55: the active Pods that match, the active ones that no longer do, and the inactive ones."""
        known, facts = self.facts, {}
        active: list[PodFacts] = []
        foreign: list[Pod] = []
        inactive: list[Pod] = []
        settings, selector = resolved.settings, resolved.selector
        for pod in caches.pods.by_index(OWNER, self.uid):
            uid = pod.metadata.uid
            found = known.get(uid)
            if found is None or found.pod is not pod:
                if not is_active(pod):
                    inactive.append(pod)
                    continue
                if not selector.matches(pod.metadata.labels):
                    foreign.append(pod)
                    continue
                found = pod_facts(pod, settings)
            facts[uid] = found
            active.append(found)
        self.facts = facts
        return active, foreign, inactive

    def missing_revisions(self, pods: Iterable[PodFacts], current: str, ordered: Iterable[Revision]) -> list[str]:
        """Revisions that the Pods are at, or the status names, and ``ordered`` lacks; none that is recorded nowhere."""
        known = {short_hash(revision.name) for revision in ordered}
        hashes = {pod.revision for pod in pods}
        if current:
            hashes.add(short_hash(current))
        wanted = (revision_name(self.key.name, one) for one in hashes.difference(known) if one)
        return sorted(set(wanted).difference(self.unrecorded))

    def in_place_surge(
        self, current: Revision, update: Revision, ordered: Sequence[Revision], resolved: ResolvedSpec
    ) -> bool:
        """Whether gate CloneSetInPlaceSurge is on and the roll-out can be gone in place."""
        rolling = resolved.settings.rolling_update
        if not resolved.settings.gates.in_place_surge or rolling is None or rolling.policy != "InPlaceIfPossible":
            return False
        return not isinstance(self.spec_between(short_hash(current.name), update, ordered, resolved), Blocked)

    def spec_of(
        self, pod: PodFacts, target: Revision, ordered: Sequence[Revision], resolved: ResolvedSpec
    ) -> UpdateSpec | Blocked:
        """What an in-place update of the Pod changes."""
        return self.spec_between(pod.revision, target, ordered, resolved)

    def obstacle(
        self, pod: PodFacts, target: Revision, ordered: Sequence[Revision], resolved: ResolvedSpec
    ) -> str | None:
        """Why the Pod cannot be updated in place; None: it can."""
        found = self.spec_of(pod, target, ordered, resolved)
        rolling = resolved.settings.rolling_update
        replaceable = rolling is not None and rolling.policy is UpdatePolicy.IN_PLACE_IF_POSSIBLE
        if not isinstance(found, Blocked) and replaceable:
            found = blocked_on_pod(pod.pod, found) or found  # B-4
        return str(found) if isinstance(found, Blocked) else None

    def spec_between(
        self, at: str, target: Revision, ordered: Sequence[Revision], resolved: ResolvedSpec
    ) -> UpdateSpec | Blocked:
        """What an in-place update from the revision of that short hash changes; worked out once per pair."""
        key = (at, target.name)
        found = self.specs.get(key)
        if found is None:
            gates, rolling = resolved.settings.gates, resolved.settings.rolling_update
            own = next((revision for revision in ordered if short_hash(revision.name) == at), None)
            options = InPlaceOptions(
                env_from_metadata=gates.env_from_metadata,
                vertical_scaling=gates.vertical_scaling,
                # PM-15: InPlaceOnly does not ask for the claims.
                compare_claim_templates=gates.recreate_on_claim_change
                and rolling is not None
                and rolling.policy != "InPlaceOnly",
            )
            grace = rolling.grace_seconds if rolling is not None else 0
            found = update_spec(own, target, options, grace_seconds=grace)
            if own is not None:  # else the cache may be behind: what it lacks now it may have at the next pass
                self.specs[key] = found
        return found
