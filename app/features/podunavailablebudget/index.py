"""Finds the budget that covers a Pod, and the chain of workloads that own the Pod."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from app.features.podunavailablebudget.plan.pods import Claim, Workload, claim_of, matches, workload_of
from app.features.podunavailablebudget.types import PodUnavailableBudget
from app.kube.client import Client
from app.kube.discovery import KindMapper
from app.kube.errors import KubeError
from app.kube.objects import OwnerReference, decode_metadata, is_short
from app.kube.selectors import label_keys, selector_keys
from app.kube.store import Change, Store
from app.pods.predicates import Owner, refers_to

# Workloads above a Pod: its controller, that controller's controller, and so on. [PUB-31, PUB-122] They are read from
# the API server, and cached because they rarely change.

#: Maximum length of the chain.
MAX_HEIGHT: Final = 8
#: Maximum number of cached workloads, and seconds until they expire, because a workload may be adopted later.
MAX_REMEMBERED: Final = 4_096
REMEMBERED: Final = 60.0


class LiveOwners:
    """Reads the workloads above an object from the API server. The chain ends at the first one that cannot be read."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._kinds = KindMapper(client)
        #: Cached controllers of owners. They are not keyed by UID alone: the creator of a Pod can write any UID into
        #: its owner references.
        self._known: OrderedDict[tuple[str, OwnerReference], tuple[float, OwnerReference | None]] = OrderedDict()

    async def above(self, controller: OwnerReference, namespace: str) -> Sequence[Workload]:
        """Return the chain, starting with the Pod's controller."""
        found: list[Workload] = []
        current: OwnerReference | None = controller
        while current is not None and len(found) < MAX_HEIGHT:
            found.append(workload_of(current.api_version, current.kind, current.name))
            current = await self._controller_of(current, namespace)
        return found

    async def _controller_of(self, reference: OwnerReference, namespace: str) -> OwnerReference | None:
        now = self._client.clock.monotonic()
        asked = (namespace, reference)
        until, known = self._known.get(asked, (0.0, None))
        if now < until:
            return known
        try:
            mapped = await self._kinds.find(reference.api_version, reference.kind)
            if mapped is None or not mapped.resource.namespaced:
                above = None
            else:
                owner = await self._client.get(mapped.resource, reference.name, namespace, decode=decode_metadata)
                same = refers_to(reference, namespace, Owner.of(mapped.resource, owner.metadata))
                above = owner.metadata.controller if same else None
        except (KubeError, ValueError):
            return None
        if is_short((asked, above)):
            self._known[asked] = (now + REMEMBERED, above)
        if len(self._known) > MAX_REMEMBERED:
            self._known.popitem(last=False)
        return above


class DirectOwners:
    """Owners in standalone mode: only the Pod's controller is known."""

    async def above(self, controller: OwnerReference, namespace: str) -> Sequence[Workload]:  # noqa: ARG002
        return (workload_of(controller.api_version, controller.kind, controller.name),)


Owners: TypeAlias = LiveOwners | DirectOwners


class Claims:
    """Cached budgets by namespace, target and selector."""

    def __init__(self, budgets: Store[PodUnavailableBudget]) -> None:
        self._by_namespace: dict[str, dict[str, Claim]] = {}
        #: Key of a selector or target → its claims by name.
        self._places: dict[str, dict[str, Claim]] = {}
        #: Namespace → number of claims with a target.
        self._targets: dict[str, int] = {}
        budgets.subscribe(self._changed)

    def names(self, namespace: str) -> Collection[str]:
        return self._by_namespace.get(namespace, {}).keys()

    def has_targets(self, namespace: str) -> bool:
        """Return whether any budget in the namespace has a targetRef."""
        return namespace in self._targets

    def matching(self, namespace: str, labels: Mapping[str, str], owners: Sequence[Workload]) -> Sequence[Claim]:
        """Return the claims that match a Pod with these labels and owners, oldest first."""
        found: dict[str, Claim] = {}
        for key in (*label_keys(namespace, labels), *(_target_key(namespace, one) for one in owners)):
            found |= self._places.get(key, {})
        matching = (claim for claim in found.values() if matches(claim, labels, owners))
        return sorted(matching, key=lambda claim: claim.age)

    def budget_for(self, namespace: str, labels: Mapping[str, str], owners: Sequence[Workload]) -> str:
        """Return the name of the budget that covers a Pod with these labels and owners, or ''. [PUB-31]"""
        found = self.matching(namespace, labels, owners)
        return found[0].name if found else ""

    def __bool__(self) -> bool:
        """Return whether any budget is known."""
        return bool(self._by_namespace)

    def _changed(self, change: Change[PodUnavailableBudget]) -> None:
        metadata = change.object.metadata
        known = self._by_namespace.setdefault(metadata.namespace, {})
        before = known.pop(metadata.name, None)
        after = claim_of(change.new) if change.new is not None and not change.new.deleting else None
        if before is not None:
            self._leave(metadata.namespace, before)
        if after is not None:
            known[metadata.name] = after
            self._stand(metadata.namespace, after)
        if not known:
            del self._by_namespace[metadata.namespace]

    def _stand(self, namespace: str, claim: Claim) -> None:
        for key in _keys(namespace, claim):
            self._places.setdefault(key, {})[claim.name] = claim
        if claim.target is not None:
            self._targets[namespace] = self._targets.get(namespace, 0) + 1

    def _leave(self, namespace: str, claim: Claim) -> None:
        for key in _keys(namespace, claim):
            del self._places[key][claim.name]
            if not self._places[key]:
                del self._places[key]
        if claim.target is not None:
            self._targets[namespace] -= 1
            if not self._targets[namespace]:
                del self._targets[namespace]


def _keys(namespace: str, claim: Claim) -> Iterable[str]:
    if claim.target is not None:
        return (_target_key(namespace, claim.target),)
    return selector_keys(namespace, claim.selector) if claim.selector is not None else ()


def _target_key(namespace: str, workload: Workload) -> str:
    """Return the index key of a target. Its prefix cannot occur in a label key."""
    return f"{namespace}/@{workload.group}/{workload.kind}/{workload.name}"
