"""What CloneSets, StatefulSets, DaemonSets and jobs have in common; ``docs/workload-engine.md`` tells how to use it.

| room | what it decides (pure) or does |
|---|---|
| `kind`, `settings` | pure: which objects are a workload's, and what the engine asks of its spec and gates |
| `pods`, `in_place`, `steps`, `refresh` | pure: facts per Pod, what changes in place, the next step of an update |
| `initial_conditions`, `conditions`, `shares` | pure: first conditions, those of the status, counts from percentages |
| `revisions`, `creation` | pure: what is recorded as a revision, what a new Pod is |
| `snapshot`, `state` | everything one reconcile goes by; what is remembered between reconciles |
| `reconciler` | the skeleton: expectations, spec, Pods, revisions, then the workload's own plan |
| `expectations`, `mappers` | own writes the cache does not show yet; from changes to keys, with bursts coalesced |
| `writer`, `named_claims`, `wording`, `outcome` | writes of Pods and claims, side by side; what came of them |
| `jobs` | the skeleton of what runs to an end: expectations, time to live, deadlines, writes in growing batches |
| `controllers` | what controllers are declared and made from alike: permissions, gates, options |
| `preview`, `explain` | pure: the words in which a preview tells each Pod's turn, and why a Pod is as it is |
| `reading`, `progress`, `commands` | what commands read of a workload, how far it is, and what they do to any |
| `history`, `updater`, `image_pulls`, `status` | revisions, updates and image pulls carried out; the status written |
"""

from typing import TYPE_CHECKING

from app.kube.lazy import names_from

if TYPE_CHECKING:
    from app.workloads.engine.creation import NewPod
    from app.workloads.engine.history import History
    from app.workloads.engine.in_place import InPlaceUpdates
    from app.workloads.engine.kind import OWNER, Owner, WorkloadKind
    from app.workloads.engine.metrics import Metrics, NoMetrics
    from app.workloads.engine.outcome import Outcome, PodGoneError, gather_results, outcome_of
    from app.workloads.engine.pods import PodFacts, pod_facts
    from app.workloads.engine.reconciler import WorkloadReconciler, result_of
    from app.workloads.engine.revisions import Content, Revisions
    from app.workloads.engine.settings import EngineGates, ImagePullSettings, ResolvedSpec, UpdatePolicy, shared_gates
    from app.workloads.engine.snapshot import Caches, Snapshot
    from app.workloads.engine.state import WorkloadState
    from app.workloads.engine.status import truncate_history, write_workload_status
    from app.workloads.engine.steps import Step, StepKind, UpdatePlan, in_place_step
    from app.workloads.engine.updater import Updater
    from app.workloads.engine.writer import Writer
else:
    __getattr__ = names_from(__name__)

__all__ = [
    "OWNER",
    "Caches",
    "Content",
    "EngineGates",
    "History",
    "ImagePullSettings",
    "InPlaceUpdates",
    "Metrics",
    "NewPod",
    "NoMetrics",
    "Outcome",
    "Owner",
    "PodFacts",
    "PodGoneError",
    "ResolvedSpec",
    "Revisions",
    "Snapshot",
    "Step",
    "StepKind",
    "UpdatePlan",
    "UpdatePolicy",
    "Updater",
    "WorkloadKind",
    "WorkloadReconciler",
    "WorkloadState",
    "Writer",
    "gather_results",
    "in_place_step",
    "outcome_of",
    "pod_facts",
    "result_of",
    "shared_gates",
    "truncate_history",
    "write_workload_status",
]
