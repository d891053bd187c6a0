"""Steps of Pod creation: all changes to new Pods are made in one webhook, in a fixed order, on one draft."""

from __future__ import annotations

from collections.abc import Awaitable
from enum import IntEnum
from typing import Protocol, TypeAlias

from app.kube.admission import Denied, Review
from app.pods.draft import PodDraft


class StepOrder(IntEnum):
    """PW-6, PW-7: what is done to a new Pod, and when. Labels patched by one step are matched by the next, and the
    start order sees the sidecars. There is room between any two."""

    READINESS_GATE = 10
    #: The subset of its workload that it counts in, with that subset's patch.
    SUBSET = 20
    SIDECARS = 30
    #: Containers that start one after another.
    START_ORDER = 40
    #: Who has a say when it is to go.
    PROTECTION = 50
    #: Back to where its predecessor ran.
    FORMER_NODE = 60
    LIVENESS = 70
    PROBES = 80
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
