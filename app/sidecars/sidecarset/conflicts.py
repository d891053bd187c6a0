"""What makes a SidecarSet wrong beside others: its former state (SS-28), its base (SS-29), other sets (SS-30). Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from app.api import names
from app.api.sidecarset import SidecarSet
from app.api.sidecarset.types import NOT_UPDATE, OVERWRITE, RETAIN
from app.kube.fielderrors import FieldError, Path, invalid
from app.kube.patches import same
from app.kube.selector_overlap import overlap, scopes_overlap
from app.sidecars.sidecarset.stricter import injected_names
from app.sidecars.sidecarset.validation import SPEC

_BASE_PATH = Path("metadata").child("annotations").key(names.SIDECARSET_BASE)


def update_errors(sidecar_set: SidecarSet, older: SidecarSet) -> list[FieldError]:
    """SS-28: containers may be changed or removed, not added or renamed; the way they are upgraded stays."""
    upgrade_types = {c.name: c.upgrade_strategy.upgrade_type for c in older.spec.containers or ()}
    path = SPEC.child("containers")
    errors: list[FieldError] = []
    for container in sidecar_set.spec.containers or ():
        name = container.name
        if name not in upgrade_types:
            errors.append(invalid(path, name, f"container {name} is not found"))
        elif upgrade_types[name] not in ("", container.upgrade_strategy.upgrade_type):
            at = path.child("upgradeStrategy", "upgradeType")
            errors.append(invalid(at, name, f"container {name} upgradeType is immutable"))
    return errors


def base_of(sidecar_set: SidecarSet) -> str:
    """SS-77: the set this one stands in for as a canary, or "" if it is none."""
    annotations = sidecar_set.metadata.annotations
    return annotations.get(names.SIDECARSET_BASE, "") if annotations.get(names.SIDECARSET_CANARY) == "true" else ""


def canary_errors(
    sidecar_set: SidecarSet, older: SidecarSet | None, find: Callable[[str], SidecarSet | None]
) -> list[FieldError]:
    """SS-29. ``find`` gives a set by name."""
    base = base_of(sidecar_set)
    if not base:
        return []
    errors: list[FieldError] = []
    former = base_of(older) if older is not None else ""
    if former and former != base:
        errors.append(invalid(_BASE_PATH, base, f"field is immutable; the base is {former}"))
    if base == sidecar_set.name:
        errors.append(invalid(_BASE_PATH, base, "a canary cannot be its own base"))
    elif base != former:
        found = find(base)
        if found is None:
            errors.append(invalid(_BASE_PATH, base, f"SidecarSet {base} not found; create the base first"))
        elif base_of(found):
            errors.append(invalid(_BASE_PATH, base, f"SidecarSet {base} is a canary itself; name its base"))
    update_type = sidecar_set.spec.update_strategy.type
    if update_type != NOT_UPDATE:
        detail = f"a canary must use {NOT_UPDATE}: only new Pods get it"
        errors.append(invalid(SPEC.child("updateStrategy", "type"), update_type, detail))
    return errors


def conflict_errors(sidecar_set: SidecarSet, others: Iterable[SidecarSet]) -> list[FieldError]:
    """SS-30: what this set and another one, meant for the same Pods, both bring. By name of the other set."""
    errors: list[FieldError] = []
    for other in sorted(others, key=lambda found: found.name):
        if _may_meet(sidecar_set, other):
            errors += _container_conflicts(sidecar_set, other)
            errors += _volume_conflicts(sidecar_set, other)
            errors += _annotation_conflicts(sidecar_set, other)
    return errors


def _may_meet(one: SidecarSet, other: SidecarSet) -> bool:
    if one.name == other.name or other.deleting:
        return False
    # SS-33: a canary and its base never apply to one Pod together, whichever of them is being written.
    if base_of(one) == other.name or base_of(other) == one.name:
        return False
    if one.spec.selector is None or other.spec.selector is None:
        return False
    return scopes_overlap(one.spec.namespace_selector, other.spec.namespace_selector) and overlap(
        one.spec.selector, other.spec.selector
    )


def _names(sidecar_set: SidecarSet) -> Iterator[tuple[str, str]]:
    """(list, name) of all containers; init containers and containers share one space of names in a Pod (SS-34)."""
    for container in sidecar_set.spec.init_containers or ():
        yield "initContainers", container.name
    for container in sidecar_set.spec.containers or ():
        for name in injected_names(container):
            yield "containers", name


def _container_conflicts(one: SidecarSet, other: SidecarSet) -> Iterator[FieldError]:
    taken = {name for _, name in _names(other)}
    for field, name in _names(one):
        if name in taken:
            yield invalid(SPEC.child(field), name, f"container {name} already exist in {other.name}")


def _volume_conflicts(one: SidecarSet, other: SidecarSet) -> Iterator[FieldError]:
    theirs = _volumes(other)
    for name, volume in _volumes(one).items():
        if name in theirs and not same(volume, theirs[name]):
            yield invalid(SPEC.child("volumes"), name, f"volume {name} is in conflict with sidecarset {other.name}")


def _volumes(sidecar_set: SidecarSet) -> dict[str, Mapping[str, Any]]:
    return {volume.get("name") or "": volume for volume in sidecar_set.spec.volumes or ()}


def _annotation_conflicts(one: SidecarSet, other: SidecarSet) -> Iterator[FieldError]:
    theirs = _patches(other)
    for key, policy in _patches(one).items():
        policies = (policy, theirs.get(key, RETAIN))
        if OVERWRITE in policies and RETAIN not in policies:
            detail = f"annotation {key} is in conflict with sidecarset {other.name}"
            yield invalid(SPEC.child("patchPodMetadata"), key, detail)


def _patches(sidecar_set: SidecarSet) -> dict[str, str]:
    patches = sidecar_set.spec.patch_pod_metadata or ()
    return {key: patch.patch_policy or RETAIN for patch in patches for key in sorted(patch.annotations or {})}
