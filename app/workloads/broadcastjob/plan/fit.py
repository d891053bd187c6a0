"""Whether a node takes a Pod of a job (BJ-5, BJ-6): as the scheduler would say if the node were empty."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from app.kube.objects import Node, Taint
from app.kube.quantities import Quantity, QuantityError, parse
from app.pods.eligibility import NO_SCHEDULE, Placement, placement_of

_CORDON = Taint(key="node.kubernetes.io/unschedulable", effect=NO_SCHEDULE)


@dataclass(frozen=True, slots=True)
class Fit:
    """What a Pod asks of its node: compiled once, held against any number of nodes. ``requests`` is None where they
    cannot be read: no node fits."""

    placement: Placement
    requests: Mapping[str, Quantity] | None

    def fits(self, node: Node) -> bool:
        """Whether the node takes one."""
        return not self.obstacle(node)

    def obstacle(self, node: Node) -> str:
        """Why the node takes none; '' if it does."""
        if self.requests is None:
            return "the template's requests cannot be read"
        found = self.placement.eligibility(node)
        if not found.should_run:
            return found.reason
        if node.spec.unschedulable and not any(one.tolerates(_CORDON) for one in self.placement.tolerations):
            return "the node is cordoned"
        return "" if self._has_room(node.status.allocatable) else "the node has too little room, even when it is empty"

    def _has_room(self, allocatable: Mapping[str, str]) -> bool:
        try:
            if parse(allocatable.get("pods", "0")) < parse("1"):
                return False
            return all(
                wanted <= parse(allocatable.get(name, "0"))
                for name, wanted in (self.requests or {}).items()
                if not wanted.is_zero
            )
        except QuantityError:
            return False


def fit_of(template: Mapping[str, Any]) -> Fit:
    """What Pods of a template (its JSON, which nobody may have judged) ask of nodes."""
    spec = template.get("spec")
    spec = spec if isinstance(spec, dict) else {}
    try:
        return Fit(placement_of(spec), _requests(spec))
    except (QuantityError, TypeError, AttributeError):
        return Fit(placement_of(spec), None)


def _requests(spec: Mapping[str, Any]) -> dict[str, Quantity]:
    """Of all containers together, or of the largest init container beside those that stay; and the overhead."""
    running: dict[str, Quantity] = {}
    peak: dict[str, Quantity] = {}
    for container in spec.get("initContainers") or ():
        requests = _of(container)
        if container.get("restartPolicy") == "Always":
            _add(running, requests)
            requests = {}
        _raise_to(peak, _sum(running, requests))
    for container in spec.get("containers") or ():
        _add(running, _of(container))
    _raise_to(peak, running)
    _add(peak, {name: parse(value) for name, value in (spec.get("overhead") or {}).items()})
    return peak


def _of(container: Mapping[str, Any]) -> dict[str, Quantity]:
    resources = container.get("resources") or {}
    # Kubernetes requests what is limited and not requested.
    asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {name: parse(value) for name, value in asked.items()}


def _add(total: dict[str, Quantity], more: Mapping[str, Quantity]) -> None:
    for name, value in more.items():
        total[name] = total[name] + value if name in total else value


def _sum(one: Mapping[str, Quantity], other: Mapping[str, Quantity]) -> dict[str, Quantity]:
    found = dict(one)
    _add(found, other)
    return found


def _raise_to(peak: dict[str, Quantity], values: Mapping[str, Quantity]) -> None:
    for name, value in values.items():
        if name not in peak or peak[name] < value:
            peak[name] = value
