"""The fields of PersistentPodState: what users write and what kubectl explains.

v1beta1 is the hub. v1alpha1 calls the keys of a topology nodeTopologyKeys.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field

from app.api.model import ApiModel, KubeObject
from app.api.schema import Int32, Int64, enum, minimum


class TargetReference(ApiModel):
    """Whose Pods' places are remembered."""

    api_version: str
    """Group and version of the workload."""
    kind: str
    """StatefulSet, or a kind on the white list."""
    name: str
    """Its name, in this namespace."""


class PodAnnotation(ApiModel):
    """An annotation of Pods that is remembered."""

    key: str
    """Its key."""


class NodeTopologyTerm(ApiModel):
    """Labels of nodes."""

    #: Conversion leaves an empty list out, although manifests must have one.
    schema_keywords: ClassVar[Mapping[str, Any]] = {"required": ["keys"]}

    keys: list[str] = Field(default_factory=list)
    """Their keys."""


class PreferredTopologyTerm(ApiModel):
    """Labels of nodes that a Pod likes to find again."""

    weight: Annotated[Int32, minimum(0)]
    """How much, from 1 to 100."""
    preference: NodeTopologyTerm
    """The labels."""


class NodeTopologyTermV1Alpha1(ApiModel):
    """Labels of nodes."""

    schema_keywords: ClassVar[Mapping[str, Any]] = {"required": ["nodeTopologyKeys"]}

    node_topology_keys: list[str] = Field(default_factory=list)
    """Their keys."""


class PreferredTopologyTermV1Alpha1(ApiModel):
    """Labels of nodes that a Pod likes to find again."""

    weight: Int32
    """How much, from 1 to 100."""
    preference: NodeTopologyTermV1Alpha1
    """The labels."""


class _Spec(ApiModel):
    target_ref: TargetReference
    """Whose Pods' places are remembered. It cannot be changed afterwards."""
    persistent_pod_annotations: list[PodAnnotation] | None = None
    """Annotations of Pods that are remembered with the place."""


class PersistentPodStateSpec(_Spec):
    """What is remembered, and how strictly Pods go back."""

    required_persistent_topology: NodeTopologyTerm | None = None
    """Labels of nodes that a Pod made anew must find again."""
    preferred_persistent_topology: list[PreferredTopologyTerm] | None = None
    """Labels of nodes that a Pod made anew likes to find again."""
    persistent_pod_state_retention_policy: Annotated[str, enum("WhenScaled", "WhenDeleted")] = ""
    """WhenScaled (the default) forgets Pods that are scaled in; WhenDeleted keeps their places until the workload is
    deleted."""


class PersistentPodStateV1Alpha1Spec(_Spec):
    """What is remembered, and how strictly Pods go back."""

    required_persistent_topology: NodeTopologyTermV1Alpha1 | None = None
    """Labels of nodes that a Pod made anew must find again."""
    preferred_persistent_topology: list[PreferredTopologyTermV1Alpha1] | None = None
    """Labels of nodes that a Pod made anew likes to find again."""
    persistent_pod_state_retention_policy: str = ""
    """WhenScaled (the default) forgets Pods that are scaled in; WhenDeleted keeps their places until the workload is
    deleted."""


class PodState(ApiModel):
    """Where a Pod was when it was last ready."""

    node_name: str = ""
    """The node."""
    node_topology_labels: dict[str, str] | None = None
    """The labels of the node that are remembered."""
    annotations: dict[str, str] | None = None
    """The annotations of the Pod that are remembered."""


class PersistentPodStateStatus(ApiModel):
    """What is remembered."""

    always_serialised: ClassVar[frozenset[str]] = frozenset({"observed_generation"})

    observed_generation: Int64
    """The generation of the object this is about."""
    pod_states: dict[str, PodState] | None = None
    """By the names of Pods."""


class PersistentPodState(KubeObject):
    """PersistentPodState remembers where the Pods of a workload ran, so that they come back there."""

    spec: PersistentPodStateSpec
    """What is remembered, and how strictly Pods go back."""
    status: PersistentPodStateStatus | None = None
    """What is remembered."""


class PersistentPodStateV1Alpha1(KubeObject):
    """PersistentPodState remembers where the Pods of a workload ran, so that they come back there."""

    spec: PersistentPodStateV1Alpha1Spec
    """What is remembered, and how strictly Pods go back."""
    status: PersistentPodStateStatus | None = None
    """What is remembered."""
