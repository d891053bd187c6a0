from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.kube.objects import Pod
from app.pods.readiness import (
    PRE_DELETE_HOOK,
    PRE_UPDATE_HOOK,
    NotReadyKey,
    initial_condition,
    message_of,
    needs_condition,
    not_ready_keys,
    ready_after,
    recreate_request,
    with_key,
    with_keys_changed,
    without_key,
)
from tests.kit import objects

NOW = datetime(2026, 11, 21, 3, 10, 17, tzinfo=UTC)
SEEN = {"uid": "u1", "resourceVersion": "7"}
OWNER = {"apiVersion": "apps.kruise.io/v1beta1", "kind": "CloneSet", "name": "web", "uid": "w", "controller": True}
OURS = {"ownerReferences": [OWNER]}
THEIRS = {"ownerReferences": [{**OWNER, "apiVersion": "workloads.example.com/v1"}]}
HELD = '[{"userAgent":"Lifecycle","key":"preUpdateHook"}]'


def pod(*conditions: dict[str, Any], gates: tuple[str, ...] = ("KruisePodReady",), **metadata: Any) -> Pod:
    spec = {"readinessGates": [{"conditionType": gate} for gate in gates]}
    return objects.pod(spec=spec, conditions=conditions, **{**SEEN, **metadata})


def condition(type_: str, status: str, message: str = "") -> dict[str, Any]:
    return {"type": type_, "status": status, "message": message}


READY = (condition("ContainersReady", "True"), condition("Ready", "True"))


@pytest.mark.parametrize(("given_pod", "wanted"), [
    pytest.param(pod(), True, id="gate, no condition"),
    pytest.param(pod(gates=()), False, id="no gate"),
    pytest.param(pod(gates=("example.com/ours",)), False, id="another gate"),
    pytest.param(pod(gates=("InPlaceUpdateReady",), **OURS), True, id="the gate of in-place updates"),
    pytest.param(pod(gates=("InPlaceUpdateReady",), **THEIRS), False, id="that gate, of another controller"),
    pytest.param(pod(gates=("InPlaceUpdateReady",)), False, id="that gate, without a controller"),
    pytest.param(pod(gates=("InPlaceUpdateReady",), annotations={"apps.kruise.io/inplace-update-state": "{}"}, **OURS),
     False, id="updated in place before"),
    pytest.param(pod(gates=("InPlaceUpdateReady",), annotations={"apps.kruise.io/inplace-update-grace": "{}"}, **OURS),
     False, id="about to be updated in place"),
    pytest.param(pod(condition("KruisePodReady", "True")), False, id="condition is there"),
    pytest.param(pod(condition("KruisePodReady", "False", HELD)), False, id="held by a key"),
    pytest.param(pod(deletionTimestamp="2026-11-21T03:10:17Z"), False, id="terminating"),
])  # fmt: skip
@pytest.mark.behaviour("PM-60")
def test_only_a_pod_awaiting_its_first_condition_gets_it(given_pod: Pod, wanted: bool) -> None:
    assert needs_condition(given_pod) is wanted


@pytest.mark.behaviour("PM-60")
def test_the_first_condition_is_true_and_nothing_else_changes() -> None:
    assert initial_condition(pod(*READY), NOW) == {
        "metadata": SEEN,
        "status": {
            "conditions": [{"type": "KruisePodReady", "status": "True", "lastTransitionTime": "2026-11-21T03:10:17Z"}]
        },
    }


@pytest.mark.behaviour("PM-45", "PM-60")
def test_both_first_conditions_come_in_one_write() -> None:
    both = pod(*READY, gates=("InPlaceUpdateReady", "KruisePodReady", "example.com/theirs"), **OURS)
    written = initial_condition(both, NOW)["status"]["conditions"]
    assert [(entry["type"], entry["status"]) for entry in written] == [
        ("KruisePodReady", "True"),
        ("InPlaceUpdateReady", "True"),
    ]


