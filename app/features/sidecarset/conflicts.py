"""Conflicts of a SidecarSet with its former state and other sets, and warnings about fields without effect. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from app.api import names
from app.features.sidecarset.kind import canary_base
from app.features.sidecarset.plan.preview import obstacle
from app.features.sidecarset.types import (
    HOT_UPGRADE,
    NOT_UPDATE,
    OVERWRITE,
    PATCH_POLICIES,
    POD_INJECT_POLICIES,
    RETAIN,
    SHARE_TYPES,
    UPDATE_TYPES,
    UPGRADE_TYPES,
    SidecarContainer,
    SidecarSet,
)
from app.features.sidecarset.validation import SPEC, transfer_errors
from app.kube.fielderrors import FieldError, Path, forbidden, invalid, new_errors, not_supported, quote, required
from app.kube.patches import same
from app.kube.quantities import is_more_than_all
from app.kube.validation import is_label_value

# Checks that OpenKruise lacks, for sets that would fail after admission. A set admitted earlier, perhaps by OpenKruise,
# must stay editable: on update, only errors that the former object did not have are reported. [SS-34, SS-20, SS-22,
# SS-A]

HOT_NAME_LIMIT: Final = 61
"""Maximum length of a container name, minus the two characters of the twin suffix."""
_NOTHING: Final = (0, "0%")


def warnings(sidecar_set: SidecarSet) -> tuple[str, ...]:
    """Return warnings about settings that are admitted, as in OpenKruise, but may be unintended."""
    strategy = sidecar_set.spec.update_strategy
    held = strategy.type == UPDATE_TYPES[0] and strategy.max_unavailable in _NOTHING
    if not held or strategy.partition not in _NOTHING:
        return ()
    # This is only a warning, because users may do it on purpose to pause an update. [SS-24]
    return (
        f"spec.updateStrategy.maxUnavailable: {strategy.max_unavailable} with partition 0: no ready Pod is "
        "updated until maxUnavailable is raised",
    )


def stricter_errors(sidecar_set: SidecarSet, older: SidecarSet | None) -> list[FieldError]:
    """Validate a defaulted set more strictly than OpenKruise. Return only the errors that ``older`` did not have."""
    return new_errors(_all(sidecar_set), _all(older) if older is not None else ())


def _all(sidecar_set: SidecarSet) -> Iterator[FieldError]:
    spec = sidecar_set.spec
    if spec.update_strategy.type not in UPDATE_TYPES:
        yield not_supported(SPEC.child("updateStrategy", "type"), spec.update_strategy.type, UPDATE_TYPES)
    for message in is_label_value(spec.custom_version):
        # The version becomes a label of the revision, and of the set in v1alpha1. [SS-A]
        yield invalid(SPEC.child("customVersion"), spec.custom_version, message)
    for index, container in enumerate(spec.init_containers or ()):
        at = SPEC.child("initContainers").index(index)
        yield from _init_container(container, at)
        yield from _container(container, at)
    for index, container in enumerate(spec.containers or ()):
        at = SPEC.child("containers").index(index)
        yield from _container(container, at)
        if container.hot:
            yield from _hot_upgrade(container, at)
    yield from _twin_names(sidecar_set)
    for index, patch in enumerate(spec.patch_pod_metadata or ()):
        if patch.patch_policy not in PATCH_POLICIES:
            at = SPEC.child("patchPodMetadata").index(index).child("patchPolicy")
            yield not_supported(at, patch.patch_policy, PATCH_POLICIES)


def _container(container: SidecarContainer, path: Path) -> Iterator[FieldError]:
    upgrade, devices = container.upgrade_strategy.upgrade_type, container.share_volume_device_policy
    if upgrade not in UPGRADE_TYPES:
        yield not_supported(path.child("upgradeStrategy", "upgradeType"), upgrade, UPGRADE_TYPES)
    if devices is not None and devices.type not in SHARE_TYPES:
        yield not_supported(path.child("shareVolumeDevicePolicy", "type"), devices.type, SHARE_TYPES)


def _init_container(container: SidecarContainer, path: Path) -> Iterator[FieldError]:
    """Apply to init containers the checks that OpenKruise applies only to ``containers``. Reject HotUpgrade,
    because a hot upgrade never updates init containers."""
    if container.pod_inject_policy not in POD_INJECT_POLICIES:
        yield not_supported(path.child("podInjectPolicy"), container.pod_inject_policy, POD_INJECT_POLICIES)
    if container.share_volume_policy.type not in SHARE_TYPES:
        yield not_supported(path.child("shareVolumePolicy", "type"), container.share_volume_policy.type, SHARE_TYPES)
    yield from transfer_errors(container.transfer_env or (), path)
    if container.hot:
        detail = f"{HOT_UPGRADE} is for containers only; leave it out"
        yield forbidden(path.child("upgradeStrategy", "upgradeType"), detail)


def _hot_upgrade(container: SidecarContainer, path: Path) -> Iterator[FieldError]:
    if not container.upgrade_strategy.hot_upgrade_empty_image:
        at = path.child("upgradeStrategy", "hotUpgradeEmptyImage")
        yield required(at, f"the idle twin of {container.name} needs an image")
    if len(container.name) > HOT_NAME_LIMIT:
        detail = f"must be no more than {HOT_NAME_LIMIT} characters with {HOT_UPGRADE}, which appends -1 and -2"
        yield invalid(path.child("name"), container.name, detail)


def injected_names(container: SidecarContainer) -> tuple[str, ...]:
    """Return the names that an entry of ``containers`` takes in a Pod: its own and, if hot-upgradable, those of its
    twins. [SS-45]"""
    return (container.name, f"{container.name}-1", f"{container.name}-2") if container.hot else (container.name,)


def _twin_names(sidecar_set: SidecarSet) -> Iterator[FieldError]:
    spec = sidecar_set.spec
    twins = {
        name: container.name for container in spec.containers or () for name in injected_names(container)[1:] if name
    }
    for field, containers in (("initContainers", spec.init_containers), ("containers", spec.containers)):
        for index, container in enumerate(containers or ()):
            # A name that is not a string is reported by the type check.
            if isinstance(container.name, str) and container.name in twins:
                at = SPEC.child(field).index(index).child("name")
                yield invalid(at, container.name, f"is the name of a twin of {twins[container.name]}")


# Like OpenKruise, find conflicting SidecarSets by testing whether two label selectors could select the same object.
# Two selectors are disjoint if their requirements on the same key contradict each other or, as a quirk of OpenKruise,
# if one requires a key to exist and the other does not mention it. All others overlap. [SS-32]

#: Maps each key to the values that a selector allows; None means any value.
_Allowed = dict[str, set[str] | None]


def overlap(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """Return whether the selectors overlap. Both must be valid LabelSelectors in JSON form. [SS-32]"""
    return not (_disjoint(first, second) or _disjoint(second, first))


def scopes_overlap(first: Mapping[str, Any] | None, second: Mapping[str, Any] | None) -> bool:
    """Like :func:`overlap`, but for namespace selectors: a missing one selects every namespace."""
    return first is None or second is None or overlap(first, second)


def _allowed(selector: Mapping[str, Any]) -> _Allowed:
    allowed: _Allowed = {key: {value} for key, value in (selector.get("matchLabels") or {}).items()}
    for expression in selector.get("matchExpressions") or ():
        key = expression.get("key") or ""
        if expression.get("operator") == "In":
            allowed[key] = (allowed.get(key) or set()) | set(expression.get("values") or ())
        elif expression.get("operator") == "Exists":
            allowed[key] = None
    return allowed


def _disjoint(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    allowed = _allowed(first)
    for key, value in (second.get("matchLabels") or {}).items():
        possible = allowed.get(key)
        if possible is not None and value not in possible:
            return True
    return any(_excludes(expression, allowed) for expression in second.get("matchExpressions") or ())


def _excludes(expression: Mapping[str, Any], allowed: _Allowed) -> bool:
    key = expression.get("key") or ""
    mentioned, possible = key in allowed, allowed.get(key)
    values = set(expression.get("values") or ())
    match expression.get("operator"):
        case "In":
            return possible is not None and possible.isdisjoint(values)
        case "NotIn":
            return possible is not None and possible <= values
        case "Exists":
            return not mentioned
        case "DoesNotExist":
            return mentioned
        case _:
            return False


# Conflicts of a SidecarSet with its former state [SS-28], its base [SS-29] and other sets [SS-30].

_BASE_PATH = Path("metadata").child("annotations").key(names.SIDECARSET_BASE)


def update_errors(sidecar_set: SidecarSet, older: SidecarSet) -> Iterator[FieldError]:
    """Reject containers that were added or renamed, or whose upgradeType changed. [SS-28]"""
    upgrade_types = {c.name: c.upgrade_strategy.upgrade_type for c in older.spec.containers or ()}
    path = SPEC.child("containers")
    for container in sidecar_set.spec.containers or ():
        name = container.name
        if name not in upgrade_types:
            yield invalid(path, name, f"container {name} is not found")
        elif upgrade_types[name] not in ("", container.upgrade_strategy.upgrade_type):
            at = path.child("upgradeStrategy", "upgradeType")
            yield invalid(at, name, f"container {name} upgradeType is immutable")


def base_of(sidecar_set: SidecarSet) -> str:
    """Return the name of the set for which this one is a canary, or "". [SS-77]"""
    return canary_base(sidecar_set.metadata.annotations)


def canary_errors(
    sidecar_set: SidecarSet, older: SidecarSet | None, find: Callable[[str], SidecarSet | None]
) -> Iterator[FieldError]:
    """Validate a canary. ``find`` returns a set by name. [SS-29]"""
    base = base_of(sidecar_set)
    if not base:
        return
    former = base_of(older) if older is not None else ""
    if former and former != base:
        yield invalid(_BASE_PATH, base, f"field is immutable; the base is {former}")
    if base == sidecar_set.name:
        yield invalid(_BASE_PATH, base, "a canary cannot be its own base")
    elif base != former:
        found = find(base)
        if found is None:
            yield invalid(_BASE_PATH, base, f"SidecarSet {base} not found; create the base first")
        elif base_of(found):
            yield invalid(_BASE_PATH, base, f"SidecarSet {base} is itself a canary; use its base")
    update_type = sidecar_set.spec.update_strategy.type
    if update_type != NOT_UPDATE:
        detail = f"a canary must use {NOT_UPDATE}: only new Pods get it"
        yield invalid(SPEC.child("updateStrategy", "type"), update_type, detail)


def conflict_errors(sidecar_set: SidecarSet, others: Iterable[SidecarSet]) -> Iterator[FieldError]:
    """Return the conflicts with other sets that may select the same Pods, sorted by the other set's name. [SS-30]"""
    for other in sorted(others, key=lambda found: found.name):
        if _may_meet(sidecar_set, other):
            yield from _container_conflicts(sidecar_set, other)
            yield from _volume_conflicts(sidecar_set, other)
            yield from _annotation_conflicts(sidecar_set, other)


