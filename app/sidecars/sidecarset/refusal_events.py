"""SS-120: a Pod that a SidecarSet keeps from being created is told on the set too, where its author looks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from prometheus_client import CollectorRegistry, Gauge

from app.api.sidecarset import SIDECAR_SET, SidecarSet
from app.kube.events import EventRecorder, reference
from app.kube.objects import Object
from app.sidecars.sidecarset.step import RefusalReport

REASON: Final = "FailedInjectPod"
MALFORMED: Final = "Malformed"


def refusal_events(recorder: EventRecorder, find_set: Callable[[str], Object | None]) -> RefusalReport:
    """A report of refusals (set name, message) that writes Warning events; ``find_set`` looks into a cache.

    It neither waits nor fails, and many refusals of one set become few events.
    """

    def report(set_name: str, message: str) -> None:
        found = find_set(set_name)
        if found is not None:
            recorder.event(reference(SIDECAR_SET.resource(), found), "Warning", REASON, message)

    return report


def set_aside_gauge(registry: CollectorRegistry) -> Gauge:
    """How many sets are set aside."""
    return Gauge(
        "kruise_sidecarsets_set_aside",
        "SidecarSets that cannot be read and are injected nowhere; an event on each says why.",
        registry=registry,
    )


def malformed_events(recorder: EventRecorder) -> Callable[[SidecarSet, str], None]:
    """SS-130: a report of sets that are set aside, as Warning events on them."""

    def report(found: SidecarSet, message: str) -> None:
        recorder.event(reference(SIDECAR_SET.resource(), found), "Warning", MALFORMED, message)

    return report
