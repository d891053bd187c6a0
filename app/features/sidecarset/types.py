"""API types of SidecarSet. Field docstrings are the descriptions in the CRD and in ``kubectl explain``.

v1beta1 is the hub; v1alpha1 differs in two fields. Core containers and volumes are kept unchanged: their schema is
open, so that newer fields reach the Pod.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, ClassVar, Final

from pydantic import Field

from app.api.fields import UpdatePriorityStrategy, UpdateScatterTerm
from app.api.model import MAP_TYPE, PRESERVE, ApiModel, KubeObject
from app.api.schema import Int32, Int64, IntOrString, LabelSelector, enum, schema_default

BEFORE_APP_CONTAINER: Final = "BeforeAppContainer"
AFTER_APP_CONTAINER: Final = "AfterAppContainer"
POD_INJECT_POLICIES: Final = (BEFORE_APP_CONTAINER, AFTER_APP_CONTAINER)
COLD_UPGRADE: Final = "ColdUpgrade"
HOT_UPGRADE: Final = "HotUpgrade"
UPGRADE_TYPES: Final = (COLD_UPGRADE, HOT_UPGRADE)
SHARE_ENABLED: Final = "enabled"
SHARE_DISABLED: Final = "disabled"
SHARE_TYPES: Final = (SHARE_ENABLED, SHARE_DISABLED)
ROLLING_UPDATE: Final = "RollingUpdate"
NOT_UPDATE: Final = "NotUpdate"
UPDATE_TYPES: Final = (ROLLING_UPDATE, NOT_UPDATE)
RETAIN: Final = "Retain"
OVERWRITE: Final = "Overwrite"
MERGE_PATCH_JSON: Final = "MergePatchJson"
PATCH_POLICIES: Final = (RETAIN, OVERWRITE, MERGE_PATCH_JSON)
ALWAYS: Final = "Always"
PARTIAL: Final = "Partial"
REVISION_POLICIES: Final = (ALWAYS, PARTIAL)
MATCH_ALL_NAMES: Final = ".*"


class UpgradeStrategy(ApiModel):
    """UpgradeStrategy defines how a running sidecar gets a new image."""

    upgrade_type: str = ""
    """ColdUpgrade (the default) restarts the container with the new image. HotUpgrade runs two copies and starts the
    new image in the idle one. Immutable."""
    hot_upgrade_empty_image: str = ""
    """No-op image that the idle copy runs. Required with HotUpgrade."""


class SharePolicy(ApiModel):
    """SharePolicy defines whether the app containers' volumes or volume devices are shared."""

    type: str = ""
    """Either enabled or disabled."""


class FieldReference(ApiModel):
    """FieldReference selects a field of the Pod."""

    schema_keywords: ClassVar[Mapping[str, Any]] = {MAP_TYPE: "atomic"}

    api_version: str = ""
    """Version of the schema the path is written in terms of. Defaults to v1."""
    field_path: str
    """Path of a label or annotation: metadata.labels['key'] or metadata.annotations['key']."""


class SourceContainerName(ApiModel):
    """SourceContainerName defines the source of the app container's name."""

    field_ref: FieldReference | None = None
    """The label or annotation of the Pod whose value is the name."""


class TransferEnvVar(ApiModel):
    """TransferEnvVar lists environment variables to copy from one app container."""

    source_container_name: str = ""
    """Name of the app container to copy from."""
    source_container_name_from: SourceContainerName | None = None
    """Reads the name of the app container from the Pod. Takes precedence over sourceContainerName."""
    env_name: str = ""
    """Name of a variable to copy. It is skipped if the app container lacks it or the sidecar already has it."""
    env_names: list[str] | None = None
    """Names of more variables to copy."""


class ResourceExpressions(ApiModel):
    """ResourceExpressions defines expressions for cpu and memory."""

    cpu: str = ""
    """Amount of cpu, computed from the variable `cpu`, as in `max(cpu*50%, 50m)`."""
    memory: str = ""
    """Amount of memory, computed from the variable `memory`, as in `memory*20% + 100Mi`."""


class ResourcesExpression(ApiModel):
    """ResourcesExpression defines how the sidecar's resources are computed from those of the app containers."""

    limits: ResourceExpressions | None = None
    """Limits. A limit is not set if one of the targets has no limit of that resource."""
    requests: ResourceExpressions | None = None
    """Requests. A target without a request counts as 0."""


