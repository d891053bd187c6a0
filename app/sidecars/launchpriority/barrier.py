"""The launch barrier decided: which key of a Pod's barrier ConfigMap to add next. Pure.

A container of launch priority p cannot start before key ``p_<p>`` is there. Keys come one by one from the highest
priority down, each when every container of a higher one is ready. Rules PM-146 … PM-150.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from app.api import names
from app.kube.objects import ConfigMap, Pod
from app.kube.resources import PODS
from app.pods.launchpriority import barrier_config_map, launch_priorities, priority_of_key
from app.pods.owners import Owner, refers_to
from app.pods.predicates import is_active, is_condition_true


@dataclass(frozen=True, slots=True)
class Waiting:
    """The containers that are not ready yet: those that may start, and those that wait for them."""

    priority: int
    awaited: tuple[str, ...]
    held: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"{', '.join(self.held)} {_verb(self.held, 'waits', 'wait')} to be started until {', '.join(self.awaited)} "
            f"(launch priority {self.priority}) {_verb(self.awaited, 'is', 'are')} ready"
        )


@dataclass(frozen=True, slots=True)
class Step:
    """What to do now: ``add`` this key, then mark the Pod ``completed``, or wait for containers."""

    add: int | None = None
    completed: bool = False
    waiting: Waiting | None = None


def not_ready(pod: Pod) -> Mapping[str, int]:
    """Container → launch priority of those that have one and are not ready."""
    priorities = launch_priorities(pod)
    if not priorities:
        return priorities
    ready = {status.name for status in pod.status.container_statuses if status.ready}
    return {name: priority for name, priority in priorities.items() if name not in ready}


def is_held(pod: Pod) -> bool:
    """PM-146: whether the Pod still has containers to let start."""
    return (
        is_active(pod)
        and pod.metadata.annotations.get(names.CONTAINER_LAUNCH_PRIORITY_COMPLETED) != "true"
        and not is_condition_true(pod, "ContainersReady")
        and bool(not_ready(pod))
    )


def plan(pod: Pod, added: Collection[int]) -> Step:
    """PM-147, PM-148: the next step when the keys of ``added`` are there."""
    missing = not_ready(pod)
    if not missing or min(missing.values()) in added:
        return Step(completed=True)
    highest = max(missing.values())
    add = highest if highest not in added else None
    if highest == min(missing.values()):
        return Step(add, completed=True)
    awaited = tuple(name for name, priority in missing.items() if priority == highest)
    held = tuple(name for name, priority in missing.items() if priority < highest)
    return Step(add, waiting=Waiting(highest, awaited, held))


def config_map(pod: Pod, priority: int) -> dict[str, Any]:
    """PM-147: the ConfigMap with its first key. It goes with the Pod, which is its owner but does not manage it."""
    owner = {
        "apiVersion": PODS.api_version,
        "kind": PODS.kind,
        "name": pod.metadata.name,
        "uid": pod.metadata.uid,
    }
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": barrier_config_map(pod),
            "namespace": pod.metadata.namespace,
            "ownerReferences": [owner],
        },
        "data": data(priority),
    }


def data(priority: int) -> dict[str, str]:
    """The ``data`` that lets containers of this priority start."""
    return {f"{names.BARRIER_KEY_PREFIX}{priority}": "true"}


def added_in(found: ConfigMap) -> set[int]:
    """The priorities whose keys a ConfigMap has."""
    return {priority for key in found.data if (priority := priority_of_key(key)) is not None}


def is_left_behind(found: ConfigMap, pod: Pod) -> bool:
    """Whether the ConfigMap belongs to an earlier Pod of the same name: all its keys are there, and soon it is gone."""
    metadata, owner = found.metadata, Owner.of(PODS, pod.metadata)
    references = [one for one in metadata.owner_references if (one.kind, one.name) == (owner.kind, owner.name)]
    return bool(references) and not any(refers_to(one, metadata.namespace, owner) for one in references)


def _verb(subjects: tuple[str, ...], one: str, several: str) -> str:
    return one if len(subjects) == 1 else several
