from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.features.deletionprotection.plan import Count, Gates, judge
from app.kube.admission import Allowed, Denied, GroupVersionResource, Operation
from app.kube.errors import Forbidden, NotFound, RequestInfo, Status, TransportError
from app.kube.resources import Resource
from tests.features.deletionprotection.reviews import (
    FORBIDDEN,
    KINDS,
    LABEL,
    OF_SLICES,
    WIDGETS,
    Cluster,
    deletion,
    protected,
    refusal,
)

OFF = Gates(enabled=False)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.behaviour("DP-8", "DP-50")
def test_always_is_refused_for_every_kind(kind: str) -> None:
    cluster = Cluster()
    assert refusal(cluster.decide(deletion(kind, protected(kind)))) == FORBIDDEN + "Always"
    assert cluster.asked == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", [None, "", "always", "ALWAYS", "cascading", "true", "Never"])
@pytest.mark.behaviour("DP-6")
def test_other_values_protect_nothing(kind: str, value: str | None) -> None:
    cluster = Cluster(pods=Count(3), claims=Count(3), crs=Count(3))
    assert cluster.decide(deletion(kind, protected(kind, value, spec={"replicas": 3}))) == Allowed()
    assert cluster.refusals == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"operation": Operation.UPDATE, "object": {}}, id="update"),
        pytest.param({"operation": Operation.CREATE, "object": {}}, id="create"),
        pytest.param({"subresource": "status"}, id="subresource"),
        pytest.param({"old": None}, id="no old object"),
        pytest.param({"old": {}}, id="empty old object"),
    ],
)
@pytest.mark.behaviour("DP-1", "DP-2", "DP-10")
def test_only_deletions_are_validated(kind: str, changed: dict[str, Any]) -> None:
    review = deletion(kind, **{"old": protected(kind), **changed})
    assert judge(KINDS[kind], review, Gates()) == Allowed()
    assert Cluster().decide(review) == Allowed()


@pytest.mark.behaviour("DP-2")
def test_an_item_of_a_collection_is_identified_by_its_metadata() -> None:
    cluster = Cluster()
    review = deletion("Deployment", protected("Deployment", metadata={"name": "web-7"}), name="")
    assert refusal(cluster.decide(review)) == FORBIDDEN + "Always"
    assert cluster.refusals == [("Deployment", "web", "web-7", "jane")]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.behaviour("DP-4")
def test_a_terminating_object_may_be_deleted_again(kind: str) -> None:
    old = protected(kind, metadata={"deletionTimestamp": "2026-11-21T03:10:17Z"})
    assert Cluster().decide(deletion(kind, old)) == Allowed()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.behaviour("DP-5", "DP-44")
def test_labels_count_as_soon_as_the_gate_is_on(kind: str) -> None:
    review = deletion(kind, protected(kind))
    assert judge(KINDS[kind], review, OFF) == Allowed()
    assert isinstance(judge(KINDS[kind], review, Gates()), Denied)


def crd(**spec: Any) -> dict[str, Any]:
    return protected("CustomResourceDefinition", "Cascading", spec={**WIDGETS, **spec})


@pytest.mark.parametrize(
    ("kind", "old", "field"),
    [
        ("Deployment", {"metadata": 3}, "metadata: expected an object, got an integer"),
        ("Deployment", {"metadata": {"labels": ["a"]}}, "metadata.labels: expected an object, got a list"),
        ("Deployment", {"replicas": "3"}, "spec.replicas: expected an integer, got a"),
        ("Deployment", {"replicas": True}, "spec.replicas: expected an integer, got a"),
        ("Deployment", [], "spec: expected an object, got a list"),
        # An empty name never means all namespaces.
        ("Namespace", {"metadata": {"labels": {LABEL: "Cascading"}}}, "metadata.name: is required"),
        ("CustomResourceDefinition", {}, "spec: expected a group, names.plural and a storage version"),
        ("CustomResourceDefinition", {"group": "a.b"}, "spec: expected a group, names.plural and a storage version"),
        ("CustomResourceDefinition", {**WIDGETS, "versions": []}, "spec: expected a group, names.plural and a"),
        ("CustomResourceDefinition", {**WIDGETS, "versions": [1]}, "spec.versions[0]: expected an object"),
    ],
)
@pytest.mark.behaviour("DP-7")
def test_an_unreadable_old_object_is_a_bad_request_with_the_field(kind: str, old: Any, field: str) -> None:
    if "metadata" not in old:
        old = protected(kind, "Cascading", spec=old)
    cluster = Cluster()
    decision = cluster.decide(deletion(kind, old))
    assert isinstance(decision, Denied)
    assert decision.code == 400
    assert decision.message.startswith(f"request.oldObject.{field}")
    assert (cluster.asked, cluster.refusals) == ([], [])


