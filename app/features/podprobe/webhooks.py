"""The PodProbeMarker webhook, and the Pod creation step for serverless Pods. [PPM-1 … PPM-4, PPM-30]"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from app.api import names
from app.api.gocore import PROBE
from app.api.gojson import GoTypeError, dumps_go, go_value
from app.api.webhooks import SPEC_CHANGED, Judgment, Submitted, validating
from app.features.podprobe.defaults import with_defaults
from app.features.podprobe.kind import POD_PROBE_MARKER
from app.features.podprobe.types import PodProbeMarker
from app.features.podprobe.validation import spec_errors
from app.framework.options import Enabled, gate_is_off
from app.framework.watched import BY_NAMESPACE
from app.kube.admission import Allowed, Denied, Handler, Operation, Review, Rule, Webhook
from app.kube.patches import same
from app.kube.resources import ObjectKey
from app.kube.selector_query import SelectorError
from app.kube.selectors import Selector, compile_selector
from app.kube.store import Change, Store, key_of
from app.kube.validation import TOTAL_ANNOTATION_SIZE_LIMIT
from app.pods.admission import MutatorOrder
from app.pods.admission_draft import PodDraft

GATE: Final = "PodProbeMarkerGate"
DAEMON_GATE: Final = "KruiseDaemon"
SERVERLESS_GATE: Final = "EnablePodProbeMarkerOnServerless"
LIVENESS_GATE: Final = "EnhancedLivenessProbe"

VALIDATE: Final = Webhook(
    name="vpodprobemarker.kb.io",
    path="/validate-apps-kruise-io-podprobemarker",
    mutating=False,
    rules=(
        Rule((Operation.CREATE, Operation.UPDATE), (names.APPS_GROUP,), (names.V1ALPHA1,), (POD_PROBE_MARKER.plural,)),
    ),
    match_conditions=(SPEC_CHANGED,),
    summary="Rejects invalid PodProbeMarkers",
)
WEBHOOKS: Final = (VALIDATE,)


def handlers(enabled: Enabled) -> tuple[Handler, ...]:
    """Return the webhook declaration with its handler."""
    return (Handler(VALIDATE, validating(POD_PROBE_MARKER, partial(judge, enabled))),)


async def judge(enabled: Enabled, given: Submitted) -> Judgment:
    """Validate a PodProbeMarker. [PPM-1 … PPM-4]"""
    spec, former = given.specs(with_defaults)
    if given.is_leaving or (former is not None and same(former, spec)):
        # Updates that do not touch the spec, such as removing a finalizer, must not fail because of it.
        return Allowed()
    if off := [gate for gate in (GATE, DAEMON_GATE) if not enabled(gate)]:
        return Denied(gate_is_off(*off), code=403)
    return spec_errors(spec, former)


class ServerlessProbesStep:
    """Writes probes to annotations of serverless Pods, whose provider runs the probes without a node agent. [PPM-30]"""

    order = MutatorOrder.PROBES

    def __init__(self, markers: Store[PodProbeMarker]) -> None:
        self._markers = markers
        #: Compiled selectors; None if invalid. Compiling a namespace's selectors for each Pod would delay all reviews.
        self._selectors: dict[ObjectKey, Selector | None] = {}
        markers.subscribe(self._changed)

    def __call__(self, draft: PodDraft, review: Review) -> None:
        # If the Pod already lists its markers (it may be created from an exported Pod), the list applies. [PW-19]
        listed = draft.annotations.get(names.POD_PROBE_MARKER_LIST)
        its_own = frozenset(listed.split(",")) if listed else None
        matching = []
        for marker in self._markers.by_index(BY_NAMESPACE, review.namespace):
            selector = self._selector(marker)
            if selector is None or marker.deleting:
                continue
            selected = not selector.empty and selector.matches(draft.labels)
            if selected if its_own is None else marker.name in its_own:
                matching.append(marker)
        if not matching:
            return
        annotations = serverless_annotations(matching, probed_containers(draft.containers, draft.init_containers))
        if annotations:
            draft.set_annotations(annotations, "PPM-30")
            draft.refuse_oversized_annotations()

    def _changed(self, change: Change[PodProbeMarker]) -> None:
        self._selectors.pop(key_of(change.object), None)

    def _selector(self, marker: PodProbeMarker) -> Selector | None:
        key = key_of(marker)
        if key not in self._selectors:
            try:
                self._selectors[key] = compile_selector(marker.spec.selector)
            except SelectorError:
                self._selectors[key] = None  # stored while admission was off
        return self._selectors[key]


def probed_containers(
    containers: Iterable[Mapping[str, Any]], init_containers: Iterable[Mapping[str, Any]]
) -> frozenset[str]:
    """Return the containers that run as long as the Pod: regular containers and restartable init containers."""
    restartable = (one for one in init_containers if one.get("restartPolicy") == "Always")
    return frozenset(str(one.get("name")) for one in (*containers, *restartable))


def serverless_annotations(markers: Sequence[PodProbeMarker], containers: frozenset[str]) -> dict[str, str]:
    """Return annotations with the probes of these markers and the marker names; empty if there are none. [PPM-30]"""
    probes: list[str] = []
    size = 0
    contributing = set()
    conditions: set[str] = set()
    seen: set[tuple[str, str]] = set()
    for marker in sorted(markers, key=lambda one: one.name):
        if size > TOTAL_ANNOTATION_SIZE_LIMIT:
            break  # the API server would reject the Pod, and thousands of probes would delay other reviews
        for probe in marker.spec.probes:
            key, condition = (probe.container_name, probe.name), probe.pod_condition_type
            if probe.container_name not in containers or not condition or condition in conditions or key in seen:
                continue
            # Byte-for-byte OpenKruise's format: fields in Go's order.
            shown = probe.to_dict()
            shown.pop("markerPolicy", None)
            try:
                shown["probe"] = go_value(PROBE, shown["probe"])
            except GoTypeError:
                continue  # no provider could parse the probe; admit the Pod without it
            conditions.add(condition)
            seen.add(key)
            contributing.add(marker.name)
            probes.append(dumps_go(shown))
            size += len(probes[-1])
    if not probes:
        return {}
    return {
        names.POD_PROBE: f"[{','.join(probes)}]",
        names.POD_PROBE_MARKER_LIST: ",".join(sorted(contributing)),
    }
