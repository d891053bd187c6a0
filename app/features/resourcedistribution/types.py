"""API types of ResourceDistribution. v1beta1 is the hub."""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

from pydantic import Field

from app.api.model import ApiModel, KubeObject
from app.api.schema import Int32, Int64, Keywords, LabelSelector, RawObject, Time
from app.api.structural import EMBEDDED

GET_FAILED: Final = "GetResourceFailed"
CREATE_FAILED: Final = "CreateResourceFailed"
UPDATE_FAILED: Final = "UpdateResourceFailed"
DELETE_FAILED: Final = "DeleteResourceFailed"
CONFLICT: Final = "ConflictOccurred"
NO_NAMESPACE: Final = "NamespaceNotExists"
CONDITION_TYPES: Final = (GET_FAILED, CREATE_FAILED, UPDATE_FAILED, DELETE_FAILED, CONFLICT, NO_NAMESPACE)
"""Condition types in status order. [RD-51]"""


#: A complete manifest, whose apiVersion, kind and metadata the API server checks. [RD-12]
Manifest: TypeAlias = Annotated[RawObject, Keywords({EMBEDDED: True})]


class TargetNamespace(ApiModel):
    """TargetNamespace refers to a namespace."""

    name: str = ""
    """Name of the namespace."""


class NamespaceList(ApiModel):
    """NamespaceList lists namespaces by name."""

    list_: list[TargetNamespace] | None = Field(default=None, alias="list")
    """Namespaces."""


class _TargetFields(ApiModel):
    """Target fields that both versions share."""

    all_namespaces: bool = False
    """Selects all namespaces, including those created later."""
    excluded_namespaces: NamespaceList | None = None
    """Namespaces that get no copy, even if another field selects them."""
    included_namespaces: NamespaceList | None = None
    """Namespaces that get the resource, by name."""


class DistributionTargets(_TargetFields):
    """DistributionTargets selects the namespaces that get the resource. kube-system and kube-public are never
    selected."""

    namespace_selector: LabelSelector | None = None
    """Label query over namespaces. An empty selector selects none."""


class DistributionTargetsV1Alpha1(_TargetFields):
    """DistributionTargets selects the namespaces that get the resource. kube-system and kube-public are never
    selected."""

    namespace_label_selector: LabelSelector | None = None
    """Label query over namespaces. An empty selector selects none."""


class ResourceDistributionSpec(ApiModel):
    """ResourceDistributionSpec defines the resource and its target namespaces."""

    resource: Manifest
    """Complete manifest of a ConfigMap or Secret. Its namespace is ignored."""
    targets: DistributionTargets
    """Selects the namespaces that get the resource."""


class ResourceDistributionSpecV1Alpha1(ApiModel):
    """ResourceDistributionSpec defines the resource and its target namespaces."""

    resource: Manifest
    """Complete manifest of a ConfigMap or Secret. Its namespace is ignored."""
    targets: DistributionTargetsV1Alpha1
    """Selects the namespaces that get the resource."""


class _ConditionFields(ApiModel):
    """Fields of a condition that both versions share."""

    type: str
    """One type per kind of failure: GetResourceFailed, CreateResourceFailed, UpdateResourceFailed,
    DeleteResourceFailed, ConflictOccurred or NamespaceNotExists."""
    status: str
    """True if the failure occurred in the last reconcile."""
    last_transition_time: Time = ""
    """Last time the status changed."""
    reason: str = ""
    """Human-readable description of the failure."""


class DistributionCondition(_ConditionFields):
    """DistributionCondition reports one kind of failure and the namespaces where it occurred."""

    failed_namespaces: list[str] | None = None
    """Namespaces where the failure occurred."""


class DistributionConditionV1Alpha1(_ConditionFields):
    """DistributionCondition reports one kind of failure and the namespaces where it occurred."""

    failed_namespace: list[str] | None = None
    """Namespaces where the failure occurred."""


class _StatusFields(ApiModel):
    """Status fields that both versions share."""

    desired: Int32 = 0
    """Number of target namespaces."""
    succeeded: Int32 = 0
    """Number of target namespaces with an up-to-date copy."""
    failed: Int32 = 0
    """Number of target namespaces without an up-to-date copy."""
    observed_generation: Int64 = 0
    """Generation this status refers to."""


class ResourceDistributionStatus(_StatusFields):
    """ResourceDistributionStatus is the observed state of the copies."""

    conditions: list[DistributionCondition] | None = None
    """One entry per kind of failure."""


class ResourceDistributionStatusV1Alpha1(_StatusFields):
    """ResourceDistributionStatus is the observed state of the copies."""

    conditions: list[DistributionConditionV1Alpha1] | None = None
    """One entry per kind of failure."""


class ResourceDistribution(KubeObject):
    """ResourceDistribution keeps a copy of one ConfigMap or Secret in each of its target namespaces."""

    spec: ResourceDistributionSpec
    """Desired state of the ResourceDistribution."""
    status: ResourceDistributionStatus | None = None
    """Observed state of the ResourceDistribution."""


class ResourceDistributionV1Alpha1(KubeObject):
    """ResourceDistribution keeps a copy of one ConfigMap or Secret in each of its target namespaces."""

    spec: ResourceDistributionSpecV1Alpha1
    """Desired state of the ResourceDistribution."""
    status: ResourceDistributionStatusV1Alpha1 | None = None
    """Observed state of the ResourceDistribution."""
