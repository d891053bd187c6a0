"""Deletion: finalizers, grace, preconditions, propagation, owner garbage collection, namespaces, collections."""

from collections.abc import Sequence
from typing import Any

from tests.conformance.steps import (
    CONFIG_MAP,
    CONFIG_MAPS,
    DEPLOYMENTS,
    NAMESPACE,
    POD,
    PODS,
    Call,
    Case,
    Step,
    config_map,
    delete,
    deployment,
    get,
    is_gone,
    merge,
    pod,
    post,
    prepared,
    put,
    quiet,
)

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
_OWNER = f"{CONFIG_MAPS}/o"
_OWN = {"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "${0.metadata.uid}"}


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


def _deleted(path: str = CONFIG_MAP, options: Any = None, **more: Any) -> Call:
    return delete(path, options, keep=_DELETION, **more)


def _seen(path: str = CONFIG_MAP) -> Call:
    return get(path, keep=_DELETION)


def _code(path: str = CONFIG_MAP) -> Call:
    return get(path, keep=("code",))


def _ends(path: str) -> Call:
    return get(path, until=is_gone, keep=("code",))


def _released(path: str = CONFIG_MAP, keep: tuple[str, ...] = ()) -> Call:
    return merge(path, {"metadata": {"finalizers": None}}, keep=keep)


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
    _plain("plain", delete(CONFIG_MAP), get(CONFIG_MAP)),
    Case("missing", delete(CONFIG_MAP)),
    _plain("twice", quiet(delete(CONFIG_MAP)), delete(CONFIG_MAP)),
    _held(
        "finalizer",
        delete(CONFIG_MAP),
        _seen(),
        _deleted(),
        merge(CONFIG_MAP, {"data": {"k": "w"}}, keep=("data", "message")),
        merge(
            CONFIG_MAP,
            {"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}},
            keep=("message", "reason", "details", "metadata.finalizers"),
        ),
        _released(keep=("kind", "metadata.finalizers", "metadata.deletionTimestamp")),
        _code(),
    ),
    _held(
        "finalizer-removed-by-update",
        quiet(delete(CONFIG_MAP)),
        put(CONFIG_MAP, config_map("a"), keep=_DELETION),
        _code(),
    ),
    _held(
        "finalizer-deletion-time-is-kept",
        quiet(delete(CONFIG_MAP)),
        merge(CONFIG_MAP, {"metadata": {"deletionTimestamp": None}}, keep=_DELETION),
    ),
    _held("finalizer-create-again", quiet(delete(CONFIG_MAP)), post(CONFIG_MAPS, config_map("a"))),
    _held("finalizer-dry-run", _deleted(CONFIG_MAP, query={"dryRun": "All"}), _seen()),
    Case(
        "two-finalizers",
        *prepared(CONFIG_MAPS, config_map("a", finalizers=["example.com/a", "example.com/b"])),
        quiet(delete(CONFIG_MAP)),
        merge(CONFIG_MAP, {"metadata": {"finalizers": ["example.com/b"]}}, keep=("metadata.finalizers",)),
        get(CONFIG_MAP, keep=("metadata.finalizers",)),
    ),
    _plain("uid-right", delete(CONFIG_MAP, _options(preconditions={"uid": "${0.metadata.uid}"}))),
    _plain(
        "version-right",
        delete(CONFIG_MAP, _options(preconditions={"resourceVersion": "${0.metadata.resourceVersion}"})),
    ),
    *(_plain(f"options-{id}", delete(CONFIG_MAP, _options(**options))) for id, options in _ODD_OPTIONS.items()),
    *(_plain(f"query-{id}", delete(CONFIG_MAP, query=query)) for id, query in _QUERIES.items()),
    _plain("body-nonsense", delete(CONFIG_MAP, "{")),
    _plain("body-empty-object", delete(CONFIG_MAP, {})),
    _held(
        "body-and-query",
        delete(
            CONFIG_MAP, _options(propagationPolicy="Background"), query={"propagationPolicy": "Orphan"}, keep=_DELETION
        ),
    ),
    _plain(
        "foreground",
        delete(
            CONFIG_MAP,
            _options(propagationPolicy="Foreground"),
            keep=("metadata.finalizers", "metadata.deletionGracePeriodSeconds", "status"),
        ),
        _ends(CONFIG_MAP),
    ),
    _plain(
        "orphan",
        delete(CONFIG_MAP, _options(propagationPolicy="Orphan"), keep=("metadata.finalizers", "status")),
        _ends(CONFIG_MAP),
    ),
    # Pods terminate gracefully while they are bound to a node.
    _pod("unscheduled", _deleted(POD), _code(POD)),
    _pod_on_node("on-a-node", _deleted(POD), _seen(POD), _deleted(POD)),
    _pod_on_node("grace", _deleted(POD), terminationGracePeriodSeconds=7),
    _pod_on_node(
        "grace-zero-in-spec", _deleted(POD), get(POD, keep=("code", *_DELETION)), terminationGracePeriodSeconds=0
    ),
    _pod_on_node("grace-asked", *(_deleted(POD, _options(gracePeriodSeconds=seconds)) for seconds in (5, 9, 2))),
    _pod_on_node("now", _deleted(POD, _options(gracePeriodSeconds=0)), _code(POD)),
    _pod_on_node("then-now", quiet(delete(POD)), _deleted(POD, _options(gracePeriodSeconds=0)), _code(POD)),
    _pod_on_node(
        "ended",
        quiet(merge(f"{POD}/status", {"status": {"phase": "Succeeded"}})),
        delete(POD, keep=("metadata.deletionGracePeriodSeconds",)),
        _code(POD),
    ),
    _pod(
        "finalizer", _deleted(POD), _released(POD, _DELETION), _code(POD), metadata={"finalizers": ["example.com/hold"]}
    ),
    _pod_on_node("dry-run", _deleted(POD, query={"dryRun": "All"}), _seen(POD)),
    _pod_on_node("uid-wrong", delete(POD, _options(preconditions={"uid": "7"}))),
    Case(
        "deployment-background",
        *prepared(DEPLOYMENTS, deployment("a")),
        delete(f"{DEPLOYMENTS}/a", keep=("status", "details.kind", "details.group", "kind")),
    ),
    # Garbage collection.
    Case(
        "dependents-go", *prepared(CONFIG_MAPS, config_map("o"), _owned("a")), quiet(delete(_OWNER)), _ends(CONFIG_MAP)
    ),
    Case(
        "dependents-of-dependents-go",
        *prepared(
            CONFIG_MAPS,
            config_map("o"),
            _owned("a"),
            config_map("b", ownerReferences=[{**_OWN, "name": "a", "uid": "${1.metadata.uid}"}]),
        ),
        quiet(delete(_OWNER)),
        _ends(f"{CONFIG_MAPS}/b"),
    ),
    Case(
        "dependents-stay-when-orphaned",
        *prepared(CONFIG_MAPS, config_map("o"), _owned("a")),
        quiet(delete(_OWNER, _options(propagationPolicy="Orphan"))),
        _ends(_OWNER),
        get(CONFIG_MAP, keep=("metadata.ownerReferences", "code")),
    ),
    Case(
        "foreground-waits-for-blocking-dependents",
        *prepared(CONFIG_MAPS, config_map("o"), _owned("a", finalizers=["example.com/hold"], blockOwnerDeletion=True)),
        delete(_OWNER, _options(propagationPolicy="Foreground"), keep=("metadata.finalizers",)),
        get(CONFIG_MAP, until=lambda _, body: "deletionTimestamp" in body["metadata"], keep=("metadata.finalizers",)),
        get(_OWNER, keep=("metadata.finalizers",)),
        quiet(_released()),
        _ends(_OWNER),
    ),
    Case(
        "foreground-does-not-wait-for-others",
        *prepared(CONFIG_MAPS, config_map("o"), _owned("a", finalizers=["example.com/hold"])),
        quiet(delete(_OWNER, _options(propagationPolicy="Foreground"))),
        _ends(_OWNER),
        get(CONFIG_MAP, until=lambda _, body: "deletionTimestamp" in body["metadata"], keep=("metadata.finalizers",)),
    ),
    Case(
        "dependents-of-nobody-go",
        *prepared(CONFIG_MAPS, config_map("o")),
        *prepared(CONFIG_MAPS, _owned("a", uid="11111111-2222-4333-8444-555555555555")),
        _ends(CONFIG_MAP),
    ),
    Case(
        "one-owner-left",
        *prepared(CONFIG_MAPS, config_map("o"), config_map("p")),
        *prepared(
            CONFIG_MAPS, config_map("a", ownerReferences=[_OWN, {**_OWN, "name": "p", "uid": "${1.metadata.uid}"}])
        ),
        quiet(delete(_OWNER)),
        get(
            CONFIG_MAP,
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
        get(CONFIG_MAP, keep=("metadata.finalizers", "metadata.deletionTimestamp")),
    ),
    Case("collection-bad-selector", delete(CONFIG_MAPS, query={"labelSelector": "a in ("})),
    Case("collection-of-namespaces", delete("/api/v1/namespaces")),
    # Namespaces.
    _plain(
        "namespace",
        delete(NAMESPACE, drop=["status.conditions", "metadata.resourceVersion"]),
        post(CONFIG_MAPS, config_map("b")),
        get(NAMESPACE, until=is_gone),
        get(CONFIG_MAP),
    ),
    _held(
        "namespace-waits-for-finalizers",
        quiet(delete(NAMESPACE)),
        get(
            NAMESPACE,
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
        _ends(NAMESPACE),
    ),
    Case("namespace-default", delete("/api/v1/namespaces/default")),
    Case("namespace-kube-system", delete("/api/v1/namespaces/kube-system")),
    Case("namespace-missing", delete("/api/v1/namespaces/no-such")),
]
