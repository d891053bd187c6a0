"""Settings of a CloneSet and the feature gates, in the form that the plan uses. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Self

from app.api.fields import ON_DELETE
from app.features.cloneset import types as api
from app.features.cloneset.defaults import MAX_UNAVAILABLE, REPLICAS, REVISION_HISTORY_LIMIT
from app.features.cloneset.kind import CLONE_SET
from app.features.cloneset.types import CloneSet
from app.kube.selectors import compile_selector, selector_text
from app.pods.claims import claim_templates_hash
from app.pods.lifecycle import Lifecycle
from app.workloads import settings as engine
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
class RollingUpdate:
    """The fields of ``updateStrategy.rollingUpdate``."""

    policy: UpdatePolicy = UpdatePolicy.RECREATE
    partition: int | str | None = None
    max_unavailable: int | str | None = None
    max_surge: int | str | None = None
    paused: bool = False
    grace_seconds: int = 0


@dataclass(frozen=True, slots=True)
class Gates(EngineGates):
    """Feature gates that the plan depends on. [CS-176]"""

    partition_rollback: bool = False
    preparing_update_as_update: bool = False
    #: With maxSurge, update Pods in place and then delete the surge Pods. OpenKruise instead recreates one Pod for each
    #: surge Pod.
    in_place_surge: bool = False

    @classmethod
    def of(cls, enabled: Callable[[str], bool]) -> Self:
        return cls(
            **shared_gates(enabled),
            short_hash=enabled("CloneSetShortHash"),
            partition_rollback=enabled("CloneSetPartitionRollback"),
            preparing_update_as_update=enabled("PreparingUpdateAsUpdate"),
            recreate_on_claim_change=enabled("RecreatePodWhenChangeVCTInCloneSetGate"),
            in_place_surge=enabled("CloneSetInPlaceSurge"),
        )


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of one CloneSet."""

    replicas: int = 1
    min_ready_seconds: int = 0
    progress_deadline: int | None = None
    history_limit: int = 10
    #: None for OnDelete without a rollingUpdate block.
    rolling_update: RollingUpdate | None = field(default_factory=RollingUpdate)
    on_delete: bool = False
    pods_to_delete: frozenset[str] = frozenset()
    scale_max_unavailable: int | str | None = None
    exclude_preparing_delete: bool = False
    reuse_claims: bool = True
    lifecycle: Lifecycle | None = None
    gates: Gates = field(default_factory=Gates)

    @property
    def paused(self) -> bool:
        return self.rolling_update is not None and self.rolling_update.paused

    @property
    def update_policy(self) -> UpdatePolicy | None:
        """How Pods move to another revision; None for OnDelete without a rollingUpdate block."""
        return self.rolling_update.policy if self.rolling_update is not None else None

    @property
    def grace_seconds(self) -> int | None:
        return self.rolling_update.grace_seconds if self.rolling_update is not None else None


KIND: Final = WorkloadKind(CLONE_SET.resource())


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedSpec(engine.ResolvedSpec[Settings]):
    """The spec of one CloneSet at one generation. ``selector_text`` is the selector in string form, for the status."""

    selector_text: str
    strategy: api.RollingUpdate | None


def resolve_spec(cloneset: CloneSet, gates: Gates, *, exclude_preparing_delete: bool = False) -> ResolvedSpec:
    """Resolve the spec of a CloneSet. ``exclude_preparing_delete`` is the flag that applies to all CloneSets. [CS-175]

    Raises SelectorError if the selector is invalid.
    """
    spec = cloneset.spec.to_dict()
    metadata = cloneset.metadata
    owner = KIND.owner(metadata)
    strategy = cloneset.spec.update_strategy.rolling_update
    claims_hash = claim_templates_hash(spec.get("volumeClaimTemplates"))
    content = Content.of_template(owner, spec.get("template") or {}, metadata.annotations, claims_hash=claims_hash)
    return ResolvedSpec(
        settings=settings_of(cloneset, gates, exclude_preparing_delete=exclude_preparing_delete),
        selector=compile_selector(spec["selector"]),
        selector_text=selector_text(spec["selector"]),
        owner=owner,
        spec=spec,
        content=content,
        strategy=strategy,
        image_pulls=ImagePullSettings.of(strategy.in_place_update_strategy if strategy is not None else None),
    )


