"""Missing permissions are logged at startup, once each, and everything else works."""

import logging

import pytest

from app.kube.admission import PolicyRule
from app.kube.client import Client
from app.kube.wire import Response
from app.manager.flags import parse_flags
from app.manager.metrics import ManagerMetrics
from app.manager.rbac import Granted, Rights, default_rules, missing_rights, rules_of, rules_of_gates, webhook_rules
from app.manager.settings import read_settings
from app.manager.webhook_handlers import WEBHOOKS
from tests.kit.virtualtime import VirtualClock
from tests.kube.fakes import Connections, json_response, status_body, virtual

PODS = PolicyRule(("list", "watch"), ("",), ("pods",))
STATUS = PolicyRule(("patch",), ("apps.kruise.io",), ("sidecarsets/status",))
SECRET = PolicyRule(("get", "update"), ("",), ("secrets",), names=("certs",), own_namespace=True)


def granted(verbs: str, group: str, resources: str, names: str = "") -> Granted:
    return Granted(verbs.split(), [group], resources.split(), names.split())


@pytest.mark.parametrize(
    ("declared", "granted_to_us", "missing"),
    [
        pytest.param(PODS, granted("list watch", "", "pods"), [], id="all of it"),
        pytest.param(PODS, granted("*", "*", "*"), [], id="everything"),
        pytest.param(PODS, granted("list", "", "pods"), ["watch pods"], id="a verb"),
        pytest.param(PODS, granted("list watch", "apps", "pods"), ["list, watch pods"], id="another group"),
        pytest.param(PODS, granted("list watch", "", "pods", "web"), ["list, watch pods"], id="one object only"),
        pytest.param(STATUS, granted("patch", "apps.kruise.io", "*/status"), [], id="every status"),
        pytest.param(STATUS, granted("patch", "apps.kruise.io", "sidecarsets/*"), [], id="every subresource"),
        pytest.param(
            STATUS,
            granted("patch", "apps.kruise.io", "sidecarsets"),
            ["patch sidecarsets/status.apps.kruise.io"],
            id="not its subresource",
        ),
        pytest.param(SECRET, granted("get update", "", "secrets", "certs"), [], id="by name"),
        pytest.param(
            SECRET,
            granted("get update", "", "secrets", "other"),
            ["get, update secrets certs in the manager's namespace"],
            id="another name",
        ),
    ],
)
def test_required_rights_are_compared_with_granted_ones(
    declared: PolicyRule, granted_to_us: Granted, missing: list[str]
) -> None:
    assert missing_rights([declared], [granted_to_us], [granted_to_us]) == missing


def test_cluster_wide_rights_are_not_granted_by_a_namespaced_role() -> None:
    assert missing_rights([PODS, SECRET], [], [granted("*", "*", "*")]) == ["list, watch pods"]


def test_rights_in_a_named_namespace_are_checked_there() -> None:
    copies = PolicyRule(("get", "list"), ("",), ("secrets",), namespace="copies")
    everything = [granted("*", "*", "*")]
    assert missing_rights([copies], everything, everything, {"copies": [granted("list", "", "secrets")]}) == [
        "get secrets in namespace copies"
    ]
    assert missing_rights([copies], [], [], {"copies": everything}) == []


def rules(*flags: str, **environ: str) -> tuple[PolicyRule, ...]:
    return rules_of(read_settings(parse_flags(flags), environ), WEBHOOKS)


def test_a_replica_with_all_defaults_needs_the_generated_rights() -> None:
    both = [
        missing_rights(one, [as_granted(rule) for rule in other], [as_granted(rule) for rule in other])
        for one, other in ((default_rules(), rules()), (rules(), default_rules()))
    ]
    assert both == [[], []]


def as_granted(rule: PolicyRule) -> Granted:
    return Granted(list(rule.verbs), list(rule.groups), list(rule.resources), list(rule.names))


