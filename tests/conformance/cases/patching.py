"""Patches: JSON, merge and strategic merge, and what they may not change."""

from typing import Any

from tests.conformance.steps import (
    CONFIG_MAP,
    CONFIG_MAPS,
    DEPLOYMENT,
    DEPLOYMENTS,
    JSON_PATCH,
    MERGE_PATCH,
    POD,
    PODS,
    SERVICES,
    STRATEGIC_PATCH,
    Call,
    Case,
    config_map,
    deployment,
    get,
    merge,
    patch,
    pod,
    prepared,
    strategic,
)

_A = config_map("a", {"k": "v", "l": "w"}, labels={"x": "1"})
_KEEP = ("code", "reason", "message", "details", "data", "metadata.labels", "metadata.name", "immutable")


def _json(id: str, *operations: Any) -> Case:
    return Case(f"json-{id}", *prepared(CONFIG_MAPS, _A), patch(JSON_PATCH, CONFIG_MAP, list(operations), keep=_KEEP))


def _merge(id: str, body: Any) -> Case:
    return Case(f"merge-{id}", *prepared(CONFIG_MAPS, _A), merge(CONFIG_MAP, body, keep=_KEEP))


def _strategic(id: str, body: Any, *, keep: tuple[str, ...] = ("spec",), on: Any = None) -> Case:
    return Case(
        f"strategic-{id}",
        *prepared(DEPLOYMENTS, on or _THREE),
        strategic(DEPLOYMENT, body, keep=(*keep, "message", "code")),
    )


def _template(**spec: Any) -> dict[str, Any]:
    return {"spec": {"template": {"spec": spec}}}


def _containers(*containers: Any) -> dict[str, Any]:
    return _template(containers=list(containers))


def _ordered(*names: str, **more: Any) -> dict[str, Any]:
    return _template(**{"$setElementOrder/containers": [{"name": name} for name in names]}, **more)


def _of_template(id: str, field: str, value: Any) -> Case:
    return _strategic(id, _template(**{field: value}), keep=(f"spec.template.spec.{field}",))


def _second(id: str, field: str, value: Any) -> Case:
    """A patch of the second container."""
    body = _containers({"name": "two", field: value})
    return _strategic(id, body, keep=(f"spec.template.spec.containers.1.{field}",))


def _owner(**more: Any) -> Call:
    body = {"metadata": {"ownerReferences": [{**more, "uid": "${0.metadata.uid}"}]}}
    return strategic(CONFIG_MAP, body, keep=["metadata.ownerReferences"])


def _tolerated(key: str) -> dict[str, Any]:
    return {"key": key, "operator": "Exists"}


def _tolerations(*keep: str, path: str, **operation: Any) -> Call:
    return patch(JSON_PATCH, POD, [{"path": f"/spec/tolerations{path}", **operation}], keep=keep)


def _conditions(*conditions: Any, keep: tuple[str, ...] = ("status.conditions.*.type",)) -> Call:
    return strategic(f"{POD}/status", {"status": {"conditions": list(conditions)}}, keep=keep)


