"""Several declarations under one webhook name."""

from __future__ import annotations

import dataclasses

import pytest

from app.admission.registry import DuplicateRuleError, build_registry, merged_handlers, merged_webhooks
from app.kube.admission import Allowed, Denied, Handler, MatchCondition, Operation, PolicyRule
from app.manager.webhook_handlers import WEBHOOKS
from tests.admission.test_registry import EVICTION, POD_CREATE, POD_DELETE, on, review, webhook


@pytest.mark.behaviour("CS-173")
def test_one_webhook_validates_writes_and_deletions_of_a_cloneset() -> None:
    (found,) = (one for one in WEBHOOKS if one.name == "vcloneset.kb.io")
    (rule,) = found.rules
    assert set(rule.operations) == {Operation.CREATE, Operation.UPDATE, Operation.DELETE}
    assert set(rule.versions) == {"v1alpha1", "v1beta1"}
    assert [condition.name for condition in found.match_conditions] == ["spec-changed", "deleted-with-label"]
    assert len({one.name for one in WEBHOOKS}) == len(WEBHOOKS)


def test_handlers_of_one_webhook_keep_their_own_rules() -> None:
    one = dataclasses.replace(webhook("x", POD_CREATE), permissions=(PolicyRule(("get",), ("",), ("pods",)),))
    two = dataclasses.replace(webhook("x", POD_DELETE, EVICTION), match_conditions=(MatchCondition("c", "true"),))
    two = dataclasses.replace(two, permissions=(PolicyRule(("list",), ("",), ("pods",)),))
    given = [Handler(one, lambda _: Allowed(("one",))), Handler(two, lambda _: Denied("two"), lambda _: True)]
    (found,) = merged_handlers(given)
    assert found.webhook.rules == (
        dataclasses.replace(POD_CREATE, operations=(Operation.CREATE, Operation.DELETE)),
        EVICTION,
    )
    assert found.webhook.permissions == (*one.permissions, *two.permissions)
    assert found.webhook.match_conditions == two.match_conditions
    assert found.webhook.summary == "test; test"
    route = build_registry([found], on).routes["/validate-pod"]
    assert route.handler_for(review("pod-create")) is found
    assert found.decide(review("pod-create")) == Allowed(("one",))
    assert found.decide(review("pod-delete")) == found.decide(review("pod-eviction")) == Denied("two")
    assert found.decide(review("pod-update")) == Allowed()
    reviews = ("pod-create", "pod-delete", "pod-eviction", "pod-update")
    assert [found.is_slow(review(name)) for name in reviews] == [False, True, True, False]
    assert merged_handlers(given[:1]) == tuple(given[:1])


@pytest.mark.parametrize("changed", [{"path": "/other"}, {"failure_policy": "Ignore"}, {"object_selector": {"a": {}}}])
def test_handlers_that_cannot_share_an_entry_are_an_error(changed: dict) -> None:
    two = dataclasses.replace(webhook("x", POD_DELETE), **changed)
    with pytest.raises(DuplicateRuleError, match="two declarations of x cannot be merged into one webhook"):
        merged_webhooks([webhook("x", POD_CREATE), two])
