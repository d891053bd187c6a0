"""Subresources: status, scale, eviction, binding, ephemeral containers, resize, log, tokens, connecting ones."""

from typing import Any

from tests.conformance.steps import (
    DEPLOYMENTS,
    JSON_PATCH,
    MERGE_PATCH,
    PODS,
    STRATEGIC_PATCH,
    Call,
    Case,
    deployment,
    get,
    patch,
    pod,
    post,
    prepared,
    put,
    quiet,
)

_POD = f"{PODS}/a"
_DEPLOYMENT = f"{DEPLOYMENTS}/a"
_REPLICAS = ("kind", "apiVersion", "spec", "status", "metadata.name", "code", "message", "details")
_ERROR = ("code", "reason", "message", "details", "kind", "status")
_WIDGETS = "/apis/conformance.example.com/v1/namespaces/{ns}/widgets"
_WIDGET = {
    "apiVersion": "conformance.example.com/v1",
    "kind": "Widget",
    "metadata": {"name": "a"},
    "spec": {"size": 1, "replicas": 3},
}
_BUDGETS = "/apis/policy/v1/namespaces/{ns}/poddisruptionbudgets"
_READY = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
_RESOURCES = {
    "name": "main",
    "image": "app:1",
    "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "1", "memory": "64Mi"}},
}


def _eviction(name: str = "a", **more: Any) -> dict[str, Any]:
    return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}, **more}


def _binding(**more: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "a"},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "n"},
        **more,
    }


def _ephemeral(*containers: Any) -> dict[str, Any]:
    return {"spec": {"ephemeralContainers": list(containers)}}


def _budget(available: int = 1, **status: Any) -> list[Call]:
    budget = {"metadata": {"name": "b"}, "spec": {"minAvailable": available, "selector": {"matchLabels": {"app": "a"}}}}
    status = {
        "observedGeneration": 1,
        "expectedPods": 1,
        "desiredHealthy": 1,
        "currentHealthy": 1,
        "disruptionsAllowed": 0,
        **status,
    }
    return [*prepared(_BUDGETS, budget), quiet(patch(MERGE_PATCH, f"{_BUDGETS}/b/status", {"status": status}))]


_LABELED = pod("a", metadata={"labels": {"app": "a"}}, nodeName="n")
_SCALE = {
    "apiVersion": "autoscaling/v1",
    "kind": "Scale",
    "metadata": {"name": "a", "namespace": "{ns}"},
    "spec": {"replicas": 2},
}
_DEBUG = {"name": "debug", "image": "debug:1"}

