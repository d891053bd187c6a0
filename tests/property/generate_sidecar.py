"""Sidecars as users write them."""

from __future__ import annotations

import copy
from collections.abc import Callable

from tests.property.case import Json
from tests.property.expressions import LIMIT_BELOW_REQUEST, any_expression
from tests.property.world import DEVICES, IMAGES, PATHS, World


class SidecarMaker:
    """Makes the sidecars of one set that has these volumes."""

    def __init__(self, world: World, volumes: list[Json]) -> None:
        self.world, self.volumes = world, volumes

    def sidecar(self, name: str, *, init: bool) -> Json:
        c: Json = {"name": name, "image": self.world.pick(*IMAGES)}
        restartable = init and self.world.chance(50)
        if restartable:
            c["restartPolicy"] = "Always"
        self.core_fields(c, probes=not init or restartable)
        if self.world.chance(45, "positions", 70):
            c["podInjectPolicy"] = self.world.pick("BeforeAppContainer", "AfterAppContainer")
        if not init and self.world.chance(12, "hot", 70):
            c["upgradeStrategy"] = {"upgradeType": "HotUpgrade", "hotUpgradeEmptyImage": "registry.example/empty:1"}
        if self.world.chance(25, "share", 85) or ("subpath" in self.world.themes and self.world.chance(85)):
            c["shareVolumePolicy"] = {"type": self.world.pick("enabled", "enabled", "enabled", "enabled", "disabled")}
        if self.world.chance(10, "devices", 90):
            c["shareVolumeDevicePolicy"] = {
                "type": self.world.pick("enabled", "enabled", "enabled", "enabled", "disabled")
            }
        if self.world.chance(20, "transfer", 90):
            c["transferEnv"] = [self.transfer() for _ in range(self.world.random.randint(1, 3))]
        if (not init or restartable) and self.world.chance(8, "resources", 75):
            c["resourcesPolicy"] = self.resources_policy()
        return c

    def core_fields(self, c: Json, *, probes: bool) -> None:
        options: list[tuple[int, Callable[[], Json]]] = [
            (30, lambda: {"command": ["sleep", "1000"]}),
            (10, lambda: {"args": ["--level", "<2>&1"]}),
            (50, lambda: {"env": self.own_env()}),
            (20, lambda: {"ports": [{"containerPort": self.world.pick(80, 9090), "name": "http"}]}),
            (25, lambda: {"resources": self.world.resources()}),
            (10, lambda: {"securityContext": {"runAsUser": 1000, "allowPrivilegeEscalation": False}}),
            (8, lambda: {"envFrom": [{"configMapRef": {"name": "settings", "optional": True}}]}),
        ]
        if probes:
            options += [
                (10, lambda: {"readinessProbe": {"httpGet": {"port": 8080}}}),
                (10, lambda: {"livenessProbe": {"exec": {"command": ["true"]}, "periodSeconds": 5}}),
                (10, lambda: {"lifecycle": {"postStart": {"exec": {"command": ["true"]}}}}),
            ]
        for percent, make in options:
            if self.world.chance(percent):
                c.update(make())
        self.own_mounts(c)

    def own_env(self) -> list[Json]:
        pool: list[Json] = [
            {"name": "A", "value": "own"},
            {"name": "B", "value": "own"},
            {"name": "LOG", "value": "debug"},
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "EMPTY"},
        ]
        if self.world.chance(6, "priority", 20):
            pool = [*pool[:1], {"name": "KRUISE_CONTAINER_PRIORITY", "value": self.world.priority()}]
        return copy.deepcopy(self.world.some(pool, 1, 3))

    def own_mounts(self, c: Json) -> None:
        """Add mounts and devices of the set's volumes. Each path and each volume of a device occurs once."""
        disks = [v["name"] for v in self.volumes if "persistentVolumeClaim" in v]
        devices = [{"name": d, "devicePath": p} for d, p in zip(disks, self.world.some(DEVICES, 3, 3), strict=False)]
        if devices and self.world.chance(8, "devices", 45):
            c["volumeDevices"] = self.world.some(devices, 1, 2)
        elif devices and self.world.chance(8, "share", 20):
            # A device at a mount path of an app container.
            c["volumeDevices"] = [{**devices[0], "devicePath": self.world.pick("/data", "/logs")}]
        taken = {d["devicePath"] for d in c.get("volumeDevices") or []}
        names = [v["name"] for v in self.volumes if v["name"] not in {d["name"] for d in c.get("volumeDevices") or []}]
        if names and self.world.chance(60):
            paths = [p for p in self.world.some(PATHS, 1, 2) if p not in taken]
            if paths:
                c["volumeMounts"] = [{"name": self.world.pick(*names), "mountPath": p} for p in paths]

    def transfer(self) -> Json:
        entry: Json = {}
        if self.world.chance(45):
            kind, key = self.world.pick(("labels", "src"), ("annotations", "src"), ("labels", "none"))
            reference = {"fieldPath": f"metadata.{kind}['{key}']"}
            entry["sourceContainerNameFrom"] = {"fieldRef": reference}
        elif self.world.chance(3):
            entry = {"sourceContainerNameFrom": {}, "sourceContainerName": self.world.pick(*self.world.apps)}
        else:
            entry["sourceContainerName"] = self.world.pick(
                *self.world.apps, *self.world.apps, *self.world.apps, "nobody", "shipper"
            )
        names = ("A", "B", "POD_NAME", "NODE_IP", "PASSWORD", "NOPE", "IS_INJECTED")
        if self.world.chance(60):
            entry["envName"] = self.world.pick(*names)
        if "envName" not in entry or self.world.chance(50):
            entry["envNames"] = self.world.some(names, 1, 3)
        return entry

    def resources_policy(self) -> Json:
        expressions: Json = {}
        for kind in self.world.some(("limits", "requests"), 1, 2):
            for resource in self.world.some(("cpu", "memory"), 1, 2):
                text = any_expression(self.world.random, resource)
                if self.world.chance(6):
                    text = ""
                expressions.setdefault(kind, {})[resource] = text
        if self.world.chance(12):
            expressions = copy.deepcopy(LIMIT_BELOW_REQUEST)
        policy: Json = {"targetContainersMode": self.world.pick("sum", "max"), "resourcesExpr": expressions}
        if self.world.chance(75):
            policy["targetContainersNameRegex"] = self.world.pick(
                ".*", ".*", ".*", "^main$", "e", "[a-z]+", "^(main|helper)$"
            )
        return policy