@pytest.mark.parametrize("kind", [kind for kind, row in KINDS.items() if row not in OF_SLICES])
@pytest.mark.behaviour("DP-7")
def test_an_unknown_version_or_kind_of_a_built_in_path_is_allowed(kind: str) -> None:
    row = KINDS[kind]
    unknown_version = GroupVersionResource(row.group, "v9", row.resource)
    assert Cluster().decide(deletion(kind, protected(kind), resource=unknown_version)) == Allowed()
    unknown_kind = GroupVersionResource(row.group, row.versions[0], "gadgets")
    assert Cluster().decide(deletion(kind, protected(kind), resource=unknown_kind)) == Allowed()


@pytest.mark.parametrize(
    "changed",
    [
        {"dry_run": True},
        {"options": {"propagationPolicy": "Orphan", "gracePeriodSeconds": 0}},
        {"options": {"preconditions": {"uid": "other"}}},
        {"username": "system:serviceaccount:kube-system:generic-garbage-collector"},
        {"username": "system:serviceaccount:kube-system:namespace-controller"},
        {"username": "system:serviceaccount:kruise-system:kruise-manager"},
        {"username": "admin", "groups": ("system:masters",)},
    ],
)
@pytest.mark.behaviour("DP-9", "DP-11", "DP-40")
def test_protection_does_not_depend_on_the_user_or_the_way_of_deletion(changed: dict[str, Any]) -> None:
    cluster = Cluster()
    assert refusal(cluster.decide(deletion("Service", protected("Service"), **changed))) == FORBIDDEN + "Always"
    assert len(cluster.refusals) == 1


@pytest.mark.parametrize("kind", ["Deployment", "ReplicaSet", "StatefulSet", "CloneSet"])
@pytest.mark.parametrize(
    ("spec", "status", "text", "with_gate"),
    [
        ({"replicas": 3}, {"replicas": 0}, "replicas 3>0", "replicas 3>0"),
        ({"replicas": 1}, {}, "replicas 1>0", "replicas 1>0"),
        ({"replicas": 2}, {"replicas": 3}, "replicas 2>0", "replicas 2>0"),
        ({"replicas": 0}, {"replicas": 3, "readyReplicas": 3}, "", "active pods 3>0"),
        ({}, {"replicas": 1}, "", "active pods 1>0"),
        ({"replicas": None}, {"replicas": 3}, "", "active pods 3>0"),
        ({"replicas": 0}, {"replicas": 0}, "", ""),
        ({"replicas": 0}, {}, "", ""),
    ],
)
@pytest.mark.behaviour("DP-20", "DP-21", "DP-53")
def test_cascading_counts_desired_replicas_and_with_its_gate_existing_pods(
    kind: str, spec: dict[str, Any], status: dict[str, Any], text: str, with_gate: str
) -> None:
    review = deletion(kind, protected(kind, "Cascading", spec=spec, status=status))
    for gates, said in ((Gates(), text), (Gates(pods_count=True), with_gate)):
        decision = Cluster().decide(review, gates)
        assert refusal(decision) == f"{FORBIDDEN}Cascading and {said}" if said else decision == Allowed()


NAMESPACE = deletion("Namespace", protected("Namespace", "Cascading"))
PODS, CLAIMS = ("pods", "shop"), ("claims", "shop")


