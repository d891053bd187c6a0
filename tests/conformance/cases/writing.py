"""Writing: create, update, preconditions and rejections, generated names, dry run, field validation."""

from dataclasses import replace
from typing import Any

from tests.conformance.steps import (
    CONFIG_MAP,
    CONFIG_MAPS,
    DEPLOYMENT,
    DEPLOYMENTS,
    METADATA,
    POD,
    PODS,
    SERVICES,
    Call,
    Case,
    Step,
    config_map,
    delete,
    deployment,
    get,
    merge,
    pod,
    post,
    prepared,
    put,
    quiet,
    strategic,
)


def _body(id: str, body: Any, *, path: str = CONFIG_MAPS, **query: str) -> Case:
    return Case(f"create-{id}", post(path, body, query=query))


def _raw(id: str, body: str, content_type: str = "application/json", **query: str) -> Case:
    return Case(id, Call("POST", CONFIG_MAPS, body, query=query, headers={"Content-Type": content_type}))


def _existing(id: str, *steps: Step) -> Case:
    return Case(id, *prepared(CONFIG_MAPS, _A), *steps)


def _patched_pod(id: str, body: Any, *keep: str) -> Case:
    return Case(f"pod-{id}", *prepared(PODS, pod("a")), merge(POD, body, keep=keep))


