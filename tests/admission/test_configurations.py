"""Files and objects that follow from declarations: webhook configurations, policies, RBAC."""

import copy
from pathlib import Path
from typing import Any

import pytest

from app.admission.configurations import (
    ServiceEndpoint,
    UrlEndpoint,
    conversion_patch,
    mutating_configuration,
    release_patch,
    updated,
    validating_configuration,
)
from app.admission.policies import WebhookPolicies, apply_policies, load_policies, without_namespaces
from app.framework.policies import PolicyError
from app.kube.admission import MatchCondition, Operation, PolicyRule, Rule, Webhook
from app.manager import rbac
from app.manager.webhook_handlers import WEBHOOKS

SERVICE = ServiceEndpoint("kruise-webhook-service", "kruise-system")


def entry(configuration: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(one for one in configuration["webhooks"] if one["name"] == name)
    return found


def as_registered(policies: WebhookPolicies | None = None, own_namespace: str = "kruise-system") -> dict[str, Any]:
    webhooks = apply_policies(WEBHOOKS, policies or WebhookPolicies(), own_namespace)
    return entry(mutating_configuration(webhooks, SERVICE, "Q0E="), "mpod.kb.io")


@pytest.mark.behaviour("PW-1", "PW-2", "PW-5", "MGR-42")
def test_the_pod_webhook_is_registered_as_declared() -> None:
    found = as_registered()
    assert found["clientConfig"] == {
        "caBundle": "Q0E=",
        "service": {"name": "kruise-webhook-service", "namespace": "kruise-system", "path": "/mutate-pod", "port": 443},
    }
    assert found["rules"] == [
        {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"], "scope": "*"}
    ]
    assert (found["failurePolicy"], found["sideEffects"], found["matchPolicy"]) == ("Fail", "None", "Equivalent")
    assert found["reinvocationPolicy"] == "Never"
    assert found["objectSelector"] == {}
    assert found["admissionReviewVersions"] == ["v1"]
    assert found["timeoutSeconds"] == 30


@pytest.mark.behaviour("PW-3", "MGR-94")
def test_system_namespaces_and_our_own_are_excluded() -> None:
    assert as_registered(own_namespace="kruise-elsewhere")["namespaceSelector"] == {
        "matchExpressions": [
            {
                "key": "kubernetes.io/metadata.name",
                "operator": "NotIn",
                "values": ["kube-system", "kube-public", "kruise-elsewhere"],
            }
        ]
    }


@pytest.mark.behaviour("MGR-42")
def test_a_manager_outside_the_cluster_is_registered_by_url() -> None:
    configuration = mutating_configuration(WEBHOOKS, UrlEndpoint("10.0.0.7", 9876), "Q0E=")
    assert entry(configuration, "mpod.kb.io")["clientConfig"] == {
        "caBundle": "Q0E=",
        "url": "https://10.0.0.7:9876/mutate-pod",
    }
    assert UrlEndpoint("::1", 1).client_config("/x", "")["url"] == "https://[::1]:1/x"


@pytest.mark.behaviour("SS-108")
def test_sidecarsets_are_intercepted_in_both_versions() -> None:
    mutating = entry(mutating_configuration(WEBHOOKS, SERVICE, ""), "msidecarset.kb.io")
    validating = entry(validating_configuration(WEBHOOKS, SERVICE, ""), "vsidecarset.kb.io")
    for found, verb in ((mutating, "mutate"), (validating, "validate")):
        assert found["clientConfig"]["service"]["path"] == f"/{verb}-apps-kruise-io-sidecarset"
        assert found["rules"][0]["apiVersions"] == ["v1alpha1", "v1beta1"]
        assert found["rules"][0]["operations"] == ["CREATE", "UPDATE"]
        assert found["rules"][0]["resources"] == ["sidecarsets"]
    # Only mutating entries can be reinvoked.
    assert "reinvocationPolicy" not in validating


@pytest.mark.behaviour("MGR-41", "MGR-44")
def test_a_configuration_is_written_only_if_it_differs_whatever_the_template_of_openkruise_says() -> None:
    desired = mutating_configuration(WEBHOOKS, SERVICE, "Q0E=")
    annotations = {"template": '[{"name": "mpod.kb.io", "failurePolicy": "Ignore"}]'}
    metadata = {"name": "x", "resourceVersion": "7", "labels": {"kept": "yes"}, "annotations": annotations}
    live = {**desired, "metadata": metadata}
    assert updated(live, desired) is None
    drifted = {**live, "webhooks": [{**desired["webhooks"][0], "failurePolicy": "Ignore"}]}
    repaired = updated(drifted, desired)
    assert repaired["webhooks"] == desired["webhooks"]
    assert repaired["metadata"] == metadata
    # The API server returns a configuration without entries without the field.
    empty = mutating_configuration([], SERVICE, "")
    assert updated({"metadata": {"name": "x"}}, empty) is None


def test_absent_match_conditions_are_omitted() -> None:
    plain = Webhook("a.b.c", "/a", True, (Rule((Operation.CREATE,), ("",), ("v1",), ("pods",)),), "test")
    with_condition = Webhook(
        "d.e.f", "/d", True, plain.rules, "test", match_conditions=(MatchCondition("some", "true"),)
    )
    configuration = mutating_configuration([plain, with_condition], SERVICE, "")
    assert "matchConditions" not in entry(configuration, "a.b.c")
    assert entry(configuration, "d.e.f")["matchConditions"] == [{"name": "some", "expression": "true"}]
    assert "caBundle" not in entry(configuration, "a.b.c")["clientConfig"]


# --- conversion webhooks ----------------------------------------------------------------------------------------------


def definition(strategy: str = "Webhook", **client_config: Any) -> dict[str, Any]:
    conversion: dict[str, Any] = {"strategy": strategy}
    if strategy == "Webhook":
        conversion["webhook"] = {"clientConfig": client_config, "conversionReviewVersions": ["v1", "v1beta1"]}
    return {"metadata": {"name": "x", "resourceVersion": "3"}, "spec": {"conversion": conversion}}


CONVERT = {"name": "kruise-webhook-service", "namespace": "kruise-system", "path": "/convert", "port": 443}


@pytest.mark.behaviour("MGR-52")
@pytest.mark.parametrize(
    ("crd", "endpoint", "written"),
    [
        (definition(service=CONVERT), SERVICE, {"caBundle": "Q0E=", "service": CONVERT}),
        (definition(service=CONVERT, caBundle="Q0E="), SERVICE, None),
        (
            definition(service={"name": "x"}),
            UrlEndpoint("127.0.0.1", 1),
            {"service": None, "url": "https://127.0.0.1:1/convert", "caBundle": "Q0E="},
        ),
        (definition("None"), SERVICE, None),
        ({"metadata": {}, "spec": {}}, SERVICE, None),
    ],
    ids=["our service", "up to date", "moved from a service to a URL", "no conversion", "nothing said"],
)
def test_a_definition_converts_through_our_webhook_if_any(
    crd: dict[str, Any], endpoint: ServiceEndpoint | UrlEndpoint, written: dict[str, Any] | None
) -> None:
    webhook = {"clientConfig": written, "conversionReviewVersions": ["v1", "v1beta1"]}
    patch = {"metadata": {"resourceVersion": "3"}, "spec": {"conversion": {"webhook": webhook}}}
    assert conversion_patch(crd, endpoint, "Q0E=") == (patch if written else None)


def owner(fields: dict[str, Any], manager: str = "kruise-manager", operation: str = "Update") -> dict[str, Any]:
    who = {"manager": manager, "operation": operation}
    return {**who, "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields}


def converting(**owned: Any) -> dict[str, Any]:
    return {"f:spec": {"f:conversion": {"f:webhook": {"f:clientConfig": owned}}}}


AUTHORITY = converting(**{"f:caBundle": {}})
KUBECTL = owner({"f:spec": {"f:conversion": {"f:strategy": {}}}}, "kubectl", "Apply")


@pytest.mark.behaviour("MGR-142")
@pytest.mark.parametrize(
    ("ours", "left"),
    [
        (converting(**{"f:url": {}}), None),
        (converting(**{"f:caBundle": {}, "f:url": {}}), AUTHORITY),
        (converting(**{".": {}, "f:caBundle": {}, "f:service": {"f:namespace": {}}}), AUTHORITY),
        (
            {"f:spec": {"f:conversion": {"f:webhook": {"f:conversionReviewVersions": {}}}, "f:x": {}}},
            {"f:spec": {"f:x": {}}},
        ),
        ({"f:metadata": {"f:labels": {}}, **converting(**{"f:url": {}})}, {"f:metadata": {"f:labels": {}}}),
    ],
)
def test_the_manager_owns_no_conversion_field_that_shipped_definitions_set(
    ours: dict[str, Any], left: dict[str, Any] | None
) -> None:
    theirs = [owner(ours, "somebody"), owner(ours, operation="Apply"), {**owner(ours), "subresource": "status"}]
    crd = {"metadata": {"resourceVersion": "7", "managedFields": [KUBECTL, owner(ours), *theirs]}}
    before = copy.deepcopy(crd)
    kept = [KUBECTL, *([] if left is None else [owner(left)]), *theirs]
    assert release_patch(crd) == {"metadata": {"resourceVersion": "7", "managedFields": kept}}
    assert crd == before
    crd["metadata"]["managedFields"] = kept
    assert release_patch(crd) is None


@pytest.mark.behaviour("MGR-142")
@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"managedFields": []},
        {"managedFields": [KUBECTL]},
        {"managedFields": [owner(AUTHORITY)]},
        {"managedFields": [owner({"f:spec": {"f:versions": {}}})]},
        {"managedFields": [owner(converting(**{"f:url": {}}))]},
    ],
)
def test_nothing_is_written_if_there_is_nothing_to_release(metadata: dict[str, Any]) -> None:
    assert release_patch({"metadata": {"resourceVersion": "7", **metadata}}) is None


