"""Reading: get, list, paging, selectors, resourceVersion, Tables, metadata only, and invalid requests."""

from typing import Any

from tests.conformance.steps import (
    CONFIG_MAP,
    CONFIG_MAPS,
    METADATA,
    METADATA_LIST,
    POD,
    PODS,
    TABLE,
    Call,
    Case,
    config_map,
    get,
    is_served,
    pod,
    prepared,
)

_NAMES = ("metadata.continue", "metadata.remainingItemCount", "items.*.metadata.name")
_FIVE = prepared(
    CONFIG_MAPS,
    config_map("a", labels={"tier": "front", "app": "web"}),
    config_map("b", labels={"tier": "back", "app": "web"}),
    config_map("c", labels={"tier": "back"}),
    config_map("d", labels={"empty": ""}),
    config_map("e"),
)
# Lists leave out the objects that a controller manager creates in every namespace.
_OURS = {"fieldSelector": "metadata.name!=kube-root-ca.crt"}


def _listed(
    id: str, *, needs_five: bool = True, keep: tuple[str, ...] = _NAMES, path: str = CONFIG_MAPS, **query: str
) -> Case:
    query = {name.replace("_", ""): value for name, value in query.items()}
    if "fieldSelector" not in query and needs_five:
        query |= _OURS
    return Case(id, *(_FIVE if needs_five else ()), get(path, query=query, keep=keep))


def _got(id: str, accept: str = "", *, until: Any = None, keep: tuple[str, ...] = (), **query: str) -> Case:
    """A read of a ConfigMap without data."""
    read = get(CONFIG_MAP, accept=accept, query=query, until=until, keep=keep)
    return Case(id, *prepared(CONFIG_MAPS, config_map("a")), read)


def _got_data(id: str, accept: str = "", **more: Any) -> Case:
    read = get(CONFIG_MAP, accept=accept, **more)
    return Case(id, *prepared(CONFIG_MAPS, config_map("a", {"k": "v"})), read)


def _pods_at(number: int, match: str = "") -> Call:
    """A list of Pods at the version that a Pod got when it was created."""
    query = {"resourceVersion": f"${{{number}.metadata.resourceVersion}}"}
    return get(PODS, query={**query, "resourceVersionMatch": match} if match else query, keep=_NAMES)


def _refused(id: str, path: str = CONFIG_MAPS, method: str = "GET", **query: str) -> Case:
    return Case(id, Call(method, path, query=query))


