"""Server-side apply: managed fields, conflicts, force, removals, and rejections."""

from typing import Any

from tests.conformance.steps import (
    APPLY_PATCH,
    CONFIG_MAPS,
    DEPLOYMENTS,
    JSON,
    MERGE_PATCH,
    PODS,
    SERVICES,
    Call,
    Case,
    apply,
    config_map,
    delete,
    get,
    patch,
    pod,
    post,
    prepared,
    put,
    quiet,
)

_OBJECT = f"{CONFIG_MAPS}/a"
_MANAGED = ("metadata.managedFields", "data", "metadata.labels", "message", "reason", "code", "details")
_WIDGET = "/apis/conformance.example.com/v1/namespaces/{ns}/widgets/a"


def _map(data: dict[str, str] | None = None, **metadata: Any) -> dict[str, Any]:
    return config_map("a", data, **metadata)


def _applied(data: dict[str, str] | None = None, **more: Any) -> Call:
    return apply(_OBJECT, _map(data, **more.pop("metadata", {})), managed=True, keep=_MANAGED, **more)


def _deployment(*containers: Any, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "a"},
        "spec": {
            "selector": {"matchLabels": {"app": "a"}},
            "template": {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": list(containers)}},
            **spec,
        },
    }


def _widget(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "conformance.example.com/v1", "kind": "Widget", "metadata": {"name": "a"}, "spec": spec}


_ONE = {"name": "one", "image": "one:1"}
_TWO = {"name": "two", "image": "two:1"}
_CONTAINERS = (
    "spec.template.spec.containers.*.name",
    "spec.template.spec.containers.*.image",
    "metadata.managedFields",
    "message",
)

_REFUSED: dict[str, tuple[Any, dict[str, str]]] = {
    "no-manager": (_map({"k": "v"}), {}),
    "long-manager": (_map({"k": "v"}), {"fieldManager": "m" * 129}),
    "no-version": ({"kind": "ConfigMap", "metadata": {"name": "a"}}, {"fieldManager": "m"}),
    "no-kind": ({"apiVersion": "v1", "metadata": {"name": "a"}}, {"fieldManager": "m"}),
    "other-kind": ({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}}, {"fieldManager": "m"}),
    "other-version": ({"apiVersion": "v2", "kind": "ConfigMap", "metadata": {"name": "a"}}, {"fieldManager": "m"}),
    "other-name": ({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "b"}}, {"fieldManager": "m"}),
    "no-name": ({"apiVersion": "v1", "kind": "ConfigMap"}, {"fieldManager": "m"}),
    "managed-fields": (_map({}, managedFields=[{"manager": "x", "operation": "Apply"}]), {"fieldManager": "m"}),
    "unknown-field": ({**_map({"k": "v"}), "colour": "blue"}, {"fieldManager": "m"}),
    "unknown-field-strict": (
        {**_map({"k": "v"}), "colour": "blue"},
        {"fieldManager": "m", "fieldValidation": "Strict"},
    ),
    "number": ({**_map(), "data": {"k": 1}}, {"fieldManager": "m"}),
    "type": ({**_map(), "data": "text"}, {"fieldManager": "m"}),
    "list": ([], {"fieldManager": "m"}),
    "nonsense": ("{", {"fieldManager": "m"}),
    "bad-label": (_map({}, labels={"-": "x"}), {"fieldManager": "m"}),
    "version-on-create": (_map({}, resourceVersion="1"), {"fieldManager": "m"}),
    "uid-on-create": (_map({}, uid="7"), {"fieldManager": "m"}),
    "force-maybe": (_map({}), {"fieldManager": "m", "force": "maybe"}),
    "yaml": ("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  k: v\n", {"fieldManager": "m"}),
    "yaml-duplicate": (
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  k: v\n  k: w\n",
        {"fieldManager": "m"},
    ),
    "yaml-two": ("apiVersion: v1\nkind: ConfigMap\n---\nkind: x\n", {"fieldManager": "m"}),
    "dry-run": (_map({"k": "v"}), {"fieldManager": "m", "dryRun": "All"}),
}

