"""Pod admission without a cluster: sets, namespaces, revisions and a fixed clock.

``World.create`` checks every answer: the Pod of the request is unchanged, the patch survives JSON and applies in order,
and each operation names its rule.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import jsonpatch
import orjson

from app.admission.pod_webhooks import pod_handler
from app.features.launchpriority.feature import LaunchPriorityStep
from app.features.podreadiness.feature import ReadinessGateStep
from app.features.sidecarset.injection.selection import SidecarSetIndex
from app.features.sidecarset.pod_admission import SidecarSetStep
from app.kube.admission import Decision, Denied, Operation, Patched, Review
from app.kube.clock import SystemClock
from app.kube.objects import ControllerRevision, decode_controller_revision
from app.pods.admission import FieldTrackingStep
from tests.kit.features import decided
from tests.kit.objects import pod_review

Json = dict[str, Any]

NOW = "2026-11-21T03:10:17Z"
INJECTED = {"name": "IS_INJECTED", "value": "true"}
HASH = "kruise.io/sidecarset-hash"
HASH_WITHOUT_IMAGE = "kruise.io/sidecarset-hash-without-image"
LIST = "kruise.io/sidecarset-injected-list"


class FixedClock(SystemClock):
    def now(self) -> datetime:
        return datetime(2026, 11, 21, 3, 10, 17, 987654, tzinfo=UTC)


@dataclass
class Answer:
    """Outcome of creating a Pod: the object as it would be stored, or the refusal."""

    pod: Json
    denied: Denied | None = None
    operations: list[Json] = field(default_factory=list)
    rules: list[str] = field(default_factory=list)

    @property
    def refusal(self) -> Denied:
        assert self.denied is not None, "the Pod is admitted"
        return self.denied

    @property
    def annotations(self) -> Mapping[str, str]:
        return self.pod["metadata"].get("annotations") or {}

    @property
    def containers(self) -> list[str]:
        return [container["name"] for container in self.pod["spec"]["containers"]]

    @property
    def init_containers(self) -> list[str]:
        return [container["name"] for container in self.pod["spec"].get("initContainers") or []]

    @property
    def volumes(self) -> list[str]:
        return [volume["name"] for volume in self.pod["spec"].get("volumes") or []]

    def container(self, name: str) -> Json:
        lists = (self.pod["spec"].get(key) or [] for key in ("containers", "initContainers"))
        return next(container for group in lists for container in group if container["name"] == name)

    def env(self, name: str) -> list[str]:
        """Return the container's env as NAME=value or NAME<fieldPath."""
        return [
            f"{entry['name']}={entry['value']}"
            if "value" in entry
            else f"{entry['name']}<{next(iter(entry['valueFrom'].values())).get('fieldPath')}"
            for entry in self.container(name).get("env") or []
        ]

    def mounts(self, name: str) -> list[str]:
        return [f"{mount['name']}→{mount['mountPath']}" for mount in self.container(name).get("volumeMounts") or []]

    def record(self, key: str = HASH) -> Json:
        record: Json = json.loads(self.annotations[key])
        return record


@dataclass
class World:
    """Inputs of admission. ``stale``: the caches lack all namespaces and revisions, which the API server has."""

    namespaces: dict[str, dict[str, str]] = field(default_factory=lambda: {"shop": {"env": "prod"}})
    recorded: list[ControllerRevision] = field(default_factory=list)
    stale: bool = False
    sort_by_name: bool = False
    every_pod_gated: bool = False
    index: SidecarSetIndex = field(default_factory=SidecarSetIndex)
    reported: list[tuple[str, str]] = field(default_factory=list)
    live_reads: list[str] = field(default_factory=list)
    #: Sets by name that only the API server has.
    live_sets: dict[str, Json] = field(default_factory=dict)

    def apply(self, *sets: Json) -> World:
        for obj in sets:
            self.index.update(obj)
        return self

    def namespace_labels(self, namespace: str) -> Mapping[str, str] | None:
        return None if self.stale else self._labels(namespace)

    def revisions(self, set_name: str) -> Iterable[ControllerRevision]:
        return () if self.stale else self.recorded

    async def live_namespace_labels(self, namespace: str) -> Mapping[str, str] | None:
        self.live_reads.append(f"namespace {namespace}")
        return self._labels(namespace)

    async def newer_sidecarsets(self, set_names: Sequence[str]) -> Iterable[Json]:
        self.live_reads.append(f"sidecarsets {' '.join(set_names)}")
        return [self.live_sets[name] for name in set_names if name in self.live_sets]

    async def live_revisions(self, set_name: str) -> Iterable[ControllerRevision]:
        self.live_reads.append(f"revisions {set_name}")
        return self.recorded

    def _labels(self, namespace: str) -> Mapping[str, str] | None:
        labels = self.namespaces.get(namespace)
        return None if labels is None else {"kubernetes.io/metadata.name": namespace, **labels}

    def create(self, pod: Json, *, namespace: str = "", dry_run: bool = False, groups: tuple[str, ...] = ()) -> Answer:
        """Return the Pod after admission."""
        before = copy.deepcopy(pod)
        decision = self.decide(review_of(pod, namespace=namespace, dry_run=dry_run, groups=groups))
        assert pod == before, "the Pod of the request was changed"
        if isinstance(decision, Denied):
            return Answer(before, denied=decision)
        if not isinstance(decision, Patched):
            return Answer(before)
        operations = orjson.loads(orjson.dumps([operation.as_json() for operation in decision.operations]))
        rules = [operation.rule for operation in decision.operations]
        assert all(rules), "an operation without its rule"
        return Answer(jsonpatch.JsonPatch(operations).apply(before), None, operations, rules)

    @cached_property
    def step(self) -> SidecarSetStep:
        """The step, which remembers what it has prepared."""
        return SidecarSetStep(
            self.index,
            self,
            FixedClock(),
            lambda: 0.5,
            sort_by_name=self.sort_by_name,
            report=lambda name, message: self.reported.append((name, message)),
        )

    def decide(self, review: Review) -> Decision:
        steps = (
            LaunchPriorityStep(random.Random(7)),
            self.step,
            ReadinessGateStep(self.every_pod_gated),
            FieldTrackingStep(),
        )
        return decided(pod_handler(steps).decide(review))


