"""Deletion: finalizers, grace, preconditions, propagation, owner garbage collection, namespaces, collections."""

from typing import Any

from tests.conformance.steps import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    MERGE_PATCH,
    PODS,
    Case,
    config_map,
    delete,
    deployment,
    get,
    patch,
    pod,
    post,
    prepared,
    put,
    quiet,
)

_OBJECT = f"{CONFIG_MAPS}/a"
_POD = f"{PODS}/a"
_HELD = config_map("a", {"k": "v"}, finalizers=["example.com/hold"])
_DELETION = (
    "metadata.deletionTimestamp",
    "metadata.deletionGracePeriodSeconds",
    "metadata.finalizers",
    "metadata.generation",
    "code",
    "message",
    "kind",
    "details",
)
_OWN = {"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "${0.metadata.uid}"}


def gone(status: int, _: Any) -> bool:
    return status == 404


def _owned(name: str, **owner: Any) -> dict[str, Any]:
    return config_map(name, ownerReferences=[{**_OWN, **owner}])


def _options(**options: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "DeleteOptions", **options}


_ODD_OPTIONS: dict[str, Any] = {
    "propagation": {"propagationPolicy": "Sideways"},
    "both": {"propagationPolicy": "Orphan", "orphanDependents": True},
    "grace-negative": {"gracePeriodSeconds": -1},
    "grace-text": {"gracePeriodSeconds": "soon"},
    "dry-run": {"dryRun": ["Some"]},
    "unknown-field": {"colour": "blue"},
    "kind": {"kind": "ConfigMap"},
    "version": {"apiVersion": "v9"},
    "uid": {"preconditions": {"uid": "7"}},
    "resource-version": {"preconditions": {"resourceVersion": "1"}},
    "both-preconditions": {"preconditions": {"uid": "7", "resourceVersion": "1"}},
}
_QUERIES = {
    "grace": {"gracePeriodSeconds": "0"},
    "grace-text": {"gracePeriodSeconds": "soon"},
    "grace-negative": {"gracePeriodSeconds": "-5"},
    "propagation": {"propagationPolicy": "Background"},
    "propagation-odd": {"propagationPolicy": "Sideways"},
    "orphan": {"orphanDependents": "true"},
    "orphan-odd": {"orphanDependents": "maybe"},
}

CASES = [
    Case("plain", *prepared(CONFIG_MAPS, config_map("a")), delete(_OBJECT), get(_OBJECT)),
    Case("missing", delete(_OBJECT)),
    Case("twice", *prepared(CONFIG_MAPS, config_map("a")), quiet(delete(_OBJECT)), delete(_OBJECT)),
    Case(
        "finalizer",
        *prepared(CONFIG_MAPS, _HELD),
        delete(_OBJECT),
        get(_OBJECT, keep=_DELETION),
        delete(_OBJECT, keep=_DELETION),
        patch(MERGE_PATCH, _OBJECT, {"data": {"k": "w"}}, keep=("data", "message")),
        patch(
            MERGE_PATCH,
            _OBJECT,
            {"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}},
            keep=("message", "reason", "details", "metadata.finalizers"),
        ),
        patch(
            MERGE_PATCH,
            _OBJECT,
            {"metadata": {"finalizers": None}},
            keep=("kind", "metadata.finalizers", "metadata.deletionTimestamp"),
        ),
        get(_OBJECT, keep=("code",)),
    ),
    Case(
        "finalizer-removed-by-update",
        *prepared(CONFIG_MAPS, _HELD),
        quiet(delete(_OBJECT)),
        put(_OBJECT, config_map("a"), keep=_DELETION),
        get(_OBJECT, keep=("code",)),
    ),
    Case(
        "finalizer-deletion-time-is-kept",
        *prepared(CONFIG_MAPS, _HELD),
        quiet(delete(_OBJECT)),
        patch(MERGE_PATCH, _OBJECT, {"metadata": {"deletionTimestamp": None}}, keep=_DELETION),
    ),
    Case(
        "finalizer-create-again",
        *prepared(CONFIG_MAPS, _HELD),
        quiet(delete(_OBJECT)),
        post(CONFIG_MAPS, config_map("a")),
    ),
    Case(
        "finalizer-dry-run",
        *prepared(CONFIG_MAPS, _HELD),
        delete(_OBJECT, query={"dryRun": "All"}, keep=_DELETION),
        get(_OBJECT, keep=_DELETION),
    ),
    Case(
        "two-finalizers",
        *prepared(CONFIG_MAPS, config_map("a", finalizers=["example.com/a", "example.com/b"])),
        quiet(delete(_OBJECT)),
        patch(MERGE_PATCH, _OBJECT, {"metadata": {"finalizers": ["example.com/b"]}}, keep=("metadata.finalizers",)),
        get(_OBJECT, keep=("metadata.finalizers",)),
    ),
    Case(
        "uid-right",
        *prepared(CONFIG_MAPS, config_map("a")),
        delete(_OBJECT, _options(preconditions={"uid": "${0.metadata.uid}"})),
    ),
    Case(
        "version-right",
        *prepared(CONFIG_MAPS, config_map("a")),
        delete(_OBJECT, _options(preconditions={"resourceVersion": "${0.metadata.resourceVersion}"})),
    ),
    *(
        Case(f"options-{id}", *prepared(CONFIG_MAPS, config_map("a")), delete(_OBJECT, _options(**options)))
        for id, options in _ODD_OPTIONS.items()
    ),
    *(
        Case(f"query-{id}", *prepared(CONFIG_MAPS, config_map("a")), delete(_OBJECT, query=query))
        for id, query in _QUERIES.items()
    ),
    Case("body-nonsense", *prepared(CONFIG_MAPS, config_map("a")), delete(_OBJECT, "{")),
    Case("body-empty-object", *prepared(CONFIG_MAPS, config_map("a")), delete(_OBJECT, {})),
    Case(
        "body-and-query",
        *prepared(CONFIG_MAPS, _HELD),
        delete(
            _OBJECT, _options(propagationPolicy="Background"), query={"propagationPolicy": "Orphan"}, keep=_DELETION
        ),
    ),
    Case(
        "foreground",
        *prepared(CONFIG_MAPS, config_map("a")),
        delete(
            _OBJECT,
            _options(propagationPolicy="Foreground"),
            keep=("metadata.finalizers", "metadata.deletionGracePeriodSeconds", "status"),
        ),
        get(_OBJECT, until=gone, keep=("code",)),
    ),
    Case(
        "orphan",
        *prepared(CONFIG_MAPS, config_map("a")),
        delete(_OBJECT, _options(propagationPolicy="Orphan"), keep=("metadata.finalizers", "status")),
        get(_OBJECT, until=gone, keep=("code",)),
    ),
    # Pods terminate gracefully while they are bound to a node.
    Case("pod-unscheduled", *prepared(PODS, pod("a")), delete(_POD, keep=_DELETION), get(_POD, keep=("code",))),
    Case(
        "pod-on-a-node",
        *prepared(PODS, pod("a", nodeName="n")),
        delete(_POD, keep=_DELETION),
        get(_POD, keep=_DELETION),
        delete(_POD, keep=_DELETION),
    ),
    Case(
        "pod-grace",
        *prepared(PODS, pod("a", nodeName="n", terminationGracePeriodSeconds=7)),
        delete(_POD, keep=_DELETION),
    ),
    Case(
        "pod-grace-zero-in-spec",
        *prepared(PODS, pod("a", nodeName="n", terminationGracePeriodSeconds=0)),
        delete(_POD, keep=_DELETION),
        get(_POD, keep=("code", *_DELETION)),
    ),
    Case(
        "pod-grace-asked",
        *prepared(PODS, pod("a", nodeName="n")),
        delete(_POD, _options(gracePeriodSeconds=5), keep=_DELETION),
        delete(_POD, _options(gracePeriodSeconds=9), keep=_DELETION),
        delete(_POD, _options(gracePeriodSeconds=2), keep=_DELETION),
    ),
    Case(
        "pod-now",
        *prepared(PODS, pod("a", nodeName="n")),
        delete(_POD, _options(gracePeriodSeconds=0), keep=_DELETION),
        get(_POD, keep=("code",)),
    ),
    Case(
        "pod-then-now",
        *prepared(PODS, pod("a", nodeName="n")),
        quiet(delete(_POD)),
        delete(_POD, _options(gracePeriodSeconds=0), keep=_DELETION),
        get(_POD, keep=("code",)),
    ),
    Case(
        "pod-ended",
        *prepared(PODS, pod("a", nodeName="n")),
        quiet(patch(MERGE_PATCH, f"{_POD}/status", {"status": {"phase": "Succeeded"}})),
        delete(_POD, keep=("metadata.deletionGracePeriodSeconds",)),
        get(_POD, keep=("code",)),
    ),
    Case(
        "pod-finalizer",
        *prepared(PODS, pod("a", metadata={"finalizers": ["example.com/hold"]})),
        delete(_POD, keep=_DELETION),
        patch(MERGE_PATCH, _POD, {"metadata": {"finalizers": None}}, keep=_DELETION),
        get(_POD, keep=("code",)),
    ),
    Case(
        "pod-dry-run",
        *prepared(PODS, pod("a", nodeName="n")),
        delete(_POD, query={"dryRun": "All"}, keep=_DELETION),
        get(_POD, keep=_DELETION),
    ),
    Case("pod-uid-wrong", *prepared(PODS, pod("a", nodeName="n")), delete(_POD, _options(preconditions={"uid": "7"}))),
    Case(
        "deployment-background",
        *prepared(DEPLOYMENTS, deployment("a")),
        delete(f"{DEPLOYMENTS}/a", keep=("status", "details.kind", "details.group", "kind")),
    ),
    # Garbage collection.
    Case(
        "dependents-go",
        *prepared(CONFIG_MAPS, config_map("o"), _owned("a")),
        quiet(delete(f"{CONFIG_MAPS}/o")),
        get(_OBJECT, until=gone, keep=("code",)),
    ),
    Case(
        "dependents-of-dependents-go",
        *prepared(
            CONFIG_MAPS,
            config_map("o"),
            _owned("a"),
            config_map("b", ownerReferences=[{**_OWN, "name": "a", "uid": "${1.metadata.uid}"}]),
        ),
        quiet(delete(f"{CONFIG_MAPS}/o")),
        get(f"{CONFIG_MAPS}/b", until=gone, keep=("code",)),
    ),
    Case(
        "dependents-stay-when-orphaned",
        *prepared(CONFIG_MAPS, config_map("o"), _owned("a")),
        quiet(delete(f"{CONFIG_MAPS}/o", _options(propagationPolicy="Orphan"))),
        get(f"{CONFIG_MAPS}/o", until=gone, keep=("code",)),
        get(_OBJECT, keep=("metadata.ownerReferences", "code")),
    ),
    Case(
        "foreground-waits-for-blocking-dependents",
        *prepared(
            CONFIG_MAPS,
            config_map("o"),
            {
                **_owned("a", blockOwnerDeletion=True),
                "metadata": {**_owned("a", blockOwnerDeletion=True)["metadata"], "finalizers": ["example.com/hold"]},
            },
        ),
        delete(f"{CONFIG_MAPS}/o", _options(propagationPolicy="Foreground"), keep=("metadata.finalizers",)),
        get(_OBJECT, until=lambda _, body: "deletionTimestamp" in body["metadata"], keep=("metadata.finalizers",)),
        get(f"{CONFIG_MAPS}/o", keep=("metadata.finalizers",)),
        quiet(patch(MERGE_PATCH, _OBJECT, {"metadata": {"finalizers": None}})),
        get(f"{CONFIG_MAPS}/o", until=gone, keep=("code",)),
    ),
    Case(
        "foreground-does-not-wait-for-others",
        *prepared(
            CONFIG_MAPS,
            config_map("o"),
            {**_owned("a"), "metadata": {**_owned("a")["metadata"], "finalizers": ["example.com/hold"]}},
        ),
        quiet(delete(f"{CONFIG_MAPS}/o", _options(propagationPolicy="Foreground"))),
        get(f"{CONFIG_MAPS}/o", until=gone, keep=("code",)),
        get(_OBJECT, until=lambda _, body: "deletionTimestamp" in body["metadata"], keep=("metadata.finalizers",)),
    ),
    Case(
        "dependents-of-nobody-go",
        *prepared(CONFIG_MAPS, config_map("o")),
        *prepared(CONFIG_MAPS, _owned("a", uid="11111111-2222-4333-8444-555555555555")),
        get(_OBJECT, until=gone, keep=("code",)),
    ),
    Case(
        "one-owner-left",
        *prepared(CONFIG_MAPS, config_map("o"), config_map("p")),
        *prepared(
            CONFIG_MAPS, config_map("a", ownerReferences=[_OWN, {**_OWN, "name": "p", "uid": "${1.metadata.uid}"}])
        ),
        quiet(delete(f"{CONFIG_MAPS}/o")),
        get(
            _OBJECT,
            until=lambda _, body: len(body["metadata"]["ownerReferences"]) == 1,
            keep=("metadata.ownerReferences",),
        ),
    ),
    # Collections.
    Case(
        "collection",
        *prepared(PODS, pod("a"), pod("b")),
        delete(PODS, keep=("kind", "items.*.metadata.name", "status")),
        get(PODS, keep=("items",)),
    ),
    Case(
        "collection-selected",
        *prepared(CONFIG_MAPS, config_map("a", labels={"x": "1"}), config_map("b")),
        delete(CONFIG_MAPS, query={"labelSelector": "x=1"}, keep=("kind", "items.*.metadata.name")),
        get(CONFIG_MAPS, query={"fieldSelector": "metadata.name!=kube-root-ca.crt"}, keep=("items.*.metadata.name",)),
    ),
    Case(
        "collection-by-field",
        *prepared(CONFIG_MAPS, config_map("a"), config_map("b")),
        delete(CONFIG_MAPS, query={"fieldSelector": "metadata.name=b"}, keep=("items.*.metadata.name",)),
        get(f"{CONFIG_MAPS}/a", keep=("metadata.name",)),
    ),
    Case("collection-empty", delete(PODS)),
    Case(
        "collection-dry-run",
        *prepared(PODS, pod("a")),
        delete(PODS, query={"dryRun": "All"}, keep=("items.*.metadata.name",)),
        get(PODS, keep=("items.*.metadata.name",)),
    ),
    Case(
        "collection-finalizers",
        *prepared(CONFIG_MAPS, _HELD),
        delete(
            CONFIG_MAPS,
            query={"labelSelector": "!none", "fieldSelector": "metadata.name=a"},
            keep=("items.*.metadata.name",),
        ),
        get(_OBJECT, keep=("metadata.finalizers", "metadata.deletionTimestamp")),
    ),
    Case("collection-bad-selector", delete(CONFIG_MAPS, query={"labelSelector": "a in ("})),
    Case("collection-of-namespaces", delete("/api/v1/namespaces")),
    # Namespaces.
    Case(
        "namespace",
        *prepared(CONFIG_MAPS, config_map("a")),
        delete("/api/v1/namespaces/{ns}", drop=["status.conditions", "metadata.resourceVersion"]),
        post(CONFIG_MAPS, config_map("b")),
        get("/api/v1/namespaces/{ns}", until=gone),
        get(_OBJECT),
    ),
    Case(
        "namespace-waits-for-finalizers",
        *prepared(CONFIG_MAPS, _HELD),
        quiet(delete("/api/v1/namespaces/{ns}")),
        get(
            "/api/v1/namespaces/{ns}",
            until=lambda _, body: any(
                one["type"] == "NamespaceFinalizersRemaining" and one["status"] == "True"
                for one in (body["status"].get("conditions") or ())
            ),
            keep=(
                "status.phase",
                "status.conditions.*.type",
                "status.conditions.*.status",
                "status.conditions.*.message",
                "spec",
            ),
        ),
        post(PODS, pod("b")),
        quiet(patch(MERGE_PATCH, _OBJECT, {"metadata": {"finalizers": None}})),
        get("/api/v1/namespaces/{ns}", until=gone, keep=("code",)),
    ),
    Case("namespace-default", delete("/api/v1/namespaces/default")),
    Case("namespace-kube-system", delete("/api/v1/namespaces/kube-system")),
    Case("namespace-missing", delete("/api/v1/namespaces/no-such")),
]
