"""What is refused here and passes in OpenKruise, because it can only end badly (SS-34, SS-20, SS-22, SS-A). Pure.

A set that was admitted before, by OpenKruise perhaps, must stay editable: on update only mistakes count that the former
object did not have.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from app.api.sidecarset import SidecarContainer, SidecarSet, UpdateStrategy
from app.api.sidecarset.types import (
    HOT_UPGRADE,
    PATCH_POLICIES,
    POD_INJECT_POLICIES,
    SHARE_TYPES,
    UPDATE_TYPES,
    UPGRADE_TYPES,
)
from app.kube.fielderrors import FieldError, Path, forbidden, invalid, not_supported, required
from app.kube.validation import is_label_value
from app.sidecars.sidecarset.validation import SPEC, transfer_errors

HOT_NAME_LIMIT: Final = 61
"""A container's name, less the two characters that tell twins apart."""
_NOTHING: Final = (0, "0%")


def warnings(sidecar_set: SidecarSet) -> tuple[str, ...]:
    """What is admitted, as OpenKruise does, and may not be what is meant."""
    strategy = sidecar_set.spec.update_strategy
    held = strategy.type == UPDATE_TYPES[0] and strategy.max_unavailable in _NOTHING
    if not held or strategy.partition not in _NOTHING:
        return ()
    # SS-24: users hold an update so.
    return (
        f"spec.updateStrategy.maxUnavailable: {strategy.max_unavailable} with partition 0: no Pod that is ready is "
        "updated until it is raised",
    )


def stricter_errors(sidecar_set: SidecarSet, older: SidecarSet | None) -> list[FieldError]:
    """Every such mistake in the (defaulted) set that ``older`` did not have."""
    known = set(map(str, _all(older))) if older is not None else set()
    return [error for error in _all(sidecar_set) if str(error) not in known]


def _all(sidecar_set: SidecarSet) -> Iterator[FieldError]:
    spec = sidecar_set.spec
    yield from _strategy(spec.update_strategy, SPEC.child("updateStrategy"))
    for message in is_label_value(spec.custom_version):
        # SS-A: it becomes a label of the revision, and of the set in v1alpha1.
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


def _strategy(strategy: UpdateStrategy, path: Path) -> Iterator[FieldError]:
    if strategy.type not in UPDATE_TYPES:
        yield not_supported(path.child("type"), strategy.type, UPDATE_TYPES)


def _container(container: SidecarContainer, path: Path) -> Iterator[FieldError]:
    upgrade, devices = container.upgrade_strategy.upgrade_type, container.share_volume_device_policy
    if upgrade not in UPGRADE_TYPES:
        yield not_supported(path.child("upgradeStrategy", "upgradeType"), upgrade, UPGRADE_TYPES)
    if devices is not None and devices.type not in SHARE_TYPES:
        yield not_supported(path.child("shareVolumeDevicePolicy", "type"), devices.type, SHARE_TYPES)


def _init_container(container: SidecarContainer, path: Path) -> Iterator[FieldError]:
    """What OpenKruise checks for ``containers`` only, and what it injects but never upgrades."""
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
    """The names a container of ``containers`` takes up: its own and, hot-upgraded, those of its twins (SS-45)."""
    return (container.name, f"{container.name}-1", f"{container.name}-2") if container.hot else (container.name,)


def _twin_names(sidecar_set: SidecarSet) -> Iterator[FieldError]:
    spec = sidecar_set.spec
    twins = {
        name: container.name for container in spec.containers or () for name in injected_names(container)[1:] if name
    }
    for field, containers in (("initContainers", spec.init_containers), ("containers", spec.containers)):
        for index, container in enumerate(containers or ()):
            # A name that is no text is reported where its shape is checked.
            if isinstance(container.name, str) and container.name in twins:
                at = SPEC.child(field).index(index).child("name")
                yield invalid(at, container.name, f"is the name of a twin of {twins[container.name]}")
