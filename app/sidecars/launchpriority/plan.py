"""Container launch priority at admission: which container waits for which key of the Pod's barrier ConfigMap. Pure.

Rules PW-11 … PW-15, PM-141 … PM-144, decision D-4.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from app.api import names
from app.kube.gotext import shortened
from app.pods.draft import Container, PodRefusedError

#: U-68: what a priority may be.
MAX_PRIORITY = 2147483647
#: strconv.Atoi.
_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
#: PW-13: what is left of generateName before the random characters.
GENERATE_NAME_KEPT = 58


def launch_priorities(containers: Sequence[Container], annotation: str | None) -> list[int] | None:
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
