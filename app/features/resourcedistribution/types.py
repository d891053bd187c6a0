"""The fields of ResourceDistribution: what users write and what kubectl explains. v1beta1 is the hub."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from app.api.model import ApiModel, KubeObject
from app.api.schema import Int32, Int64, LabelSelector, RawObject, Time

GET_FAILED: Final = "GetResourceFailed"
CREATE_FAILED: Final = "CreateResourceFailed"
UPDATE_FAILED: Final = "UpdateResourceFailed"
DELETE_FAILED: Final = "DeleteResourceFailed"
CONFLICT: Final = "ConflictOccurred"
NO_NAMESPACE: Final = "NamespaceNotExists"
CONDITION_TYPES: Final = (GET_FAILED, CREATE_FAILED, UPDATE_FAILED, DELETE_FAILED, CONFLICT, NO_NAMESPACE)
"""RD-51: the conditions, in the order of the status."""


class TargetNamespace(ApiModel):
    """One namespace."""

    name: str = ""
    """Its name."""


class NamespaceList(ApiModel):
    """Namespaces by name."""

    list_: list[TargetNamespace] | None = Field(default=None, alias="list")
    """The namespaces."""


class DistributionTargets(ApiModel):
    """Which namespaces get the resource. kube-system and kube-public never do."""

    all_namespaces: bool = False
    """Whether all namespaces are targets, also those to come."""
    excluded_namespaces: NamespaceList | None = None
    """Namespaces that get nothing, whatever else names them."""
    included_namespaces: NamespaceList | None = None
    """Namespaces by name."""
    namespace_selector: LabelSelector | None = None
    """Namespaces by their labels; an empty selector selects none."""


class DistributionTargetsV1Alpha1(ApiModel):
    """Which namespaces get the resource. kube-system and kube-public never do."""

    all_namespaces: bool = False
    """Whether all namespaces are targets, also those to come."""
    excluded_namespaces: NamespaceList | None = None
    """Namespaces that get nothing, whatever else names them."""
    included_namespaces: NamespaceList | None = None
    """Namespaces by name."""
    namespace_label_selector: LabelSelector | None = None
    """Namespaces by their labels; an empty selector selects none."""


class ResourceDistributionSpec(ApiModel):
    """What goes where."""

    resource: RawObject
    """The ConfigMap or Secret, as a whole manifest. Its namespace is left aside."""
    targets: DistributionTargets
    """Where it goes."""


class ResourceDistributionSpecV1Alpha1(ApiModel):
    """What goes where."""

    resource: RawObject
    """The ConfigMap or Secret, as a whole manifest. Its namespace is left aside."""
    targets: DistributionTargetsV1Alpha1
    """Where it goes."""


class _ConditionFields(ApiModel):
    """What both versions say of one kind of failure."""

    type: str
    """Which failure: GetResourceFailed, CreateResourceFailed, UpdateResourceFailed, DeleteResourceFailed,
    ConflictOccurred or NamespaceNotExists."""
    status: str
    """True where it happened, in the last reconcile."""
    last_transition_time: Time = ""
    """When the status last changed."""
    reason: str = ""
    """What went wrong, in words."""


class DistributionCondition(_ConditionFields):
    """One kind of failure, and where it happened."""

    failed_namespaces: list[str] | None = None
    """The namespaces in which it happened."""


class DistributionConditionV1Alpha1(_ConditionFields):
    """One kind of failure, and where it happened."""

    failed_namespace: list[str] | None = None
    """The namespaces in which it happened."""


class _StatusFields(ApiModel):
    """What both versions say of the state of the copies."""

    desired: Int32 = 0
    """How many namespaces are targets."""
    succeeded: Int32 = 0
    """How many of them have the resource as it should be."""
    failed: Int32 = 0
    """How many of them do not."""
    observed_generation: Int64 = 0
    """The generation of the object this is about."""


class ResourceDistributionStatus(_StatusFields):
    """The state of the copies."""

    conditions: list[DistributionCondition] | None = None
    """One entry per kind of failure."""


class ResourceDistributionStatusV1Alpha1(_StatusFields):
    """The state of the copies."""

    conditions: list[DistributionConditionV1Alpha1] | None = None
    """One entry per kind of failure."""


class ResourceDistribution(KubeObject):
    """ResourceDistribution keeps a copy of one ConfigMap or Secret in each of many namespaces."""

    spec: ResourceDistributionSpec
    """What is wanted."""
    status: ResourceDistributionStatus | None = None
    """What is."""


class ResourceDistributionV1Alpha1(KubeObject):
    """ResourceDistribution keeps a copy of one ConfigMap or Secret in each of many namespaces."""

    spec: ResourceDistributionSpecV1Alpha1
    """What is wanted."""
    status: ResourceDistributionStatusV1Alpha1 | None = None
    """What is."""
