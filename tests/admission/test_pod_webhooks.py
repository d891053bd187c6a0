"""``/mutate-pod``: when it is called, the order of its steps, and which answers end it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from random import Random

import pytest

from app.admission.pod_webhooks import PodGuards, PodPipeline, pod_handler
from app.admission.registry import build_registry
from app.api.names import MIRROR_POD, NODES_GROUP
from app.kube.admission import Allowed, Decision, Denied, Operation, Patched, Review
from app.manager.gates import parse_gates
from app.manager.standalone import Standalone
from app.pods.admission import MutatorOrder, PodMutator, PodRequest, StepOutcome
from app.pods.admission_draft import PodDraft, PodRefusedError
from tests.features.admitting import pod, review_of
from tests.kit.virtualtime import VirtualClock

PLACES = sorted(MutatorOrder)
OURS = ["ReadinessGateStep", "SidecarSetStep", "LaunchPriorityStep", "FieldTrackingStep"]


@dataclass
class Step:
    """A step that records its call and sets an annotation."""

    order: int
    taken: list[int] = field(default_factory=list)
    answer: Denied | None = None
    refuse: str = ""
    waits: bool = False

    def __call__(self, draft: PodDraft, review: Review) -> StepOutcome:
        return self._later(draft) if self.waits else self._now(draft)

    async def _later(self, draft: PodDraft) -> Denied | None:
        await asyncio.sleep(0)
        return self._now(draft)

    def _now(self, draft: PodDraft) -> Denied | None:
        self.taken.append(self.order)
        draft.set_annotations({f"step-{int(self.order)}": "x"}, "r")
        if self.refuse:
            raise PodRefusedError(self.refuse, 409)
        return self.answer


async def settled(outcome: Decision | Awaitable[Decision]) -> Decision:
    return await outcome if isinstance(outcome, Awaitable) else outcome


@pytest.mark.behaviour("PW-4", "SS-110", "PM-151")
@pytest.mark.parametrize("on", [True, False])
def test_the_webhook_is_served_only_with_its_gate(on: bool) -> None:
    registry = build_registry([pod_handler([])], lambda gate: on if gate == "PodWebhook" else not on)
    assert [webhook.path for webhook in registry.webhooks] == (["/mutate-pod"] if on else [])
    assert ("/mutate-pod" in registry.routes) is on


@pytest.mark.behaviour("PW-6", "PW-7")
@pytest.mark.parametrize("waiting", [(), PLACES, PLACES[2:3]], ids=["at once", "all wait", "one waits"])
async def test_steps_run_in_pipeline_order(waiting: Sequence[int]) -> None:
    taken: list[int] = []
    steps = [Step(place, taken, waits=place in waiting) for place in reversed(PLACES)]
    assert isinstance(await settled(PodPipeline(steps)(review_of(pod()))), Patched)
    assert taken == PLACES


@pytest.mark.behaviour("PW-6")
async def test_decisions_without_io_are_synchronous() -> None:
    assert isinstance(PodPipeline([Step(1), Step(2)])(review_of(pod())), Patched)
    waiting = PodPipeline([Step(1), Step(2, waits=True)])(review_of(pod()))
    assert isinstance(waiting, Awaitable)
    assert isinstance(await waiting, Patched)


@pytest.mark.behaviour("PW-6")
def test_step_order_matches_openkruise() -> None:
    assert [place.name for place in sorted(MutatorOrder)] == [
        "READINESS_GATE",
        "SUBSET",
        "SIDECARS",
        "START_ORDER",
        "PROTECTION",
        "FORMER_NODE",
        "LIVENESS",
        "PROBES",
        "FIELD_TRACKING",
    ]
    taken = [type(step).__name__ for step in sorted(all_steps(), key=lambda step: step.order)]
    assert [name for name in taken if name in OURS] == OURS


def all_steps() -> list[PodMutator]:
    standalone = Standalone(None, parse_gates(""), VirtualClock(), Random(1))
    handler, *_ = standalone.registry.routes["/mutate-pod"].handlers.values()
    assert isinstance(handler.decide, PodPipeline)
    return list(handler.decide.steps)


@pytest.mark.parametrize("step", all_steps(), ids=lambda step: type(step).__name__)
async def test_a_step_skips_pods_it_does_not_apply_to(step: PodMutator) -> None:
    review = review_of(pod())
    assert step(PodDraft(review.object or {}, "shop"), review) is None


@pytest.mark.behaviour("PW-6")
@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize(
    ("end", "expected"),
    [
        ({"answer": Denied("no", 403)}, Denied("no", 403)),
        ({"refuse": "Pod shop/web-0: not so"}, Denied("Pod shop/web-0: not so", 409)),
    ],
)
async def test_a_refusal_ends_the_pipeline_and_drops_the_patch(end: dict, expected: Denied, waits: bool) -> None:
    taken: list[int] = []
    steps = [Step(1, taken, waits=waits), Step(2, taken, waits=waits, **end), Step(3, taken)]
    assert await settled(PodPipeline(steps)(review_of(pod()))) == expected
    assert taken == [1, 2]


@pytest.mark.behaviour("PW-2", "SS-40")
@pytest.mark.parametrize(
    "review",
    [
        review_of(pod(), operation=Operation.UPDATE),
        review_of(pod(), operation=Operation.DELETE),
        review_of(pod(), subresource="ephemeralcontainers"),
        review_of(pod(), subresource="status"),
        # PW-3: a kubelet's mirror of a static Pod, from an API server without matchConditions.
        review_of({"metadata": {"annotations": {MIRROR_POD: "x"}}}, groups=(NODES_GROUP,)),
    ],
)
async def test_only_pod_creations_are_mutated(review: Review) -> None:
    assert PodPipeline([Step(1)])(review) == Allowed()


@pytest.mark.behaviour("PW-6")
async def test_a_review_with_a_missing_or_broken_pod_is_a_bad_request() -> None:
    pipeline = PodPipeline([Step(1)])
    assert pipeline(review_of(None)) == Denied("request.object: expected a Pod, got nothing", code=400)
    broken = pipeline(review_of({"spec": {"containers": "main"}}))
    assert broken == Denied("Pod: spec.containers: expected array | null, got str", code=400)


@pytest.mark.behaviour("PW-6")
async def test_an_unchanged_pod_is_allowed_without_a_patch() -> None:
    assert PodPipeline([])(review_of(pod())) == Allowed()


def test_two_steps_at_one_position_are_an_error() -> None:
    with pytest.raises(ValueError, match="two Pod admission steps have the position 30: Step and Step"):
        PodPipeline([Step(MutatorOrder.SIDECARS), Step(1), Step(MutatorOrder.SIDECARS)])


@pytest.mark.behaviour("PW-29")
async def test_one_log_line_per_changed_pod_lists_the_rules(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("DEBUG", logger="app.admission.pod_webhooks"):
        PodPipeline([Step(1), Step(2)])(review_of(pod()))
        PodPipeline([])(review_of(pod()))
    assert [record.getMessage() for record in caplog.records] == ["Pod shop/web-0 changed by r"]


@pytest.mark.behaviour("PW-21")
async def test_a_denial_of_a_deletion_ends_the_review() -> None:
    """Later guards must not run, because they record what they allow, such as a freed place."""
    asked: list[int] = []

    @dataclass
    class Guard:
        order: int

        async def __call__(self, request: PodRequest) -> Denied | None:
            asked.append(self.order)
            return Denied("kept") if self.order == 1 else None

    async def fetch(namespace: str, name: str) -> None:
        raise AssertionError("nobody needs the Pod's state")

    decide = PodGuards([Guard(2), Guard(1), Guard(0)], fetch)
    assert await decide(review_of(None, operation=Operation.DELETE, old=pod())) == Denied("kept")
    assert asked == [0, 1]