_A = config_map("a", {"k": "v"})
_W = put(CONFIG_MAP, config_map("a", {"k": "w"}))
_READ = get(CONFIG_MAP, keep=["data"])
_DRY = {"dryRun": "All"}
_NAMES = {
    "upper-case": "Upper",
    "underscore": "under_score",
    "dot-first": ".a",
    "dash-last": "a-",
    "slash": "a/b",
    "percent": "a%b",
    "long": "x" * 254,
    "longest": "x" * 253,
    "dots": "a.b.c",
    "space": "a b",
    "two-dots": "..",
    "unicode": "ä",
}
_METADATA: dict[str, dict[str, Any]] = {
    "label-key": {"labels": {"-a": "b"}},
    "label-value": {"labels": {"a": "-b"}},
    "label-long": {"labels": {"a": "b" * 64}},
    "label-prefix": {"labels": {"a/b/c": "d"}},
    "label-number": {"labels": {"a": 1}},
    "label-null": {"labels": {"a": None}},
    "labels-list": {"labels": ["a"]},
    "labels-null": {"labels": None},
    "annotation-key": {"annotations": {"-a": "b"}},
    "annotation-upper-prefix": {"annotations": {"A.b/c": "d"}},
    "annotation-large": {"annotations": {"a": "b" * 262145}},
    "finalizer-unqualified": {"finalizers": ["orphan-me"]},
    "finalizer-qualified": {"finalizers": ["example.com/hold"]},
    "finalizer-bad": {"finalizers": ["example.com/-"]},
    "owner-no-kind": {"ownerReferences": [{"apiVersion": "v1", "name": "a", "uid": "u"}]},
    "owner-no-uid": {"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "a"}]},
    "owner-bad-version": {"ownerReferences": [{"apiVersion": "a/b/c", "kind": "K", "name": "a", "uid": "u"}]},
    "owner-event": {"ownerReferences": [{"apiVersion": "v1", "kind": "Event", "name": "a", "uid": "u"}]},
    "owner-two-controllers": {
        "ownerReferences": [
            {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": f"u-{name}", "controller": True}
            for name in "ab"
        ]
    },
    "version-set": {"resourceVersion": "7"},
    "uid-set": {"uid": "7"},
    "time-set": {"creationTimestamp": "2001-01-01T00:00:00Z"},
    "deletion-set": {"deletionTimestamp": "2001-01-01T00:00:00Z", "deletionGracePeriodSeconds": 3},
    "generation-set": {"generation": 9},
    "self-link": {"selfLink": "/here"},
    "managed-fields-nonsense": {"managedFields": [{"manager": "m", "operation": "Guess"}]},
    "name-and-generate": {"generateName": "b-"},
    "time-nonsense": {"creationTimestamp": "yesterday"},
}

_BODIES: dict[str, Any] = {
    "minimal": {"metadata": {"name": "a"}},
    "no-metadata": {"data": {"a": "b"}},
    "no-name": {"metadata": {}},
    "empty": {},
    "null": None,
    "kind-only": {"kind": "ConfigMap"},
    "wrong-kind": {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}},
    "wrong-version": {"apiVersion": "v2", "kind": "ConfigMap", "metadata": {"name": "a"}},
    "wrong-group": {"apiVersion": "apps/v1", "kind": "ConfigMap", "metadata": {"name": "a"}},
    "unknown-kind": {"apiVersion": "v1", "kind": "Gremlin", "metadata": {"name": "a"}},
    "odd-version": {"apiVersion": "a/b/c", "kind": "ConfigMap", "metadata": {"name": "a"}},
    "namespace-same": config_map("a", namespace="{ns}"),
    "namespace-other": config_map("a", namespace="elsewhere"),
    "data-number": {"metadata": {"name": "a"}, "data": {"a": 1}},
    "data-nested": {"metadata": {"name": "a"}, "data": {"a": {"b": "c"}}},
    "data-list": {"metadata": {"name": "a"}, "data": ["b"]},
    "data-bool": {"metadata": {"name": "a"}, "data": {"a": True}},
    "data-null": {"metadata": {"name": "a"}, "data": None},
    "data-value-null": {"metadata": {"name": "a"}, "data": {"a": None}},
    "data-key": config_map("a", {"a b": "c"}),
    "data-key-dots": config_map("a", {"..": "c"}),
    "data-and-binary": {"metadata": {"name": "a"}, "data": {"k": "v"}, "binaryData": {"k": "dg=="}},
    "binary": {"metadata": {"name": "a"}, "binaryData": {"k": "dg=="}},
    "binary-nonsense": {"metadata": {"name": "a"}, "binaryData": {"k": "*"}},
    "immutable": {"metadata": {"name": "a"}, "immutable": True},
    "immutable-text": {"metadata": {"name": "a"}, "immutable": "yes"},
    "metadata-text": {"metadata": "a"},
    "name-number": {"metadata": {"name": 7}},
    "large": config_map("a", {"a": "x" * 1048577}),
    "list-kind": {"apiVersion": "v1", "kind": "ConfigMapList", "items": []},
    "unknown-field": {**_A, "colour": "blue"},
}
_RAW = {
    "not-json": "{",
    "text": "hello",
    "number": "7",
    "list": "[]",
    "string": '"a"',
    "empty": "",
    "yaml-as-json": "metadata:\n  name: a\n",
    "duplicate": '{"metadata":{"name":"a"},"data":{"k":"1"},"data":{"k":"2"}}',
    "duplicate-key": '{"metadata":{"name":"a"},"data":{"k":"1","k":"2"}}',
    "case": '{"metadata":{"name":"a"},"Data":{"k":"1"}}',
    "trailing": '{"metadata":{"name":"a"}} {"more":1}',
    "deep": '{"metadata":{"name":"a"},"data":' + '{"a":' * 50 + "1" + "}" * 50 + "}",
}
_VALIDATIONS = ("Ignore", "Warn", "Strict", "", "Sometimes")
_UNKNOWN = {**_A, "colour": "blue", "metadata": {"name": "a", "shape": "round", "labels": {"a": "b"}}}
_UNKNOWN_POD = pod(
    "a",
    containers=[{"name": "main", "image": "app:1", "colour": "blue", "ports": [{"containerport": 1}]}],
    shade="dark",
)


def _updated(
    id: str,
    change: dict[str, Any],
    *,
    metadata: dict[str, Any] | None = None,
    steps: tuple[Call, ...] = (),
    name: str = "a",
) -> Case:
    body = config_map("a", {"k": "v"}, **(metadata or {}))
    return Case(f"update-{id}", *prepared(CONFIG_MAPS, _A), *steps, put(f"{CONFIG_MAPS}/{name}", {**body, **change}))


_GENERATION = ("metadata.generation", "code", "message", "spec.replicas")

_POD_TEMPLATES = "/api/v1/namespaces/{ns}/podtemplates"
_TEMPLATES: dict[str, dict[str, Any]] = {
    "good": {"spec": {"containers": [{"name": "main", "image": "app:1"}], "restartPolicy": "Never"}},
    "without-image": {"spec": {"containers": [{"name": "main", "image": ""}]}},
    "without-containers": {"spec": {}},
    "with-a-bad-label": {
        "metadata": {"labels": {"a": "-b"}},
        "spec": {"containers": [{"name": "main", "image": "app:1"}, {"name": "main", "image": "app:2"}]},
    },
}

CASES = [
    Case("create-config-map", post(CONFIG_MAPS, _A, managed=True), get(CONFIG_MAP)),
    Case("create-asking-for-metadata", post(CONFIG_MAPS, _A, accept=METADATA)),
    _existing(
        "refused-asking-for-metadata",
        post(CONFIG_MAPS, _A, accept=METADATA),
        merge(f"{CONFIG_MAPS}/no", {"data": {}}, accept=METADATA),
    ),
    _existing(
        "update-asking-for-metadata",
        put(CONFIG_MAP, config_map("a", {"k": "w"}), accept=METADATA),
        merge(CONFIG_MAP, {"metadata": {"labels": {"x": "1"}}}, accept=METADATA),
    ),
    Case(
        "update-status-asking-for-metadata",
        *prepared(PODS, pod("a")),
        strategic(f"{POD}/status", {"metadata": {"labels": {"x": "1"}}, "status": {"message": "m"}}, accept=METADATA),
    ),
    _existing("create-twice", post(CONFIG_MAPS, _A)),
    Case("create-in-no-namespace", post("/api/v1/namespaces/no-such/configmaps", _A)),
    Case("create-generated", post(CONFIG_MAPS, {"metadata": {"generateName": "gen-"}})),
    Case(
        "create-generated-long",
        post(CONFIG_MAPS, {"metadata": {"generateName": "x" * 260}}, keep=["code", "reason", "details.causes.0.field"]),
    ),
    Case(
        "create-generated-bad",
        post(CONFIG_MAPS, {"metadata": {"generateName": "Bad_"}}, keep=["reason", "code", "details.kind"]),
    ),
    Case(
        "create-manager-from-query",
        post(CONFIG_MAPS, _A, query={"fieldManager": "me"}, managed=True, keep=["metadata.managedFields"]),
    ),
    Case(
        "create-manager-from-agent",
        post(
            CONFIG_MAPS,
            _A,
            headers={"User-Agent": "kubectl-thing/v1 (linux)"},
            managed=True,
            keep=["metadata.managedFields"],
        ),
    ),
    Case("create-manager-long", post(CONFIG_MAPS, _A, query={"fieldManager": "m" * 129})),
    Case("create-manager-unprintable", post(CONFIG_MAPS, _A, query={"fieldManager": "a\tb"})),
    _raw("create-yaml", "metadata:\n  name: a\ndata:\n  k: 'v'\n", "application/yaml"),
    _raw("create-yaml-number", "metadata:\n  name: a\ndata:\n  k: 1\n", "application/yaml"),
    _raw("create-yaml-nonsense", "a: b: c", "application/yaml"),
    _raw("create-other-type", "x", "text/plain"),
    Case("create-no-type", Call("POST", CONFIG_MAPS, '{"metadata":{"name":"a"}}')),
    _raw("create-charset", '{"metadata":{"name":"a"}}', "application/json; charset=utf-8"),
    *(_body(f"name-{id}", config_map(name)) for id, name in _NAMES.items()),
    *(_body(f"metadata-{id}", config_map("a", None, **metadata)) for id, metadata in _METADATA.items()),
    *(_body(id, body) for id, body in _BODIES.items()),
    *(_raw(f"body-{id}", body) for id, body in _RAW.items()),
    *(
        _body(f"pod-template-{id}", {"metadata": {"name": "a"}, "template": template}, path=_POD_TEMPLATES)
        for id, template in _TEMPLATES.items()
    ),
    *(
        Case(
            f"validation-{value or 'default'}",
            post(CONFIG_MAPS, _UNKNOWN, query={"fieldValidation": value} if value else {}),
        )
        for value in _VALIDATIONS
    ),
    *(
        Case(
            f"validation-pod-{value}",
            post(PODS, _UNKNOWN_POD, query={"fieldValidation": value}, keep=["message", "code", "metadata.name"]),
        )
        for value in ("Warn", "Strict")
    ),
    _raw("validation-strict-duplicate", _RAW["duplicate"], fieldValidation="Strict"),
    _raw("validation-warn-duplicate", _RAW["duplicate-key"], fieldValidation="Warn"),
    _raw("validation-strict-case", _RAW["case"], fieldValidation="Strict"),
    _existing("validation-strict-update", put(CONFIG_MAP, _UNKNOWN, query={"fieldValidation": "Strict"})),
    *(
        _existing(
            f"validation-{how.lower()}-patch", merge(CONFIG_MAP, {"colour": "blue"}, query={"fieldValidation": how})
        )
        for how in ("Strict", "Warn")
    ),
    Case("dry-run-create", post(CONFIG_MAPS, _A, query=_DRY), get(CONFIG_MAP)),
    _existing("dry-run-create-twice", post(CONFIG_MAPS, _A, query=_DRY)),
    Case("dry-run-generated", post(CONFIG_MAPS, {"metadata": {"generateName": "gen-"}}, query=_DRY)),
    _existing("dry-run-update", replace(_W, query=_DRY), _READ),
    _existing("dry-run-delete", delete(CONFIG_MAP, query=_DRY), _READ),
    _existing("dry-run-patch", merge(CONFIG_MAP, {"data": {"k": "w"}}, query=_DRY), _READ),
    Case("dry-run-odd", post(CONFIG_MAPS, _A, query={"dryRun": "Some"})),
    _existing("dry-run-update-odd", put(CONFIG_MAP, _A, query={"dryRun": "Some"})),
    _existing("dry-run-delete-odd", delete(CONFIG_MAP, query={"dryRun": "Some"})),
    _updated("plain", {"data": {"k": "w"}}),
    _updated("same", {}),
    _updated("drops-what-is-left-out", {"data": {}}),
    _updated("labels", {}, metadata={"labels": {"a": "b"}}),
    _updated("stale", {}, metadata={"resourceVersion": "1"}),
    _updated("version-text", {}, metadata={"resourceVersion": "abc"}),
    _updated("version-ahead", {}, metadata={"resourceVersion": "999999999"}),
    _updated("version-right", {}, metadata={"resourceVersion": "${0.metadata.resourceVersion}", "labels": {"a": "b"}}),
    _updated("uid-wrong", {}, metadata={"uid": "7"}),
    _updated("uid-right", {}, metadata={"uid": "${0.metadata.uid}"}),
    _updated("created-changed", {}, metadata={"creationTimestamp": "2001-01-01T00:00:00Z"}),
    _updated("generate-name", {}, metadata={"generateName": "b-"}),
    _updated("deletion-set", {}, metadata={"deletionTimestamp": "2001-01-01T00:00:00Z"}),
    _updated("namespace-other", {}, metadata={"namespace": "elsewhere"}),
    _updated("name-other", {"metadata": {"name": "b"}}),
    _updated("name-missing", {"metadata": {}}),
    _updated("kind-other", {"kind": "Lease", "apiVersion": "coordination.k8s.io/v1"}),
    _updated("missing", {"metadata": {"name": "b"}}, name="b"),
    _updated("missing-with-version", {"metadata": {"name": "b", "resourceVersion": "1"}}, name="b"),
    _updated("missing-with-uid", {"metadata": {"name": "b", "uid": "7"}}, name="b"),
    Case(
        "update-immutable",
        *prepared(CONFIG_MAPS, {**_A, "immutable": True}),
        put(CONFIG_MAP, {**_A, "immutable": True, "data": {}}),
        put(CONFIG_MAP, {**_A, "immutable": False}),
    ),
    _existing(
        "update-race",
        quiet(_W),
        put(CONFIG_MAP, config_map("a", {"k": "x"}, resourceVersion="${0.metadata.resourceVersion}")),
    ),
    Case(
        "update-creates-a-lease",
        put(
            "/apis/coordination.k8s.io/v1/namespaces/{ns}/leases/a",
            {"metadata": {"name": "a"}, "spec": {"holderIdentity": "me"}},
        ),
    ),
    Case(
        "update-creates-a-custom-object",
        put(
            "/apis/conformance.example.com/v1/namespaces/{ns}/gadgets/a",
            {"apiVersion": "conformance.example.com/v1", "kind": "Gadget", "metadata": {"name": "a"}},
        ),
        needs=["gadgets"],
    ),
    _existing(
        "update-same-keeps-the-version",
        put(CONFIG_MAP, _A),
        get(CONFIG_MAPS, query={"fieldSelector": "metadata.name=a,metadata.name!=b"}, keep=["items.*.metadata.name"]),
    ),
    Case(
        "generation-of-a-deployment",
        post(DEPLOYMENTS, deployment("a"), keep=_GENERATION),
        put(DEPLOYMENT, deployment("a", metadata={"labels": {"b": "c"}}), keep=_GENERATION),
        put(DEPLOYMENT, deployment("a", metadata={"labels": {"b": "c"}}, minReadySeconds=5), keep=_GENERATION),
        merge(f"{DEPLOYMENT}/status", {"status": {"replicas": 7}}, keep=("metadata.generation", "status.replicas")),
        merge(DEPLOYMENT, {"status": {"replicas": 9}}, keep=("metadata.generation",)),
        merge(
            f"{DEPLOYMENT}/status",
            {"spec": {"minReadySeconds": 9}},
            keep=("metadata.generation", "spec.minReadySeconds"),
        ),
    ),
    Case(
        "deployment-selector-is-immutable",
        *prepared(DEPLOYMENTS, deployment("a")),
        merge(
            DEPLOYMENT,
            {"spec": {"selector": {"matchLabels": {"app": "b"}}, "template": {"metadata": {"labels": {"app": "b"}}}}},
        ),
    ),
    _patched_pod(
        "image-may-change",
        {"spec": {"containers": [{"name": "main", "image": "app:2"}]}},
        *("message", "spec.containers.0.image", "metadata.generation"),
    ),
    _patched_pod(
        "spec-is-immutable",
        {"spec": {"hostname": "b"}},
        *("code", "reason", "details.causes.0.field", "details.causes.0.reason"),
    ),
    _patched_pod("status-is-ignored", {"status": {"phase": "Running"}}, "status.phase"),
    Case(
        "service-address-is-immutable",
        *prepared(SERVICES, {"metadata": {"name": "a"}, "spec": {"ports": [{"port": 80}]}}),
        merge(
            f"{SERVICES}/a",
            {"spec": {"clusterIP": "10.0.0.99", "clusterIPs": ["10.0.0.99"]}},
            keep=["code", "reason", "details.causes.0.field"],
        ),
    ),
]
