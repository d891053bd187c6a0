"""Server-side apply: managed fields, conflicts, force, removals, and rejections."""

from collections.abc import Sequence
from typing import Any

from tests.conformance.steps import (
    APPLY_PATCH,
    CONFIG_MAP,
    CONFIG_MAPS,
    DEPLOYMENT,
    JSON,
    POD,
    PODS,
    SERVICES,
    Call,
    Case,
    apply,
    config_map,
    delete,
    get,
    merge,
    pod,
    post,
    prepared,
    put,
    quiet,
)

_MANAGED: Any = {
    "managed": True,
    "keep": ("metadata.managedFields", "data", "metadata.labels", "message", "reason", "code", "details"),
}
_WIDGET = "/apis/conformance.example.com/v1/namespaces/{ns}/widgets/a"


def _map(data: dict[str, str] | None = None, **metadata: Any) -> dict[str, Any]:
    return config_map("a", data, **metadata)


def _applied(data: dict[str, str] | None = None, **more: Any) -> Call:
    return apply(CONFIG_MAP, _map(data, **more.pop("metadata", {})), **_MANAGED, **more)


def _put(data: dict[str, str], **metadata: Any) -> Call:
    return put(CONFIG_MAP, _map(data, **metadata), **_MANAGED)


def _patched(manager: str) -> Call:
    return merge(CONFIG_MAP, {"data": {"k": "w"}}, query={"fieldManager": manager}, **_MANAGED)


def _deploys(
    *containers: Any, keep: Sequence[str] = (), managed: bool = False, manager: str = "tester", **spec: Any
) -> Call:
    body = _deployment(*containers, **spec)
    return apply(DEPLOYMENT, body, keep=keep, managed=managed, manager=manager)


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
_A, _B = {"name": "A", "value": "1"}, {"name": "B", "value": "2"}
_CONTAINERS = (
    "spec.template.spec.containers.*.name",
    "spec.template.spec.containers.*.image",
    "metadata.managedFields",
    "message",
)


def _by(body: Any, **query: str) -> tuple[Any, dict[str, str]]:
    return body, {"fieldManager": "m", **query}


_REFUSED: dict[str, tuple[Any, dict[str, str]]] = {
    "no-manager": (_map({"k": "v"}), {}),
    "long-manager": _by(_map({"k": "v"}), fieldManager="m" * 129),
    "no-version": _by({"kind": "ConfigMap", "metadata": {"name": "a"}}),
    "no-kind": _by({"apiVersion": "v1", "metadata": {"name": "a"}}),
    "other-kind": _by({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}}),
    "other-version": _by({"apiVersion": "v2", "kind": "ConfigMap", "metadata": {"name": "a"}}),
    "other-name": _by({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "b"}}),
    "no-name": _by({"apiVersion": "v1", "kind": "ConfigMap"}),
    "managed-fields": _by(_map({}, managedFields=[{"manager": "x", "operation": "Apply"}])),
    "unknown-field": _by({**_map({"k": "v"}), "colour": "blue"}),
    "unknown-field-strict": _by({**_map({"k": "v"}), "colour": "blue"}, fieldValidation="Strict"),
    "number": _by({**_map(), "data": {"k": 1}}),
    "type": _by({**_map(), "data": "text"}),
    "list": _by([]),
    "nonsense": _by("{"),
    "bad-label": _by(_map({}, labels={"-": "x"})),
    "version-on-create": _by(_map({}, resourceVersion="1")),
    "uid-on-create": _by(_map({}, uid="7")),
    "force-maybe": _by(_map({}), force="maybe"),
    "yaml": _by("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  k: v\n"),
    "yaml-duplicate": _by("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  k: v\n  k: w\n"),
    "yaml-two": _by("apiVersion: v1\nkind: ConfigMap\n---\nkind: x\n"),
    "dry-run": _by(_map({"k": "v"}), dryRun="All"),
}

