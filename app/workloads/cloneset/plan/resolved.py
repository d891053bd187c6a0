"""A CloneSet as the plan and the shell need it: worked out once per generation, then only read. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from app.api import cloneset as api
from app.api.cloneset import CLONE_SET, CloneSet
from app.api.cloneset.types import ON_DELETE
from app.kube.selectors import compile_selector, selector_text
from app.pods.claims import claim_templates_hash
from app.pods.lifecycle import Lifecycle
from app.workloads.cloneset.plan.settings import Gates, RollingUpdate, Settings
from app.workloads.engine import settings as engine
from app.workloads.engine.kind import WorkloadKind
from app.workloads.engine.revisions import Content
from app.workloads.engine.settings import ImagePullSettings, UpdatePolicy

KIND: Final = WorkloadKind(CLONE_SET.resource())
DEFAULT_HISTORY_LIMIT: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedSpec(engine.ResolvedSpec[Settings]):
    """One CloneSet at one generation. ``selector_text``: its selector as the status has it."""

    selector_text: str
    strategy: api.RollingUpdate | None


def resolve_spec(cloneset: CloneSet, gates: Gates, *, exclude_preparing_delete: bool = False) -> ResolvedSpec:
    """The view; ``exclude_preparing_delete`` is the flag that sets it for all CloneSets (CS-175).

    Raises SelectorError for a selector that cannot be read.
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
    """What a CloneSet asks for. Values that admission refuses are taken for what comes nearest."""
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
        replicas=max(0, 1 if spec.replicas is None else spec.replicas),
        min_ready_seconds=max(0, spec.min_ready_seconds),
        progress_deadline=spec.progress_deadline_seconds,
        history_limit=DEFAULT_HISTORY_LIMIT if limit is None else max(0, limit),
        rolling_update=rolling,
        on_delete=on_delete,
        pods_to_delete=frozenset(scaling.pods_to_delete or ()),
        scale_max_unavailable=scaling.max_unavailable,
        exclude_preparing_delete=scaling.exclude_preparing_delete or exclude_preparing_delete,
        reuse_claims=scaling.enable_pvc_reuse,
        lifecycle=Lifecycle.of(lifecycle),
        gates=gates,
    )
