"""Native workloads as those see them that count their Pods, their revisions, and claims on volumes."""

from __future__ import annotations

from datetime import datetime

import msgspec

from app.kube.objects.base import ObjectMeta, Struct, decoder
from app.kube.objects.pods import PodCondition
from app.kube.objects.resources import NO_RESOURCES, ResourceRequirements, shared_resources


class PersistentVolumeClaimSpec(Struct, frozen=True):
    """What is asked of a volume."""

    access_modes: tuple[str, ...] = ()
    storage_class_name: str | None = None
    resources: ResourceRequirements = NO_RESOURCES

    def __post_init__(self) -> None:
        # Mostly the same in all claims of a workload, and then kept once.
        msgspec.structs.force_setattr(self, "resources", shared_resources(self.resources))


class WorkloadTemplate(Struct, frozen=True):
    """What a workload makes its Pods from, as far as others ask: their labels."""

    metadata: ObjectMeta = ObjectMeta()


class WorkloadOrdinals(Struct, frozen=True):
    """Which numbers the Pods of a StatefulSet have."""

    start: int = 0


class WorkloadSpec(Struct, frozen=True):
    """How many Pods a workload wants; None where it does not say."""

    replicas: int | None = None
    template: WorkloadTemplate = WorkloadTemplate()
    ordinals: WorkloadOrdinals | None = None


class Workload(Struct, frozen=True):
    """A Deployment, ReplicaSet or StatefulSet, as those see it that count its Pods."""

    metadata: ObjectMeta = ObjectMeta()
    spec: WorkloadSpec = WorkloadSpec()


class PersistentVolumeClaimStatus(Struct, frozen=True):
    """How far a claim is."""

    phase: str = ""
    capacity: dict[str, str] = msgspec.field(default_factory=dict)
    conditions: tuple[PodCondition, ...] = ()


class PersistentVolumeClaim(Struct, frozen=True):
    """A claim on a volume."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: PersistentVolumeClaimStatus = PersistentVolumeClaimStatus()


class ControllerRevision(Struct, frozen=True):
    """A stored revision; ``data`` is the raw JSON as the server sent it."""

    metadata: ObjectMeta = ObjectMeta()
    revision: int = 0
    data: msgspec.Raw = msgspec.Raw(b"null")

    def __post_init__(self) -> None:
        # A decoded Raw is a view that would keep the whole received message alive.
        msgspec.structs.force_setattr(self, "data", self.data.copy())


class JobCondition(Struct, frozen=True):
    """How a Job ended."""

    type: str = ""
    status: str = ""


class JobStatus(Struct, frozen=True):
    """Whether it goes on, and since when."""

    start_time: datetime | None = None
    conditions: tuple[JobCondition, ...] = ()


class JobSpec(Struct, frozen=True):
    """How many Pods a Job runs at once; None where it does not say."""

    parallelism: int | None = None


class Job(Struct, frozen=True):
    """A Job of Kubernetes, as far as whoever made it asks."""

    metadata: ObjectMeta = ObjectMeta()
    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()


decode_workload = decoder(Workload)

decode_persistent_volume_claim = decoder(PersistentVolumeClaim)

decode_controller_revision = decoder(ControllerRevision)

decode_job = decoder(Job)
