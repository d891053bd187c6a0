"""The steps of a conformance case: requests, and which parts of their answers are compared.

A case is a list of steps in a namespace of its own. Steps name the namespace ``{ns}`` and earlier answers by number,
``${0.metadata.uid}``. What a real API server answers is recorded once (:mod:`tests.conformance.answers`); from then on
it is what every server must answer.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

JSON = "application/json"
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

Json = Any


@dataclass(frozen=True)
class Call:
    """One request. ``body``: JSON, or text that is sent as it is. ``keep``: only these paths of the answer count.

    ``until``: asked again until that holds of the answer (status, body). ``managed``: managedFields are compared too.
    ``quiet``: preparation, whose answer is only required to be a success.
    """

    method: str
    path: str
    body: Json = None
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    keep: Sequence[str] = ()
    drop: Sequence[str] = ()
    until: Callable[[int, Json], bool] | None = None
    managed: bool = False
    quiet: bool = False

    def payload(self) -> bytes | None:
        if self.body is None:
            return None
        return self.body.encode() if isinstance(self.body, str) else json.dumps(self.body).encode()


@dataclass(frozen=True)
class Watch:
    """A watch: the first ``count`` events that come, once ``during`` has been called. Events of ``ended`` end with it.

    ``keep``: what of each event's object is compared.
    """

    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    during: Sequence[Call] = ()
    count: int = 0
    keep: Sequence[str] = ("kind", "metadata.name")
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Hooks:
    """The requests that the test's webhooks have received since the last such step, in order.

    ``distinct``: equal requests count once. A write is reviewed again if a controller has written in between.
    """

    keep: Sequence[str] = ()
    distinct: bool = False


Step = Call | Watch | Hooks


class Case:
    """A named list of steps. ``needs``: plurals of the definitions that must exist."""

    def __init__(self, id: str, *steps: Step, needs: Sequence[str] = ()) -> None:
        self.id, self.steps, self.needs = id, steps, needs


def is_served(status: int, _: Json) -> bool:
    return status == 200


def is_gone(status: int, _: Json) -> bool:
    return status == 404


def get(path: str, **more: Any) -> Call:
    return Call("GET", path, **_headers(more))


def post(path: str, body: Json, **more: Any) -> Call:
    return Call("POST", path, body, **_headers(more, JSON))


def put(path: str, body: Json, **more: Any) -> Call:
    return Call("PUT", path, body, **_headers(more, JSON))


def delete(path: str, body: Json = None, **more: Any) -> Call:
    return Call("DELETE", path, body, **_headers(more, JSON))


def patch(content_type: str, path: str, body: Json, **more: Any) -> Call:
    return Call("PATCH", path, body, **_headers(more, content_type))


def apply(path: str, body: Json, *, manager: str = "tester", force: bool = False, **more: Any) -> Call:
    query = {"fieldManager": manager, **({"force": "true"} if force else {}), **more.pop("query", {})}
    return Call("PATCH", path, body, query=query, **_headers(more, APPLY_PATCH))


def quiet(call: Call) -> Call:
    return replace(call, quiet=True)


def merge(path: str, body: Json, **more: Any) -> Call:
    return patch(MERGE_PATCH, path, body, **more)


def strategic(path: str, body: Json, **more: Any) -> Call:
    return patch(STRATEGIC_PATCH, path, body, **more)


def prepared(path: str, *bodies: Json) -> list[Call]:
    return [quiet(post(path, body)) for body in bodies]


def _headers(more: dict[str, Any], content_type: str = "") -> dict[str, Any]:
    headers = dict(more.pop("headers", {}))
    if accept := more.pop("accept", ""):
        headers["Accept"] = accept
    if content_type:
        headers.setdefault("Content-Type", content_type)
    return more | {"headers": headers}


# ---- small objects


def config_map(name: str, data: Mapping[str, str] | None = None, **metadata: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}}
    return found if data is None else found | {"data": dict(data)}


def pod(name: str, *, metadata: Mapping[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **(metadata or {})},
        "spec": {"automountServiceAccountToken": False, "containers": [{"name": "main", "image": "app:1"}], **spec},
    }


def deployment(name: str, *, metadata: Mapping[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "app:1"}]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, **(metadata or {})},
        "spec": {"replicas": 0, "paused": True, "selector": {"matchLabels": labels}, "template": template, **spec},
    }


NAMESPACE = "/api/v1/namespaces/{ns}"
CONFIG_MAPS = f"{NAMESPACE}/configmaps"
PODS = f"{NAMESPACE}/pods"
SERVICES = f"{NAMESPACE}/services"
DEPLOYMENTS = "/apis/apps/v1/namespaces/{ns}/deployments"
CONFIG_MAP, POD, DEPLOYMENT = f"{CONFIG_MAPS}/a", f"{PODS}/a", f"{DEPLOYMENTS}/a"
