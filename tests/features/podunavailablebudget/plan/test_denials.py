"""Whether a Pod may be deleted, evicted, updated or resized: rule by rule; the first match wins."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.features.podunavailablebudget.index import Claims
from app.features.podunavailablebudget.kind import ProtectedOperation
from app.features.podunavailablebudget.plan.denials import Judgement, Outcome, judge, without_budget
from app.features.podunavailablebudget.plan.pods import (
    Workload,
    is_consistent,
    is_healthy,
    related_annotations,
    related_budget,
)
from app.features.podunavailablebudget.pod_admission import update_operation
from app.features.podunavailablebudget.types import PodUnavailableBudget
from app.kube.rulings import Ruling
from app.kube.store import Store, key_of
from tests.features.podunavailablebudget.samples import NOW, Json, ago, budget, pod, raw_pod
from tests.fuzz.cost import counted

DELETE, UPDATE = ProtectedOperation.DELETE, ProtectedOperation.UPDATE
EVICT, RESIZE = ProtectedOperation.EVICT, ProtectedOperation.RESIZE
DIGEST = "nginx@sha256:" + "a" * 64
FULL = "docker.io/library/" + DIGEST


def ruled(
    given_: PodUnavailableBudget | None,
    operation: ProtectedOperation = DELETE,
    *,
    resize_is_update: bool = True,
    **of: Any,
) -> Ruling[PodUnavailableBudget, Judgement]:
    return judge(given_, pod(**of), operation, NOW, resize_is_update=resize_is_update)


# ---- by the Pod alone


@pytest.mark.behaviour("PUB-30")
def test_the_budget_of_a_pod_is_in_its_annotations_and_the_newer_one_wins() -> None:
    assert related_budget({"pub.kruise.io/related-pub": "a", "kruise.io/related-pub": "b"}) == "a"
    assert related_budget({"kruise.io/related-pub": "b"}) == "b"
    assert related_budget({}) == ""
    assert related_budget(related_annotations("x")) == "x"


@pytest.mark.behaviour("PUB-64")
@pytest.mark.parametrize("value", ["1", "t", "T", "true", "True", "TRUE", "", "yes", "tRUE", "0", "false", " true"])
def test_a_pod_can_opt_out_with_the_values_that_go_reads_as_true(value: str) -> None:
    found = without_budget(pod(annotations={"pub.kruise.io/no-protect": value}), vertical_scaling=False)
    assert (found is not None and found.allowed) is (value in ("1", "t", "T", "true", "True", "TRUE"))


@pytest.mark.behaviour("PUB-40", "PUB-70")
@pytest.mark.parametrize(
    "of",
    [
        {"ready": False},
        {"phase": "Pending"},
        {"phase": "Succeeded"},
        {"deleting": True},
        {"labels": {"unavailable-pod.kruise.io/x": ""}},
        {"image": DIGEST, "image_id": "docker.io/library/nginx@sha256:" + "b" * 64},
    ],
)
def test_an_uncounted_pod_may_be_deleted(of: Json) -> None:
    assert not is_healthy(pod(**of))
    found = without_budget(pod(**of), vertical_scaling=False)
    assert found is not None
    assert found.allowed


@pytest.mark.behaviour("PUB-41")
@pytest.mark.parametrize("image_id", [FULL, "docker-pullable://" + FULL, DIGEST])
def test_a_digest_is_compared_with_the_running_image(image_id: str) -> None:
    assert is_consistent(pod(image=DIGEST, running="nginx:1", image_id=image_id))


@pytest.mark.behaviour("PUB-41")
def test_without_a_digest_the_image_name_decides() -> None:
    own = "sha256:" + "c" * 64
    assert is_consistent(pod(image=DIGEST, running=FULL, image_id=own))
    assert not is_consistent(pod(image=DIGEST, running="docker.io/library/nginx:1", image_id=own))


def sidecar_state(image_id: str) -> Json:
    text = '{"s":{"revision":"1","lastContainerStatuses":{"main":{"imageID":"' + image_id + '"}}}}'
    return {"kruise.io/sidecarset-inplace-update-state": text}


@pytest.mark.behaviour("PUB-41")
@pytest.mark.parametrize(
    ("image", "running", "before", "consistent"),
    [
        ("nginx:2", "nginx:1", "old", False),
        ("nginx:2", "nginx:1", "other", True),
        ("nginx:2", "docker.io/library/nginx:2", "old", True),
        ("nginx:1", "nginx:1", "old", True),
    ],
)
def test_a_pending_sidecar_update_makes_a_pod_inconsistent(
    image: str, running: str, before: str, consistent: bool
) -> None:
    asked = pod(image=image, running=running, image_id="old", annotations=sidecar_state(before))
    assert is_consistent(asked) is consistent


@pytest.mark.behaviour("PUB-41")
def test_an_update_in_place_makes_a_pod_inconsistent_until_it_is_done() -> None:
    grace = {
        "apps.kruise.io/inplace-update-grace": '{"revision":"r","containerImages":{"main":"nginx:2"},"graceSeconds":5}'
    }
    assert not is_consistent(pod(annotations=grace))
    state = (
        '{"revision":"r","updateTimestamp":"2026-01-01T00:00:00Z","lastContainerStatuses":{"main":{"imageID":"old"}}}'
    )
    updating = {"apps.kruise.io/inplace-update-state": state}
    assert not is_consistent(pod(image="nginx:2", running="nginx:1", image_id="old", annotations=updating))
    assert is_consistent(pod(image="nginx:2", running="nginx:2", image_id="new", annotations=updating))


UNREADABLE = ["", "x", "[]", "{", "null", "[" * 100_000]
STATES = [*UNREADABLE, '{"s":1}', '{"s":{"lastContainerStatuses":[]}}']


@pytest.mark.behaviour("PUB-41")
@pytest.mark.parametrize(
    ("key", "text"),
    [
        *(("kruise.io/sidecarset-inplace-update-state", text) for text in STATES),
        *(("apps.kruise.io/inplace-update-state", text) for text in STATES),
        *(("apps.kruise.io/inplace-update-grace", text) for text in (*UNREADABLE, '{"containerImages":1}')),
    ],
)
def test_an_unreadable_annotation_is_ignored(key: str, text: str) -> None:
    """Otherwise a user who can annotate a Pod could exempt it from its budget."""
    assert is_consistent(pod(annotations={key: text}))


# ---- its budget


@pytest.mark.behaviour("PUB-64")
def test_some_deletions_need_no_grant() -> None:
    used_up = {"allowed": 0}
    assert ruled(None).answer.allowed  # 4
    assert ruled(budget(**used_up, ignoredPodSelector={"matchLabels": {"app": "web"}})).answer.allowed  # 5
    assert ruled(budget(**used_up, desired=0)).answer.allowed  # 6
    assert ruled(budget(**used_up, protectOperations=["EVICT"])).answer.allowed  # 7
    assert ruled(budget(**used_up, disrupted={"web-0": ago(1)})).answer.allowed  # 8
    assert ruled(budget(**used_up, unavailable={"web-0": ago(1)})).answer.allowed  # 8
    for given_ in (None, budget(desired=0), budget(disrupted={"web-0": ago(1)})):
        found = ruled(given_)
        assert found.changed is None
        # An allowance without a write is checked against the API server.
        assert not found.provisional


@pytest.mark.behaviour("PUB-64")
@pytest.mark.parametrize("selector", [None, {}, {"matchLabels": {"app": "other"}}, {"matchLabels": {"a": "!"}}])
def test_an_empty_ignore_selector_ignores_nothing(selector: Json | None) -> None:
    assert ruled(budget(allowed=0, ignoredPodSelector=selector)).answer.outcome is Outcome.REFUSED


@pytest.mark.behaviour("PUB-64")
def test_an_old_grant_is_charged_again() -> None:
    assert ruled(budget(allowed=0, disrupted={"web-0": ago(21)})).answer.outcome is Outcome.REFUSED
    assert ruled(budget(allowed=0, unavailable={"web-0": ago(11)})).answer.outcome is Outcome.REFUSED
    assert ruled(budget(allowed=0, disrupted={"web-0": "9999-01-01T00:00:00Z"})).answer.outcome is Outcome.REFUSED


@pytest.mark.behaviour("PUB-64")
@pytest.mark.parametrize("field", ["disrupted", "unavailable"])
@pytest.mark.parametrize(
    ("made", "outcome"),
    [
        pytest.param(60, Outcome.ALLOWED, id="this very Pod"),
        pytest.param(5, Outcome.ALLOWED, id="in the same second"),
        pytest.param(4, Outcome.REFUSED, id="one created since"),
    ],
)
def test_a_grant_does_not_apply_to_the_next_pod_of_the_name(field: str, made: int, outcome: Outcome) -> None:
    used_up = budget(allowed=0, **{field: {"web-0": ago(5)}})
    assert ruled(used_up, made=ago(made)).answer.outcome is outcome


@pytest.mark.behaviour("PUB-65")
@pytest.mark.parametrize(
    ("listed", "resize_is_update", "protected"),
    [
        (None, True, {DELETE, UPDATE, EVICT, RESIZE}),
        (None, False, {DELETE, UPDATE, EVICT}),
        (["UPDATE"], True, {UPDATE, RESIZE}),
        (["UPDATE"], False, {UPDATE}),
        (["DELETE"], True, {DELETE}),
        (["RESIZE"], False, {RESIZE}),
    ],
)
def test_only_protected_operations_need_a_grant(
    listed: list[str] | None, resize_is_update: bool, protected: set[ProtectedOperation]
) -> None:
    given_ = budget(allowed=0, protectOperations=listed)
    refused = {
        op for op in ProtectedOperation if not ruled(given_, op, resize_is_update=resize_is_update).answer.allowed
    }
    assert refused == protected


@pytest.mark.behaviour("PUB-67", "PUB-123")
@pytest.mark.parametrize(
    ("operation", "field"),
    [(DELETE, "disrupted_pods"), (EVICT, "disrupted_pods"), (UPDATE, "unavailable_pods"), (RESIZE, "unavailable_pods")],
)
def test_a_grant_is_charged_and_recorded(operation: ProtectedOperation, field: str) -> None:
    found = ruled(budget(allowed=2, disrupted={"a": ago(1)}), operation)
    assert found.answer.allowed
    assert found.changed is not None
    status = found.changed.status
    assert status is not None
    assert status.unavailable_allowed == 1
    assert getattr(status, field)["web-0"] == ago(0)
    assert (status.disrupted_pods or {})["a"] == ago(1)


@pytest.mark.behaviour("PUB-67", "PUB-130")
def test_a_refusal_has_the_budget_and_its_numbers() -> None:
    found = ruled(budget(allowed=0, desired=9, current=8))
    assert found.answer.message == (
        'podunavailablebudget.policy.kruise.io "shop" is forbidden: pub unavailable allowed is negative '
        "(allowed 0, desired 9, current 8)"
    )
    assert found.changed is None


@pytest.mark.behaviour("PUB-67")
def test_too_many_pending_grants_block_more() -> None:
    many = {f"p{i}": ago(1) for i in range(2000)}
    assert ruled(budget(allowed=9, disrupted=many)).answer.allowed
    found = ruled(budget(allowed=9, disrupted=many, unavailable={"x": ago(1)}))
    assert found.answer.outcome is Outcome.REFUSED
    assert "2001 grants" in found.answer.message


@pytest.mark.behaviour("PUB-121")
@pytest.mark.parametrize("given_", [budget(observed=None), budget(generation=2, desired=0, allowed=5)])
def test_a_status_of_another_generation_allows_nothing(given_: PodUnavailableBudget) -> None:
    found = ruled(given_)
    assert found.answer.outcome is Outcome.NOT_COMPUTED
    assert "not computed yet" in found.answer.message
    assert found.changed is None


@pytest.mark.behaviour("PUB-85")
@given(
    st.integers(0, 20), st.lists(st.tuples(st.integers(0, 30), st.sampled_from(list(ProtectedOperation))), max_size=60)
)
def test_sequential_grants_respect_the_limit(allowed: int, asked: list[Any]) -> None:
    now = budget(allowed=allowed)
    granted = set()
    for number, operation in asked:
        found = ruled(now, operation, name=f"p{number}")
        now = found.changed or now
        if found.answer.allowed:
            granted.add(number)
    assert len(granted) <= allowed
    assert now.status is not None
    assert now.status.unavailable_allowed == allowed - len(granted)


# ---- what an update is


def changed(obj: Json, *path: Any, to: Any) -> Json:
    copied = copy.deepcopy(obj)
    place = copied
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = to
    return copied


RESOURCES = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "2Gi"}}
MAIN = ("spec", "containers", 0)


@pytest.mark.behaviour("PUB-62")
def test_a_metadata_change_is_free() -> None:
    old = raw_pod()
    assert update_operation(old, changed(old, "metadata", "labels", to={"x": "y"})) is None
    assert update_operation(old, changed(old, "metadata", "annotations", to={})) is None
    assert update_operation(old, changed(old, *MAIN, "image", to="nginx:2")) is UPDATE


@pytest.mark.behaviour("PUB-62")
def test_marking_a_pod_unavailable_is_an_update() -> None:
    old, marked = raw_pod(), raw_pod(labels={"unavailable-pod.kruise.io/x": "1"})
    assert update_operation(old, marked) is UPDATE
    # For a Pod that is already marked, neither another mark nor the removal of its own is a disruption.
    assert update_operation(marked, raw_pod(labels={"unavailable-pod.kruise.io/y": "1"})) is None
    assert update_operation(marked, old) is None


@pytest.mark.behaviour("PUB-66")
@pytest.mark.parametrize(
    ("path", "to", "operation"),
    [
        (("requests", "cpu"), "500m", RESIZE),
        (("limits", "memory"), "3Gi", RESIZE),
        (("requests",), {"cpu": "1"}, RESIZE),
        (("limits", "nvidia.com/gpu"), "1", UPDATE),
        (("claims",), [{"name": "c"}], UPDATE),
    ],
)
def test_a_change_to_only_cpu_or_memory_is_a_resize(path: tuple[str, ...], to: Any, operation: Any) -> None:
    old = raw_pod(resources=RESOURCES)
    assert update_operation(old, changed(old, *MAIN, "resources", *path, to=to)) is operation


@pytest.mark.behaviour("PUB-66")
def test_a_restart_or_a_larger_change_is_an_update() -> None:
    old = raw_pod(resources=RESOURCES)
    new = changed(old, *MAIN, "resources", "requests", "cpu", to="500m")
    for policy, expected in (("RestartContainer", UPDATE), ("NotRequired", RESIZE), ("", RESIZE)):
        of_cpu = [{"resourceName": "cpu", "restartPolicy": policy}]
        pair = [changed(each, *MAIN, "resizePolicy", to=of_cpu) for each in (old, new)]
        assert update_operation(*pair) is expected
    of_memory = [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]
    same = [changed(each, *MAIN, "resizePolicy", to=of_memory) for each in (old, new)]
    assert update_operation(*same) is RESIZE
    assert update_operation(old, changed(new, *MAIN, "image", to="nginx:2")) is UPDATE
    assert update_operation(old, changed(new, "metadata", "labels", to={"unavailable-pod.kruise.io/x": ""})) is UPDATE
    # The QoS class changes from BestEffort to Burstable, and below from Guaranteed to Burstable.
    assert update_operation(raw_pod(), old) is UPDATE
    equal = raw_pod(resources={"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1", "memory": "1Gi"}})
    assert update_operation(equal, changed(equal, *MAIN, "resources", "limits", "cpu", to="2")) is UPDATE
    for static in ({"kubernetes.io/config.mirror": "x"}, {"kubernetes.io/config.source": "file"}):
        pair = [changed(each, "metadata", "annotations", to=static) for each in (old, new)]
        assert update_operation(*pair) is UPDATE


def test_long_pods_are_not_compared_value_by_value() -> None:
    """Reviews of other Pods wait for the comparison."""
    old = changed(raw_pod(resources=RESOURCES), *MAIN, "args", to=["x"] * 5_000)
    new = copy.deepcopy(changed(old, *MAIN, "resources", "requests", "cpu", to="500m"))
    with counted() as count:
        assert update_operation(old, new) is RESIZE
    assert count[0] < 1_000


_hostile = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["spec", "metadata", "labels", "containers", "resources", "limits", "cpu"]), inner
        )
    ),
    max_leaves=12,
)
_hostile_pods = st.dictionaries(st.sampled_from(["spec", "metadata", "status"]), _hostile)


@given(_hostile_pods, _hostile_pods)
def test_any_review_of_an_update_is_classified(old: Json, new: Json) -> None:
    assert update_operation(old, new) in (None, UPDATE, RESIZE)
    assert update_operation(old, old) is None


# ---- which budget


def named(name: str, created: str = "2026-01-01T00:00:00Z", **spec: Any) -> PodUnavailableBudget:
    given_ = budget(**{"selector": None, **spec})
    metadata = given_.metadata.model_copy(update={"name": name, "creation_timestamp": created, "uid": name})
    return given_.model_copy(update={"metadata": metadata})


def budget_for(budgets: Iterable[PodUnavailableBudget], labels: Mapping[str, str], owners: Sequence[Workload]) -> str:
    """Return the budget that a Pod belongs to, given the budgets of its namespace."""
    store: Store[PodUnavailableBudget] = Store()
    claims = Claims(store)
    for one in budgets:
        store.put(one)
        namespace = one.metadata.namespace
    return claims.budget_for(namespace, labels, owners)


SHOP = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "shop"}
CHAIN = (Workload("apps", "ReplicaSet", "shop-1"), Workload("apps", "Deployment", "shop"))


@pytest.mark.behaviour("PUB-31")
def test_any_workload_above_the_pod_matches_a_target_in_any_version() -> None:
    budgets = [named("a", targetRef={**SHOP, "apiVersion": "apps/v1beta1"})]
    assert budget_for(budgets, {}, CHAIN) == "a"
    assert budget_for(budgets, {}, CHAIN[:1]) == ""
    assert budget_for([named("a", targetRef={**SHOP, "apiVersion": "example.com/v1"})], {}, CHAIN) == ""


@pytest.mark.behaviour("PUB-31")
@pytest.mark.parametrize("selector", [None, {}, {"matchLabels": {"a": "!"}}])
def test_an_empty_selector_matches_no_pod(selector: Json | None) -> None:
    assert budget_for([named("a", selector=selector)], {"app": "web"}, CHAIN) == ""


@pytest.mark.behaviour("PUB-128", "PUB-21")
def test_of_several_budgets_the_oldest_counts_and_then_the_first_by_name() -> None:
    by_label = {"selector": {"matchLabels": {"app": "web"}}}
    young = named("a", "2026-01-02T00:00:00Z", **by_label)
    old = [named("c", targetRef=SHOP), named("b", **by_label)]
    assert budget_for([young, *old], {"app": "web"}, CHAIN) == "b"
    assert budget_for([young, *old], {"app": "other"}, CHAIN) == "c"
    assert budget_for([young], {"app": "web"}, ()) == "a"


@pytest.mark.behaviour("PUB-31")
def test_a_changed_or_deleted_budget_no_longer_covers_its_pods() -> None:
    store: Store[PodUnavailableBudget] = Store()
    claims = Claims(store)
    first, other = named("a", selector={"matchLabels": {"app": "web"}}), named("a", targetRef=SHOP)
    other = other.model_copy(update={"metadata": other.metadata.model_copy(update={"resource_version": "later"})})
    namespace = first.metadata.namespace
    store.put(first)
    assert (claims.budget_for(namespace, {"app": "web"}, ()), claims.has_targets(namespace)) == ("a", False)
    store.put(other)
    assert (claims.budget_for(namespace, {"app": "web"}, ()), claims.has_targets(namespace)) == ("", True)
    assert claims.budget_for(namespace, {}, CHAIN) == "a"
    store.remove(key_of(other))
    assert (claims.budget_for(namespace, {}, CHAIN), claims.has_targets(namespace), bool(claims)) == ("", False, False)
    assert claims._places == {}