CASES = [
    Case("creates", _applied({"k": "v"}), get(CONFIG_MAP)),
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
    Case("update-after", quiet(_applied({"k": "v", "l": "w"})), _put({"k": "v", "l": "changed"})),
    Case("update-removes", quiet(_applied({"k": "v", "l": "w"})), _put({"k": "v"})),
    Case("patch-after", quiet(_applied({"k": "v"})), _patched("me"), _applied({"k": "x"})),
    Case("patch-with-the-same-name", quiet(_applied({"k": "v"})), _patched("tester")),
    Case("update-with-managed-fields-emptied", quiet(_applied({"k": "v"})), _put({"k": "v"}, managedFields=[{}])),
    Case("update-without-managed-fields", quiet(_applied({"k": "v"})), _put({"k": "v"}, managedFields=[])),
    Case(
        "labels",
        quiet(_applied({}, metadata={"labels": {"a": "1", "b": "2"}})),
        _applied({}, metadata={"labels": {"a": "1"}}),
        merge(CONFIG_MAP, {"metadata": {"labels": {"c": "3"}}}, keep=["metadata.labels"]),
        _applied({}, metadata={"labels": {"a": "9"}}),
    ),
    Case(
        "metadata-owned",
        _applied({}, metadata={"annotations": {"a": "b"}, "finalizers": ["example.com/a"], "labels": {"a": "b"}}),
        merge(CONFIG_MAP, {"metadata": {"finalizers": None}}, managed=True, keep=["metadata.managedFields"]),
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
        Case(f"body-{id}", Call("PATCH", CONFIG_MAP, body, query=query, headers={"Content-Type": APPLY_PATCH}))
        for id, (body, query) in _REFUSED.items()
    ),
    Case("in-no-namespace", apply("/api/v1/namespaces/no-such/configmaps/a", _map({"k": "v"}))),
    Case(
        "containers-merge-by-name",
        _deploys(_ONE, replicas=0, paused=True, keep=_CONTAINERS, managed=True),
        _deploys(_TWO, keep=_CONTAINERS, managed=True, manager="other"),
        _deploys({**_ONE, "image": "one:2"}, replicas=0, paused=True, keep=_CONTAINERS[:2]),
        _deploys({**_ONE, "image": "one:3"}, keep=_CONTAINERS, manager="other"),
    ),
    Case(
        "replicas-handed-over",
        quiet(_deploys(_ONE, replicas=0, paused=True)),
        merge(f"{DEPLOYMENT}/scale", {"spec": {"replicas": 2}}, query={"fieldManager": "scaler"}, keep=["spec"]),
        _deploys(_ONE, replicas=1, paused=True, keep=["message", "spec.replicas"]),
        _deploys(_ONE, paused=True, keep=["message", "spec.replicas"]),
    ),
    Case(
        "env-and-ports",
        _deploys(
            {**_ONE, "env": [_A, _B], "ports": [{"containerPort": 80}], "args": ["x"]},
            replicas=0,
            keep=["spec.template.spec.containers", "metadata.managedFields"],
            managed=True,
        ),
        _deploys(
            {**_ONE, "env": [_B], "ports": [{"containerPort": 81, "protocol": "UDP"}], "args": ["y", "z"]},
            replicas=0,
            keep=["spec.template.spec.containers"],
        ),
    ),
    *(
        Case(id, _deploys(*containers, replicas=0, keep=["message", "reason", "code"]))
        for id, containers in (
            ("duplicate-key", [{**_ONE, "env": [_A, {"name": "A", "value": "2"}]}]),
            ("duplicate-container", [_ONE, _ONE]),
            ("missing-key", [{"image": "a"}]),
            ("invalid-object", [{"name": "A b", "image": "a"}]),
        )
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
            f"{POD}/status",
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
        quiet(_deploys(_ONE, replicas=0, paused=True)),
        apply(
            f"{DEPLOYMENT}/status",
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
        quiet(delete(CONFIG_MAP)),
        _applied({"k": "w"}, manager="other"),
    ),
    Case(
        "through-post",
        post(CONFIG_MAPS, _map({"k": "v"}), query={"fieldManager": "tester"}, **_MANAGED),
        _applied({"k": "w"}),
    ),
    Case(
        "json-body",
        Call(
            "PATCH",
            CONFIG_MAP,
            _map({"k": "v"}),
            query={"fieldManager": "m"},
            headers={"Content-Type": f"{APPLY_PATCH}; charset=utf-8", "Accept": JSON},
            keep=["data", "message"],
        ),
    ),
]