def _may_meet(one: SidecarSet, other: SidecarSet) -> bool:
    if one.name == other.name or other.deleting:
        return False
    # A canary and its base never apply to the same Pod. [SS-33]
    if base_of(one) == other.name or base_of(other) == one.name:
        return False
    if one.spec.selector is None or other.spec.selector is None:
        return False
    return scopes_overlap(one.spec.namespace_selector, other.spec.namespace_selector) and overlap(
        one.spec.selector, other.spec.selector
    )


def _names(sidecar_set: SidecarSet) -> Iterator[tuple[str, str]]:
    """Yield the field and name of each container. In a Pod, init containers and containers must not share a name.
    [SS-34]"""
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


# Fields of a SidecarSet that are admitted but have no effect, reported to the user as warnings. [SS-135]

#: Fields that the hashes of a SidecarSet do not cover, so changes to them do not affect running Pods.
_ONLY_FOR_NEW_PODS = ("initContainers", "volumes", "imagePullSecrets", "patchPodMetadata")
_ENDING = ("Never", "OnFailure")


def without_effect(sidecar_set: SidecarSet, older: SidecarSet | None) -> tuple[str, ...]:
    """Return a line for each field without effect. ``older`` is the stored set, on an update."""
    spec = sidecar_set.spec
    return (
        *_of_containers(spec.init_containers or (), SPEC.child("initContainers")),
        *_of_containers(spec.containers or (), SPEC.child("containers")),
        *_restart_policies(spec.init_containers or ()),
        *_empty_images(spec.containers or ()),
        *_partition(spec.update_strategy.partition),
        *(_of_change(sidecar_set, older) if older is not None else ()),
    )


