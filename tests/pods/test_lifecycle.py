from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from app.kube.objects import Pod
from app.pods.lifecycle import (
    Hook,
    Lifecycle,
    LifecycleState,
    UpdateAction,
    is_all_hooked,
    is_hooked,
    may_cancel_deletion,
    next_state,
    readiness_patch,
    state_patch,
    update_action,
)
from tests.kit import objects

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
STATE, TIME = "lifecycle.apps.kruise.io/state", "lifecycle.apps.kruise.io/timestamp"
HOOK = Hook({"hold": "true"}, ("example.com/a", "example.com/b"), mark_not_ready=True)
EMPTY = Hook()


def pod(state: str = "", labels: Any = None, finalizers: Any = (), node: str = "n", message: str = "") -> Pod:
    condition = {"type": "KruisePodReady", "status": "False" if message else "True", "message": message}
    metadata = {"labels": {**({STATE: state} if state else {}), **(labels or {})}, "finalizers": list(finalizers)}
    gates = {"readinessGates": [{"conditionType": "KruisePodReady"}]}
    own = {"namespace": None, "uid": "u1", "resourceVersion": "7"}
    return objects.pod(node=node, spec=gates, conditions=[condition], **own, **metadata)


BOTH = ("example.com/a", "example.com/b")


@pytest.mark.parametrize(("hook", "given", "hooked", "all_hooked"), [
    pytest.param(None, pod(), False, False, id="no hook"),
    pytest.param(EMPTY, pod(), False, True, id="an empty hook"),
    pytest.param(HOOK, pod(), False, False, id="nothing on the Pod"),
    pytest.param(HOOK, pod(labels={"hold": "true"}), True, False, id="the label"),
    pytest.param(HOOK, pod(labels={"hold": "no"}), False, False, id="another value"),
    pytest.param(HOOK, pod(finalizers=BOTH[:1]), True, False, id="one finalizer"),
    pytest.param(HOOK, pod(labels={"hold": "true"}, finalizers=BOTH), True, True, id="all"),
])  # fmt: skip
@pytest.mark.behaviour("PM-70")
def test_a_hook_holds_a_pod_with_its_labels_or_finalizers(
    hook: Hook | None, given: Pod, hooked: bool, all_hooked: bool
) -> None:
    assert (is_hooked(hook, given), is_all_hooked(hook, given)) == (hooked, all_hooked)


class Counted(str):
    """A text that counts how often any of its kind is hashed."""

    __slots__ = ()
    hashed = 0

    def __hash__(self) -> int:
        Counted.hashed += 1
        return str.__hash__(self)


@pytest.mark.behaviour("PM-70")
def test_a_long_hook_is_not_read_again_for_each_pod() -> None:
    names = [Counted(f"example.com/{number}") for number in range(1000)]
    hook, given = Hook(dict.fromkeys(names, "x"), tuple(names)), pod(labels={"a": "x"}, finalizers=BOTH)
    before = Counted.hashed
    assert (is_hooked(hook, given), is_all_hooked(hook, given)) == (False, False)
    assert Counted.hashed == before


@pytest.mark.behaviour("PM-70", "PM-3")
def test_hooks_are_parsed_from_json() -> None:
    read = Lifecycle.of({"preDelete": {"finalizersHandler": ["f"], "markPodNotReady": True}, "inPlaceUpdate": {}})
    assert read == Lifecycle(None, EMPTY, Hook({}, ("f",), mark_not_ready=True))
    assert Lifecycle.of(None) is None
    assert Lifecycle.of({}) == Lifecycle()


S = LifecycleState
UPDATE = Lifecycle(in_place_update=Hook({"hold": "true"}))
HELD = {"hold": "true"}


@pytest.mark.parametrize(("given", "lifecycle", "at_revision", "complete", "then"), [
    pytest.param(pod(S.PREPARING_NORMAL), None, True, True, S.NORMAL, id="scheduled"),
    pytest.param(pod(S.PREPARING_NORMAL, node=""), None, True, True, None, id="not scheduled"),
    pytest.param(pod(S.PREPARING_NORMAL, HELD, node=""), Lifecycle(Hook(HELD)), True, True, S.NORMAL,
     id="preNormal satisfied"),
    pytest.param(pod(S.PREPARING_NORMAL), Lifecycle(Hook(HELD)), True, True, None, id="preNormal not satisfied"),
    pytest.param(pod(S.PREPARING_UPDATE), UPDATE, False, True, None, id="waits for the hook"),
    pytest.param(pod(S.PREPARING_UPDATE), UPDATE, True, True, S.UPDATED, id="rolled back while waiting"),
    pytest.param(pod(S.PREPARING_UPDATE, HELD), UPDATE, True, True, S.NORMAL, id="rolled back, hook still on"),
    pytest.param(pod(S.UPDATING), UPDATE, True, False, None, id="not complete"),
    pytest.param(pod(S.UPDATING), UPDATE, True, True, S.UPDATED, id="complete, hook not back"),
    pytest.param(pod(S.UPDATING, HELD), UPDATE, True, True, S.NORMAL, id="complete, hook back"),
    pytest.param(pod(S.UPDATING), None, True, True, S.NORMAL, id="complete, no lifecycle"),
    pytest.param(pod(S.UPDATING), Lifecycle(), True, True, S.UPDATED, id="lifecycle without this hook"),
    pytest.param(pod(S.UPDATED), UPDATE, True, True, None, id="hook not back"),
    pytest.param(pod(S.UPDATED, HELD), UPDATE, True, True, S.NORMAL, id="hook back"),
    pytest.param(pod(S.UPDATED), Lifecycle(), True, True, S.NORMAL, id="hook gone"),
    pytest.param(pod(S.UPDATED), None, True, True, S.NORMAL, id="lifecycle gone"),
    pytest.param(pod(S.PREPARING_DELETE, HELD), UPDATE, True, True, None, id="preparing deletion"),
    pytest.param(pod(S.NORMAL), UPDATE, True, True, None, id="normal"),
    pytest.param(pod(), UPDATE, True, True, None, id="without state"),
])  # fmt: skip
@pytest.mark.behaviour("PM-74", "PM-75", "PM-76", "PM-77")
def test_each_lifecycle_state_has_its_successor(
    given: Pod, lifecycle: Any, at_revision: bool, complete: bool, then: Any
) -> None:
    assert next_state(given, lifecycle, at_update_revision=at_revision, update_complete=complete) == then


