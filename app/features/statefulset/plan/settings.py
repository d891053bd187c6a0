"""Settings of a StatefulSet, the feature gates, and its Pods by ordinal. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Final, Self

from app.api import names
from app.api.fields import ON_DELETE, ON_POD_ROLLING_UPDATE, UpdatePriorityStrategy
from app.features.statefulset import types as api
from app.features.statefulset.defaults import MAX_UNAVAILABLE, REPLICAS, REVISION_HISTORY_LIMIT
from app.features.statefulset.kind import STATEFUL_SET
from app.features.statefulset.types import StatefulSet
from app.kube.selectors import compile_selector, selector_text
from app.pods.lifecycle import Lifecycle, LifecycleState
from app.pods.ordinals import Slots, ordinal_of, reserved_intervals
from app.pods.predicates import FINISHED, is_running_and_ready
from app.workloads import settings as engine
from app.workloads.pods import PodFacts
from app.workloads.settings import (
    Content,
    EngineGates,
    ImagePullSettings,
    UpdatePolicy,
    WorkloadKind,
    share,
    shared_gates,
)


@dataclass(frozen=True, slots=True)
class Gates(EngineGates):
    """Feature gates that the plan depends on."""

    template_hash: bool = False
    first_lifecycle_state: bool = False
    normal_needs_node: bool = False
    pod_index_label: bool = True
    start_ordinal: bool = False
    #: Claims are deleted with the set or with their Pods, according to the retention policy.
    auto_delete_claims: bool = True
    auto_resize_claims: bool = False
    preparing_update_as_update: bool = False

    @classmethod
    def of(cls, enabled: Callable[[str], bool]) -> Self:
        return cls(
            **shared_gates(enabled),
            pod_index_label=enabled("PodIndexLabel"),
            start_ordinal=enabled("StatefulSetStartOrdinal"),
            auto_delete_claims=enabled("StatefulSetAutoDeletePVC"),
            auto_resize_claims=enabled("StatefulSetAutoResizePVCGate"),
            preparing_update_as_update=enabled("PreparingUpdateAsUpdate"),
        )


@dataclass(frozen=True, slots=True)
class Retention:
    """Whether claims are deleted together with the set, and whether they are deleted with a surplus Pod."""

    with_set: bool = False
    with_pod: bool = False


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of one StatefulSet. ``ordered``: podManagementPolicy is OrderedReady. ``repairs``: an outdated Pod that
    OrderedReady waits for is updated. [AS-140]"""

    slots: Slots
    ordered: bool = True
    repairs: bool = False
    scale_max_unavailable: int | str | None = None
    on_delete: bool = False
    partition: int = 0
    max_unavailable: int | str = 1
    policy: UpdatePolicy = UpdatePolicy.RECREATE
    paused: bool = False
    unordered: bool = False
    priority: UpdatePriorityStrategy | None = None
    min_ready_seconds: int = 0
    grace_seconds: int | None = 0
    history_limit: int = 10
    lifecycle: Lifecycle | None = None
    retention: Retention = field(default_factory=Retention)
    resize_claims: bool = False
    gates: Gates = field(default_factory=Gates)

    @property
    def replicas(self) -> int:
        return len(self.slots)

    @property
    def update_policy(self) -> UpdatePolicy | None:
        """How Pods are updated; None for OnDelete."""
        return None if self.on_delete else self.policy

    @property
    def update_limit(self) -> int:
        """Maximum number of unavailable Pods during an update. An unparsable value counts as 1. [AS-77]"""
        return max(1, share(self.max_unavailable, self.replicas, round_up=False) or 0)

    @property
    def scale_limit(self) -> int | None:
        """Maximum number of unavailable Pods while scaling out; None for no limit. [AS-54]"""
        if self.scale_max_unavailable is None:
            return None
        return max(1, share(self.scale_max_unavailable, self.replicas, round_up=False) or 0)


