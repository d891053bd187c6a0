"""Deletion: finalizers, grace, preconditions, propagation, owner garbage collection, namespaces, collections."""

from collections.abc import Sequence
from typing import Any

from tests.conformance.steps import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    MERGE_PATCH,
    PODS,
    Call,
    Case,
    Step,
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


def _owned(name: str, finalizers: Sequence[str] = (), **owner: Any) -> dict[str, Any]:
    held = {"finalizers": finalizers} if finalizers else {}
    return config_map(name, ownerReferences=[{**_OWN, **owner}], **held)


def _options(**options: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "DeleteOptions", **options}


def _plain(id: str, *steps: Step) -> Case:
    return Case(id, *prepared(CONFIG_MAPS, config_map("a")), *steps)


def _held(id: str, *steps: Step) -> Case:
    return Case(id, *prepared(CONFIG_MAPS, _HELD), *steps)


def _pod(id: str, *steps: Step, **spec: Any) -> Case:
    return Case(f"pod-{id}", *prepared(PODS, pod("a", **spec)), *steps)


def _pod_on_node(id: str, *steps: Step, **spec: Any) -> Case:
    return _pod(id, *steps, nodeName="n", **spec)


def _ends(path: str) -> Call:
    return get(path, until=gone, keep=("code",))


def _released(path: str = _OBJECT, keep: tuple[str, ...] = ()) -> Call:
    return patch(MERGE_PATCH, path, {"metadata": {"finalizers": None}}, keep=keep)


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
    _plain("plain", delete(_OBJECT), get(_OBJECT)),
    Case("missing", delete(_OBJECT)),
    _plain("twice", quiet(delete(_OBJECT)), delete(_OBJECT)),
    _held(
        "finalizer",
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
        _released(keep=("kind", "metadata.finalizers", "metadata.deletionTimestamp")),
        get(_OBJECT, keep=("code",)),
    ),
    _held(
        "finalizer-removed-by-update",
        quiet(delete(_OBJECT)),
        put(_OBJECT, config_map("a"), keep=_DELETION),
        get(_OBJECT, keep=("code",)),
    ),
    _held(
        "finalizer-deletion-time-is-kept",
        quiet(delete(_OBJECT)),
        patch(MERGE_PATCH, _OBJECT, {"metadata": {"deletionTimestamp": None}}, keep=_DELETION),
    ),
    _held("finalizer-create-again", quiet(delete(_OBJECT)), post(CONFIG_MAPS, config_map("a"))),
    _held(
        "finalizer-dry-run",
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
    _plain("uid-right", delete(_OBJECT, _options(preconditions={"uid": "${0.metadata.uid}"}))),
    _plain(
        "version-right",
        delete(_OBJECT, _options(preconditions={"resourceVersion": "${0.metadata.resourceVersion}"})),
    ),
    *(_plain(f"options-{id}", delete(_OBJECT, _options(**options))) for id, options in _ODD_OPTIONS.items()),
    *(_plain(f"query-{id}", delete(_OBJECT, query=query)) for id, query in _QUERIES.items()),
    _plain("body-nonsense", delete(_OBJECT, "{")),
    _plain("body-empty-object", delete(_OBJECT, {})),
    _held(
        "body-and-query",
        delete(
            _OBJECT, _options(propagationPolicy="Background"), query={"propagationPolicy": "Orphan"}, keep=_DELETION
        ),
    ),
    _plain(
        "foreground",
        delete(
            _OBJECT,
            _options(propagationPolicy="Foreground"),
            keep=("metadata.finalizers", "metadata.deletionGracePeriodSeconds", "status"),
        ),
        _ends(_OBJECT),
    ),
    _plain(
        "orphan",
        delete(_OBJECT, _options(propagationPolicy="Orphan"), keep=("metadata.finalizers", "status")),
        _ends(_OBJECT),
    ),
    # Pods terminate gracefully while they are bound to a node.
    _pod("unscheduled", delete(_POD, keep=_DELETION), get(_POD, keep=("code",))),
    _pod_on_node("on-a-node", delete(_POD, keep=_DELETION), get(_POD, keep=_DELETION), delete(_POD, keep=_DELETION)),
    _pod_on_node("grace", delete(_POD, keep=_DELETION), terminationGracePeriodSeconds=7),
    _pod_on_node(
        "grace-zero-in-spec",
        delete(_POD, keep=_DELETION),
        get(_POD, keep=("code", *_DELETION)),
        terminationGracePeriodSeconds=0,
    ),
    _pod_on_node(
        "grace-asked",
        *(delete(_POD, _options(gracePeriodSeconds=seconds), keep=_DELETION) for seconds in (5, 9, 2)),
    ),
    _pod_on_node("now", delete(_POD, _options(gracePeriodSeconds=0), keep=_DELETION), get(_POD, keep=("code",))),
    _pod_on_node(
        "then-now",
        quiet(delete(_POD)),
        delete(_POD, _options(gracePeriodSeconds=0), keep=_DELETION),
        get(_POD, keep=("code",)),
    ),
    _pod_on_node(
        "ended",
        quiet(patch(MERGE_PATCH, f"{_POD}/status", {"status": {"phase": "Succeeded"}})),
        delete(_POD, keep=("metadata.deletionGracePeriodSeconds",)),
        get(_POD, keep=("code",)),
    ),
    _pod(
        "finalizer",
        delete(_POD, keep=_DELETION),
        _released(_POD, _DELETION),
        get(_POD, keep=("code",)),
        metadata={"finalizers": ["example.com/hold"]},
    ),
    _pod_on_node("dry-run", delete(_POD, query={"dryRun": "All"}, keep=_DELETION), get(_POD, keep=_DELETION)),
    _pod_on_node("uid-wrong", delete(_POD, _options(preconditions={"uid": "7"}))),
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
        _ends(_OBJECT),
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
        _ends(f"{CONFIG_MAPS}/b"),
    ),
    Case(
        "dependents-stay-when-orphaned",
        *prepared(CONFIG_MAPS, config_map("o"), _owned("a")),
        quiet(delete(f"{CONFIG_MAPS}/o", _options(propagationPolicy="Orphan"))),
        _ends(f"{CONFIG_MAPS}/o"),
        get(_OBJECT, keep=("metadata.ownerReferences", "code")),
    ),
    Case(
        "foreground-waits-for-blocking-dependents",
        *prepared(CONFIG_MAPS, config_map("o"), _owned("a", finalizers=["example.com/hold"], blockOwnerDeletion=True)),
        delete(f"{CONFIG_MAPS}/o", _options(propagationPolicy="Foreground"), keep=("metadata.finalizers",)),
        get(_OBJECT, until=lambda _, body: "deletionTimestamp" in body["metadata"], keep=("metadata.finalizers",)),
        get(f"{CONFIG_MAPS}/o", keep=("metadata.finalizers",)),
        quiet(_released()),
        _ends(f"{CONFIG_MAPS}/o"),
    ),
    Case(
        "foreground-does-not-wait-for-others",
        *prepared(CONFIG_MAPS, config_map("o"), _owned("a", finalizers=["example.com/hold"])),
        quiet(delete(f"{CONFIG_MAPS}/o", _options(propagationPolicy="Foreground"))),
        _ends(f"{CONFIG_MAPS}/o"),
        get(_OBJECT, until=lambda _, body: "deletionTimestamp" in body["metadata"], keep=("metadata.finalizers",)),
    ),
    Case(
        "dependents-of-nobody-go",
        *prepared(CONFIG_MAPS, config_map("o")),
        *prepared(CONFIG_MAPS, _owned("a", uid="11111111-2222-4333-8444-555555555555")),
        _ends(_OBJECT),
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
    _held(
        "collection-finalizers",
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
    _plain(
        "namespace",
        delete("/api/v1/namespaces/{ns}", drop=["status.conditions", "metadata.resourceVersion"]),
        post(CONFIG_MAPS, config_map("b")),
        get("/api/v1/namespaces/{ns}", until=gone),
        get(_OBJECT),
    ),
    _held(
        "namespace-waits-for-finalizers",
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
        quiet(_released()),
        _ends("/api/v1/namespaces/{ns}"),
    ),
    Case("namespace-default", delete("/api/v1/namespaces/default")),
    Case("namespace-kube-system", delete("/api/v1/namespaces/kube-system")),
    Case("namespace-missing", delete("/api/v1/namespaces/no-such")),
]
