"""The fields of SidecarSet: what users write and what kubectl explains.

v1beta1 is the hub; v1alpha1 says the same but for two fields. Core containers and volumes are kept as they came: the
schema leaves them open, so that fields newer than this reach the Pod.
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
    """How a running sidecar gets a new image."""

    upgrade_type: str = ""
    """ColdUpgrade (the default) restarts the container with the new image. HotUpgrade runs two copies of it and starts
    the new image in the idle one, so that the sidecar never stops serving. It cannot be changed afterwards."""
    hot_upgrade_empty_image: str = ""
    """With HotUpgrade: the image of the idle copy, which does nothing."""


class SharePolicy(ApiModel):
    """Whether something of the app containers is shared."""

    type: str = ""
    """enabled or disabled."""


class FieldReference(ApiModel):
    """A field of the Pod."""

    schema_keywords: ClassVar[Mapping[str, Any]] = {MAP_TYPE: "atomic"}

    api_version: str = ""
    """The version the path is written in; v1 if left out."""
    field_path: str
    """A label or an annotation, as metadata.labels['key'] or metadata.annotations['key']."""


class SourceContainerName(ApiModel):
    """Where the name of the source container comes from."""

    field_ref: FieldReference | None = None
    """The label or annotation of the Pod whose value is the name."""


class TransferEnvVar(ApiModel):
    """Environment variables to copy from one app container."""

    source_container_name: str = ""
    """The app container they are copied from."""
    source_container_name_from: SourceContainerName | None = None
    """Reads the name of the app container from the Pod instead; wins over sourceContainerName."""
    env_name: str = ""
    """One variable to copy. What the app container does not have is skipped, what the sidecar has stays."""
    env_names: list[str] | None = None
    """More variables to copy."""


class ResourceExpressions(ApiModel):
    """Expressions for cpu and memory."""

    cpu: str = ""
    """The amount of cpu, computed from the variable `cpu`, as in `max(cpu*50%, 50m)`."""
    memory: str = ""
    """The amount of memory, computed from the variable `memory`, as in `memory*20% + 100Mi`."""


class ResourcesExpression(ApiModel):
    """How the sidecar's resources follow from those of the app containers."""

    limits: ResourceExpressions | None = None
    """The limits. Left out where one of the targets has no limit of that resource."""
    requests: ResourceExpressions | None = None
    """The requests. A target without a request counts as 0."""


class ResourcesPolicy(ApiModel):
    """The sidecar's resources, computed when a Pod is created. Not together with limits or requests of its own."""

    target_containers_mode: Annotated[str, enum("sum", "max")]
    """What the variables of the expressions are: the sum or the largest of the targets' values."""
    target_containers_name_regex: Annotated[str, schema_default(MATCH_ALL_NAMES)] = ""
    """Which containers of the Pod are the targets: those whose name this regular expression (RE2) matches. Sidecars are
    never among them."""
    resources_expr: ResourcesExpression
    """The expressions, at least one of limits and requests."""


class SidecarContainer(ApiModel):
    """A container to inject: all fields of a container of a Pod, and how it is injected and updated."""

    # SS-12, SS-13: the order of the fields, of these and of the structs in them, is part of a SidecarSet's hashes.
    schema_keywords: ClassVar[Mapping[str, Any]] = {PRESERVE: True}

    pod_inject_policy: str = ""
    """BeforeAppContainer puts it in front of the Pod's own containers, AfterAppContainer behind them. Containers
    default to Before, init containers to After."""
    upgrade_strategy: UpgradeStrategy = Field(default_factory=UpgradeStrategy)
    """How the sidecar gets a new image in a running Pod."""
    share_volume_policy: SharePolicy = Field(default_factory=SharePolicy)
    """enabled mounts the volumes of all app containers into the sidecar, at the same paths; disabled by default."""
    share_volume_device_policy: SharePolicy | None = None
    """enabled gives the sidecar the volume devices of all app containers, at the same paths."""
    transfer_env: list[TransferEnvVar] | None = None
    """Environment variables to copy from app containers when the sidecar is injected."""
    resources_policy: ResourcesPolicy | None = None
    """Computes the sidecar's resources from those of the app containers when a Pod is created."""

    @cached_property
    def core(self) -> dict[str, Any]:
        """The core Container, as it came: read, never changed."""
        return self.unknown

    @property
    def name(self) -> str:
        """The container's name."""
        return self.core.get("name") or ""

    @property
    def image(self) -> str:
        """The container's image."""
        return self.core.get("image") or ""

    @property
    def keeps_running(self) -> bool:
        """For an init container: whether it is a native sidecar (restartPolicy Always)."""
        return self.core.get("restartPolicy") == "Always"

    @property
    def hot(self) -> bool:
        """Whether it is injected as a pair of twins."""
        return self.upgrade_strategy.upgrade_type == HOT_UPGRADE


class LocalObjectReference(ApiModel):
    """The name of an object in the Pod's namespace."""

    schema_keywords: ClassVar[Mapping[str, Any]] = {MAP_TYPE: "atomic"}

    name: Annotated[str, schema_default("")] = ""
    """The object's name."""


class UpdateStrategy(ApiModel):
    """How a change of the sidecars' images reaches running Pods."""

    type: str = ""
    """RollingUpdate (the default) changes the images in running Pods, step by step; NotUpdate leaves running Pods as
    they are, and only new Pods get the change."""
    paused: bool = False
    """Stops updating running Pods until it is set to false again. New Pods are injected all the same."""
    selector: LabelSelector | None = None
    """Updates only those of the matched Pods that also have these labels. Not together with partition."""
    partition: IntOrString | None = None
    """How many matched Pods keep the old sidecars, as a number or a percentage such as 30%. Lower it step by step to
    roll a change out; 0 (the default) updates all."""
    max_unavailable: IntOrString | None = None
    """How many matched Pods may be unavailable while they are updated, as a number or a percentage (rounded up); 1 by
    default. Pods that are not ready anyway are updated without counting."""
    priority_strategy: UpdatePriorityStrategy | None = None
    """Which Pods are updated first."""
    scatter_strategy: list[UpdateScatterTerm] | None = None
    """Spreads Pods with certain labels over the update, so that not all of them are updated at once."""


