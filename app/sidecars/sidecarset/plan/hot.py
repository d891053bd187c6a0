"""A hot upgrade: one twin takes the new image, and when it has taken over, the other idles. Pure. SS-80 … SS-85."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from app.api import names
from app.api.gojson import dumps_go
from app.kube.objects import Pod
from app.sidecars.sidecarset.plan.facts import twins_to_idle, unsettled, working_twin
from app.sidecars.sidecarset.plan.records import in_place_states, working_twins
from app.sidecars.sidecarset.plan.view import HotSidecar, SetView


@dataclass(slots=True)
class HotUpgradeChange:
    """What changes in one Pod: images by container, and annotations."""

    images: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)

    def idle(self, former: str, works: str, empty_image: str) -> None:
        """The former twin takes the empty image, and the versions say that there is nothing to migrate."""
        self.images[former] = empty_image
        self.annotations[f"{names.SIDECARSET_VERSION_PREFIX}{former}"] = "0"
        self.annotations[f"{names.SIDECARSET_VERSION_ALT_PREFIX}{works}"] = "0"


def upgraded(view: SetView, pod: Pod, version: str) -> HotUpgradeChange:
    """SS-81: each pair of the set on its way to the set's image. ``version``: the resourceVersion of the set."""
    change = HotUpgradeChange()
    images = {container.name: container.image for container in pod.spec.containers}
    working = working_twins(pod)
    late = unsettled(view, pod, in_place_states(pod))
    good = frozenset(
        status.name for status in pod.status.container_statuses if status.ready and status.name not in late
    )
    for sidecar in view.hot:
        _upgrade(sidecar, images, working, good, pod.metadata.annotations, version, change)
    if working != working_twins(pod):
        change.annotations[names.SIDECARSET_WORKING_HOT_UPGRADE_CONTAINER] = dumps_go(working, sort_keys=True)
    return change


def twin_to_upgrade(sidecar: HotSidecar, images: Mapping[str, str], working: str, good: Collection[str]) -> str:
    """SS-81: the one that idles; of two that run, the one that does not do so well; else the one that does not work."""
    if images.get(sidecar.first) == sidecar.empty_image:
        return sidecar.first
    if images.get(sidecar.second) == sidecar.empty_image:
        return sidecar.second
    well = [twin for twin in (sidecar.first, sidecar.second) if twin in good]
    return sidecar.other(well[0] if len(well) == 1 else working)


def _upgrade(
    sidecar: HotSidecar,
    images: Mapping[str, str],
    working: dict[str, str],
    good: Collection[str],
    annotations: Mapping[str, str],
    version: str,
    change: HotUpgradeChange,
) -> None:
    target = twin_to_upgrade(sidecar, images, working_twin(sidecar, working), good)
    other = sidecar.other(target)
    wanted = sidecar.image
    if images.get(other) == wanted:
        if images.get(target) != sidecar.empty_image and wanted != sidecar.empty_image:
            # SS-85: the other has what is wanted; it works on, and the one that was to follow it idles.
            change.idle(target, other, sidecar.empty_image)
            working[sidecar.name] = other
        return
    if wanted == sidecar.empty_image:
        return
    if images.get(target) != wanted:
        change.images[target] = wanted
    elif working_twin(sidecar, working) == target:
        return
    # The set is back at what the former twin runs still: that one works again, and the other is to idle.
    working[sidecar.name] = target
    before = annotations.get(f"{names.SIDECARSET_VERSION_PREFIX}{other}", "0")
    change.annotations[f"{names.SIDECARSET_VERSION_PREFIX}{target}"] = version
    change.annotations[f"{names.SIDECARSET_VERSION_ALT_PREFIX}{target}"] = before
    change.annotations[f"{names.SIDECARSET_VERSION_ALT_PREFIX}{other}"] = version


def migrated(view: SetView, pod: Pod) -> HotUpgradeChange:
    """SS-81: the former twins of all pairs take the empty image."""
    change = HotUpgradeChange()
    empty = {twin: sidecar.empty_image for sidecar in view.hot for twin in (sidecar.first, sidecar.second)}
    for former, works in twins_to_idle(view, pod).items():
        change.idle(former, works, empty[former])
    return change
