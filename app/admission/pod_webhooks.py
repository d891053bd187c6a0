"""The Pod webhooks, ``/mutate-pod`` and ``/validate-pod``: their declarations, with rules, failure policy and timeout,
and their handlers, which call the features in order."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, TypeAlias, TypeVar

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
from app.kube.errors import KubeError, message_of
from app.kube.jsonvalues import as_object
from app.pods.admission import Guarded, PodMutator, PodRequest, PodRequestKind, PodValidator, check_shape
from app.pods.admission_draft import PodDraft, PodRefusedError

# ``/mutate-pod``: a pipeline of steps that change one draft of a new Pod. The order of the steps matters: later steps
# match labels that earlier ones add, and launch priorities cover the injected sidecars. A feature declares its steps
# with their positions; ``pod_handler`` sorts them. [PW-7]

logger = logging.getLogger(__name__)

T = TypeVar("T", PodMutator, PodValidator)

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
    # System namespaces and the manager's own (added by app.admission.policies) must not depend on this webhook. They
    # are matched by name, because tenants can write any other label. [PW-3]
    namespace_selector={
        "matchExpressions": [
            {"key": names.NAMESPACE_NAME, "operator": "NotIn", "values": ["kube-system", "kube-public"]},
        ]
    },
    # The kubelet runs a static Pod from its manifest, so changing its mirror Pod has no effect. Any user can set
    # the annotation, so the request must also come from a node. [PW-10]
    match_conditions=(
        MatchCondition(
            "not-a-mirror-pod",
            f"!has(object.metadata.annotations) || !('{names.MIRROR_POD}' in object.metadata.annotations) || "
            f"!has(request.userInfo.groups) || !('{names.NODES_GROUP}' in request.userInfo.groups)",
        ),
    ),
)


def _in_order(given: Iterable[T], what: str) -> Sequence[T]:
    found = sorted(given, key=lambda one: one.order)
    for first, second in pairwise(found):
        if first.order == second.order:
            both = f"{type(first).__name__} and {type(second).__name__}"
            raise ValueError(f"two {what} have the position {int(first.order)}: {both}")
    return found


class PodPipeline:
    """Runs the steps on a new Pod in order. The first denial ends the review."""

    def __init__(self, steps: Iterable[PodMutator]) -> None:
        """Sort the steps. Raises ValueError if two steps have the same position."""
        self.steps = _in_order(steps, "Pod admission steps")

    def __call__(self, review: Review) -> Decision | Awaitable[Decision]:
        """Return the decision, or an awaitable if a step queries the API server."""
        if review.operation is not Operation.CREATE or review.subresource:
            return Allowed()
        pod = review.object
        if pod is None:
            return Denied("request.object: expected a Pod, got nothing", code=400)
        if _is_mirror(pod, review.groups):
            return Allowed()  # API servers without matchConditions send mirror Pods too.
        try:
            check_shape(pod)
            draft = PodDraft(pod, review.namespace)
            steps = iter(self.steps)
            for step in steps:
                outcome = step(draft, review)
                if outcome is not None:
                    return outcome if isinstance(outcome, Denied) else self._rest(draft, review, outcome, steps)
        except PodRefusedError as error:
            return Denied(error.message, code=error.code)
        return _finished(draft)

    async def _rest(
        self, draft: PodDraft, review: Review, waiting: Awaitable[Denied | None], steps: Iterator[PodMutator]
    ) -> Decision:
        """Wait for a step, then run the remaining ones."""
        try:
            denied = await waiting
            for step in steps:
                if denied is not None:
                    break
                outcome = step(draft, review)
                denied = await outcome if isinstance(outcome, Awaitable) else outcome
        except PodRefusedError as error:
            return Denied(error.message, code=error.code)
        return denied or _finished(draft)


def pod_handler(steps: Iterable[PodMutator], webhook: Webhook = MUTATE_POD) -> Handler:
    """Return the handler of ``/mutate-pod``, which runs these steps in order of their positions."""
    return Handler(webhook, PodPipeline(steps))


def _is_mirror(pod: Mapping[str, Any], groups: Collection[str]) -> bool:
    """Return whether the Pod is the mirror of a static Pod: the kubelet runs the manifest, not this object. [PW-10]

    Any user may write the annotation, and kubelets treat a Pod with it as their own, but only a Pod created by a node
    is a mirror Pod.
    """
    if names.NODES_GROUP not in groups:
        return False
    return names.MIRROR_POD in as_object(as_object(pod.get("metadata")).get("annotations"))


def _finished(draft: PodDraft) -> Decision:
    decision = draft.decision()
    if type(decision) is Patched and logger.isEnabledFor(logging.DEBUG):
        rules = dict.fromkeys(operation.rule for operation in decision.operations)
        logger.debug("%s changed by %s", draft.display, ", ".join(rules))
    return decision


# ``/validate-pod``: guards that are consulted before a Pod is deleted, evicted or updated. Features declare which Pods
# they guard; the webhook declarations are shared. The API server sends requests only for Pods with a guard's
# annotation, and omits updates that cannot make a Pod unavailable. [PW-20 … PW-25]

Fetch: TypeAlias = Callable[[str, str], Awaitable[Mapping[str, Any] | None]]

PATH: Final = "/validate-pod"


def _annotated(pod: str, guarded: Iterable[Guarded]) -> str:
    keys = [key for one in guarded for key in one.annotations]
    return f"(has({pod}.metadata.annotations) && {keys}.exists(key, key in {pod}.metadata.annotations))"


#: Terminating Pods are exempt: the kubelet must be able to report their final status. [PUB-70]
_ALIVE: Final = MatchCondition("not-terminating", "!has(oldObject.metadata.deletionTimestamp)")
_MAY_READ: Final = PolicyRule(("get",), ("",), ("pods",))


def webhooks(guarded: Sequence[Guarded]) -> tuple[Webhook, ...]:
    """Return the webhook declarations for these guarded Pods. Updates are checked only where ``change_gate`` is set.
    [PUB-129]"""
    changing = [one for one in guarded if one.change_gate]
    return (*(_removals(guarded) if guarded else ()), *((_changes(changing),) if changing else ()))


def _removals(guarded: Sequence[Guarded]) -> Iterator[Webhook]:
    whose = " and ".join(one.whose for one in guarded)
    gates = tuple(one.removal_gate for one in guarded)
    yield Webhook(
        name="vpod.kb.io",
        path=PATH,
        mutating=False,
        summary=f"Checks {whose} before one of their Pods is deleted",
        rules=(Rule((Operation.DELETE,), ("",), ("v1",), ("pods",)),),
        gate="PodWebhook",
        gates=gates,
        side_effects="NoneOnDryRun",
        namespace_selector=MUTATE_POD.namespace_selector,
        match_conditions=(MatchCondition("guarded", _annotated("oldObject", guarded)), _ALIVE),
    )
    yield Webhook(
        name="vpodeviction.kb.io",
        path=PATH,
        mutating=False,
        summary=f"Checks {whose} before one of their Pods is evicted",
        rules=(Rule((Operation.CREATE,), ("",), ("v1",), ("pods/eviction",)),),
        gate="PodWebhook",
        gates=gates,
        side_effects="NoneOnDryRun",
        namespace_selector=MUTATE_POD.namespace_selector,
        permissions=(_MAY_READ,),
    )


def _changes(guarded: Sequence[Guarded]) -> Webhook:
    whose = " and ".join(one.whose for one in guarded)
    labels = " || ".join(
        f"(has(object.metadata.labels) && object.metadata.labels.exists(key, key.startsWith('{one.label_prefix}')))"
        for one in guarded
        if one.label_prefix
    )
    return Webhook(
        name="vpodupdate.kb.io",
        path=PATH,
        mutating=False,
        summary=f"Checks {whose} before one of their Pods is changed, resized or marked unavailable",
        rules=(Rule((Operation.UPDATE,), ("",), ("v1",), ("pods", "pods/resize")),),
        gate="PodWebhook",
        gates=tuple(one.change_gate for one in guarded),
        side_effects="NoneOnDryRun",
        namespace_selector=MUTATE_POD.namespace_selector,
        match_conditions=(
            # The old object's annotation counts too; otherwise, removing it would disable the guard. [PUB-126]
            MatchCondition("guarded", f"{_annotated('oldObject', guarded)} || {_annotated('object', guarded)}"),
            _ALIVE,
            # Other updates cannot make a Pod unavailable. [PUB-62]
            MatchCondition("may-hurt", " || ".join(filter(None, ("object.spec != oldObject.spec", labels)))),
        ),
    )


class PodGuards:
    """Calls the guards in order. The first denial ends the review."""

    def __init__(self, guards: Iterable[PodValidator], fetch: Fetch) -> None:
        """Sort the guards. ``fetch`` reads a Pod's current state by namespace and name.

        Raises ValueError if two guards have the same position.
        """
        self.guards = _in_order(guards, "Pod guards")
        self._fetch = fetch

    async def __call__(self, review: Review) -> Decision:
        """Return the decision. A request that cannot be checked is denied. [PW-21]"""
        request = self._request(review)
        if request is None:
            return Allowed()
        try:
            for guard in self.guards:
                denied = await guard(request)
                if denied is not None:
                    return denied
        except KubeError as error:
            return Denied(message_of(error), code=400)
        return Allowed()

    def _request(self, review: Review) -> PodRequest | None:
        """Return the operation that a review requests, or None if the guards do not apply to it. [PW-22]"""
        dry = review.dry_run or _is_dry(review.options)
        if review.operation is Operation.CREATE and review.subresource == "eviction":
            eviction = review.object or {}
            kind, dry = PodRequestKind.EVICT, dry or _is_dry(eviction.get("deleteOptions"))
        elif review.old_object is None:
            return None
        elif review.operation is Operation.DELETE and not review.subresource:
            kind = PodRequestKind.DELETE
        elif (
            review.operation is Operation.UPDATE and review.subresource in ("", "resize") and review.object is not None
        ):
            kind = PodRequestKind.UPDATE
        else:
            return None
        return PodRequest(review, kind, _name(review), review.namespace, dry, self._fetch)


def handlers(guarded: Sequence[Guarded], guards: Iterable[PodValidator], fetch: Fetch) -> tuple[Handler, ...]:
    """Return the handlers for these guarded Pods, which call the guards in order of their positions."""
    decide = PodGuards(guards, fetch)
    return tuple(Handler(webhook, decide) for webhook in webhooks(guarded))


def _is_dry(options: object) -> bool:
    given = as_object(options).get("dryRun")
    return isinstance(given, list) and bool(given)


def _name(review: Review) -> str:
    """Return the name of the Pod. In a deletecollection request, only the object itself contains the name."""
    found = as_object((review.old_object or {}).get("metadata")).get("name")
    return review.name or (found if isinstance(found, str) else "")
