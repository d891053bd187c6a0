"""Only Pods that the API server submits for review can be reported to lack sidecars."""

import pytest

from app.admission.policies import WebhookPolicies, apply_policies
from app.admission.registry import served
from app.api.names import NAMESPACE_NAME
from app.manager.gates import parse_gates
from app.manager.webhook_handlers import WEBHOOKS, reviewed_namespaces

pytestmark = pytest.mark.behaviour("MGR-123")
POLICIES = WebhookPolicies.model_validate(
    {
        "excludedNamespaces": ["monitoring"],
        "excludedNamespaceLabels": {"team": ["legacy"]},
        "webhooks": {"mpod.kb.io": {"excludedNamespaces": ["batch"]}, "vservice.kb.io": {"failurePolicy": "Ignore"}},
    }
)


@pytest.mark.parametrize(
    ("name", "labels", "reviewed"),
    [
        ("shop", {}, True),
        ("kube-system", {}, False),
        ("kube-public", {}, False),
        # The manager's own namespace, by name: a tenant can set OpenKruise's label.
        ("operators", {}, False),
        ("other", {"control-plane": "openkruise"}, True),
        # Namespaces that the operator excluded.
        ("monitoring", {}, False),
        ("batch", {}, False),
        ("old", {"team": "legacy"}, False),
        ("new", {"team": "shop"}, True),
    ],
)
def test_pods_of_excluded_namespaces_miss_nothing(name: str, labels: dict[str, str], reviewed: bool) -> None:
    selector = reviewed_namespaces(apply_policies(WEBHOOKS, POLICIES, "operators"))
    assert selector.matches({NAMESPACE_NAME: name, **labels}) is reviewed


def test_without_the_pod_webhook_no_pod_misses_anything() -> None:
    gates = parse_gates("PodWebhook=false")
    assert reviewed_namespaces(served(apply_policies(WEBHOOKS, POLICIES, "operators"), gates.enabled)) is None
