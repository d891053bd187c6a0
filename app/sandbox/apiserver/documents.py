"""Everything that is not about an object: discovery, OpenAPI, version, health."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import orjson
from multidict import CIMultiDict

from app.kube.transport import Response
from app.sandbox.apiserver import discovery, openapi, status
from app.sandbox.apiserver.core import Core
from app.sandbox.apiserver.requests import Call

_OPENAPI_2: Final = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_HEALTH: Final = frozenset({"/healthz", "/livez", "/readyz"})
_ROOTS: Final = ("/api", "/api/v1", "/apis", "/healthz", "/livez", "/openapi/v2", "/openapi/v3", "/readyz", "/version")


class Documents:
    """Answers paths that name no resource."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._address = "127.0.0.1:6443"
        #: Documents that are costly to make, until a CRD changes.
        self._kept: dict[str, bytes] = {}

    def served_at(self, address: str) -> None:
        """The address that /api tells clients."""
        self._address = address

    def forget(self) -> None:
        """What is served has changed."""
        self._kept.clear()

    def answer(self, call: Call) -> Response:
        """The document at a path. Refuses paths that are nothing."""
        if call.method not in ("GET", "HEAD"):
            raise status.method_not_allowed()
        path = call.path.rstrip("/") or "/"
        if path == "/openapi/v2" and "proto-openapi" in call.headers.get("accept", ""):
            # Clients that know version 3 only ask for kinds that are not served: nothing is known of them.
            return Response(200, CIMultiDict({"Content-Type": _OPENAPI_2}), b"\x0a\x032.0")
        if path in _HEALTH or any(path.startswith(f"{root}/") for root in _HEALTH):
            return Response(200, CIMultiDict({"Content-Type": "text/plain; charset=utf-8"}), b"ok")
        if path in ("/api", "/apis"):
            return self._groups(call, path)
        make = self._maker(path)
        if make is None:
            raise status.page_not_found()
        return _json(self._once(path, make))

    def _maker(self, path: str) -> Callable[[], Any] | None:
        parts = path.split("/")[1:]
        resources = self._core.registry.served
        match parts:
            case [""]:
                return lambda: {"paths": list(_ROOTS)}
            case ["version"]:
                return discovery.version_info
            case ["api", version]:
                return lambda: discovery.resource_list("", version, resources())
            case ["apis", group]:
                return lambda: discovery.api_group(group, resources())
            case ["apis", group, version]:
                return lambda: discovery.resource_list(group, version, resources())
            case ["openapi", "v2"]:  # in JSON; see :meth:`answer` for the other encoding
                return lambda: openapi.swagger(resources(), self._crds())
            case ["openapi", "v3"]:
                return lambda: openapi.index(resources(), self._crds())
            case ["openapi", "v3", "api", version]:
                return lambda: openapi.document("", version, resources(), self._crds())
            case ["openapi", "v3", "apis", group, version]:
                return lambda: openapi.document(group, version, resources(), self._crds())
        return None

    def _crds(self) -> list[dict[str, Any]]:
        return [entry.obj for entry in self._core.named("customresourcedefinitions.apiextensions.k8s.io").select("")]

    def _groups(self, call: Call, path: str) -> Response:
        """/api and /apis, in one document with all resources where the client knows that."""
        for choice in call.headers.get("accept", "").split(","):
            if set(discovery.AGGREGATED_ACCEPT) <= {part.strip() for part in choice.split(";")}:
                body = self._once(
                    f"aggregated {path}",
                    lambda: discovery.aggregated(self._core.registry.served(), core=path == "/api"),
                )
                return _json(body, discovery.AGGREGATED_TYPE)
            if "application/json" in choice and "as=" not in choice:
                break
        if path == "/api":
            return _json(orjson.dumps(discovery.api_versions(self._address)))
        return _json(self._once(path, lambda: discovery.api_groups(self._core.registry.served())))

    def _once(self, name: str, make: Callable[[], Any]) -> bytes:
        body = self._kept.get(name)
        if body is None:
            found = make()
            if found is None:
                raise _nothing_at(name)
            body = self._kept[name] = orjson.dumps(found) + b"\n"
        return body


def _nothing_at(path: str) -> status.Refusal:
    """What is answered for a group or version that is not served."""
    if path.startswith("/openapi/"):
        refusal = status.page_not_found()
        refusal.text = ""
        return refusal
    return status.no_such_path() if path.startswith("/api/") else status.page_not_found()


def _json(body: bytes, media: str = "application/json") -> Response:
    return Response(200, CIMultiDict({"Content-Type": media}), body)