def review_of(pod: Json | None, *, operation: Operation = Operation.CREATE, **fields: Any) -> Review:
    """Return the review of this request."""
    return pod_review(operation, pod, **fields)


def sidecarset(name: str = "s", *containers: Json, match: dict[str, str] | None = None, **spec: Any) -> Json:
    """A SidecarSet for Pods labeled app=web (or ``match``), with the defaults injection depends on filled in."""
    annotations = spec.pop("annotations", {})
    metadata = spec.pop("metadata", {})
    inits = spec.pop("initContainers", [])
    status = spec.pop("status", {})
    return {
        "apiVersion": "apps.kruise.io/v1beta1",
        "kind": "SidecarSet",
        "metadata": {
            "name": name,
            "annotations": {HASH: f"hash-{name}", HASH_WITHOUT_IMAGE: f"bare-{name}", **annotations},
            **metadata,
        },
        "spec": {
            "selector": {"matchLabels": match or {"app": "web"}},
            "containers": [_defaulted(c, "BeforeAppContainer") for c in containers],
            "initContainers": [_defaulted(c, "AfterAppContainer") for c in inits],
            **spec,
        },
        "status": status,
    }


def _defaulted(container: Json, policy: str) -> Json:
    return {
        "image": f"registry.example/{container['name']}:1",
        "podInjectPolicy": policy,
        "upgradeStrategy": {"upgradeType": "ColdUpgrade"},
        "shareVolumePolicy": {"type": "disabled"},
        **container,
    }


def revision(name: str, of: Json, number: int = 1, **labels: str) -> ControllerRevision:
    """The ControllerRevision that records the present spec of a set."""
    recorded = {k: of["spec"].get(k) for k in ("containers", "initContainers", "volumes", "imagePullSecrets")}
    raw = {
        "metadata": {
            "name": name,
            "namespace": "kruise-system",
            "resourceVersion": str(100 + number),
            "labels": {"kruise.io/sidecarset-name": of["metadata"]["name"], **labels},
            "annotations": of["metadata"]["annotations"],
        },
        "revision": number,
        "data": {"spec": {"$patch": "replace", **recorded, "patchPodMetadata": of["spec"].get("patchPodMetadata")}},
    }
    return decode_controller_revision(orjson.dumps(raw))


def pod(**changes: Any) -> Json:
    """The base Pod of the examples in namespace shop: one init container, one container with env, mounts, volumes."""
    metadata = {
        "name": "web-0",
        "namespace": "shop",
        "labels": {"app": "web", "track": "stable"},
        **changes.pop("metadata", {}),
    }
    if "labels" in changes:
        metadata["labels"] = changes.pop("labels")
    if "annotations" in changes:
        metadata["annotations"] = changes.pop("annotations")
    spec = {
        "initContainers": [{"name": "prep", "image": "prep:1"}],
        "containers": [main()],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "d"}}, {"name": "logs", "emptyDir": {}}],
        **changes,
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "fieldOfTheFuture": {"kept": True}}


def main(name: str = "main", **changes: Any) -> Json:
    return {
        "name": name,
        "image": "main:1",
        "env": [
            {"name": "A", "value": "1"},
            {"name": "B", "value": "2"},
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}},
        ],
        "volumeMounts": [
            {"name": "data", "mountPath": "/data"},
            {"name": "logs", "mountPath": "/var/log/app", "subPathExpr": "$(POD_NAME)"},
        ],
        **changes,
    }
