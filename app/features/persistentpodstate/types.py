"""API types of PersistentPodState.

v1beta1 is the hub. In v1alpha1, the field ``keys`` of a topology term is called ``nodeTopologyKeys``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field

from app.api.fields import WorkloadReference
from app.api.model import ApiModel, KubeObject
from app.api.schema import Int32, Int64, enum, minimum


class TargetReference(WorkloadReference):
    """TargetReference refers to the workload whose Pods are recorded."""

    api_version: str
    """API version of the workload."""
    kind: str
    """Kind of the workload: StatefulSet, or a kind on the operator's whitelist."""
    name: str
    """Name of the workload. It must be in the same namespace."""


class PodAnnotation(ApiModel):
    """PodAnnotation names a Pod annotation to record."""

    key: str
    """Key of the annotation."""


class NodeTopologyTerm(ApiModel):
    """NodeTopologyTerm lists node label keys."""

    #: Required in manifests, but conversion omits an empty list.
    schema_keywords: ClassVar[Mapping[str, Any]] = {"required": ["keys"]}

    keys: list[str] = Field(default_factory=list)
    """Keys of the node labels."""


class PreferredTopologyTerm(ApiModel):
    """PreferredTopologyTerm lists node label keys with a weight."""

    weight: Annotated[Int32, minimum(0)]
    """Weight of the term, from 1 to 100."""
    preference: NodeTopologyTerm
    """Node labels of the term."""


class NodeTopologyTermV1Alpha1(ApiModel):
    """NodeTopologyTerm lists node label keys."""

    schema_keywords: ClassVar[Mapping[str, Any]] = {"required": ["nodeTopologyKeys"]}

    node_topology_keys: list[str] = Field(default_factory=list)
    """Keys of the node labels."""


class PreferredTopologyTermV1Alpha1(ApiModel):
    """PreferredTopologyTerm lists node label keys with a weight."""

    weight: Int32
    """Weight of the term, from 1 to 100."""
    preference: NodeTopologyTermV1Alpha1
    """Node labels of the term."""


class _Spec(ApiModel):
    target_ref: TargetReference
    """Workload whose Pods are recorded. Immutable."""
    persistent_pod_annotations: list[PodAnnotation] | None = None
    """Pod annotations to record."""


class PersistentPodStateSpec(_Spec):
    """PersistentPodStateSpec defines what is recorded and how strictly recreated Pods must match it."""

    required_persistent_topology: NodeTopologyTerm | None = None
    """Node labels whose values a recreated Pod must match (required node affinity)."""
    preferred_persistent_topology: list[PreferredTopologyTerm] | None = None
    """Node labels whose values a recreated Pod should match (preferred node affinity)."""
    persistent_pod_state_retention_policy: Annotated[str, enum("WhenScaled", "WhenDeleted")] = ""
    """WhenScaled (the default): records of Pods are removed when the workload scales in. WhenDeleted: records are kept
    until the workload is deleted."""


class PersistentPodStateV1Alpha1Spec(_Spec):
    """PersistentPodStateSpec defines what is recorded and how strictly recreated Pods must match it."""

    required_persistent_topology: NodeTopologyTermV1Alpha1 | None = None
    """Node labels whose values a recreated Pod must match (required node affinity)."""
    preferred_persistent_topology: list[PreferredTopologyTermV1Alpha1] | None = None
    """Node labels whose values a recreated Pod should match (preferred node affinity)."""
    persistent_pod_state_retention_policy: str = ""
    """WhenScaled (the default): records of Pods are removed when the workload scales in. WhenDeleted: records are kept
    until the workload is deleted."""


class PodState(ApiModel):
    """PodState records where a Pod was last ready."""

    node_name: str = ""
    """Name of the node the Pod ran on."""
    node_topology_labels: dict[str, str] | None = None
    """Recorded labels of the node."""
    annotations: dict[str, str] | None = None
    """Recorded annotations of the Pod."""


class PersistentPodStateStatus(ApiModel):
    """PersistentPodStateStatus holds the recorded states of Pods."""

    always_serialized: ClassVar[frozenset[str]] = frozenset({"observed_generation"})

    observed_generation: Int64
    """Generation of the object that this status reflects."""
    pod_states: dict[str, PodState] | None = None
    """Recorded states, keyed by Pod name."""


class PersistentPodState(KubeObject):
    """PersistentPodState records the nodes of a workload's Pods, so that recreated Pods return to nodes with the same
    labels."""

    spec: PersistentPodStateSpec
    """Desired state of the PersistentPodState."""
    status: PersistentPodStateStatus | None = None
    """Observed state of the PersistentPodState."""

    @property
    def records(self) -> Mapping[str, PodState]:
        """The recorded states by Pod name."""
        return (self.status.pod_states if self.status is not None else None) or {}


class PersistentPodStateV1Alpha1(KubeObject):
    """PersistentPodState records the nodes of a workload's Pods, so that recreated Pods return to nodes with the same
    labels."""

    spec: PersistentPodStateV1Alpha1Spec
    """Desired state of the PersistentPodState."""
    status: PersistentPodStateStatus | None = None
    """Observed state of the PersistentPodState."""
