"""A case from a number: a Pod, one to four SidecarSets, namespaces, revisions.

Themes raise the odds of what belongs together, so that every branch of the rules is met often enough; below them
everything mixes. The same number gives the same case in every process.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from typing import Any

from tests.property.case import MANAGER_NAMESPACE, Case, Json
from tests.property.defaults import default_pod, defaulted_set
from tests.property.expressions import BROKEN, LIMIT_BELOW_REQUEST, any_expression
from tests.property.oracle_hash import set_hashes

NAMESPACES = {"shop": {"env": "prod"}, "dev": {"env": "dev"}, "team-a": {"env": "prod", "team": "a"}}
SET_NAMES = ("s", "base", "canary", "tools", "a-set", "zz-set", "mesh-set", "logs-set")
SIDECARS = ("shipper", "metrics", "mesh", "tool", "agent", "zeta", "alpha", "mid", "proxy", "envoy", "probe", "keeper")
INITS = ("z-init", "a-init", "b-init", "net-init", "warm", "sidecar-init", "fetch", "c-init")
PATHS = ("/data", "/logs", "/cfg", "/cache", "/work", "/own", "/tmp/x", "/dev/xda")
DEVICES = ("/dev/xda", "/dev/xdb", "/dev/xdc")
IMAGES = ("registry.example/a:1", "registry.example/b:2", "busybox", "nginx:latest", "registry.example/c@sha256:" + "a" * 64)
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


def generate(seed: int) -> Case:
    """The case of this number."""
    return _Generator(seed).case()


class _Generator:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        # A string is hashed into the whole state: neighbouring numbers give unrelated cases.
        self.random = random.Random(f"case {seed}")
        self.themes: set[str] = set()
        #: What is wrong on purpose in about every third case: refusals, and what must pass untouched.
        self.breakage = self.pick(*BREAKAGES, *EXPRESSION_BREAKAGES) if self.chance(40) else ""
        self.themes.update(self.random.choices(list(THEMES), list(THEMES.values()), k=self.pick(1, 2, 2, 3)))

    # --- chances -----------------------------------------------------------------------------------------------------

    def chance(self, percent: float, theme: str = "", within: float = 0.0) -> bool:
        """True in so many cases of a hundred, or in ``within`` of a hundred when the theme is on."""
        return self.random.random() * 100 < (within if theme in self.themes else percent)

    def pick(self, *values: Any) -> Any:
        return self.random.choice(values)

    def some(self, values: Any, least: int, most: int) -> list[Any]:
        pool = list(values)
        return self.random.sample(pool, min(len(pool), self.random.randint(least, most)))

    # --- the case ----------------------------------------------------------------------------------------------------

    def case(self) -> Case:
        self.namespace = self.pick("shop", "shop", "dev", "team-a")
        self.sidecar_pool = self.some(SIDECARS, len(SIDECARS), len(SIDECARS))
        self.init_pool = self.some(INITS, len(INITS), len(INITS))
        self.revisions: list[Json] = []
        self.pod_breakages: list[Callable[[Json], None]] = []
        self.apps = self.some(("main", "helper", "redis"), 1, 3)
        self.labels = {"app": "web", "track": self.pick("stable", "canary"), "tier": self.pick("front", "back")}
        if self.chance(40, "transfer", 70):
            self.labels["src"] = self.pick(*self.apps, "nobody")
        sets = self.sets()
        pod = self.pod(sets)
        namespaces = [
            {"metadata": {"name": n, "labels": {"kubernetes.io/metadata.name": n, **labels}}}
            for n, labels in NAMESPACES.items()
            if not (n == self.namespace and self.chance(1))
        ]
        self.random.shuffle(sets)
        return Case(
            self.seed,
            pod,
            self.namespace,
            namespaces,
            sets,
            self.revisions,
            readiness_gate_for_all=self.chance(20),
            sort_by_name=self.chance(15, "positions", 60),
            draw=(self.random.randrange(100) + 0.5) / 100,
            dry_run=self.chance(10),
        )

    # --- sets --------------------------------------------------------------------------------------------------------

    def sets(self) -> list[Json]:
        names = self.some(SET_NAMES, 1, self.pick(1, 2, 2, 3, 4))
        if self.chance(0, "canary", 100):
            names = ["base", "canary", *[n for n in names if n not in ("base", "canary")]][:4]
        sets = [self.sidecar_set(name) for name in names]
        if self.chance(0, "canary", 100):
            self.make_canary(sets[0], sets[1])
        if self.breakage:
            self.certain(sets[0])
            BREAKAGES[self.breakage](self, sets)
        stored = []
        for one in sets:
            # Some stay as a user writes them: the store of a server without webhooks, or a file.
            final = one if self.chance(12) else defaulted_set(one)
            self.record_revisions(final)
            stored.append(final)
        return stored

    def sidecar_set(self, name: str) -> Json:
        spec: Json = {"selector": self.selector(), "updateStrategy": {}}
        if (scope := self.namespace_selector()) is not None:
            spec["namespaceSelector"] = scope
        pool = self.some(VOLUMES, 2, len(VOLUMES))
        self.volumes = [{"name": volume, **copy.deepcopy(VOLUMES[volume])} for volume in pool]
        inits = [self.sidecar(self.init_pool.pop(), init=True) for _ in range(self.count_of_inits())]
        count = self.pick(1, 1, 2, 2, 3) if not inits or self.chance(70) else 0
        containers = [self.sidecar(self.sidecar_pool.pop(), init=False) for _ in range(count) if self.sidecar_pool]
        if inits:
            spec["initContainers"] = inits
        if containers:
            spec["containers"] = containers
        if self.volumes:
            spec["volumes"] = self.volumes
        if self.chance(25, "secrets", 90):
            spec["imagePullSecrets"] = [{"name": n} for n in self.some(("r1", "r2", "r3", "r4"), 1, 2)]
        if self.chance(20, "metadata", 90):
            spec["patchPodMetadata"] = self.metadata_patches()
        if any(c.get("restartPolicy") for c in inits) or self.chance(20):
            spec["updateStrategy"]["type"] = "NotUpdate"
        if self.chance(5):
            spec["updateStrategy"]["paused"] = True
        if self.chance(4):
            spec["injectionStrategy"] = {"paused": True}
        metadata: Json = {"name": name, "uid": f"uid-{name}", "resourceVersion": str(self.random.randint(1, 9999))}
        if self.chance(2):
            metadata["deletionTimestamp"] = "2024-05-06T07:00:00Z"
        one: Json = {"apiVersion": "apps.kruise.io/v1beta1", "kind": "SidecarSet", "metadata": metadata, "spec": spec}
        if self.chance(85):
            one["status"] = {"latestRevision": f"{name}-{self.pick('5487f5fb47', '57c7f5cb48')}"}
        return one

    def count_of_inits(self) -> int:
        if not self.init_pool or not self.chance(30, "init", 95):
            return 0
        return min(len(self.init_pool), self.pick(1, 1, 2, 2))

    def selector(self) -> Json:
        if self.chance(3):
            return self.pick({}, {"matchLabels": {}})
        if self.chance(9, "outside", 50):
            return {"matchLabels": {"app": self.pick("web", "other"), "track": self.pick("stable", "canary")}}
        return self.pick(
            {"matchLabels": {"app": "web"}},
            {"matchLabels": {"app": "web"}},
            {"matchExpressions": [{"key": "app", "operator": "In", "values": ["web", "api"]}]},
            {"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "tier", "operator": "Exists"}]},
            {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["db"]}]},
            {"matchExpressions": [{"key": "gone", "operator": "DoesNotExist"}]},
        )

    def namespace_selector(self) -> Json | None:
        key = "kubernetes.io/metadata.name"
        if self.chance(50, "outside", 20):
            return None
        other = self.pick(*NAMESPACES) if self.chance(8, "outside", 60) else self.namespace
        return self.pick(
            {"matchLabels": {key: other}},
            {"matchExpressions": [{"key": key, "operator": "In", "values": sorted({other, "dev"})}]},
            {"matchLabels": {"env": NAMESPACES[other]["env"]}},
            {"matchExpressions": [{"key": "env", "operator": "In", "values": ["prod", NAMESPACES[other]["env"]]}]},
            {"matchExpressions": [{"key": key, "operator": "NotIn", "values": ["kube-system"]}]},
        )

    def make_canary(self, base: Json, canary: Json) -> None:
        for one in (base, canary):
            if self.chance(80):
                one["spec"]["selector"] = {"matchLabels": {"app": "web"}}
                one["spec"].pop("namespaceSelector", None)
        canary["metadata"]["annotations"] = {
            "apps.kruise.io/sidecarset-canary": "true",
            "apps.kruise.io/sidecarset-base": base["metadata"]["name"],
        }
        canary["spec"]["updateStrategy"]["type"] = "NotUpdate"
        if self.chance(20):
            canary["spec"]["injectionStrategy"] = {"paused": True}
        elif base["spec"].get("containers") and canary["spec"].get("containers"):
            canary["spec"]["containers"][0]["name"] = base["spec"]["containers"][0]["name"]

    def certain(self, one: Json) -> None:
        """Make this set one that applies and has a container."""
        one["metadata"].pop("deletionTimestamp", None)
        one["spec"].pop("namespaceSelector", None)
        one["spec"].pop("injectionStrategy", None)
        one["spec"]["selector"] = {"matchLabels": {"app": "web"}}
        one["spec"].setdefault("containers", []) or one["spec"]["containers"].append(self.sidecar("extra", init=False))

    # --- revisions ---------------------------------------------------------------------------------------------------

    def record_revisions(self, one: Json) -> None:
        if not self.chance(6, "revision", 85):
            return
        name = one["metadata"]["name"]
        for number in range(1, self.random.randint(1, 3) + 1):
            self.revisions.append(self.revision(one, name, number))
        wanted: Json = {}
        if self.chance(50):
            wanted["revisionName"] = f"{name}-r{self.random.randint(1, 3) if self.chance(10) else 1}"
        if not wanted or self.chance(20):
            wanted["customVersion"] = self.pick("v1", "v1", "v1", "v2")
        wanted["policy"] = self.pick("Always", "Partial", "Partial")
        strategy = one["spec"].setdefault("updateStrategy", {})
        if wanted["policy"] == "Partial":
            strategy["partition"] = self.pick(0, 3, "0%", "30%", "50%", "80%", "100%", "120%")
            if self.chance(25):
                strategy["selector"] = {"matchLabels": {"track": self.pick("stable", "canary")}}
        elif "policy" in wanted and self.chance(10):
            wanted.pop("policy")
        one["spec"].setdefault("injectionStrategy", {})["revision"] = wanted

    def revision(self, one: Json, name: str, number: int) -> Json:
        spec = copy.deepcopy(one["spec"])
        for container in (spec.get("containers") or []) + (spec.get("initContainers") or []):
            container["image"] = f"registry.example/old:{number}"
        if len(spec.get("containers") or []) > 1 and self.chance(30):
            spec["containers"].pop()
        if self.chance(20):
            spec["patchPodMetadata"] = None
        keys = ("containers", "imagePullSecrets", "initContainers", "patchPodMetadata", "volumes")
        labels = {"kruise.io/sidecarset-name": name}
        if number == 1 or self.chance(60):
            labels["apps.kruise.io/sidecarset-custom-version"] = self.pick("v1", f"v{number}")
        metadata: Json = {"name": f"{name}-r{number}", "namespace": MANAGER_NAMESPACE, "labels": labels}
        if self.chance(75):
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

    # --- sidecars ----------------------------------------------------------------------------------------------------

    def sidecar(self, name: str, *, init: bool) -> Json:
        c: Json = {"name": name, "image": self.pick(*IMAGES)}
        restartable = init and self.chance(50)
        if restartable:
            c["restartPolicy"] = "Always"
        self.core_fields(c, probes=not init or restartable)
        if self.chance(45, "positions", 70):
            c["podInjectPolicy"] = self.pick("BeforeAppContainer", "AfterAppContainer")
        if not init and self.chance(12, "hot", 70):
            c["upgradeStrategy"] = {"upgradeType": "HotUpgrade", "hotUpgradeEmptyImage": "registry.example/empty:1"}
        if self.chance(25, "share", 85) or ("subpath" in self.themes and self.chance(85)):
            c["shareVolumePolicy"] = {"type": self.pick("enabled", "enabled", "enabled", "enabled", "disabled")}
        if self.chance(10, "devices", 90):
            c["shareVolumeDevicePolicy"] = {"type": self.pick("enabled", "enabled", "enabled", "enabled", "disabled")}
        if self.chance(20, "transfer", 90):
            c["transferEnv"] = [self.transfer() for _ in range(self.random.randint(1, 3))]
        if (not init or restartable) and self.chance(8, "resources", 75):
            c["resourcesPolicy"] = self.resources_policy()
        return c

    def core_fields(self, c: Json, *, probes: bool) -> None:
        options: list[tuple[int, Callable[[], Json]]] = [
            (30, lambda: {"command": ["sleep", "1000"]}),
            (10, lambda: {"args": ["--level", "<2>&1"]}),
            (50, lambda: {"env": self.own_env()}),
            (20, lambda: {"ports": [{"containerPort": self.pick(80, 9090), "name": "http"}]}),
            (25, lambda: {"resources": self.resources()}),
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
            if self.chance(percent):
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
        if self.chance(6, "priority", 20):
            pool = [*pool[:1], {"name": "KRUISE_CONTAINER_PRIORITY", "value": self.priority()}]
        return copy.deepcopy(self.some(pool, 1, 3))

    def own_mounts(self, c: Json) -> None:
        """Mounts and devices of the set's volumes, each path and each device volume once."""
        disks = [v["name"] for v in self.volumes if "persistentVolumeClaim" in v]
        devices = [{"name": d, "devicePath": p} for d, p in zip(disks, self.some(DEVICES, 3, 3), strict=False)]
        if devices and self.chance(8, "devices", 45):
            c["volumeDevices"] = self.some(devices, 1, 2)
        elif devices and self.chance(8, "share", 20):
            # A device where an app container has a mount.
            c["volumeDevices"] = [{**devices[0], "devicePath": self.pick("/data", "/logs")}]
        taken = {d["devicePath"] for d in c.get("volumeDevices") or []}
        names = [v["name"] for v in self.volumes if v["name"] not in {d["name"] for d in c.get("volumeDevices") or []}]
        if names and self.chance(60):
            paths = [p for p in self.some(PATHS, 1, 2) if p not in taken]
            if paths:
                c["volumeMounts"] = [{"name": self.pick(*names), "mountPath": p} for p in paths]

    def transfer(self) -> Json:
        entry: Json = {}
        if self.chance(45):
            kind, key = self.pick(("labels", "src"), ("annotations", "src"), ("labels", "none"))
            reference = {"fieldPath": f"metadata.{kind}['{key}']"}
            entry["sourceContainerNameFrom"] = {"fieldRef": reference}
        elif self.chance(3):
            entry = {"sourceContainerNameFrom": {}, "sourceContainerName": self.pick(*self.apps)}
        else:
            entry["sourceContainerName"] = self.pick(*self.apps, *self.apps, *self.apps, "nobody", "shipper")
        names = ("A", "B", "POD_NAME", "NODE_IP", "PASSWORD", "NOPE", "IS_INJECTED")
        if self.chance(60):
            entry["envName"] = self.pick(*names)
        if "envName" not in entry or self.chance(50):
            entry["envNames"] = self.some(names, 1, 3)
        return entry

    def metadata_patches(self) -> list[Json]:
        """Keys begin with the policy they get in every set, or a legal mixture could not exist; one is shared."""
        entries = []
        for policy in self.some(("Retain", "Overwrite", "MergePatchJson"), 1, 3):
            annotations: Json = {}
            if policy == "Retain":
                annotations = {f"retain-{n}": self.pick("x", "y") for n in self.some("12", 1, 2)}
                if self.chance(25):
                    annotations["merge-1"] = self.pick('{"kept":1}', "plain")
                if self.chance(20):
                    annotations["src"] = self.pick(*self.apps)
            elif policy == "Overwrite":
                annotations = {f"overwrite-{n}": self.pick("x", "y") for n in self.some("12", 1, 2)}
                if self.chance(25, "priority", 60):
                    annotations["apps.kruise.io/container-launch-priority"] = "Ordered"
            else:
                annotations = {f"merge-{n}": self.merge_text() for n in self.some("12", 1, 2)}
            entry: Json = {"annotations": annotations}
            if policy != "Retain" or self.chance(50):
                entry["patchPolicy"] = policy
            entries.append(entry)
        return entries

    def merge_text(self) -> str:
        value: Any = {self.pick("a", "b", "shipper"): self.pick(1, "x", [1], {"z": 1}, {"y": {"q": 2}})}
        if self.chance(60):
            value[self.pick("main", "drop")] = self.pick(None, None, None, 3)
        if self.chance(4):
            value = self.pick([1, 2], "text", 5)
        return json.dumps(value) if self.chance(50) else json.dumps(value, separators=(",", ":"))

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

    def resources_policy(self) -> Json:
        expressions: Json = {}
        for kind in self.some(("limits", "requests"), 1, 2):
            for resource in self.some(("cpu", "memory"), 1, 2):
                text = any_expression(self.random, resource)
                if self.chance(6):
                    text = ""
                expressions.setdefault(kind, {})[resource] = text
        if self.chance(12):
            expressions = copy.deepcopy(LIMIT_BELOW_REQUEST)
        policy: Json = {
            "targetContainersMode": self.pick("sum", "max"),
            "resourcesExpr": expressions,
        }
        if self.chance(75):
            policy["targetContainersNameRegex"] = self.pick(".*", ".*", ".*", "^main$", "e", "[a-z]+", "^(main|helper)$")
        return policy

    # --- the Pod -----------------------------------------------------------------------------------------------------

    def pod(self, sets: list[Json]) -> Json:
        metadata: Json = {"name": f"pod-{self.seed}", "labels": self.labels}
        if self.chance(12):
            metadata["generateName"] = metadata.pop("name") + "-" + self.pick("", "x" * 60)
        if self.chance(70):
            metadata["namespace"] = self.namespace
        if self.chance(20):
            metadata["ownerReferences"] = [self.owner()]
        self.pod_volumes: set[str] = set()
        containers = [self.app_container(name) for name in self.apps]
        self.add_sidecar_names(containers, sets)
        if "subpath" in self.themes:
            self.subpaths(containers)
        if "priority" in self.themes or self.chance(4):
            self.priorities(containers)
        spec: Json = {"containers": containers}
        if self.chance(30, "init", 60):
            spec["initContainers"] = self.init_containers(sets)
        volumes = sorted(self.pod_volumes | set(self.some(POD_VOLUMES, 0, 1)))
        if volumes:
            spec["volumes"] = [{"name": n, **copy.deepcopy(POD_VOLUMES[n])} for n in volumes]
        if self.chance(25, "secrets", 85):
            spec["imagePullSecrets"] = [{"name": n} for n in self.random.choices(("r1", "r2", "r5"), k=self.pick(1, 2, 3))]
        annotations = self.pod_annotations(sets, containers)
        if annotations:
            metadata["annotations"] = annotations
        pod: Json = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        for change in self.pod_breakages:
            change(pod)
        self.oddities(pod)
        return pod

    def oddities(self, pod: Json) -> None:
        if self.chance(4):
            pod["spec"]["fieldOfTheFuture"] = {"kept": [1, None, {"a~b/c": "ü"}]}
        if self.chance(75):
            filled = default_pod(pod, token=self.chance(60))
            pod.update(filled)
        if self.chance(1.5, "outside", 10):
            pod["status"] = {"phase": self.pick("Succeeded", "Failed")}
        elif self.chance(30):
            pod["status"] = {}
        if self.chance(0.5, "outside", 5):
            pod["metadata"]["deletionTimestamp"] = "2024-05-06T07:00:00Z"
        if self.chance(0.7, "outside", 6):
            pod["metadata"].setdefault("annotations", {})["kubernetes.io/config.mirror"] = "x"
        if self.chance(3):
            for container in pod["spec"]["containers"]:
                container.setdefault("env", None)
                container.setdefault("volumeMounts", None)
            for name in ("initContainers", "volumes", "imagePullSecrets"):
                pod["spec"].setdefault(name, None)
            pod["metadata"].setdefault("annotations", None)
            pod["metadata"]["creationTimestamp"] = None

    def owner(self) -> Json:
        version, kind = self.pick(("apps.kruise.io/v1beta1", "CloneSet"), ("apps/v1", "ReplicaSet"))
        owner: Json = {"apiVersion": version, "kind": kind, "name": "web", "uid": "uid-web"}
        if self.chance(90):
            owner["controller"] = True
        return owner

    def app_container(self, name: str) -> Json:
        c: Json = {"name": name, "image": self.pick(*IMAGES)}
        env: list[Json] = [
            {"name": "A", "value": self.pick("1", "2")},
            {"name": "B", "value": "2"},
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "NODE_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}},
            {"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "password"}}},
        ]
        if self.chance(85, "transfer", 97):
            c["env"] = self.some(env, 1, 5)
        if self.chance(60, "resources", 90):
            c["resources"] = self.resources()
        disks = [d for d in ("disk", "disk3") if self.chance(15, "devices", 80)]
        if disks:
            paths = self.some(DEVICES, 2, 2)
            c["volumeDevices"] = [{"name": d, "devicePath": p} for d, p in zip(disks, paths, strict=False)]
            self.pod_volumes |= set(disks)
        taken = {d["devicePath"] for d in c.get("volumeDevices") or []}
        if self.chance(60, "share", 95):
            paths = [p for p in self.some(("/data", "/logs", "/cfg", "/dev/xda"), 1, 3) if p not in taken]
            names = self.some(("data", "logs", "cache", "cfg"), len(paths), len(paths))
            c["volumeMounts"] = [{"name": n, "mountPath": p} for n, p in zip(names, paths, strict=True)]
            self.pod_volumes |= set(names)
        return c

    def add_sidecar_names(self, containers: list[Json], sets: list[Json]) -> None:
        """EX-12: containers of the Pod that a set will overwrite."""
        for one in sets:
            for sidecar in one["spec"].get("containers") or []:
                hot = (sidecar.get("upgradeStrategy") or {}).get("upgradeType") == "HotUpgrade"
                if not self.chance(6, "positions", 20) and not (hot and self.chance(20)):
                    continue
                name = sidecar["name"] + (self.pick("-1", "-2", "") if hot else "")
                if all(c["name"] != name for c in containers):
                    containers.insert(self.random.randint(0, len(containers)), self.app_container(name))

    def subpaths(self, containers: list[Json]) -> None:
        """Mounts whose path inside the volume depends on the container's env."""
        for container in containers:
            if not self.chance(85):
                continue
            mounts = container.setdefault("volumeMounts", [])
            # Only mount paths inside /sub: they may meet each other but no other mount or device.
            path = self.pick("/sub/one", "/sub/two")
            variable = self.pick("ZONE", "ZONE", "POD_NAME", "A", "UNKNOWN")
            mounts.append({"name": "logs", "mountPath": path, "subPathExpr": f"$({variable})/x"})
            self.pod_volumes.add("logs")
            if variable == "ZONE" and self.chance(90):
                value = self.pick("eu", "eu", "eu", "us")
                container["env"] = [*(container.get("env") or []), {"name": "ZONE", "value": value}]

    def init_containers(self, sets: list[Json]) -> list[Json]:
        names = self.some(("prep", "setup", "log-init"), 1, 2)
        for one in sets:
            for sidecar in one["spec"].get("initContainers") or []:
                if self.chance(12, "positions", 30):
                    names.append(sidecar["name"])
        containers = []
        for name in names:
            c: Json = {"name": name, "image": self.pick(*IMAGES)}
            if self.chance(45):
                c["restartPolicy"] = "Always"
            if self.chance(60):
                c["resources"] = self.resources()
            if self.chance(30):
                c["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
                self.pod_volumes.add("data")
            containers.append(c)
        return containers

    def priority(self) -> str:
        return self.pick("3", "-2", "+5", "0", "10", "3", "2147483647", "-2147483647", "007")

    def priorities(self, containers: list[Json]) -> None:
        same = self.priority()
        for container in containers:
            if self.chance(55):
                env: Json = {"name": "KRUISE_CONTAINER_PRIORITY", "value": same if self.chance(40) else self.priority()}
                container["env"] = [*(container.get("env") or []), env]
                if self.chance(5):
                    container["env"].append({"name": "KRUISE_CONTAINER_BARRIER", "value": "mine"})

    def pod_annotations(self, sets: list[Json], containers: list[Json]) -> Json:
        annotations: Json = {}
        if self.chance(15, "transfer", 50):
            annotations["src"] = self.pick(*self.apps)
        if self.chance(15, "metadata", 70):
            for n in self.some(("retain-1", "retain-2", "overwrite-1", "overwrite-2"), 1, 3):
                annotations[n] = self.pick("user", "")
            for n in self.some(("merge-1", "merge-2"), 1, 2):
                annotations[n] = self.pick('{"a":0,"main":2}', '{"drop":1, "main":{"z":0}}', "", '{"a":{"z":9}}', "[1]")
        if self.chance(4, "priority", 35):
            annotations["apps.kruise.io/container-launch-priority"] = self.launch_priority(sets, containers)
        if "exported" in self.themes:
            self.exported(annotations, sets, containers)
        return annotations

    def launch_priority(self, sets: list[Json], containers: list[Json]) -> str:
        if self.chance(50):
            return self.pick("Ordered", "Ordered", "Ordered", "ordered", "", "other")
        names = self.some([c["name"] for c in containers], 1, 3)
        return json.dumps({name: self.pick(0, 1, 2, 2, -5) for name in names})

    def exported(self, annotations: Json, sets: list[Json], containers: list[Json]) -> None:
        """A Pod created again from an export: annotations and sidecars of its former life."""
        names = self.some([s["metadata"]["name"] for s in sets] + ["old", "older"], 1, 3)
        form = self.pick("new", "new", "old", "old", "empty", "null", "null")
        plain: Json = {}
        for name in sorted(names):
            if form == "old":
                plain[name] = f"hash-of-{name}"
            else:
                plain[name] = {
                    "updateTimestamp": None if form == "null" else "2023-01-01T00:00:00Z",
                    "hash": f"hash-of-{name}",
                    "sidecarSetName": name,
                    "sidecarList": None if form == "null" else ["shipper"],
                }
        text = "" if form == "empty" else json.dumps(plain, separators=(",", ":"))
        annotations["kruise.io/sidecarset-hash"] = text
        if self.chance(80):
            annotations["kruise.io/sidecarset-hash-without-image"] = text
        if self.chance(80):
            annotations["kruise.io/sidecarset-injected-list"] = ",".join(sorted(names))
        if self.chance(20):
            annotations["kruise.io/sidecarset-working-hotupgrade-container"] = '{"old-hot":"old-hot-2"}'
        if self.chance(70):
            former = self.app_container("former")
            former["env"] = [*(former.get("env") or []), {"name": "IS_INJECTED", "value": "true"}]
            containers.insert(self.random.randint(0, len(containers)), former)

# --- what is wrong on purpose ----------------------------------------------------------------------------------------

Breakage = Callable[[_Generator, list[Json]], None]
BAD_HASHES = ("oops", "[]", '{"s":1}', '{"s":["x"]}', '{"s":"x","t":{"hash":"y"}}')


def _annotate(pod: Json, **annotations: str) -> None:
    pod["metadata"].setdefault("annotations", {}).update(annotations)


def _bad_merge(pod_value: tuple[str, ...], texts: tuple[str, ...]) -> Breakage:
    """SS-53: one side is no JSON."""

    def break_(generator: _Generator, sets: list[Json]) -> None:
        entry = {"annotations": {"merge-3": generator.pick(*texts)}, "patchPolicy": "MergePatchJson"}
        sets[0]["spec"].setdefault("patchPodMetadata", []).append(entry)
        generator.pod_breakages.append(lambda pod: _annotate(pod, **{"merge-3": generator.pick(*pod_value)}))

    return break_


def _bad_hash(key: str) -> Breakage:
    """SS-59."""

    def break_(generator: _Generator, sets: list[Json]) -> None:
        generator.pod_breakages.append(lambda pod: _annotate(pod, **{key: generator.pick(*BAD_HASHES)}))

    return break_


def _bad_hash_unread(generator: _Generator, sets: list[Json]) -> None:
    """SS-59: nothing is injected, so nothing is read."""
    generator.labels.update(app="db", gone="x")
    generator.pod_breakages.append(lambda pod: _annotate(pod, **{"kruise.io/sidecarset-hash": "oops"}))


def _bad_policy(text: Callable[[str], str], pattern: str = ".*") -> Breakage:
    """SS-61, SS-64, SS-65: a request is always computed, so the expression is always met."""

    def break_(generator: _Generator, sets: list[Json]) -> None:
        resource = generator.pick("cpu", "memory")
        generator.pick(*sets[0]["spec"]["containers"])["resourcesPolicy"] = {
            "targetContainersMode": generator.pick("sum", "max"),
            "targetContainersNameRegex": pattern,
            "resourcesExpr": {"requests": {resource: text(resource)}},
        }

    return break_


def _two_values(generator: _Generator, sets: list[Json]) -> None:
    """SS-50: one variable means two things."""
    sets[0]["spec"]["containers"][0]["shareVolumePolicy"] = {"type": "enabled"}

    def change(pod: Json) -> None:
        containers = [c for c in pod["spec"]["containers"] if c["name"] != "former"]
        if len(containers) < 2:
            containers.append(generator.app_container("second"))
            pod["spec"]["containers"].append(containers[-1])
        for number, container in enumerate(containers[:2]):
            mount = {"name": "logs", "mountPath": f"/sub/{generator.pick('one', number)}", "subPathExpr": "$(SIDE)"}
            container.setdefault("volumeMounts", []).append(mount)
            container.setdefault("env", []).append({"name": "SIDE", "value": f"side-{number}"})
        volumes = pod["spec"].setdefault("volumes", [])
        if all(v["name"] != "logs" for v in volumes):
            volumes.append({"name": "logs", "emptyDir": {}})

    generator.pod_breakages.append(change)


def _bad_priority(env: tuple[Json, ...]) -> Breakage:
    """PW-14."""

    def break_(generator: _Generator, sets: list[Json]) -> None:
        def change(pod: Json) -> None:
            container = generator.pick(*pod["spec"]["containers"])
            value = {"name": "KRUISE_CONTAINER_PRIORITY", **copy.deepcopy(generator.pick(*env))}
            others = [e for e in container.get("env") or [] if e["name"] != value["name"]]
            container["env"] = [*others, value]

        generator.pod_breakages.append(change)

    return break_


def _bad_launch_priority(*texts: str) -> Breakage:
    """PW-15."""

    def break_(generator: _Generator, sets: list[Json]) -> None:
        text = generator.pick(*texts).replace("MAIN", generator.apps[0])
        key = "apps.kruise.io/container-launch-priority"
        generator.pod_breakages.append(lambda pod: _annotate(pod, **{key: text}))

    return break_


def _same_name(generator: _Generator, sets: list[Json]) -> None:
    """SS-117: two sets that slipped past the overlap test."""
    if len(sets) < 2:
        sets.append(generator.sidecar_set("twin-set"))
    generator.certain(sets[1])
    sets[1]["spec"]["containers"][0]["name"] = sets[0]["spec"]["containers"][0]["name"]


def _other_list(generator: _Generator, sets: list[Json]) -> None:
    """SS-21: a sidecar is named like an init container of the Pod, or the other way round."""
    container = {"name": sets[0]["spec"]["containers"][0]["name"], "image": "busybox"}
    if not sets[0]["spec"].get("initContainers") or generator.chance(50):
        sets[0]["spec"]["containers"][0].pop("upgradeStrategy", None)
        generator.pod_breakages.append(lambda pod: pod["spec"].setdefault("initContainers", []).append(container))
    else:
        container["name"] = sets[0]["spec"]["initContainers"][0]["name"]
        generator.pod_breakages.append(lambda pod: pod["spec"]["containers"].append(container))


def _empty_set(generator: _Generator, sets: list[Json]) -> None:
    """SS-41: a set without sidecars patches metadata only."""
    sets[1:] = []
    for kind in ("containers", "initContainers"):
        sets[0]["spec"].pop(kind, None)
    sets[0]["spec"]["patchPodMetadata"] = generator.metadata_patches()


EXPRESSION_BREAKAGES: dict[str, Breakage] = {f"expression {n}": _bad_policy(text) for n, text in enumerate(BROKEN)}
INTEGERS: tuple[Json, ...] = tuple({"value": v} for v in ("", " 1", "abc", "1.5", "0x1", "1_0", "--1")) + ({},)
BREAKAGES: dict[str, Breakage] = {
    "pod annotation is no JSON": _bad_merge(("{", "plain", '{"a":1,}'), ('{"a":1}',)),
    "patch is no JSON": _bad_merge(('{"a":1}',), ("{", "plain", '{"a":1,}')),
    "hash": _bad_hash("kruise.io/sidecarset-hash"),
    "hash without image": _bad_hash("kruise.io/sidecarset-hash-without-image"),
    "hash unread": _bad_hash_unread,
    "no target": _bad_policy(lambda _: "100", "^none$"),
    **EXPRESSION_BREAKAGES,
    "two values": _two_values,
    "priority": _bad_priority(INTEGERS),
    "priority valueFrom": _bad_priority(({"valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},)),
    "priority range": _bad_priority(({"value": "2147483648"}, {"value": "-2147483648"}, {"value": "9" * 30})),
    "launch priority": _bad_launch_priority("{", '{"MAIN":"x"}', '{"MAIN":1.5}', '{"MAIN":true}', '{"MAIN":null}'),
    "launch priority range": _bad_launch_priority('{"MAIN":2147483648}', '{"MAIN":-2147483648}'),
    "launch priority name": _bad_launch_priority('{"nobody":1}', '{"MAIN":1,"no body":2}'),
    "same name": _same_name,
    "name of the other list": _other_list,
    "empty set": _empty_set,
}
