"""Feature declaration of podprobe, and its controllers."""

from __future__ import annotations

from typing import Final

from app.api import names
from app.features.containerrecreate.kind import CONTAINER_RECREATE_REQUEST
from app.features.containerrecreate.types import ContainerRecreateRequest
from app.features.podprobe import webhooks
from app.features.podprobe.kind import NODE_POD_PROBE, POD_PROBE_MARKER
from app.features.podprobe.objects import (
    BY_MARKER,
    BY_POD,
    NODE_POD_PROBES,
    NodePodProbe,
    decode_node_pod_probe,
    markers_of,
    pods_of,
)
from app.features.podprobe.pod_admission import LivenessStep
from app.features.podprobe.reconcile.liveness import (
    BY_LIVENESS_NODE,
    BY_REQUESTED_POD,
    LivenessReconciler,
    liveness_nodes,
    requested_pods,
)
from app.features.podprobe.reconcile.liveness import Caches as LivenessCaches
from app.features.podprobe.reconcile.markers import (
    BY_SELECTOR,
    COALESCE_SECONDS,
    Caches,
    PodProbeMarkerReconciler,
    by_namespace,
    by_selector,
)
from app.features.podprobe.reconcile.nodes import NodePodProbeReconciler
from app.features.podprobe.types import PodProbeMarker
from app.features.podprobe.webhooks import DAEMON_GATE, GATE, LIVENESS_GATE, SERVERLESS_GATE, ServerlessProbesStep
from app.framework.feature import (
    AdmissionContext,
    AdmissionPart,
    ControllerContext,
    ControllerPart,
    Decisions,
    Feature,
    Reconciling,
    lazily,
)
from app.framework.watched import BY_NAMESPACE, NODES, PODS, PODS_BY_NAMESPACE, Scope, Watched
from app.kube.admission import PolicyRule
from app.kube.controller import Watch, to_self
from app.pods.disruption_budget import DisruptionBudget, LeastAvailable, NoBudget

WATCHED_NODE_POD_PROBES: Final[Watched[NodePodProbe]] = Watched(
    "NodePodProbes",
    NODE_POD_PROBES,
    decode_node_pod_probe,
    Scope.CLUSTER,
    indexes={BY_MARKER: markers_of, BY_POD: pods_of},
)
MARKERS: Final = Watched.kind(
    POD_PROBE_MARKER, PodProbeMarker, **{BY_NAMESPACE: by_namespace, BY_SELECTOR: by_selector}
)
LIVENESS_PODS: Final = PODS.indexed(**{BY_LIVENESS_NODE: liveness_nodes})
RECREATE_REQUESTS: Final = Watched.kind(
    CONTAINER_RECREATE_REQUEST, ContainerRecreateRequest, **{BY_REQUESTED_POD: requested_pods}
)


def podprobemarker_controller(context: ControllerContext) -> Reconciling:
    """Return the PodProbeMarker controller."""
    caches = Caches(
        context.stores(MARKERS),
        context.stores(PODS_BY_NAMESPACE),
        context.stores(NODES),
        context.stores(WATCHED_NODE_POD_PROBES),
    )
    reconciler = PodProbeMarkerReconciler(
        context.client, caches, context.events, serverless=context.enabled(SERVERLESS_GATE)
    )
    return Reconciling(
        reconciler,
        [
            Watch(caches.pods, reconciler.keys_for_pod, COALESCE_SECONDS),
            Watch(caches.nodes, reconciler.keys_for_node, COALESCE_SECONDS),
            Watch(caches.node_pod_probes, reconciler.keys_for_node_pod_probe, COALESCE_SECONDS),
            Watch(caches.markers, reconciler.keys_for_marker),
        ],
    )


def nodepodprobe_controller(context: ControllerContext) -> Reconciling:
    """Return the NodePodProbe controller, which maintains a NodePodProbe per node and applies its results to Pods."""
    nodes, node_pod_probes = context.stores(NODES), context.stores(WATCHED_NODE_POD_PROBES)
    pods, markers = context.stores(PODS), context.stores(MARKERS)
    reconciler = NodePodProbeReconciler(context.client, nodes, node_pod_probes, pods, markers)
    return Reconciling(
        reconciler,
        [
            Watch(nodes, reconciler.keys_for_node),
            Watch(pods, reconciler.keys_for_pod),
            Watch(markers, reconciler.keys_for_marker),
            Watch(node_pod_probes, to_self),
        ],
    )


