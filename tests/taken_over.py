"""Objects that OpenKruise left, created on a real API server, and the manager's writes to them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from app.api.conversion import convert
from app.manager.features import kinds
from tests.cluster.controlplane import ControlPlane
from tests.openkruise import FOLDER, bare

Json = dict[str, Any]
NAMESPACE: Final = "moving"
"""Namespace of the recorded objects."""
OURS: Final = {kind.kind: kind.resource() for kind in kinds()}
_NATIVE: Final = {
    "Pod": ("/api/v1", "pods"),
    "ControllerRevision": ("/apis/apps/v1", "controllerrevisions"),
    "Job": ("/apis/batch/v1", "jobs"),
    "PersistentVolumeClaim": ("/api/v1", "persistentvolumeclaims"),
    "ConfigMap": ("/api/v1", "configmaps"),
    "Event": ("/api/v1", "events"),
}
#: Owners before dependents, and jobs before the Pods with their containers.
_ORDER: Final = (
    *("UnitedDeployment", "ResourceDistribution", "CloneSet", "StatefulSet", "PersistentVolumeClaim", "ConfigMap"),
    *("DaemonSet", "BroadcastJob", "AdvancedCronJob", "EphemeralJob", "ControllerRevision", "Job", "Pod"),
    *("WorkloadSpread", "PodUnavailableBudget"),
    *("ImageListPullJob", "ImagePullJob", "ContainerRecreateRequest", "NodeImage"),
)
#: Simulated nodes and the sandbox's scheduler; the API server has no other.
NODES: Final = ("app.sandbox.nodes", "--nodes", "3", "--bind", "--agents")
#: No Job controller: the recorded Jobs have finished.
CONTROLLERS: Final = ("--controllers=*,-job",)
_TIME: Final = re.compile(r"2026-11-22T14:\d\d:\d\dZ")


def path_of(kind: str, name: str = "", namespace: str = NAMESPACE) -> str:
    if kind in _NATIVE:
        base, plural = _NATIVE[kind]
        path = f"{base}/namespaces/{namespace}/{plural}"
    else:
        resource = OURS[kind]
        where = f"namespaces/{namespace}/" if resource.namespaced else ""
        path = f"/apis/{resource.api_version}/{where}{resource.plural}"
    return f"{path}/{name}" if name else path


def recorded_in(*files: str) -> list[Json]:
    """Return the recorded objects with times shifted so that nothing has expired."""
    now = datetime.now(UTC)
    return [one for name in files for one in json.loads(_just_now((FOLDER / name).read_text("utf-8"), now))["items"]]


def _just_now(text: str, now: datetime) -> str:
    last = datetime(2026, 11, 22, 14, 10, tzinfo=UTC)
    shift = now.replace(second=0, microsecond=0) - last

    def later(found: re.Match[str]) -> str:
        return f"{datetime.strptime(found.group(), '%Y-%m-%dT%H:%M:%S%z') + shift:%Y-%m-%dT%H:%M:%SZ}"

    text = re.sub(r"acj-(\d{10})", lambda one: f"acj-{int(one[1]) + int(shift / timedelta(seconds=1))}", text)
    return _TIME.sub(later, text)


def change(api: ControlPlane, path: str, **spec: Any) -> None:
    """Replace fields of the object's spec; retry conflicts, because controllers write its status."""
    _put(api, path, spec=spec)


def begin(api: ControlPlane, namespace: str = NAMESPACE) -> None:
    """Create the namespace, so that Pods can be created in it."""
    api.kubectl("create", "namespace", namespace)
    api.kubectl("wait", "--for=create", "-n", namespace, "serviceaccount/default", "--timeout=30s")


def create_all(api: ControlPlane, items: Iterable[Json], namespace: str = NAMESPACE) -> None:
    """Create the objects with their statuses, under the uids of this API server; skip those with a missing owner."""
    uids: dict[str, str] = {}
    for item in sorted(items, key=lambda one: _ORDER.index(one["kind"])):
        kind = item["kind"]
        owners = [
            {**one, "uid": uids[one["uid"]]}
            for one in item["metadata"].get("ownerReferences", ())
            if one["uid"] in uids
        ]
        if ("ownerReferences" in item["metadata"] and not owners) or item["metadata"]["name"] == "kube-root-ca.crt":
            continue  # of a missing workload, or of Kubernetes
        made = json.loads(_with(uids, json.dumps(bare(item))))
        if "namespace" in made["metadata"]:
            made["metadata"]["namespace"] = namespace
        if kind == "NodeImage":
            for entry in made["spec"]["images"].values():
                for tag in entry["tags"]:
                    tag["ownerReferences"] = [one for one in tag["ownerReferences"] if one["uid"] in uids.values()]
        if owners:
            made["metadata"]["ownerReferences"] = owners
        if kind == "Job":
            # Its labels and selector contain its uid, which the API server assigns.
            made["metadata"].pop("labels")
            made["spec"].pop("selector")
            made["spec"]["template"]["metadata"].pop("labels")
        status = item.get("status")
        if kind in OURS and made["apiVersion"] != OURS[kind].api_version:
            made = convert({**made, "status": status or {}}, OURS[kind].api_version)
            status = made.pop("status")
        # A Pod cannot be created with ephemeral containers; they are added afterwards.
        added = made["spec"].pop("ephemeralContainers", None) if kind == "Pod" else None
        code, answer = api.request("POST", path_of(kind, namespace=namespace), made)
        assert code == 201, (kind, answer)
        name = answer["metadata"]["name"]
        uids[item["metadata"]["uid"]] = answer["metadata"]["uid"]
        if added:
            _put(api, path_of(kind, name, namespace), "ephemeralcontainers", spec={"ephemeralContainers": added})
        if status:
            status = json.loads(_with(uids, json.dumps(status)))
            if "observedGeneration" in status:
                status["observedGeneration"] = answer["metadata"]["generation"]
            _put(api, path_of(kind, name, namespace), "status", status=status)


def _put(api: ControlPlane, path: str, sub: str = "", spec: Json | None = None, status: Json | None = None) -> None:
    code = 409
    while code == 409:  # controllers react to new objects at once
        found = api.request("GET", path)[1]
        wanted = {**found, "spec": {**found["spec"], **(spec or {})}}
        if status is not None:
            wanted["status"] = status
        code, answer = api.request("PUT", f"{path}/{sub}".rstrip("/"), wanted)
    assert code == 200, (path, answer)


def _with(uids: Json, text: str) -> str:
    for old, new in uids.items():
        text = text.replace(old, new)
    return text


def writes(api: ControlPlane, namespace: str = NAMESPACE) -> list[str]:
    """Return the manager's writes in the namespace and of NodeImages and NodePodProbes: verb and object."""
    found = []
    whole, _, _ = api.audit_log.read_text("utf-8").rpartition("\n")  # the last line may be incomplete
    for line in whole.splitlines():
        entry = json.loads(line)
        about = entry.get("objectRef", {})
        if entry["verb"] in ("get", "list", "watch") or about.get("resource") in ("events", "leases"):
            continue
        if about.get("namespace") == namespace or about.get("resource") in ("nodeimages", "nodepodprobes"):
            sub = f"/{about['subresource']}" if "subresource" in about else ""
            found.append(f"{entry['verb']} {about['resource']}/{about.get('name', '')}{sub}")
    return found
