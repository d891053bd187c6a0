"""Which nodes a job concerns (IMG-43). Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from app.api.imagepull import ImagePullTemplate
from app.kube.objects import ObjectMeta, Pod
from app.kube.selectors import EVERYTHING, Selector, compile_selector

_ENDED: Final = ("Succeeded", "Failed")


class Named(Protocol):
    """A NodeImage, or a Node, which has the same name and labels."""

    @property
    def metadata(self) -> ObjectMeta: ...


@dataclass(frozen=True, slots=True)
class NodeRule:
    """A job's choice of nodes: by the Pods on them, by names, or by labels."""

    pods: Selector | None = None
    names: frozenset[str] | None = None
    labels: Selector = EVERYTHING

    @classmethod
    def of(cls, spec: ImagePullTemplate) -> NodeRule:
        """Raises SelectorError where the API server was told something unreadable."""
        if spec.pod_selector is not None:
            return cls(pods=compile_selector(spec.pod_selector))
        if spec.selector is None:
            return cls()
        if (chosen := spec.selector.get("names")) is not None:
            return cls(names=frozenset(chosen))
        return cls(labels=compile_selector({key: value for key, value in spec.selector.items() if key != "names"}))

    def nodes(self, of: Iterable[Named], pods: Iterable[Pod]) -> list[str]:
        """The names of the nodes, sorted. ``pods``: those of the job's namespace; asked only where they decide."""
        there = (one for one in of if one.metadata.deletion_timestamp is None)
        if self.pods is not None:
            wanted = {
                pod.spec.node_name for pod in pods if is_scheduled(pod) and self.pods.matches(pod.metadata.labels)
            }
            return sorted(one.metadata.name for one in there if one.metadata.name in wanted)
        return sorted(one.metadata.name for one in there if self.may_match(one))

    def may_match(self, node: Named) -> bool:
        """Whether a node is chosen; where Pods decide it may be."""
        if self.pods is not None:
            return True
        if self.names is not None:
            return node.metadata.name in self.names
        return self.labels.matches(node.metadata.labels)


def by_pods(nodes: Iterable[str], pods: Iterable[Pod]) -> tuple[str, ...]:
    """IMG-105: the nodes in the order of the Pods that they have; those that have none, and ties, by name."""
    first: dict[str, int] = {}
    for index, pod in enumerate(pods):
        first.setdefault(pod.spec.node_name, index)
    return tuple(sorted(nodes, key=lambda name: (first.get(name, math.inf), name)))


def is_scheduled(pod: Pod) -> bool:
    """Whether a Pod counts for ``podSelector``: it runs, or will, on a node."""
    return bool(pod.spec.node_name) and pod.metadata.deletion_timestamp is None and pod.status.phase not in _ENDED
