"""Launch priority at admission (PW-11 to PW-15, PM-141 to PM-144)."""

from __future__ import annotations

import json
import re

from tests.property.case import NAME_SUFFIX, Json
from tests.property.oracle_basics import PRIORITY, Refused, State


class LaunchPriority:
    """Add the barrier env to the Pod's containers. ``priority_from_set``: whether a set's patch set the annotation."""

    def __init__(self, state: State, *, priority_from_set: bool) -> None:
        self.state = state
        self.priority_from_set = priority_from_set

    def apply(self) -> bool:
        containers = self.state.spec.get("containers") or []
        asked = PRIORITY in self.state.annotations or any(
            e["name"] == "KRUISE_CONTAINER_PRIORITY" for c in containers for e in c.get("env") or []
        )
        if len(containers) < 2:
            if asked:
                self.state.branches.hit("PM-141 one container, skipped")
            return False
        priorities = self.priorities(containers)
        if priorities is None:
            return False
        metadata = self.state.pod["metadata"]
        if not metadata.get("name"):
            self.state.branches.hit("PM-144 name generated")
            metadata["name"] = metadata["generateName"][:58] + NAME_SUFFIX
        if self.priority_from_set:
            self.state.branches.hit("SS-54 patched launch priority acts")
        for container, priority in zip(containers, priorities, strict=True):
            reference = {"name": f"{metadata['name']}-barrier", "key": f"p_{priority}"}
            barrier = {"name": "KRUISE_CONTAINER_BARRIER", "valueFrom": {"configMapKeyRef": reference}}
            container["env"] = [*(container.get("env") or []), barrier]
        return True

    def priorities(self, containers: list[Json]) -> list[int] | None:
        wanted = self.state.annotations.get(PRIORITY) or ""
        if wanted == "Ordered":
            self.state.branches.hit("PM-141 Ordered")
            return [-i for i in range(len(containers))]
        if wanted.strip().startswith("{"):
            self.state.branches.hit("PM-141 JSON")
            values = self.priorities_in_json(wanted, [c["name"] for c in containers])
        else:
            values = [self.priority_in_env(c) for c in containers]
            if any(values):
                self.state.branches.hit("PM-141 env")
        if len(set(values)) == 1:
            if values[0]:
                self.state.branches.hit("PM-141 all equal, skipped")
            return None
        return values

    def priorities_in_json(self, text: str, names: list[str]) -> list[int]:
        try:
            given = json.loads(text)
        except ValueError:
            raise Refused("PW-15 invalid refused") from None
        if set(given) - set(names):
            raise Refused("PW-15 unknown container refused")
        for value in given.values():
            if type(value) is not int:
                raise Refused("PW-15 invalid refused")
            if abs(value) > 2147483647:
                raise Refused("PW-14 out of range refused")
        return [given.get(name, 0) for name in names]

    def priority_in_env(self, container: Json) -> int:
        for env in container.get("env") or []:
            if env["name"] != "KRUISE_CONTAINER_PRIORITY":
                continue
            if "valueFrom" in env:
                raise Refused("PW-14 valueFrom refused")
            if not re.fullmatch(r"[+-]?[0-9]+", env.get("value") or "", re.ASCII):
                raise Refused("PW-14 not an integer refused")
            if abs(int(env["value"])) > 2147483647:
                raise Refused("PW-14 out of range refused")
            return int(env["value"])
        return 0
