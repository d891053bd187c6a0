"""Steps of Pod creation: all changes to new Pods are made in one webhook, in a fixed order, on one draft."""

from __future__ import annotations

from collections.abc import Awaitable
from enum import IntEnum
from typing import Protocol, TypeAlias

from app.kube.admission import Denied, Review
from app.pods.draft import PodDraft


class StepOrder(IntEnum):
    """PW-6, PW-7: when a step is taken. Labels patched by one are matched by the next, and launch priority sees the
    sidecars. There is room between any two."""

    READINESS_GATE = 10
    WORKLOAD_SPREAD = 20
    SIDECARS = 30
    LAUNCH_PRIORITY = 40
    UNAVAILABLE_BUDGET = 50
    PERSISTENT_STATE = 60
    LIVENESS = 70
    PROBE_MARKER = 80
    FIELD_TRACKING = 90


#: What a step says of a Pod, at once or after it has waited; None: let the next one look at it.
StepOutcome: TypeAlias = Denied | Awaitable[Denied | None] | None


class PodStep(Protocol):
    """One step. It changes the draft, or refuses the Pod: by ``Denied``, or by raising ``PodRefusedError``.

    Nearly every step of nearly every Pod knows at once that it has nothing to do. So a step is a plain function; only
    where it has to ask the API server does it return something to await.
    """

    @property
    def order(self) -> int:
        """When it is taken: of :class:`StepOrder`, or between two of them."""
        ...

    def __call__(self, draft: PodDraft, review: Review) -> StepOutcome:
        """Take the step. A dry run must change nothing outside the draft."""
        ...
