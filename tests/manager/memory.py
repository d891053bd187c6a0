"""An API server in memory that supports what registration needs."""

from typing import Any

import orjson

from app.kube.wire import Request, Response
from tests.kube.fakes import MemoryServer, json_response, status_body


class MemoryApi(MemoryServer):
    """Also answers PUT, and removes fields that a merge patch sets to null."""

    def _answer(self, request: Request) -> Response:
        if request.method != "PUT":
            return super()._answer(request)
        body: dict[str, Any] = orjson.loads(request.body or b"")
        found = self.objects.get(request.path)
        if found is None:
            return json_response(404, status_body(404, "NotFound"))
        expected = body["metadata"].get("resourceVersion")
        if expected is not None and expected != found["metadata"]["resourceVersion"]:
            return json_response(409, status_body(409, "Conflict"))
        return self._store(request.path, body)
