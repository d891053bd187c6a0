"""``/validate-pod``: everybody who is asked before a Pod is deleted, evicted or changed (PW-20 … PW-25).

Slices say which Pods they guard; the declarations that all share are made here. The API server calls only about Pods
that carry the annotation of a guard, and never about what changes nothing that counts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, TypeAlias

from app.admission.pod import MUTATE_POD
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
from app.pods.guards import Guarded, PodGuard, PodRequest, PodRequestKind

Fetch: TypeAlias = Callable[[str, str], Awaitable[Mapping[str, Any] | None]]

PATH: Final = "/validate-pod"


def _annotated(pod: str, guarded: Iterable[Guarded]) -> str:
    keys = [key for one in guarded for key in one.annotations]
    return f"(has({pod}.metadata.annotations) && {keys}.exists(key, key in {pod}.metadata.annotations))"


#: PUB-70: the kubelet's last word about a Pod on its way out.
_ALIVE: Final = MatchCondition("not-terminating", "!has(oldObject.metadata.deletionTimestamp)")
_MAY_READ: Final = PolicyRule(("get",), ("",), ("pods",))


def webhooks(guarded: Sequence[Guarded]) -> tuple[Webhook, ...]:
    """The declarations for these Pods: who is never asked about changes has none for them (PUB-129)."""
    changing = [one for one in guarded if one.change_gate]
    return (*_removals(guarded), *((_changes(changing),) if changing else ()))


def _removals(guarded: Sequence[Guarded]) -> Iterator[Webhook]:
    if not guarded:
        return
    whose = _all(one.whose for one in guarded)
    gates = tuple(one.removal_gate for one in guarded)
    yield Webhook(
        name="vpod.kb.io",
        path=PATH,
        mutating=False,
        summary=f"Asks {whose} before a Pod of theirs is deleted",
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
        summary=f"Asks {whose} before a Pod of theirs is evicted",
        rules=(Rule((Operation.CREATE,), ("",), ("v1",), ("pods/eviction",)),),
        gate="PodWebhook",
        gates=gates,
        side_effects="NoneOnDryRun",
        namespace_selector=MUTATE_POD.namespace_selector,
        permissions=(_MAY_READ,),
    )


def _changes(guarded: Sequence[Guarded]) -> Webhook:
    whose = _all(one.whose for one in guarded)
    labels = " || ".join(
        f"(has(object.metadata.labels) && object.metadata.labels.exists(key, key.startsWith('{one.label_prefix}')))"
        for one in guarded
        if one.label_prefix
    )
    return Webhook(
        name="vpodupdate.kb.io",
        path=PATH,
        mutating=False,
        summary=f"Asks {whose} before a Pod of theirs is changed, resized or marked unavailable",
        rules=(Rule((Operation.UPDATE,), ("",), ("v1",), ("pods", "pods/resize")),),
        gate="PodWebhook",
        gates=tuple(one.change_gate for one in guarded),
        side_effects="NoneOnDryRun",
        namespace_selector=MUTATE_POD.namespace_selector,
        match_conditions=(
            # PUB-126: the old one counts too, or whoever takes the annotation away is free.
            MatchCondition("guarded", f"{_annotated('oldObject', guarded)} || {_annotated('object', guarded)}"),
            _ALIVE,
            # PUB-62
            MatchCondition("may-hurt", " || ".join(filter(None, ("object.spec != oldObject.spec", labels)))),
        ),
    )


def _all(names: Iterable[str]) -> str:
    return " and ".join(names)


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


def handlers(guarded: Sequence[Guarded], guards: Iterable[PodGuard], fetch: Fetch) -> tuple[Handler, ...]:
    """The handlers of the declarations for these Pods, with these guards in any order."""
    decide = PodGuards(guards, fetch)
    return tuple(Handler(webhook, decide) for webhook in webhooks(guarded))


def _is_dry(options: object) -> bool:
    given = options.get("dryRun") if isinstance(options, Mapping) else None
    return isinstance(given, list) and bool(given)


def _name(review: Review) -> str:
    """In the deletion of a collection only the object itself has its name."""
    metadata = (review.old_object or {}).get("metadata")
    found = metadata.get("name") if isinstance(metadata, Mapping) else None
    return review.name or (found if isinstance(found, str) else "")
