from __future__ import annotations

from pathlib import Path

import pytest

from app.admission.configurations import ServiceEndpoint, validating_configuration
from app.features.deletionprotection.protected_kinds import FILE_NAME, find_kind, load_table, parse_table
from app.features.deletionprotection.webhooks import webhooks
from app.framework.policies import PolicyError
from app.kube.admission import Allowed, Denied, GroupVersionResource, Review
from tests.features.deletionprotection.reviews import (
    FORBIDDEN,
    KINDS,
    LABEL,
    OF_SLICES,
    TABLE,
    Cluster,
    deletion,
    protected,
    refusal,
)

CLONE_SET = """
kinds:
- {kind: CloneSet, group: apps.kruise.io, resource: clonesets, versions: [v1beta1, v1alpha1], cascading: replicas}
"""


@pytest.mark.behaviour("DP-30", "DP-31", "DP-32")
def test_only_labeled_objects_are_reviewed_and_stay_protected_while_no_manager_runs() -> None:
    configuration = validating_configuration(webhooks(TABLE), ServiceEndpoint("s", "kruise-system"), "")
    deletions = [entry for entry in configuration["webhooks"] if entry["rules"][0]["operations"] == ["DELETE"]]
    assert len(deletions) == len(TABLE) == 7 + len(OF_SLICES)
    own = {kind.webhook: kind.path for kind in OF_SLICES}
    for entry in deletions:
        if entry["name"] in own:
            # One entry for writes and deletions; only deletions require the label.
            assert entry["objectSelector"] == {}
            (condition,) = entry["matchConditions"]
            assert condition["expression"].startswith(
                f"request.operation != 'DELETE' || (has(oldObject.metadata.labels) && '{LABEL}' in oldObject"
            )
        else:
            assert entry["objectSelector"] == {"matchExpressions": [{"key": LABEL, "operator": "Exists"}]}
        assert entry["failurePolicy"] == "Fail"
        assert entry["namespaceSelector"] == {}
    paths = {entry["name"]: entry["clientConfig"]["service"]["path"] for entry in deletions}
    assert paths == {
        "vnamespace.kb.io": "/validate-namespace",
        "vcustomresourcedefinition.kb.io": "/validate-customresourcedefinition",
        "vbuiltindeployment.kb.io": "/validate-apps-deployment",
        "vbuiltinreplicaset.kb.io": "/validate-apps-replicaset",
        "vbuiltinstatefulset.kb.io": "/validate-apps-statefulset",
        "vservice.kb.io": "/validate-service",
        "vingress.kb.io": "/validate-ingress",
        # Shared with the webhook that validates writes.
        **own,
    }
    assert own["vcloneset.kb.io"] == "/validate-apps-kruise-io-cloneset"


@pytest.mark.behaviour("DP-5")
def test_service_and_ingress_paths_need_the_gate() -> None:
    deletions = [webhook for webhook in webhooks(TABLE) if webhook.failure_policy == "Fail"]
    gated = [webhook.name for webhook in deletions if webhook.gate]
    assert gated == ["vservice.kb.io", "vingress.kb.io"]
    assert {webhook.gate for webhook in deletions} == {"", "ResourcesDeletionProtection"}


@pytest.mark.behaviour("DP-42")
def test_rights_are_limited_to_reading_objects_and_listing_pods_and_claims() -> None:
    rules = [rule for webhook in webhooks(TABLE) for rule in webhook.permissions]
    assert [(rule.verbs, rule.groups, rule.resources) for rule in rules] == [
        (("list",), ("",), ("persistentvolumeclaims", "pods")),
        (("get",), ("",), ("namespaces",)),
        (("get",), ("apiextensions.k8s.io",), ("customresourcedefinitions",)),
    ]


def clone_set(replicas: int = 2) -> Review:
    return deletion("CloneSet", protected("CloneSet", "Cascading", spec={"replicas": replicas}))