def settings_of(cloneset: CloneSet, gates: Gates, *, exclude_preparing_delete: bool = False) -> Settings:
    """Return the settings of a CloneSet. Values that admission rejects are replaced with the nearest valid ones."""
    spec = cloneset.spec
    scaling, strategy = spec.scale_strategy, spec.update_strategy
    lifecycle = spec.lifecycle.to_dict() if spec.lifecycle is not None else None
    rolling = None
    on_delete = strategy.type == ON_DELETE
    if strategy.rolling_update is not None:
        block = strategy.rolling_update
        in_place = block.in_place_update_strategy
        rolling = RollingUpdate(
            policy=UpdatePolicy.of(block.pod_update_policy),
            partition=block.partition,
            max_unavailable=block.max_unavailable,
            max_surge=block.max_surge,
            paused=block.paused,
            grace_seconds=max(0, in_place.grace_period_seconds) if in_place is not None else 0,
        )
    elif not on_delete:
        rolling = RollingUpdate()
    limit = spec.revision_history_limit
    return Settings(
        replicas=max(0, REPLICAS if spec.replicas is None else spec.replicas),
        min_ready_seconds=max(0, spec.min_ready_seconds),
        progress_deadline=spec.progress_deadline_seconds,
        history_limit=REVISION_HISTORY_LIMIT if limit is None else max(0, limit),
        rolling_update=rolling,
        on_delete=on_delete,
        pods_to_delete=frozenset(scaling.pods_to_delete or ()),
        scale_max_unavailable=scaling.max_unavailable,
        exclude_preparing_delete=scaling.exclude_preparing_delete or exclude_preparing_delete,
        reuse_claims=scaling.enable_pvc_reuse,
        lifecycle=Lifecycle.of(lifecycle),
        gates=gates,
    )


# Limits of a CloneSet as absolute numbers [CS-84 … CS-86]. Percentages may have decimals and are scaled with exact
# arithmetic.

#: Value of an unset scaleStrategy.maxUnavailable: no limit. [CS-86]
UNLIMITED = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one CloneSet as absolute numbers.

    ``partition`` is the number of Pods that stay at the current revision (P), ``surge`` the number of Pods beyond
    ``replicas`` (S). ``max_unavailable`` (M) limits the unavailable Pods during an update, ``scale_max_unavailable``
    (SM) those during a scale-out.
    """

    replicas: int
    partition: int
    surge: int
    max_unavailable: int
    scale_max_unavailable: int


def partition_count(value: int | str | None, replicas: int) -> int:
    """Return the number of Pods that stay at the current revision. [CS-84]

    If there are several Pods, a percentage below 100% updates at least one of them. If the value cannot be parsed, no
    Pod is updated.
    """
    count = share(0 if value is None else value, replicas, round_up=True)
    if count is None:
        return replicas
    if isinstance(value, str) and count == replicas and replicas > 1 and value != "100%":
        count = replicas - 1
    return max(0, min(count, replicas))


def limits(settings: Settings) -> Limits:
    """Return the limits of one CloneSet. [CS-84 … CS-86]"""
    replicas = settings.replicas
    rolling = settings.rolling_update
    if rolling is None:
        # Even without a rollingUpdate block, some Pods may be unavailable; otherwise marked Pods would never be
        # deleted. [CS-85]
        partition, surge = 0, 0
        unavailable = max(1, _count(MAX_UNAVAILABLE, replicas, round_up=False)) if replicas else 0
    else:
        partition = partition_count(rolling.partition, replicas)
        surge = 0 if rolling.paused else _count(rolling.max_surge, replicas, round_up=True)
        wanted = MAX_UNAVAILABLE if rolling.max_unavailable is None else rolling.max_unavailable
        unavailable = _count(wanted, replicas, round_up=surge == 0)
    scaling = settings.scale_max_unavailable
    return Limits(
        replicas=replicas,
        partition=partition,
        surge=max(0, surge),
        max_unavailable=max(0, unavailable),
        scale_max_unavailable=UNLIMITED if scaling is None else max(0, _count(scaling, replicas, round_up=True)),
    )


def _count(value: int | str | None, total: int, *, round_up: bool) -> int:
    return share(0 if value is None else value, total, round_up=round_up) or 0