@pytest.mark.behaviour("PM-62", "PM-64")
def test_reasons_are_added_and_removed_in_one_write() -> None:
    held = pod(condition("KruisePodReady", "False", HELD))
    patch = with_keys_changed(held, (PRE_DELETE_HOOK,), (PRE_UPDATE_HOOK,), NOW)
    assert patch is not None
    assert patch["status"]["conditions"][0]["status"] == "False"
    assert patch["status"]["conditions"][0]["message"] == '[{"userAgent":"Lifecycle","key":"preDeleteHook"}]'


@pytest.mark.behaviour("PM-61", "PM-66")
def test_the_message_lists_keys_by_user_agent_and_then_by_key() -> None:
    keys = [PRE_UPDATE_HOOK, PRE_DELETE_HOOK, recreate_request("shop", "restart")]
    assert message_of(keys) == (
        '[{"userAgent":"ContainerRecreateRequest","key":"shop/restart"},'
        '{"userAgent":"Lifecycle","key":"preDeleteHook"},{"userAgent":"Lifecycle","key":"preUpdateHook"}]'
    )
    assert message_of([]) == "[]"


@pytest.mark.parametrize("message", ["", "no json", "null", "{}", '["a"]', '[{"key":3}]', "[1", "\ud800"])
@pytest.mark.behaviour("PM-65")
def test_an_unreadable_condition_message_blocks_no_pod(message: str) -> None:
    assert not_ready_keys(message) == ()


def conditions_of(patch: Any) -> list[dict[str, Any]]:
    assert patch["metadata"] == SEEN
    found: list[dict[str, Any]] = patch["status"]["conditions"]
    return found


@pytest.mark.behaviour("PM-62", "PM-63", "PM-41", "PM-66")
def test_a_key_sets_the_condition_and_ready_to_false_in_one_write() -> None:
    own, ready = conditions_of(with_key(pod(condition("KruisePodReady", "True"), *READY), PRE_UPDATE_HOOK, NOW))
    assert own == {
        "type": "KruisePodReady",
        "status": "False",
        "message": HELD,
        "lastTransitionTime": "2026-11-21T03:10:17Z",
    }
    assert ready == {
        "type": "Ready",
        "status": "False",
        "reason": "ReadinessGatesNotReady",
        "message": 'the status of pod readiness gate "KruisePodReady" is not "True", but False',
        "lastTransitionTime": "2026-11-21T03:10:17Z",
    }


@pytest.mark.behaviour("PM-62", "PM-63", "PM-65")
@pytest.mark.parametrize("conditions", [(), (condition("KruisePodReady", "True", HELD), *READY)])
def test_a_key_writes_false_unless_the_condition_is_false(conditions: tuple[dict[str, Any], ...]) -> None:
    own, *_ = conditions_of(with_key(pod(*conditions), PRE_UPDATE_HOOK, NOW))
    assert (own["status"], own["message"]) == ("False", HELD)


@pytest.mark.parametrize(("change", "given_pod"), [
    pytest.param(with_key, pod(*READY, gates=()), id="no gate"),
    pytest.param(with_key, pod(condition("KruisePodReady", "False", HELD), *READY), id="the key is there"),
    pytest.param(without_key, pod(condition("KruisePodReady", "False", HELD), gates=()), id="removed without gate"),
    pytest.param(without_key, pod(), id="removed without condition"),
    pytest.param(without_key, pod(condition("KruisePodReady", "True", "[]")), id="removed without such a key"),
])  # fmt: skip
@pytest.mark.behaviour("PM-62", "PM-64")
def test_a_change_without_effect_is_not_written(change: Any, given_pod: Pod) -> None:
    assert change(given_pod, PRE_UPDATE_HOOK, NOW) is None


@pytest.mark.behaviour("PM-64", "PM-66")
def test_a_pod_is_ready_again_without_keys() -> None:
    both = message_of([PRE_UPDATE_HOOK, recreate_request("shop", "restart")])
    held_twice = pod(condition("KruisePodReady", "False", both), *READY)
    (still,) = conditions_of(without_key(held_twice, PRE_UPDATE_HOOK, NOW))
    assert still["status"] == "False"
    assert not_ready_keys(still["message"]) == (recreate_request("shop", "restart"),)
    held_once = pod(condition("KruisePodReady", "False", still["message"]), *READY)
    (free,) = conditions_of(without_key(held_once, recreate_request("shop", "restart"), NOW))
    assert free == {
        "type": "KruisePodReady",
        "status": "True",
        "message": "[]",
        "lastTransitionTime": "2026-11-21T03:10:17Z",
    }


