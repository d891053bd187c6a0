"""Plans which Pods of a Widget to create and delete. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Plan:
    """Names of Pods to create and to delete."""

    create: tuple[str, ...] = ()
    delete: tuple[str, ...] = ()


def plan(widget: str, replicas: int, pods: Sequence[str]) -> Plan:
    """Return the plan. Pods are named ``<widget>-0`` and so on; Pods beyond the replicas are deleted."""
    wanted = [f"{widget}-{number}" for number in range(replicas)]
    present = set(pods)
    return Plan(tuple(name for name in wanted if name not in present), tuple(sorted(present.difference(wanted))))
