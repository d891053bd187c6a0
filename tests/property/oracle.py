"""What Pod admission must answer: readiness gate, SidecarSet injection, launch priority — slow, naive, from the rules.

Nothing here is shared with the product. Pod and sets are plain JSON; every step copies what it likes.
"""

from __future__ import annotations

import copy
import json
import re
from dataclasses import dataclass, field
from typing import Any

from tests.property.branches import Branches
from tests.property.case import MANAGER_NAMESPACE, NAME_SUFFIX, NOW, Case, Json
from tests.property.oracle_hash import set_hashes
from tests.property.oracle_quantity import BadExpression, Quantity, evaluate, parse

NAMESPACE_NAME = "kubernetes.io/metadata.name"
HASH = "kruise.io/sidecarset-hash"
HASH_WITHOUT_IMAGE = "kruise.io/sidecarset-hash-without-image"
INJECTED_LIST = "kruise.io/sidecarset-injected-list"
WORKING = "kruise.io/sidecarset-working-hotupgrade-container"
CUSTOM_VERSION = "apps.kruise.io/sidecarset-custom-version"
PRIORITY = "apps.kruise.io/container-launch-priority"
EXTENSIONS = {
    *("podInjectPolicy", "upgradeStrategy", "shareVolumePolicy", "shareVolumeDevicePolicy", "transferEnv"),
    "resourcesPolicy",
}
VARIABLE = re.compile(r"\$\(([-._a-zA-Z][-._a-zA-Z0-9]*)\)")


class Refused(Exception):
    """The Pod is refused; the branch says by which rule."""

    def __init__(self, branch: str) -> None:
        super().__init__(branch)
        self.branch = branch


@dataclass
class Expected:
    """The Pod as admitted, or the rule that refuses it."""

    pod: Json | None
    refused: str = ""
    branches: Branches = field(default_factory=Branches)
    #: Why a second pass over the result may change it (D-21).
    unrepeatable: set[str] = field(default_factory=set)

    @property
    def injected(self) -> bool:
        return self.branches["injected"] > 0


@dataclass
class Applied:
    """A set as it applies to this Pod: its own spec, or that of a recorded revision (SS-69)."""

    name: str
    annotations: Json
    spec: Json
    hash: str
    hash_without_image: str
    revision: str

    def lists(self) -> tuple[list[Json], list[Json]]:
        return self.spec.get("containers") or [], self.spec.get("initContainers") or []


def expected(case: Case) -> Expected:
    """The answer to this case."""
    pod = copy.deepcopy(case.pod)
    answer = Expected(pod)
    try:
        _Admission(case, pod, answer).run()
    except Refused as refusal:
        answer.branches.hit(refusal.branch)
        answer.branches.hit("refused")
        answer.pod, answer.refused = None, refusal.branch
    return answer


def matches(selector: Json, labels: Json) -> bool:
    """Label selector semantics."""
    for key, value in (selector.get("matchLabels") or {}).items():
        if labels.get(key) != value:
            return False
    for term in selector.get("matchExpressions") or []:
        key, values = term["key"], term.get("values") or []
        holds = {
            "In": key in labels and labels[key] in values,
            "NotIn": key not in labels or labels[key] not in values,
            "Exists": key in labels,
            "DoesNotExist": key not in labels,
        }[term["operator"]]
        if not holds:
            return False
    return True


def is_hot(container: Json) -> bool:
    return (container.get("upgradeStrategy") or {}).get("upgradeType") == "HotUpgrade"


def was_injected(container: Json) -> bool:
    return any(e["name"] == "IS_INJECTED" and e.get("value") == "true" for e in container.get("env") or [])


def same_value(env: Json) -> Any:
    """What an env entry means, whether or not the API server has filled in its defaults."""
    source = copy.deepcopy(env.get("valueFrom") or {})
    if "fieldRef" in source:
        source["fieldRef"].setdefault("apiVersion", "v1")
    if "resourceFieldRef" in source:
        source["resourceFieldRef"].setdefault("divisor", "0")
    return env.get("value") or "", source