@pytest.mark.parametrize(("state", "labels", "hook", "action"), [
    ("", {}, None, UpdateAction.START),
    ("", HELD, UPDATE.in_place_update, UpdateAction.PREPARE),
    (S.NORMAL, {}, UPDATE.in_place_update, UpdateAction.START),
    (S.PREPARING_NORMAL, HELD, UPDATE.in_place_update, UpdateAction.PREPARE),
    (S.PREPARING_UPDATE, HELD, UPDATE.in_place_update, UpdateAction.WAIT),
    (S.PREPARING_UPDATE, {}, UPDATE.in_place_update, UpdateAction.START),
    (S.UPDATING, HELD, UPDATE.in_place_update, UpdateAction.START),
    (S.UPDATED, HELD, UPDATE.in_place_update, UpdateAction.REARM),
    (S.UPDATED, {}, None, UpdateAction.LATER),
    (S.PREPARING_DELETE, {}, None, UpdateAction.REFUSE),
    ("Nonsense", {}, None, UpdateAction.REFUSE),
])  # fmt: skip
@pytest.mark.behaviour("PM-55", "PM-73")
def test_an_update_waits_for_the_hook_of_a_pod(
    state: str, labels: Any, hook: Hook | None, action: UpdateAction
) -> None:
    assert update_action(pod(state, labels), hook) is action


@pytest.mark.behaviour("PM-71", "PM-73")
def test_state_and_time_are_written_together_and_only_once() -> None:
    assert state_patch(pod(S.UPDATING), S.UPDATING, NOW) is None
    assert state_patch(pod(), S.NORMAL, NOW) == {
        "metadata": {"uid": "u1", "labels": {STATE: "Normal"}, "annotations": {TIME: "2026-01-02T03:04:05Z"}}
    }
    rearmed = state_patch(pod(S.UPDATED, finalizers=BOTH[:1]), S.PREPARING_UPDATE, NOW, rearm=HOOK)
    assert rearmed is not None
    assert rearmed["metadata"]["labels"] == {"hold": "true", STATE: "PreparingUpdate"}
    assert rearmed["metadata"]["finalizers"] == ["example.com/b"]


def _key(name: str) -> str:
    return f'{{"userAgent":"Lifecycle","key":"{name}"}}'


UPDATE_KEY, DELETE_KEY = _key("preUpdateHook"), _key("preDeleteHook")
MARKED = Lifecycle(in_place_update=HOOK, pre_delete=HOOK)


@pytest.mark.parametrize(("state", "lifecycle", "before", "after"), [
    pytest.param(S.PREPARING_DELETE, MARKED, "", f"[{DELETE_KEY}]", id="deletion is prepared"),
    pytest.param(S.PREPARING_DELETE, Lifecycle(pre_delete=EMPTY), "", None, id="without mark"),
    pytest.param(S.PREPARING_UPDATE, MARKED, "", f"[{UPDATE_KEY}]", id="update is prepared"),
    pytest.param(S.PREPARING_UPDATE, MARKED, f"[{UPDATE_KEY}]", None, id="already written"),
    pytest.param(S.UPDATED, MARKED, f"[{UPDATE_KEY}]", "[]", id="updated"),
    pytest.param(S.NORMAL, MARKED, f"[{UPDATE_KEY}]", "[]", id="straight back to normal"),
    pytest.param(S.NORMAL, None, f"[{UPDATE_KEY}]", "[]", id="hooks removed"),
    pytest.param(S.NORMAL, MARKED, f"[{DELETE_KEY}]", "[]", id="deletion canceled"),
    pytest.param(S.UPDATED, MARKED, f"[{DELETE_KEY}]", None, id="key of the other hook is kept"),
    pytest.param(S.PREPARING_DELETE, MARKED, f"[{UPDATE_KEY}]", f"[{DELETE_KEY}]", id="scale-in during an update"),
    pytest.param(S.UPDATING, MARKED, f"[{UPDATE_KEY}]", None, id="updating"),
    pytest.param(S.PREPARING_NORMAL, Lifecycle(HOOK), "", None, id="preNormal never marks"),
])  # fmt: skip
@pytest.mark.behaviour("PM-72", "PM-59a")
def test_hooks_mark_pods_not_ready_on_request(state: Any, lifecycle: Any, before: str, after: str | None) -> None:
    patch = readiness_patch(pod(message=before), state, lifecycle, NOW)
    assert (patch["status"]["conditions"][0]["message"] if patch is not None else None) == after


@pytest.mark.behaviour("PM-67")
@pytest.mark.parametrize(("lifecycle", "may"), [
    (None, True),
    (Lifecycle(pre_delete=EMPTY), True),
    (Lifecycle(pre_delete=HOOK), False),
    (Lifecycle(in_place_update=HOOK), False),
    (Lifecycle(pre_normal=HOOK), True),
])  # fmt: skip
def test_a_deletion_can_be_canceled_unless_a_hook_forbids_it(lifecycle: Any, may: bool) -> None:
    assert may_cancel_deletion(lifecycle) is may
