"""Plans launch priorities: the barrier of new Pods, and the containers that may start. Pure."""

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
from app.pods.admission_draft import Container, PodRefusedError
from app.pods.container_meta import barrier_config_map, launch_priorities, priority_of_key
from app.pods.predicates import Owner, is_active, is_condition_true, refers_to

# Admission: which key of the Pod's barrier ConfigMap each container waits for. [PW-11 … PW-15, PM-141 … PM-144, D-4]

#: Largest allowed absolute value of a priority.
MAX_PRIORITY = 2147483647
#: Integers as accepted by Go's strconv.Atoi.
_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
#: Number of characters of generateName that are kept before the random suffix. [PW-13]
GENERATE_NAME_KEPT = 58


def requested_priorities(containers: Sequence[Container], annotation: str | None) -> list[int] | None:
    """Return the priority of each container, or None if the containers are not ordered.

    annotation is the value of apps.kruise.io/container-launch-priority. Raises PodRefusedError naming the container and
    the value.
    """
    if len(containers) < 2:
        return None  # [PW-14]
    if annotation == names.CONTAINER_LAUNCH_PRIORITY_ORDERED:
        return [-index for index in range(len(containers))]  # [PW-11]
    if annotation is not None and annotation.lstrip().startswith("{"):
        priorities = _from_object(containers, annotation)  # D-4
    else:
        priorities = [_from_env(container) for container in containers]
    # If all priorities are equal (for example, all zero), the containers are not ordered. [PW-12]
    return priorities if len(set(priorities)) > 1 else None


def barrier_env(pod_name: str, priority: int) -> Mapping[str, Any]:
    """Return the env variable that makes a container wait for its key. [PW-13]"""
    key = {"name": f"{pod_name}{names.BARRIER_CONFIG_MAP_SUFFIX}", "key": f"{names.BARRIER_KEY_PREFIX}{priority}"}
    return {"name": names.ENV_CONTAINER_BARRIER, "valueFrom": {"configMapKeyRef": key}}


def generated_name(generate_name: str, suffix: str) -> str:
    """Return a name for a Pod that has only ``generateName``. [PM-144]"""
    return generate_name[:GENERATE_NAME_KEPT] + suffix


def _from_env(container: Container) -> int:
    priority = 0
    for entry in container.get("env") or ():
        if entry.get("name") == names.ENV_CONTAINER_PRIORITY:
            # The last entry wins, as in the kubelet, but each must be valid.
            priority = _from_entry(entry, f"container {container['name']}: env {names.ENV_CONTAINER_PRIORITY}")
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
                f"in the order they are listed)",
                400,
            )
        if not isinstance(value, _Integer):
            raise PodRefusedError(f"{where}: container {name}: the priority must be an integer", 400)
    return [_in_range(given.get(c["name"], "0"), f"{where}: container {c['name']}") for c in containers]


class _Integer(str):
    """An integer as written, so that its length can be checked before it is parsed."""

    __slots__ = ()


def _loads(annotation: str, where: str) -> dict[str, Any]:
    """Parse the annotation. Integers are returned as ``_Integer``."""

    def pairs(members: list[tuple[str, Any]]) -> dict[str, Any]:
        given = dict(members)
        if len(given) != len(members):
            raise PodRefusedError(f"{where}: a container is listed twice", 400)
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
    # int() rejects thousands of digits; no valid priority has more than ten.
    counting = digits.lstrip("+-").lstrip("0") or "0"
    value = int(counting) if len(counting) <= 10 else MAX_PRIORITY + 1
    if value > MAX_PRIORITY:
        raise PodRefusedError(f"{where}: {digits[:20]} is outside -{MAX_PRIORITY}…{MAX_PRIORITY}", 400)
    return -value if digits.startswith("-") else value


# Launch barrier: which key of a Pod's barrier ConfigMap to add next. A container with priority p cannot start before
# the key ``p_<p>`` exists. Keys are added from the highest priority down. A key is added once all
# containers with a higher priority are ready. [PM-146 … PM-150]


@dataclass(frozen=True, slots=True)
class Waiting:
    """Containers that are not ready: those that may start, and those waiting for them."""

    priority: int
    awaited: tuple[str, ...]
    held: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"{', '.join(self.held)} cannot start until {', '.join(self.awaited)} "
            f"(launch priority {self.priority}) {'is' if len(self.awaited) == 1 else 'are'} ready"
        )


@dataclass(frozen=True, slots=True)
class Step:
    """The next action: ``add`` this key, then mark the Pod ``completed`` or wait for containers."""

    add: int | None = None
    completed: bool = False
    waiting: Waiting | None = None


def not_ready(pod: Pod) -> Mapping[str, int]:
    """Return the launch priority of each container that has one and is not ready."""
    priorities = launch_priorities(pod)
    if not priorities:
        return priorities
    ready = {status.name for status in pod.status.container_statuses if status.ready}
    return {name: priority for name, priority in priorities.items() if name not in ready}


def is_held(pod: Pod) -> bool:
    """Return whether the Pod still has containers waiting to start. [PM-146]"""
    return (
        is_active(pod)
        and pod.metadata.annotations.get(names.CONTAINER_LAUNCH_PRIORITY_COMPLETED) != "true"
        and not is_condition_true(pod, "ContainersReady")
        and bool(not_ready(pod))
    )


def plan(pod: Pod, added: Collection[int]) -> Step:
    """Return the next step, given that the keys in ``added`` exist. [PM-147, PM-148]"""
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
    """Return the ConfigMap with its first key. The Pod owns it but is not its controller. [PM-147]"""
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
    """Return the ``data`` that lets containers of this priority start."""
    return {f"{names.BARRIER_KEY_PREFIX}{priority}": "true"}


def added_in(found: ConfigMap) -> set[int]:
    """Return the priorities whose keys the ConfigMap has."""
    return {priority for key in found.data if (priority := priority_of_key(key)) is not None}


def is_left_behind(found: ConfigMap, pod: Pod) -> bool:
    """Return whether the ConfigMap belongs to an earlier Pod of the same name. Such a ConfigMap has all keys and will
    soon be garbage collected."""
    metadata, owner = found.metadata, Owner.of(PODS, pod.metadata)
    references = [one for one in metadata.owner_references if (one.kind, one.name) == (owner.kind, owner.name)]
    return bool(references) and not any(refers_to(one, metadata.namespace, owner) for one in references)