class _Admission:
    def __init__(self, case: Case, pod: Json, answer: Expected) -> None:
        self.case, self.pod, self.answer, self.branches = case, pod, answer, answer.branches
        self.spec = pod["spec"]
        self.namespace = pod["metadata"].get("namespace") or case.request_namespace or "default"

    @property
    def annotations(self) -> Json:
        return self.pod["metadata"].get("annotations") or {}

    def annotate(self, key: str, value: str) -> None:
        self.pod["metadata"]["annotations"] = {**self.annotations, key: value}

    def run(self) -> None:
        self.readiness_gate()
        if "kubernetes.io/config.mirror" in self.annotations:
            self.branches.hit("PW-10 mirror pod")
            return
        self.sidecars()
        self.launch_priority()

    # --- PW-6 step 1 -------------------------------------------------------------------------------------------------

    def readiness_gate(self) -> None:
        owners = self.pod["metadata"].get("ownerReferences") or []
        kruise = any(o.get("controller") and o["apiVersion"].split("/")[0] == "apps.kruise.io" for o in owners)
        gates = self.spec.get("readinessGates") or []
        if not (kruise or self.case.readiness_gate_for_all):
            return
        if not any(g["conditionType"] == "KruisePodReady" for g in gates):
            self.branches.hit("PW-6 readiness gate")
            self.spec["readinessGates"] = [*gates, {"conditionType": "KruisePodReady"}]

    # --- which sets (A4, A7) -----------------------------------------------------------------------------------------

    def candidates(self) -> list[Json]:
        """SS-36, SS-37: those filed under the namespace by name, then those of the whole cluster by name."""
        here, everywhere = [], []
        for one in sorted(self.case.sets, key=lambda s: s["metadata"]["name"]):
            selector = one["spec"].get("namespaceSelector")
            names = None
            if selector is not None:
                if NAMESPACE_NAME in (selector.get("matchLabels") or {}):
                    names = [selector["matchLabels"][NAMESPACE_NAME]]
                else:
                    for term in selector.get("matchExpressions") or []:
                        if term["key"] == NAMESPACE_NAME and term["operator"] == "In" and names is None:
                            names = term["values"]
            if names is None:
                everywhere.append(one)
            elif self.namespace in names:
                here.append(one)
        if here and everywhere and here[-1]["metadata"]["name"] > everywhere[0]["metadata"]["name"]:
            self.branches.hit("SS-36 named namespace before cluster scope")
        return here + everywhere

    def selects(self, one: Json) -> bool:
        """SS-35."""
        scope, selector = one["spec"].get("namespaceSelector"), one["spec"].get("selector")
        if scope is not None:
            found = [n for n in self.case.namespaces if n["metadata"]["name"] == self.namespace]
            if not found or not matches(scope, found[0]["metadata"].get("labels") or {}):
                return False
        if not selector or not (selector.get("matchLabels") or selector.get("matchExpressions")):
            return False
        return matches(selector, self.pod["metadata"].get("labels") or {})

    def applied(self) -> list[Applied]:
        chosen: list[Applied] = []
        paused: list[Json] = []
        for one in self.candidates():
            if not self.selects(one):
                continue
            if one["metadata"].get("deletionTimestamp"):
                self.branches.hit("SS-39 being deleted")
            elif (one["spec"].get("injectionStrategy") or {}).get("paused"):
                self.branches.hit("SS-38 paused")
                paused.append(one)
            else:
                chosen.append(self.revision_for(one))
        bases = {base for c in chosen if (base := self.base_of(c.annotations))}
        if {base for p in paused if (base := self.base_of(p["metadata"].get("annotations") or {}))}:
            self.branches.hit("SS-77 paused canary")
        if bases & {c.name for c in chosen}:
            self.branches.hit("SS-77 base left out")
        return [c for c in chosen if c.name not in bases]

    @staticmethod
    def base_of(annotations: Json) -> str:
        if annotations.get("apps.kruise.io/sidecarset-canary") != "true":
            return ""
        return str(annotations.get("apps.kruise.io/sidecarset-base") or "")

    def revision_for(self, one: Json) -> Applied:
        """SS-68 to SS-70."""
        spec, name = one["spec"], one["metadata"]["name"]
        annotations = one["metadata"].get("annotations") or {}
        wanted = (spec.get("injectionStrategy") or {}).get("revision") or {}
        found: Json | None = None
        if wanted.get("revisionName") is not None:
            self.branches.hit("SS-68 by name")
            named = [r for r in self.revisions() if r["metadata"]["name"] == wanted["revisionName"]]
            found = named[0] if named else None
        elif wanted.get("customVersion") is not None:
            self.branches.hit("SS-68 by custom version")
            labels = {"kruise.io/sidecarset-name": name, CUSTOM_VERSION: wanted["customVersion"]}
            same = [r for r in self.revisions() if matches({"matchLabels": labels}, r["metadata"].get("labels") or {})]
            found = max(same, key=lambda r: int(r["revision"])) if same else None
        else:
            wanted = None
        if wanted is not None and found is None:
            raise Refused("SS-68 missing refused")
        if found is not None and self.takes_old(spec, wanted):
            return self.restored(one, found)
        plain, without_image = set_hashes(spec.get("containers"), spec.get("initContainers"))
        return Applied(
            name,
            annotations,
            spec,
            annotations.get(HASH) or plain,
            annotations.get(HASH_WITHOUT_IMAGE) or without_image,
            (one.get("status") or {}).get("latestRevision") or "",
        )

    def revisions(self) -> list[Json]:
        return [r for r in self.case.revisions if r["metadata"]["namespace"] == MANAGER_NAMESPACE]

    def takes_old(self, spec: Json, wanted: Json) -> bool:
        strategy = spec.get("updateStrategy") or {}
        if strategy.get("paused"):
            self.branches.hit("SS-70 paused")
            return True
        if wanted.get("policy") != "Partial":
            self.branches.hit("SS-70 always")
            return True
        selector = strategy.get("selector")
        if selector is not None and not matches(selector, self.pod["metadata"].get("labels") or {}):
            self.branches.hit("SS-70 selector does not match")
            return True
        partition = strategy.get("partition")
        if not isinstance(partition, str):
            self.branches.hit("SS-70 partition int")
            return False
        old = self.case.draw < int(partition.rstrip("%")) / 100
        self.branches.hit("SS-70 percent, old" if old else "SS-70 percent, current")
        return old

    def restored(self, one: Json, revision: Json) -> Applied:
        recorded = revision["data"]["spec"]
        keys = ("containers", "initContainers", "volumes", "imagePullSecrets", "patchPodMetadata")
        spec = {**one["spec"], **{key: recorded.get(key) for key in keys}}
        annotations = revision["metadata"].get("annotations") or {}
        plain, without_image = set_hashes(spec["containers"], spec["initContainers"])
        if not annotations.get(HASH):
            self.branches.hit("SS-69 hash recomputed")
        return Applied(
            one["metadata"]["name"],
            one["metadata"].get("annotations") or {},
            spec,
            annotations.get(HASH) or plain,
            annotations.get(HASH_WITHOUT_IMAGE) or without_image,
            revision["metadata"]["name"],
        )

    # --- injection (A5) ----------------------------------------------------------------------------------------------

    def sidecars(self) -> None:
        phase = (self.pod.get("status") or {}).get("phase")
        if phase in ("Succeeded", "Failed") or self.pod["metadata"].get("deletionTimestamp"):
            self.branches.hit("SS-40 not active")
            return
        sets = self.applied()
        if not sets:
            self.branches.hit("no set applies")
        had_priority = PRIORITY in self.annotations
        for one in sets:
            for entry in one.spec.get("patchPodMetadata") or []:
                for key, text in (entry.get("annotations") or {}).items():
                    self.patch_annotation(entry.get("patchPolicy") or "Retain", key, text)
        self.priority_from_set = PRIORITY in self.annotations and not had_priority
        if not any(containers or inits for containers, inits in (s.lists() for s in sets)):
            if sets:
                self.branches.hit("only metadata patched")
            self.invalid_but_unread()
            return
        self.inject(sets)

    def patch_annotation(self, policy: str, key: str, text: str) -> None:
        """SS-53."""
        present, value = key in self.annotations, self.annotations.get(key)
        if policy == "Retain":
            self.branches.hit("SS-53 retain keeps" if present else "SS-53 retain adds")
            if not present:
                self.annotate(key, text)
        elif policy == "Overwrite":
            self.branches.hit("SS-53 overwrite replaces" if present else "SS-53 overwrite adds")
            self.annotate(key, text)
        elif not value:
            self.branches.hit("SS-53 merge into empty" if present else "SS-53 merge into missing")
            self.annotate(key, text)
        elif value == text:
            # D-21: what was set as it is stays as it is, even if it is not spelled as a merge would.
            self.branches.hit("SS-53 merged already")
        else:
            self.merge_annotation(key, value, text)

    def merge_annotation(self, key: str, value: str, text: str) -> None:
        try:
            target = json.loads(value)
        except ValueError:
            raise Refused("SS-53 pod value not JSON refused") from None
        try:
            patch = json.loads(text)
        except ValueError:
            raise Refused("SS-53 patch not JSON refused") from None
        self.branches.hit("SS-53 merge")
        merged = merge_patch(target, patch)
        if isinstance(target, dict) and isinstance(merged, dict) and set(target) - set(merged):
            self.branches.hit("SS-53 merge removes a key")
        if merged == target:
            # D-21: nothing new is said, so nothing is spelled anew.
            self.branches.hit("SS-53 merged already")
            return
        self.annotate(key, json.dumps(merged, separators=(",", ":"), sort_keys=True, ensure_ascii=False))

    def invalid_but_unread(self) -> None:
        try:
            read_hashes(self.annotations.get(HASH), Branches())
        except ValueError:
            self.branches.hit("SS-59 invalid but nothing injected")

    def inject(self, sets: list[Applied]) -> None:
        for key, branch in ((HASH, "SS-59 invalid refused"), (HASH_WITHOUT_IMAGE, "SS-59 invalid without-image refused")):
            try:
                read_hashes(self.annotations.get(key), Branches())
            except ValueError:
                raise Refused(branch) from None
        #: SS-61: the names of all sidecars, base and twins.
        self.sidecar_names = {c["name"] for s in sets for part in s.lists() for c in part}
        self.sidecar_names |= {f"{c['name']}-{n}" for s in sets for part in s.lists() for c in part if is_hot(c) for n in (1, 2)}
        containers: list[Json] = []
        inits: list[Json] = []
        volumes: list[Json] = []
        working: Json = {}
        for one in sets:
            of_set, inits_of_set = one.lists()
            for container in inits_of_set:
                inits.append({**self.built(container, init=True), "!policy": container.get("podInjectPolicy")})
            for container in of_set:
                built = {**self.built(container, init=False), "!policy": container.get("podInjectPolicy")}
                if is_hot(container):
                    self.branches.hit("SS-45 adjacent pair")
                    containers += self.pair(container, built)
                    working[container["name"]] = f"{container['name']}-1"
                else:
                    containers.append(built)
            volumes += self.volumes_of(one, volumes)
        self.refuse_duplicates(containers, inits)
        self.note_unrepeatable(sets)
        self.merge_containers(containers)
        self.merge_init_containers(inits)
        if volumes:
            self.spec["volumes"] = (self.spec.get("volumes") or []) + volumes
        self.pull_secrets(sets)
        self.write_annotations(sets, working)
        self.branches.hit("injected")

    def refuse_duplicates(self, containers: list[Json], inits: list[Json]) -> None:
        """SS-117 between sets; SS-21 with the Pod's other list, where the API server would refuse what comes out."""
        names = [c["name"] for c in containers + inits]
        if len(set(names)) != len(names):
            raise Refused("SS-117 duplicate refused")
        for sidecars, others in ((containers, "initContainers"), (inits, "containers")):
            if {c["name"] for c in sidecars} & {c["name"] for c in self.spec.get(others) or []}:
                raise Refused("SS-21 name of the Pod's other list refused")

    def pair(self, container: Json, built: Json) -> list[Json]:
        """SS-78, SS-79."""
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
                self.annotate(key, value)
            self.branches.hit("SS-46 version env of a twin")
            pair.append(twin)
        return pair

    # --- positions (SS-42 to SS-44) ----------------------------------------------------------------------------------

    def merge_containers(self, sidecars: list[Json]) -> None:
        by_name = sorted(sidecars, key=lambda c: c["name"])
        if self.case.sort_by_name:
            if by_name != sidecars:
                self.branches.hit("SS-43 sorted by name")
            sidecars = by_name
        elif by_name != sidecars:
            self.branches.hit("SS-43 spec order kept without the gate")
        self.spec["containers"] = self.merged(self.spec.get("containers") or [], sidecars, init=False)

    def merge_init_containers(self, sidecars: list[Json]) -> None:
        if not sidecars:
            return
        by_name = sorted(sidecars, key=lambda c: c["name"])
        if by_name != sidecars:
            self.branches.hit("SS-44 sorted by name")
        self.spec["initContainers"] = self.merged(self.spec.get("initContainers") or [], by_name, init=True)

    def merged(self, own: list[Json], sidecars: list[Json], *, init: bool) -> list[Json]:
        rule = "SS-44" if init else "SS-42"
        own, before, after = list(own), [], []
        for sidecar in sidecars:
            policy = sidecar.pop("!policy")
            index = [i for i, c in enumerate(own) if c["name"] == sidecar["name"]]
            if index:
                self.branches.hit(f"{rule} overwrite in place")
                if not init and sidecar["env"][-1]["name"] == "SIDECARSET_VERSION_ALT":
                    self.branches.hit("SS-45 twin overwritten in place")
                own[index[0]] = sidecar
            elif policy == "BeforeAppContainer":
                self.branches.hit(f"{rule} before")
                before.append(sidecar)
            else:
                self.branches.hit("SS-42 after, policy empty" if not init and not policy else f"{rule} after")
                after.append(sidecar)
        return before + own + after

    # --- one sidecar (SS-46 to SS-51) --------------------------------------------------------------------------------

    def built(self, container: Json, *, init: bool) -> Json:
        result = {k: copy.deepcopy(v) for k, v in container.items() if k not in EXTENSIONS}
        env = [*(result.get("env") or []), {"name": "IS_INJECTED", "value": "true"}]
        if len(env) > 1:
            self.branches.hit("SS-46 own env first")
        result["env"] = env
        own = {e["name"] for e in env}
        self.transfer(container, env, own)
        self.share_mounts(container, result, env, init=init)
        self.share_devices(container, result)
        if container.get("resourcesPolicy"):
            if container.get("resources"):
                self.branches.hit("SS-60 own resources replaced")
            result["resources"] = self.computed_resources(container["resourcesPolicy"])
            self.branches.hit("SS-60 init container computed" if init else "SS-60 container computed")
            if is_hot(container):
                self.branches.hit("SS-60 both twins computed")
        return result

    def transfer(self, container: Json, env: list[Json], own: set[str]) -> None:
        """SS-47."""
        for entry in container.get("transferEnv") or []:
            source = self.source_of(entry)
            names = {entry.get("envName"), *(entry.get("envNames") or [])} - {None, ""}
            if len(names) > 1:
                self.branches.hit("SS-47 several names, sorted")
            found = [c for c in self.spec.get("containers") or [] if c["name"] == source]
            if not found:
                if source:
                    self.branches.hit("SS-47 source container missing")
                continue
            for name in sorted(names):
                values = [e for e in found[0].get("env") or [] if e["name"] == name]
                if not values:
                    self.branches.hit("SS-47 env missing in the source")
                elif name in own:
                    self.branches.hit("SS-46 own env wins")
                elif any(e["name"] == name for e in env):
                    self.branches.hit("SS-46 first transferred wins")
                else:
                    if "valueFrom" in values[0]:
                        self.branches.hit("SS-47 valueFrom copied")
                    env.append(copy.deepcopy(values[0]))

    def source_of(self, entry: Json) -> str:
        origin = entry.get("sourceContainerNameFrom")
        if origin is not None and not origin.get("fieldRef"):
            self.branches.hit("SS-9 source without fieldRef")
        if not origin or not origin.get("fieldRef"):
            self.branches.hit("SS-47 source by name")
            return str(entry.get("sourceContainerName") or "")
        kind, key = re.fullmatch(r"metadata\.(labels|annotations)\['(.+)'\]", origin["fieldRef"]["fieldPath"]).groups()  # type: ignore[union-attr]
        self.branches.hit(f"SS-47 source by {kind[:-1]}")
        value = (self.pod["metadata"].get(kind) or {}).get(key) or ""
        if not value:
            self.branches.hit("SS-47 label or annotation missing")
        return str(value)

    def app_containers(self) -> list[Json]:
        return [c for c in self.spec.get("containers") or [] if not was_injected(c)]

    def share_mounts(self, container: Json, result: Json, env: list[Json], *, init: bool) -> None:
        """SS-49, SS-50."""
        if (container.get("shareVolumePolicy") or {}).get("type") != "enabled":
            self.branches.hit("SS-49 disabled")
            return
        own_paths = {m["mountPath"] for m in container.get("volumeMounts") or []}
        own_devices = {d["devicePath"] for d in container.get("volumeDevices") or []}
        shared: list[Json] = []
        needed: dict[str, Json] = {}
        before = {e["name"]: e for e in reversed(env)}
        for c in self.spec.get("containers") or []:
            if was_injected(c) and c.get("volumeMounts") and c["name"] not in self.sidecar_names:
                self.branches.hit("SS-49 former sidecar not shared")
        for app in self.app_containers():
            for mount in app.get("volumeMounts") or []:
                path, skipped = mount["mountPath"], True
                if path in own_paths:
                    self.branches.hit("SS-49 own mount path taken")
                elif path in own_devices:
                    self.branches.hit("SS-49 own device path taken")
                elif any(m["mountPath"] == path for m in shared):
                    self.branches.hit("SS-49 path already shared")
                else:
                    skipped = False
                    self.branches.hit("SS-49 mount shared with an init container" if init else "SS-49 mount shared")
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
                self.branches.hit("SS-50 variable not in the env")
            elif name in before or name in needed:
                # SS-50 (better): the mount would mean another directory in the sidecar than in the app container.
                present = before.get(name) or needed[name]
                if not skipped and same_value(present) != same_value(values[0]):
                    raise Refused("SS-50 two values refused")
                self.branches.hit("SS-50 variable already there")
            else:
                self.branches.hit("SS-50 variable of a skipped mount copied" if skipped else "SS-50 variable copied")
                needed[name] = copy.deepcopy(values[0])

    def share_devices(self, container: Json, result: Json) -> None:
        """SS-51."""
        if (container.get("shareVolumeDevicePolicy") or {}).get("type") != "enabled":
            return
        own = {d["devicePath"] for d in container.get("volumeDevices") or []}
        mounts = {m["mountPath"] for m in result.get("volumeMounts") or []}
        shared: list[Json] = []
        for app in self.app_containers():
            for device in app.get("volumeDevices") or []:
                path = device["devicePath"]
                if path in own:
                    self.branches.hit("SS-51 own device path taken")
                elif path in mounts:
                    self.branches.hit("SS-51 path taken by a mount")
                elif any(d["devicePath"] == path for d in shared):
                    self.branches.hit("SS-51 path already shared")
                else:
                    self.branches.hit("SS-51 device shared")
                    shared.append(copy.deepcopy(device))
        if shared:
            result["volumeDevices"] = (result.get("volumeDevices") or []) + shared

    # --- computed resources (A6) -------------------------------------------------------------------------------------

    def targets(self, pattern: str) -> list[Json]:
        """SS-61."""
        found = []
        inits = self.spec.get("initContainers") or []
        for container in [*inits, *(self.spec.get("containers") or [])]:
            init = any(container is c for c in inits)
            if init and container.get("restartPolicy") != "Always":
                self.branches.hit("SS-61 plain init container is no target")
            elif container["name"] in self.sidecar_names:
                self.branches.hit("SS-61 name of a sidecar left out")
            elif not re.search(pattern, container["name"]):
                self.branches.hit("SS-61 name does not match")
            else:
                kind = "restartable init container" if init else "container"
                self.branches.hit(f"SS-61 {kind} is a target")
                found.append(container)
        return found

    def computed_resources(self, policy: Json) -> Json:
        targets = self.targets(policy.get("targetContainersNameRegex") or ".*")
        if not targets:
            raise Refused("SS-61 no target refused")
        summed = policy["targetContainersMode"] == "sum"
        result: Json = {"limits": {}, "requests": {}}
        amounts: dict[tuple[str, str], Quantity] = {}
        for kind in ("limits", "requests"):
            for resource in ("cpu", "memory"):
                expression = ((policy.get("resourcesExpr") or {}).get(kind) or {}).get(resource)
                if not expression:
                    self.branches.hit("SS-63 no expression" if expression is None else "SS-63 empty expression")
                    continue
                aggregate = self.aggregate(targets, kind, resource, summed=summed)
                if aggregate is None:
                    self.branches.hit("SS-63 limit dropped")
                    if resource not in expression:
                        self.branches.hit("SS-63 constant limit dropped")
                    continue
                amounts[kind, resource] = self.amount(expression, resource, aggregate)
                self.branches.hit(f"SS-63 {kind[:-1]} computed")
                if kind == "requests" and amounts[kind, resource].value == 0:
                    self.branches.hit("SS-63 explicit request 0")
        for resource in ("cpu", "memory"):
            limit, request = amounts.get(("limits", resource)), amounts.get(("requests", resource))
            if limit is not None and request is not None and limit.value < request.value:
                # SS-67 (better): a limit below its request is lifted to it.
                self.branches.hit("SS-67 limit below request")
                amounts["limits", resource] = request
        for (kind, resource), amount in amounts.items():
            result[kind][resource] = amount.text()
        return {kind: values for kind, values in result.items() if values}

    def aggregate(self, targets: list[Json], kind: str, resource: str, *, summed: bool) -> Quantity | None:
        """SS-62; nothing for a limit one target lacks."""
        total = Quantity(parse("0").value)
        for target in targets:
            given = ((target.get("resources") or {}).get(kind) or {}).get(resource)
            if given is None and kind == "limits":
                self.branches.hit("SS-62 one target without limit")
                return None
            if given is None:
                self.branches.hit("SS-62 missing request is 0")
                continue
            amount = parse(given)
            if summed:
                total = total + amount
            elif amount.value > total.value:
                total = amount
        what = "limit" if kind == "limits" else "request"
        self.branches.hit(f"SS-62 {what}s summed" if summed else f"SS-62 largest {what}")
        return total

    def amount(self, expression: str, resource: str, aggregate: Quantity) -> Quantity:
        try:
            result = evaluate(expression, resource, aggregate, self.branches)
        except BadExpression as bad:
            raise Refused(bad.branch) from None
        if resource == "memory" and result.value.denominator != 1:
            # SS-67 (better): memory is whole bytes.
            self.branches.hit("SS-67 memory rounded up to bytes")
            result = Quantity(result.value.__ceil__() + parse("0").value, result.binary)
        return result

    # --- volumes, secrets, annotations -------------------------------------------------------------------------------

    def volumes_of(self, one: Applied, earlier: list[Json]) -> list[Json]:
        """SS-48."""
        pool = {v["name"]: v for v in one.spec.get("volumes") or []}
        present = {v["name"] for v in self.spec.get("volumes") or []}
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
                    self.branches.hit("SS-48 pod volume wins")
                elif name in taken:
                    self.branches.hit("SS-48 volume of an earlier set wins")
                else:
                    init = any(container is c for c in inits)
                    self.branches.hit("SS-48 added for an init container" if init else "SS-48 added for a container")
                    if kind == "device":
                        self.branches.hit("SS-48 added for a device")
                    added.append(copy.deepcopy(pool[name]))
        if set(pool) - used:
            self.branches.hit("SS-48 unused stays out")
        return added

    def pull_secrets(self, sets: list[Applied]) -> None:
        """SS-52."""
        result: list[Json] = []
        for secret in self.spec.get("imagePullSecrets") or []:
            if secret["name"] in [s["name"] for s in result]:
                self.branches.hit("SS-52 duplicate of the pod removed")
            else:
                result.append(secret)
        for one in sets:
            for secret in one.spec.get("imagePullSecrets") or []:
                if secret["name"] in [s["name"] for s in result]:
                    self.branches.hit("SS-52 known secret skipped")
                else:
                    self.branches.hit("SS-52 secret added")
                    result.append(copy.deepcopy(secret))
        if result:
            self.spec["imagePullSecrets"] = result

    def write_annotations(self, sets: list[Applied], working: Json) -> None:
        """SS-56 to SS-58, SS-79."""
        hashes = read_hashes(self.annotations.get(HASH), self.branches)
        without_image = read_hashes(self.annotations.get(HASH_WITHOUT_IMAGE), Branches())
        if set(hashes) - {s.name for s in sets}:
            self.branches.hit("SS-57 entries kept")
        for one in sets:
            entry = {"updateTimestamp": NOW, "hash": one.hash, "sidecarSetName": one.name}
            entry["sidecarList"] = self.sidecar_list(one)
            without_image[one.name] = {**entry, "hash": one.hash_without_image}
            hashes[one.name] = {**entry, "controllerRevision": one.revision} if one.revision else entry
            self.branches.hit("SS-57 controllerRevision" if one.revision else "SS-57 controllerRevision omitted")
        self.annotate(HASH, _sorted_json(hashes))
        self.annotate(HASH_WITHOUT_IMAGE, _sorted_json(without_image))
        names = {n for n in (self.annotations.get(INJECTED_LIST) or "").split(",") if n}
        merged = names - {s.name for s in sets}
        self.branches.hit("SS-56 merged with names in the annotation" if merged else "SS-56 new list")
        self.annotate(INJECTED_LIST, ",".join(sorted(names | {s.name for s in sets})))
        if working:
            present = json.loads(self.annotations.get(WORKING) or "{}")
            self.annotate(WORKING, _sorted_json({**present, **working}))

    def sidecar_list(self, one: Applied) -> list[str]:
        containers, inits = one.lists()
        names = [c["name"] for c in containers]
        if names:
            self.branches.hit("SS-58 containers")
        if any(is_hot(c) for c in containers):
            self.branches.hit("SS-58 base name of a pair")
        for container in inits:
            if container.get("restartPolicy") == "Always":
                self.branches.hit("SS-58 restartable init container")
                names.append(container["name"])
            else:
                self.branches.hit("SS-58 plain init container left out")
        if not names:
            self.branches.hit("SS-58 empty")
        return sorted(names)

    def note_unrepeatable(self, sets: list[Applied]) -> None:
        """D-21: what a second pass sees differently."""
        overwritten = [c for c in self.app_containers() if c["name"] in self.sidecar_names]
        for one in sets:
            for container in [c for part in one.lists() for c in part]:
                for entry in container.get("transferEnv") or []:
                    quiet = _Admission(self.case, self.pod, Expected(None))
                    if quiet.source_of(entry) in self.sidecar_names:
                        self.answer.unrepeatable.add("transferEnv from a sidecar")
                for policy, key in (("shareVolumePolicy", "volumeMounts"), ("shareVolumeDevicePolicy", "volumeDevices")):
                    shares = (container.get(policy) or {}).get("type") == "enabled"
                    if shares and any(c.get(key) for c in overwritten):
                        self.answer.unrepeatable.add("shared from a container that is overwritten")

    # --- launch priority (B3, PM-141 to PM-144) ----------------------------------------------------------------------

    def launch_priority(self) -> None:
        containers = self.spec.get("containers") or []
        asked = PRIORITY in self.annotations or any(
            e["name"] == "KRUISE_CONTAINER_PRIORITY" for c in containers for e in c.get("env") or []
        )
        if len(containers) < 2:
            if asked:
                self.branches.hit("PM-141 one container, skipped")
            return
        priorities = self.priorities(containers)
        if priorities is None:
            return
        metadata = self.pod["metadata"]
        if not metadata.get("name"):
            self.branches.hit("PM-144 name generated")
            metadata["name"] = metadata["generateName"][:58] + NAME_SUFFIX
        if getattr(self, "priority_from_set", False):
            self.branches.hit("SS-54 patched launch priority acts")
        for container, priority in zip(containers, priorities, strict=True):
            reference = {"name": f"{metadata['name']}-barrier", "key": f"p_{priority}"}
            barrier = {"name": "KRUISE_CONTAINER_BARRIER", "valueFrom": {"configMapKeyRef": reference}}
            container["env"] = [*(container.get("env") or []), barrier]
        self.answer.unrepeatable.add("launch priority")

    def priorities(self, containers: list[Json]) -> list[int] | None:
        wanted = self.annotations.get(PRIORITY) or ""
        if wanted == "Ordered":
            self.branches.hit("PM-141 Ordered")
            return [-i for i in range(len(containers))]
        if wanted.strip().startswith("{"):
            self.branches.hit("PM-141 JSON")
            values = self.priorities_in_json(wanted, [c["name"] for c in containers])
        else:
            values = [self.priority_in_env(c) for c in containers]
            if any(values):
                self.branches.hit("PM-141 env")
        if len(set(values)) == 1:
            if values[0]:
                self.branches.hit("PM-141 all equal, skipped")
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


