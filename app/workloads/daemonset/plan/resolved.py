"""A DaemonSet as the plan and the shell need it: worked out once per generation, then only read. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from app.api import names
from app.api.daemonset import DAEMON_SET, DaemonSet
from app.api.daemonset.defaults import REVISION_HISTORY_LIMIT
from app.api.daemonset.types import IN_PLACE_IF_POSSIBLE, ON_DELETE
from app.kube.selectors import EVERYTHING, Selector, SelectorError, compile_selector
from app.pods.eligibility import NO_EXECUTE, NO_SCHEDULE, Placement, placement_of, with_tolerations
from app.pods.lifecycle import Hook, Lifecycle
from app.pods.predownload import TIMEOUT_SECONDS
from app.pods.revisions import template_hash
from app.workloads.daemonset.plan.settings import Gates, Settings
from app.workloads.engine import settings as engine
from app.workloads.engine.kind import WorkloadKind
from app.workloads.engine.revisions import Content
from app.workloads.engine.settings import ImagePullSettings

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
