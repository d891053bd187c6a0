"""Settings of a DaemonSet and its feature gates, as used by the plans. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

from app.api import names
from app.features.daemonset.defaults import BURST_REPLICAS, REVISION_HISTORY_LIMIT
from app.features.daemonset.kind import DAEMON_SET
from app.features.daemonset.plan.new_pods import daemon_tolerations
from app.features.daemonset.types import IN_PLACE_IF_POSSIBLE, ON_DELETE, DaemonSet
from app.kube.quantities import IntOrPercentError, scaled
from app.kube.selector_query import SelectorError
from app.kube.selectors import EVERYTHING, Selector, compile_selector
from app.pods.lifecycle import Hook, Lifecycle
from app.pods.node_fit import Placement, placement_of
from app.pods.revisions import template_hash
from app.workloads import settings as engine
from app.workloads.predownload import TIMEOUT_SECONDS
from app.workloads.settings import Content, EngineGates, ImagePullSettings, UpdatePolicy, WorkloadKind, shared_gates


@dataclass(frozen=True, slots=True)
class Gates(EngineGates):
    """Feature gates that the plans depend on."""

    update_hash: bool = True
    lifecycle_states: bool = False
    #: Exclude nodes that should not run a Pod from updates. [DS-39]
    prune_ineligible: bool = False
    #: Count unavailable old Pods against maxUnavailable. [DS-77]
    strict: bool = False
    #: Let the scheduler bind Pods instead of creating them with a node name. [DS-35]
    by_scheduler: bool = True
    #: Pull images ahead of an update. [DS-62]
    pre_download_images: bool = False

    @classmethod
    def of(cls, enabled: Callable[[str], bool], *, by_scheduler: bool = True) -> Self:
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
    """Limits of one DaemonSet as absolute numbers, for a given number of eligible nodes. [DS-38, DS-74]"""

    desired: int
    max_unavailable: int
    max_surge: int
    partition: int
    burst: int


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of one DaemonSet."""

    min_ready_seconds: int = 0
    burst_replicas: int | str | None = None
    history_limit: int = 10
    on_delete: bool = False
    paused: bool = False
    in_place: bool = False
    max_unavailable: int | str | None = None
    max_surge: int | str | None = None
    partition: int | str | None = None
    #: Selects the nodes that may be updated; None for all.
    node_selector: Selector | None = None
    #: Whether the node selector is invalid, in which case no Pod is updated. [DS-84]
    node_selector_unreadable: bool = False
    partitioned_scaling: bool = False
    lifecycle: Lifecycle | None = None
    gates: Gates = field(default_factory=Gates)

    @property
    def update_policy(self) -> UpdatePolicy | None:
        return UpdatePolicy.IN_PLACE_IF_POSSIBLE if self.in_place else UpdatePolicy.RECREATE

    @property
    def grace_seconds(self) -> int | None:
        """Seconds a Pod stays out of service before its in-place update: always 0. [DS-48]"""
        return 0

    @property
    def surges(self) -> bool:
        """Whether a new Pod may be created while the old one still runs. [DS-27]"""
        return not self.on_delete and _count(self.max_surge, 1, round_up=True) > 0

    def limits(self, desired: int) -> Limits:
        """Return the limits for that number of eligible nodes. Values that admission rejects count as unset. [DS-38,
        DS-74]"""
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
        """Return burstReplicas as a number. [DS-33, DS-74, DS-84]"""
        value = self.burst_replicas
        try:
            burst = BURST_REPLICAS if value is None else scaled(value, desired, round_up=False)
            share = isinstance(value, str) and scaled(value, 100, round_up=False) > 0
        except IntOrPercentError:
            return BURST_REPLICAS
        if burst < 0:
            return BURST_REPLICAS
        return max(1, burst) if share else burst


def _count(value: int | str | None, total: int, *, round_up: bool) -> int:
    try:
        return 0 if value is None else max(0, scaled(value, total, round_up))
    except IntOrPercentError:
        return 0


KIND: Final = WorkloadKind(DAEMON_SET.resource())


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedSpec(engine.ResolvedSpec[Settings]):
    """The spec of one DaemonSet at one generation. ``tolerations`` are those of its Pods; ``placement`` is what the
    Pods require of a node; ``template_generation`` is the DaemonSet annotation that its Pods get as a label, or ''.
    [DS-34]"""

    placement: Placement
    tolerations: list[Any]
    template_generation: str


def resolve_spec(daemonset: DaemonSet, gates: Gates) -> ResolvedSpec:
    """Resolve the spec of a DaemonSet. Raises SelectorError if the selector is invalid."""
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


def settings_of(daemonset: DaemonSet, gates: Gates) -> Settings:
    """Return the settings of a DaemonSet. Values that admission rejects are replaced by the nearest valid ones."""
    spec = daemonset.spec
    strategy = spec.update_strategy
    rolling = strategy.rolling_update  # may be missing [DS-76]
    limit = spec.revision_history_limit
    node_selector, unreadable = _update_selector(rolling.selector if rolling is not None else None)
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
        # Other hooks have no effect on DaemonSet Pods.
        lifecycle=Lifecycle(pre_delete=Hook.of(hook.to_dict())) if hook is not None else None,
        gates=gates,
    )


def _update_selector(selector: dict[str, Any] | None) -> tuple[Selector | None, bool]:
    """Return the selector of the nodes that may be updated (None for all), and whether it is invalid. [DS-84]"""
    if selector is None:
        return None, False
    try:
        compiled = compile_selector(selector)
    except SelectorError:
        return None, True
    return (EVERYTHING if compiled.empty else compiled), False


def _image_pulls(annotations: Mapping[str, str]) -> ImagePullSettings:
    """Read the image pre-download settings from the annotations. [DS-64]"""
    timeout = _integer(annotations.get(names.PRE_DOWNLOAD_TIMEOUT_SECONDS))
    return ImagePullSettings(
        parallelism=annotations.get(names.PRE_DOWNLOAD_PARALLELISM),
        timeout_seconds=int(timeout) if timeout else TIMEOUT_SECONDS,
    )


def _integer(text: str | None) -> str:
    """Return the text in canonical form if it is a 64-bit integer, otherwise ""."""
    if text is None or len(text) > 20 or not text.isascii():
        return ""
    return str(int(text)) if text[text[:1] in ("+", "-") :].isdigit() and -(2**63) <= int(text) < 2**63 else ""
