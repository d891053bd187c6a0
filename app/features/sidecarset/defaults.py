"""Defaults of a SidecarSet, the same in both versions. Pure. [SS-5 … SS-7]"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from app.api.core.defaults import default_container, default_field_ref, default_volume
from app.features.sidecarset.types import (
    AFTER_APP_CONTAINER,
    ALWAYS,
    BEFORE_APP_CONTAINER,
    COLD_UPGRADE,
    MATCH_ALL_NAMES,
    RETAIN,
    ROLLING_UPDATE,
    SHARE_DISABLED,
)
from app.kube.jsonvalues import fill, json_copy, object_at, objects, part

REVISION_HISTORY_LIMIT: Final = 10
MAX_UNAVAILABLE: Final = 1


def with_defaults(obj: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of the SidecarSet (JSON of either version) with all defaults set. Idempotent.

    Values of the wrong type are left alone, for validation to report.
    """
    defaulted: dict[str, Any] = json_copy(dict(obj))
    spec = part(defaulted, "spec")
    if spec is None:
        return defaulted
    for container in objects(spec.get("initContainers")):
        _default_sidecar(container, AFTER_APP_CONTAINER)
    for container in objects(spec.get("containers")):
        _default_sidecar(container, BEFORE_APP_CONTAINER)
    for volume in objects(spec.get("volumes")):
        default_volume(volume)
    _default_strategies(spec)
    return defaulted


def _default_strategies(spec: dict[str, Any]) -> None:
    update = part(spec, "updateStrategy")
    if update is not None:
        _default(update, "type", ROLLING_UPDATE)
        fill(update, {"maxUnavailable": MAX_UNAVAILABLE, "partition": 0})
    revision = object_at(part(spec, "injectionStrategy"), "revision")
    if revision is not None:
        _default(revision, "policy", ALWAYS)
    fill(spec, {"revisionHistoryLimit": REVISION_HISTORY_LIMIT})
    for patch in objects(spec.get("patchPodMetadata")):
        _default(patch, "patchPolicy", RETAIN)


def _default_sidecar(container: dict[str, Any], position: str) -> None:
    part(container, "resources")
    default_container(container)
    _default(container, "podInjectPolicy", position)
    upgrade, sharing = part(container, "upgradeStrategy"), part(container, "shareVolumePolicy")
    if upgrade is not None:
        _default(upgrade, "upgradeType", COLD_UPGRADE)
    if sharing is not None:
        _default(sharing, "type", SHARE_DISABLED)
    policy = object_at(container, "resourcesPolicy")
    if policy is not None:
        # An empty pattern is replaced with the default, too, before the hashes are computed. [SS-23]
        _default(policy, "targetContainersNameRegex", MATCH_ALL_NAMES)
    for transfer in objects(container.get("transferEnv")):
        # Without fieldRef, the entry names no source, so there is nothing to default. [SS-9]
        default_field_ref(object_at(transfer.get("sourceContainerNameFrom"), "fieldRef"))


def _default(target: dict[str, Any], key: str, value: str) -> None:
    if target.get(key) in (None, ""):
        target[key] = value
