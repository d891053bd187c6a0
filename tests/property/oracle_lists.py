"""Adds sidecars, volumes and secrets to the Pod's lists (SS-42 to SS-44, SS-48, SS-52)."""

from __future__ import annotations

import copy

from tests.property.case import Json
from tests.property.oracle_basics import Applied, State


class Lists:
    """Merges sidecars, volumes and secrets into the lists of one Pod."""

    def __init__(self, state: State) -> None:
        self.state = state

    def merge_containers(self, sidecars: list[Json]) -> None:
        by_name = sorted(sidecars, key=lambda c: c["name"])
        if self.state.case.sort_by_name:
            if by_name != sidecars:
                self.state.branches.hit("SS-43 sorted by name")
            sidecars = by_name
        elif by_name != sidecars:
            self.state.branches.hit("SS-43 spec order kept without the gate")
        self.state.spec["containers"] = self.merged(self.state.spec.get("containers") or [], sidecars, init=False)

    def merge_init_containers(self, sidecars: list[Json]) -> None:
        if not sidecars:
            return
        by_name = sorted(sidecars, key=lambda c: c["name"])
        if by_name != sidecars:
            self.state.branches.hit("SS-44 sorted by name")
        self.state.spec["initContainers"] = self.merged(self.state.spec.get("initContainers") or [], by_name, init=True)

    def merged(self, own: list[Json], sidecars: list[Json], *, init: bool) -> list[Json]:
        rule = "SS-44" if init else "SS-42"
        own, before, after = list(own), [], []
        for sidecar in sidecars:
            policy = sidecar.pop("!policy")
            index = [i for i, c in enumerate(own) if c["name"] == sidecar["name"]]
            if index:
                self.state.branches.hit(f"{rule} overwrite in place")
                if not init and sidecar["env"][-1]["name"] == "SIDECARSET_VERSION_ALT":
                    self.state.branches.hit("SS-45 twin overwritten in place")
                own[index[0]] = sidecar
            elif policy == "BeforeAppContainer":
                self.state.branches.hit(f"{rule} before")
                before.append(sidecar)
            else:
                self.state.branches.hit("SS-42 after, policy empty" if not init and not policy else f"{rule} after")
                after.append(sidecar)
        return before + own + after

    def volumes_of(self, one: Applied, earlier: list[Json]) -> list[Json]:
        """Merge volumes. [SS-48]"""
        pool = {v["name"]: v for v in one.spec.get("volumes") or []}
        present = {v["name"] for v in self.state.spec.get("volumes") or []}
        taken = {v["name"] for v in earlier}
        added: list[Json] = []
        used: set[str] = set()
        containers, inits = one.lists()
        for container in [*inits, *containers]:
            mounts = [("mount", m["name"]) for m in container.get("volumeMounts") or []]
            devices = [("device", d["name"]) for d in container.get("volumeDevices") or []]
            for kind, name in mounts + devices:
                if name in used or name not in pool:
                    continue
                used.add(name)
                if name in present:
                    self.state.branches.hit("SS-48 pod volume wins")
                elif name in taken:
                    self.state.branches.hit("SS-48 volume of an earlier set wins")
                else:
                    init = any(container is c for c in inits)
                    self.state.branches.hit(
                        "SS-48 added for an init container" if init else "SS-48 added for a container"
                    )
                    if kind == "device":
                        self.state.branches.hit("SS-48 added for a device")
                    added.append(copy.deepcopy(pool[name]))
        if set(pool) - used:
            self.state.branches.hit("SS-48 unused stays out")
        return added

    def pull_secrets(self, sets: list[Applied]) -> None:
        """Merge pull secrets. [SS-52]"""
        result: list[Json] = []
        for secret in self.state.spec.get("imagePullSecrets") or []:
            if secret["name"] in [s["name"] for s in result]:
                self.state.branches.hit("SS-52 duplicate of the pod removed")
            else:
                result.append(secret)
        for one in sets:
            for secret in one.spec.get("imagePullSecrets") or []:
                if secret["name"] in [s["name"] for s in result]:
                    self.state.branches.hit("SS-52 known secret skipped")
                else:
                    self.state.branches.hit("SS-52 secret added")
                    result.append(copy.deepcopy(secret))
        if result:
            self.state.spec["imagePullSecrets"] = result
