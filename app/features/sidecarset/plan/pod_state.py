"""State of one Pod relative to one SidecarSet: matched, updated, ready, upgradable. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from app.api import names
from app.api.gojson import dumps_go
from app.api.names import SIDECARSET_UPGRADABLE_CONDITION
from app.features.sidecarset.plan.settings import (
    HotSidecar,
    InPlaceState,
    SetView,
    in_place_states,
    injected_sets,
    recorded,
    working_twins,
)
from app.kube.clock import rfc3339
from app.kube.objects import Pod
from app.pods.inplace.completion import has_digest, is_image_changed, same_image
from app.pods.inplace.state import ContainerBefore
from app.pods.predicates import is_active, is_running_and_ready

# Condition SidecarSetUpgradable of a Pod: which of its sets can update it in place. [SS-105]

ALL_UPGRADABLE: Final = "AllSidecarsetUpgradable"
NOT_UPGRADABLE: Final = "UpdateImmutableField"

_MESSAGE = msgspec.json.Decoder(dict[str, bool])


def _condition_message(pod: Pod) -> dict[str, bool]:
    """Return whether each set in the condition can update the Pod; empty if the condition is unreadable."""
    found = pod.condition(SIDECARSET_UPGRADABLE_CONDITION)
    if found is None:
        return {}
    try:
        return _MESSAGE.decode(found.message or "{}")
    except (msgspec.DecodeError, RecursionError):
        return {}


def condition_for(pod: Pod, set_name: str) -> bool | None:
    """Return the condition's value for one set, or None."""
    return _condition_message(pod).get(set_name)


def condition_patch(pod: Pod, set_name: str, upgradable: bool, now: datetime) -> dict[str, Any]:
    """Return the strategic merge patch of the Pod's status that sets the value for this set and keeps the others."""
    said = {**_condition_message(pod), set_name: upgradable}
    status = "True" if all(said.values()) else "False"
    condition: dict[str, Any] = {
        "type": SIDECARSET_UPGRADABLE_CONDITION,
        "status": status,
        "reason": ALL_UPGRADABLE if status == "True" else NOT_UPGRADABLE,
        "message": dumps_go(said, sort_keys=True),
    }
    before = pod.condition(SIDECARSET_UPGRADABLE_CONDITION)
    if before is None or before.status != status:
        condition["lastTransitionTime"] = rfc3339(now)
    metadata = {"uid": pod.metadata.uid, "resourceVersion": pod.metadata.resource_version}
    return {"metadata": metadata, "status": {"conditions": [condition]}}


# State of one Pod relative to one SidecarSet: whether it counts, is updated, is ready, or waits for an update, and why.
# After each event, only one Pod is evaluated, however many Pods the set has. [SS-82, SS-91, SS-92, SS-96]

#: A Pod's record of each set's last change; None if unreadable.
States: TypeAlias = "Mapping[str, InPlaceState] | None"


class Wait(StrEnum):
    """Why an outdated Pod is not a candidate for an update. [SS-92]"""

    #: The Pod is a candidate.
    NO = ""
    UNSELECTED = "updateStrategy.selector does not match its labels"
    BLOCKED = "fields other than images changed in the set since the Pod was created"
    IN_FLIGHT = "the kubelet has not restarted its sidecars yet"
    RESET = "the former twin gets the empty image first"


class PodFacts(NamedTuple):
    """Facts about one Pod and one set. ``revision`` is the ControllerRevision in the Pod's annotation, or ''."""

    matched: bool
    updated: bool
    ready: bool
    revision: str
    #: For an outdated Pod: why it cannot be updated now.
    wait: Wait = Wait.NO
    #: For an outdated Pod: whether it is already unavailable, so that an update disrupts nothing.
    free: bool = False
    #: Unavailable because of this set's last change.
    disturbed: bool = False
    #: Unavailable or about to become so, because of another set's last change.
    by_others: bool = False
    #: Not ready or about to become unready, because of this set or another.
    down: bool = False
    #: The hot upgrade has reached the point where the former twin may become idle.
    migrated: bool = False
    #: The value to write for this set in condition SidecarSetUpgradable; None if it need not change. An
    #: updated Pod gets true if it had false or was updated in place. [SS-105]
    upgradable: bool | None = None

    @property
    def outdated(self) -> bool:
        """Matched, and not updated yet."""
        return self.matched and not self.updated


