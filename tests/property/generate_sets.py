"""SidecarSets with their revisions, as users write them and as they are stored."""

from __future__ import annotations

import copy
import json
from typing import Any

from tests.property.case import MANAGER_NAMESPACE, Json
from tests.property.generate_sidecar import SidecarMaker
from tests.property.oracle_hash import set_hashes
from tests.property.product import defaulted
from tests.property.world import NAMESPACES, VOLUMES, World

SET_NAMES = ("s", "base", "canary", "tools", "a-set", "zz-set", "mesh-set", "logs-set")


class SetMaker:
    def __init__(self, world: World) -> None:
        self.world = world

    def sets(self) -> list[Json]:
        names = self.world.some(SET_NAMES, 1, self.world.pick(1, 2, 2, 3, 4))
        if self.world.chance(0, "canary", 100):
            names = ["base", "canary", *[n for n in names if n not in ("base", "canary")]][:4]
        sets = [self.sidecar_set(name) for name in names]
        if self.world.chance(0, "canary", 100):
            self.make_canary(sets[0], sets[1])
        return sets

    def stored(self, raw: list[Json]) -> list[Json]:
        """Return the sets as admission finds them, some of them stored as written, while the webhooks were absent."""
        stored = [copy.deepcopy(one) if self.world.chance(12) else defaulted(one) for one in raw]
        for one in stored:
            self.record_revisions(one)
        return stored

    def sidecar_set(self, name: str) -> Json:
        spec: Json = {"selector": self.selector(), "updateStrategy": {}}
        if (scope := self.namespace_selector()) is not None:
            spec["namespaceSelector"] = scope
        pool = self.world.some(VOLUMES, 2, len(VOLUMES))
        volumes = [{"name": volume, **copy.deepcopy(VOLUMES[volume])} for volume in pool]
        maker = SidecarMaker(self.world, volumes)
        inits = [maker.sidecar(self.world.init_pool.pop(), init=True) for _ in range(self.count_of_inits())]
        count = self.world.pick(1, 1, 2, 2, 3) if not inits or self.world.chance(70) else 0
        names = [self.world.sidecar_pool.pop() for _ in range(count) if self.world.sidecar_pool]
        containers = [maker.sidecar(container, init=False) for container in names]
        if inits:
            spec["initContainers"] = inits
        if containers:
            spec["containers"] = containers
        if volumes:
            spec["volumes"] = volumes
        if self.world.chance(25, "secrets", 90):
            spec["imagePullSecrets"] = [{"name": n} for n in self.world.some(("r1", "r2", "r3", "r4"), 1, 2)]
        if self.world.chance(20, "metadata", 90):
            spec["patchPodMetadata"] = self.metadata_patches()
        if any(c.get("restartPolicy") for c in inits) or self.world.chance(20):
            spec["updateStrategy"]["type"] = "NotUpdate"
        if self.world.chance(5):
            spec["updateStrategy"]["paused"] = True
        if self.world.chance(4):
            spec["injectionStrategy"] = {"paused": True}
        metadata: Json = {
            "name": name,
            "uid": f"uid-{name}",
            "resourceVersion": str(self.world.random.randint(1, 9999)),
        }
        if self.world.chance(2):
            metadata["deletionTimestamp"] = "2024-05-06T07:00:00Z"
        one: Json = {"apiVersion": "apps.kruise.io/v1beta1", "kind": "SidecarSet", "metadata": metadata, "spec": spec}
        if self.world.chance(85):
            one["status"] = {"latestRevision": f"{name}-{self.world.pick('5487f5fb47', '57c7f5cb48')}"}
        return one

    def count_of_inits(self) -> int:
        if not self.world.init_pool or not self.world.chance(30, "init", 95):
            return 0
        return min(len(self.world.init_pool), self.world.pick(1, 1, 2, 2))

    def selector(self) -> Json:
        if self.world.chance(3):
            return self.world.pick({}, {"matchLabels": {}})
        if self.world.chance(9, "outside", 50):
            return {
                "matchLabels": {"app": self.world.pick("web", "other"), "track": self.world.pick("stable", "canary")}
            }
        return self.world.pick(
            {"matchLabels": {"app": "web"}},
            {"matchLabels": {"app": "web"}},
            {"matchExpressions": [{"key": "app", "operator": "In", "values": ["web", "api"]}]},
            {"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "tier", "operator": "Exists"}]},
            {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["db"]}]},
            {"matchExpressions": [{"key": "gone", "operator": "DoesNotExist"}]},
        )

    def namespace_selector(self) -> Json | None:
        key = "kubernetes.io/metadata.name"
        if self.world.chance(50, "outside", 20):
            return None
        other = self.world.pick(*NAMESPACES) if self.world.chance(8, "outside", 60) else self.world.namespace
        return self.world.pick(
            {"matchLabels": {key: other}},
            {"matchExpressions": [{"key": key, "operator": "In", "values": sorted({other, "dev"})}]},
            {"matchLabels": {"env": NAMESPACES[other]["env"]}},
            {"matchExpressions": [{"key": "env", "operator": "In", "values": ["prod", NAMESPACES[other]["env"]]}]},
            {"matchExpressions": [{"key": key, "operator": "NotIn", "values": ["kube-system"]}]},
        )

    def make_canary(self, base: Json, canary: Json) -> None:
        for one in (base, canary):
            if self.world.chance(80):
                one["spec"]["selector"] = {"matchLabels": {"app": "web"}}
                one["spec"].pop("namespaceSelector", None)
        canary["metadata"]["annotations"] = {
            "apps.kruise.io/sidecarset-canary": "true",
            "apps.kruise.io/sidecarset-base": base["metadata"]["name"],
        }
        canary["spec"]["updateStrategy"]["type"] = "NotUpdate"
        if self.world.chance(20):
            canary["spec"]["injectionStrategy"] = {"paused": True}
        elif base["spec"].get("containers") and canary["spec"].get("containers"):
            canary["spec"]["containers"][0]["name"] = base["spec"]["containers"][0]["name"]

    def certain(self, one: Json) -> None:
        """Make this set apply and have a container."""
        one["metadata"].pop("deletionTimestamp", None)
        one["spec"].pop("namespaceSelector", None)
        one["spec"].pop("injectionStrategy", None)
        one["spec"]["selector"] = {"matchLabels": {"app": "web"}}
        if not one["spec"].get("containers"):
            maker = SidecarMaker(self.world, one["spec"].get("volumes") or [])
            one["spec"]["containers"] = [maker.sidecar("extra", init=False)]

    def record_revisions(self, one: Json) -> None:
        if not self.world.chance(6, "revision", 85):
            return
        name = one["metadata"]["name"]
        for number in range(1, self.world.random.randint(1, 3) + 1):
            self.world.revisions.append(self.revision(one, name, number))
        wanted: Json = {}
        if self.world.chance(50):
            wanted["revisionName"] = f"{name}-r{self.world.random.randint(1, 3) if self.world.chance(10) else 1}"
        if not wanted or self.world.chance(20):
            wanted["customVersion"] = self.world.pick("v1", "v1", "v1", "v2")
        if self.world.chance(8):
            # Without a name or version, no revision is looked up.
            wanted = {}
        wanted["policy"] = self.world.pick("Always", "Partial", "Partial")
        strategy = one["spec"].setdefault("updateStrategy", {})
        if wanted["policy"] == "Partial":
            strategy["partition"] = self.world.pick(0, 3, "0%", "30%", "50%", "80%", "100%", "120%")
            if self.world.chance(25):
                strategy["selector"] = {"matchLabels": {"track": self.world.pick("stable", "canary")}}
        elif "policy" in wanted and self.world.chance(10):
            wanted.pop("policy")
        one["spec"].setdefault("injectionStrategy", {})["revision"] = wanted

    def revision(self, one: Json, name: str, number: int) -> Json:
        spec = copy.deepcopy(one["spec"])
        for container in (spec.get("containers") or []) + (spec.get("initContainers") or []):
            container["image"] = f"registry.example/old:{number}"
        if len(spec.get("containers") or []) > 1 and self.world.chance(30):
            spec["containers"].pop()
        if self.world.chance(20):
            spec["patchPodMetadata"] = None
        keys = ("containers", "imagePullSecrets", "initContainers", "patchPodMetadata", "volumes")
        labels = {"kruise.io/sidecarset-name": name}
        if number == 1 or self.world.chance(60):
            labels["apps.kruise.io/sidecarset-custom-version"] = self.world.pick("v1", f"v{number}")
        metadata: Json = {"name": f"{name}-r{number}", "namespace": MANAGER_NAMESPACE, "labels": labels}
        if self.world.chance(75):
            plain, without_image = set_hashes(spec.get("containers"), spec.get("initContainers"))
            metadata["annotations"] = {
                "kruise.io/sidecarset-hash": plain,
                "kruise.io/sidecarset-hash-without-image": without_image,
            }
        return {
            "apiVersion": "apps/v1",
            "kind": "ControllerRevision",
            "metadata": metadata,
            "revision": number,
            "data": {"spec": {"$patch": "replace", **{key: spec.get(key) for key in keys}}},
        }

    def metadata_patches(self) -> list[Json]:
        """Return metadata patches. Keys name their policy, so that sets do not conflict; only one key is shared."""
        entries = []
        for policy in self.world.some(("Retain", "Overwrite", "MergePatchJson"), 1, 3):
            annotations: Json = {}
            if policy == "Retain":
                annotations = {f"retain-{n}": self.world.pick("x", "y") for n in self.world.some("12", 1, 2)}
                if self.world.chance(25):
                    annotations["merge-1"] = self.world.pick('{"kept":1}', "plain")
                if self.world.chance(20):
                    annotations["src"] = self.world.pick(*self.world.apps)
            elif policy == "Overwrite":
                annotations = {f"overwrite-{n}": self.world.pick("x", "y") for n in self.world.some("12", 1, 2)}
                if self.world.chance(25, "priority", 60):
                    annotations["apps.kruise.io/container-launch-priority"] = "Ordered"
            else:
                annotations = {f"merge-{n}": self.merge_text() for n in self.world.some("12", 1, 2)}
            entry: Json = {"annotations": annotations}
            if policy != "Retain" or self.world.chance(50):
                entry["patchPolicy"] = policy
            entries.append(entry)
        return entries

    def merge_text(self) -> str:
        value: Any = {self.world.pick("a", "b", "shipper"): self.world.pick(1, "x", [1], {"z": 1}, {"y": {"q": 2}})}
        if self.world.chance(60):
            value[self.world.pick("main", "drop")] = self.world.pick(None, None, None, 3)
        if self.world.chance(4):
            value = self.world.pick([1, 2], "text", 5)
        return json.dumps(value) if self.world.chance(50) else json.dumps(value, separators=(",", ":"))
