"""Workloads and related objects, with only the fields that the native controllers read."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

import msgspec

from app.kube.objects import ObjectMeta, Struct
from app.kube.resources import Resource

JOBS: Final = Resource("batch", "v1", "jobs", "Job")
ENDPOINTS: Final = Resource("", "v1", "endpoints", "Endpoints")
PERSISTENTVOLUMES: Final = Resource("", "v1", "persistentvolumes", "PersistentVolume", namespaced=False)
PODDISRUPTIONBUDGETS: Final = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")


class Template(Struct, frozen=True):
    """A Pod template; metadata and spec are not decoded."""

    metadata: dict[str, Any] = msgspec.field(default_factory=dict)
    spec: dict[str, Any] = msgspec.field(default_factory=dict)

    @property
    def labels(self) -> dict[str, str]:
        """Return the labels of the template's Pods."""
        return self.metadata.get("labels") or {}


class RollingUpdate(Struct, frozen=True):
    """Limits for a rolling update."""

    max_surge: int | str | None = None
    max_unavailable: int | str | None = None
    partition: int = 0


class Strategy(Struct, frozen=True):
    """How Pods are replaced."""

    type: str = ""
    rolling_update: RollingUpdate = RollingUpdate()


class WorkloadSpec(Struct, frozen=True):
    """Spec fields of Deployments, ReplicaSets, StatefulSets and DaemonSets. No kind uses all of them."""

    replicas: int = 1
    min_ready_seconds: int = 0
    paused: bool = False
    selector: dict[str, Any] = msgspec.field(default_factory=dict)
    template: Template = Template()
    strategy: Strategy = Strategy()
    update_strategy: Strategy = Strategy()
    revision_history_limit: int = 10
    progress_deadline_seconds: int = 600
    service_name: str = ""
    pod_management_policy: str = "OrderedReady"
    ordinals: dict[str, int] = msgspec.field(default_factory=dict)
    volume_claim_templates: tuple[dict[str, Any], ...] = ()


class Condition(Struct, frozen=True):
    """One condition of a workload."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_update_time: datetime | None = None
    last_transition_time: datetime | None = None


class WorkloadStatus(Struct, frozen=True):
    """Status of a workload, compared before it is written."""

    observed_generation: int = 0
    replicas: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0
    fully_labeled_replicas: int = 0
    updated_replicas: int = 0
    unavailable_replicas: int = 0
    current_replicas: int = 0
    current_revision: str = ""
    update_revision: str = ""
    desired_number_scheduled: int = 0
    current_number_scheduled: int = 0
    updated_number_scheduled: int = 0
    number_ready: int = 0
    number_available: int = 0
    number_unavailable: int = 0
    number_misscheduled: int = 0
    collision_count: int | None = None
    conditions: tuple[Condition, ...] = ()


class Workload(Struct, frozen=True):
    """A Deployment, ReplicaSet, StatefulSet or DaemonSet."""

    metadata: ObjectMeta = ObjectMeta()
    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()


class JobSpec(Struct, frozen=True):
    """Desired state of a Job."""

    parallelism: int = 1
    completions: int | None = None
    backoff_limit: int = 6
    active_deadline_seconds: int | None = None
    ttl_seconds_after_finished: int | None = None
    suspend: bool = False
    completion_mode: str = "NonIndexed"
    selector: dict[str, Any] = msgspec.field(default_factory=dict)
    template: Template = Template()


class JobStatus(Struct, frozen=True):
    """Observed state of a Job."""

    active: int = 0
    ready: int = 0
    succeeded: int = 0
    failed: int = 0
    completed_indexes: str = ""
    start_time: datetime | None = None
    completion_time: datetime | None = None
    conditions: tuple[Condition, ...] = ()


class Job(Struct, frozen=True):
    """A Job."""

    metadata: ObjectMeta = ObjectMeta()
    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()


class ServicePort(Struct, frozen=True):
    """A port of a Service."""

    name: str = ""
    port: int = 0
    target_port: int | str | None = None
    protocol: str = "TCP"


class ServiceSpec(Struct, frozen=True):
    """Selector and ports of a Service."""

    selector: dict[str, str] = msgspec.field(default_factory=dict)
    ports: tuple[ServicePort, ...] = ()
    type: str = "ClusterIP"
    publish_not_ready_addresses: bool = False


class Service(Struct, frozen=True):
    """A Service."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ServiceSpec = ServiceSpec()


class ClaimSpec(Struct, frozen=True):
    """Desired state of a volume claim."""

    access_modes: tuple[str, ...] = ()
    resources: dict[str, Any] = msgspec.field(default_factory=dict)
    volume_name: str = ""
    storage_class_name: str | None = None
    volume_mode: str = "Filesystem"


class Phase(Struct, frozen=True):
    """A status of which only the phase is read."""

    phase: str = ""


class Claim(Struct, frozen=True):
    """A PersistentVolumeClaim."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ClaimSpec = ClaimSpec()
    status: Phase = Phase()


class BudgetSpec(Struct, frozen=True):
    """Limits on concurrent disruptions."""

    min_available: int | str | None = None
    max_unavailable: int | str | None = None
    selector: dict[str, Any] | None = None


class Budget(Struct, frozen=True):
    """A PodDisruptionBudget; its status is not decoded."""

    metadata: ObjectMeta = ObjectMeta()
    spec: BudgetSpec = BudgetSpec()
    status: dict[str, Any] = msgspec.field(default_factory=dict)


class Slice(Struct, frozen=True):
    """An EndpointSlice or Endpoints object; its entries are not decoded."""

    metadata: ObjectMeta = ObjectMeta()
    endpoints: list[dict[str, Any]] | None = None
    ports: list[dict[str, Any]] | None = None
    subsets: list[dict[str, Any]] | None = None