CASES = [
    Case("creates", _applied({"k": "v"}), get(_OBJECT)),
    Case("again", quiet(_applied({"k": "v"})), _applied({"k": "v"})),
    Case("change", quiet(_applied({"k": "v"})), _applied({"k": "w"})),
    Case("takes-away", quiet(_applied({"k": "v", "l": "w"})), _applied({"k": "v"})),
    Case("takes-all-away", quiet(_applied({"k": "v"})), _applied()),
    Case("empty-map", _applied({})),
    Case("two-managers", quiet(_applied({"k": "v"})), _applied({"l": "w"}, manager="other")),
    Case(
        "shared-field",
        quiet(_applied({"k": "v"})),
        _applied({"k": "v"}, manager="other"),
        _applied({}, manager="other"),
    ),
    Case("conflict", quiet(_applied({"k": "v"})), _applied({"k": "w"}, manager="other")),
    Case(
        "conflict-of-two-fields", quiet(_applied({"k": "v", "l": "v"})), _applied({"k": "w", "l": "w"}, manager="other")
    ),
    Case(
        "conflict-with-two-managers",
        quiet(_applied({"k": "v"})),
        quiet(_applied({"k": "v"}, manager="b")),
        _applied({"k": "w"}, manager="c"),
    ),
    Case("force", quiet(_applied({"k": "v"})), _applied({"k": "w"}, manager="other", force=True)),
    Case("conflict-with-update", *prepared(CONFIG_MAPS, _map({"k": "v"})), _applied({"k": "w"})),
    Case("force-over-update", *prepared(CONFIG_MAPS, _map({"k": "v", "l": "x"})), _applied({"k": "w"}, force=True)),
    Case("same-as-update", *prepared(CONFIG_MAPS, _map({"k": "v"})), _applied({"k": "v"})),
    Case(
        "update-after",
        quiet(_applied({"k": "v", "l": "w"})),
        put(_OBJECT, _map({"k": "v", "l": "changed"}), managed=True, keep=_MANAGED),
    ),
    Case(
        "update-removes",
        quiet(_applied({"k": "v", "l": "w"})),
        put(_OBJECT, _map({"k": "v"}), managed=True, keep=_MANAGED),
    ),
    Case(
        "patch-after",
        quiet(_applied({"k": "v"})),
        patch(MERGE_PATCH, _OBJECT, {"data": {"k": "w"}}, query={"fieldManager": "me"}, managed=True, keep=_MANAGED),
        _applied({"k": "x"}),
    ),
    Case(
        "patch-with-the-same-name",
        quiet(_applied({"k": "v"})),
        patch(
            MERGE_PATCH, _OBJECT, {"data": {"k": "w"}}, query={"fieldManager": "tester"}, managed=True, keep=_MANAGED
        ),
    ),
    Case(
        "update-with-managed-fields-emptied",
        quiet(_applied({"k": "v"})),
        put(_OBJECT, _map({"k": "v"}, managedFields=[{}]), managed=True, keep=_MANAGED),
    ),
    Case(
        "update-without-managed-fields",
        quiet(_applied({"k": "v"})),
        put(_OBJECT, _map({"k": "v"}, managedFields=[]), managed=True, keep=_MANAGED),
    ),
    Case(
        "labels",
        quiet(_applied({}, metadata={"labels": {"a": "1", "b": "2"}})),
        _applied({}, metadata={"labels": {"a": "1"}}),
        patch(MERGE_PATCH, _OBJECT, {"metadata": {"labels": {"c": "3"}}}, keep=["metadata.labels"]),
        _applied({}, metadata={"labels": {"a": "9"}}),
    ),
    Case(
        "metadata-owned",
        _applied({}, metadata={"annotations": {"a": "b"}, "finalizers": ["example.com/a"], "labels": {"a": "b"}}),
        patch(MERGE_PATCH, _OBJECT, {"metadata": {"finalizers": None}}, managed=True, keep=["metadata.managedFields"]),
    ),
    Case(
        "version-matches",
        quiet(_applied({"k": "v"})),
        _applied({"k": "w"}, metadata={"resourceVersion": "${0.metadata.resourceVersion}"}),
    ),
    Case(
        "version-stale",
        quiet(_applied({"k": "v"})),
        quiet(_applied({"k": "w"})),
        _applied({"k": "x"}, metadata={"resourceVersion": "${0.metadata.resourceVersion}"}),
    ),
    Case("uid-wrong", quiet(_applied({"k": "v"})), _applied({"k": "w"}, metadata={"uid": "7"})),
    *(
        Case(f"body-{id}", Call("PATCH", _OBJECT, body, query=query, headers={"Content-Type": APPLY_PATCH}))
        for id, (body, query) in _REFUSED.items()
    ),
    Case("in-no-namespace", apply("/api/v1/namespaces/no-such/configmaps/a", _map({"k": "v"}))),
    Case(
        "containers-merge-by-name",
        apply(f"{DEPLOYMENTS}/a", _deployment(_ONE, replicas=0, paused=True), keep=_CONTAINERS, managed=True),
        apply(f"{DEPLOYMENTS}/a", _deployment(_TWO), keep=_CONTAINERS, managed=True, manager="other"),
        apply(
            f"{DEPLOYMENTS}/a", _deployment({**_ONE, "image": "one:2"}, replicas=0, paused=True), keep=_CONTAINERS[:2]
        ),
        apply(f"{DEPLOYMENTS}/a", _deployment({**_ONE, "image": "one:3"}), keep=_CONTAINERS, manager="other"),
    ),
    Case(
        "replicas-handed-over",
        quiet(apply(f"{DEPLOYMENTS}/a", _deployment(_ONE, replicas=0, paused=True))),
        patch(
            MERGE_PATCH,
            f"{DEPLOYMENTS}/a/scale",
            {"spec": {"replicas": 2}},
            query={"fieldManager": "scaler"},
            keep=["spec"],
        ),
        apply(f"{DEPLOYMENTS}/a", _deployment(_ONE, replicas=1, paused=True), keep=["message", "spec.replicas"]),
        apply(f"{DEPLOYMENTS}/a", _deployment(_ONE, paused=True), keep=["message", "spec.replicas"]),
    ),
    Case(
        "env-and-ports",
        apply(
            f"{DEPLOYMENTS}/a",
            _deployment(
                {
                    **_ONE,
                    "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
                    "ports": [{"containerPort": 80}],
                    "args": ["x"],
                },
                replicas=0,
            ),
            keep=["spec.template.spec.containers", "metadata.managedFields"],
            managed=True,
        ),
        apply(
            f"{DEPLOYMENTS}/a",
            _deployment(
                {
                    **_ONE,
                    "env": [{"name": "B", "value": "2"}],
                    "ports": [{"containerPort": 81, "protocol": "UDP"}],
                    "args": ["y", "z"],
                },
                replicas=0,
            ),
            keep=["spec.template.spec.containers"],
        ),
    ),
    Case(
        "duplicate-key",
        apply(
            f"{DEPLOYMENTS}/a",
            _deployment({**_ONE, "env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]}, replicas=0),
            keep=["message", "reason", "code"],
        ),
    ),
    Case(
        "duplicate-container",
        apply(f"{DEPLOYMENTS}/a", _deployment(_ONE, _ONE, replicas=0), keep=["message", "reason", "code"]),
    ),
    Case(
        "missing-key",
        apply(f"{DEPLOYMENTS}/a", _deployment({"image": "a"}, replicas=0), keep=["message", "reason", "code"]),
    ),
    Case(
        "invalid-object",
        apply(
            f"{DEPLOYMENTS}/a",
            _deployment({"name": "A b", "image": "a"}, replicas=0),
            keep=["message", "reason", "code"],
        ),
    ),
    Case(
        "service",
        apply(
            f"{SERVICES}/a",
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": "a"},
                "spec": {"ports": [{"port": 80}], "selector": {"a": "b"}, "clusterIP": "None"},
            },
            managed=True,
            keep=["metadata.managedFields", "spec.ports"],
        ),
    ),
    Case(
        "pod-status",
        *prepared(PODS, pod("a")),
        apply(
            f"{PODS}/a/status",
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "a"},
                "status": {"conditions": [{"type": "Mine", "status": "True"}]},
            },
            managed=True,
            keep=[
                "metadata.managedFields.*.manager",
                "metadata.managedFields.*.subresource",
                "status.conditions",
                "message",
            ],
        ),
    ),
    Case(
        "status-of-a-deployment",
        quiet(apply(f"{DEPLOYMENTS}/a", _deployment(_ONE, replicas=0, paused=True))),
        apply(
            f"{DEPLOYMENTS}/a/status",
            {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}, "status": {"collisionCount": 3}},
            keep=["status.collisionCount"],
        ),
    ),
    Case(
        "custom",
        apply(
            _WIDGET,
            _widget(size=1, tags=["a"], parts=[{"name": "x"}], atoms=[{"name": "a"}]),
            managed=True,
            keep=["spec", "metadata.managedFields"],
        ),
        apply(
            _WIDGET,
            _widget(tags=["b"], parts=[{"name": "y", "count": 2}]),
            manager="other",
            managed=True,
            keep=["spec", "metadata.managedFields"],
        ),
        apply(_WIDGET, _widget(size=1, tags=["a"], atoms=[{"name": "b"}]), managed=True, keep=["spec"]),
        apply(_WIDGET, _widget(size=2, atoms=[{"name": "c"}]), manager="third", keep=["message", "details"]),
        needs=["widgets"],
    ),
    Case(
        "custom-refused",
        apply(_WIDGET, _widget(size=99)),
        apply(_WIDGET, _widget(size="big")),
        apply(_WIDGET, _widget(size=1, tags=["a", "a"])),
        apply(_WIDGET, _widget(size=1, parts=[{"count": 2}])),
        needs=["widgets"],
    ),
    Case(
        "custom-status",
        quiet(apply(_WIDGET, _widget(size=1))),
        apply(
            f"{_WIDGET}/status",
            {**_widget(), "status": {"phase": "Good"}},
            managed=True,
            keep=["status", "spec", "metadata.managedFields"],
        ),
        needs=["widgets"],
    ),
    Case(
        "ownership-ends-with-deletion",
        quiet(_applied({"k": "v"})),
        quiet(delete(_OBJECT)),
        _applied({"k": "w"}, manager="other"),
    ),
    Case(
        "through-post",
        post(CONFIG_MAPS, _map({"k": "v"}), query={"fieldManager": "tester"}, managed=True, keep=_MANAGED),
        _applied({"k": "w"}),
    ),
    Case(
        "json-body",
        Call(
            "PATCH",
            _OBJECT,
            _map({"k": "v"}),
            query={"fieldManager": "m"},
            headers={"Content-Type": f"{APPLY_PATCH}; charset=utf-8", "Accept": JSON},
            keep=["data", "message"],
        ),
    ),
]