_TEMPLATE = {
    "metadata": {"labels": {"app": "a"}},
    "spec": {
        "containers": [
            {"name": "one", "image": "one:1", "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]},
            {
                "name": "two",
                "image": "two:1",
                "args": ["x", "y"],
                "ports": [{"containerPort": 80}, {"containerPort": 81}],
            },
            {"name": "three", "image": "three:1"},
        ],
        "volumes": [{"name": "scratch", "emptyDir": {}}],
        "tolerations": [_tolerated("a")],
        "imagePullSecrets": [{"name": "pull"}],
        "nodeSelector": {"disk": "fast"},
    },
}
_THREE = deployment("a", template=_TEMPLATE)
_IMAGES = ("spec.template.spec.containers.*.name", "spec.template.spec.containers.*.image")
_ENV = ("spec.template.spec.containers.*.env",)

_WRONG_TYPES = {
    "none": ("", "{}"),
    "json": ("application/json", "{}"),
    "text": ("text/plain", "{}"),
    "json-patch-object": (JSON_PATCH, '{"data":{"k":"w"}}'),
    "json-patch-nonsense": (JSON_PATCH, "{"),
    "merge-list": (MERGE_PATCH, "[]"),
    "merge-nonsense": (MERGE_PATCH, "{"),
    "merge-text": (MERGE_PATCH, '"a"'),
    "merge-null": (MERGE_PATCH, "null"),
    "merge-empty": (MERGE_PATCH, ""),
    "strategic-list": (STRATEGIC_PATCH, "[]"),
    "strategic-nonsense": (STRATEGIC_PATCH, "{"),
    "strategic-yaml": (STRATEGIC_PATCH, "data:\n  k: w\n"),
    "unknown": ("application/my-patch+json", "{}"),
}

CASES = [
    _json("replace", {"op": "replace", "path": "/data/k", "value": "w"}),
    _json("add", {"op": "add", "path": "/data/m", "value": "x"}),
    _json("add-object", {"op": "add", "path": "/metadata/annotations", "value": {"a": "b"}}),
    _json("add-over", {"op": "add", "path": "/data/k", "value": "x"}),
    _json("remove", {"op": "remove", "path": "/data/k"}),
    _json("remove-all", {"op": "remove", "path": "/data"}),
    _json("copy", {"op": "copy", "from": "/data/k", "path": "/data/m"}),
    _json("move", {"op": "move", "from": "/data/k", "path": "/data/m"}),
    _json("test", {"op": "test", "path": "/data/k", "value": "v"}, {"op": "remove", "path": "/data/k"}),
    _json("test-fails", {"op": "test", "path": "/data/k", "value": "z"}),
    _json("test-missing", {"op": "test", "path": "/data/z", "value": "z"}),
    _json("test-null", {"op": "test", "path": "/data/z", "value": None}),
    _json("replace-missing", {"op": "replace", "path": "/data/z", "value": "w"}),
    _json("remove-missing", {"op": "remove", "path": "/data/z"}),
    _json("add-deep-missing", {"op": "add", "path": "/metadata/annotations/a", "value": "b"}),
    _json("copy-missing", {"op": "copy", "from": "/data/z", "path": "/data/m"}),
    _json("odd-operation", {"op": "shuffle", "path": "/data/k"}),
    _json("no-operation", {"path": "/data/k", "value": "w"}),
    _json("no-path", {"op": "add", "value": "w"}),
    _json("no-value", {"op": "add", "path": "/data/k"}),
    _json("relative-path", {"op": "add", "path": "data/k", "value": "w"}),
    _json("escaped", {"op": "add", "path": "/metadata/labels/example.com~1a", "value": "b"}),
    _json("nothing"),
    _json("same", {"op": "replace", "path": "/data/k", "value": "v"}),
    _json("number", {"op": "replace", "path": "/data/k", "value": 1}),
    _json("name", {"op": "replace", "path": "/metadata/name", "value": "b"}),
    _json("namespace", {"op": "replace", "path": "/metadata/namespace", "value": "elsewhere"}),
    _json("kind", {"op": "replace", "path": "/kind", "value": "Gremlin"}),
    _json("version", {"op": "replace", "path": "/metadata/resourceVersion", "value": "1"}),
    _json("uid", {"op": "replace", "path": "/metadata/uid", "value": "7"}),
    _json("unknown-field", {"op": "add", "path": "/colour", "value": "blue"}),
    _json("many", *({"op": "add", "path": "/data/k", "value": str(number)} for number in range(10001))),
    Case(
        "json-list-items",
        *prepared(PODS, pod("a", tolerations=[_tolerated("a"), _tolerated("b")])),
        _tolerations("spec.tolerations", "message", op="add", path="/-", value=_tolerated("c")),
        _tolerations("metadata.name", op="test", path="/0/key", value="a"),
        _tolerations("message", "code", op="remove", path="/9"),
        _tolerations("message", op="add", path="/x", value=1),
    ),
    _merge("change", {"data": {"k": "w"}}),
    _merge("add", {"data": {"m": "x"}}),
    _merge("remove", {"data": {"k": None}}),
    _merge("remove-all", {"data": None}),
    _merge("labels", {"metadata": {"labels": {"y": "2"}}}),
    _merge("nothing", {}),
    _merge("same", {"data": {"k": "v"}}),
    _merge("type", {"data": "text"}),
    _merge("number", {"data": {"k": 1}}),
    _merge("name", {"metadata": {"name": "b"}}),
    _merge("namespace", {"metadata": {"namespace": "elsewhere"}}),
    _merge("kind", {"kind": "Gremlin"}),
    _merge("api-version", {"apiVersion": "v2"}),
    _merge("stale", {"metadata": {"resourceVersion": "1"}}),
    _merge("uid", {"metadata": {"uid": "7"}}),
    _merge("unknown-field", {"colour": "blue"}),
    _merge("bad-label", {"metadata": {"labels": {"-": "b"}}}),
    _merge("finalizer", {"metadata": {"finalizers": ["hold"]}}),
    Case(
        "merge-replaces-lists",
        *prepared(DEPLOYMENTS, _THREE),
        merge(DEPLOYMENT, _containers({"name": "four", "image": "four:1"}), keep=_IMAGES),
    ),
    _strategic("container", _containers({"name": "two", "image": "two:2"}), keep=_IMAGES),
    _strategic("add-container", _containers({"name": "zero", "image": "zero:1"}), keep=_IMAGES),
    _strategic("delete-container", _containers({"name": "two", "$patch": "delete"}), keep=_IMAGES),
    _strategic(
        "replace-containers", _containers({"name": "only", "image": "only:1"}, {"$patch": "replace"}), keep=_IMAGES
    ),
    _strategic("delete-missing", _containers({"name": "nine", "$patch": "delete"}), keep=_IMAGES),
    _strategic("order", _ordered("three", "one", "two"), keep=_IMAGES),
    _strategic(
        "order-and-add",
        _ordered("new", "one", "two", "three", containers=[{"name": "new", "image": "new:1"}]),
        keep=_IMAGES,
    ),
    _strategic("no-merge-key", _containers({"image": "two:2"}), keep=_IMAGES),
    _strategic("env", _containers({"name": "one", "env": [{"name": "A", "value": "9"}]}), keep=_ENV),
    _strategic("env-add", _containers({"name": "one", "env": [{"name": "C", "value": "3"}]}), keep=_ENV),
    _strategic("env-delete", _containers({"name": "one", "env": [{"name": "A", "$patch": "delete"}]}), keep=_ENV),
    _strategic(
        "env-value-from",
        _containers(
            {
                "name": "one",
                "env": [{"name": "A", "value": None, "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
            }
        ),
        keep=_ENV,
    ),
    _second("args-replace", "args", ["z"]),
    _second("args-null", "args", None),
    _second("ports", "ports", [{"containerPort": 80, "name": "web"}]),
    _second("port-delete", "ports", [{"containerPort": 80, "$patch": "delete"}]),
    _of_template("tolerations-replace", "tolerations", [_tolerated("b")]),
    _of_template(
        "volume-retain-keys",
        "volumes",
        [{"name": "scratch", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/tmp"}}],
    ),
    _of_template("volume-without-retain-keys", "volumes", [{"name": "scratch", "hostPath": {"path": "/tmp"}}]),
    _strategic(
        "strategy-retain-keys",
        {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}},
        keep=("spec.strategy",),
    ),
    _strategic("strategy-without-retain-keys", {"spec": {"strategy": {"type": "Recreate"}}}, keep=("spec.strategy",)),
    _of_template("pull-secrets", "imagePullSecrets", [{"name": "more"}]),
    _of_template("map-replace", "nodeSelector", {"$patch": "replace", "zone": "a"}),
    _of_template("map-replace-missing", "dnsConfig", {"$patch": "replace", "searches": ["a"]}),
    _of_template("map-delete", "nodeSelector", {"$patch": "delete"}),
    _strategic("odd-directive", _template(nodeSelector={"$patch": "shuffle"})),
    _strategic("odd-list-directive", _containers({"name": "two", "$patch": "shuffle"})),
    _strategic(
        "null-field", {"spec": {"minReadySeconds": None, "paused": None}}, keep=("spec.paused", "spec.minReadySeconds")
    ),
    _strategic(
        "replicas",
        {"spec": {"replicas": 0, "revisionHistoryLimit": 3}},
        keep=("spec.replicas", "spec.revisionHistoryLimit"),
    ),
    _strategic("type-mismatch", _template(containers="none")),
    _strategic("number-as-text", {"spec": {"replicas": "three"}}),
    _strategic("unknown-field", {"spec": {"colour": "blue"}}, keep=("metadata.name",)),
    _strategic(
        "finalizers-merge",
        {"metadata": {"finalizers": ["example.com/b"]}},
        keep=("metadata.finalizers",),
        on=deployment("a", metadata={"finalizers": ["example.com/a"]}),
    ),
    _strategic(
        "finalizers-delete",
        {"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/a"]}},
        keep=("metadata.finalizers",),
        on=deployment("a", metadata={"finalizers": ["example.com/a", "example.com/b"]}),
    ),
    _strategic(
        "labels",
        {"metadata": {"labels": {"new": "label", "old": None}}},
        keep=("metadata.labels",),
        on=deployment("a", metadata={"labels": {"old": "1", "kept": "2"}}),
    ),
    _strategic("nothing", {}, keep=("metadata.generation",)),
    Case(
        "strategic-service-ports",
        *prepared(
            SERVICES,
            {"metadata": {"name": "a"}, "spec": {"ports": [{"name": "a", "port": 80}, {"name": "b", "port": 81}]}},
        ),
        strategic(f"{SERVICES}/a", {"spec": {"ports": [{"port": 81, "targetPort": 8081}]}}, keep=["spec.ports"]),
        strategic(f"{SERVICES}/a", {"spec": {"ports": [{"port": 82}]}}, keep=["message"]),
    ),
    Case(
        "strategic-conditions",
        *prepared(PODS, pod("a")),
        _conditions({"type": "Ready", "status": "False"}),
        _conditions(
            {"type": "Ready", "status": "True"},
            {"type": "Mine", "status": "True"},
            keep=("status.conditions.*.type", "status.conditions.*.status"),
        ),
        _conditions({"type": "Ready", "$patch": "delete"}),
    ),
    Case(
        "strategic-owner-references",
        *prepared(CONFIG_MAPS, config_map("o"), config_map("a")),
        _owner(apiVersion="v1", kind="ConfigMap", name="o"),
        _owner(**{"$patch": "delete"}),
    ),
    Case(
        "strategic-on-a-custom-resource",
        *prepared(
            "/apis/conformance.example.com/v1/namespaces/{ns}/gadgets",
            {"apiVersion": "conformance.example.com/v1", "kind": "Gadget", "metadata": {"name": "a"}},
        ),
        strategic("/apis/conformance.example.com/v1/namespaces/{ns}/gadgets/a", {"spec": {"a": 1}}),
        needs=["gadgets"],
    ),
    Case(
        "patch-missing", merge(CONFIG_MAP, {"data": {}}), patch(JSON_PATCH, CONFIG_MAP, []), strategic(CONFIG_MAP, {})
    ),
    Case("patch-with-force", *prepared(CONFIG_MAPS, _A), merge(CONFIG_MAP, {}, query={"force": "true"})),
    Case(
        "patch-manager",
        *prepared(CONFIG_MAPS, _A),
        merge(
            CONFIG_MAP,
            {"data": {"k": "w"}},
            query={"fieldManager": "me"},
            managed=True,
            keep=["metadata.managedFields"],
        ),
    ),
    Case(
        "patch-nothing-keeps-version",
        *prepared(CONFIG_MAPS, _A),
        merge(CONFIG_MAP, {"data": {"k": "v"}}),
        get(
            "/api/v1/namespaces/{ns}/configmaps",
            query={
                "resourceVersion": "${0.metadata.resourceVersion}",
                "resourceVersionMatch": "Exact",
                "fieldSelector": "metadata.name=a",
            },
            keep=["items.*.data"],
        ),
    ),
    *(
        Case(
            f"body-{id}",
            *prepared(CONFIG_MAPS, _A),
            Call("PATCH", CONFIG_MAP, body, headers={"Content-Type": kind} if kind else {}),
        )
        for id, (kind, body) in _WRONG_TYPES.items()
    ),
]
