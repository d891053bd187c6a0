"""``/mutate-pod``: what it asks to be called for, the order of its steps, and what ends it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass, field

import pytest

from app.admission.pod import MUTATE_POD, STEPS, PodPipeline, pod_handler
from app.admission.registry import build_registry
from app.kube.admission import Allowed, Decision, Denied, Operation, Patched, Review
from app.pods.draft import PodDraft, PodRefusedError
from tests.sidecars.admitting import pod, review_of


@dataclass
class Step:
    """A step that notes that it was taken and sets an annotation of its name."""

    name: str
    taken: list[str] = field(default_factory=list)
    answer: Denied | None = None
    refuse: str = ""
    waits: bool = False

    def __call__(self, draft: PodDraft, review: Review) -> Denied | Awaitable[Denied | None] | None:
        return self._later(draft) if self.waits else self._take(draft)

    async def _later(self, draft: PodDraft) -> Denied | None:
        await asyncio.sleep(0)
        return self._take(draft)

    def _take(self, draft: PodDraft) -> Denied | None:
        self.taken.append(self.name)
        draft.set_annotations({self.name: "x"}, "r")
        if self.refuse:
            raise PodRefusedError(self.refuse, 409)
        return self.answer


async def decision_of(pipeline: PodPipeline, review: Review) -> Decision:
    decision = pipeline(review)
    return await decision if isinstance(decision, Awaitable) else decision


@pytest.mark.behaviour("PW-1", "PW-2", "PW-3", "PW-5")
def test_the_declaration() -> None:
    (rule,) = MUTATE_POD.rules
    assert (MUTATE_POD.name, MUTATE_POD.path, MUTATE_POD.mutating) == ("mpod.kb.io", "/mutate-pod", True)
    assert (rule.operations, rule.groups, rule.versions, rule.resources) == (
        (Operation.CREATE,),
        ("",),
        ("v1",),
        ("pods",),
    )
    assert (MUTATE_POD.failure_policy, MUTATE_POD.side_effects, MUTATE_POD.gate) == ("Fail", "None", "PodWebhook")
    assert MUTATE_POD.timeout_seconds == 30
    assert MUTATE_POD.object_selector is None
    assert MUTATE_POD.namespace_selector == {
        "matchExpressions": [
            {"key": "control-plane", "operator": "NotIn", "values": ["openkruise"]},
            {
                "key": "kubernetes.io/metadata.name",
                "operator": "NotIn",
                "values": ["kube-system", "kube-public"],
            },
        ]
    }


@pytest.mark.behaviour("PW-4", "SS-110", "PM-151")
@pytest.mark.parametrize("on", [True, False])
def test_it_is_served_only_with_the_gate_pod_webhook_on(on: bool) -> None:
    registry = build_registry([pod_handler([])], lambda gate: on if gate == "PodWebhook" else not on)
    assert [webhook.path for webhook in registry.webhooks] == (["/mutate-pod"] if on else [])
    assert ("/mutate-pod" in registry.routes) is on


@pytest.mark.behaviour("PW-6", "PW-7")
@pytest.mark.parametrize("waiting", [(), STEPS, STEPS[2:3]], ids=["at once", "all wait", "one waits"])
async def test_steps_are_taken_in_the_order_of_the_pipeline(waiting: tuple[str, ...]) -> None:
    taken: list[str] = []
    steps = [Step(name, taken, waits=name in waiting) for name in reversed(STEPS)]
    decision = pod_handler(steps).decide(review_of(pod()))
    assert isinstance(decision, Awaitable) is bool(waiting)
    decision = await decision if isinstance(decision, Awaitable) else decision
    assert taken == list(STEPS)
    assert isinstance(decision, Patched)


@pytest.mark.behaviour("PW-6")
@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize(
    ("end", "expected"),
    [
        ({"answer": Denied("no", 403)}, Denied("no", 403)),
        ({"refuse": "Pod shop/web-0: not so"}, Denied("Pod shop/web-0: not so", 409)),
    ],
)
async def test_a_refusal_ends_it_and_nothing_of_the_patch_remains(end: dict, expected: Denied, waits: bool) -> None:
    taken: list[str] = []
    steps = [
        Step("readiness-gate", taken, waits=waits),
        Step("sidecarset", taken, waits=waits, **end),
        Step("launch-priority", taken),
    ]
    assert await decision_of(PodPipeline(steps), review_of(pod())) == expected
    assert taken == ["readiness-gate", "sidecarset"]


@pytest.mark.behaviour("PW-2", "SS-40")
@pytest.mark.parametrize(
    "review",
    [
        review_of(pod(), operation=Operation.UPDATE),
        review_of(pod(), operation=Operation.DELETE),
        review_of(pod(), subresource="ephemeralcontainers"),
        review_of(pod(), subresource="status"),
    ],
)
def test_anything_but_the_creation_of_a_pod_passes(review: Review) -> None:
    assert PodPipeline([Step("sidecarset")])(review) == Allowed()


@pytest.mark.behaviour("PW-6")
def test_a_review_without_or_with_a_broken_pod_is_a_bad_request() -> None:
    pipeline = PodPipeline([Step("sidecarset")])
    assert pipeline(review_of(None)) == Denied("request.object: expected a Pod, got nothing", code=400)
    broken = pipeline(review_of({"spec": {"containers": "main"}}))
    assert broken == Denied("Pod: spec.containers: expected array | null, got str", code=400)


@pytest.mark.behaviour("PW-6")
def test_nothing_changed_is_allowed_without_a_patch() -> None:
    assert PodPipeline([])(review_of(pod())) == Allowed()


@pytest.mark.parametrize(("names", "message"), [(["x"], "no place for"), (["sidecarset"] * 2, "have one name")])
def test_steps_without_a_place_of_their_own_are_a_mistake(names: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PodPipeline([Step(name) for name in names])


@pytest.mark.behaviour("PW-29")
def test_one_line_per_changed_pod_says_the_rules(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("DEBUG", logger="app.admission.pod"):
        PodPipeline([Step("sidecarset"), Step("launch-priority")])(review_of(pod()))
        PodPipeline([])(review_of(pod()))
    assert [record.getMessage() for record in caplog.records] == ["Pod shop/web-0 changed by r"]