# --- policies of operators --------------------------------------------------------------------------------------------


def policies_from(tmp_path: Path, text: str) -> WebhookPolicies:
    (tmp_path / "webhooks.yaml").write_text(text, "utf-8")
    return load_policies(tmp_path)


def test_failure_policy_timeout_and_namespaces_can_be_changed_per_webhook(tmp_path: Path) -> None:
    found = as_registered(
        policies_from(
            tmp_path,
            """
            excludedNamespaces: [monitoring]
            webhooks:
              mpod.kb.io: {failurePolicy: Ignore, timeoutSeconds: 5, excludedNamespaces: [batch]}
            """,
        )
    )
    assert (found["failurePolicy"], found["timeoutSeconds"]) == ("Ignore", 5)
    assert found["namespaceSelector"]["matchExpressions"][-1]["values"] == [
        "kube-system",
        "kube-public",
        "kruise-system",
        "monitoring",
        "batch",
    ]


def test_the_shipped_file_and_a_folder_without_one_change_nothing(tmp_path: Path) -> None:
    for folder in (Path(__file__).parent.parent.parent / "policies", tmp_path):
        assert load_policies(folder) == WebhookPolicies()


def test_namespaces_can_be_excluded_by_label_for_every_webhook(tmp_path: Path) -> None:
    policies = policies_from(tmp_path, "excludedNamespaceLabels: {control-plane: ['true'], managedby: [a, b]}")
    webhooks = apply_policies(WEBHOOKS, policies, "kruise-system")
    entries = [
        *mutating_configuration(webhooks, SERVICE, "")["webhooks"],
        *validating_configuration(webhooks, SERVICE, "")["webhooks"],
    ]
    assert len(entries) == len(WEBHOOKS)
    for found in entries:
        assert found["namespaceSelector"]["matchExpressions"][-2:] == [
            {"key": "control-plane", "operator": "NotIn", "values": ["true"]},
            {"key": "managedby", "operator": "NotIn", "values": ["a", "b"]},
        ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("webhooks: [", "webhooks.yaml:1: is not YAML: expected the node content"),
        ("webhooks: \x00", "webhooks.yaml: is not YAML: unacceptable character"),
        ("a: 1\nb: c: d", "webhooks.yaml:2: is not YAML: mapping values are not allowed here"),
        ("webhook: {}", "webhook: unknown field"),
        ("webhooks: {mpod.kb.io: {failurepolicy: Fail}}", "webhooks.mpod.kb.io.failurepolicy: unknown field"),
        (
            "webhooks: {mpod.kb.io: {failurePolicy: fail}}",
            "webhooks.mpod.kb.io.failurePolicy: Input should be 'Fail' or 'Ignore', got 'fail'",
        ),
        ("webhooks: {mpod.kb.io: {timeoutSeconds: 31}}", "timeoutSeconds: Input should be less than or equal to 30"),
        ("webhooks: {mpod.kb.io: {timeoutSeconds: '5'}}", "timeoutSeconds: Input should be a valid integer, got '5'"),
        ("excludedNamespaces: [Not_A_Name]", "excludedNamespaces.0: String should match pattern"),
        ("excludedNamespaceLabels: {a: []}", "excludedNamespaceLabels.a: List should have at least 1 item"),
        ("- a", "document: Input should be"),
    ],
)
def test_an_invalid_file_is_refused_with_file_and_field(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(PolicyError) as refused:
        policies_from(tmp_path, text)
    assert str(tmp_path / "webhooks.yaml") in str(refused.value)
    assert message in str(refused.value)


def test_an_unreadable_file_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "webhooks.yaml").write_bytes(b"\xff")
    with pytest.raises(PolicyError, match=r"webhooks.yaml: is not UTF-8 at byte 0"):
        load_policies(tmp_path)
    with pytest.raises(PolicyError, match="cannot be read: No such file or directory"):
        load_policies(tmp_path / "absent.yaml")


