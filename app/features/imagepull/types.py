"""API types of ImagePullJob, ImageListPullJob and NodeImage.

v1alpha1 and v1beta1 have the same fields, except ``mode`` of a NodeImage's pull secret.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import Field

from app.api.fields import ObjectReference
from app.api.model import ApiModel, KubeObject
from app.api.schema import Int32, Int64, IntOrString, LabelSelector, Time, label_selector_and

ALWAYS: Final = "Always"
NEVER: Final = "Never"
COMPLETION_TYPES: Final = (ALWAYS, NEVER)
PULL_ALWAYS: Final = "Always"
PULL_IF_NOT_PRESENT: Final = "IfNotPresent"
IMAGE_PULL_POLICIES: Final = (PULL_ALWAYS, PULL_IF_NOT_PRESENT)
BATCH: Final = "batch"
"""Mode of a pull secret that is a copy shared by jobs and deleted with the last of them."""

WAITING: Final = "Waiting"
PULLING: Final = "Pulling"
SUCCEEDED: Final = "Succeeded"
FAILED: Final = "Failed"

#: A LabelSelector in its JSON form, or a list of names.
NodeSelector = Annotated[
    dict[str, Any],
    label_selector_and(
        names={
            "description": "Names of nodes. Mutually exclusive with a label selector.",
            "items": {"type": "string"},
            "type": "array",
        }
    ),
]


class PullPolicy(ApiModel):
    """PullPolicy limits the duration and the retries of a pull."""

    timeout_seconds: Int32 | None = None
    """Timeout of one pull attempt in seconds. Defaults to 600."""
    backoff_limit: Int32 | None = None
    """Number of retries after a failed attempt. Defaults to 3."""


class TagPullPolicy(PullPolicy):
    """TagPullPolicy limits the duration and the retries of a pull, and how long the tag stays listed."""

    ttl_seconds_after_finished: Int32 | None = None
    """Seconds the tag stays in the list after its pull has finished."""
    active_deadline_seconds: Int64 | None = None
    """Total timeout of all attempts in seconds. Unlimited by default."""


class SandboxConfig(ApiModel):
    """SandboxConfig is the Pod metadata passed to the container runtime with a pull."""

    labels: dict[str, str] | None = None
    """Labels of the Pod sandbox."""
    annotations: dict[str, str] | None = None
    """Annotations of the Pod sandbox."""


class CompletionPolicy(ApiModel):
    """CompletionPolicy defines when the job completes."""

    type: str = ""
    """Always (the default): the job completes when the pull has succeeded or failed on every node. Never: it covers
    nodes added later, and pulls again each day."""
    active_deadline_seconds: Int64 | None = None
    """Seconds after which the job completes even if pulls are unfinished. Must be at least pullPolicy.timeoutSeconds.
    Only with type Always. Unlimited by default."""
    ttl_seconds_after_finished: Int32 | None = None
    """Seconds to keep the job after it completes. Only with type Always. Kept forever by default."""


class ImagePullTemplate(ApiModel):
    """ImagePullTemplate holds the fields shared by ImagePullJobs and ImageListPullJobs."""

    pull_secrets: list[str] | None = None
    """Names of Secrets in the job's namespace that hold registry credentials. Immutable."""
    selector: NodeSelector | None = None
    """Selects nodes by name or by label. Defaults to all nodes. Mutually exclusive with podSelector."""
    pod_selector: LabelSelector | None = None
    """Selects the nodes that run Pods with these labels in the job's namespace. Mutually exclusive with selector."""
    parallelism: IntOrString | None = None
    """Number of nodes that may pull at the same time. Defaults to 1; 0 pauses the job."""
    pull_policy: PullPolicy | None = None
    """Timeout and retries of each pull."""
    completion_policy: CompletionPolicy
    """Defines when the job completes and how long it is kept."""
    sandbox_config: SandboxConfig | None = None
    """Pod metadata passed to the container runtime with each pull."""
    image_pull_policy: str = ""
    """IfNotPresent (the default) skips nodes that have the image. With Always, every node contacts the registry;
    mutable tags require that."""


class ImagePullJobSpec(ImagePullTemplate):
    """ImagePullJobSpec defines the image to pull and the nodes that pull it."""

    image: str
    """Image reference, in the same form as a container's image."""


class ImageListPullJobSpec(ImagePullTemplate):
    """ImageListPullJobSpec defines the images to pull and the nodes that pull them."""

    images: list[str]
    """Image references, in the same form as a container's image. Must be unique; at most 255."""


class ImagePullJobStatus(ApiModel):
    """ImagePullJobStatus reports the progress of the job."""

    start_time: Time = ""
    """Time when the controller first processed the job."""
    completion_time: Time = ""
    """Time when the job completed."""
    desired: Int32
    """Number of nodes that must have the image."""
    active: Int32 = 0
    """Number of nodes that are pulling the image or have the pull queued."""
    succeeded: Int32 = 0
    """Number of nodes that have the image."""
    failed: Int32 = 0
    """Number of nodes where the pull failed."""
    message: str = ""
    """Summary of the progress."""
    failed_nodes: list[str] | None = None
    """Names of the nodes where the pull failed."""


class FailedImage(ApiModel):
    """FailedImage is an image that at least one node could not pull."""

    image_pull_job: str = ""
    """Name of the ImagePullJob of this image."""
    name: str = ""
    """The image."""
    message: str = ""
    """How to find the nodes that failed."""


