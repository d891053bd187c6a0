"""What one DaemonSet and the feature gates ask for, in the plan's words: resolved once per generation. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Self

from app.kube.intorpercent import IntOrPercentError, scaled
from app.kube.selectors import Selector
from app.pods.lifecycle import Lifecycle
from app.workloads.engine.settings import EngineGates, UpdatePolicy, shared_gates

DEFAULT_BURST: Final = 250


@dataclass(frozen=True, slots=True)
class Gates(EngineGates):
    """The feature gates the plan asks."""

    update_hash: bool = True
    lifecycle_states: bool = False
    #: Nodes that should run no Pod take no part in an update (DS-39).
    prune_ineligible: bool = False
    #: Unavailable old Pods use up maxUnavailable (DS-77).
    strict: bool = False
    #: The scheduler binds Pods; else they are created bound (DS-35).
    by_scheduler: bool = True
    #: Images are pulled ahead of an update (DS-62).
    pre_download_images: bool = False

    @classmethod
    def of(cls, enabled: Callable[[str], bool], *, by_scheduler: bool = True) -> Self:
        """The gates by their names."""
        shared = {**shared_gates(enabled), "template_hash": False, "short_hash": True}
        return cls(
            **shared,
            prune_ineligible=enabled("DaemonSetPruneIneligibleNodes"),
            strict=enabled("DaemonSetStrictMaxUnavailable"),
            by_scheduler=by_scheduler,
            pre_download_images=enabled("PreDownloadImageForDaemonSetUpdate") and enabled("KruiseDaemon"),
        )


@dataclass(frozen=True, slots=True)
class Limits:
    """The settings of one DaemonSet as numbers, with so many eligible nodes (DS-38, DS-74)."""

    desired: int
    max_unavailable: int
    max_surge: int
    partition: int
    burst: int


@dataclass(frozen=True, slots=True)
class Settings:
    """One DaemonSet."""

    min_ready_seconds: int = 0
    burst_replicas: int | str | None = None
    history_limit: int = 10
    on_delete: bool = False
    paused: bool = False
    in_place: bool = False
    max_unavailable: int | str | None = None
    max_surge: int | str | None = None
    partition: int | str | None = None
    #: Nodes that may be updated; None: all.
    node_selector: Selector | None = None
    #: The node selector cannot be read: no Pod is updated (DS-84).
    node_selector_unreadable: bool = False
    partitioned_scaling: bool = False
    lifecycle: Lifecycle | None = None
    gates: Gates = field(default_factory=Gates)

    @property
    def update_policy(self) -> UpdatePolicy | None:
        """How Pods get to another revision."""
        return UpdatePolicy.IN_PLACE_IF_POSSIBLE if self.in_place else UpdatePolicy.RECREATE

    @property
    def grace_seconds(self) -> int | None:
        """DS-48: none."""
        return 0

    @property
    def surges(self) -> bool:
        """DS-27: whether a new Pod may come beside an old one."""
        return not self.on_delete and _count(self.max_surge, 1, round_up=True) > 0

    def limits(self, desired: int) -> Limits:
        """DS-38, DS-74: the numbers for that many eligible nodes. Values that admission refuses count as none."""
        unavailable = _count(self.max_unavailable, desired, round_up=True)
        surge = _count(self.max_surge, desired, round_up=True)
        if unavailable == 0 and surge == 0 and desired > 0:
            unavailable = 1
        return Limits(
            desired=desired,
            max_unavailable=unavailable,
            max_surge=surge,
            partition=_count(self.partition, desired, round_up=False),
            burst=self._burst(desired),
        )

    def _burst(self, desired: int) -> int:
        """DS-33, DS-74, DS-84."""
        value = self.burst_replicas
        try:
            burst = DEFAULT_BURST if value is None else scaled(value, desired, round_up=False)
            share = isinstance(value, str) and scaled(value, 100, round_up=False) > 0
        except IntOrPercentError:
            return DEFAULT_BURST
        if burst < 0:
            return DEFAULT_BURST
        return max(1, burst) if share else burst


def _count(value: int | str | None, total: int, *, round_up: bool) -> int:
    try:
        return 0 if value is None else max(0, scaled(value, total, round_up))
    except IntOrPercentError:
        return 0
