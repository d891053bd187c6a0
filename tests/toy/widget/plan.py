"""What is to be done about a Widget's Pods. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Plan:
    """Names of Pods to create and to delete."""

    create: tuple[str, ...] = ()
    delete: tuple[str, ...] = ()


def plan(widget: str, replicas: int, pods: Sequence[str]) -> Plan:
    """The Pods are ``<widget>-0`` and so on; those beyond the replicas go."""
    wanted = [f"{widget}-{number}" for number in range(replicas)]
    present = set(pods)
    return Plan(tuple(name for name in wanted if name not in present), tuple(sorted(present.difference(wanted))))