@pytest.mark.behaviour("DP-20")
def test_a_row_adds_a_kind() -> None:
    table = parse_table(CLONE_SET, "x.yaml")
    cluster = Cluster()
    assert refusal(cluster.decide(clone_set(), table=table)) == f"{FORBIDDEN}Cascading and replicas 2>0"
    assert cluster.refusals == [("CloneSet", "web", "shop", "jane")]
    assert cluster.decide(clone_set(replicas=0), table=table) == Allowed()
    webhook = webhooks(table)[0]
    assert (webhook.name, webhook.path) == ("vcloneset.kb.io", "/validate-apps-kruise-io-cloneset")


@pytest.mark.behaviour("DP-7")
def test_an_unknown_version_of_our_kind_is_a_bad_request() -> None:
    review = deletion("CloneSet", {}, resource=GroupVersionResource("apps.kruise.io", "v9", "clonesets"))
    decision = Cluster().decide(review, table=parse_table(CLONE_SET, "x.yaml"))
    assert isinstance(decision, Denied)
    assert decision.code == 400


def test_an_operator_folder_may_have_its_own_table(tmp_path: Path) -> None:
    assert load_table(tmp_path) == load_table() == TABLE
    (tmp_path / FILE_NAME).write_text(CLONE_SET)
    assert [kind.kind for kind in load_table(tmp_path)] == ["CloneSet"]


ROW = "kind: Gadget, group: example.com, resource: gadgets, versions: [v1]"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[", "t.yaml:1: is not YAML"),
        ("", "t.yaml: kinds: is required"),
        ("kinds: []\nmore: 1", "t.yaml: more: unknown field"),
        ("kinds: [{kind: Gadget}]", "kinds.0.group: is required; kinds.0.resource: is required"),
        (f"kinds: [{{{ROW}, color: red}}]", "kinds.0.color: unknown field"),
        (f"kinds: [{{{ROW}, cascading: pods}}]", "kinds.0.cascading: Input should be 'replicas'"),
        (f"kinds: [{{{ROW}, cascading: namespace}}]", "kinds.0.cascading: namespace is only valid for namespaces"),
        (f"kinds: [{{{ROW}, webhook: v}}]", "kinds.0.webhook: String should match"),
        (
            f"kinds: [{{{ROW}}}, {{{ROW}}}]",
            "kinds.1: another row has the same group and resource 'example.com/gadgets'",
        ),
        (
            f"kinds: [{{{ROW}, webhook: a.b.c}}, {{{ROW.replace('gadgets', 'tools')}, webhook: a.b.c}}]",
            "kinds.1: another row has the same webhook 'a.b.c'",
        ),
    ],
)
def test_an_invalid_table_is_reported_with_file_row_and_field(text: str, said: str) -> None:
    with pytest.raises(PolicyError) as error:
        parse_table(text, "t.yaml")
    assert said in str(error.value)
    assert str(error.value).startswith("t.yaml:")


def test_an_unreadable_table_is_reported_with_its_file(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"kinds: \xff")
    with pytest.raises(PolicyError, match="is not UTF-8 at byte 7"):
        load_table(tmp_path)
    (tmp_path / FILE_NAME).unlink()
    (tmp_path / FILE_NAME).mkdir()
    with pytest.raises(PolicyError, match="cannot be read"):
        load_table(tmp_path)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("deployment", "Deployment"),
        ("Deployment", "Deployment"),
        ("deployments", "Deployment"),
        ("deploy", "Deployment"),
        ("deployment.apps", "Deployment"),
        ("ns", "Namespace"),
        ("crd", "CustomResourceDefinition"),
        ("statefulset.apps", "StatefulSet"),
        ("", None),
        ("pod", None),
        ("statefulset.example.com", None),
        ("deployment.", None),
        ("namespace.", None),
    ],
)
def test_kinds_are_found_by_all_their_names(name: str, kind: str | None) -> None:
    assert find_kind(TABLE, name) == (KINDS[kind] if kind else None)
