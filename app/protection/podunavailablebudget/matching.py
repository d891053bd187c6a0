"""Which budgets are for a Pod: by target, or by labels; it belongs to the oldest (PUB-31, PUB-128, PW-16). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from app.api.podunavailablebudget import PodUnavailableBudget
from app.kube.selectors import Selector, SelectorError, compile_selector


@dataclass(frozen=True, slots=True)
class Workload:
    """A workload by what tells it from others of its namespace; its version does not."""

    group: str
    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Claim:
    """A budget as far as it says whose Pods it is for: those of a target, or those with certain labels, or none."""

    name: str
    age: tuple[str, str]
    target: Workload | None = None
    selector: Selector | None = None


def claim_of(budget: PodUnavailableBudget) -> Claim:
    """What a budget is for. An empty or unreadable selector matches nothing."""
    metadata, target = budget.metadata, budget.spec.target_ref
    # Without a time it is not stored yet, and so younger than all others.
    age = (metadata.creation_timestamp or "~", metadata.name)
    if target is not None:
        return Claim(metadata.name, age, target=workload_of(target.api_version, target.kind, target.name))
    return Claim(metadata.name, age, selector=_selector(budget.spec.selector))


def workload_of(api_version: str, kind: str, name: str) -> Workload:
    """The workload an owner reference or a target names."""
    return Workload(api_version.rpartition("/")[0], kind, name)


def _selector(given: Mapping[str, object] | None) -> Selector | None:
    try:
        selector = compile_selector(given)
    except SelectorError:
        return None
    return None if selector.empty else selector


def by_age(claims: Iterable[Claim]) -> list[Claim]:
    """The oldest first, of equals the first by name."""
    return sorted(claims, key=lambda claim: claim.age)


def matches(claim: Claim, labels: Mapping[str, str], owners: Sequence[Workload]) -> bool:
    """Whether a Pod with these labels, made by these workloads (its controller, that one's, …), is meant."""
    if claim.target is not None:
        return claim.target in owners
    return claim.selector is not None and claim.selector.matches(labels)