class ResourcesPolicy(ApiModel):
    """ResourcesPolicy computes the sidecar's resources when a Pod is created. It cannot be combined with limits or
    requests."""

    target_containers_mode: Annotated[str, enum("sum", "max")]
    """Value of the variables in expressions: the sum or the maximum over the target containers."""
    target_containers_name_regex: Annotated[str, schema_default(MATCH_ALL_NAMES)] = ""
    """Names of the target containers, as a regular expression (RE2). Sidecars are never targets."""
    resources_expr: ResourcesExpression
    """Expressions to evaluate. At least one of limits and requests is required."""


class SidecarContainer(ApiModel):
    """SidecarContainer is a container to inject, with all fields of a Pod's container."""

    # The hashes of a SidecarSet depend on the order of the fields, here and in nested structs. [SS-12, SS-13]
    schema_keywords: ClassVar[Mapping[str, Any]] = {PRESERVE: True}

    pod_inject_policy: str = ""
    """Position relative to the Pod's own containers: BeforeAppContainer (the default), or AfterAppContainer (the
    default for init containers)."""
    upgrade_strategy: UpgradeStrategy = Field(default_factory=UpgradeStrategy)
    """How the sidecar gets a new image in a running Pod."""
    share_volume_policy: SharePolicy = Field(default_factory=SharePolicy)
    """Whether to mount the volumes of all app containers into the sidecar, at the same paths. Defaults to disabled."""
    share_volume_device_policy: SharePolicy | None = None
    """Whether to give the sidecar the volume devices of all app containers, at the same paths."""
    transfer_env: list[TransferEnvVar] | None = None
    """Environment variables to copy from app containers."""
    resources_policy: ResourcesPolicy | None = None
    """Computes the sidecar's resources from those of the app containers when a Pod is created."""

    @cached_property
    def core(self) -> dict[str, Any]:
        """The core Container, unchanged; do not modify it."""
        return self.unknown

    @property
    def name(self) -> str:
        return self.core.get("name") or ""

    @property
    def image(self) -> str:
        return self.core.get("image") or ""

    @property
    def keeps_running(self) -> bool:
        """Whether an init container is a native sidecar (restartPolicy Always)."""
        return self.core.get("restartPolicy") == "Always"

    @property
    def hot(self) -> bool:
        """Whether it is injected as a pair of twins."""
        return self.upgrade_strategy.upgrade_type == HOT_UPGRADE


class LocalObjectReference(ApiModel):
    """LocalObjectReference names an object in the Pod's namespace."""

    schema_keywords: ClassVar[Mapping[str, Any]] = {MAP_TYPE: "atomic"}

    name: Annotated[str, schema_default("")] = ""
    """Name of the object."""


class UpdateStrategy(ApiModel):
    """UpdateStrategy defines how changes to the sidecars' images reach running Pods."""

    type: str = ""
    """RollingUpdate (the default) changes the images in running Pods step by step; NotUpdate leaves running Pods
    unchanged."""
    paused: bool = False
    """Stops updating running Pods. New Pods are still injected."""
    selector: LabelSelector | None = None
    """Updates only matched Pods that also match this selector. Cannot be combined with partition."""
    partition: IntOrString | None = None
    """Number or percentage of matched Pods that keep the old sidecars. Defaults to 0."""
    max_unavailable: IntOrString | None = None
    """Maximum number or percentage (rounded up) of matched Pods that may be unavailable during the update. Pods
    that were already not ready do not count. Defaults to 1."""
    priority_strategy: UpdatePriorityStrategy | None = None
    """Determines which Pods are updated first."""
    scatter_strategy: list[UpdateScatterTerm] | None = None
    """Spreads Pods with certain labels over the update order."""


class InjectRevision(ApiModel):
    """InjectRevision selects a recorded revision of this SidecarSet for new Pods instead of the current one."""

    custom_version: str | None = None
    """Selects the newest revision with this customVersion."""
    revision_name: str | None = None
    """Name of the revision (ControllerRevision). Takes precedence over customVersion."""
    policy: Annotated[str, enum(*REVISION_POLICIES), schema_default(ALWAYS)] = ""
    """Which new Pods get the revision: all (Always), or the share that updateStrategy keeps at the old
    version (Partial)."""


class InjectionStrategy(ApiModel):
    """InjectionStrategy defines what is injected into new Pods."""

    paused: bool = False
    """Stops injection into new Pods. Injected Pods are still updated."""
    revision: InjectRevision | None = None
    """Injects a recorded revision instead of the current spec, so that new Pods do not bypass a partial rollout."""