GATES = ("KruisePodReady", "InPlaceUpdateReady", "example.com/lb")
IS_FALSE = 'the status of pod readiness gate "{}" is not "True", but {}'
IS_MISSING = 'corresponding condition of pod readiness gate "{}" does not exist.'


@pytest.mark.parametrize(("conditions", "message"), [
    pytest.param((condition("InPlaceUpdateReady", "Unknown"), condition("example.com/lb", "True"), *READY),
     ", ".join([IS_FALSE.format("KruisePodReady", "False"), IS_FALSE.format("InPlaceUpdateReady", "Unknown")]),
     id="in the order of the gates"),
    pytest.param((condition("InPlaceUpdateReady", "True"), *READY), ", ".join([IS_FALSE.format("KruisePodReady",
     "False"), IS_MISSING.format("example.com/lb")]), id="a missing condition"),
])  # fmt: skip
@pytest.mark.behaviour("PM-41")
def test_the_ready_message_names_the_closed_gates(conditions: tuple[dict[str, Any], ...], message: str) -> None:
    ready = ready_after(pod(*conditions, gates=GATES), "KruisePodReady", "False", NOW)
    assert ready is not None
    assert ready["message"] == message


@pytest.mark.parametrize("given_pod", [
    pytest.param(pod(condition("ContainersReady", "True")), id="Ready was never reported"),
    pytest.param(pod(condition("Ready", "True")), id="ContainersReady was never reported"),
    pytest.param(pod(condition("ContainersReady", "False"), condition("Ready", "False")), id="containers not ready"),
    pytest.param(pod(condition("ContainersReady", "True"), condition("Ready", "False", "first gate")),
     id="already False"),
])  # fmt: skip
@pytest.mark.behaviour("PM-40", "PM-41")
def test_ready_is_otherwise_left_to_the_kubelet(given_pod: Pod) -> None:
    assert ready_after(given_pod, "KruisePodReady", "False", NOW) is None


@pytest.mark.behaviour("PM-41")
def test_ready_becomes_true_when_gates_and_containers_are_ready() -> None:
    down = pod(condition("ContainersReady", "True"), condition("Ready", "False", "x"))
    ready = ready_after(down, "KruisePodReady", "True", NOW)
    assert ready is not None
    assert (ready["status"], ready["reason"], ready["message"]) == ("True", None, None)


@pytest.mark.behaviour("PM-41")
def test_many_gates_do_not_search_the_conditions_each(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[str] = []
    search = Pod.condition

    def counting(given_pod: Pod, type_: str) -> Any:
        searched.append(type_)
        return search(given_pod, type_)

    monkeypatch.setattr(Pod, "condition", counting)
    types = [f"example.com/{number}" for number in range(1000)]
    conditions = [condition(type_, "True") for type_ in types]
    assert ready_after(pod(*conditions, *READY, gates=(*types,)), types[0], "True", NOW) is None
    assert len(searched) < 10


keys = st.builds(NotReadyKey, st.text(max_size=5), st.text(max_size=5))


@given(st.lists(st.tuples(st.booleans(), keys), max_size=12))
@pytest.mark.behaviour("PM-61", "PM-62", "PM-64", "PM-66")
def test_the_condition_is_false_exactly_while_a_key_holds_the_pod(steps: list[tuple[bool, NotReadyKey]]) -> None:
    state = condition("KruisePodReady", "True")
    holding: set[NotReadyKey] = set()
    for add, key in steps:
        patch = (with_key if add else without_key)(pod(state), key, NOW)
        holding = holding | {key} if add else holding - {key}
        if patch is not None:
            (state,) = conditions_of(patch)
        assert state["status"] == ("False" if holding else "True")
        assert set(not_ready_keys(state["message"])) == holding
