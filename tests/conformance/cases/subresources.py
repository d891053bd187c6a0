"""Subresources: status, scale, eviction, binding, ephemeral containers, resize, log, tokens, connecting ones."""

from dataclasses import replace
from typing import Any

from tests.conformance.steps import (
    DEPLOYMENT,
    DEPLOYMENTS,
    JSON_PATCH,
    NAMESPACE,
    POD,
    PODS,
    Call,
    Case,
    Step,
    deployment,
    get,
    merge,
    patch,
    pod,
    post,
    prepared,
    put,
    quiet,
    strategic,
)

_REPLICAS = ("kind", "apiVersion", "spec", "status", "metadata.name", "code", "message", "details")
_ERROR = ("code", "reason", "message", "details", "kind", "status")
#: Of a change that is refused with a long message.
_FIELD = ("code", "reason", "details.causes.*.field")
_GRACE = "metadata.deletionGracePeriodSeconds"
_CUSTOM = "conformance.example.com/v1"
_WIDGETS, _GADGETS = (f"/apis/{_CUSTOM}/namespaces/{{ns}}/{plural}" for plural in ("widgets", "gadgets"))
_WIDGET = {
    "apiVersion": _CUSTOM,
    "kind": "Widget",
    "metadata": {"name": "a"},
    "spec": {"size": 1, "replicas": 3},
}
_BUDGETS = "/apis/policy/v1/namespaces/{ns}/poddisruptionbudgets"
_READY = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
_CONTAINER = {
    "name": "main",
    "ready": True,
    "restartCount": 1,
    "image": "app:1",
    "imageID": "sha",
    "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
}
_RESOURCES = {
    "name": "main",
    "image": "app:1",
    "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "1", "memory": "64Mi"}},
}


def _on_pod(id: str, *steps: Step, **spec: Any) -> Case:
    return Case(id, *prepared(PODS, pod("a", **spec)), *steps)


def _on_sized_pod(id: str, *steps: Step) -> Case:
    return _on_pod(id, *steps, containers=[_RESOURCES])


def _on_labeled_pod(id: str, *steps: Step) -> Case:
    return Case(id, *prepared(PODS, pod("a", metadata={"labels": {"app": "a"}}, nodeName="n")), *steps)


def _on_deployment(id: str, *steps: Step) -> Case:
    return Case(id, *prepared(DEPLOYMENTS, deployment("a")), *steps)


def _on_widget(id: str, *steps: Step, spec: Any = None) -> Case:
    return Case(
        id, *prepared(_WIDGETS, _WIDGET if spec is None else {**_WIDGET, "spec": spec}), *steps, needs=["widgets"]
    )


def _status(status: Any, *keep: str, of: str = POD, **more: Any) -> Call:
    return merge(f"{of}/status", {**more, "status": status}, keep=keep)


def _scale(replicas: Any, *, of: str = DEPLOYMENT, keep: tuple[str, ...] = _REPLICAS, **more: Any) -> Call:
    return merge(f"{of}/scale", {"spec": {"replicas": replicas}}, keep=keep, **more)


def _scale_put(of: str = DEPLOYMENT, **metadata: str) -> Call:
    metadata = {"name": "a", "namespace": "{ns}", **metadata}
    body = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": metadata, "spec": {"replicas": 2}}
    return put(f"{of}/scale", body, keep=_REPLICAS)


def _evict(name: str = "a", version: str = "policy/v1", until: Any = None, **options: Any) -> Call:
    more = {"deleteOptions": options} if options else {}
    body = {"apiVersion": version, "kind": "Eviction", "metadata": {"name": name}, **more}
    return post(f"{POD}/eviction", body, until=until)


def _bind(path: str = f"{POD}/binding", **more: Any) -> Call:
    head = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "a"}}
    return post(path, {**head, "target": {"apiVersion": "v1", "kind": "Node", "name": "n"}, **more})


def _debug(*keep: str, **container: Any) -> Call:
    body = {"spec": {"ephemeralContainers": [{"name": "debug", "image": "debug:1", **container}]}}
    return strategic(f"{POD}/ephemeralcontainers", body, keep=keep)


def _resize(change: Any, *keep: str, path: str = f"{POD}/resize") -> Call:
    return strategic(path, {"spec": {"containers": [{"name": "main", **change}]}}, keep=keep)


def _cpu(request: str) -> dict[str, Any]:
    return {"resources": {"requests": {"cpu": request}}}


