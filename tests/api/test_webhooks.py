"""The webhooks of a kind: names, rules, mutations and former specs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from app.api.gojson import INT32, GoField, GoTypeError, struct
from app.api.webhooks import SPEC_CHANGED, completed, former_spec, mutating_webhook, validating_webhook
from app.features.broadcastjob.kind import BROADCAST_JOB
from app.kube.admission import Allowed, Decision, Denied, Operation, Patched, PolicyRule
from tests.admission.writing import review_of

SPECS = dict.fromkeys(("v1beta1", "v1alpha1"), struct(GoField("parallelism", INT32)))
SECRETS = PolicyRule(("get",), ("",), ("secrets",))


def job(spec: Mapping[str, Any] | None = None, version: str = "v1beta1") -> dict[str, Any]:
    given: dict[str, Any] = {"apiVersion": f"apps.kruise.io/{version}", "kind": "BroadcastJob"}
    given["metadata"] = {"name": "one"}
    return given if spec is None else {**given, "spec": dict(spec)}


def two(given: Mapping[str, Any]) -> dict[str, Any]:
    return {**given, "spec": {"parallelism": 2, **(given.get("spec") or {})}}


def answer(given: dict[str, Any], complete: Any = two) -> Decision:
    return completed(review_of(BROADCAST_JOB, given), BROADCAST_JOB, SPECS, complete, rule="BJ-2")


@pytest.mark.parametrize(
    ("webhook", "letter", "verb"),
    [
        (mutating_webhook(BROADCAST_JOB, "Words"), "m", "mutate"),
        (validating_webhook(BROADCAST_JOB, "Words", SECRETS), "v", "validate"),
    ],
)
def test_a_webhook_is_named_after_its_kind_and_called_on_spec_changes(webhook: Any, letter: str, verb: str) -> None:
    (rule,) = webhook.rules
    assert webhook.name == f"{letter}broadcastjob.kb.io"
    assert webhook.path == f"/{verb}-apps-kruise-io-broadcastjob"
    assert (webhook.mutating, webhook.summary) == (verb == "mutate", "Words")
    assert webhook.permissions == (() if verb == "mutate" else (SECRETS,))
    assert webhook.match_conditions == (SPEC_CHANGED,)
    assert rule.resources == ("broadcastjobs",)
    assert rule.operations == (Operation.CREATE, Operation.UPDATE)


@pytest.mark.parametrize("given", [job(), job({}), job({"newer": 1})])
def test_defaults_are_patched_in(given: dict[str, Any]) -> None:
    decision = answer(given)
    assert isinstance(decision, Patched)
    (operation,) = decision.operations
    assert operation.rule == "BJ-2"
    assert operation.value in (2, {"parallelism": 2})


def test_a_complete_object_is_not_patched() -> None:
    assert answer(job({"parallelism": 2})) == Allowed()
    assert answer(job({"parallelism": 0}), dict) == Allowed()


@pytest.mark.parametrize(
    ("given", "words"), [(job({"parallelism": 1 << 40}), "does not fit in 32 bits"), (job({}, "v2"), "v2")]
)
def test_an_unreadable_object_is_a_bad_request(given: dict[str, Any], words: str) -> None:
    decision = answer(given)
    assert isinstance(decision, Denied)
    assert decision.code == 400
    assert words in decision.message


def test_defaulting_may_reject_unreadable_values() -> None:
    def fails(_: Mapping[str, Any]) -> dict[str, Any]:
        raise GoTypeError("spec.template: expected object, found string")

    assert answer(job({}), fails) == Denied("spec.template: expected object, found string", code=400)


def former(old: dict[str, Any] | None, complete: Any = two) -> Mapping[str, Any] | None:
    return former_spec(BROADCAST_JOB, SPECS, review_of(BROADCAST_JOB, job({}), old), complete)


def test_the_former_spec_is_defaulted_as_openkruise_stores_it_except_for_its_template() -> None:
    def complete(given: Mapping[str, Any]) -> dict[str, Any]:
        assert "template" not in given["spec"]
        return two(given)

    assert former(job({"parallelism": 0, "template": {"a": 1}}), complete) == {"parallelism": 2, "template": {"a": 1}}


def test_a_creation_has_no_former_spec() -> None:
    assert former(None) is None