_LABEL_SELECTORS = {
    "equals": "tier=back",
    "double-equals": "tier==back",
    "not-equals": "tier!=back",
    "in": "tier in (front,back)",
    "in-one": "tier in (front)",
    "not-in": "tier notin (back)",
    "exists": "app",
    "absent": "!app",
    "two": "app=web,tier=back",
    "empty-value": "empty=",
    "empty-value-not": "tier!=",
    "spaces": " tier = back ",
    "none-match": "tier=none",
    "greater": "tier>1",
    "contradiction": "app,!app",
}
_BAD_LABEL_SELECTORS = {
    "unclosed": "tier in (front",
    "bad-key": "-tier=back",
    "bad-value": "tier=-back",
    "two-operators": "tier=a=b",
    "comma-first": ",tier=back",
    "empty-set": "tier in ()",
    "greater-text": "tier>abc",
    "long-key": "x" * 64 + "=a",
    "no-operator": "tier back",
}
_FIELD_SELECTORS = {
    "name": "metadata.name=b",
    "name-not": "metadata.name!=b,metadata.name!=kube-root-ca.crt",
    "namespace": "metadata.namespace={ns},metadata.name=a",
    "other-namespace": "metadata.namespace=elsewhere",
}
_BAD_FIELD_SELECTORS = {
    "unknown": "data.a=b",
    "status": "status.phase=Running",
    "no-operator": "metadata.name",
    "in": "metadata.name in (a)",
}
_POD_FIELD_SELECTORS = {
    "phase": "status.phase=Pending",
    "phase-not": "status.phase!=Pending",
    "node": "spec.nodeName=",
    "restart": "spec.restartPolicy=Never",
    "scheduler": "spec.schedulerName=default-scheduler",
    "account": "spec.serviceAccountName=default",
    "ip": "status.podIP=",
    "host-network": "spec.hostNetwork=false",
    "nominated": "status.nominatedNodeName=",
    "unknown": "spec.containers=a",
}
_ODD_QUERIES = {
    "limit-negative": {"limit": "-1"} | _OURS,
    "limit-text": {"limit": "many"},
    "limit-zero": {"limit": "0"} | _OURS,
    "continue-nonsense": {"continue": "nonsense"},
    "continue-with-version": {"continue": "abc", "resourceVersion": "1"},
    "version-text": {"resourceVersion": "abc"},
    "version-negative": {"resourceVersion": "-1"},
    "version-far-ahead": {"resourceVersion": "999999999"},
    "match-without-version": {"resourceVersionMatch": "Exact"},
    "match-unknown": {"resourceVersionMatch": "Nearly", "resourceVersion": "1"},
    "match-exact-zero": {"resourceVersionMatch": "Exact", "resourceVersion": "0"},
    "send-initial-without-watch": {"sendInitialEvents": "true"},
    "timeout-text": {"timeoutSeconds": "soon"},
    "unknown-parameter": {"colour": "blue"} | _OURS,
    "pretty": {"pretty": "true"} | _OURS,
}
_NOWHERE = {
    "object": "/api/v1/namespaces/{ns}/configmaps/none",
    "object-in-no-namespace": "/api/v1/namespaces/no-such/configmaps/none",
    "namespace": "/api/v1/namespaces/no-such",
    "node": "/api/v1/nodes/none",
    "custom-definition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/none",
    "deployment": "/apis/apps/v1/namespaces/{ns}/deployments/none",
    "deployment-scale": "/apis/apps/v1/namespaces/{ns}/deployments/none/scale",
    "pod-status": "/api/v1/namespaces/{ns}/pods/none/status",
    "pod-log": "/api/v1/namespaces/{ns}/pods/none/log",
    "resource": "/api/v1/namespaces/{ns}/gremlins",
    "resource-object": "/api/v1/namespaces/{ns}/gremlins/a",
    "group": "/apis/no.such.group/v1/things",
    "version": "/apis/apps/v7/deployments",
    "group-version": "/apis/no.such.group/v1",
    "subresource": "/api/v1/namespaces/{ns}/configmaps/a/colour",
    "root-path": "/nowhere",
    "api-version": "/api/v7",
    "deep": "/api/v1/namespaces/{ns}/pods/a/log/more",
    "namespaced-lease-in-cluster": "/apis/coordination.k8s.io/v1/leases/none",
    "cluster-scoped-in-namespace": "/api/v1/namespaces/{ns}/nodes",
}

