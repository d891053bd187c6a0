"""Validation of budgets: refusals by field, and warnings."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from app.features.podunavailablebudget.validation import PodScope, loosely_overlap, may_meet
from app.features.podunavailablebudget.webhooks import MAX_TARGETS
from app.kube.selectors import compile_selector
from tests.features.podunavailablebudget.writing import ALPHA, BETA, Json, Lookups, as_stored, budget, refusal, write
from tests.fuzz import cost
from tests.kube.test_selectors import label_maps, selectors

OPERATIONS = "kruise.io/pub-protect-operations"
TOTAL = "pub.kruise.io/protect-total-replicas"
SHOP = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "shop"}


def target(name: str = "shop", api_version: str = "apps/v1", **more: Any) -> Json:
    reference = {"apiVersion": api_version, "kind": "Deployment", "name": name}
    return budget(selector=None, targetRef=reference, **more)


@pytest.mark.behaviour("PUB-10")
def test_with_both_gates_off_budgets_are_refused_naming_the_gates() -> None:
    written = write(budget(), lookups=Lookups(enabled=False))
    assert written.code == 400
    assert "PodUnavailableBudgetDeleteGate or PodUnavailableBudgetUpdateGate" in written.message


@pytest.mark.behaviour("PUB-12")
@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ({**SHOP, "apiVersion": "a/b/c"}, "unexpected GroupVersion string: a/b/c"),
        ({**SHOP, "kind": ""}, "empty targetRef is not valid"),
        ({"kind": "Deployment", "name": "shop"}, "empty targetRef is not valid"),
    ],
)
def test_a_target_must_be_complete(reference: Json, message: str) -> None:
    found = refusal(budget(selector=None, targetRef=reference))
    assert found.startswith("spec.targetRef: Invalid value: v1beta1.TargetReference{")
    assert message in found


@pytest.mark.behaviour("PUB-12")
def test_a_target_that_does_not_exist_is_accepted() -> None:
    assert not refusal(target("nothing"))
    assert not refusal(target("nothing", api_version="v1"))


@pytest.mark.behaviour("PUB-15")
@pytest.mark.parametrize("value", [0, 5, 1000, "0%", "100%", "7%", "007%", "0" * 5000 + "1%"])
def test_a_number_or_a_percentage_is_accepted(value: int | str) -> None:
    assert not refusal(budget(maxUnavailable=value))
    assert not refusal(budget(maxUnavailable=None, minAvailable=value))


@pytest.mark.behaviour("PUB-15")
@pytest.mark.parametrize("value", [-1, "5", "", "101%", "9" * 5000 + "%", "-1%", "+1%", "1.5%", "1%%", "٣%", "5% "])
def test_other_values_are_refused_by_field(value: int | str) -> None:
    assert refusal(budget(maxUnavailable=value)).startswith("spec.maxUnavailable: Invalid value: ")
    assert refusal(budget(maxUnavailable=None, minAvailable=value)).startswith("spec.minAvailable: Invalid value: ")


@pytest.mark.behaviour("PUB-16")
@pytest.mark.parametrize("selector", [{}, {"matchLabels": {"a b": "c"}}, {"matchLabels": {"a": "!"}}])
def test_a_selector_of_ignored_pods_must_be_valid_and_not_empty(selector: Json) -> None:
    assert refusal(budget(ignoredPodSelector=selector)).lstrip("[").startswith("spec.ignoredPodSelector")


@pytest.mark.behaviour("PUB-16")
def test_an_unknown_operation_is_refused_by_the_schema() -> None:
    found = refusal(budget(protectOperations=["DELETE", "FLY"]))
    assert 'spec.protectOperations[1]: Unsupported value: "FLY"' in found


@pytest.mark.behaviour("PUB-17")
@pytest.mark.parametrize(
    ("annotations", "message"),
    [
        ({TOTAL: "x"}, f'metadata.annotations[{TOTAL}]: Invalid value: "x": must be a 32-bit integer'),
        (
            {TOTAL: "99999999999"},
            f'metadata.annotations[{TOTAL}]: Invalid value: "99999999999": must be a 32-bit integer',
        ),
        ({TOTAL: "0"}, f'metadata.annotations[{TOTAL}]: Invalid value: "0": must be greater than or equal to 1'),
        (
            {OPERATIONS: "DELETE,FLY"},
            f'metadata.annotations[{OPERATIONS}]: Unsupported value: "FLY": supported values: "DELETE", "UPDATE", '
            '"EVICT", "RESIZE"',
        ),
    ],
)
@pytest.mark.parametrize("version", [ALPHA, BETA])
def test_an_unusable_annotation_is_refused(version: str, annotations: Json, message: str) -> None:
    assert refusal(budget(version=version, annotations=annotations)) == message


@pytest.mark.behaviour("PUB-17")
def test_annotation_and_field_must_agree() -> None:
    assert not refusal(budget(annotations={TOTAL: "5"}, protectTotalReplicas=5))
    found = refusal(budget(annotations={TOTAL: "5"}, protectTotalReplicas=6))
    assert "must be equal to spec.protectTotalReplicas, which is 6" in found


@pytest.mark.behaviour("PUB-17", "PUB-120")
def test_objects_created_in_v1alpha1_can_change_in_v1beta1() -> None:
    created = write(budget(version=ALPHA, annotations={TOTAL: "5", OPERATIONS: "DELETE"})).obj
    assert created is not None
    stored = as_stored(created)
    assert not refusal({**stored, "spec": {**stored["spec"], "protectTotalReplicas": 6}}, stored)


@pytest.mark.behaviour("PUB-18")
def test_numbers_and_operations_may_change_and_the_target_may_not() -> None:
    old = budget()
    assert not refusal(budget(maxUnavailable=None, minAvailable=3, protectOperations=["EVICT"]), old)
    assert "selector and targetRef cannot be modified" in refusal(target(), old)
    assert "selector and targetRef cannot be modified" in refusal(budget(selector={"matchLabels": {"app": "x"}}), old)
    # The same in the other version.
    assert not refusal(budget(version=ALPHA, maxUnavailable=1), budget(version=ALPHA))


@pytest.mark.behaviour("PUB-18")
def test_a_deleted_budget_is_left_alone() -> None:
    gone = budget(maxUnavailable="x")
    gone["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert not refusal(gone, gone)


@pytest.mark.behaviour("PUB-19")
def test_two_budgets_for_one_workload_are_refused_in_any_version() -> None:
    other = target(api_version="apps/v1beta1", name="shop")
    other["metadata"]["name"] = "other"
    found = refusal(target(), lookups=Lookups([other]))
    assert "pub.spec.targetRef is in conflict with other PodUnavailableBudget other: " in found
    other["spec"]["targetRef"]["apiVersion"] = "apps.kruise.io/v1beta1"
    assert not refusal(target(), lookups=Lookups([other]))
    # A budget does not conflict with itself.
    assert not refusal(target(), lookups=Lookups([target()]))


@pytest.mark.behaviour("PUB-19", "PUB-20")
def test_equivalent_selectors_are_refused_naming_the_other_budget() -> None:
    found = refusal(budget(), lookups=Lookups([budget("other")]))
    assert found.startswith("spec.selector: Invalid value: v1.LabelSelector{")
    conflict = "pub.spec.selector is in conflict with other PodUnavailableBudget other: "
    assert conflict in found
    found = refusal(budget(maxUnavailable="x"), lookups=Lookups([budget("other")]))
    assert found.startswith("[spec.maxUnavailable: Invalid value: ")
    assert conflict in found
    unreadable = {"matchExpressions": [{"key": "app", "operator": "In"}]}
    assert conflict not in refusal(budget(selector=unreadable), lookups=Lookups([budget("other")]))


def expression(key: str, operator: str, *values: str) -> Json:
    found: Json = {"key": key, "operator": operator}
    return {"matchExpressions": [{**found, "values": list(values)} if values else found]}


@pytest.mark.behaviour("PUB-20")
@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ({"matchLabels": {"a": "b"}}, {"matchLabels": {"a": "b"}}, True),
        ({"matchLabels": {"a": "b"}}, {"matchLabels": {"a": "c"}}, False),
        ({"matchLabels": {"a": "b"}}, {"matchLabels": {"a": "b", "c": "d"}}, False),
        ({"matchLabels": {"a": "b"}}, expression("a", "In", "b", "c"), True),
        ({"matchLabels": {"a": "b"}}, expression("a", "Exists"), True),
        ({"matchLabels": {"a": "b"}}, expression("a", "NotIn", "b"), False),
        ({"matchLabels": {"a": "b"}}, expression("a", "NotIn", "c"), True),
        (expression("a", "In", "b", "c"), expression("a", "NotIn", "b"), True),
        ({"matchLabels": {"a": "b"}}, expression("a", "DoesNotExist"), False),
        (expression("a", "Exists"), expression("a", "Exists"), True),
        (expression("a", "Exists"), expression("a", "NotIn", "b"), True),
        (expression("a", "Exists"), expression("a", "DoesNotExist"), False),
        (expression("a", "NotIn", "b"), expression("a", "DoesNotExist"), True),
        (expression("a", "NotIn", "b"), expression("a", "NotIn", "c"), True),
        (expression("a", "DoesNotExist"), expression("a", "DoesNotExist"), True),
    ],
)
def test_overlapping_selectors_are_detected(first: Json, second: Json, expected: bool) -> None:
    one, other = PodScope(first), PodScope(second)
    assert loosely_overlap(one, other) is expected
    assert loosely_overlap(other, one) is expected


#: An empty selector matches no Pod of a budget.
_selectors = selectors.filter(lambda one: any(one.values()))


@pytest.mark.behaviour("PUB-128")
@given(_selectors, _selectors, label_maps)
def test_selectors_that_match_one_label_set_overlap(first: Json, second: Json, labels: Json) -> None:
    if compile_selector(first).matches(labels) and compile_selector(second).matches(labels):
        assert may_meet(PodScope(selector=first), PodScope(selector=second))


@pytest.mark.behaviour("PUB-128")
def test_budgets_that_can_match_the_same_pod_get_a_warning() -> None:
    wider = budget("wider", selector={"matchLabels": {"app": "web", "tier": "front"}})
    written = write(budget(), lookups=Lookups([wider]))
    assert written.warnings == ("Pods can match this PodUnavailableBudget and wider: the oldest budget applies",)
    apart = budget("apart", selector={"matchLabels": {"app": "db", "tier": "front"}})
    assert write(budget(), lookups=Lookups([apart])).warnings == ()


@pytest.mark.behaviour("PUB-128")
def test_a_target_whose_pods_match_a_selector_gets_a_warning() -> None:
    labels = {"shop": {"app": "web"}, "db": {"app": "db"}}
    shop, db = target("shop"), target("db")
    shop["metadata"]["name"], db["metadata"]["name"] = "by-target", "db"
    asked = Lookups([shop, db], labels)
    assert "and by-target:" in write(budget(), lookups=asked).warnings[0]
    assert "and chosen:" in write(shop, lookups=Lookups([budget("chosen")], labels)).warnings[0]
    # Two targets never overlap, so no workload is read.
    quiet = Lookups([db], labels)
    assert write(shop, lookups=quiet).warnings == ()
    assert quiet.asked == []
    many = Lookups([{**target(), "metadata": {"name": f"b{number}"}} for number in range(MAX_TARGETS + 1)])
    write(budget(), lookups=many)
    assert len(many.asked) == MAX_TARGETS


@pytest.mark.behaviour("MGR-164", "PUB-19", "PUB-128")
@pytest.mark.parametrize("same_keys", [True, False], ids=["conflicts", "overlaps"])
def test_a_long_selector_is_read_once_however_many_budgets_it_is_compared_with(same_keys: bool) -> None:
    values = [f"v{number}" for number in range(1_000)]
    more = {} if same_keys else {"matchLabels": {"other": "x"}}

    def steps(budgets: int) -> int:
        others = Lookups(budget(f"b{one}", selector={**more, **expression("a", "In", one)}) for one in values[:budgets])
        with cost.counted() as count:
            found = write(budget(selector=expression("a", "In", *values)), lookups=others)
        assert "bv0" in (found.message if same_keys else found.warnings[0])
        return count[0]

    assert steps(20) < 2 * steps(1)


@pytest.mark.behaviour("PUB-19")
def test_an_invalid_stored_selector_does_not_block_other_budgets() -> None:
    for selector in (expression("a", "Near", "b"), {"matchLabels": {"a": "b c"}}, {}):
        assert write(budget(), lookups=Lookups([budget("other", selector=selector)])).warnings == ()


@pytest.mark.behaviour("PUB-128")
def test_long_lists_of_budgets_are_shortened() -> None:
    others = [budget(f"b{i}", selector={"matchLabels": {"app": "web", f"k{i}": "v"}}) for i in range(9)]
    assert (
        write(budget(), lookups=Lookups(others))
        .warnings[0]
        .startswith("Pods can match this PodUnavailableBudget and b0, b1, b2, b3, b4 and 4 more:")
    )
