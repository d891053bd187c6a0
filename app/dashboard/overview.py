"""Models of the overview, the rows of workloads, and totals of Pods by owner."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeVar

from pydantic import Field, create_model

from app.framework.commands import Commands
from app.framework.dashboard import LONGEST, DashboardModel, DashboardSection, mapping, text
from app.kube.objects import Pod
from app.kube.store import Change
from app.kube.text import one_line
from app.pods.predicates import Owner, is_ready, owner_key


class Revision(DashboardModel):
    """The Pods of a workload at one revision."""

    name: str
    pods: int
    ready: int
    #: Whether new Pods get this revision.
    target: bool = False


class Workload(DashboardModel):
    """A workload and the progress of its rollout."""

    kind: str
    namespace: str = ""
    name: str
    state: Literal["done", "under way", "failed", "unknown"]
    #: Message of ``pykruise rollout status``.
    message: str
    #: Progress of the rollout, from 0 to 1.
    part: float
    revisions: list[Revision] = Field(default_factory=list)


class PodCounts(DashboardModel):
    """Pods by state."""

    ready: int = 0
    not_ready: int = 0
    pending: int = 0
    terminating: int = 0
    failed: int = 0
    finished: int = 0


class Node(DashboardModel):
    """A node's Pods. Unscheduled Pods are grouped under an empty name."""

    name: str
    pods: PodCounts


class Section(DashboardModel):
    """A section that shows a limited number of items; ``more`` is the number of items not shown."""

    total: int = 0
    more: int = 0


class Workloads(Section):
    """Workloads. Unfinished rollouts come first."""

    items: list[Workload] = Field(default_factory=list)


class Nodes(Section):
    """Nodes. Those with unready Pods come first."""

    pods: int = 0
    items: list[Node] = Field(default_factory=list)


class Overview(DashboardModel):
    """All data on the page. Each event carries the field of one section."""

    workloads: Workloads
    nodes: Nodes


def overview_model(sections: Iterable[DashboardSection[Any]]) -> type[Overview]:
    """Return the overview model with a field for each of these sections."""
    fields: dict[str, Any] = {}
    for one in sections:
        rows: Any = (list.__class_getitem__(one.row_type), Field(default_factory=list))
        fields[one.name] = (create_model(one.title, __base__=Section, __doc__=f"{one.title}.", items=rows), ...)
    return create_model("Overview", __base__=Overview, __doc__=Overview.__doc__, **fields)


def workload(commands: Commands, stored: Mapping[str, Any], revisions: Sequence[Revision]) -> Workload:
    """Return a workload's row. If the workload cannot be read, the row shows the reason."""
    metadata = mapping(stored, "metadata")
    named = {
        "kind": commands.kind.kind,
        "namespace": text(metadata, "namespace"),
        "name": text(metadata, "name"),
        "revisions": list(revisions),
    }
    try:
        progress = commands.progress(stored) if commands.progress is not None else None
    except Exception as error:  # noqa: BLE001 - an object that bypassed admission must not break the page
        return Workload(**named, state="unknown", message=one_line(f"cannot be read: {error}"[:LONGEST]), part=0.0)
    if progress is None:
        return Workload(**named, state="unknown", message="", part=0.0)
    message = one_line((progress.failed or progress.text)[:LONGEST])
    return Workload(**named, state=progress.state, message=message, part=progress.part)


def target_revision(stored: Mapping[str, Any]) -> str:
    """Return the revision of new Pods according to the status."""
    status = mapping(stored, "status")
    return text(status, "updateRevision") or text(status, "daemonSetHash")


K = TypeVar("K")

#: Maximum number of revisions shown in one row. Revisions are Pod labels, so a tenant can set a different one on each
#: Pod.
MAX_REVISIONS: Final = 10

#: Labels with a Pod's revision: the second for Pods of ReplicaSets, the first for all others.
_REVISION_LABELS: Final = ("controller-revision-hash", "pod-template-hash")


def state_of(pod: Pod) -> str:
    """Return the field of :class:`PodCounts` in which the Pod is counted."""
    if pod.metadata.deletion_timestamp is not None:
        return "terminating"
    if pod.status.phase == "Failed":
        return "failed"
    if pod.status.phase == "Succeeded":
        return "finished"
    if pod.status.phase != "Running":
        return "pending"
    return "ready" if is_ready(pod) else "not_ready"


def revision_of(pod: Pod) -> str:
    """Return the Pod's revision, or an empty string."""
    labels = pod.metadata.labels
    return next((labels[name] for name in _REVISION_LABELS if name in labels), "")


@dataclass(slots=True)
class PodTotals:
    """Totals of Pods. Applying a change takes constant time."""

    total: int = 0
    _nodes: dict[str, Counter[str]] = field(default_factory=dict)
    #: owner_key of the controller → (revision, ready) → Pods
    _controlled: dict[str, Counter[tuple[str, bool]]] = field(default_factory=dict)

    def observe(self, change: Change[Pod]) -> str:
        """Apply a change. Returns the UID of the affected controller, or an empty string."""
        for pod, step in ((change.old, -1), (change.new, 1)):
            if pod is not None:
                self._count(pod, step)
        controller = change.object.metadata.controller
        return controller.uid if controller is not None else ""

    def _count(self, pod: Pod, step: int) -> None:
        self.total += step
        state = state_of(pod)
        _add(self._nodes, pod.spec.node_name or "", state, step)
        controller = pod.metadata.controller
        if controller is not None and state not in ("failed", "finished"):
            _add(
                self._controlled,
                owner_key(controller, pod.metadata.namespace),
                (revision_of(pod), state == "ready"),
                step,
            )

    def nodes(self) -> Collection[Node]:
        return [Node(name=name, pods=PodCounts(**counts)) for name, counts in self._nodes.items()]

    def revisions(self, owner: Owner, target: str) -> list[Revision]:
        """Return the revisions of a controller's Pods: the target first, then by number of Pods; the last entry sums
        those beyond MAX_REVISIONS. ``target`` is the revision of new Pods, possibly with a prefix."""
        counts = self._controlled.get(owner.index_key, Counter())
        pods = Counter[str]()
        for (name, _), number in counts.items():
            pods[name] += number
        found = [
            Revision(
                name=name or "none",
                pods=number,
                ready=counts[name, True],
                target=bool(name) and bool(target) and (target == name or target.endswith(f"-{name}")),
            )
            for name, number in pods.items()
        ]
        found.sort(key=lambda revision: (not revision.target, -revision.pods, revision.name))
        shown, others = found[:MAX_REVISIONS], found[MAX_REVISIONS:]
        if others:
            sums = {"pods": sum(one.pods for one in others), "ready": sum(one.ready for one in others)}
            shown.append(Revision(name=f"{len(others)} others", **sums))
        return shown


def _add(sums: dict[str, Counter[K]], key: str, what: K, step: int) -> None:
    counts = sums.setdefault(key, Counter())
    counts[what] += step
    if not counts[what]:
        del counts[what]
    if not counts:
        del sums[key]