def _sorted_json(values: Json) -> str:
    """Compact, outer keys sorted, inner ones as they stand."""
    return json.dumps({k: values[k] for k in sorted(values)}, separators=(",", ":"), ensure_ascii=False)


def read_hashes(text: str | None, branches: Branches) -> Json:
    """SS-59: both forms of the annotation; ValueError for anything else."""
    if not text:
        if text == "":
            branches.hit("SS-59 empty counts as absent")
        return {}
    entries = json.loads(text)
    if not isinstance(entries, dict):
        raise ValueError("not an object")
    if entries and all(isinstance(e, str) for e in entries.values()):
        branches.hit("SS-59 old form read")
        return {
            name: {"updateTimestamp": None, "hash": value, "sidecarSetName": name, "sidecarList": None}
            for name, value in entries.items()
        }
    for entry in entries.values():
        if not isinstance(entry, dict) or not isinstance(entry.get("hash"), str):
            raise ValueError("neither form")
        if entry.get("updateTimestamp") is None or entry.get("sidecarList") is None:
            branches.hit("SS-59 null timestamp and list read")
        if not isinstance(entry.get("sidecarList") or [], list):
            raise ValueError("sidecarList is no list")
    if entries:
        branches.hit("SS-59 annotation read")
    return dict(entries)


def merge_patch(target: Any, patch: Any) -> Any:
    """RFC 7386, but a null the target holds stays: an earlier patch was set as it is (D-21)."""
    if not isinstance(patch, dict):
        return patch
    if not isinstance(target, dict):
        target = {}
    target = dict(target)
    for name, value in patch.items():
        if value is None:
            if target.get(name) is not None:
                del target[name]
        else:
            target[name] = merge_patch(target.get(name), value)
    return target