def pod_facts(view: SetView, pod: Pod, namespace_labels: Mapping[str, str] | None) -> PodFacts:
    """Return the facts about ``pod``. ``namespace_labels`` is None while the Namespace is unknown: then no
    namespaceSelector matches. [SS-35]"""
    digest, revision = recorded(pod.metadata.annotations, view.name)
    if not is_matched(view, pod, namespace_labels):
        return PodFacts(False, False, False, revision)
    updated = digest == view.hash != ""
    states = in_place_states(pod)
    late = unsettled(view, pod, states)
    up = is_running_and_ready(pod)
    idle = twins_are_idle(view, pod)
    ready = up and idle and _all_reported(pod) and not late
    strategy = view.strategy
    if not strategy.rolling:
        return PodFacts(True, updated, ready, revision)
    migrated = not idle and is_migrated(view, pod, late, up=up)
    said = condition_for(pod, view.name)
    disturbed = not ready and (bool(twins_to_idle(view, pod)) or _is_disturbed(view.name, pod, late, states))
    by_others = _is_disturbed_by_others(view, pod, states)
    if updated:
        wait, upgradable = Wait.NO, True if said is False or (said is None and view.name in (states or {})) else None
    else:
        wait = _wait(view, pod, late, migrated=migrated)
        upgradable = _condition_to_write(wait, said)
    return PodFacts(
        matched=True,
        updated=updated,
        ready=ready,
        revision=revision,
        wait=wait,
        free=not updated and not ready and (disturbed or not by_others),
        disturbed=disturbed,
        by_others=by_others,
        down=by_others or (disturbed and (not up or bool(late))),
        migrated=migrated,
        upgradable=upgradable,
    )


def _condition_to_write(wait: Wait, said: bool | None) -> bool | None:
    """Return the condition value to write for an outdated Pod, if it differs. True only replaces false. [SS-105]"""
    if wait is Wait.BLOCKED:
        return None if said is False else False
    return True if said is False and wait is not Wait.UNSELECTED else None


def _wait(view: SetView, pod: Pod, late: frozenset[str], *, migrated: bool) -> Wait:
    """Return why the outdated Pod must wait. [SS-92, SS-93]"""
    selector = view.strategy.selector
    if selector is not None and not selector.matches(pod.metadata.labels):
        return Wait.UNSELECTED
    recorded_hash, _ = recorded(pod.metadata.annotations, view.name, names.SIDECARSET_HASH_WITHOUT_IMAGE)
    if not recorded_hash or recorded_hash != view.hash_without_image:
        return Wait.BLOCKED
    if migrated:
        return Wait.RESET
    if any(status.ready and status.name in late for status in pod.status.container_statuses):
        return Wait.IN_FLIGHT
    return Wait.NO


def is_matched(view: SetView, pod: Pod, namespace_labels: Mapping[str, str] | None) -> bool:
    """Return whether the Pod is active, selected and recorded as injected, and has every sidecar of the set. [SS-91]"""
    if not is_active(pod) or view.name not in injected_sets(pod.metadata.annotations):
        return False
    if not view.selects(pod, namespace_labels):
        return False
    if not view.sidecars <= {container.name for container in pod.spec.containers}:
        return False
    return not view.hot or working_twins(pod).keys() >= {sidecar.name for sidecar in view.hot}


# ---- hot upgrade


def working_twin(sidecar: HotSidecar, working: Mapping[str, str]) -> str:
    """Return the working twin: the first if the annotation names it, else the second. [SS-80]"""
    return sidecar.first if working.get(sidecar.name) == sidecar.first else sidecar.second


