"""Watches: start positions, selectors, bookmarks, initial events, too old or future versions, other formats."""

from typing import Any

from tests.conformance.steps import (
    CONFIG_MAP,
    CONFIG_MAPS,
    METADATA,
    POD,
    PODS,
    TABLE,
    Call,
    Case,
    Watch,
    config_map,
    delete,
    get,
    is_served,
    merge,
    pod,
    post,
    prepared,
    put,
)

_KEEP = ("kind", "metadata.name", "data", "metadata.labels", "metadata.finalizers")
_FROM_FIRST = {"resourceVersion": "${0.metadata.resourceVersion}"}
_WIDGETS = "/apis/conformance.example.com/v1/namespaces/{ns}/widgets"


def _data(value: str) -> Call:
    return merge(CONFIG_MAP, {"data": {"k": value}})


def _label(value: str | None) -> Call:
    return merge(CONFIG_MAP, {"metadata": {"labels": {"x": value}}})


def _watched(id: str, *calls: Call, count: int, before: tuple[Call, ...] = (), **query: str) -> Case:
    """A watch from the first object's version, while calls are made."""
    steps = [*prepared(CONFIG_MAPS, config_map("first")), *before]
    return Case(id, *steps, Watch(CONFIG_MAPS, {**_FROM_FIRST, **query}, calls, count, _KEEP))


def _watching(
    id: str, query: dict[str, str], *calls: Call, count: int, keep: Any = _KEEP, accept: str = "", **first: Any
) -> Case:
    """A watch while ConfigMap a exists."""
    headers = {"Accept": accept} if accept else {}
    return Case(
        id, *prepared(CONFIG_MAPS, config_map("a", **first)), Watch(CONFIG_MAPS, query, calls, count, keep, headers)
    )


def _watching_pod(id: str, *calls: Call, count: int, keep: tuple[str, ...], spec: Any = None, **query: str) -> Case:
    prepares = prepared(PODS, pod("a", **(spec or {})))
    return Case(id, *prepares, Watch(PODS, {**_FROM_FIRST, **query}, calls, count, keep))


def _pod_phase(phase: str) -> Call:
    return merge(f"{POD}/status", {"status": {"phase": phase}})


_X = {"labels": {"x": "1"}}
_A_B = (config_map("a", **_X), config_map("b", **_X))
_POST_B, _POST_C = (post(CONFIG_MAPS, config_map(name, **_X)) for name in "bc")
_WIDGET = {"apiVersion": "conformance.example.com/v1", "kind": "Widget", "metadata": {"name": "a"}, "spec": {"size": 1}}
_BAD: dict[str, dict[str, str]] = {
    "version-text": {"resourceVersion": "abc"},
    "version-negative": {"resourceVersion": "-1"},
    "label": {"labelSelector": "a in ("},
    "field": {"fieldSelector": "data.a=b"},
    "match": {"resourceVersionMatch": "Exact", "resourceVersion": "1"},
    "match-newest": {"resourceVersionMatch": "NotOlderThan", "resourceVersion": "1"},
    "initial-without-match": {"sendInitialEvents": "true"},
    "initial-exact": {"sendInitialEvents": "true", "resourceVersionMatch": "Exact"},
    "initial-false-without-match": {"sendInitialEvents": "false"},
    "timeout": {"timeoutSeconds": "soon"},
    "initial-text": {"sendInitialEvents": "maybe", "resourceVersionMatch": "NotOlderThan"},
}

#: Query of a watch that begins with the existing objects.
_INITIAL_EVENTS = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}

_CREATED = post(CONFIG_MAPS, config_map("a", {"k": "v"}))
_SELECTED = (_CREATED, _label("1"), _data("w"), _label("2"), _data("x"), _label("1"), delete(CONFIG_MAP))