def _of_containers(containers: Sequence[SidecarContainer], path: Path) -> Iterator[str]:
    for index, container in enumerate(containers):
        for number, entry in enumerate(container.transfer_env or ()):
            at = path.index(index).child("transferEnv").index(number)
            source = entry.source_container_name_from
            if not entry.source_container_name and (source is None or source.field_ref is None):
                yield f"{at}: names no source container, so nothing is copied; set sourceContainerName"
            elif not entry.env_name and not entry.env_names:
                yield f"{at}: names no variable, so nothing is copied; set envName or envNames"


def _restart_policies(containers: Sequence[SidecarContainer]) -> Iterator[str]:
    for index, container in enumerate(containers):
        policy = container.core.get("restartPolicy")
        if policy in _ENDING:
            at = SPEC.child("initContainers").index(index).child("restartPolicy")
            yield f"{at}: {quote(str(policy))} does not make it a sidecar: it only runs before the other containers"


def _empty_images(containers: Sequence[SidecarContainer]) -> Iterator[str]:
    for index, container in enumerate(containers):
        if container.hot and container.image == container.upgrade_strategy.hot_upgrade_empty_image:
            at = SPEC.child("containers").index(index).child("image")
            yield f"{at}: equals hotUpgradeEmptyImage: running Pods are not upgraded to it"


def _partition(partition: object) -> Iterator[str]:
    if is_more_than_all(partition):
        at = SPEC.child("updateStrategy", "partition")
        yield f"{at}: {quote(str(partition))} keeps all Pods at the old revision, as 100% does"


def _of_change(sidecar_set: SidecarSet, older: SidecarSet) -> Iterator[str]:
    if sidecar_set.spec.update_strategy.type == NOT_UPDATE:
        return
    before, now = older.spec.to_dict(), sidecar_set.spec.to_dict()
    field = obstacle(before, now)
    if field:
        yield f"{field}: running Pods cannot take this change in place; only new Pods get it"
        return
    changed = [one for one in _ONLY_FOR_NEW_PODS if (before.get(one) or None) != (now.get(one) or None)]
    images = [(before.get("containers") or []), (now.get("containers") or [])]
    if changed and images[0] == images[1]:
        fields = ", ".join(str(SPEC.child(one)) for one in changed)
        yield f"{fields}: running Pods are not updated for this change; only new Pods get it"
