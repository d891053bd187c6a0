"""API types of PodUnavailableBudget.

v1beta1 is the hub. v1alpha1 has annotations in place of two spec fields, and lacks a third field.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from app.api.model import ApiModel, KubeObject
from app.api.schema import Int32, Int64, IntOrString, LabelSelector, Time, enum, minimum


class TargetReference(ApiModel):
    """TargetReference refers to a workload in the same namespace. The version in apiVersion is ignored."""

    api_version: str = ""
    """API version of the workload, such as apps/v1."""
    kind: str = ""
    """Kind of the workload, such as Deployment."""
    name: str = ""
    """Name of the workload."""


class _Spec(ApiModel):
    """Fields of the spec that both versions share."""

    selector: LabelSelector | None = None
    """Selects Pods in the same namespace by label. Mutually exclusive with targetRef. Immutable."""
    target_ref: TargetReference | None = None
    """Workload whose Pods the budget protects. Mutually exclusive with selector. Immutable."""
    max_unavailable: IntOrString | None = None
    """Maximum number or percentage (such as 20%, rounded up) of Pods that may be unavailable. Mutually exclusive with
    minAvailable."""
    min_available: IntOrString | None = None
    """Minimum number or percentage (rounded up) of Pods that must stay available. Mutually exclusive with
    maxUnavailable."""


class PodUnavailableBudgetSpec(_Spec):
    """PodUnavailableBudgetSpec defines the protected Pods and how many of them may be unavailable."""

    protect_operations: list[Annotated[str, enum("DELETE", "UPDATE", "EVICT", "RESIZE")]] | None = None
    """Operations on Pods that the budget may refuse. Defaults to DELETE, UPDATE and EVICT."""
    protect_total_replicas: Annotated[Int32, minimum(1)] | None = None
    """Number of desired Pods. Overrides the replicas of the workloads."""
    ignored_pod_selector: LabelSelector | None = None
    """Pods that match this selector are not protected."""


class PodUnavailableBudgetV1Alpha1Spec(_Spec):
    """PodUnavailableBudgetSpec defines the protected Pods and how many of them may be unavailable."""


class PodUnavailableBudgetStatus(ApiModel):
    """PodUnavailableBudgetStatus reports the available Pods and the outstanding grants."""

    always_serialized: ClassVar[frozenset[str]] = frozenset(
        {"unavailable_allowed", "current_available", "desired_available", "total_replicas"}
    )

    observed_generation: Int64 = 0
    """Generation of the budget that this status reflects."""
    disrupted_pods: dict[str, Time] | None = None
    """Pods whose deletion or eviction was granted, with the time of the grant, until they are gone."""
    unavailable_pods: dict[str, Time] | None = None
    """Pods whose update or resize was granted, with the time of the grant, until they are available again."""
    unavailable_allowed: Int32 = 0
    """Number of Pods that may become unavailable now."""
    current_available: Int32 = 0
    """Number of available Pods."""
    desired_available: Int32 = 0
    """Number of Pods that must stay available."""
    total_replicas: Int32 = 0
    """Number of desired Pods."""


class PodUnavailableBudget(KubeObject):
    """PodUnavailableBudget limits how many Pods of an application may be unavailable at once, whether they are deleted,
    evicted or updated."""

    spec: PodUnavailableBudgetSpec = Field(default_factory=PodUnavailableBudgetSpec)
    """Desired state of the PodUnavailableBudget."""
    status: PodUnavailableBudgetStatus | None = None
    """Observed state of the PodUnavailableBudget."""


class PodUnavailableBudgetV1Alpha1(KubeObject):
    """PodUnavailableBudget limits how many Pods of an application may be unavailable at once, whether they are deleted,
    evicted or updated."""

    spec: PodUnavailableBudgetV1Alpha1Spec = Field(default_factory=PodUnavailableBudgetV1Alpha1Spec)
    """Desired state of the PodUnavailableBudget."""
    status: PodUnavailableBudgetStatus | None = None
    """Observed state of the PodUnavailableBudget."""