@pytest.mark.parametrize(
    ("pods", "claims", "text", "asked"),
    [
        (Count(2), Count(5), "active pods 2>0", [PODS]),
        (Count(0), Count(5), '"Bound" status pvc 5>0', [PODS, CLAIMS]),
        (Count(500, at_least=True), Count(0), "active pods >=500>0", [PODS]),
        (Count(0), Count(0), None, [PODS, CLAIMS]),
    ],
)
@pytest.mark.behaviour("DP-22", "DP-23", "DP-25")
def test_pods_and_then_bound_claims_protect_a_namespace(
    pods: Count, claims: Count, text: str | None, asked: list[Any]
) -> None:
    cluster = Cluster(pods=pods, claims=claims)
    decision = cluster.decide(NAMESPACE)
    assert (decision == Allowed()) if text is None else (refusal(decision) == f"{FORBIDDEN}Cascading and {text}")
    assert cluster.asked == asked
    # Records of a Namespace have an empty namespace.
    assert cluster.refusals == ([("Namespace", "", "shop", "jane")] if text else [])


STRANGERS = Gates(known_callers=False)
KNOWN = protected("Namespace", "Cascading", metadata={"uid": "u-1"})


@pytest.mark.behaviour("DP-56")
@pytest.mark.parametrize(
    ("cluster", "text"),
    [
        (Cluster(pods=Count(2)), "active pods >0"),
        (Cluster(pods=Count(500, at_least=True)), "active pods >0"),
        (Cluster(claims=Count(5)), '"Bound" status pvc >0'),
    ],
)
def test_unknown_callers_do_not_learn_how_much_a_namespace_holds(cluster: Cluster, text: str) -> None:
    cluster.live_uid = "u-1"
    decision = cluster.decide(deletion("Namespace", KNOWN), STRANGERS)
    assert refusal(decision) == f"{FORBIDDEN}Cascading and {text}"


@pytest.mark.behaviour("DP-57")
@pytest.mark.parametrize("pods", [Count(0), Count(2)], ids=["empty", "with Pods"])
@pytest.mark.parametrize("live", ["", "u-2"], ids=["no such namespace", "another uid"])
@pytest.mark.parametrize("uid", ["u-1", "", None], ids=["guessed", "empty", "absent"])
def test_a_review_of_a_missing_object_always_gets_the_same_answer_without_lookups(
    uid: str | None, live: str, pods: Count
) -> None:
    cluster = Cluster(pods=pods, live_uid=live)
    old = protected("Namespace", "Cascading", metadata={} if uid is None else {"uid": uid})
    decision = cluster.decide(deletion("Namespace", old), STRANGERS)
    text = 'Namespace "shop" does not match the object of this review: try again'
    assert decision == Denied(text, code=409, reason="Conflict")
    assert cluster.asked == [("uid", "namespaces", "shop")]
    assert cluster.refusals == []


@pytest.mark.behaviour("DP-57")
def test_the_uid_of_one_definition_reveals_nothing_about_another() -> None:
    """Objects are listed only for the definition with that name and UID."""
    old = protected("CustomResourceDefinition", "Cascading", spec=WIDGETS, metadata={"name": "mine", "uid": "u-1"})
    cluster = Cluster(crs=Count(3), live_uid="u-1")
    held = cluster.decide(deletion("CustomResourceDefinition", old), Gates(crd_cascading=True, known_callers=False))
    assert refusal(held) == f"{FORBIDDEN}Cascading and active CRs >0"
    assert cluster.asked[0] == ("uid", "customresourcedefinitions", "widgets.example.com")


@pytest.mark.behaviour("DP-24", "DP-57")
def test_an_unreadable_namespace_is_protected() -> None:
    cluster = Cluster(live_uid=TimeoutError("no answer"))
    decision = cluster.decide(deletion("Namespace", KNOWN), STRANGERS)
    assert refusal(decision) == "forbidden by ResourcesProtectionDeletion for get namespaces error: no answer"


@pytest.mark.behaviour("DP-57")
def test_known_callers_need_no_access_review() -> None:
    cluster = Cluster()
    assert cluster.decide(deletion("Namespace", KNOWN)) == Allowed()
    assert cluster.asked == [("pods", "shop"), ("claims", "shop")]


BROKEN = TransportError(RequestInfo("GET", "/api/v1/pods"), "connection refused")


