"""``/mutate-pod``: everything that changes a new Pod, as a pipeline of steps on one draft.

The order is part of the behaviour (PW-7): labels patched by one step are matched by the next, and launch priority
sees the sidecars. A slice adds its step by giving it one of the names below; ``pod_handler`` puts it in its place.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Iterable, Sequence
from typing import Final

from app.api import names
from app.kube.admission import (
    Allowed,
    Decision,
    Denied,
    Handler,
    MatchCondition,
    Operation,
    Patched,
    PolicyRule,
    Review,
    Rule,
    Webhook,
)
from app.pods.draft import PodDraft, PodRefusedError, PodStep
from app.pods.shape import check_shape

logger = logging.getLogger(__name__)

#: PW-6: the steps in the order they are taken.
STEPS: Final = (
    "readiness-gate",
    "workloadspread",
    "sidecarset",
    "launch-priority",
    "podunavailablebudget",
    "persistentpodstate",
    "enhanced-liveness",
    "podprobemarker",
    "field-tracking",
)

MUTATE_POD: Final = Webhook(
    name="mpod.kb.io",
    path="/mutate-pod",
    mutating=True,
    summary="Injects sidecars, launch order and readiness gates into new Pods",
    rules=(Rule(operations=(Operation.CREATE,), groups=("",), versions=("v1",), resources=("pods",)),),
    failure_policy="Fail",
    timeout_seconds=30,
    side_effects="None",
    gate="PodWebhook",
    # PW-3: the system's namespaces, and the manager's own, must not depend on us.
    namespace_selector={
        "matchExpressions": [
            {"key": "control-plane", "operator": "NotIn", "values": ["openkruise"]},
            {"key": names.NAMESPACE_NAME, "operator": "NotIn", "values": ["kube-system", "kube-public"]},
        ]
    },
    # PW-10: the kubelet runs a static Pod from its manifest; its image in the API is nothing to change. The annotation
    # alone is anybody's to write.
    match_conditions=(
        MatchCondition(
            "not-a-mirror-pod",
            f"!has(object.metadata.annotations) || !('{names.MIRROR_POD}' in object.metadata.annotations) || "
            f"!has(request.userInfo.groups) || !('{names.NODES_GROUP}' in request.userInfo.groups)",
        ),
    ),
    permissions=(
        PolicyRule(("get", "list", "watch"), (names.APPS_GROUP,), ("sidecarsets",)),
        PolicyRule(("get", "list", "watch"), ("",), ("namespaces",)),
        PolicyRule(("get", "list", "watch"), ("apps",), ("controllerrevisions",), own_namespace=True),
        PolicyRule(("create", "patch"), ("",), ("events",)),
    ),
)

WEBHOOKS: Final = (MUTATE_POD,)


class PodPipeline:
    """Decides a review of a new Pod by taking the steps in order; the first refusal ends it."""

    __slots__ = ("_steps",)

    def __init__(self, steps: Iterable[PodStep]) -> None:
        """Raises ValueError for a step that has no place in the order, or two for one place."""
        given = list(steps)
        unknown = [step.name for step in given if step.name not in STEPS]
        if unknown:
            raise ValueError(f"no place for Pod admission step {unknown[0]!r}; known: {', '.join(STEPS)}")
        self._steps: Sequence[PodStep] = sorted(given, key=lambda step: STEPS.index(step.name))
        if len({step.name for step in given}) < len(given):
            raise ValueError(f"two Pod admission steps have one name: {', '.join(step.name for step in self._steps)}")

    def __call__(self, review: Review) -> Decision | Awaitable[Decision]:
        """The decision; an awaitable only if a step has to ask the API server."""
        if review.operation is not Operation.CREATE or review.subresource:
            return Allowed()
        pod = review.object
        if pod is None:
            return Denied("request.object: expected a Pod, got nothing", code=400)
        try:
            check_shape(pod)
            return self._take(PodDraft(pod, review.namespace), review, 0)
        except PodRefusedError as error:
            return Denied(error.message, code=error.code)

    def _take(self, draft: PodDraft, review: Review, first: int) -> Decision | Awaitable[Decision]:
        for index in range(first, len(self._steps)):
            outcome = self._steps[index](draft, review)
            if outcome is None:
                continue
            if isinstance(outcome, Denied):
                return outcome
            return self._wait(outcome, draft, review, index + 1)
        return _finished(draft)

    async def _wait(
        self, outcome: Awaitable[Denied | None], draft: PodDraft, review: Review, following: int
    ) -> Decision:
        try:
            denied = await outcome
            if denied is not None:
                return denied
            decision = self._take(draft, review, following)
            return await decision if isinstance(decision, Awaitable) else decision
        except PodRefusedError as error:
            return Denied(error.message, code=error.code)


def pod_handler(steps: Iterable[PodStep]) -> Handler:
    """The handler of ``/mutate-pod`` with these steps, in any order."""
    return Handler(MUTATE_POD, PodPipeline(steps))


def _finished(draft: PodDraft) -> Decision:
    decision = draft.decision()
    if type(decision) is Patched and logger.isEnabledFor(logging.DEBUG):
        rules = dict.fromkeys(operation.rule for operation in decision.operations)
        logger.debug("%s changed by %s", draft.display, ", ".join(rules))
    return decision