class InjectRevision(ApiModel):
    """A recorded revision of this SidecarSet that new Pods get instead of the current one."""

    custom_version: str | None = None
    """The newest revision that was given this customVersion."""
    revision_name: str | None = None
    """The revision (ControllerRevision) of this name; wins over customVersion."""
    policy: Annotated[str, enum(*REVISION_POLICIES), schema_default(ALWAYS)] = ""
    """Always injects the revision into every new Pod. Partial injects it into as many as updateStrategy keeps on the
    old version, and the current one into the others."""


class InjectionStrategy(ApiModel):
    """What new Pods get."""

    paused: bool = False
    """Injects nothing into new Pods while true. Pods that were injected before go on being updated."""
    revision: InjectRevision | None = None
    """Injects a recorded revision instead of the current spec, so that a roll-out reaches only the Pods it should."""


class PatchPodMetadata(ApiModel):
    """Annotations for the Pods, and what happens where a Pod has them already."""

    annotations: dict[str, str] | None = None
    """The annotations. A key may stand in one entry only, and must be allowed by the administrator."""
    patch_policy: str = ""
    """Retain (the default) keeps what the Pod has, Overwrite replaces it, MergePatchJson merges it as JSON (RFC
    7386)."""


class _Spec(ApiModel):
    """What both versions of the spec say."""

    selector: LabelSelector | None = None
    """The Pods that get the sidecars when they are created and whose sidecars are updated. Needed; must not be
    empty."""
    namespace_selector: LabelSelector | None = None
    """Only Pods in namespaces with these labels; all namespaces if left out."""
    init_containers: list[SidecarContainer] | None = None
    """Init containers to inject; those with restartPolicy Always keep running beside the Pod's containers."""
    containers: list[SidecarContainer] | None = None
    """Containers to inject. Afterwards they can be changed and removed, but not added or renamed."""
    volumes: list[dict[str, Any]] | None = None
    """Volumes for the sidecars. Only those a sidecar mounts reach the Pod."""
    image_pull_secrets: list[LocalObjectReference] | None = None
    """Secrets for pulling the sidecars' images, added to those of the Pod. They must exist in the Pod's namespace."""
    update_strategy: UpdateStrategy = Field(default_factory=UpdateStrategy)
    """How a change reaches Pods that are running already."""
    injection_strategy: InjectionStrategy = Field(default_factory=InjectionStrategy)
    """What new Pods get."""
    revision_history_limit: Int32 | None = None
    """How many old revisions are kept; 10 by default, at least 1."""
    patch_pod_metadata: list[PatchPodMetadata] | None = None
    """Annotations that are put on the Pods when they are injected and updated."""

    @property
    def all_containers(self) -> list[SidecarContainer]:
        """Init containers, then containers."""
        return [*(self.init_containers or ()), *(self.containers or ())]


class SidecarSetSpec(_Spec):
    """What is injected into which Pods, and how it is kept up to date."""

    custom_version: str = ""
    """A name for the present revision, to be used in injectionStrategy.revision later."""


class SidecarSetV1Alpha1Spec(_Spec):
    """What is injected into which Pods, and how it is kept up to date."""

    namespace: str = ""
    """Only Pods in this namespace; wins over namespaceSelector."""


class SidecarSetCondition(ApiModel):
    """One aspect of how the SidecarSet is."""

    type: str
    """PodsMissed: Pods it selects run without its containers, because no webhook was asked when they were created."""
    status: str
    """True, False or Unknown."""
    last_transition_time: str = ""
    """When the status last changed."""
    reason: str = ""
    """Why, in one word."""
    message: str = ""
    """Why, in a sentence."""


class SidecarSetStatus(ApiModel):
    """How many Pods have the sidecars, and how far an update has come."""

    always_serialised: ClassVar[frozenset[str]] = frozenset({"matched_pods", "updated_pods", "ready_pods"})

    observed_generation: Int64 = 0
    """The generation of the SidecarSet these numbers are about."""
    matched_pods: Int32 = 0
    """Pods that match and carry the sidecars."""
    updated_pods: Int32 = 0
    """Those of them whose sidecars are up to date."""
    ready_pods: Int32 = 0
    """Those of them that are ready."""
    updated_ready_pods: Int32 = 0
    """Those of them that are both."""
    latest_revision: str = ""
    """The ControllerRevision that records the present spec."""
    collision_count: Int32 | None = None
    """How often the name of a revision was taken already."""
    conditions: list[SidecarSetCondition] | None = None
    """What else there is to say; OpenKruise has no such field."""


class SidecarSet(KubeObject):
    """SidecarSet injects sidecar containers into Pods when they are created, and updates them in place afterwards,
    apart from the workloads the Pods belong to."""

    spec: SidecarSetSpec = Field(default_factory=SidecarSetSpec)
    """What is wanted."""
    status: SidecarSetStatus | None = None
    """What is observed."""


class SidecarSetV1Alpha1(KubeObject):
    """SidecarSet injects sidecar containers into Pods when they are created, and updates them in place afterwards,
    apart from the workloads the Pods belong to."""

    spec: SidecarSetV1Alpha1Spec = Field(default_factory=SidecarSetV1Alpha1Spec)
    """What is wanted."""
    status: SidecarSetStatus | None = None
    """What is observed."""
