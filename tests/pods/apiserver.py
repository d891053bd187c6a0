"""An in-memory API server for Pods and their ConfigMaps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import orjson

from app.kube.objects import Object
from app.kube.patches import merge_patch, strategic_merge
from app.kube.store import Store
from app.kube.wire import Request, Response
from app.sandbox.apiserver.schemas import kind_field
from tests.kube.fakes import MemoryServer, json_response, status_body

T = TypeVar("T", bound=Object)
Json = dict[str, Any]


class ApiServer(MemoryServer):
    """Adds UIDs, preconditions, deletion and conditions merged by type to MemoryServer."""

    def _answer(self, request: Request) -> Response:
        path = request.path.removesuffix("/status")
        body = orjson.loads(request.body) if request.body else {}
        found = self.objects.get(path)
        if request.method == "POST":
            self.version += 1
            body["metadata"].setdefault("uid", f"uid-{self.version}")
            return super()._answer(Request("POST", path, {}, {}, orjson.dumps(body)))
        if found is None:
            return json_response(404, status_body(404, "NotFound", f"{path} not found"))
        expected = body.get("preconditions") or body.get("metadata") or {}
        for field in ("uid", "resourceVersion"):
            if expected.get(field) not in (None, found["metadata"][field]):
                return json_response(409, status_body(409, "Conflict", f"{field} differs"))
        if request.method == "DELETE":
            del self.objects[path]
            return json_response(200, status_body(200, ""))
        if request.method == "PATCH":
            if request.headers["Content-Type"].startswith("application/strategic-merge-patch"):
                body = {**body, "status": strategic_merge(found, body, kind_field("v1", "Pod"))["status"]}
            body.get("metadata", {}).pop("resourceVersion", None)
            if merge_patch(found, body) == found:
                return json_response(200, found)
            return super()._answer(Request("PATCH", path, {}, {}, orjson.dumps(body)))
        return super()._answer(Request(request.method, path, {}, {}))

    def put(self, path: str, obj: Json) -> Json:
        self.version += 1
        metadata = {"uid": f"uid-{self.version}", **obj["metadata"], "resourceVersion": str(self.version)}
        self.objects[path] = {**obj, "metadata": metadata}
        return self.objects[path]

    def writes(self) -> list[str]:
        return [f"{request.method} {request.path}" for request in self.requests if request.method != "GET"]

    def show(self, store: Store[T], decode: Callable[[bytes], T], within: str = "/pods/") -> None:
        """Fill a store with all objects, as a list would."""
        store.replace([decode(orjson.dumps(obj)) for path, obj in self.objects.items() if within in path])


def pod_path(name: str = "web-0") -> str:
    return f"/api/v1/namespaces/shop/pods/{name}"