CASES = [
    # Status.
    Case(
        "status-of-a-pod",
        *prepared(PODS, pod("a")),
        get(f"{_POD}/status", keep=["kind", "status"]),
        patch(
            MERGE_PATCH,
            f"{_POD}/status",
            {"status": {"phase": "Running", "podIP": "10.1.2.3", "podIPs": [{"ip": "10.1.2.3"}]}},
            keep=["status"],
        ),
    ),
    Case(
        "status-put",
        *prepared(PODS, pod("a")),
        put(
            f"{_POD}/status",
            {**pod("a"), "status": {"phase": "Failed", "message": "gone", "reason": "Lost"}},
            keep=["status", "metadata.generation"],
        ),
    ),
    Case(
        "status-leaves-the-spec",
        *prepared(PODS, pod("a")),
        patch(
            MERGE_PATCH,
            f"{_POD}/status",
            {"spec": {"nodeName": "n"}, "metadata": {"labels": {"a": "b"}}, "status": {"phase": "Running"}},
            keep=["spec.nodeName", "metadata.labels", "status.phase"],
        ),
    ),
    Case(
        "status-odd-phase",
        *prepared(PODS, pod("a")),
        patch(MERGE_PATCH, f"{_POD}/status", {"status": {"phase": "Dancing"}}, keep=["status.phase", "message"]),
    ),
    Case(
        "status-container-statuses",
        *prepared(PODS, pod("a")),
        patch(
            MERGE_PATCH,
            f"{_POD}/status",
            {
                "status": {
                    "containerStatuses": [
                        {
                            "name": "main",
                            "ready": True,
                            "restartCount": 1,
                            "image": "app:1",
                            "imageID": "sha",
                            "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
                        }
                    ]
                }
            },
            keep=["status.containerStatuses"],
        ),
    ),
    Case(
        "status-observed-generation",
        *prepared(DEPLOYMENTS, deployment("a")),
        patch(MERGE_PATCH, f"{_DEPLOYMENT}/status", {"status": {"replicas": -1}}, keep=_ERROR),
    ),
    Case("status-of-a-config-map", patch(MERGE_PATCH, "/api/v1/namespaces/{ns}/configmaps/a/status", {})),
    Case("status-missing", patch(MERGE_PATCH, f"{_POD}/status", {"status": {}}), put(f"{_POD}/status", pod("a"))),
    Case("status-stale", *prepared(PODS, pod("a")), put(f"{_POD}/status", pod("a", metadata={"resourceVersion": "1"}))),
    Case(
        "status-of-a-namespace",
        patch(
            MERGE_PATCH,
            "/api/v1/namespaces/{ns}/status",
            {"status": {"phase": "Terminating"}},
            keep=["status.phase", "message"],
        ),
    ),
    Case(
        "status-of-a-node",
        *prepared("/api/v1/nodes", {"metadata": {"name": "node-{ns}"}}),
        patch(
            STRATEGIC_PATCH,
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
    Case("scale-read", *prepared(DEPLOYMENTS, deployment("a")), get(f"{_DEPLOYMENT}/scale")),
    Case(
        "scale-put",
        *prepared(DEPLOYMENTS, deployment("a")),
        put(f"{_DEPLOYMENT}/scale", _SCALE, keep=_REPLICAS),
        get(_DEPLOYMENT, keep=["spec.replicas", "metadata.generation"]),
    ),
    Case(
        "scale-patch",
        *prepared(DEPLOYMENTS, deployment("a")),
        patch(MERGE_PATCH, f"{_DEPLOYMENT}/scale", {"spec": {"replicas": 4}}, keep=_REPLICAS),
    ),
    Case(
        "scale-json-patch",
        *prepared(DEPLOYMENTS, deployment("a")),
        patch(
            JSON_PATCH,
            f"{_DEPLOYMENT}/scale",
            [{"op": "replace", "path": "/spec/replicas", "value": 5}],
            keep=_REPLICAS,
        ),
    ),
    Case(
        "scale-negative",
        *prepared(DEPLOYMENTS, deployment("a")),
        patch(MERGE_PATCH, f"{_DEPLOYMENT}/scale", {"spec": {"replicas": -1}}, keep=_REPLICAS),
    ),
    Case(
        "scale-text",
        *prepared(DEPLOYMENTS, deployment("a")),
        patch(MERGE_PATCH, f"{_DEPLOYMENT}/scale", {"spec": {"replicas": "two"}}, keep=_REPLICAS),
    ),
    Case(
        "scale-stale",
        *prepared(DEPLOYMENTS, deployment("a")),
        put(
            f"{_DEPLOYMENT}/scale",
            {**_SCALE, "metadata": {"name": "a", "namespace": "{ns}", "resourceVersion": "1"}},
            keep=_REPLICAS,
        ),
    ),
    Case(
        "scale-other-name",
        *prepared(DEPLOYMENTS, deployment("a")),
        put(f"{_DEPLOYMENT}/scale", {**_SCALE, "metadata": {"name": "b", "namespace": "{ns}"}}, keep=_REPLICAS),
    ),
    Case(
        "scale-missing",
        get(f"{_DEPLOYMENT}/scale"),
        patch(MERGE_PATCH, f"{_DEPLOYMENT}/scale", {"spec": {"replicas": 4}}),
    ),
    Case(
        "scale-dry-run",
        *prepared(DEPLOYMENTS, deployment("a")),
        patch(MERGE_PATCH, f"{_DEPLOYMENT}/scale", {"spec": {"replicas": 4}}, query={"dryRun": "All"}, keep=_REPLICAS),
        get(_DEPLOYMENT, keep=["spec.replicas"]),
    ),
    Case("scale-of-a-pod", get(f"{_POD}/scale")),
    Case(
        "scale-custom",
        *prepared(_WIDGETS, _WIDGET),
        get(f"{_WIDGETS}/a/scale"),
        patch(MERGE_PATCH, f"{_WIDGETS}/a/scale", {"spec": {"replicas": 7}}, keep=_REPLICAS),
        get(f"{_WIDGETS}/a", keep=["spec", "metadata.generation"]),
        patch(MERGE_PATCH, f"{_WIDGETS}/a/status", {"status": {"replicas": 2, "selector": "a=b"}}, keep=["status"]),
        get(f"{_WIDGETS}/a/scale", keep=["status"]),
        needs=["widgets"],
    ),
    Case(
        "scale-custom-without-replicas",
        *prepared(_WIDGETS, {**_WIDGET, "spec": {"size": 1}}),
        get(f"{_WIDGETS}/a/scale"),
        put(f"{_WIDGETS}/a/scale", _SCALE, keep=_REPLICAS),
        get(f"{_WIDGETS}/a", keep=["spec"]),
        needs=["widgets"],
    ),
    Case(
        "scale-custom-negative",
        *prepared(_WIDGETS, _WIDGET),
        patch(MERGE_PATCH, f"{_WIDGETS}/a/scale", {"spec": {"replicas": -7}}, keep=_REPLICAS),
        needs=["widgets"],
    ),
    Case(
        "status-custom",
        post(_WIDGETS, {**_WIDGET, "status": {"phase": "Early"}}, keep=["status", "metadata.generation"]),
        patch(MERGE_PATCH, f"{_WIDGETS}/a", {"status": {"phase": "No"}}, keep=["status", "metadata.generation"]),
        patch(
            MERGE_PATCH,
            f"{_WIDGETS}/a/status",
            {"status": {"phase": "Yes"}, "spec": {"size": 9}, "metadata": {"labels": {"a": "b"}}},
            keep=["status", "spec", "metadata.generation", "metadata.labels"],
        ),
        patch(MERGE_PATCH, f"{_WIDGETS}/a", {"spec": {"size": 2}}, keep=["metadata.generation"]),
        patch(MERGE_PATCH, f"{_WIDGETS}/a/status", {"status": {"phase": 7}}, keep=["message", "reason", "code"]),
        patch(
            MERGE_PATCH,
            f"{_WIDGETS}/a/status",
            {"metadata": {"annotations": {"a": "b"}}},
            keep=["metadata.annotations"],
        ),
        needs=["widgets"],
    ),
    Case(
        "status-custom-without-subresource",
        post(
            "/apis/conformance.example.com/v1/namespaces/{ns}/gadgets",
            {
                "apiVersion": "conformance.example.com/v1",
                "kind": "Gadget",
                "metadata": {"name": "a"},
                "status": {"x": 1},
            },
            keep=["status"],
        ),
        patch(MERGE_PATCH, "/apis/conformance.example.com/v1/namespaces/{ns}/gadgets/a/status", {"status": {"x": 2}}),
        patch(
            MERGE_PATCH,
            "/apis/conformance.example.com/v1/namespaces/{ns}/gadgets/a",
            {"status": {"x": 2}},
            keep=["status", "metadata.generation"],
        ),
        get("/apis/conformance.example.com/v1/namespaces/{ns}/gadgets/a/scale"),
        needs=["gadgets"],
    ),
    # Eviction.
    Case(
        "eviction",
        *prepared(PODS, _LABELED),
        post(f"{_POD}/eviction", _eviction()),
        get(
            _POD, keep=["metadata.deletionGracePeriodSeconds", "status.conditions.*.type", "status.conditions.*.reason"]
        ),
    ),
    Case(
        "eviction-pending", *prepared(PODS, pod("a")), post(f"{_POD}/eviction", _eviction()), get(_POD, keep=["code"])
    ),
    Case("eviction-missing", post(f"{_POD}/eviction", _eviction())),
    Case("eviction-other-name", *prepared(PODS, pod("a")), post(f"{_POD}/eviction", _eviction("b"))),
    Case("eviction-no-body", *prepared(PODS, pod("a")), post(f"{_POD}/eviction", {})),
    Case(
        "eviction-old-version",
        *prepared(PODS, _LABELED),
        post(f"{_POD}/eviction", {**_eviction(), "apiVersion": "policy/v1beta1"}, keep=_ERROR),
    ),
    Case("eviction-wrong-kind", *prepared(PODS, pod("a")), post(f"{_POD}/eviction", pod("a"), keep=_ERROR)),
    Case(
        "eviction-grace",
        *prepared(PODS, _LABELED),
        post(f"{_POD}/eviction", _eviction(deleteOptions={"gracePeriodSeconds": 3})),
        get(_POD, keep=["metadata.deletionGracePeriodSeconds"]),
    ),
    Case(
        "eviction-dry-run",
        *prepared(PODS, _LABELED),
        post(f"{_POD}/eviction", _eviction(deleteOptions={"dryRun": ["All"]})),
        get(_POD, keep=["metadata.deletionTimestamp"]),
    ),
    Case(
        "eviction-precondition",
        *prepared(PODS, _LABELED),
        post(f"{_POD}/eviction", _eviction(deleteOptions={"preconditions": {"uid": "7"}})),
    ),
    Case(
        "eviction-budget-allows",
        *prepared(PODS, _LABELED),
        quiet(patch(MERGE_PATCH, f"{_POD}/status", _READY)),
        *_budget(0, disruptionsAllowed=1),
        post(f"{_POD}/eviction", _eviction(), until=lambda status, _: status != 429),
        get(_POD, keep=["metadata.deletionGracePeriodSeconds"]),
    ),
    Case(
        "eviction-budget-forbids",
        *prepared(PODS, _LABELED),
        quiet(patch(MERGE_PATCH, f"{_POD}/status", _READY)),
        *_budget(),
        get(
            f"{_BUDGETS}/b",
            until=lambda _, body: body["status"].get("currentHealthy") == 1,
            keep=["status.disruptionsAllowed"],
        ),
        post(f"{_POD}/eviction", _eviction()),
    ),
    Case(
        "eviction-two-budgets",
        *prepared(PODS, _LABELED),
        quiet(patch(MERGE_PATCH, f"{_POD}/status", _READY)),
        *_budget(),
        *prepared(
            _BUDGETS,
            {"metadata": {"name": "c"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}}},
        ),
        post(f"{_POD}/eviction", _eviction()),
    ),
    Case(
        "eviction-of-an-ended-pod",
        *prepared(PODS, _LABELED),
        quiet(patch(MERGE_PATCH, f"{_POD}/status", {"status": {"phase": "Succeeded"}})),
        *_budget(),
        post(f"{_POD}/eviction", _eviction()),
    ),
    # Binding.
    Case(
        "binding",
        *prepared(PODS, pod("a")),
        post(f"{_POD}/binding", _binding()),
        get(_POD, keep=["spec.nodeName", "status.conditions"]),
    ),
    Case(
        "binding-twice",
        *prepared(PODS, pod("a")),
        quiet(post(f"{_POD}/binding", _binding())),
        post(f"{_POD}/binding", _binding()),
    ),
    Case(
        "binding-through-the-collection",
        *prepared(PODS, pod("a")),
        post("/api/v1/namespaces/{ns}/bindings", _binding()),
        get(_POD, keep=["spec.nodeName"]),
    ),
    Case("binding-missing", post(f"{_POD}/binding", _binding())),
    Case("binding-other-name", *prepared(PODS, pod("a")), post(f"{_POD}/binding", _binding(metadata={"name": "b"}))),
    Case("binding-no-target", *prepared(PODS, pod("a")), post(f"{_POD}/binding", _binding(target={}))),
    Case(
        "binding-odd-target",
        *prepared(PODS, pod("a")),
        post(f"{_POD}/binding", _binding(target={"kind": "Teapot", "name": "n"})),
    ),
    Case(
        "binding-deleted-pod",
        *prepared(PODS, pod("a", metadata={"finalizers": ["example.com/hold"]})),
        quiet(Call("DELETE", _POD)),
        post(f"{_POD}/binding", _binding()),
    ),
    Case(
        "binding-uid", *prepared(PODS, pod("a")), post(f"{_POD}/binding", _binding(metadata={"name": "a", "uid": "7"}))
    ),
    Case(
        "binding-annotations",
        *prepared(PODS, pod("a")),
        quiet(post(f"{_POD}/binding", _binding(metadata={"name": "a", "annotations": {"x": "y"}}))),
        get(_POD, keep=["metadata.annotations"]),
    ),
    Case(
        "binding-gated",
        *prepared(PODS, pod("a", schedulingGates=[{"name": "example.com/wait"}])),
        post(f"{_POD}/binding", _binding()),
    ),
    # Ephemeral containers.
    Case(
        "ephemeral-add",
        *prepared(PODS, pod("a")),
        patch(
            STRATEGIC_PATCH,
            f"{_POD}/ephemeralcontainers",
            _ephemeral(_DEBUG),
            keep=["spec.ephemeralContainers", "metadata.generation"],
        ),
    ),
    Case(
        "ephemeral-read", *prepared(PODS, pod("a")), get(f"{_POD}/ephemeralcontainers", keep=["kind", "metadata.name"])
    ),
    Case(
        "ephemeral-change",
        *prepared(PODS, pod("a")),
        quiet(patch(STRATEGIC_PATCH, f"{_POD}/ephemeralcontainers", _ephemeral(_DEBUG))),
        patch(STRATEGIC_PATCH, f"{_POD}/ephemeralcontainers", _ephemeral({**_DEBUG, "image": "debug:2"}), keep=_ERROR),
    ),
    Case(
        "ephemeral-remove",
        *prepared(PODS, pod("a")),
        quiet(patch(STRATEGIC_PATCH, f"{_POD}/ephemeralcontainers", _ephemeral(_DEBUG))),
        patch(
            JSON_PATCH,
            f"{_POD}/ephemeralcontainers",
            [{"op": "remove", "path": "/spec/ephemeralContainers"}],
            keep=_ERROR,
        ),
    ),
    Case(
        "ephemeral-same-name",
        *prepared(PODS, pod("a")),
        patch(
            STRATEGIC_PATCH,
            f"{_POD}/ephemeralcontainers",
            _ephemeral({"name": "main", "image": "debug:1"}),
            keep=_ERROR,
        ),
    ),
    Case(
        "ephemeral-ports",
        *prepared(PODS, pod("a")),
        patch(
            STRATEGIC_PATCH,
            f"{_POD}/ephemeralcontainers",
            _ephemeral({**_DEBUG, "ports": [{"containerPort": 80}]}),
            keep=_ERROR,
        ),
    ),
    Case(
        "ephemeral-target",
        *prepared(PODS, pod("a")),
        patch(
            STRATEGIC_PATCH,
            f"{_POD}/ephemeralcontainers",
            _ephemeral({**_DEBUG, "targetContainerName": "none"}),
            keep=_ERROR,
        ),
    ),
    Case(
        "ephemeral-in-a-patch-of-the-pod",
        *prepared(PODS, pod("a")),
        patch(STRATEGIC_PATCH, _POD, _ephemeral(_DEBUG), keep=("code", "reason", "details.causes.*.field")),
    ),
    Case("ephemeral-at-creation", post(PODS, pod("a", ephemeralContainers=[_DEBUG]), keep=_ERROR)),
    Case(
        "ephemeral-leaves-the-rest",
        *prepared(PODS, pod("a")),
        patch(
            STRATEGIC_PATCH,
            f"{_POD}/ephemeralcontainers",
            {"metadata": {"labels": {"a": "b"}}, "spec": {"hostname": "h"}},
            keep=["metadata.labels", "spec.hostname", "message"],
        ),
    ),
    # Resize.
    Case(
        "resize",
        *prepared(PODS, pod("a", containers=[_RESOURCES])),
        patch(
            STRATEGIC_PATCH,
            f"{_POD}/resize",
            {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "200m"}}}]}},
            keep=["spec.containers.*.resources", "metadata.generation", "message"],
        ),
    ),
    Case(
        "resize-in-a-patch-of-the-pod",
        *prepared(PODS, pod("a", containers=[_RESOURCES])),
        patch(
            STRATEGIC_PATCH,
            _POD,
            {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "200m"}}}]}},
            keep=("code", "reason", "details.causes.*.field"),
        ),
    ),
    Case(
        "resize-image",
        *prepared(PODS, pod("a", containers=[_RESOURCES])),
        patch(
            STRATEGIC_PATCH,
            f"{_POD}/resize",
            {"spec": {"containers": [{"name": "main", "image": "app:2"}]}},
            keep=("code", "reason", "details.causes.*.field", "spec.containers.*.image"),
        ),
    ),
    Case(
        "resize-changes-the-class",
        *prepared(PODS, pod("a")),
        patch(
            STRATEGIC_PATCH,
            f"{_POD}/resize",
            {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "200m"}}}]}},
            keep=("code", "reason", "details.causes.*.field", "details.causes.*.message"),
        ),
    ),
    Case(
        "resize-policy",
        *prepared(PODS, pod("a", containers=[_RESOURCES])),
        get(_POD, keep=["spec.containers.0.resizePolicy"]),
    ),
    Case(
        "resize-requests-above-limits",
        *prepared(PODS, pod("a", containers=[_RESOURCES])),
        patch(
            STRATEGIC_PATCH,
            f"{_POD}/resize",
            {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "2"}}}]}},
            keep=("code", "reason", "details.causes"),
        ),
    ),
    Case("resize-missing", patch(STRATEGIC_PATCH, f"{_POD}/resize", {})),
    # Subresources that need a node.
    Case("log-unscheduled", *prepared(PODS, pod("a")), get(f"{_POD}/log")),
    Case("log-odd-container", *prepared(PODS, pod("a")), get(f"{_POD}/log", query={"container": "other"})),
    Case(
        "log-two-containers",
        *prepared(PODS, pod("a", containers=[{"name": "one", "image": "a"}, {"name": "two", "image": "b"}])),
        get(f"{_POD}/log"),
    ),
    Case("log-odd-option", *prepared(PODS, pod("a")), get(f"{_POD}/log", query={"tailLines": "-3"})),
    Case("log-odd-number", *prepared(PODS, pod("a")), get(f"{_POD}/log", query={"tailLines": "many"})),
    Case(
        "log-since-both",
        *prepared(PODS, pod("a")),
        get(f"{_POD}/log", query={"sinceSeconds": "1", "sinceTime": "2026-01-01T00:00:00Z"}),
    ),
    Case("exec-missing", post(f"{_POD}/exec", None, query={"command": "ls"})),
    # Tokens.
    Case(
        "token",
        post(
            "/api/v1/namespaces/{ns}/serviceaccounts/default/token",
            {
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenRequest",
                "spec": {"audiences": ["me"], "expirationSeconds": 600},
            },
            keep=["kind", "apiVersion", "spec.audiences", "spec.expirationSeconds", "metadata.name"],
        ),
    ),
    Case(
        "token-short",
        post(
            "/api/v1/namespaces/{ns}/serviceaccounts/default/token",
            {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 6}},
            keep=_ERROR,
        ),
    ),
    Case(
        "token-missing",
        post(
            "/api/v1/namespaces/{ns}/serviceaccounts/none/token",
            {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}},
        ),
    ),
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
