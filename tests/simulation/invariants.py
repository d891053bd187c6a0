"""Invariants that hold after every write or at rest.

Each function takes objects as the API server stores them and yields a sentence per violation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import orjson

from app.api import names

Json = Mapping[str, Any]


def started_in_order(before: Json | None, after: Json) -> Iterator[str]:
    """A container starts only when all containers of higher priority are ready. [PM-146]"""
    priorities = {container["name"]: priority(container) for container in after["spec"]["containers"]}
    if len(set(priorities.values())) < 2:
        return
    old = statuses(before) if before is not None else {}
    new = statuses(after)
    for container, status in new.items():
        running = "running" in (status.get("state") or {})
        ran = "running" in ((old.get(container) or {}).get("state") or {})
        if not running or ran or container not in priorities:
            continue
        for other, its in priorities.items():
            if its > priorities[container] and not (old.get(other) or {}).get("ready"):
                yield (
                    f"Pod {name(after)}: container {container} (priority {priorities[container]}) started before "
                    f"{other} (priority {its}) was ready"
                )


def priority(container: Json) -> int:
    for entry in container.get("env") or ():
        source = (entry.get("valueFrom") or {}).get("configMapKeyRef") or {}
        if entry.get("name") == names.ENV_CONTAINER_BARRIER and str(source.get("key", "")).startswith(
            names.BARRIER_KEY_PREFIX
        ):
            return int(source["key"].removeprefix(names.BARRIER_KEY_PREFIX))
    return 0


def statuses(pod: Json) -> dict[str, Json]:
    return {status["name"]: status for status in (pod.get("status") or {}).get("containerStatuses") or ()}


class Lag:
    """Reports violations that last too long while no fault is active."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        #: Violation → when it began.
        self._since: dict[str, float] = {}

    def longer(self, at: float, violations: Iterable[str]) -> Iterator[str]:
        """Yield each violation that has lasted too long, once."""
        self._since = {sentence: self._since.get(sentence, at) for sentence in violations}
        for sentence, since in self._since.items():
            if at - since > self._seconds:
                self._since[sentence] = float("inf")
                yield f"for {at - since:.0f} s with nothing going wrong: {sentence}"

    def excuse(self) -> None:
        """Restart the timers, because a fault is active or has just ended."""
        self._since.clear()


def no_twin(revision: Json, others: Sequence[Json]) -> Iterator[str]:
    owner = owner_of(revision)
    data = orjson.dumps(revision.get("data"), option=orjson.OPT_SORT_KEYS)
    for other in others:
        if other["metadata"]["uid"] == revision["metadata"]["uid"] or owner_of(other) != owner:
            continue
        if orjson.dumps(other.get("data"), option=orjson.OPT_SORT_KEYS) == data:
            yield f"ControllerRevision {name(revision)} records the same as {name(other)}"


def pods_are_ready(pods: Sequence[Json]) -> Iterator[str]:
    """At rest every Pod with restartPolicy Always is ready and is not being deleted."""
    for pod in pods:
        if pod["spec"].get("restartPolicy", "Always") != "Always":
            continue
        if pod["metadata"].get("deletionTimestamp"):
            yield f"Pod {name(pod)} at rest: is being deleted"
        if condition(pod, "Ready") != "True":
            gates = [gate["conditionType"] for gate in pod["spec"].get("readinessGates") or ()]
            states = {gate: condition(pod, gate) for gate in gates}
            phase = (pod.get("status") or {}).get("phase")
            yield f"Pod {name(pod)} at rest: not Ready (phase {phase}, readiness gates {states})"


def condition(pod: Json, wanted: str) -> str:
    for one in (pod.get("status") or {}).get("conditions") or ():
        if one.get("type") == wanted:
            return str(one.get("status"))
    return ""


def quiet(writes: Counter[str], seconds: float) -> Iterator[str]:
    for what, count in sorted(writes.items()):
        if count:
            yield f"at rest: {count} writes of {what} in {seconds:.0f} s"


def status_is(what: str, status: Json, true: Mapping[str, object]) -> Iterator[str]:
    """At rest, the status has the values in ``true``."""
    for field, value in true.items():
        if (status.get(field) or 0) != value:
            yield f"{what} at rest: status.{field} is {status.get(field)}, want {value}"


def owner_of(obj: Json) -> str:
    references = obj["metadata"].get("ownerReferences") or ()
    return str(references[0]["uid"]) if references else ""


def name(obj: Json) -> str:
    return str(obj["metadata"].get("name"))
