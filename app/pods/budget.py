"""How a workload asks whether it may take a Pod out of service: a question put to whoever keeps budgets.

A PodUnavailableBudget is another domain; workloads know only this protocol, and the manager fills it in (PM-171,
CS-129).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol, TypeVar

from app.kube.objects import Object, OwnerReference, Pod
from app.kube.resources import Resource
from app.pods.predicates import Owner, refers_to

OwnedBy = TypeVar("OwnedBy", bound=Object)
#: Seconds after which a refused update is asked for again (PM-171).
RETRY_SECONDS: Final = 1.0


class Disruption(StrEnum):
    """What shall be done to the Pod."""

    UPDATE = "UPDATE"
    DELETE = "DELETE"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether it may be done now; ``reason``: why not, naming the budget."""

    allowed: bool
    reason: str = ""


ALLOWED: Final = Verdict(True)


class DisruptionBudget(Protocol):
    """Who keeps the budgets. An allowance is spent when it is given, so it is asked for just before the write."""

    async def ask(self, pod: Pod, disruption: Disruption) -> Verdict:
        """Whether this Pod may be disrupted now. Raises ``ApiError`` where that cannot be found out."""
        ...


class NoBudget:
    """Nobody keeps budgets: everything is allowed."""

    async def ask(self, pod: Pod, disruption: Disruption) -> Verdict:  # noqa: ARG002
        """Yes."""
        return ALLOWED


class LeastAvailable(Protocol):
    """What a kind of workload says of how many of its Pods must be available: what its maxUnavailable leaves (PPM-53).

    Who restarts containers asks it of each kind; the one whose object it is answers.
    """

    def __call__(self, owner: OwnerReference, namespace: str, /) -> int | None:
        """How many Pods the owner wants available at least; None for an object of another kind. Raises LookupError for
        one of its own kind that it does not know: its cache is not filled yet, or the object is gone."""
        ...


def known(found: OwnedBy | None, resource: Resource, owner: OwnerReference) -> OwnedBy:
    """Return the owner as the cache has it. Raises LookupError if it is missing or is another object by now."""
    if found is None or not refers_to(owner, found.metadata.namespace or "", Owner.of(resource, found.metadata)):
        raise LookupError(f"{owner.kind} {owner.name} is not known")
    return found
