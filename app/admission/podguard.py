"""``/validate-pod``: everybody who is asked before a Pod is deleted, evicted or changed (PW-20 … PW-25).

The declarations stand here, for all guards share them. The API server calls only about Pods that carry the annotation
of a guard, and never about what changes nothing that counts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from itertools import pairwise
from typing import Any, Final, TypeAlias

from app.admission.pod import MUTATE_POD
from app.api import names
from app.kube.admission import (
    Allowed,
    Decision,
    Denied,
    Handler,
    MatchCondition,
    Operation,
    PolicyRule,
    Review,
    Rule,
    Webhook,
)
from app.kube.errors import ApiError, KubeError
from app.pods.guards import PodGuard, PodRequest, PodRequestKind

Fetch: TypeAlias = Callable[[str, str], Awaitable[Mapping[str, Any] | None]]

PATH: Final = "/validate-pod"
#: PUB-129: without it no update of a Pod makes a call.
UPDATE_GATE: Final = "PodUnavailableBudgetUpdateGate"
REMOVAL_GATES: Final = ("PodUnavailableBudgetDeleteGate", "WorkloadSpread")
_ANNOTATIONS: Final = (names.RELATED_PUB, names.RELATED_PUB_OLD, names.MATCHED_WORKLOAD_SPREAD)


def _annotated(pod: str, keys: Iterable[str]) -> str:
    return f"(has({pod}.metadata.annotations) && {list(keys)}.exists(key, key in {pod}.metadata.annotations))"


#: PUB-70: the kubelet's last word about a Pod on its way out.
_ALIVE: Final = MatchCondition("not-terminating", "!has(oldObject.metadata.deletionTimestamp)")
_MAY_READ: Final = PolicyRule(("get",), ("",), ("pods",))

DELETE_POD: Final = Webhook(
    name="vpod.kb.io",
    path=PATH,
    mutating=False,
    summary="Asks budgets and WorkloadSpreads before a Pod of theirs is deleted",
    rules=(Rule((Operation.DELETE,), ("",), ("v1",), ("pods",)),),
    gate="PodWebhook",
    gates=REMOVAL_GATES,
    side_effects="NoneOnDryRun",
    namespace_selector=MUTATE_POD.namespace_selector,
    match_conditions=(MatchCondition("guarded", _annotated("oldObject", _ANNOTATIONS)), _ALIVE),
)
EVICT_POD: Final = Webhook(
    name="vpodeviction.kb.io",
    path=PATH,
    mutating=False,
    summary="Asks budgets and WorkloadSpreads before a Pod of theirs is evicted",
    rules=(Rule((Operation.CREATE,), ("",), ("v1",), ("pods/eviction",)),),
    gate="PodWebhook",
    gates=REMOVAL_GATES,
    side_effects="NoneOnDryRun",
    namespace_selector=MUTATE_POD.namespace_selector,
    permissions=(_MAY_READ,),
)
UPDATE_POD: Final = Webhook(
    name="vpodupdate.kb.io",
    path=PATH,
    mutating=False,
    summary="Asks budgets before a Pod of theirs is changed, resized or marked unavailable",
    rules=(Rule((Operation.UPDATE,), ("",), ("v1",), ("pods", "pods/resize")),),
    gate="PodWebhook",
    gates=(UPDATE_GATE,),
    side_effects="NoneOnDryRun",
    namespace_selector=MUTATE_POD.namespace_selector,
    match_conditions=(
        # PUB-126: the old one counts too, or whoever takes the annotation away is free.
        MatchCondition(
            "guarded", f"{_annotated('oldObject', _ANNOTATIONS[:2])} || {_annotated('object', _ANNOTATIONS[:2])}"
        ),
        _ALIVE,
        # PUB-62
        MatchCondition(
            "may-hurt",
            "object.spec != oldObject.spec || (has(object.metadata.labels) && "
            f"object.metadata.labels.exists(key, key.startsWith('{names.UNAVAILABLE_POD_PREFIX}')))",
        ),
    ),
)
WEBHOOKS: Final = (DELETE_POD, EVICT_POD, UPDATE_POD)


class PodGuards:
    """Asks the guards in order; the first refusal ends it."""

    def __init__(self, guards: Iterable[PodGuard], fetch: Fetch) -> None:
        """``fetch`` reads a Pod (namespace, name) as it is now. Raises ValueError for two guards with one place."""
        self.guards = sorted(guards, key=lambda guard: guard.order)
        for first, second in pairwise(self.guards):
            if first.order == second.order:
                both = f"{type(first).__name__} and {type(second).__name__}"
                raise ValueError(f"two Pod guards have the place {int(first.order)}: {both}")
        self._fetch = fetch

    async def __call__(self, review: Review) -> Decision:
        """The decision; what cannot be said is refused (PW-21)."""
        request = self._request(review)
        if request is None:
            return Allowed()
        try:
            for guard in self.guards:
                denied = await guard(request)
                if denied is not None:
                    return denied
        except KubeError as error:
            return Denied(error.message if isinstance(error, ApiError) else str(error), code=400)
        return Allowed()

    def _request(self, review: Review) -> PodRequest | None:
        """PW-22: what this review is about; None for what nobody guards."""
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


def handlers(guards: Iterable[PodGuard], fetch: Fetch) -> tuple[Handler, ...]:
    """The handlers of all declarations, with these guards in any order."""
    decide = PodGuards(guards, fetch)
    return tuple(Handler(webhook, decide) for webhook in WEBHOOKS)


def _is_dry(options: object) -> bool:
    given = options.get("dryRun") if isinstance(options, Mapping) else None
    return isinstance(given, list) and bool(given)


def _name(review: Review) -> str:
    """In the deletion of a collection only the object itself has its name."""
    metadata = (review.old_object or {}).get("metadata")
    found = metadata.get("name") if isinstance(metadata, Mapping) else None
    return review.name or (found if isinstance(found, str) else "")
