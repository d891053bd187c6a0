"""Shared parts of the reference: the Pod under admission, label selectors, reading and merging annotations."""

from __future__ import annotations

import copy
import json
import re
from dataclasses import dataclass
from typing import Any

from tests.property.branches import Branches
from tests.property.case import Case, Json

NAMESPACE_NAME = "kubernetes.io/metadata.name"
HASH = "kruise.io/sidecarset-hash"
HASH_WITHOUT_IMAGE = "kruise.io/sidecarset-hash-without-image"
INJECTED_LIST = "kruise.io/sidecarset-injected-list"
WORKING = "kruise.io/sidecarset-working-hotupgrade-container"
CUSTOM_VERSION = "apps.kruise.io/sidecarset-custom-version"
PRIORITY = "apps.kruise.io/container-launch-priority"
VARIABLE = re.compile(r"\$\(([-._a-zA-Z][-._a-zA-Z0-9]*)\)")
EXTENSIONS = {
    *("podInjectPolicy", "upgradeStrategy", "shareVolumePolicy", "shareVolumeDevicePolicy", "transferEnv"),
    "resourcesPolicy",
}


class Refused(Exception):
    """The Pod is rejected; ``branch`` names the rule."""

    def __init__(self, branch: str) -> None:
        super().__init__(branch)
        self.branch = branch


@dataclass
class Applied:
    """A set as it applies to this Pod: its own spec, or that of a recorded revision. [SS-69]"""

    name: str
    annotations: Json
    spec: Json
    hash: str
    hash_without_image: str
    revision: str

    def lists(self) -> tuple[list[Json], list[Json]]:
        return self.spec.get("containers") or [], self.spec.get("initContainers") or []


class State:
    """One Pod under admission, and the counts of the branches it reaches."""

    def __init__(self, case: Case, pod: Json, branches: Branches) -> None:
        self.case, self.pod, self.branches = case, pod, branches
        self.spec = pod["spec"]
        self.namespace = pod["metadata"].get("namespace") or case.request_namespace or "default"

    @property
    def annotations(self) -> Json:
        return self.pod["metadata"].get("annotations") or {}

    def annotate(self, key: str, value: str) -> None:
        self.pod["metadata"]["annotations"] = {**self.annotations, key: value}

    @property
    def containers(self) -> list[Json]:
        return self.spec.get("containers") or []

    @property
    def init_containers(self) -> list[Json]:
        return self.spec.get("initContainers") or []


def matches(selector: Json, labels: Json) -> bool:
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
    """Return the meaning of an env entry, whether or not it has the API server's defaults."""
    source = copy.deepcopy(env.get("valueFrom") or {})
    if "fieldRef" in source:
        source["fieldRef"].setdefault("apiVersion", "v1")
    if "resourceFieldRef" in source:
        source["resourceFieldRef"].setdefault("divisor", "0")
    return env.get("value") or "", source


def read_hashes(text: str | None, branches: Branches) -> Json:
    """Read both forms of the annotation. Raises ValueError for anything else. [SS-59]"""
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
    """Merge by RFC 7386, but keep nulls of the target, because the first patch is stored unmerged. [D-21]"""
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


def sorted_json(values: Json) -> str:
    """Return compact JSON with sorted outer keys and unsorted inner ones."""
    return json.dumps({k: values[k] for k in sorted(values)}, separators=(",", ":"), ensure_ascii=False)
