"""Nodes and Pods for tests of the plan."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from math import inf

from app.api import names
from app.features.daemonset.plan.scale import DaemonPod, Observed, observe
from app.kube.objects import ObjectMeta, Pod, PodSpec
from app.pods.node_fit import ELIGIBLE, Eligibility

OLD, NEW = "oldhash", "newhash"
NOW = 1000.0
_numbers = itertools.count()


def pod(
    node: str,
    revision: str = OLD,
    *,
    available: bool = True,
    ready: bool | None = None,
    available_after: float | None = None,
    terminating: bool = False,
    ended: bool = False,
    preparing_delete: bool = False,
    bound: bool = True,
    age: float | None = None,
) -> DaemonPod:
    """Return a Pod on that node. ``ready`` defaults to ``available``."""
    number = next(_numbers)
    name = f"ds-{number:05}"
    after = available_after if available_after is not None else (-inf if available else inf)
    return DaemonPod(
        pod=Pod(
            metadata=ObjectMeta(name=name, uid=f"uid-{name}", labels={names.CONTROLLER_REVISION_HASH: revision}),
            spec=PodSpec(node_name=node if bound else ""),
        ),
        name=name,
        node=node,
        bound=bound,
        revision=revision,
        terminating=terminating,
        ended=ended,
        preparing_delete=preparing_delete,
        hooked=False,
        ready=available if ready is None else ready,
        available_after=after,
        age=(not bound, float(number) if age is None else age, name),
    )


def cluster(
    nodes: Iterable[str] | int,
    pods: Iterable[DaemonPod],
    *,
    eligibility: Mapping[str, Eligibility] | None = None,
    selected: Iterable[str] | None = None,
) -> Observed:
    """``nodes``: names, or the number of nodes n1, n2, …; eligible by default."""
    listed = [f"n{number + 1}" for number in range(nodes)] if isinstance(nodes, int) else list(nodes)
    known = {name: (eligibility or {}).get(name, ELIGIBLE) for name in listed}
    unselected = frozenset(listed).difference(selected) if selected is not None else frozenset()
    return observe(known, pods, unselected=unselected, new=(NEW,), now=NOW)


def old_pods(*changed: DaemonPod, nodes: int = 5) -> list[DaemonPod]:
    """Return an available old Pod per node, except on the nodes of ``changed``, and ``changed``."""
    there = {one.node for one in changed}
    return [*changed, *(pod(f"n{n + 1}") for n in range(nodes) if f"n{n + 1}" not in there)]


def nodes_of(pods: Iterable[DaemonPod]) -> list[str]:
    return [one.node for one in pods]