KIND: Final = WorkloadKind(STATEFUL_SET.resource())


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedSpec(engine.ResolvedSpec[Settings]):
    """The spec of one StatefulSet at one generation. ``selector_text`` is the selector in string form, for the
    status."""

    selector_text: str
    service_name: str


def resolve_spec(found: StatefulSet, gates: Gates) -> ResolvedSpec:
    """Resolve the spec of a StatefulSet. Raises SelectorError if the selector is invalid."""
    spec, metadata = found.spec.to_dict(), found.metadata
    owner = KIND.owner(metadata)
    return ResolvedSpec(
        settings=settings_of(found.spec, gates, repairs=metadata.annotations.get(names.REPAIR_ORDERED_READY) == "true"),
        selector=compile_selector(spec["selector"]),
        selector_text=selector_text(spec["selector"]),
        service_name=found.spec.service_name,
        owner=owner,
        spec=spec,
        # Revisions do not contain claim templates. [PM-80]
        content=Content.of_template(owner, spec.get("template") or {}, metadata.annotations),
        image_pulls=_image_pulls(found.spec, metadata.annotations),
    )


def settings_of(spec: api.StatefulSetSpec, gates: Gates, *, repairs: bool = False) -> Settings:
    """Return the settings of a StatefulSet. ``repairs`` is set by an annotation. [AS-140]

    Defaults may be missing; values that admission rejects are replaced with the nearest valid ones. [AS-12]
    """
    rolling = spec.update_strategy.rolling_update or api.RollingUpdate()
    lifecycle = spec.lifecycle.to_dict() if spec.lifecycle is not None else None
    start = spec.ordinals.start if gates.start_ordinal and spec.ordinals is not None else 0
    reserved = reserved_intervals(spec.reserve_ordinals or ())
    policy = spec.persistent_volume_claim_retention_policy or api.ClaimRetentionPolicy()
    in_place, unordered, limit = rolling.in_place_update_strategy, rolling.unordered_update, spec.revision_history_limit
    grace = max(0, in_place.grace_period_seconds) if in_place is not None else 0
    return Settings(
        slots=Slots.of(max(0, REPLICAS if spec.replicas is None else spec.replicas), start, reserved),
        ordered=spec.pod_management_policy != api.PARALLEL,
        repairs=repairs,
        scale_max_unavailable=spec.scale_strategy.max_unavailable if spec.scale_strategy is not None else None,
        on_delete=spec.update_strategy.type == ON_DELETE,
        partition=max(0, rolling.partition or 0),
        max_unavailable=MAX_UNAVAILABLE if rolling.max_unavailable is None else rolling.max_unavailable,
        policy=UpdatePolicy.of(rolling.pod_update_policy),
        paused=rolling.paused,
        unordered=unordered is not None,
        priority=unordered.priority_strategy if unordered is not None else None,
        min_ready_seconds=max(0, rolling.min_ready_seconds or 0),
        # With OnDelete, the spec has no grace period, so updates that have begun keep their own.
        grace_seconds=None if spec.update_strategy.rolling_update is None else grace,
        history_limit=REVISION_HISTORY_LIMIT if limit is None else max(0, limit),
        lifecycle=Lifecycle.of(lifecycle),
        # If either value is unknown, claims are always retained. [AS-69]
        retention=Retention(policy.when_deleted == api.DELETE, policy.when_scaled == api.DELETE)
        if gates.auto_delete_claims and {policy.when_deleted, policy.when_scaled} <= {api.RETAIN, api.DELETE, ""}
        else Retention(),
        resize_claims=gates.auto_resize_claims and spec.volume_claim_update_strategy.type == ON_POD_ROLLING_UPDATE,
        gates=gates,
    )


