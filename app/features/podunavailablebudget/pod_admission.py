"""Budgets in Pod admission: annotate new Pods, and refuse deletions, evictions, updates and resizes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec

from app.api import names
from app.features.podunavailablebudget.budgets import Budgets, Refused
from app.features.podunavailablebudget.index import Claims, Owners
from app.features.podunavailablebudget.kind import ProtectedOperation
from app.features.podunavailablebudget.plan.pods import related_annotations, related_budget, unavailable_labels
from app.kube.admission import Denied, Review
from app.kube.errors import KubeError, message_of
from app.kube.jsonvalues import as_object, objects
from app.kube.objects import OwnerReference, Pod
from app.pods.admission import MutatorOrder, PodRequest, PodRequestKind, StepOutcome, ValidatorOrder
from app.pods.admission_draft import PodDraft
from app.pods.predicates import controller_of


class BudgetStep:
    """Annotates a new Pod with the name of its budget. Never refuses a Pod. [PUB-31, PW-16]"""

    order: Final = MutatorOrder.PROTECTION

    def __init__(self, claims: Claims, owners: Owners) -> None:
        self._claims = claims
        self._owners = owners

    def __call__(self, draft: PodDraft, review: Review) -> StepOutcome:  # noqa: ARG002  # the protocol's
        """Assign the oldest matching budget in the namespace. Owners are looked up only if a budget has a target.
        [PUB-31]"""
        if not self._claims.names(draft.namespace):
            return None
        if self._claims.has_targets(draft.namespace):
            controller = controller_of(draft.owner_references)
            if controller is not None:
                return self._ask(draft, controller)
        _annotate(draft, self._claims.budget_for(draft.namespace, draft.labels, ()))
        return None

    async def _ask(self, draft: PodDraft, controller: OwnerReference) -> None:
        owners = await self._owners.above(controller, draft.namespace)
        _annotate(draft, self._claims.budget_for(draft.namespace, draft.labels, owners))


def _annotate(draft: PodDraft, budget: str) -> None:
    if budget:
        draft.set_annotations(related_annotations(budget), "PUB-31")


# Classifies a write to a Pod: irrelevant, an update, or a resize that restarts no container. [PUB-62, PUB-66] Pods are
# passed as the raw, unvalidated JSON of a review.

_RESIZABLE: Final = frozenset({"cpu", "memory"})


def update_operation(old: Mapping[str, Any], new: Mapping[str, Any]) -> ProtectedOperation | None:
    """Return the operation that the update counts as, or None if nothing relevant changes. [PUB-62, PUB-66]"""
    marked = not unavailable_labels(_labels(old)) and bool(unavailable_labels(_labels(new)))
    before, after = as_object(old.get("spec")), as_object(new.get("spec"))
    # Python considers 1 and True equal, but the API server serializes both Pods, so no field can change from 1 to true.
    if before == after:
        return ProtectedOperation.UPDATE if marked else None
    if marked or not _only_resized(old, new, before, after):
        return ProtectedOperation.UPDATE
    return ProtectedOperation.RESIZE


def _only_resized(
    old: Mapping[str, Any], new: Mapping[str, Any], before: Mapping[str, Any], after: Mapping[str, Any]
) -> bool:
    if _is_static(old) or _is_static(new):
        return False
    if _without_resources(before) != _without_resources(after) or _qos(before) != _qos(after):
        return False
    pairs = zip(objects(before.get("containers")), objects(after.get("containers")), strict=True)
    return all(_restarts_nothing(one, other) for one, other in pairs)


def _without_resources(spec: Mapping[str, Any]) -> dict[str, Any]:
    containers = [
        {key: value for key, value in container.items() if key != "resources"}
        for container in objects(spec.get("containers"))
    ]
    return {**spec, "containers": containers}


def _restarts_nothing(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    before, after = as_object(old.get("resources")), as_object(new.get("resources"))
    if _rest(before) != _rest(after):
        return False
    changed = {
        name
        for field in ("limits", "requests")
        for name in as_object(before.get(field)).keys() | as_object(after.get(field)).keys()
        if as_object(before.get(field)).get(name) != as_object(after.get(field)).get(name)
    }
    restarting = {
        policy.get("resourceName")
        for policy in objects(new.get("resizePolicy"))
        if policy.get("restartPolicy") not in (None, "", "NotRequired")
    }
    return changed <= _RESIZABLE and changed.isdisjoint(restarting)


def _rest(resources: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in resources.items() if key not in ("limits", "requests")}


def _is_static(pod: Mapping[str, Any]) -> bool:
    annotations = as_object(as_object(pod.get("metadata")).get("annotations"))
    return names.MIRROR_POD in annotations or annotations.get("kubernetes.io/config.source", "api") != "api"


def _qos(spec: Mapping[str, Any]) -> str:
    """Return the quality of service class, which depends on the CPU and memory of all containers."""
    anything, guaranteed = False, True
    for container in (*objects(spec.get("containers")), *objects(spec.get("initContainers"))):
        resources = as_object(container.get("resources"))
        limits, requests = as_object(resources.get("limits")), as_object(resources.get("requests"))
        for name in _RESIZABLE:
            limit, request = limits.get(name), requests.get(name)
            anything = anything or limit is not None or request is not None
            guaranteed = guaranteed and limit is not None and request in (None, limit)
    if not anything:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def _labels(pod: Mapping[str, Any]) -> Mapping[str, str]:
    return as_object(as_object(pod.get("metadata")).get("labels"))


# Pod guard: checks a Pod's budget before a deletion, eviction, update or resize. [PUB-60 … PUB-70]

DELETE_GATE: Final = "PodUnavailableBudgetDeleteGate"
UPDATE_GATE: Final = "PodUnavailableBudgetUpdateGate"
_REMOVALS: Final = {
    PodRequestKind.DELETE: ProtectedOperation.DELETE,
    PodRequestKind.EVICT: ProtectedOperation.EVICT,
}


class BudgetGuard:
    """Refuses disruptions of Pods. ``any_budget`` returns whether Pods in a namespace may have a budget; ``removals``
    and ``updates`` reflect the feature gates."""

    order: Final = ValidatorOrder.JUDGING

    def __init__(
        self,
        keeper: Budgets,
        any_budget: Callable[[str], Awaitable[bool]],
        refused: Refused,
        *,
        removals: bool,
        updates: bool,
    ) -> None:
        self._keeper = keeper
        self._any_budget = any_budget
        self._refused = refused
        self._removals = removals
        self._updates = updates

    async def __call__(self, request: PodRequest) -> Denied | None:
        operation = self._operation(request)
        if operation is None:
            return None
        if request.kind is PodRequestKind.EVICT:
            # Without any budget, evictions need no lookup of the Pod. Otherwise the Pod's annotation is more reliable
            # than the cache, which may not have the budget yet. [PUB-30]
            try:
                if not await self._any_budget(request.namespace):
                    return None
            except KubeError as error:
                return Denied(f"looking up PodUnavailableBudgets: {message_of(error)}", 429, "TooManyRequests")
        raw = await request.pod()
        if raw is None:
            return None
        name = related_budget(_annotations(raw))
        if not name and request.kind is PodRequestKind.UPDATE:
            name = related_budget(_annotations(request.review.object or {}))
        if not name:
            return None
        try:
            pod = msgspec.convert(raw, Pod)
        except msgspec.ValidationError as error:
            return Denied(f"request.oldObject: expected a Pod: {error}", code=400)
        found = await self._keeper.judge(pod, operation, budget=name, dry_run=request.dry_run)
        if found.allowed:
            return None
        self._refused(pod, request.review.username)
        if operation is ProtectedOperation.EVICT:
            # Clients retry, as for a PodDisruptionBudget. [PUB-67, PUB-127]
            return Denied(found.message, code=429, reason="TooManyRequests")
        return Denied(found.message, code=403, reason="Forbidden")

    def _operation(self, request: PodRequest) -> ProtectedOperation | None:
        if request.kind is not PodRequestKind.UPDATE:
            return _REMOVALS[request.kind] if self._removals else None
        if not self._updates:
            return None
        return update_operation(request.review.old_object or {}, request.review.object or {})


def _annotations(pod: Mapping[str, Any]) -> Mapping[str, str]:
    annotations = as_object(as_object(pod.get("metadata")).get("annotations"))
    return {key: value for key, value in annotations.items() if isinstance(value, str)}