def test_an_override_of_an_unknown_webhook_is_refused_with_the_known_names(tmp_path: Path) -> None:
    policies = policies_from(tmp_path, "webhooks: {mpods.kb.io: {}}")
    with pytest.raises(PolicyError, match=r"webhooks\.mpods\.kb\.io: .*did you mean mpod\.kb\.io\?\); known are "):
        as_registered(policies)


def test_excluding_namespaces_keeps_the_rest_of_a_selector() -> None:
    selector = {"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "c", "operator": "Exists"}]}
    assert without_namespaces(selector, []) == selector
    assert without_namespaces(selector, ["x", "x"]) == {
        "matchLabels": {"a": "b"},
        "matchExpressions": [
            {"key": "c", "operator": "Exists"},
            {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["x"]},
        ],
    }


# --- RBAC -------------------------------------------------------------------------------------------------------------


def test_rules_are_merged_into_as_few_as_possible() -> None:
    merged = rbac.merged(
        [
            PolicyRule(("get", "list"), ("",), ("pods",)),
            PolicyRule(("watch",), ("",), ("pods", "namespaces")),
            PolicyRule(("list", "get"), ("",), ("namespaces",)),
            PolicyRule(("get", "update"), ("",), ("secrets",), names=("one",)),
            PolicyRule(("get",), ("",), ("secrets",)),
        ]
    )
    assert merged == [
        {"apiGroups": [""], "resources": ["namespaces", "pods"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["one"], "verbs": ["update"]},
    ]


def test_rules_for_the_managers_namespace_are_granted_only_there() -> None:
    made = rbac.manifests(
        [PolicyRule(("get",), ("",), ("secrets",), own_namespace=True), PolicyRule(("get",), ("",), ("pods",))],
        "elsewhere",
    )
    *declared, extension, extending = made
    by_kind = {one["kind"]: one for one in declared}
    assert by_kind["ClusterRole"]["rules"] == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]
    assert by_kind["Role"]["rules"] == [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]
    assert by_kind["Role"]["metadata"]["namespace"] == "elsewhere"
    for binding, role in (("ClusterRoleBinding", "ClusterRole"), ("RoleBinding", "Role")):
        assert by_kind[binding]["roleRef"]["name"] == by_kind[role]["metadata"]["name"]
        assert by_kind[binding]["subjects"][0]["namespace"] == "elsewhere"
    created = [one["metadata"]["name"] for one in made if one["kind"] == "Namespace"]
    assert created == ["elsewhere", "kruise-daemon-config"]
    # Kubernetes fills in the rules, and later applies must not remove them.
    assert "rules" not in extension
    assert extending["roleRef"]["name"] == extension["metadata"]["name"]
