"""What one StatefulSet and the feature gates ask for, in the plan's words: resolved once per generation. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self

from app.api.update_order import UpdatePriorityStrategy
from app.pods.lifecycle import Lifecycle
from app.pods.ordinals import Slots
from app.workloads.engine.settings import EngineGates, UpdatePolicy, shared_gates
from app.workloads.engine.shares import share


@dataclass(frozen=True, slots=True)
class Gates(EngineGates):
    """The feature gates the plan asks."""

    template_hash: bool = False
    pod_index_label: bool = True
    start_ordinal: bool = False
    #: Claims go with the set or with their Pods, as its policy says.
    auto_delete_claims: bool = True
    auto_resize_claims: bool = False
    preparing_update_as_update: bool = False

    @classmethod
    def of(cls, enabled: Callable[[str], bool]) -> Self:
        """The gates by their names."""
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
    """Whether claims go: with the set, and with a Pod that is no longer wanted."""

    with_set: bool = False
    with_pod: bool = False


@dataclass(frozen=True, slots=True)
class Settings:
    """One StatefulSet. ``ordered``: OrderedReady; ``repairs``: an outdated Pod it waits for is updated (AS-140)."""

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
        """How many slots there are."""
        return len(self.slots)

    @property
    def update_policy(self) -> UpdatePolicy | None:
        """How Pods get to another revision; None: OnDelete says nothing of it."""
        return None if self.on_delete else self.policy

    @property
    def update_limit(self) -> int:
        """AS-77: how many Pods may be unavailable in an update; what cannot be read counts as 1."""
        return max(1, share(self.max_unavailable, self.replicas, round_up=False) or 0)

    @property
    def scale_limit(self) -> int | None:
        """AS-54: how many Pods may be unavailable while Pods are created; None: any number."""
        if self.scale_max_unavailable is None:
            return None
        return max(1, share(self.scale_max_unavailable, self.replicas, round_up=False) or 0)
