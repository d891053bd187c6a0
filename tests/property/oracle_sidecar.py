"""Sidecars as injected: env, mounts, devices, hot-upgrade twins (SS-45 to SS-51, SS-78, SS-79)."""

from __future__ import annotations

import copy
import re

from tests.property.case import Json
from tests.property.oracle_basics import EXTENSIONS, VARIABLE, Refused, State, is_hot, same_value, was_injected
from tests.property.oracle_resources import computed_resources


class Builder:
    """Builds the sidecars of one Pod from its containers before any injection."""

    def __init__(self, state: State, sidecar_names: set[str]) -> None:
        self.state = state
        #: The names of all sidecars, base and twins.
        self.sidecar_names = sidecar_names

    def built(self, container: Json, *, init: bool) -> Json:
        result = {k: copy.deepcopy(v) for k, v in container.items() if k not in EXTENSIONS}
        env = [*(result.get("env") or []), {"name": "IS_INJECTED", "value": "true"}]
        if len(env) > 1:
            self.state.branches.hit("SS-46 own env first")
        result["env"] = env
        own = {e["name"] for e in env}
        self.transfer(container, env, own)
        self.share_mounts(container, result, env, init=init)
        self.share_devices(container, result)
        if container.get("resourcesPolicy"):
            if container.get("resources"):
                self.state.branches.hit("SS-60 own resources replaced")
            result["resources"] = computed_resources(self.state, container["resourcesPolicy"], self.sidecar_names)
            self.state.branches.hit("SS-60 init container computed" if init else "SS-60 container computed")
            if is_hot(container):
                self.state.branches.hit("SS-60 both twins computed")
        return result

    def pair(self, container: Json, built: Json) -> list[Json]:
        """Return the twins. [SS-78, SS-79]"""
        pair = []
        for number, version, alternative in ((1, "1", "0"), (2, "0", "1")):
            twin = copy.deepcopy(built)
            twin["name"] = name = f"{container['name']}-{number}"
            if number == 2:
                twin["image"] = container["upgradeStrategy"]["hotUpgradeEmptyImage"]
            for env, prefix, value in (
                ("SIDECARSET_VERSION", "version", version),
                ("SIDECARSET_VERSION_ALT", "versionalt", alternative),
            ):
                key = f"{prefix}.sidecarset.kruise.io/{name}"
                reference = {"apiVersion": "v1", "fieldPath": f"metadata.annotations['{key}']"}
                twin["env"].append({"name": env, "valueFrom": {"fieldRef": reference}})
                self.state.annotate(key, value)
            self.state.branches.hit("SS-46 version env of a twin")
            pair.append(twin)
        return pair

    def transfer(self, container: Json, env: list[Json], own: set[str]) -> None:
        """Add the transferred env variables. [SS-47]"""
        for entry in container.get("transferEnv") or []:
            source = self.source_of(entry)
            names = {entry.get("envName"), *(entry.get("envNames") or [])} - {None, ""}
            if len(names) > 1:
                self.state.branches.hit("SS-47 several names, sorted")
            found = [c for c in self.state.spec.get("containers") or [] if c["name"] == source]
            if not found:
                if source:
                    self.state.branches.hit("SS-47 source container missing")
                continue
            for name in sorted(names):
                values = [e for e in found[0].get("env") or [] if e["name"] == name]
                if not values:
                    self.state.branches.hit("SS-47 env missing in the source")
                elif name in own:
                    self.state.branches.hit("SS-46 own env wins")
                elif any(e["name"] == name for e in env):
                    self.state.branches.hit("SS-46 first transferred wins")
                else:
                    if "valueFrom" in values[0]:
                        self.state.branches.hit("SS-47 valueFrom copied")
                    env.append(copy.deepcopy(values[0]))

    def source_of(self, entry: Json) -> str:
        origin = entry.get("sourceContainerNameFrom")
        if origin is not None and not origin.get("fieldRef"):
            self.state.branches.hit("SS-9 source without fieldRef")
        if not origin or not origin.get("fieldRef"):
            self.state.branches.hit("SS-47 source by name")
            return str(entry.get("sourceContainerName") or "")
        kind, key = re.fullmatch(r"metadata\.(labels|annotations)\['(.+)'\]", origin["fieldRef"]["fieldPath"]).groups()  # type: ignore[union-attr]
        self.state.branches.hit(f"SS-47 source by {kind[:-1]}")
        value = (self.state.pod["metadata"].get(kind) or {}).get(key) or ""
        if not value:
            self.state.branches.hit("SS-47 label or annotation missing")
        return str(value)

    def app_containers(self) -> list[Json]:
        return [c for c in self.state.spec.get("containers") or [] if not was_injected(c)]

    def share_mounts(self, container: Json, result: Json, env: list[Json], *, init: bool) -> None:
        """Add the shared mounts and devices. [SS-49, SS-50]"""
        if (container.get("shareVolumePolicy") or {}).get("type") != "enabled":
            self.state.branches.hit("SS-49 disabled")
            return
        own_paths = {m["mountPath"] for m in container.get("volumeMounts") or []}
        own_devices = {d["devicePath"] for d in container.get("volumeDevices") or []}
        shared: list[Json] = []
        needed: dict[str, Json] = {}
        before = {e["name"]: e for e in reversed(env)}
        for c in self.state.spec.get("containers") or []:
            if was_injected(c) and c.get("volumeMounts") and c["name"] not in self.sidecar_names:
                self.state.branches.hit("SS-49 former sidecar not shared")
        for app in self.app_containers():
            for mount in app.get("volumeMounts") or []:
                path, skipped = mount["mountPath"], True
                if path in own_paths:
                    self.state.branches.hit("SS-49 own mount path taken")
                elif path in own_devices:
                    self.state.branches.hit("SS-49 own device path taken")
                elif any(m["mountPath"] == path for m in shared):
                    self.state.branches.hit("SS-49 path already shared")
                else:
                    skipped = False
                    self.state.branches.hit(
                        "SS-49 mount shared with an init container" if init else "SS-49 mount shared"
                    )
                    shared.append(copy.deepcopy(mount))
                self.copy_variables(app, mount, needed, before, skipped=skipped)
        env += needed.values()
        if shared:
            result["volumeMounts"] = (result.get("volumeMounts") or []) + shared

    def copy_variables(
        self, app: Json, mount: Json, needed: dict[str, Json], before: dict[str, Json], *, skipped: bool
    ) -> None:
        for name in VARIABLE.findall(mount.get("subPathExpr") or ""):
            values = [e for e in app.get("env") or [] if e["name"] == name]
            if not values:
                self.state.branches.hit("SS-50 variable not in the env")
            elif name in before or name in needed:
                # SS-50 (better): the sidecar would mount another directory than the app container.
                present = before.get(name) or needed[name]
                if not skipped and same_value(present) != same_value(values[0]):
                    raise Refused("SS-50 two values refused")
                self.state.branches.hit("SS-50 variable already there")
            else:
                self.state.branches.hit(
                    "SS-50 variable of a skipped mount copied" if skipped else "SS-50 variable copied"
                )
                needed[name] = copy.deepcopy(values[0])

    def share_devices(self, container: Json, result: Json) -> None:
        if (container.get("shareVolumeDevicePolicy") or {}).get("type") != "enabled":
            return
        own = {d["devicePath"] for d in container.get("volumeDevices") or []}
        mounts = {m["mountPath"] for m in result.get("volumeMounts") or []}
        shared: list[Json] = []
        for app in self.app_containers():
            for device in app.get("volumeDevices") or []:
                path = device["devicePath"]
                if path in own:
                    self.state.branches.hit("SS-51 own device path taken")
                elif path in mounts:
                    self.state.branches.hit("SS-51 path taken by a mount")
                elif any(d["devicePath"] == path for d in shared):
                    self.state.branches.hit("SS-51 path already shared")
                else:
                    self.state.branches.hit("SS-51 device shared")
                    shared.append(copy.deepcopy(device))
        if shared:
            result["volumeDevices"] = (result.get("volumeDevices") or []) + shared