def twins_are_idle(view: SetView, pod: Pod) -> bool:
    """Return whether the non-working twin of every pair has the empty image. [SS-82]"""
    return not view.hot or not _busy_twins(view, pod)


def _busy_twins(view: SetView, pod: Pod) -> dict[str, str]:
    """Return the non-working twins with an image other than the empty one, mapped to their working twins."""
    images = {container.name: container.image for container in pod.spec.containers}
    working = working_twins(pod)
    pairs = ((sidecar, working_twin(sidecar, working)) for sidecar in view.hot)
    return {
        sidecar.other(works): works
        for sidecar, works in pairs
        if images.get(sidecar.other(works)) != sidecar.empty_image
    }


def twins_to_idle(view: SetView, pod: Pod) -> dict[str, str]:
    """Return the former working twins that still run their image after an upgrade, mapped to their successors.

    Twins with a former empty image of the set are already idle (their version annotation is 0) and are left out.
    """
    if not view.hot:
        return {}
    annotations = pod.metadata.annotations
    images = {container.name: container.image for container in pod.spec.containers}
    empty = {twin: sidecar.empty_image for sidecar in view.hot for twin in (sidecar.first, sidecar.second)}
    return {
        former: works
        for former, works in _busy_twins(view, pod).items()
        if annotations.get(f"{names.SIDECARSET_VERSION_PREFIX}{former}", "0") != "0"
        and images.get(works) != empty[works]
    }


def is_migrated(view: SetView, pod: Pod, late: frozenset[str], *, up: bool) -> bool:
    """Return whether every sidecar except the former twins runs its image, and nothing else keeps the Pod from being
    ready. [SS-81]"""
    former = twins_to_idle(view, pod)
    if not former or not _all_reported(pod) or not late <= former.keys():
        return False
    return up or all(status.ready for status in pod.status.container_statuses if status.name not in former)


# ---- whether the containers match the spec


def _all_reported(pod: Pod) -> bool:
    return len(pod.status.container_statuses) == len(pod.spec.containers)


def unsettled(view: SetView, pod: Pod, states: States) -> frozenset[str]:
    """Return the set's containers that do not run their image yet. ``states``: update states recorded on the Pod.
    [SS-96]"""
    images = {container.name: container.image for container in pod.spec.containers if container.name in view.sidecars}
    if all(map(has_digest, images.values())):
        statuses = {status.name: status.image_id for status in pod.status.container_statuses}
        return frozenset(name for name, image in images.items() if not same_image(image, statuses.get(name, "")))
    if states is None:
        return frozenset(images)
    state = states.get(view.name)
    return _outstanding(pod, state) & images.keys() if state is not None else frozenset()


def _outstanding(pod: Pod, state: InPlaceState) -> frozenset[str]:
    """Return the containers that a set changed but that still run the former image."""
    before = state.before
    changed = [status for status in pod.status.container_statuses if status.name in before]
    images = {container.name: container.image for container in pod.spec.containers} if changed else {}
    return frozenset(
        status.name
        for status in changed
        if not is_image_changed(
            pod,
            status,
            images.get(status.name, ""),
            ContainerBefore(before[status.name]),
            state.container_before(status.name),
        )
    )


def _is_disturbed(set_name: str, pod: Pod, late: frozenset[str], states: States) -> bool:
    """Return whether a container that this set changed is still changing, or has not become ready since."""
    state = (states or {}).get(set_name)
    before = state.before if state is not None else {}
    return bool(before) and any(
        status.name in before and (status.name in late or not status.ready) for status in pod.status.container_statuses
    )


def _is_disturbed_by_others(view: SetView, pod: Pod, states: States) -> bool:
    """Return whether a change by any other set still disturbs the Pod (see :func:`_is_disturbed`)."""
    return any(
        _is_disturbed(name, pod, _outstanding(pod, state), states)
        for name, state in (states or {}).items()
        if name != view.name
    )
