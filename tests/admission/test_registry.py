"""The choice of the handler for a review."""

import pytest

from app.admission.registry import DuplicateRuleError, build_registry, old_paths
from app.admission.review import read_review
from app.kube.admission import Allowed, Denied, Handler, Operation, Review, Rule, Webhook
from tests.admission.requests import review_of

POD_CREATE = Rule((Operation.CREATE,), ("",), ("v1",), ("pods",))
POD_DELETE = Rule((Operation.DELETE,), ("",), ("v1",), ("pods",))
EVICTION = Rule((Operation.CREATE,), ("",), ("v1",), ("pods/eviction",))


def webhook(name: str, *rules: Rule, path: str = "/validate-pod", gate: str = "") -> Webhook:
    return Webhook(name=name, path=path, mutating=False, rules=rules, summary="test", gate=gate)


def handler(name: str, *rules: Rule, path: str = "/validate-pod", gate: str = "") -> Handler:
    return Handler(webhook(name, *rules, path=path, gate=gate), lambda _: Allowed())


def on(_gate: str) -> bool:
    return True


def review(name: str, **changed: object) -> Review:
    found = read_review(review_of(name, **changed))
    assert isinstance(found, Review)
    return found


def test_handlers_of_one_path_are_chosen_by_their_rules() -> None:
    registry = build_registry([handler("delete", POD_DELETE), handler("evict", EVICTION)], on)
    route = registry.routes["/validate-pod"]
    assert route.handler_for(review("pod-delete")).webhook.name == "delete"  # type: ignore[union-attr]
    assert route.handler_for(review("pod-eviction")).webhook.name == "evict"  # type: ignore[union-attr]


def test_an_unregistered_operation_or_subresource_passes() -> None:
    route = build_registry([handler("delete", POD_DELETE)], on).routes["/validate-pod"]
    assert route.handler_for(review("pod-update")) == Allowed()
    assert route.handler_for(review("pod-delete", subResource="status")) == Allowed()


@pytest.mark.parametrize(
    "resource",
    [
        {"group": "", "version": "v2", "resource": "pods"},
        {"group": "", "version": "v1", "resource": "services"},
        {"group": "apps", "version": "v1", "resource": "pods"},
    ],
)
def test_a_resource_not_served_at_the_path_is_refused_by_name(resource: dict) -> None:
    route = build_registry([handler("delete", POD_DELETE)], on).routes["/validate-pod"]
    denied = route.handler_for(review("pod-delete", resource=resource))
    assert isinstance(denied, Denied)
    assert denied.code == 400
    assert resource["resource"] in denied.message
    assert "/validate-pod, which serves v1 pods" in denied.message


def test_two_handlers_for_one_request_are_an_error() -> None:
    with pytest.raises(DuplicateRuleError, match="two and one both handle CREATE pods at /validate-pod"):
        build_registry([handler("one", POD_CREATE), handler("two", POD_CREATE)], on)


@pytest.mark.behaviour("MGR-43", "PW-4")
def test_gated_handlers_are_served_only_while_the_gate_is_on() -> None:
    handlers = [handler("gated", POD_CREATE, gate="PodWebhook"), handler("always", POD_DELETE)]
    off = build_registry(handlers, lambda _: False)
    assert [found.name for found in off.webhooks] == ["always"]
    assert off.routes["/validate-pod"].handler_for(review("pod-create")) == Allowed()
    assert off.switched_off == frozenset()
    assert build_registry(handlers[:1], lambda _: False).switched_off == {"/validate-pod"}
    assert [found.name for found in build_registry(handlers, on).webhooks] == ["gated", "always"]


@pytest.mark.behaviour("MGR-122")
def test_old_versioned_paths_are_served_like_the_current_path() -> None:
    registry = build_registry([handler("set", POD_CREATE, path="/mutate-apps-kruise-io-sidecarset")], on)
    assert registry.aliases == {
        "/mutate-apps-kruise-io-v1alpha1-sidecarset": "/mutate-apps-kruise-io-sidecarset",
        "/mutate-apps-kruise-io-v1beta1-sidecarset": "/mutate-apps-kruise-io-sidecarset",
    }
    assert old_paths("/mutate-pod") == ()
    # A path that contains a version has no older form.
    assert old_paths("/validate-apps-kruise-io-v1alpha1-ephemeraljob") == ()
