"""The disruption budget protocol: workloads request permission before they take a Pod out of service. [PM-171, PUB-90]

Workloads depend only on this protocol; the manager provides the implementation (PodUnavailableBudget).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol, TypeVar

from app.kube.objects import Object, OwnerReference, Pod
from app.kube.resources import Resource
from app.pods.predicates import Owner, refers_to

OwnedBy = TypeVar("OwnedBy", bound=Object)
#: Seconds after which a refused update is requested again. [PM-171]
RETRY_SECONDS: Final = 1.0


class Disruption(StrEnum):
    """Kind of disruption requested for a Pod."""

    UPDATE = "UPDATE"
    DELETE = "DELETE"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether the disruption is allowed now. ``reason`` explains a refusal and names the budget."""

    allowed: bool
    reason: str = ""


ALLOWED: Final = Verdict(True)


class DisruptionBudget(Protocol):
    """Grants disruptions. A granted disruption uses up part of the budget, so ask just before the write."""

    async def ask(self, pod: Pod, disruption: Disruption) -> Verdict:
        """Return whether the Pod may be disrupted now. Raises ``ApiError`` if that cannot be determined."""
        ...


class NoBudget:
    """A budget that allows every disruption."""

    async def ask(self, pod: Pod, disruption: Disruption) -> Verdict:  # noqa: ARG002
        return ALLOWED


class LeastAvailable(Protocol):
    """Returns the minimum number of available Pods of a workload, derived from its maxUnavailable. [PPM-53]

    The enhancedlivenessprobe controller calls the functions of all workload kinds; only the one for the owner's kind
    returns a number.
    """

    def __call__(self, owner: OwnerReference, namespace: str, /) -> int | None:
        """Return the minimum number of available Pods, or None for an object of another kind. Raises LookupError for an
        object of this kind that is not in the cache: the cache is not synced yet, or the object was deleted."""
        ...


def known(found: OwnedBy | None, resource: Resource, owner: OwnerReference) -> OwnedBy:
    """Return the owner from the cache. Raises LookupError if it is missing or was replaced by another object."""
    if found is None or not refers_to(owner, found.metadata.namespace or "", Owner.of(resource, found.metadata)):
        raise LookupError(f"{owner.kind} {owner.name} is not in the cache")
    return found
