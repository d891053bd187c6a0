"""What one CloneSet and the feature gates ask for, in the plan's words: resolved once per generation. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self

from app.pods.lifecycle import Lifecycle
from app.workloads.engine.settings import EngineGates, UpdatePolicy, shared_gates


@dataclass(frozen=True, slots=True)
class RollingUpdate:
    """``updateStrategy.rollingUpdate`` as it stands."""

    policy: UpdatePolicy = UpdatePolicy.RECREATE
    partition: int | str | None = None
    max_unavailable: int | str | None = None
    max_surge: int | str | None = None
    paused: bool = False
    grace_seconds: int = 0


@dataclass(frozen=True, slots=True)
class Gates(EngineGates):
    """The feature gates the plan asks (CS-176)."""

    partition_rollback: bool = False
    preparing_update_as_update: bool = False
    #: With maxSurge, update in place and give the surge back, where OpenKruise replaces as many Pods.
    in_place_surge: bool = False

    @classmethod
    def of(cls, enabled: Callable[[str], bool]) -> Self:
        """The gates by their names."""
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
    """One CloneSet."""

    replicas: int = 1
    min_ready_seconds: int = 0
    progress_deadline: int | None = None
    history_limit: int = 10
    #: None: no such block, which only OnDelete allows.
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
        """Whether no Pod is to be updated for now."""
        return self.rolling_update is not None and self.rolling_update.paused

    @property
    def update_policy(self) -> UpdatePolicy | None:
        """How Pods get to another revision; None: OnDelete says nothing of it."""
        return self.rolling_update.policy if self.rolling_update is not None else None

    @property
    def grace_seconds(self) -> int | None:
        """How long a Pod stays out of service before it is changed in place."""
        return self.rolling_update.grace_seconds if self.rolling_update is not None else None
