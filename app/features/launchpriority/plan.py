"""The plan of launch priorities: what new Pods get, and which containers a barrier lets start. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.api import names
from app.kube.fielderrors import shortened
from app.kube.objects import ConfigMap, Pod
from app.kube.resources import PODS
from app.pods.container_meta import barrier_config_map, launch_priorities, priority_of_key
from app.pods.draft import Container, PodRefusedError
from app.pods.predicates import Owner, is_active, is_condition_true, refers_to

# Container launch priority at admission: which container waits for which key of the Pod's barrier ConfigMap. Pure.
#
# Rules PW-11 … PW-15, PM-141 … PM-144, decision D-4.

#: U-68: what a priority may be.
MAX_PRIORITY = 2147483647
#: strconv.Atoi.
_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
#: PW-13: what is left of generateName before the random characters.
GENERATE_NAME_KEPT = 58


def requested_priorities(containers: Sequence[Container], annotation: str | None) -> list[int] | None:
    """The priority of each container, or None if they start in no order of ours.

    ``annotation`` is the value of apps.kruise.io/container-launch-priority. Raises PodRefusedError naming the
    container and the value.
    """
    if len(containers) < 2:
        return None  # PW-14
    if annotation == names.CONTAINER_LAUNCH_PRIORITY_ORDERED:
        return [-index for index in range(len(containers))]  # PW-11
    if annotation is not None and annotation.lstrip().startswith("{"):
        priorities = _from_object(containers, annotation)  # D-4
    else:
        priorities = [_from_env(container) for container in containers]
    # PW-12: equal priorities, zeroes among them, are no order.
    return priorities if len(set(priorities)) > 1 else None


def barrier_env(pod_name: str, priority: int) -> Mapping[str, Any]:
    """PW-13: the env entry by which a container waits for its turn."""
    key = {"name": f"{pod_name}{names.BARRIER_CONFIG_MAP_SUFFIX}", "key": f"{names.BARRIER_KEY_PREFIX}{priority}"}
    return {"name": names.ENV_CONTAINER_BARRIER, "valueFrom": {"configMapKeyRef": key}}


def generated_name(generate_name: str, suffix: str) -> str:
    """PM-144: the name of a Pod that came with ``generateName`` only."""
    return generate_name[:GENERATE_NAME_KEPT] + suffix


def _from_env(container: Container) -> int:
    where = f"container {container['name']}: env {names.ENV_CONTAINER_PRIORITY}"
    priority = 0
    for entry in container.get("env") or ():
        if entry.get("name") == names.ENV_CONTAINER_PRIORITY:
            # Of several the last counts, as it does for the kubelet; each must be right.
            priority = _from_entry(entry, where)
    return priority


def _from_entry(entry: Mapping[str, Any], where: str) -> int:
    if entry.get("valueFrom"):
        raise PodRefusedError(f"{where} must be a plain value, not valueFrom: it is read when the Pod is created", 400)
    value = entry.get("value") or ""
    if not isinstance(value, str) or not _INTEGER.fullmatch(value):
        raise PodRefusedError(f"{where}: {shortened(repr(value))} is not an integer", 400)
    return _in_range(value, where)


def _from_object(containers: Sequence[Container], annotation: str) -> list[int]:
    where = f"annotation {names.CONTAINER_LAUNCH_PRIORITY}"
    given = _loads(annotation, where)
    known = {container["name"] for container in containers}
    for name, value in given.items():
        if name not in known:
            raise PodRefusedError(
                f"{where}: the Pod has no container {name}; it has {', '.join(sorted(known))} (init containers start "
                f"in the order they stand in)",
                400,
            )
        if not isinstance(value, _Integer):
            raise PodRefusedError(f"{where}: container {name}: the priority must be an integer", 400)
    return [_in_range(given.get(c["name"], "0"), f"{where}: container {c['name']}") for c in containers]


class _Integer(str):
    """An integer as it is written: its digits are counted before they are read."""

    __slots__ = ()


def _loads(annotation: str, where: str) -> dict[str, Any]:
    """The members of the annotation; an integer as ``_Integer``, all else as it is."""

    def pairs(members: list[tuple[str, Any]]) -> dict[str, Any]:
        given = dict(members)
        if len(given) != len(members):
            raise PodRefusedError(f"{where}: a container is named twice", 400)
        return given

    try:
        value = json.loads(annotation, parse_int=_Integer, object_pairs_hook=pairs)
    except (json.JSONDecodeError, RecursionError) as error:
        raise PodRefusedError(
            f"{where} is neither {names.CONTAINER_LAUNCH_PRIORITY_ORDERED!r} nor a JSON object of container names and "
            f"integers: {error}",
            400,
        ) from error
    assert isinstance(value, dict)  # noqa: S101  # it starts with a brace
    return value


def _in_range(digits: str, where: str) -> int:
    # int() refuses to read thousands of digits; no priority has more than ten that count.
    counting = digits.lstrip("+-").lstrip("0") or "0"
    value = int(counting) if len(counting) <= 10 else MAX_PRIORITY + 1
    if value > MAX_PRIORITY:
        raise PodRefusedError(f"{where}: {digits[:20]} is outside -{MAX_PRIORITY}…{MAX_PRIORITY}", 400)
    return -value if digits.startswith("-") else value


# The launch barrier decided: which key of a Pod's barrier ConfigMap to add next. Pure.
#
# A container of launch priority p cannot start before key ``p_<p>`` is there. Keys come one by one from the highest
# priority down, each when every container of a higher one is ready. Rules PM-146 … PM-150.


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
