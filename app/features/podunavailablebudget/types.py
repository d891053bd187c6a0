"""The fields of PodUnavailableBudget: what users write and what kubectl explains.

v1beta1 is the hub. v1alpha1 has annotations for two of its fields, and nothing for the third.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from app.api.model import ApiModel, KubeObject
from app.api.schema import Int32, Int64, IntOrString, Keywords, LabelSelector, enum

#: A moment, in the text form the API has.
Time = Annotated[str, Keywords({"format": "date-time"})]


class TargetReference(ApiModel):
    """A workload in the same namespace. The version in apiVersion does not matter."""

    api_version: str = ""
    """Group and version of the workload, such as apps/v1."""
    kind: str = ""
    """Its kind, such as Deployment."""
    name: str = ""
    """Its name."""


class _Spec(ApiModel):
    """What both versions of the spec say in the same words."""

    selector: LabelSelector | None = None
    """The Pods that count, by labels, in the same namespace. Either this or targetRef; it cannot be changed."""
    target_ref: TargetReference | None = None
    """The workload whose Pods count. Either this or selector; it cannot be changed."""
    max_unavailable: IntOrString | None = None
    """How many of the Pods may be unavailable at once, as a number or a percentage such as 20% (rounded up). Either
    this or minAvailable."""
    min_available: IntOrString | None = None
    """How many of the Pods must stay available, as a number or a percentage (rounded up). Either this or
    maxUnavailable."""


class PodUnavailableBudgetSpec(_Spec):
    """Which Pods count, and how many of them may be unavailable at once."""

    protect_operations: list[Annotated[str, enum("DELETE", "UPDATE", "EVICT", "RESIZE")]] | None = None
    """Which operations on a Pod are judged; DELETE, UPDATE and EVICT by default."""
    protect_total_replicas: Annotated[Int32, Keywords({"minimum": 1})] | None = None
    """How many Pods there are meant to be, instead of the number that follows from their workloads."""
    ignored_pod_selector: LabelSelector | None = None
    """Pods with these labels are never judged."""


class PodUnavailableBudgetV1Alpha1Spec(_Spec):
    """Which Pods count, and how many of them may be unavailable at once."""


class PodUnavailableBudgetStatus(ApiModel):
    """How many Pods are available, and what was granted and is not seen done yet."""

    always_serialised: ClassVar[frozenset[str]] = frozenset(
        {"unavailable_allowed", "current_available", "desired_available", "total_replicas"}
    )

    observed_generation: Int64 = 0
    """The generation of the budget these numbers are about."""
    disrupted_pods: dict[str, Time] | None = None
    """Pods whose deletion or eviction was granted, and when; each until it is seen gone."""
    unavailable_pods: dict[str, Time] | None = None
    """Pods whose update or resize was granted, and when; each until it is seen available again."""
    unavailable_allowed: Int32 = 0
    """How many further Pods may become unavailable now."""
    current_available: Int32 = 0
    """How many Pods are available."""
    desired_available: Int32 = 0
    """How many Pods have to stay available."""
    total_replicas: Int32 = 0
    """How many Pods there are meant to be."""


class PodUnavailableBudget(KubeObject):
    """PodUnavailableBudget limits how many Pods of an application are unavailable at once, whoever deletes, evicts or
    changes them."""

    spec: PodUnavailableBudgetSpec = Field(default_factory=PodUnavailableBudgetSpec)
    """What is wanted."""
    status: PodUnavailableBudgetStatus | None = None
    """What is observed."""


class PodUnavailableBudgetV1Alpha1(KubeObject):
    """PodUnavailableBudget limits how many Pods of an application are unavailable at once, whoever deletes, evicts or
    changes them."""

    spec: PodUnavailableBudgetV1Alpha1Spec = Field(default_factory=PodUnavailableBudgetV1Alpha1Spec)
    """What is wanted."""
    status: PodUnavailableBudgetStatus | None = None
    """What is observed."""