@pytest.mark.parametrize(
    ("flags", "environ", "unneeded"),
    [
        (("--enable-leader-election=false",), {}, "leases"),
        (("--leader-election-namespace=elsewhere",), {}, "leases"),
        (("--feature-gates=PodWebhook=false",), {}, "configmaps"),
        ((), {"WEBHOOK_CERT_WRITER": "fs"}, "secrets"),
        (("--namespace=shop",), {}, "pods/status"),
        (("--namespace=shop",), {}, "clonesets/status"),
        (("--namespace=shop",), {}, "persistentvolumeclaims"),
    ],
)
def test_permissions_that_a_setting_makes_superfluous_are_not_reported(
    flags: tuple[str, ...], environ: dict[str, str], unneeded: str
) -> None:
    def resources(found: tuple[PolicyRule, ...]) -> set[str]:
        return {name for rule in found if rule.names != ("kruise-configuration",) for name in rule.resources}

    everything, left = resources(rules()), resources(rules(*flags, **environ))
    assert unneeded in everything - left


@pytest.mark.behaviour("MGR-60")
def test_revisions_need_rights_for_sidecarsets_and_the_watched_namespace_only() -> None:
    left = [rule for rule in rules("--namespace=shop") if "controllerrevisions" in rule.resources]
    assert left
    assert all(rule.own_namespace for rule in left)


def test_a_foreign_secret_is_only_read() -> None:
    found = rules("--feature-gates=EnableExternalCerts=true", SECRET_NAME="theirs")
    assert [rule.verbs for rule in found if "secrets" in rule.resources] == [("get", "list", "watch")]


@pytest.mark.behaviour("MGR-146")
def test_a_replica_without_controllers_reads_one_secret_and_registers_nothing() -> None:
    found = rules("--controllers=false")
    assert [(rule.verbs, rule.names) for rule in found if "secrets" in rule.resources] == [
        (("get", "list", "watch"), ("kruise-webhook-certs",))
    ]
    assert not [rule for rule in found if "admissionregistration.k8s.io" in rule.groups]
    assert {verb for rule in found if "customresourcedefinitions" in rule.resources for verb in rule.verbs} == {"get"}
    granted = [as_granted(rule) for rule in webhook_rules()]
    assert missing_rights(found, granted, granted) == []


@pytest.mark.behaviour("MGR-146")
def test_a_replica_without_controllers_needs_the_rights_of_enabled_reviews() -> None:
    dry_runs = [rule for found in rules_of_gates().values() for rule in found if rule.for_reviews]
    assert [rule.resources for rule in dry_runs] == [("configmaps", "secrets")]
    gates = "--feature-gates=ResourceDistributionGate="
    assert set(dry_runs) <= set(rules("--controllers=false", f"{gates}true"))
    assert not set(dry_runs) & set(rules("--controllers=false", f"{gates}false"))


def test_the_rights_of_a_gate_in_the_own_namespace_are_those_of_reviews() -> None:
    """The chart binds them to both accounts."""
    assert all(rule.own_namespace is rule.for_reviews for found in rules_of_gates().values() for rule in found)


def answer(verbs: list[str], groups: list[str], resources: list[str]) -> Response:
    rule = {"verbs": verbs, "apiGroups": groups, "resources": resources}
    return json_response(201, {"status": {"resourceRules": [rule]}})


@virtual
async def test_a_missing_right_is_reported_once_and_counted_until_granted(caplog: pytest.LogCaptureFixture) -> None:
    clock, api, metrics = VirtualClock(), Connections(), ManagerMetrics()
    rights = Rights(Client(api, clock), "kruise-system", [PODS], metrics)
    some, every = answer(["list"], [""], ["pods"]), answer(["*"], ["*"], ["*"])
    api.answers.extend([some, some, some, some, every, every])
    caplog.set_level(logging.INFO)
    for expected in (1, 1, 0):
        await rights.check()
        assert metrics.registry.get_sample_value("kruise_manager_missing_rights") == expected
    assert caplog.messages == [
        "missing permission; everything else keeps working (see deploy/rbac.yaml, deploy/rbac-gates): watch pods",
        "all permissions are granted now",
    ]


@pytest.mark.parametrize(
    "answers",
    [
        pytest.param([json_response(403, status_body(403, "Forbidden"))], id="may not ask"),
        pytest.param([json_response(201, {"status": {"incomplete": True}})] * 2, id="an authorizer that does not tell"),
    ],
)
@virtual
async def test_an_api_server_without_rules_reviews_is_not_reported(
    answers: list[object], caplog: pytest.LogCaptureFixture
) -> None:
    api = Connections()
    api.answers.extend(answers)  # type: ignore[arg-type]
    await Rights(Client(api, VirtualClock()), "kruise-system", [PODS], ManagerMetrics()).check()
    assert not [record for record in caplog.records if record.levelno > logging.INFO]