CASES = [
    _got_data("get"),
    _got("get-at-zero", until=is_served, resourceVersion="0"),
    _got_data("get-table", TABLE),
    _got_data("get-metadata", METADATA),
    _got_data("get-metadata-managed", METADATA, managed=True),
    Case("get-nothing-as-yaml", get(f"{CONFIG_MAPS}/none", accept="application/yaml")),
    _got("get-unacceptable", "image/png"),
    _got("get-any-type", "*/*"),
    _got("get-first-acceptable", "image/png, application/json"),
    _got("get-table-or-json", f"{TABLE},application/json", keep=("kind", "rows.*.cells")),
    _got("get-table-old", TABLE.replace("v=v1", "v=v1beta1"), keep=("kind", "apiVersion", "message")),
    _got("get-unknown-form", TABLE.replace("Table", "Sculpture")),
    _got("get-table-object", TABLE, keep=("rows",), includeObject="Object"),
    _got("get-table-no-object", TABLE, keep=("rows",), includeObject="None"),
    _got("get-table-odd-object", TABLE, includeObject="Some"),
    Case("list-all", *_FIVE, get(CONFIG_MAPS, query=_OURS)),
    Case("list-nothing", get(PODS)),
    Case("list-table", *_FIVE, get(CONFIG_MAPS, query=_OURS, accept=TABLE)),
    Case("list-table-nothing", get(PODS, accept=TABLE, drop=["columnDefinitions"])),
    Case("list-metadata", *_FIVE, get(CONFIG_MAPS, query=_OURS, accept=METADATA_LIST)),
    Case("list-metadata-of-one", *_FIVE, get(CONFIG_MAPS, query=_OURS, accept=METADATA)),
    Case("get-metadata-as-list", *_FIVE, get(CONFIG_MAP, accept=METADATA_LIST)),
    Case("list-other-namespace", get("/api/v1/namespaces/no-such/configmaps")),
    Case(
        "list-across-namespaces",
        *_FIVE,
        get(
            "/api/v1/configmaps",
            query={"fieldSelector": "metadata.namespace={ns},metadata.name!=kube-root-ca.crt"},
            keep=("items.*.metadata.name", "items.*.metadata.namespace"),
        ),
    ),
    Case("list-one-named-namespace", get("/api/v1/namespaces", query={"fieldSelector": "metadata.name={ns}"})),
    Case(
        "page-by-page",
        *_FIVE,
        get(CONFIG_MAPS, query={"limit": "2", **_OURS}, keep=_NAMES),
        get(CONFIG_MAPS, query={"limit": "2", "continue": "${5.metadata.continue}", **_OURS}, keep=_NAMES),
        get(CONFIG_MAPS, query={"limit": "2", "continue": "${6.metadata.continue}", **_OURS}, keep=_NAMES),
    ),
    Case(
        "page-counts-the-rest",
        *prepared(PODS, pod("a"), pod("b"), pod("c")),
        get(PODS, query={"limit": "1"}, keep=_NAMES),
        get(PODS, query={"limit": "1", "continue": "${3.metadata.continue}"}, keep=_NAMES),
        get(PODS, query={"limit": "1", "continue": "${4.metadata.continue}"}, keep=_NAMES),
    ),
    Case("page-of-everything", *prepared(PODS, pod("a"), pod("b")), get(PODS, query={"limit": "2"}, keep=_NAMES)),
    Case(
        "page-is-a-snapshot",
        *prepared(PODS, pod("a"), pod("c")),
        get(PODS, query={"limit": "1"}, keep=_NAMES),
        *prepared(PODS, pod("b")),
        get(PODS, query={"limit": "5", "continue": "${2.metadata.continue}"}, keep=_NAMES),
    ),
    Case(
        "page-table",
        *prepared(PODS, pod("a"), pod("b")),
        get(PODS, query={"limit": "1"}, accept=TABLE, keep=("metadata", "rows.*.cells")),
    ),
    Case(
        "list-exact-version",
        *prepared(PODS, pod("a"), pod("b")),
        _pods_at(0, "Exact"),
        _pods_at(1, "Exact"),
    ),
    Case("list-not-older", *prepared(PODS, pod("a"), pod("b")), _pods_at(1, "NotOlderThan"), _pods_at(1)),
    *(_listed(f"label-{id}", labelSelector=selector) for id, selector in _LABEL_SELECTORS.items()),
    *(_refused(f"bad-label-{id}", labelSelector=selector) for id, selector in _BAD_LABEL_SELECTORS.items()),
    *(_listed(f"field-{id}", fieldSelector=selector) for id, selector in _FIELD_SELECTORS.items()),
    *(_refused(f"bad-field-{id}", fieldSelector=selector) for id, selector in _BAD_FIELD_SELECTORS.items()),
    *(
        Case(
            f"pod-field-{id}",
            *prepared(PODS, pod("a")),
            get(PODS, query={"fieldSelector": selector}, keep=(*_NAMES, "message")),
        )
        for id, selector in _POD_FIELD_SELECTORS.items()
    ),
    *(
        Case(f"query-{id}", get(CONFIG_MAPS, query=query, keep=("message", "reason", "code", "details", "items")))
        for id, query in _ODD_QUERIES.items()
    ),
    *(Case(f"nowhere-{id}", get(path)) for id, path in _NOWHERE.items()),
    _refused("put-on-a-collection", method="PUT"),
    _refused("patch-on-a-collection", method="PATCH"),
    _refused("post-on-an-object", CONFIG_MAP, "POST"),
    _refused("odd-method", CONFIG_MAP, "BREW"),
    _refused("head", f"{CONFIG_MAPS}/none", "HEAD"),
    _refused("create-without-namespace", "/api/v1/configmaps", "POST"),
    _refused("delete-without-namespace", "/api/v1/configmaps", "DELETE"),
    _refused("namespaced-object-without-namespace", "/api/v1/configmaps/a"),
    _refused("subresource-wrong-method", f"{POD}/binding"),
    _refused("eviction-read", f"{POD}/eviction"),
    _refused("status-delete", f"{POD}/status", "DELETE"),
]
