"""Pods and revisions for tests of in-place updates, and patches applied as an API server would."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson

from app.api import names
from app.kube.objects import Pod, decode_pod
from app.kube.patches import strategic_merge
from app.pods.inplace.eligibility import Blocked, InPlaceOptions, update_spec
from app.pods.inplace.state import UpdateSpec
from app.pods.inplace.steps import start, unready_patch
from app.pods.revisions import Revision
from app.sandbox.apiserver.schemas import kind_field

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
STATE = "apps.kruise.io/inplace-update-state"
GRACE = "apps.kruise.io/inplace-update-grace"
#: Labels that the start of an update writes.
MARK = {names.CONTROLLER_REVISION_HASH: "web-new", names.LIFECYCLE_STATE: "Updating"}
ALL_GATES = InPlaceOptions(env_from_metadata=True, vertical_scaling=True)


def later(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def container(name: str, image: str = "nginx:1", /, **fields: Any) -> dict[str, Any]:
    return {"name": name, "image": image, "resources": {}, **fields}


def env_from(field: str, key: str, name: str = "CFG") -> dict[str, Any]:
    return {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.{field}['{key}']"}}}


def template(
    *containers: dict[str, Any],
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    finalizers: list[str] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    metadata: dict[str, Any] = {"creationTimestamp": None, "labels": {"app": "web", **(labels or {})}}
    if annotations is not None:
        metadata["annotations"] = dict(annotations)
    if finalizers:
        metadata["finalizers"] = finalizers
    return {"metadata": metadata, "spec": {"containers": list(containers or [container("main")]), **spec}}


OLD, NEW = template(), template(container("main", "nginx:2"))


def revision(name: str, given: Mapping[str, Any], annotations: Mapping[str, str] | None = None) -> Revision:
    data = orjson.dumps({"spec": {"template": {**given, "$patch": "replace"}}})
    return Revision(name, 1, data, annotations=annotations or {})


def way(
    old: Mapping[str, Any], new: Mapping[str, Any], options: InPlaceOptions = ALL_GATES, *, grace: int = 0
) -> UpdateSpec | Blocked:
    return update_spec(revision("web-old", old), revision("web-new", new), options, grace_seconds=grace)


def possible(old: Mapping[str, Any], new: Mapping[str, Any], *, grace: int = 0) -> UpdateSpec:
    found = way(old, new, grace=grace)
    assert isinstance(found, UpdateSpec), found
    return found


def barrier(pod_name: str, priority: int) -> dict[str, Any]:
    reference = {"name": f"{pod_name}-barrier", "key": f"p_{priority}"}
    return {"name": "KRUISE_CONTAINER_BARRIER", "valueFrom": {"configMapKeyRef": reference}}


def raw_pod(
    given: Mapping[str, Any], *, priorities: Mapping[str, int] | None = None, ready: bool = True, **metadata: Any
) -> dict[str, Any]:
    """Return a running Pod of this template at revision web-old as JSON."""
    spec = copy.deepcopy(dict(given["spec"]))
    for item in spec["containers"]:
        if item["name"] in (priorities or {}):
            item.setdefault("env", []).append(barrier("web-0", (priorities or {})[item["name"]]))
    spec |= {"nodeName": "node-1", "readinessGates": [{"conditionType": "InPlaceUpdateReady"}]}
    own = {"labels": {}, "annotations": {}, **copy.deepcopy(dict(given["metadata"]))}
    own["labels"]["controller-revision-hash"] = "web-old"
    own |= {"name": "web-0", "namespace": "shop", "uid": "u1", "resourceVersion": "7"} | metadata
    return {
        "metadata": own,
        "spec": spec,
        "status": {
            "phase": "Running",
            "conditions": [
                {"type": "InPlaceUpdateReady", "status": "True"},
                {"type": "ContainersReady", "status": "True"},
                {"type": "Ready", "status": "True" if ready else "False"},
            ],
            "containerStatuses": [
                status(item["name"], item["image"], item.get("resources")) for item in spec["containers"]
            ],
        },
    }


def status(name: str, image: str, resources: Any = None, **fields: Any) -> dict[str, Any]:
    return {
        "name": name,
        "image": f"docker.io/library/{image}",
        "imageID": f"id-of-{image}",
        "containerID": f"containerd://{name}-{image}",
        "ready": True,
        "restartCount": 0,
        "resources": resources or {},
    } | fields


def pod(raw: Mapping[str, Any]) -> Pod:
    return decode_pod(orjson.dumps(raw))


def state_of(raw: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(raw["metadata"]["annotations"][STATE])
    return found


def patched(raw: Mapping[str, Any], patch: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the Pod after a strategic merge patch, with a new resourceVersion."""
    before = copy.deepcopy(dict(raw))
    if patch is None:
        return before
    assert patch["metadata"]["uid"] == raw["metadata"]["uid"]
    assert patch["metadata"].get("resourceVersion") in (None, raw["metadata"]["resourceVersion"])
    after = strategic_merge(before, dict(patch), kind_field("v1", "Pod"))
    after["metadata"]["resourceVersion"] = str(int(raw["metadata"]["resourceVersion"]) + 1)
    return after


def started(raw: Mapping[str, Any], spec: UpdateSpec, now: datetime = NOW) -> dict[str, Any]:
    """Return the Pod after the first write that changes it."""
    return patched(raw, start(pod(raw), spec, now, labels=MARK).patch)


def begun(raw: Mapping[str, Any], spec: UpdateSpec) -> dict[str, Any]:
    """Return the Pod after it left service and was changed."""
    return started(patched(raw, unready_patch(pod(raw), spec, NOW)), spec)


def restarted(raw: Mapping[str, Any], *containers: str, ready: bool = True) -> dict[str, Any]:
    """Return the Pod after the kubelet restarted these containers."""
    after = copy.deepcopy(dict(raw))
    images = {item["name"]: item for item in after["spec"]["containers"]}
    for found in after["status"]["containerStatuses"]:
        if found["name"] in containers:
            wanted, count = images[found["name"]], found["restartCount"] + 1
            changed = {"restartCount": count, "containerID": f"containerd://{found['name']}-{count}", "ready": ready}
            found |= status(found["name"], wanted["image"], wanted.get("resources"), **changed)
    after["metadata"]["resourceVersion"] = str(int(raw["metadata"]["resourceVersion"]) + 1)
    return after