class PatchPodMetadata(ApiModel):
    """PatchPodMetadata lists annotations for the Pods, and what happens if a Pod already has them."""

    annotations: dict[str, str] | None = None
    """Annotations to write. A key may appear in one entry only, and must be allowed by the administrator."""
    patch_policy: str = ""
    """What to do with an existing annotation: Retain (the default), Overwrite, or MergePatchJson (RFC 7386)."""


class _Spec(ApiModel):
    """Fields common to both versions of the spec."""

    selector: LabelSelector | None = None
    """Selects the Pods by label. Required; must not be empty."""
    namespace_selector: LabelSelector | None = None
    """Selects the namespaces of the Pods by label. Defaults to all namespaces."""
    init_containers: list[SidecarContainer] | None = None
    """Init containers to inject. Those with restartPolicy Always keep running alongside the Pod's containers."""
    containers: list[SidecarContainer] | None = None
    """Containers to inject. They can be changed or removed later, but none can be added or renamed."""
    volumes: list[dict[str, Any]] | None = None
    """Volumes for the sidecars. Only volumes that a sidecar mounts are added to the Pod."""
    image_pull_secrets: list[LocalObjectReference] | None = None
    """Secrets for pulling the sidecars' images, added to those of the Pod. They must exist in the Pod's namespace."""
    update_strategy: UpdateStrategy = Field(default_factory=UpdateStrategy)
    """How changes reach running Pods."""
    injection_strategy: InjectionStrategy = Field(default_factory=InjectionStrategy)
    """Controls injection into new Pods."""
    revision_history_limit: Int32 | None = None
    """Number of old revisions to keep, at least 1. Defaults to 10."""
    patch_pod_metadata: list[PatchPodMetadata] | None = None
    """Annotations to write to the Pods when they are injected and updated."""

    @property
    def all_containers(self) -> list[SidecarContainer]:
        return [*(self.init_containers or ()), *(self.containers or ())]


class SidecarSetSpec(_Spec):
    """SidecarSetSpec defines what is injected into which Pods, and how it is updated."""

    custom_version: str = ""
    """Name for the current revision, for later use in injectionStrategy.revision."""


class SidecarSetV1Alpha1Spec(_Spec):
    """SidecarSetSpec defines what is injected into which Pods, and how it is updated."""

    namespace: str = ""
    """Restricts the SidecarSet to Pods in this namespace. Takes precedence over namespaceSelector."""


class SidecarSetCondition(ApiModel):
    """SidecarSetCondition describes one aspect of the SidecarSet's state."""

    type: str
    """Type of the condition. PodsMissed: selected Pods run without the sidecars, because no webhook was called when
    they were created."""
    status: str
    """Status of the condition: True, False or Unknown."""
    last_transition_time: str = ""
    """Last time the status changed."""
    reason: str = ""
    """Machine-readable reason for the last transition, in CamelCase."""
    message: str = ""
    """Human-readable explanation."""


class SidecarSetStatus(ApiModel):
    """SidecarSetStatus reports how many Pods have the sidecars, and the progress of an update."""

    always_serialized: ClassVar[frozenset[str]] = frozenset({"matched_pods", "updated_pods", "ready_pods"})

    observed_generation: Int64 = 0
    """Generation of the SidecarSet this status is based on."""
    matched_pods: Int32 = 0
    """Number of matching Pods that have the sidecars."""
    updated_pods: Int32 = 0
    """Number of matched Pods whose sidecars are up to date."""
    ready_pods: Int32 = 0
    """Number of matched Pods that are ready."""
    updated_ready_pods: Int32 = 0
    """Number of matched Pods that are updated and ready."""
    latest_revision: str = ""
    """Name of the ControllerRevision that records the current spec."""
    collision_count: Int32 | None = None
    """Number of hash collisions when naming revisions."""
    conditions: list[SidecarSetCondition] | None = None
    """Conditions of the SidecarSet; OpenKruise has no such field."""


class SidecarSet(KubeObject):
    """SidecarSet injects sidecar containers into Pods on creation and updates them in place later, independently of the
    workloads that own the Pods."""

    spec: SidecarSetSpec = Field(default_factory=SidecarSetSpec)
    """Desired state of the SidecarSet."""
    status: SidecarSetStatus | None = None
    """Most recently observed state of the SidecarSet."""


class SidecarSetV1Alpha1(KubeObject):
    """SidecarSet injects sidecar containers into Pods on creation and updates them in place later, independently of the
    workloads that own the Pods."""

    spec: SidecarSetV1Alpha1Spec = Field(default_factory=SidecarSetV1Alpha1Spec)
    """Desired state of the SidecarSet."""
    status: SidecarSetStatus | None = None
    """Most recently observed state of the SidecarSet."""
