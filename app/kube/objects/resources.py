"""What containers and claims ask for, kept once for all that ask the same."""

from __future__ import annotations

from functools import lru_cache
from typing import Final, TypeVar

import msgspec

from app.kube.objects.base import Struct

T = TypeVar("T")


class ResourceRequirements(Struct, frozen=True):
    """What a container may use and what is kept for it: resource → quantity, as the API server writes them."""

    limits: dict[str, str] = msgspec.field(default_factory=dict)
    requests: dict[str, str] = msgspec.field(default_factory=dict)


NO_RESOURCES: Final = ResourceRequirements()

#: Longer ones, as JSON, are nobody's habit, and would be kept when their Pods are long gone.
_LONGEST_SHARED: Final = 4096
_MOST_RESOURCES: Final = 16


def shared(values: T) -> T:
    """The same values, kept once for all that have the same."""
    return _kept(values) if len(msgspec.json.encode(values)) <= _LONGEST_SHARED else values


@lru_cache(maxsize=4096)
def _kept(value: T) -> T:
    return value


@lru_cache(maxsize=4096)
def _resources_of(limits: tuple[tuple[str, str], ...], requests: tuple[tuple[str, str], ...]) -> ResourceRequirements:
    return ResourceRequirements(dict(limits), dict(requests))


def shared_resources(resources: ResourceRequirements) -> ResourceRequirements:
    """The same resources, kept once for all that ask the same."""
    if not resources.limits and not resources.requests:
        return NO_RESOURCES
    if len(resources.limits) + len(resources.requests) > _MOST_RESOURCES:
        return resources
    return _resources_of(tuple(resources.limits.items()), tuple(resources.requests.items()))