CASES = [
    _watched("create-update-delete", _CREATED, _data("w"), delete(CONFIG_MAP), count=3),
    _watched("replay", count=3, before=(_CREATED, _data("w"), delete(CONFIG_MAP))),
    _watched("nothing-changed", _CREATED, _data("v"), _data("w"), count=2),
    _watched(
        "finalizers",
        post(CONFIG_MAPS, config_map("a", finalizers=["example.com/hold"])),
        delete(CONFIG_MAP),
        merge(CONFIG_MAP, {"metadata": {"finalizers": None}}),
        count=3,
    ),
    _watched("selected-comes-and-goes", *_SELECTED, count=5, labelSelector="x=1"),
    _watched("selected-replay", count=5, before=_SELECTED, labelSelector="x=1"),
    _watched(
        "selected-by-name",
        post(CONFIG_MAPS, config_map("b")),
        post(CONFIG_MAPS, config_map("a")),
        count=1,
        fieldSelector="metadata.name=a",
    ),
    _watched(
        "dry-run-is-not-seen",
        post(CONFIG_MAPS, config_map("b"), query={"dryRun": "All"}),
        post(CONFIG_MAPS, config_map("a")),
        count=1,
    ),
    _watched(
        "deleted-carries-the-last-state",
        _CREATED,
        _data("w"),
        delete(CONFIG_MAP),
        count=3,
        fieldSelector="metadata.name=a",
    ),
    Case(
        "without-version",
        *prepared(CONFIG_MAPS, config_map("a"), _A_B[1]),
        Watch(CONFIG_MAPS, {"labelSelector": "x"}, [_POST_C], 2, _KEEP),
    ),
    Case(
        "from-zero",
        *prepared(CONFIG_MAPS, _A_B[1]),
        get(f"{CONFIG_MAPS}/b", query={"resourceVersion": "0"}, until=is_served, keep=["metadata.name"]),
        Watch(CONFIG_MAPS, {"labelSelector": "x", "resourceVersion": "0"}, [_POST_C], 2, _KEEP),
    ),
    Case(
        "one-object",
        *prepared(CONFIG_MAPS, config_map("a"), config_map("b")),
        Watch(
            CONFIG_MAPS,
            {"fieldSelector": "metadata.name=b"},
            [merge(f"{CONFIG_MAPS}/b", {"data": {"k": "v"}}), delete(f"{CONFIG_MAPS}/b")],
            3,
            _KEEP,
        ),
    ),
    Case(
        "all-namespaces",
        *prepared(CONFIG_MAPS, config_map("a", labels={"of": "{ns}"})),
        Watch(
            "/api/v1/configmaps",
            {"labelSelector": "of={ns}"},
            [delete(CONFIG_MAP)],
            2,
            ("metadata.name", "metadata.namespace"),
        ),
    ),
    Case(
        "initial-events",
        *prepared(CONFIG_MAPS, *_A_B),
        Watch(CONFIG_MAPS, {"labelSelector": "x", **_INITIAL_EVENTS}, [], 3, _KEEP),
    ),
    Case(
        "initial-events-then-more",
        *prepared(CONFIG_MAPS, _A_B[0]),
        *(
            Watch(CONFIG_MAPS, {"labelSelector": "x", **_INITIAL_EVENTS, "resourceVersion": version}, [], 2, _KEEP)
            for version in ("", "0", _FROM_FIRST["resourceVersion"])
        ),
    ),
    Case("initial-events-of-nothing", Watch(PODS, _INITIAL_EVENTS, [], 1, _KEEP)),
    _watching(
        "initial-events-without-bookmarks",
        {"labelSelector": "x", "sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"},
        _POST_B,
        count=2,
        **_X,
    ),
    _watching(
        "no-initial-events",
        {"labelSelector": "x", **_INITIAL_EVENTS, "sendInitialEvents": "false", **_FROM_FIRST},
        _POST_B,
        count=1,
        **_X,
    ),
    Case("ends-after-its-time", Watch(PODS, {"timeoutSeconds": "1"}, [], 1, _KEEP)),
    # The state of a custom resource before its definition is unknown.
    Case("too-old", Watch(_WIDGETS, {"resourceVersion": "1", "timeoutSeconds": "3"}, [], 1), needs=["widgets"]),
    Case("far-ahead", Watch(CONFIG_MAPS, {"resourceVersion": "999999999", "timeoutSeconds": "1"}, [], 1)),
    *(Case(f"bad-{id}", Watch(CONFIG_MAPS, query)) for id, query in _BAD.items()),
    _watching(
        "table",
        {"fieldSelector": "metadata.name=a"},
        _data("w"),
        count=2,
        keep=("kind", "rows.*.cells", "columnDefinitions.*.name", "rows.*.object.kind"),
        accept=TABLE,
        data={"k": "v"},
    ),
    _watching(
        "table-with-objects",
        {"fieldSelector": "metadata.name=a", "includeObject": "Object"},
        count=1,
        keep=("kind", "rows.*.cells", "rows.*.object.kind", "rows.*.object.data"),
        accept=TABLE,
        data={"k": "v"},
    ),
    _watching(
        "metadata",
        {"fieldSelector": "metadata.name=a"},
        _data("w"),
        count=2,
        keep=("kind", "apiVersion", "metadata.name", "data"),
        accept=METADATA,
        data={"k": "v"},
    ),
    _watching("metadata-initial-events", {"labelSelector": "x", **_INITIAL_EVENTS}, count=2, accept=METADATA, **_X),
    _watching_pod(
        "status-changes",
        _pod_phase("Running"),
        merge(POD, {"metadata": {"labels": {"b": "c"}}}),
        count=2,
        keep=("metadata.name", "status.phase", "metadata.labels"),
    ),
    _watching_pod(
        "pod-grace",
        delete(POD),
        delete(POD, {"gracePeriodSeconds": 0}),
        count=3,
        keep=("metadata.name", "metadata.deletionGracePeriodSeconds"),
        spec={"nodeName": "n"},
    ),
    _watching_pod(
        "pod-fields",
        _pod_phase("Running"),
        _pod_phase("Failed"),
        count=2,
        keep=("metadata.name", "status.phase"),
        fieldSelector="status.phase=Running",
    ),
    Case(
        "custom",
        *prepared(_WIDGETS, _WIDGET),
        Watch(
            _WIDGETS,
            _FROM_FIRST,
            [
                merge(f"{_WIDGETS}/a", {"spec": {"size": 2}}),
                merge(f"{_WIDGETS}/a/status", {"status": {"phase": "Good"}}),
                delete(f"{_WIDGETS}/a"),
            ],
            3,
            ("kind", "apiVersion", "metadata.generation", "spec", "status"),
        ),
        needs=["widgets"],
    ),
    Case(
        "custom-initial-events",
        *prepared(_WIDGETS, _WIDGET),
        Watch(_WIDGETS, _INITIAL_EVENTS, [], 2, ("kind", "apiVersion", "spec")),
        needs=["widgets"],
    ),
    Case("nowhere", Watch("/api/v1/namespaces/{ns}/gremlins")),
    Case(
        "collection-deletion",
        *prepared(PODS, pod("a"), pod("b")),
        Watch(PODS, {"resourceVersion": "${1.metadata.resourceVersion}"}, [delete(PODS)], 2, ("metadata.name",)),
    ),
    Case(
        "name-path",
        *prepared(CONFIG_MAPS, config_map("a")),
        Watch("/api/v1/watch/namespaces/{ns}/configmaps/a", {}, [], 1, _KEEP),
    ),
    _watching("replaced", _FROM_FIRST, put(CONFIG_MAP, config_map("a", {"k": "w"})), count=1, data={"k": "v"}),
]
