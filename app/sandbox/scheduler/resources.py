"""What Pods ask for and nodes have, in whole numbers: CPU in milli, memory and storage in bytes, the rest in pieces."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from app.kube.quantities import QuantityError, parse
from app.sandbox.objects import Container, Node, Pod


class Amounts(dict[str, int]):
    """Resource → amount."""

    def add(self, other: Mapping[str, int]) -> None:
        """Count these too."""
        for name, amount in other.items():
            self[name] = self.get(name, 0) + amount

    def subtract(self, other: Mapping[str, int]) -> None:
        """Count these no more."""
        for name, amount in other.items():
            self[name] = self.get(name, 0) - amount

    def lacking(self, wanted: Mapping[str, int], capacity: Mapping[str, int]) -> Iterator[str]:
        """Of what there is not enough left for ``wanted``, in the scheduler's words."""
        for name, amount in wanted.items():
            if amount and self.get(name, 0) + amount > capacity.get(name, 0):
                yield "Too many pods" if name == "pods" else f"Insufficient {name}"


@lru_cache(maxsize=4096)
def _amount(name: str, text: str) -> int:
    try:
        quantity = parse(text)
    except QuantityError:
        return 0
    return quantity.milli_value() if name == "cpu" else quantity.value()


def amounts(quantities: Mapping[str, Any]) -> Amounts:
    """A resource list; what is no quantity counts as zero."""
    return Amounts((name, _amount(name, str(text))) for name, text in quantities.items())


def allocatable(node: Node) -> Amounts:
    """What the node has to give."""
    return amounts(node.status.allocatable)


def requests(pod: Pod) -> Amounts:
    """What the Pod takes: its containers and sidecars together, or its largest init container if that is more."""
    total = amounts(pod.spec.overhead)
    for container in pod.spec.containers:
        total.add(_requests(container))
    sidecars = Amounts()
    largest = Amounts()
    for container in pod.spec.init_containers:
        own = _requests(container)
        if container.restart_policy == "Always":
            sidecars.add(own)
            own = sidecars
        else:
            own.add(sidecars)
        for name, amount in own.items():
            largest[name] = max(largest.get(name, 0), amount)
    total.add(sidecars)
    for name, amount in largest.items():
        total[name] = max(total.get(name, 0), amount)
    total["pods"] = 1
    return total


def _requests(container: Container) -> Amounts:
    return amounts(container.resources.get("requests") or {})
