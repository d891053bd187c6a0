"""What a DaemonSet and the feature gates ask for, in the terms of the plan. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

from app.api import names
from app.features.daemonset.kind import DAEMON_SET, REVISION_HISTORY_LIMIT
from app.features.daemonset.types import IN_PLACE_IF_POSSIBLE, ON_DELETE, DaemonSet
from app.kube.quantities import IntOrPercentError, scaled
from app.kube.selector_query import SelectorError
from app.kube.selectors import EVERYTHING, Selector, compile_selector
from app.pods.lifecycle import Hook, Lifecycle
from app.pods.node_fit import NO_EXECUTE, NO_SCHEDULE, Placement, placement_of, with_tolerations
from app.pods.revisions import template_hash
from app.workloads import settings as engine
from app.workloads.predownload import TIMEOUT_SECONDS
from app.workloads.settings import Content, EngineGates, ImagePullSettings, UpdatePolicy, WorkloadKind, shared_gates

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


KIND: Final = WorkloadKind(DAEMON_SET.resource())
#: DS-17: what every Pod of a DaemonSet tolerates.
_TOLERATED: Final = (
    ("node.kubernetes.io/not-ready", NO_EXECUTE),
    ("node.kubernetes.io/unreachable", NO_EXECUTE),
    ("node.kubernetes.io/disk-pressure", NO_SCHEDULE),
    ("node.kubernetes.io/memory-pressure", NO_SCHEDULE),
    ("node.kubernetes.io/pid-pressure", NO_SCHEDULE),
    ("node.kubernetes.io/unschedulable", NO_SCHEDULE),
)
_NETWORK: Final = ("node.kubernetes.io/network-unavailable", NO_SCHEDULE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedSpec(engine.ResolvedSpec[Settings]):
    """One DaemonSet at one generation. ``tolerations``: those of its Pods; ``placement``: what those ask of a node;
    ``template_generation``: the label of its Pods, if its annotation says one (DS-34)."""

    placement: Placement
    tolerations: list[Any]
    template_generation: str


def resolve_spec(daemonset: DaemonSet, gates: Gates) -> ResolvedSpec:
    """The view. Raises SelectorError for a selector that cannot be read."""
    spec = daemonset.spec.to_dict()
    metadata = daemonset.metadata
    owner = KIND.owner(metadata)
    template = spec.get("template") or {}
    given = template.get("spec")
    pod: Mapping[str, Any] = given if isinstance(given, Mapping) else {}
    tolerations = daemon_tolerations(pod)
    content = Content.of_template(
        owner, template, metadata.annotations, hash_label=names.CONTROLLER_REVISION_HASH, digest=template_hash
    )
    return ResolvedSpec(
        settings=settings_of(daemonset, gates),
        selector=compile_selector(spec["selector"]),
        owner=owner,
        spec=spec,
        content=content,
        image_pulls=_image_pulls(metadata.annotations),
        placement=placement_of({**pod, "tolerations": tolerations}),
        tolerations=tolerations,
        template_generation=_integer(metadata.annotations.get(names.TEMPLATE_GENERATION)),
    )


def daemon_tolerations(pod: Mapping[str, Any]) -> list[Any]:
    """DS-17: those of the template's spec and those all daemons have."""
    added = (*_TOLERATED, *((_NETWORK,) if pod.get("hostNetwork") is True else ()))
    return with_tolerations(pod, [{"key": key, "operator": "Exists", "effect": effect} for key, effect in added])


def settings_of(daemonset: DaemonSet, gates: Gates) -> Settings:
    """What a DaemonSet asks for. Values that admission refuses are taken for what comes nearest."""
    spec = daemonset.spec
    strategy = spec.update_strategy
    rolling = strategy.rolling_update  # DS-76: it may be missing
    limit = spec.revision_history_limit
    node_selector, unreadable = _node_selector(rolling.selector if rolling is not None else None)
    hook = spec.lifecycle.pre_delete if spec.lifecycle is not None else None
    return Settings(
        min_ready_seconds=max(0, spec.min_ready_seconds),
        burst_replicas=spec.burst_replicas,
        history_limit=REVISION_HISTORY_LIMIT if limit is None else max(0, limit),
        on_delete=strategy.type == ON_DELETE,
        paused=rolling is not None and rolling.paused,
        in_place=rolling is not None and rolling.rolling_update_type == IN_PLACE_IF_POSSIBLE,
        max_unavailable=rolling.max_unavailable if rolling is not None else None,
        max_surge=rolling.max_surge if rolling is not None else None,
        partition=rolling.partition if rolling is not None else None,
        node_selector=node_selector,
        node_selector_unreadable=unreadable,
        partitioned_scaling=spec.scale_strategy is not None and spec.scale_strategy.partitioned_scaling,
        # The other hooks have no effect on Pods of a DaemonSet.
        lifecycle=Lifecycle(pre_delete=Hook.of(hook.to_dict())) if hook is not None else None,
        gates=gates,
    )


def _node_selector(selector: dict[str, Any] | None) -> tuple[Selector | None, bool]:
    if selector is None:
        return None, False
    try:
        compiled = compile_selector(selector)
    except SelectorError:
        return None, True
    return (EVERYTHING if compiled.empty else compiled), False


def _image_pulls(annotations: Mapping[str, str]) -> ImagePullSettings:
    """DS-64."""
    timeout = _integer(annotations.get(names.PRE_DOWNLOAD_TIMEOUT_SECONDS))
    return ImagePullSettings(
        parallelism=annotations.get(names.PRE_DOWNLOAD_PARALLELISM),
        timeout_seconds=int(timeout) if timeout else TIMEOUT_SECONDS,
    )


def _integer(text: str | None) -> str:
    """The text if it is an integer that fits into 64 bits; else ''."""
    if text is None or len(text) > 20 or not text.isascii():
        return ""
    return text if text[text[:1] in ("+", "-") :].isdigit() and -(2**63) <= int(text) < 2**63 else ""
