"""Unreadable annotations of Pods count as missing and fail no reconcile."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from app.api import names
from app.features.ephemeraljob import plan
from app.features.sidecarset.plan import settings
from app.features.sidecarset.plan.pod_state import condition_for
from app.kube.objects import Pod
from app.pods.container_meta import runtime_meta
from app.pods.inplace.completion import is_update_complete
from app.pods.inplace.state import GraceError, StateError, is_in_grace, update_in_grace, update_state
from app.pods.readiness import not_ready_keys
from tests.kit import objects

TEXTS = {
    "deep": '{"a":' * 3_000 + "1" + "}" * 3_000,
    "deep list": "[" * 100_000,
    "a set, deep": '{"set":{"lastContainerStatuses":' + '{"a":' * 900 + "1" + "}" * 900 + "}}",
    "an entry, deep": '{"set":{"pod":"p","x":' + "[" * 10_000 + "]" * 10_000 + "}}",
    "not an object": "[1]",
    "null": "null",
    "numbers": '{"set":1e999}',
    "lone surrogate": '{"set":"\\ud800"}',
    "empty": "",
}
KEYS = (
    names.SIDECARSET_HASH,
    names.SIDECARSET_IN_PLACE_UPDATE_STATE,
    names.SIDECARSET_WORKING_HOT_UPGRADE_CONTAINER,
    "apps.kruise.io/inplace-update-state",
    "apps.kruise.io/inplace-update-grace",
    "apps.kruise.io/runtime-containers-meta",
    names.EPHEMERAL_JOB_BEGUN,
)
READERS: dict[str, Callable[[Pod], Any]] = {
    "hash": lambda pod: settings.recorded(pod.metadata.annotations, "set"),
    "states of sets": settings.in_place_states,
    "a state to write": lambda pod: settings.with_state(pod, "other", "digest", "2026-01-01T00:00:00Z", {"main": "i"}),
    "twins": settings.working_twins,
    "state": update_state,
    "complete": lambda pod: is_update_complete(pod, vertical_scaling=True),
    "in grace": is_in_grace,
    "grace": update_in_grace,
    "meta": runtime_meta,
    "keys": lambda pod: not_ready_keys(pod.status.conditions[0].message),
    "told": lambda pod: condition_for(pod, "set"),
    "begun": lambda pod: plan.recorded(pod.metadata.annotations[names.EPHEMERAL_JOB_BEGUN]),
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
@pytest.mark.parametrize("reader", READERS)
def test_any_annotation_is_read_or_refused_with_a_clear_message(reader: str, text: str) -> None:
    conditions = [{"type": names.SIDECARSET_UPGRADABLE_CONDITION, "status": "True", "message": text}]
    spec = {"containers": [{"name": "main", "image": "i"}]}
    pod = objects.pod(spec=spec, conditions=conditions, annotations=dict.fromkeys(KEYS, text))
    with contextlib.suppress(StateError, GraceError):
        READERS[reader](pod)
