"""Pods as they reach admission: new or exported, with and without the API server's defaults."""

from __future__ import annotations

import copy
import json

from tests.property.case import Json
from tests.property.defaults import default_pod
from tests.property.world import DEVICES, IMAGES, POD_VOLUMES, World


class PodMaker:
    """Makes the Pod of one case, given its sets."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.pod_volumes: set[str] = set()

    def pod(self, sets: list[Json]) -> Json:
        metadata: Json = {"name": f"pod-{self.world.seed}", "labels": self.world.labels}
        if self.world.chance(12):
            metadata["generateName"] = metadata.pop("name") + "-" + self.world.pick("", "x" * 60)
        if self.world.chance(70):
            metadata["namespace"] = self.world.namespace
        if self.world.chance(20):
            metadata["ownerReferences"] = [self.owner()]
        containers = [self.app_container(name) for name in self.world.apps]
        self.add_sidecar_names(containers, sets)
        if "subpath" in self.world.themes:
            self.subpaths(containers)
        if "priority" in self.world.themes or self.world.chance(4):
            self.priorities(containers)
        spec: Json = {"containers": containers}
        if self.world.chance(30, "init", 60):
            spec["initContainers"] = self.init_containers(sets)
        annotations = self.pod_annotations(sets, containers)
        volumes = sorted(self.pod_volumes | set(self.world.some(POD_VOLUMES, 0, 1)))
        if volumes:
            spec["volumes"] = [{"name": n, **copy.deepcopy(POD_VOLUMES[n])} for n in volumes]
        if self.world.chance(25, "secrets", 85):
            spec["imagePullSecrets"] = [
                {"name": n} for n in self.world.random.choices(("r1", "r2", "r5"), k=self.world.pick(1, 2, 3))
            ]
        if annotations:
            metadata["annotations"] = annotations
        pod: Json = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        for change in self.world.pod_breakages:
            change(pod)
        self.oddities(pod)
        return pod

    def oddities(self, pod: Json) -> None:
        if self.world.chance(4):
            pod["spec"]["fieldOfTheFuture"] = {"kept": [1, None, {"a~b/c": "ü"}]}
        if self.world.chance(75):
            filled = default_pod(pod, token=self.world.chance(60))
            pod.update(filled)
        if self.world.chance(1.5, "outside", 10):
            pod["status"] = {"phase": self.world.pick("Succeeded", "Failed")}
        elif self.world.chance(30):
            pod["status"] = {}
        if self.world.chance(0.5, "outside", 5):
            pod["metadata"]["deletionTimestamp"] = "2024-05-06T07:00:00Z"
        if self.world.chance(0.7, "outside", 6):
            pod["metadata"].setdefault("annotations", {})["kubernetes.io/config.mirror"] = "x"
        if self.world.chance(3):
            for container in pod["spec"]["containers"]:
                container.setdefault("env", None)
                container.setdefault("volumeMounts", None)
            for name in ("initContainers", "volumes", "imagePullSecrets"):
                pod["spec"].setdefault(name, None)
            pod["metadata"].setdefault("annotations", None)
            pod["metadata"]["creationTimestamp"] = None

    def owner(self) -> Json:
        version, kind = self.world.pick(("apps.kruise.io/v1beta1", "CloneSet"), ("apps/v1", "ReplicaSet"))
        owner: Json = {"apiVersion": version, "kind": kind, "name": "web", "uid": "uid-web"}
        if self.world.chance(90):
            owner["controller"] = True
        return owner

    def app_container(self, name: str) -> Json:
        c: Json = {"name": name, "image": self.world.pick(*IMAGES)}
        env: list[Json] = [
            {"name": "A", "value": self.world.pick("1", "2")},
            {"name": "B", "value": "2"},
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "NODE_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}},
            {"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "password"}}},
        ]
        if self.world.chance(85, "transfer", 97):
            c["env"] = self.world.some(env, 1, 5)
        if self.world.chance(60, "resources", 90):
            c["resources"] = self.world.resources()
        disks = [d for d in ("disk", "disk3") if self.world.chance(15, "devices", 80)]
        if disks:
            paths = self.world.some(DEVICES, 2, 2)
            c["volumeDevices"] = [{"name": d, "devicePath": p} for d, p in zip(disks, paths, strict=False)]
            self.pod_volumes |= set(disks)
        taken = {d["devicePath"] for d in c.get("volumeDevices") or []}
        if self.world.chance(60, "share", 95):
            paths = [p for p in self.world.some(("/data", "/logs", "/cfg", "/dev/xda"), 1, 3) if p not in taken]
            names = self.world.some(("data", "logs", "cache", "cfg"), len(paths), len(paths))
            c["volumeMounts"] = [{"name": n, "mountPath": p} for n, p in zip(names, paths, strict=True)]
            self.pod_volumes |= set(names)
        return c

    def add_sidecar_names(self, containers: list[Json], sets: list[Json]) -> None:
        """Add containers that a set will overwrite."""
        for one in sets:
            for sidecar in one["spec"].get("containers") or []:
                hot = (sidecar.get("upgradeStrategy") or {}).get("upgradeType") == "HotUpgrade"
                if not self.world.chance(6, "positions", 20) and not (hot and self.world.chance(20)):
                    continue
                name = sidecar["name"] + (self.world.pick("-1", "-2", "") if hot else "")
                if all(c["name"] != name for c in containers):
                    containers.insert(self.world.random.randint(0, len(containers)), self.app_container(name))

    def subpaths(self, containers: list[Json]) -> None:
        """Add mounts whose path inside the volume depends on the container's env."""
        for container in containers:
            if not self.world.chance(85):
                continue
            mounts = container.setdefault("volumeMounts", [])
            # Only mount paths below /sub: they may overlap each other but no other mount or device.
            path = self.world.pick("/sub/one", "/sub/two")
            variable = self.world.pick("ZONE", "ZONE", "POD_NAME", "A", "UNKNOWN")
            mounts.append({"name": "logs", "mountPath": path, "subPathExpr": f"$({variable})/x"})
            self.pod_volumes.add("logs")
            if variable == "ZONE" and self.world.chance(90):
                value = self.world.pick("eu", "eu", "eu", "us")
                container["env"] = [*(container.get("env") or []), {"name": "ZONE", "value": value}]

    def init_containers(self, sets: list[Json]) -> list[Json]:
        names = self.world.some(("prep", "setup", "log-init"), 1, 2)
        for one in sets:
            for sidecar in one["spec"].get("initContainers") or []:
                if self.world.chance(12, "positions", 30):
                    names.append(sidecar["name"])
        containers = []
        for name in names:
            c: Json = {"name": name, "image": self.world.pick(*IMAGES)}
            if self.world.chance(45):
                c["restartPolicy"] = "Always"
            if self.world.chance(60):
                c["resources"] = self.world.resources()
            if self.world.chance(30):
                c["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
                self.pod_volumes.add("data")
            containers.append(c)
        return containers

    def priorities(self, containers: list[Json]) -> None:
        same = self.world.priority()
        for container in containers:
            if self.world.chance(55):
                env: Json = {
                    "name": "KRUISE_CONTAINER_PRIORITY",
                    "value": same if self.world.chance(40) else self.world.priority(),
                }
                container["env"] = [*(container.get("env") or []), env]
                if self.world.chance(5):
                    container["env"].append({"name": "KRUISE_CONTAINER_BARRIER", "value": "mine"})

    def pod_annotations(self, sets: list[Json], containers: list[Json]) -> Json:
        annotations: Json = {}
        if self.world.chance(15, "transfer", 50):
            annotations["src"] = self.world.pick(*self.world.apps)
        if self.world.chance(15, "metadata", 70):
            for n in self.world.some(("retain-1", "retain-2", "overwrite-1", "overwrite-2"), 1, 3):
                annotations[n] = self.world.pick("user", "")
            for n in self.world.some(("merge-1", "merge-2"), 1, 2):
                annotations[n] = self.world.pick(
                    '{"a":0,"main":2}', '{"drop":1, "main":{"z":0}}', "", '{"a":{"z":9}}', "[1]"
                )
        if self.world.chance(4, "priority", 35):
            annotations["apps.kruise.io/container-launch-priority"] = self.launch_priority(sets, containers)
        if "exported" in self.world.themes:
            self.exported(annotations, sets, containers)
        return annotations

    def launch_priority(self, sets: list[Json], containers: list[Json]) -> str:
        if self.world.chance(50):
            return self.world.pick("Ordered", "Ordered", "Ordered", "ordered", "", "other")
        names = self.world.some([c["name"] for c in containers], 1, 3)
        return json.dumps({name: self.world.pick(0, 1, 2, 2, -5) for name in names})

    def exported(self, annotations: Json, sets: list[Json], containers: list[Json]) -> None:
        """Make the Pod one recreated from an export, with the annotations and sidecars of its previous admission."""
        names = self.world.some([s["metadata"]["name"] for s in sets] + ["old", "older"], 1, 3)
        form = self.world.pick("new", "new", "old", "old", "empty", "null", "null")
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
        if self.world.chance(80):
            annotations["kruise.io/sidecarset-hash-without-image"] = text
        if self.world.chance(80):
            annotations["kruise.io/sidecarset-injected-list"] = ",".join(sorted(names))
        if self.world.chance(20):
            annotations["kruise.io/sidecarset-working-hotupgrade-container"] = '{"old-hot":"old-hot-2"}'
        if self.world.chance(70):
            former = self.app_container("former")
            former["env"] = [*(former.get("env") or []), {"name": "IS_INJECTED", "value": "true"}]
            containers.insert(self.world.random.randint(0, len(containers)), former)