class ImageListPullJobStatus(ApiModel):
    """ImageListPullJobStatus reports the progress of the job."""

    start_time: Time = ""
    """Time when the controller first processed the job."""
    completion_time: Time = ""
    """Time when the job completed."""
    desired: Int32
    """Number of images to pull."""
    active: Int32 = 0
    """Number of images that are being pulled."""
    completed: Int32 = 0
    """Number of images whose pull has succeeded or failed on every node."""
    succeeded: Int32 = 0
    """Number of images that were pulled on every node."""
    failed_image_statuses: list[FailedImage] | None = None
    """Images that at least one node could not pull."""


class ImagePullJob(KubeObject):
    """ImagePullJob pulls an image on nodes ahead of time."""

    spec: ImagePullJobSpec
    """Desired state of the ImagePullJob."""
    status: ImagePullJobStatus | None = None
    """Observed state of the ImagePullJob."""


class ImageListPullJob(KubeObject):
    """ImageListPullJob pulls several images on nodes ahead of time. It creates one ImagePullJob per image."""

    spec: ImageListPullJobSpec
    """Desired state of the ImageListPullJob."""
    status: ImageListPullJobStatus | None = None
    """Observed state of the ImageListPullJob."""


class PullSecretV1Alpha1(ApiModel):
    """PullSecret refers to a Secret with registry credentials."""

    namespace: str = ""
    """Namespace of the Secret."""
    name: str = ""
    """Name of the Secret."""


class PullSecret(PullSecretV1Alpha1):
    """PullSecret refers to a Secret with registry credentials."""

    mode: str = ""
    """batch marks a copy that several jobs share and that is deleted with the last of them."""


class NodeImageTag(ApiModel):
    """NodeImageTag is a tag or digest to pull."""

    tag: str
    """Tag or digest."""
    created_at: Time = ""
    """Time of the latest request for the tag. Set by the webhook."""
    pull_policy: TagPullPolicy | None = None
    """Timeout and retries of the pull, and how long the tag stays listed."""
    owner_references: list[ObjectReference] | None = None
    """Jobs that requested the tag. The tag is removed with the last of these jobs; a tag without references is kept."""
    version: Int64 = 0
    """Incremented each time the tag is requested again."""
    image_pull_policy: str = ""
    """IfNotPresent skips the pull if the node has the image. Always contacts the registry. Defaults to Always."""


class _Entry(ApiModel):
    """Fields of one repository that both versions share."""

    tags: list[NodeImageTag]
    """Tags to pull."""
    sandbox_config: SandboxConfig | None = None
    """Pod metadata passed to the container runtime with each pull."""


class NodeImageEntry(_Entry):
    """NodeImageEntry lists the tags to pull from one repository."""

    pull_secrets: list[PullSecret] | None = None
    """Registry credentials to try."""


class NodeImageV1Alpha1Entry(_Entry):
    """NodeImageEntry lists the tags to pull from one repository."""

    pull_secrets: list[PullSecretV1Alpha1] | None = None
    """Registry credentials to try."""


class NodeImageSpec(ApiModel):
    """NodeImageSpec lists the images the node must pull."""

    images: dict[str, NodeImageEntry] | None = None
    """Images to pull, keyed by repository. At most 256."""


class NodeImageV1Alpha1Spec(ApiModel):
    """NodeImageSpec lists the images the node must pull."""

    images: dict[str, NodeImageV1Alpha1Entry] | None = None
    """Images to pull, keyed by repository. At most 256."""


class NodeImageTagStatus(ApiModel):
    """NodeImageTagStatus reports the progress of one tag."""

    tag: str
    """Tag or digest."""
    phase: str
    """Phase of the pull: Waiting, Pulling, Succeeded or Failed."""
    progress: Int32 = 0
    """Progress of the pull in percent, if the runtime reports it. 100 once the pull has finished."""
    start_time: Time = ""
    """Time when the pull started."""
    completion_time: Time = ""
    """Time when the pull finished."""
    version: Int64 = 0
    """Version of the tag in the spec that this status reports on."""
    image_id: str = Field(default="", alias="imageID")
    """ID of the image on the node."""
    message: str = ""
    """Reason for the failure."""


class NodeImageStatusEntry(ApiModel):
    """NodeImageStatusEntry reports the progress of one repository."""

    tags: list[NodeImageTagStatus]
    """Status of each tag."""


class SyncStatus(ApiModel):
    """SyncStatus reports the first image pull on a new node."""

    sync_at: Time = ""
    """Time of the first pull."""
    status: str = ""
    """Succeeded or Failed."""
    message: str = ""
    """Reason for the failure."""


class NodeImageStatus(ApiModel):
    """NodeImageStatus reports the progress of the node's pulls."""

    desired: Int32
    """Number of tags the node must pull."""
    succeeded: Int32 = 0
    """Number of tags that were pulled."""
    failed: Int32 = 0
    """Number of tags whose pull failed."""
    pulling: Int32 = 0
    """Number of tags that are being pulled."""
    waiting: Int32 = 0
    """Number of tags whose pull is queued."""
    image_statuses: dict[str, NodeImageStatusEntry] | None = None
    """Progress of each tag, keyed by repository."""
    first_sync_status: SyncStatus | None = None
    """Not used."""


class NodeImage(KubeObject):
    """NodeImage lists the images a node must pull and the progress of each pull. It has the name of its node."""

    spec: NodeImageSpec = Field(default_factory=NodeImageSpec)
    """Desired state of the NodeImage."""
    status: NodeImageStatus | None = None
    """Observed state of the NodeImage."""


class NodeImageV1Alpha1(KubeObject):
    """NodeImage lists the images a node must pull and the progress of each pull. It has the name of its node."""

    spec: NodeImageV1Alpha1Spec = Field(default_factory=NodeImageV1Alpha1Spec)
    """Desired state of the NodeImage."""
    status: NodeImageStatus | None = None
    """Observed state of the NodeImage."""
