"""State shared by the generators of one case: randomness, themes and names."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from tests.property.case import Json

NAMESPACES = {"shop": {"env": "prod"}, "dev": {"env": "dev"}, "team-a": {"env": "prod", "team": "a"}}
SIDECARS = ("shipper", "metrics", "mesh", "tool", "agent", "zeta", "alpha", "mid", "proxy", "envoy", "probe", "keeper")
INITS = ("z-init", "a-init", "b-init", "net-init", "warm", "sidecar-init", "fetch", "c-init")
PATHS = ("/data", "/logs", "/cfg", "/cache", "/srv", "/own", "/tmp/x", "/dev/xda")
DEVICES = ("/dev/xda", "/dev/xdb", "/dev/xdc")
IMAGES = (
    "registry.example/a:1",
    "registry.example/b:2",
    "busybox",
    "nginx:latest",
    "registry.example/c@sha256:" + "a" * 64,
)
VOLUMES: dict[str, Json] = {
    "cfg": {"configMap": {"name": "settings"}},
    "data": {"emptyDir": {}},
    "logs": {"hostPath": {"path": "/var/log"}},
    "cache": {"emptyDir": {"medium": "Memory"}},
    "keys": {"secret": {"secretName": "keys"}},
    "spare": {},
    "disk": {"persistentVolumeClaim": {"claimName": "disk"}},
    "disk2": {"persistentVolumeClaim": {"claimName": "disk2"}},
}
POD_VOLUMES: dict[str, Json] = {
    "data": {"persistentVolumeClaim": {"claimName": "data"}},
    "logs": {"emptyDir": {}},
    "cache": {"emptyDir": {}},
    "cfg": {"emptyDir": {}},
    "disk": {"persistentVolumeClaim": {"claimName": "disk"}},
    "disk3": {"persistentVolumeClaim": {"claimName": "disk3"}},
}
THEMES = {
    "positions": 10,
    "init": 8,
    "hot": 8,
    "transfer": 10,
    "share": 12,
    "subpath": 10,
    "devices": 10,
    "secrets": 6,
    "metadata": 12,
    "exported": 12,
    "resources": 18,
    "revision": 8,
    "canary": 4,
    "priority": 8,
    "outside": 5,
}


class World:
    """The state of one case being generated. All random values come from here, in a fixed order."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        # A string seeds the whole state, so adjacent numbers give unrelated cases.
        self.random = random.Random(f"case {seed}")
        self.themes: set[str] = set()
        self.themes.update(self.random.choices(list(THEMES), list(THEMES.values()), k=self.pick(1, 2, 2, 3)))
        self.namespace = self.pick("shop", "shop", "dev", "team-a")
        self.sidecar_pool = self.some(SIDECARS, len(SIDECARS), len(SIDECARS))
        self.init_pool = self.some(INITS, len(INITS), len(INITS))
        self.apps = self.some(("main", "helper", "redis"), 1, 3)
        self.labels = {"app": "web", "track": self.pick("stable", "canary"), "tier": self.pick("front", "back")}
        if self.chance(40, "transfer", 70):
            self.labels["src"] = self.pick(*self.apps, "nobody")
        self.revisions: list[Json] = []
        #: Functions that break the finished Pod.
        self.pod_breakages: list[Callable[[Json], None]] = []

    def chance(self, percent: float, theme: str = "", within: float = 0.0) -> bool:
        """Return true with a probability of ``percent``, or of ``within`` percent if the theme is on."""
        return self.random.random() * 100 < (within if theme in self.themes else percent)

    def pick(self, *values: Any) -> Any:
        return self.random.choice(values)

    def some(self, values: Any, least: int, most: int) -> list[Any]:
        pool = list(values)
        return self.random.sample(pool, min(len(pool), self.random.randint(least, most)))

    def priority(self) -> str:
        return self.pick("3", "-2", "+5", "0", "10", "3", "2147483647", "-2147483647", "007")

    def resources(self) -> Json:
        limits = {}
        if self.chance(70):
            limits["cpu"] = self.pick("100m", "250m", "1", "2", "1500m")
        if self.chance(70):
            limits["memory"] = self.pick("64Mi", "100M", "1Gi", "1500Mi", "333Mi")
        requests = {}
        if self.chance(60):
            requests["cpu"] = self.pick("50m", "100m", "75m")
        if self.chance(60):
            requests["memory"] = self.pick("32Mi", "50M", "64Mi")
        return {k: v for k, v in (("limits", limits), ("requests", requests)) if v}
