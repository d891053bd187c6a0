"""On which nodes a Pod is created, and which Pods go, whatever is being rolled out (DS-24 … DS-31, DS-33). Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from app.workloads.daemonset.plan.nodes import DaemonPod, NodePods, Observed
from app.workloads.daemonset.plan.settings import Settings


@dataclass(frozen=True, slots=True)
class ScalePlan:
    """``create``: nodes that get a Pod; ``delete``: Pods that go, by their hooks; ``ended``: those among them that had
    ended by themselves; ``waits``: seconds after which to look again, each positive."""

    create: tuple[str, ...] = ()
    delete: tuple[DaemonPod, ...] = ()
    ended: tuple[DaemonPod, ...] = ()
    waits: tuple[float, ...] = ()


@dataclass(slots=True)
class _Found:
    create: list[str] = field(default_factory=list)
    delete: list[DaemonPod] = field(default_factory=list)
    ended: list[DaemonPod] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)


def plan_scaling(observed: Observed, settings: Settings, held: Mapping[str, float]) -> ScalePlan:
    """``held``: nodes whose ended Pods are left alone for so many seconds, for others ended there before (DS-29)."""
    found = _Found()
    for node in observed.nodes:
        if node.eligibility.should_run and not node.pods:
            found.create.append(node.name)
        elif node.eligibility.should_continue:
            _keep(node, observed, settings, held, found)
        else:
            found.delete += node.live
    # DS-28: what waits for a node that is gone would wait for ever.
    found.delete += [pod for pod in observed.strays if not pod.bound and not pod.terminating]
    limits = settings.limits(observed.desired)
    create = sorted(found.create)
    if settings.partitioned_scaling and not settings.on_delete and limits.partition:
        create = create[: _missing_new(observed, limits.partition)]
    delete = found.delete[: limits.burst]
    return ScalePlan(
        create=tuple(create[: limits.burst]),
        delete=tuple(delete),
        ended=tuple(pod for pod in found.ended if pod in delete),
        waits=tuple(found.waits),
    )


def _missing_new(observed: Observed, partition: int) -> int:
    """DS-30: how many Pods may be made at the present template."""
    new = sum(any(map(observed.is_new, node.pods)) for node in observed.nodes)
    return max(0, observed.desired - new - min(partition, observed.desired))


def _keep(node: NodePods, observed: Observed, settings: Settings, held: Mapping[str, float], found: _Found) -> None:
    """DS-25 … DS-27: a node that has Pods, or may keep them."""
    running: list[DaemonPod] = []
    waiting = False
    for pod in node.live:
        if pod.ended:
            if node.name in held:
                waiting = True
                found.waits.append(held[node.name])
            else:
                found.delete.append(pod)
                found.ended.append(pod)
        elif pod.preparing_delete:
            found.delete.append(pod)
        else:
            running.append(pod)
    if not settings.surges:
        found.delete += running[1:]  # DS-26
    elif not running and not waiting and node.eligibility.should_run and not _is_full(node, observed):
        found.create.append(node.name)
    elif len(running) > 1:
        _end_surge(running, observed, found)


def _is_full(node: NodePods, observed: Observed) -> bool:
    """DS-47: whether a Pod of the present template is there that only waits for its hook."""
    return any(observed.is_new(pod) and not pod.ended for pod in node.live)


def _end_surge(running: Sequence[DaemonPod], observed: Observed, found: _Found) -> None:
    """DS-27: of each template the oldest Pod, and the old one only until the new one is available. An old one that
    serves stays before one that does not: it may be the only one."""
    new = next((pod for pod in running if observed.is_new(pod)), None)
    olds = [pod for pod in running if not observed.is_new(pod)]
    old = next(filter(observed.available, olds), olds[0] if olds else None)
    found.delete += [pod for pod in running if pod is not new and pod is not old]
    if new is None or old is None:
        return
    if not old.ready or observed.available(new):
        found.delete.append(old)
    elif new.available_after > observed.now and new.ready:
        found.waits.append(max(0.001, new.available_after - observed.now + 0.001))
