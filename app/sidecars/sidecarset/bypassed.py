"""Pods that came past admission: selected by a SidecarSet, created without its containers. Pure.

It happens while the webhook is not registered: somebody deleted or changed its configuration, and until that is
repaired (or while no replica is there to do it) the API server asks nobody. Such Pods run without their sidecars, and
nobody would know. MGR-123.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from app.api import names
from app.kube.objects import Pod
from app.kube.selectors import Selector
from app.pods.predicates import is_active
from app.sidecars.sidecarset.plan.missed import message
from app.sidecars.sidecarset.plan.records import injected_sets
from app.sidecars.sidecarset.selection import SidecarSetIndex, in_scope, replaced_bases

REASON: Final = "SidecarsMissing"
#: By how much the API server's clock may differ from ours. Looking too far back does no harm: a Pod that was reviewed
#: carries its sets.
CLOCK_SKEW: Final = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class Bypassed:
    """A Pod and the names of the sets whose containers it lacks."""

    pod: Pod
    sets: tuple[str, ...]

    @property
    def message(self) -> str:
        """What the Pod's event says."""
        return message(self.sets)


def bypassed_pods(
    pods: Iterable[Pod],
    since: datetime,
    index: SidecarSetIndex,
    created: Mapping[str, datetime],
    namespaces: Mapping[str, Mapping[str, str]],
    reviewed: Selector,
) -> list[Bypassed]:
    """Those of ``pods`` created after ``since`` (aware, by our clock) that lack a set which was there before them.

    ``created``: when each set was created. ``namespaces``: their labels. ``reviewed`` selects the namespaces whose
    Pods the API server asks about at all.
    """
    found = []
    for pod in pods:
        at = pod.metadata.creation_timestamp
        if at is None or at < since - CLOCK_SKEW or not is_active(pod) or names.MIRROR_POD in pod.metadata.annotations:
            continue
        labels = namespaces.get(pod.metadata.namespace)
        if labels is None or not reviewed.matches(labels):
            continue
        lacking = lacking_sets(pod, index, labels)
        old_enough = tuple(name for name in lacking if name in created and created[name] <= at)
        if old_enough:
            found.append(Bypassed(pod, old_enough))
    return found


def lacking_sets(pod: Pod, index: SidecarSetIndex, labels: Mapping[str, str]) -> list[str]:
    """The sets that would inject the Pod, were it created now in a namespace with these labels, and have not."""
    sets = in_scope(index.candidates(pod.metadata.namespace, pod.metadata.labels), labels)
    present, replaced = injected_sets(pod.metadata.annotations), replaced_bases(sets)
    return [prepared.name for prepared in sets if prepared.name not in present and prepared.name not in replaced]