def liveness_controller(context: ControllerContext) -> Reconciling:
    """Return the controller for liveness probes that the node agent runs, and for the restarts they require."""
    caches = LivenessCaches(
        context.stores(LIVENESS_PODS), context.stores(WATCHED_NODE_POD_PROBES), context.stores(RECREATE_REQUESTS)
    )
    reconciler = LivenessReconciler(
        context.client,
        caches,
        context.events,
        next(iter(context.provided(DisruptionBudget)), NoBudget()),
        context.provided(LeastAvailable),
    )
    return Reconciling(
        reconciler,
        [
            Watch(caches.pods, reconciler.keys_for_pod, COALESCE_SECONDS),
            Watch(caches.node_pod_probes, reconciler.keys_for_node_pod_probe),
            Watch(caches.requests, reconciler.keys_for_request),
        ],
    )


_NODE_PROBES: Final = NODE_POD_PROBE.plural
_MARKERS: Final = POD_PROBE_MARKER.plural

MARKER_CONTROLLER: Final = ControllerPart(
    "podprobemarker-controller",
    watched=(MARKERS, PODS_BY_NAMESPACE, NODES, WATCHED_NODE_POD_PROBES),
    make=podprobemarker_controller,
    permissions=(
        PolicyRule(("get", "patch"), (names.APPS_GROUP,), (_MARKERS,)),
        PolicyRule(("patch",), (names.APPS_GROUP,), (f"{_MARKERS}/status",)),
        PolicyRule(("get", "patch"), (names.APPS_GROUP,), (_NODE_PROBES,)),
        PolicyRule(("patch",), ("",), ("pods",)),
    ),
    gates=(GATE,),
    workers_flag="podprobemarker-workers",
)
NODE_CONTROLLER: Final = ControllerPart(
    "nodepodprobe-controller",
    watched=(NODES, WATCHED_NODE_POD_PROBES, PODS, MARKERS),
    make=nodepodprobe_controller,
    permissions=(
        PolicyRule(("get", "create", "patch", "delete"), (names.APPS_GROUP,), (_NODE_PROBES,)),
        PolicyRule(("get",), ("",), ("nodes",)),
        PolicyRule(("get", "patch"), ("",), ("pods",)),
        PolicyRule(("patch",), ("",), ("pods/status",)),
    ),
    gates=(GATE, LIVENESS_GATE),
    workers_flag="nodepodprobe-workers",
)
LIVENESS_CONTROLLER: Final = ControllerPart(
    "enhancedlivenessprobe-controller",
    watched=(LIVENESS_PODS, WATCHED_NODE_POD_PROBES, RECREATE_REQUESTS),
    make=liveness_controller,
    permissions=(
        PolicyRule(("get", "patch"), (names.APPS_GROUP,), (_NODE_PROBES,)),
        PolicyRule(("get", "create"), (names.APPS_GROUP,), (CONTAINER_RECREATE_REQUEST.plural,)),
        PolicyRule(("get",), ("",), ("pods",)),
        PolicyRule(("update",), ("",), ("pods/finalizers",)),  # Pods own the requests
    ),
    gates=(LIVENESS_GATE,),
)


def decisions(context: AdmissionContext) -> Decisions:
    """Return the webhook handlers."""
    return Decisions(webhooks.handlers(context.enabled))


def serverless(context: AdmissionContext) -> Decisions:
    """Return the Pod creation step for serverless Pods."""
    return Decisions(steps=(ServerlessProbesStep(context.stores(MARKERS)),))


def liveness(_context: AdmissionContext) -> Decisions:
    """Return the Pod creation step for liveness probes."""
    return Decisions(steps=(LivenessStep(),))


FEATURE: Final = Feature(
    name="podprobe",
    kinds=(POD_PROBE_MARKER, NODE_POD_PROBE),
    controllers=(MARKER_CONTROLLER, NODE_CONTROLLER, LIVENESS_CONTROLLER),
    admission=(
        # Served even if the gates are off: requests are then denied with a message that names the gate. [IMG-2]
        AdmissionPart(decisions, webhooks=webhooks.WEBHOOKS),
        AdmissionPart(serverless, watched=(MARKERS,), gates=(SERVERLESS_GATE,)),
        AdmissionPart(liveness, gates=(LIVENESS_GATE,)),
    ),
    gates=(GATE, DAEMON_GATE, SERVERLESS_GATE, LIVENESS_GATE),
    explain_node=lazily("app.features.podprobe.commands:explain_node"),
)
