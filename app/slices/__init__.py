"""What a slice is: one value that says everything about a kind that others have to know.

A slice folder exports ``SLICE`` from its ``slice.py``; ``app.manager.slices`` holds the one list of these folders.
Caches, reflectors, queues, event recorders, metrics, permissions, gates, flags, CRDs, reference pages and the command
line are derived from it (docs/adding-a-kind.md).
"""

from typing import TYPE_CHECKING

from app.kube.lazy import names_from

if TYPE_CHECKING:
    from app.slices.admission import AdmissionContext, AdmissionPart, Decisions
    from app.slices.controllers import (
        BackgroundPart,
        BackgroundTask,
        ControllerContext,
        ControllerPart,
        Provides,
        Reconciling,
    )
    from app.slices.options import Flag, Gate, Stage
    from app.slices.protected import Protected
    from app.slices.slice import Slice
    from app.slices.watched import (
        BY_NAMESPACE,
        CLAIMS,
        CONFIGURATION,
        DEPLOYMENTS,
        JOBS,
        NAMESPACES,
        NODES,
        PODS,
        PODS_BY_NAMESPACE,
        REPLICASETS,
        REVISIONS,
        STATEFULSETS,
        Scope,
        Stores,
        Watched,
    )
else:
    __getattr__ = names_from(__name__)

__all__ = [
    "BY_NAMESPACE",
    "CLAIMS",
    "CONFIGURATION",
    "DEPLOYMENTS",
    "JOBS",
    "NAMESPACES",
    "NODES",
    "PODS",
    "PODS_BY_NAMESPACE",
    "REPLICASETS",
    "REVISIONS",
    "STATEFULSETS",
    "AdmissionContext",
    "AdmissionPart",
    "BackgroundPart",
    "BackgroundTask",
    "ControllerContext",
    "ControllerPart",
    "Decisions",
    "Flag",
    "Gate",
    "Protected",
    "Provides",
    "Reconciling",
    "Scope",
    "Slice",
    "Stage",
    "Stores",
    "Watched",
]
