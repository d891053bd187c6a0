"""A rollout with Pods in back-off is always requeued, whatever the time of the reconcile."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest

from app.features.sidecarset.plan.view import set_view
from app.features.sidecarset.writes import Progress, Roller, SetReconcile
from app.kube.client import Client
from app.kube.errors import KubeError
from app.kube.events import EventRecorder
from tests.features.sidecarset.plan.test_rollout import OLD, pod_counts
from tests.features.sidecarset.test_status import sidecar_set


class Ticking:
    """A clock that advances with every reading."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def monotonic(self) -> float:
        self.seconds += 0.001
        return self.seconds

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC)


async def refuse(*_: Any, **__: Any) -> None:
    raise KubeError("not this one")


@pytest.mark.behaviour("SS-102", "PM-171")
@pytest.mark.parametrize("early", [-0.0005 + 0.001 * number for number in range(12)])
async def test_a_pod_whose_back_off_ends_during_a_check_is_retried_soon(early: float) -> None:
    clock, owner = Ticking(), sidecar_set(updateStrategy={"type": "RollingUpdate", "maxUnavailable": 1, "partition": 0})
    events = SimpleNamespace(event=lambda *_: None)
    roller = Roller(cast("Client", SimpleNamespace(clock=clock, patch=refuse)), cast("EventRecorder", events), None)
    progress = Progress()
    one = SetReconcile(
        owner, set_view(owner), pod_counts((1, OLD)), progress, "s-1", lambda _: None, lambda _: None, {}
    )
    assert 0 < await roller.carry_out(one) <= 1.0
    (hold,) = progress.held.values()
    clock.seconds = hold.until - early
    # Either it was retried and is backing off again, or it is retried soon.
    assert await roller.carry_out(one) > 0
