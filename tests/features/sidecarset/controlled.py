"""SidecarSets, their revisions and Pods in memory, with the SidecarSet controller running on them on virtual time."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import orjson

from app.api import names
from app.features.sidecarset.feature import FEATURE
from app.features.sidecarset.history import RECORDED_SET, by_recorded_set
from app.features.sidecarset.kind import read_sidecar_set, sidecarset_hashes, with_defaults
from app.features.sidecarset.plan.missed import MISSED_BY, missing_from
from app.features.sidecarset.reconcile import INJECTED_BY, by_injecting_set
from app.features.sidecarset.types import SidecarSet
from app.kube.client import Client
from app.kube.objects import (
    ControllerRevision,
    Namespace,
    ObjectReference,
    Pod,
    decode_controller_revision,
    decode_namespace,
    decode_pod,
)
from app.kube.patches import merge_patch
from app.kube.resources import ObjectKey
from app.kube.store import Store
from app.kube.wire import Request, Response
from tests.kit.features import controller_of
from tests.kit.virtualtime import VirtualClock
from tests.kube.fakes import json_response, status_body

SETS = "/apis/apps.kruise.io/v1beta1/sidecarsets"
REVISIONS = "/apis/apps/v1/namespaces/kruise-system/controllerrevisions"


def merged(found: Any, patch: Any) -> Any:
    """A merge in which entries of containers and conditions are found by name and type, as a strategic one does."""
    if isinstance(patch, list) and isinstance(found, list):
        key = "type" if any("type" in one for one in patch) else "name"
        changes = {one[key]: one for one in patch}
        kept = [merged(one, changes.pop(one[key], {})) for one in found]
        return [*kept, *changes.values()]
    if not isinstance(patch, dict) or not isinstance(found, dict):
        return patch
    changed = {field: merged(found.get(field), value) for field, value in patch.items() if value is not None}
    return {field: value for field, value in found.items() if field not in patch} | changed


class Told:
    def __init__(self) -> None:
        self.events: list[tuple[str, str, str, str]] = []

    def event(self, regarding: ObjectReference, type_: str, reason: str, message: str) -> None:
        self.events.append((regarding.name, type_, reason, message))


@dataclass
class World:
    """An API server that keeps the caches current, unless ``lagging``: then ``catch_up`` has to be called.

    ``fail`` may answer a request instead, by returning a response.
    """

    fail: Callable[[Request], Response | None] = lambda request: None
    lagging: bool = False
    objects: dict[str, dict[str, Any]] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    latency: float = 0.0
    version: int = 0
    behind: list[Callable[[], None]] = field(default_factory=list)

    events: Told = field(default_factory=Told)

    def __post_init__(self) -> None:
        self.sets: Store[SidecarSet] = Store()
        self.pods: Store[Pod] = Store({INJECTED_BY: by_injecting_set, MISSED_BY: missing_from})
        self.namespaces: Store[Namespace] = Store()
        self.revisions: Store[ControllerRevision] = Store({RECORDED_SET: by_recorded_set})
        for store in (self.sets, self.pods, self.namespaces, self.revisions):
            store.replace([])

    # ---- what users do

    def apply(self, name: str = "s", *, labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
        """Create or change a SidecarSet, as admission would let it pass."""
        path = f"{SETS}/{name}"
        old = self.objects.get(path, {})
        spec = {"selector": {"matchLabels": {"app": "web"}}, "containers": [{"name": "shipper", "image": "a:1"}]} | spec
        spec = with_defaults({"spec": spec})["spec"]
        hashes = sidecarset_hashes(spec["containers"], spec.get("initContainers"))
        metadata = old.get("metadata") or {"name": name, "uid": f"uid-of-{name}-{self.version}", "generation": 0}
        changed = spec != old.get("spec")
        metadata = metadata | {"annotations": {names.SIDECARSET_HASH: hashes.hash}, "labels": labels or {}}
        metadata["generation"] += changed
        return self.store(path, old | {"metadata": metadata, "spec": spec})

    def pod(self, name: str, *, sets: str = "s", hash_of: str = "s", ready: bool = True, **metadata: Any) -> None:
        """Create or change an injected Pod; the hash it records is that of the set as it is now."""
        owner = self.objects.get(f"{SETS}/{hash_of}", {})
        record = {
            "hash": owner.get("metadata", {}).get("annotations", {}).get(names.SIDECARSET_HASH, ""),
            "controllerRevision": owner.get("status", {}).get("latestRevision", ""),
        }
        annotations = {names.SIDECARSET_INJECTED_LIST: sets, names.SIDECARSET_HASH: json.dumps({hash_of: record})}
        namespace = metadata.pop("namespace", "shop")
        body = {
            "metadata": {"labels": {"app": "web"}, "annotations": annotations} | metadata,
            "spec": {"containers": [{"name": "shipper", "image": "a:1"}]},
            "status": {
                "phase": "Running",
                "conditions": [{"type": "Ready", "status": str(ready)}],
                "containerStatuses": [{"name": "shipper", "image": "a:1", "imageID": "id"}],
            },
        }
        body["metadata"] |= {"name": name, "namespace": namespace, "uid": f"uid-of-{name}"}
        self.store(f"/api/v1/namespaces/{namespace}/pods/{name}", body)

    def namespace(self, name: str, **labels: str) -> None:
        self.store(f"/api/v1/namespaces/{name}", {"metadata": {"name": name, "uid": f"ns-{name}", "labels": labels}})

    def delete(self, path: str) -> None:
        """An object is gone, without grace."""
        found = self.objects.pop(path)
        key = ObjectKey(found["metadata"].get("namespace", ""), found["metadata"]["name"])
        self._cache(lambda: self._cache_of(path)[0].remove(key))

    def delete_pod(self, name: str) -> None:
        self.delete(f"/api/v1/namespaces/shop/pods/{name}")

    # ---- what is to be seen

    def status(self, name: str = "s") -> dict[str, Any]:
        found: dict[str, Any] = self.objects[f"{SETS}/{name}"].get("status") or {}
        return found

    def counts(self, name: str = "s") -> tuple[int, ...]:
        """Matched, updated, ready, updated and ready; -1 before the first status."""
        fields = ("matchedPods", "updatedPods", "readyPods", "updatedReadyPods")
        status = self.status(name)
        return tuple(status.get(field, 0) for field in fields) if status else (-1,) * 4

    def history(self) -> list[tuple[str, int]]:
        """Names and numbers of all revisions, oldest first."""
        found = [o for path, o in self.objects.items() if path.startswith(REVISIONS)]
        return [(o["metadata"]["name"], o["revision"]) for o in sorted(found, key=lambda o: int(o["revision"]))]

    def writes(self, part: str = "") -> list[str]:
        """The writing requests so far whose path contains ``part``."""
        return [f"{r.method} {r.path}" for r in self.requests if r.method != "GET" and part in r.path]

    # ---- the API server

    def store(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        self.version += 1
        stored = body | {"metadata": body["metadata"] | {"resourceVersion": str(self.version)}}
        self.objects[path] = stored
        store, decode = self._cache_of(path)
        raw = orjson.dumps(stored)
        self._cache(lambda: store.put(decode(raw)))
        return stored

    def _cache_of(self, path: str) -> tuple[Store[Any], Callable[[bytes], Any]]:
        if path.startswith(SETS):
            return self.sets, read_sidecar_set
        if path.startswith(REVISIONS):
            return self.revisions, decode_controller_revision
        return (self.pods, decode_pod) if "/pods/" in path else (self.namespaces, decode_namespace)

    def _cache(self, change: Callable[[], None]) -> None:
        if self.lagging:
            self.behind.append(change)
        else:
            change()

    def catch_up(self) -> None:
        """The caches get what they missed, in order."""
        self.lagging = False
        behind, self.behind = self.behind, []
        for change in behind:
            change()

    async def request(self, request: Request) -> Response:
        self.requests.append(request)
        if self.latency:
            await asyncio.sleep(self.latency)
        answer = self.fail(request)
        return answer if answer is not None else self._answer(request)

    def _answer(self, request: Request) -> Response:
        body = orjson.loads(request.body) if request.body else {}
        if request.method == "POST":
            path = f"{request.path}/{body['metadata']['name']}"
            if path in self.objects:
                return json_response(409, status_body(409, "AlreadyExists"))
            body["metadata"]["uid"] = f"uid-of-{body['metadata']['name']}-{self.version}"
            return json_response(201, self.store(path, body))
        path = request.path.removesuffix("/status")
        found = self.objects.get(path)
        if found is None:
            return json_response(404, status_body(404, "NotFound"))
        if request.method == "GET":
            return json_response(200, found)
        if request.path.endswith("/status"):
            return self._status_patched(path, found, body)
        wanted = body.get("preconditions", body.get("metadata", {})).get("uid")
        if wanted not in (None, found["metadata"]["uid"]):
            return json_response(409, status_body(409, "Conflict", "Precondition failed: UID in precondition"))
        if request.method == "DELETE":
            self.delete(path)
            return json_response(200, {"kind": "Status"})
        if "/pods/" in path:
            version = body["metadata"].get("resourceVersion", found["metadata"]["resourceVersion"])
            if version != found["metadata"]["resourceVersion"]:
                return json_response(409, status_body(409, "Conflict", "the object has been modified"))
            assert request.headers["Content-Type"] == "application/strategic-merge-patch+json"
            return json_response(200, self.store(path, merged(found, body)))
        assert request.headers["Content-Type"] == "application/merge-patch+json"
        return json_response(200, self.store(path, merge_patch(found, body)))

    def _status_patched(self, path: str, found: dict[str, Any], body: dict[str, Any]) -> Response:
        """Of what is not status only the resourceVersion counts, as for every custom resource."""
        version = found["metadata"]["resourceVersion"]
        if body.get("metadata", {}).get("resourceVersion", version) != version:
            return json_response(409, status_body(409, "Conflict", "the object has been modified"))
        return json_response(200, self.store(path, merged(found, {"status": body["status"]})))

    def stream(self, request: Request) -> Any:
        raise AssertionError("the caches are filled by hand")

    async def close(self) -> None:
        return None

    @property
    def stores(self) -> dict[str, Store[Any]]:
        return {
            "SidecarSets": self.sets,
            "Pods": self.pods,
            "Namespaces": self.namespaces,
            "ControllerRevisions": self.revisions,
        }

    @asynccontextmanager
    async def controlled(self) -> AsyncIterator[None]:
        client = Client(self, VirtualClock())
        controller = controller_of(FEATURE, client, self.stores, events=self.events)
        task = asyncio.create_task(controller.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