@pytest.mark.parametrize(
    ("cluster", "what"),
    [
        (Cluster(pods=BROKEN), "list pods error: GET /api/v1/pods: connection refused"),
        (Cluster(claims=BROKEN), "list pvc error: GET /api/v1/pods: connection refused"),
        (Cluster(pods=TimeoutError("no answer")), "list pods error: no answer"),
    ],
)
@pytest.mark.behaviour("DP-24")
def test_unlistable_objects_count_as_existing(cluster: Cluster, what: str) -> None:
    assert refusal(cluster.decide(NAMESPACE)) == f"forbidden by ResourcesProtectionDeletion for {what}"
    assert len(cluster.refusals) == 1


@pytest.mark.behaviour("DP-26")
def test_a_cascading_definition_is_protected_while_its_gate_is_off() -> None:
    cluster = Cluster()
    decision = cluster.decide(deletion("CustomResourceDefinition", crd()), Gates())
    gate = "DeletionProtectionForCRDCascadingGate"
    assert refusal(decision).startswith(f"feature-gate {gate} is not enabled; ")
    assert f"--feature-gates={gate}=true" in refusal(decision)
    assert cluster.asked == []
    assert len(cluster.refusals) == 1


@pytest.mark.parametrize(
    ("definition", "resource"),
    [
        (crd(), Resource("example.com", "v1", "widgets", "Widget")),
        (crd(scope="Cluster"), Resource("example.com", "v1", "widgets", "Widget", namespaced=False)),
        (crd(versions=None, version="v1beta1"), Resource("example.com", "v1beta1", "widgets", "Widget")),
    ],
)
@pytest.mark.behaviour("DP-27", "DP-52")
def test_objects_in_the_stored_version_protect_a_definition(definition: dict[str, Any], resource: Resource) -> None:
    cluster = Cluster(crs=Count(4))
    decision = cluster.decide(deletion("CustomResourceDefinition", definition))
    assert refusal(decision) == f"{FORBIDDEN}Cascading and active CRs 4>0"
    assert cluster.asked == [resource]
    empty = Cluster()
    assert empty.decide(deletion("CustomResourceDefinition", definition)) == Allowed()


MISSING = Forbidden(
    RequestInfo("GET", "/apis"), Status(message='widgets.example.com is forbidden: User "m" cannot list', code=403)
)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (
            NotFound(RequestInfo("GET", "/apis"), Status(message="could not find the requested resource", code=404)),
            "failed to list CRs of example.com/v1, Kind=Widget: could not find the requested resource",
        ),
        (TimeoutError("no answer"), "failed to list CRs of example.com/v1, Kind=Widget: no answer"),
        (
            MISSING,
            'failed to list CRs of example.com/v1, Kind=Widget: widgets.example.com is forbidden: User "m" cannot list'
            "; grant the manager permission to list widgets.example.com (chart value installation.roleListGroups), or "
            f"remove the label {LABEL}",
        ),
    ],
)
@pytest.mark.behaviour("DP-28", "DP-42", "DP-52")
def test_a_definition_with_unlistable_objects_is_protected(error: Exception, text: str) -> None:
    cluster = Cluster(crs=error)
    assert refusal(cluster.decide(deletion("CustomResourceDefinition", crd()))) == text
    assert cluster.refusals == [("CustomResourceDefinition", "", "shop", "jane")]


@pytest.mark.parametrize("kind", ["Service", "Ingress"])
@pytest.mark.behaviour("DP-29")
def test_cascading_does_not_protect_services_and_ingresses(kind: str) -> None:
    assert Cluster().decide(deletion(kind, protected(kind, "Cascading"))) == Allowed()


FIELDS = ("metadata", "labels", "spec", "replicas", "name", "names", "group", "versions", "storage", "kind", LABEL)
json = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["", "Always", "Cascading", "v1", "List"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=4),
    max_leaves=12,
)


@given(st.sampled_from(sorted(KINDS)), st.dictionaries(st.sampled_from(["metadata", "spec", "status"]), json))
@pytest.mark.behaviour("DP-7")
def test_any_old_object_gets_an_answer(kind: str, old: dict[str, Any]) -> None:
    decision = judge(KINDS[kind], deletion(kind, old), Gates(crd_cascading=True))
    if isinstance(decision, Denied):
        assert decision.code in (400, 403)
        assert decision.message
