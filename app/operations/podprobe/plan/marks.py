"""What the results of probes do to a Pod: labels, annotations and conditions (PPM-23 … PPM-25, PPM-31). Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from app.api.podprobe import PodContainerProbe, PodProbeMarker
from app.api.podprobe.types import FAILED, SEPARATOR, SUCCEEDED
from app.api.podprobe.validation import RESERVED
from app.kube.objects import Pod
from app.operations.podprobe.objects import ProbeState

_STATES: Final[Mapping[str, str]] = {"True": SUCCEEDED, "False": FAILED}


@dataclass(slots=True)
class Marks:
    """What a Pod gets; None takes a key away. Later results beat earlier ones."""

    labels: dict[str, str | None] = field(default_factory=dict)
    annotations: dict[str, str | None] = field(default_factory=dict)
    #: By type; the first result of a type stands (PPM-24).
    conditions: dict[str, dict[str, Any]] = field(default_factory=dict)

    def metadata_patch(self, pod: Pod | None) -> dict[str, Any]:
        """What of it the Pod does not show: members of ``metadata``; all of it where it is not known what it shows."""
        found: dict[str, Any] = {}
        for member, wanted in (("labels", self.labels), ("annotations", self.annotations)):
            present: Mapping[str, str] = getattr(pod.metadata, member) if pod is not None else {}
            changed = {key: value for key, value in wanted.items() if pod is None or present.get(key) != value}
            if changed:
                found[member] = changed
        return found

    def condition_patch(self, pod: Pod | None) -> list[dict[str, Any]]:
        """PPM-24: the conditions whose status or message differ; all where it is not known what the Pod shows."""
        found = []
        for type_, wanted in self.conditions.items():
            present = pod.condition(type_) if pod is not None else None
            if present is None or (present.status, present.message) != (wanted["status"], wanted["message"]):
                found.append(wanted)
        return found


def marks_of(
    states: Iterable[ProbeState], probed: frozenset[str], marker_of: Callable[[str], PodProbeMarker | None]
) -> Marks:
    """PPM-23: what these results do to a Pod. ``probed``: the names of the probes that its node was asked for;
    ``marker_of``: the PodProbeMarker of a name in the Pod's namespace."""
    marks = Marks()
    for state in states:
        marker_name, _, probe_name = state.name.partition(SEPARATOR)
        marker = marker_of(marker_name) if state.state and state.name in probed else None
        if marker is None or marker.deleting:
            continue
        for probe in marker.spec.probes:
            if probe.name == probe_name:
                _add_condition(marks, probe, state)
                _add_marks(marks, probe, state.state)
    return marks


def marks_of_conditions(marker: PodProbeMarker, pod: Pod) -> Marks:
    """PPM-31: what the conditions that a provider of serverless Pods has set do to the Pod; keys are only added."""
    marks = Marks()
    for probe in marker.spec.probes:
        condition = pod.condition(probe.pod_condition_type) if probe.pod_condition_type else None
        state = _STATES.get(condition.status) if condition is not None else None
        for policy in probe.marker_policy or ():
            if policy.state == state:
                marks.labels |= policy.labels or {}
                marks.annotations |= policy.annotations or {}
    return marks


def _add_condition(marks: Marks, probe: PodContainerProbe, state: ProbeState) -> None:
    type_ = probe.pod_condition_type
    if not type_ or type_ in marks.conditions or type_ in RESERVED:
        return  # PPM-44, also of what was stored while nobody judged
    condition: dict[str, Any] = {
        "type": type_,
        "status": "True" if state.state == SUCCEEDED else "False",
        "message": state.message,
    }
    if state.last_probe_time:
        condition["lastProbeTime"] = state.last_probe_time
    if state.last_transition_time:
        condition["lastTransitionTime"] = state.last_transition_time
    marks.conditions[type_] = condition


def _add_marks(marks: Marks, probe: PodContainerProbe, state: str) -> None:
    """PPM-25: what stands for another result goes, what stands for this one comes."""
    policies = probe.marker_policy or ()
    for policy in policies:
        if policy.state != state:
            marks.labels |= dict.fromkeys(policy.labels or {})
            marks.annotations |= dict.fromkeys(policy.annotations or {})
    for policy in policies:
        if policy.state == state:
            marks.labels |= policy.labels or {}
            marks.annotations |= policy.annotations or {}