def _token(id: str, account: str, spec: Any, *keep: str) -> Case:
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    return Case(id, post(f"/api/v1/namespaces/{{ns}}/serviceaccounts/{account}/token", body, keep=keep))


def _named_budget(name: str, available: int = 1) -> dict[str, Any]:
    spec = {"minAvailable": available, "selector": {"matchLabels": {"app": "a"}}}
    return {"metadata": {"name": name}, "spec": spec}


def _budget(available: int = 1, allowed: int = 0) -> list[Call]:
    counts = dict.fromkeys(("observedGeneration", "expectedPods", "desiredHealthy", "currentHealthy"), 1)
    status = {**counts, "disruptionsAllowed": allowed}
    return [*prepared(_BUDGETS, _named_budget("b", available)), quiet(_status(status, of=f"{_BUDGETS}/b"))]


CASES = [
    # Status.
    _on_pod(
        "status-of-a-pod",
        get(f"{POD}/status", keep=["kind", "status"]),
        _status({"phase": "Running", "podIP": "10.1.2.3", "podIPs": [{"ip": "10.1.2.3"}]}, "status"),
    ),
    _on_pod(
        "status-put",
        put(
            f"{POD}/status",
            {**pod("a"), "status": {"phase": "Failed", "message": "gone", "reason": "Lost"}},
            keep=["status", "metadata.generation"],
        ),
    ),
    _on_pod(
        "status-leaves-the-spec",
        _status(
            {"phase": "Running"},
            *("spec.nodeName", "metadata.labels", "status.phase"),
            spec={"nodeName": "n"},
            metadata={"labels": {"a": "b"}},
        ),
    ),
    _on_pod("status-odd-phase", _status({"phase": "Dancing"}, "status.phase", "message")),
    _on_pod("status-container-statuses", _status({"containerStatuses": [_CONTAINER]}, "status.containerStatuses")),
    _on_deployment("status-observed-generation", _status({"replicas": -1}, *_ERROR, of=DEPLOYMENT)),
    Case("status-of-a-config-map", merge("/api/v1/namespaces/{ns}/configmaps/a/status", {})),
    Case("status-missing", _status({}), put(f"{POD}/status", pod("a"))),
    _on_pod("status-stale", put(f"{POD}/status", pod("a", metadata={"resourceVersion": "1"}))),
    Case("status-of-a-namespace", _status({"phase": "Terminating"}, "status.phase", "message", of=NAMESPACE)),
    Case(
        "status-of-a-node",
        *prepared("/api/v1/nodes", {"metadata": {"name": "node-{ns}"}}),
        strategic(
            "/api/v1/nodes/node-{ns}/status",
            {
                "status": {
                    "conditions": [{"type": "Ready", "status": "True"}],
                    "capacity": {"cpu": "4"},
                    "allocatable": {"cpu": "4"},
                }
            },
            keep=["status.conditions.*.type", "status.capacity", "status.allocatable"],
        ),
    ),
    # Scale.
    _on_deployment("scale-read", get(f"{DEPLOYMENT}/scale")),
    _on_deployment("scale-put", _scale_put(), get(DEPLOYMENT, keep=["spec.replicas", "metadata.generation"])),
    _on_deployment("scale-patch", _scale(4)),
    _on_deployment(
        "scale-json-patch",
        patch(
            JSON_PATCH, f"{DEPLOYMENT}/scale", [{"op": "replace", "path": "/spec/replicas", "value": 5}], keep=_REPLICAS
        ),
    ),
    _on_deployment("scale-negative", _scale(-1)),
    _on_deployment("scale-text", _scale("two")),
    _on_deployment("scale-stale", _scale_put(resourceVersion="1")),
    _on_deployment("scale-other-name", _scale_put(name="b")),
    Case("scale-missing", get(f"{DEPLOYMENT}/scale"), _scale(4, keep=())),
    _on_deployment("scale-dry-run", _scale(4, query={"dryRun": "All"}), get(DEPLOYMENT, keep=["spec.replicas"])),
    Case("scale-of-a-pod", get(f"{POD}/scale")),
    _on_widget(
        "scale-custom",
        get(f"{_WIDGETS}/a/scale"),
        _scale(7, of=f"{_WIDGETS}/a"),
        get(f"{_WIDGETS}/a", keep=["spec", "metadata.generation"]),
        _status({"replicas": 2, "selector": "a=b"}, "status", of=f"{_WIDGETS}/a"),
        get(f"{_WIDGETS}/a/scale", keep=["status"]),
    ),
    _on_widget(
        "scale-custom-without-replicas",
        get(f"{_WIDGETS}/a/scale"),
        _scale_put(f"{_WIDGETS}/a"),
        get(f"{_WIDGETS}/a", keep=["spec"]),
        spec={"size": 1},
    ),
    _on_widget("scale-custom-negative", _scale(-7, of=f"{_WIDGETS}/a")),
    Case(
        "status-custom",
        post(_WIDGETS, {**_WIDGET, "status": {"phase": "Early"}}, keep=["status", "metadata.generation"]),
        merge(f"{_WIDGETS}/a", {"status": {"phase": "No"}}, keep=["status", "metadata.generation"]),
        merge(
            f"{_WIDGETS}/a/status",
            {"status": {"phase": "Yes"}, "spec": {"size": 9}, "metadata": {"labels": {"a": "b"}}},
            keep=["status", "spec", "metadata.generation", "metadata.labels"],
        ),
        merge(f"{_WIDGETS}/a", {"spec": {"size": 2}}, keep=["metadata.generation"]),
        _status({"phase": 7}, "message", "reason", "code", of=f"{_WIDGETS}/a"),
        merge(f"{_WIDGETS}/a/status", {"metadata": {"annotations": {"a": "b"}}}, keep=["metadata.annotations"]),
        needs=["widgets"],
    ),
    Case(
        "status-custom-without-subresource",
        post(
            _GADGETS,
            {"apiVersion": _CUSTOM, "kind": "Gadget", "metadata": {"name": "a"}, "status": {"x": 1}},
            keep=["status"],
        ),
        _status({"x": 2}, of=f"{_GADGETS}/a"),
        merge(f"{_GADGETS}/a", {"status": {"x": 2}}, keep=["status", "metadata.generation"]),
        get(f"{_GADGETS}/a/scale"),
        needs=["gadgets"],
    ),
    # Eviction.
    _on_labeled_pod(
        "eviction", _evict(), get(POD, keep=[_GRACE, "status.conditions.*.type", "status.conditions.*.reason"])
    ),
    _on_pod("eviction-pending", _evict(), get(POD, keep=["code"])),
    Case("eviction-missing", _evict()),
    _on_pod("eviction-other-name", _evict("b")),
    _on_pod("eviction-no-body", post(f"{POD}/eviction", {})),
    _on_labeled_pod("eviction-old-version", replace(_evict(version="policy/v1beta1"), keep=_ERROR)),
    _on_pod("eviction-wrong-kind", post(f"{POD}/eviction", pod("a"), keep=_ERROR)),
    _on_labeled_pod("eviction-grace", _evict(gracePeriodSeconds=3), get(POD, keep=[_GRACE])),
    _on_labeled_pod("eviction-dry-run", _evict(dryRun=["All"]), get(POD, keep=["metadata.deletionTimestamp"])),
    _on_labeled_pod("eviction-precondition", _evict(preconditions={"uid": "7"})),
    _on_labeled_pod(
        "eviction-budget-allows",
        quiet(_status(_READY)),
        *_budget(0, allowed=1),
        _evict(until=lambda status, _: status != 429),
        get(POD, keep=[_GRACE]),
    ),
    _on_labeled_pod(
        "eviction-budget-forbids",
        quiet(_status(_READY)),
        *_budget(),
        get(
            f"{_BUDGETS}/b",
            until=lambda _, body: body["status"].get("currentHealthy") == 1,
            keep=["status.disruptionsAllowed"],
        ),
        _evict(),
    ),
    _on_labeled_pod(
        "eviction-two-budgets",
        quiet(_status(_READY)),
        *_budget(),
        *prepared(_BUDGETS, _named_budget("c")),
        _evict(),
    ),
    _on_labeled_pod("eviction-of-an-ended-pod", quiet(_status({"phase": "Succeeded"})), *_budget(), _evict()),
    # Binding.
    _on_pod("binding", _bind(), get(POD, keep=["spec.nodeName", "status.conditions"])),
    _on_pod("binding-twice", quiet(_bind()), _bind()),
    _on_pod(
        "binding-through-the-collection", _bind("/api/v1/namespaces/{ns}/bindings"), get(POD, keep=["spec.nodeName"])
    ),
    Case("binding-missing", _bind()),
    _on_pod("binding-other-name", _bind(metadata={"name": "b"})),
    _on_pod("binding-no-target", _bind(target={})),
    _on_pod("binding-odd-target", _bind(target={"kind": "Teapot", "name": "n"})),
    _on_pod("binding-deleted-pod", quiet(Call("DELETE", POD)), _bind(), metadata={"finalizers": ["example.com/hold"]}),
    _on_pod("binding-uid", _bind(metadata={"name": "a", "uid": "7"})),
    _on_pod(
        "binding-annotations",
        quiet(_bind(metadata={"name": "a", "annotations": {"x": "y"}})),
        get(POD, keep=["metadata.annotations"]),
    ),
    _on_pod("binding-gated", _bind(), schedulingGates=[{"name": "example.com/wait"}]),
    # Ephemeral containers.
    _on_pod("ephemeral-add", _debug("spec.ephemeralContainers", "metadata.generation")),
    _on_pod("ephemeral-read", get(f"{POD}/ephemeralcontainers", keep=["kind", "metadata.name"])),
    _on_pod("ephemeral-change", quiet(_debug()), _debug(*_ERROR, image="debug:2")),
    _on_pod(
        "ephemeral-remove",
        quiet(_debug()),
        patch(
            JSON_PATCH,
            f"{POD}/ephemeralcontainers",
            [{"op": "remove", "path": "/spec/ephemeralContainers"}],
            keep=_ERROR,
        ),
    ),
    _on_pod("ephemeral-same-name", _debug(*_ERROR, name="main")),
    _on_pod("ephemeral-ports", _debug(*_ERROR, ports=[{"containerPort": 80}])),
    _on_pod("ephemeral-target", _debug(*_ERROR, targetContainerName="none")),
    _on_pod("ephemeral-in-a-patch-of-the-pod", replace(_debug(*_FIELD), path=POD)),
    Case(
        "ephemeral-at-creation",
        post(PODS, pod("a", ephemeralContainers=[{"name": "debug", "image": "debug:1"}]), keep=_ERROR),
    ),
    _on_pod(
        "ephemeral-leaves-the-rest",
        strategic(
            f"{POD}/ephemeralcontainers",
            {"metadata": {"labels": {"a": "b"}}, "spec": {"hostname": "h"}},
            keep=["metadata.labels", "spec.hostname", "message"],
        ),
    ),
    # Resize.
    _on_sized_pod("resize", _resize(_cpu("200m"), "spec.containers.*.resources", "metadata.generation", "message")),
    _on_sized_pod("resize-in-a-patch-of-the-pod", _resize(_cpu("200m"), *_FIELD, path=POD)),
    _on_sized_pod("resize-image", _resize({"image": "app:2"}, *_FIELD, "spec.containers.*.image")),
    _on_pod("resize-changes-the-class", _resize(_cpu("200m"), *_FIELD, "details.causes.*.message")),
    _on_sized_pod("resize-policy", get(POD, keep=["spec.containers.0.resizePolicy"])),
    _on_sized_pod("resize-requests-above-limits", _resize(_cpu("2"), "code", "reason", "details.causes")),
    Case("resize-missing", strategic(f"{POD}/resize", {})),
    # Subresources that need a node.
    _on_pod("log-unscheduled", get(f"{POD}/log")),
    _on_pod("log-odd-container", get(f"{POD}/log", query={"container": "other"})),
    _on_pod(
        "log-two-containers",
        get(f"{POD}/log"),
        containers=[{"name": "one", "image": "a"}, {"name": "two", "image": "b"}],
    ),
    _on_pod("log-odd-option", get(f"{POD}/log", query={"tailLines": "-3"})),
    _on_pod("log-odd-number", get(f"{POD}/log", query={"tailLines": "many"})),
    _on_pod("log-since-both", get(f"{POD}/log", query={"sinceSeconds": "1", "sinceTime": "2026-01-01T00:00:00Z"})),
    Case("exec-missing", post(f"{POD}/exec", None, query={"command": "ls"})),
    # Tokens.
    _token(
        "token",
        "default",
        {"audiences": ["me"], "expirationSeconds": 600},
        *("kind", "apiVersion", "spec.audiences", "spec.expirationSeconds", "metadata.name"),
    ),
    _token("token-short", "default", {"expirationSeconds": 6}, *_ERROR),
    _token("token-missing", "none", {}),
    # Finalize.
    Case(
        "finalize",
        put(
            "/api/v1/namespaces/{ns}/finalize",
            {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": "{ns}"},
                "spec": {"finalizers": ["kubernetes", "example.com/more"]},
            },
            keep=["spec", "code", "message"],
        ),
    ),
]
