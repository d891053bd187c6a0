"""A StatefulSet as the plan and the shell need it: worked out once per generation, then only read. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from app.api import names
from app.api.in_place import ON_DELETE
from app.api.statefulset import STATEFUL_SET, StatefulSet
from app.api.statefulset import types as api
from app.kube.selectors import compile_selector, selector_text
from app.pods.lifecycle import Lifecycle
from app.pods.ordinals import Slots, reserved_intervals
from app.workloads.engine import settings as engine
from app.workloads.engine.kind import WorkloadKind
from app.workloads.engine.revisions import Content
from app.workloads.engine.settings import ImagePullSettings, UpdatePolicy
from app.workloads.statefulset.plan.settings import Gates, Retention, Settings

KIND: Final = WorkloadKind(STATEFUL_SET.resource())
DEFAULT_HISTORY_LIMIT: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedSpec(engine.ResolvedSpec[Settings]):
    """One StatefulSet at one generation. ``selector_text``: its selector as the status has it."""

    selector_text: str
    service_name: str


def resolve_spec(found: StatefulSet, gates: Gates) -> ResolvedSpec:
    """The view. Raises SelectorError for a selector that cannot be read."""
    spec, metadata = found.spec.to_dict(), found.metadata
    owner = KIND.owner(metadata)
    return ResolvedSpec(
        settings=settings_of(found.spec, gates, repairs=metadata.annotations.get(names.REPAIR_ORDERED_READY) == "true"),
        selector=compile_selector(spec["selector"]),
        selector_text=selector_text(spec["selector"]),
        service_name=found.spec.service_name,
        owner=owner,
        spec=spec,
        # AS-42: claim templates are in no revision.
        content=Content.of_template(owner, spec.get("template") or {}, metadata.annotations),
        image_pulls=_image_pulls(found.spec, metadata.annotations),
    )


def settings_of(spec: api.StatefulSetSpec, gates: Gates, *, repairs: bool = False) -> Settings:
    """What a StatefulSet asks for. ``repairs``: what its annotation says (AS-140).

    Defaults may be missing; values that admission refuses are taken for what comes nearest (AS-12).
    """
    rolling = spec.update_strategy.rolling_update or api.RollingUpdate()
    lifecycle = spec.lifecycle.to_dict() if spec.lifecycle is not None else None
    start = spec.ordinals.start if gates.start_ordinal and spec.ordinals is not None else 0
    reserved = reserved_intervals(spec.reserve_ordinals or ())
    policy = spec.persistent_volume_claim_retention_policy or api.ClaimRetentionPolicy()
    in_place, unordered, limit = rolling.in_place_update_strategy, rolling.unordered_update, spec.revision_history_limit
    return Settings(
        slots=Slots.of(max(0, 1 if spec.replicas is None else spec.replicas), start, reserved),
        ordered=spec.pod_management_policy != api.PARALLEL,
        repairs=repairs,
        scale_max_unavailable=spec.scale_strategy.max_unavailable if spec.scale_strategy is not None else None,
        on_delete=spec.update_strategy.type == ON_DELETE,
        partition=max(0, rolling.partition or 0),
        max_unavailable=1 if rolling.max_unavailable is None else rolling.max_unavailable,
        policy=UpdatePolicy.of(rolling.pod_update_policy),
        paused=rolling.paused,
        unordered=unordered is not None,
        priority=unordered.priority_strategy if unordered is not None else None,
        min_ready_seconds=max(0, rolling.min_ready_seconds or 0),
        grace_seconds=max(0, in_place.grace_period_seconds) if in_place is not None else 0,
        history_limit=DEFAULT_HISTORY_LIMIT if limit is None else max(0, limit),
        lifecycle=Lifecycle.of(lifecycle),
        # AS-69: a word that means nothing retains both.
        retention=Retention(policy.when_deleted == api.DELETE, policy.when_scaled == api.DELETE)
        if gates.auto_delete_claims and {policy.when_deleted, policy.when_scaled} <= {api.RETAIN, api.DELETE, ""}
        else Retention(),
        resize_claims=gates.auto_resize_claims and spec.volume_claim_update_strategy.type == api.ON_POD_ROLLING_UPDATE,
        gates=gates,
    )


def _image_pulls(spec: api.StatefulSetSpec, annotations: Mapping[str, str]) -> ImagePullSettings:
    """AS-145: the fields; annotations win. How many Pods must be ready before is read from its annotation later."""
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
