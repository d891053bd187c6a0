"""``/mutate-pod``: everything that changes a new Pod, as a pipeline of steps on one draft.

The order is part of the behaviour (PW-7): labels patched by one step are matched by the next, and launch priority
sees the sidecars. A slice declares its steps with their places; ``pod_handler`` puts them in order.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from app.api import names
from app.kube.admission import (
    Allowed,
    Decision,
    Denied,
    Handler,
    MatchCondition,
    Operation,
    Patched,
    Review,
    Rule,
    Webhook,
)
from app.pods.draft import PodDraft, PodRefusedError
from app.pods.shape import check_shape
from app.pods.steps import PodStep, StepOutcome

logger = logging.getLogger(__name__)

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
    # PW-3: the system's namespaces, and the manager's own (app.admission.policies adds it), must not depend on us. By
    # name alone: any other label is the tenant's to write.
    namespace_selector={
        "matchExpressions": [
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
)


class PodPipeline:
    """Decides a review of a new Pod by taking the steps in order; the first refusal ends it."""

    __slots__ = ("steps",)

    def __init__(self, steps: Iterable[PodStep]) -> None:
        """Raises ValueError for two steps with one place in the order."""
        self.steps: Sequence[PodStep] = sorted(steps, key=lambda step: step.order)
        for first, second in pairwise(self.steps):
            if first.order == second.order:
                both = f"{type(first).__name__} and {type(second).__name__}"
                raise ValueError(f"two Pod admission steps have the place {int(first.order)}: {both}")

    def __call__(self, review: Review) -> Decision | Awaitable[Decision]:
        """The decision; something to await only where a step has to ask the API server."""
        if review.operation is not Operation.CREATE or review.subresource:
            return Allowed()
        pod = review.object
        if pod is None:
            return Denied("request.object: expected a Pod, got nothing", code=400)
        if names.NODES_GROUP in review.groups and _is_mirror(pod):
            return Allowed()  # API servers that take no matchConditions send these too
        try:
            check_shape(pod)
            draft = PodDraft(pod, review.namespace)
            for step in self.steps:
                outcome = step(draft, review)
                if outcome is not None:
                    return outcome if type(outcome) is Denied else self._rest(draft, review, step, outcome)
        except PodRefusedError as error:
            return Denied(error.message, code=error.code)
        return _finished(draft)

    async def _rest(self, draft: PodDraft, review: Review, waiting: PodStep, outcome: StepOutcome) -> Decision:
        """From a step on that waits for something."""
        try:
            for step in (waiting, *self.steps[self.steps.index(waiting) + 1 :]):
                if step is not waiting:
                    outcome = step(draft, review)
                denied = await outcome if isinstance(outcome, Awaitable) else outcome
                if denied is not None:
                    return denied
        except PodRefusedError as error:
            return Denied(error.message, code=error.code)
        return _finished(draft)


def pod_handler(steps: Iterable[PodStep], webhook: Webhook = MUTATE_POD) -> Handler:
    """The handler of ``/mutate-pod`` with these steps, in any order."""
    return Handler(webhook, PodPipeline(steps))


def _is_mirror(pod: Mapping[str, Any]) -> bool:
    metadata = pod.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, Mapping) else None
    return isinstance(annotations, Mapping) and names.MIRROR_POD in annotations


def _finished(draft: PodDraft) -> Decision:
    decision = draft.decision()
    if type(decision) is Patched and logger.isEnabledFor(logging.DEBUG):
        rules = dict.fromkeys(operation.rule for operation in decision.operations)
        logger.debug("%s changed by %s", draft.display, ", ".join(rules))
    return decision