def _image_pulls(spec: api.StatefulSetSpec, annotations: Mapping[str, str]) -> ImagePullSettings:
    """Return the image pre-download settings; annotations override fields. The minimum number of updated, ready Pods
    is read from its annotation later. [AS-145]"""
    rolling = spec.update_strategy.rolling_update
    found = ImagePullSettings.of(rolling.in_place_update_strategy if rolling is not None else None)
    if names.PRE_DOWNLOAD_PARALLELISM in annotations:
        found = replace(found, parallelism=_number(annotations[names.PRE_DOWNLOAD_PARALLELISM]))
    timeout = annotations.get(names.PRE_DOWNLOAD_TIMEOUT_SECONDS, "")
    if timeout.isascii() and timeout.isdigit() and len(timeout) < 10:
        found = replace(found, timeout_seconds=int(timeout))
    if names.PRE_DOWNLOAD_MIN_UPDATED_READY_PODS in annotations:
        found = replace(found, min_updated_ready=None)
    return found


def _number(text: str) -> int | str:
    try:
        return int(text) if len(text) < 10 else text
    except ValueError:
        return text


# Pods of a StatefulSet by ordinal: those in slots and surplus ones [AS-50 … AS-52]. Pure.


@dataclass(frozen=True, slots=True)
class Replica:
    """A Pod and its ordinal. ``claims_ready``: none of its claims waits for an expansion. [AS-78]"""

    ordinal: int
    facts: PodFacts
    claims_ready: bool = True

    @property
    def name(self) -> str:
        return self.facts.name

    @property
    def terminating(self) -> bool:
        return self.facts.pod.metadata.deletion_timestamp is not None

    @property
    def ended(self) -> bool:
        return self.facts.pod.status.phase in FINISHED

    @property
    def running_and_ready(self) -> bool:
        return is_running_and_ready(self.facts.pod)

    @property
    def healthy(self) -> bool:
        """Whether the Pod is running, ready, in service and not terminating. [AS-51]"""
        in_service = self.facts.lifecycle in ("", LifecycleState.NORMAL)
        return self.running_and_ready and not self.terminating and in_service

    def available(self, now: float) -> bool:
        """Return whether the Pod has been ready for minReadySeconds at ``now`` (POSIX seconds). [AS-51, PM-114]"""
        return self.facts.available_after <= now

    def usable(self, now: float) -> bool:
        """Return whether an update may count the Pod as available. [AS-78]"""
        complete = self.facts.update_complete and self.claims_ready
        return self.healthy and complete and self.available(now)

    def is_at(self, revision: str) -> bool:
        return self.facts.revision == revision


@dataclass(frozen=True, slots=True)
class Replicas:
    """All Pods of a StatefulSet. ``wanted`` are those in slots, ascending; ``condemned`` are the surplus ones,
    descending. [AS-60]"""

    settings: Settings
    wanted: Sequence[Replica]
    condemned: Sequence[Replica]

    @classmethod
    def of(cls, settings: Settings, owner: str, pods: Iterable[PodFacts]) -> Replicas:
        """Sort the Pods by ordinal. Pods whose names do not belong to the set are ignored."""
        found = [Replica(ordinal, one) for one in pods if (ordinal := ordinal_of(owner, one.name)) >= 0]
        wanted = [one for one in found if one.ordinal in settings.slots]
        condemned = [one for one in found if one.ordinal not in settings.slots]
        wanted.sort(key=lambda one: one.ordinal)
        condemned.sort(key=lambda one: -one.ordinal)
        return cls(settings, wanted, condemned)

    @property
    def everyone(self) -> Sequence[Replica]:
        return (*self.wanted, *self.condemned)

    @property
    def missing(self) -> int:
        return self.settings.replicas - len(self.wanted)

    def is_updated(self, one: Replica, update: str) -> bool:
        """Return whether the Pod counts as updated. With gate PreparingUpdateAsUpdate, this includes a Pod that waits
        for its update hook. [PM-79]"""
        early = self.settings.gates.preparing_update_as_update
        return one.is_at(update) or (early and one.facts.lifecycle == LifecycleState.PREPARING_UPDATE)

    def next_available(self, now: float) -> float:
        """Return the time (POSIX seconds) at which the next Pod becomes available if nothing else changes; inf if none
        will. [AS-141]"""
        times = (one.facts.available_after for one in self.everyone if not one.terminating)
        return min((time for time in times if now < time < inf), default=inf)
