"""The fields of the kinds by which images are pulled: what users write and what kubectl explains.

v1alpha1 says the same as v1beta1 in the same words, save ``mode`` of a NodeImage's pull secret.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final

from pydantic import Field

from app.api.model import MAP_TYPE, ApiModel, KubeObject
from app.api.schema import Int32, Int64, IntOrString, LabelSelector, Time, label_selector_and

ALWAYS: Final = "Always"
NEVER: Final = "Never"
COMPLETION_TYPES: Final = (ALWAYS, NEVER)
PULL_ALWAYS: Final = "Always"
PULL_IF_NOT_PRESENT: Final = "IfNotPresent"
IMAGE_PULL_POLICIES: Final = (PULL_ALWAYS, PULL_IF_NOT_PRESENT)
BATCH: Final = "batch"
"""Mode of a pull secret: a copy, made for jobs and removed with the last of them."""

WAITING: Final = "Waiting"
PULLING: Final = "Pulling"
SUCCEEDED: Final = "Succeeded"
FAILED: Final = "Failed"

#: A LabelSelector in its JSON form, or names.
NodeSelector = Annotated[
    dict[str, Any],
    label_selector_and(
        names={
            "description": "The nodes by name. Names and labels exclude each other.",
            "items": {"type": "string"},
            "type": "array",
        }
    ),
]


class PullPolicy(ApiModel):
    """How long and how often a node tries."""

    timeout_seconds: Int32 | None = None
    """How long one attempt may take, in seconds; 600 by default."""
    backoff_limit: Int32 | None = None
    """How often a failed attempt is repeated; 3 by default."""


class TagPullPolicy(PullPolicy):
    """How long and how often the node tries, and how long it remembers."""

    ttl_seconds_after_finished: Int32 | None = None
    """How long the tag stays in the list after the pull has ended, in seconds."""
    active_deadline_seconds: Int64 | None = None
    """How long all attempts together may take, in seconds; no limit by default."""


class SandboxConfig(ApiModel):
    """What a runtime is told about the Pod an image is pulled for."""

    labels: dict[str, str] | None = None
    """Labels of the Pod."""
    annotations: dict[str, str] | None = None
    """Annotations of the Pod."""


class CompletionPolicy(ApiModel):
    """When the job has ended."""

    type: str = ""
    """Always (the default): when every node has the image, or has given up. Never: it goes on, for nodes that come
    later too, and pulls again each day."""
    active_deadline_seconds: Int64 | None = None
    """With Always: after how many seconds the job ends in any case; no limit by default. At least as long as one
    attempt."""
    ttl_seconds_after_finished: Int32 | None = None
    """With Always: how long the job is kept after its end, in seconds; 0 deletes it at once. Kept for ever by
    default."""


class ImagePullTemplate(ApiModel):
    """What jobs for one image and for several have in common."""

    pull_secrets: list[str] | None = None
    """Names of Secrets in the namespace of the job with the credentials of registries. Cannot be changed."""
    selector: NodeSelector | None = None
    """Which nodes pull, by name or by label; all by default."""
    pod_selector: LabelSelector | None = None
    """Which nodes pull: those that Pods of the namespace with these labels run on. Excludes selector."""
    parallelism: IntOrString | None = None
    """On how many nodes at once; 1 by default, 0 pauses the job."""
    pull_policy: PullPolicy | None = None
    """How long and how often a node tries."""
    completion_policy: CompletionPolicy
    """When the job has ended."""
    sandbox_config: SandboxConfig | None = None
    """What runtimes are told about the Pods the image is pulled for."""
    image_pull_policy: str = ""
    """IfNotPresent (the default) leaves an image alone that the node has. Always asks the registry, as is needed for
    tags that move."""


class ImagePullJobSpec(ImagePullTemplate):
    """Which image to pull, and where."""

    image: str
    """The image, as in a container."""


class ImageListPullJobSpec(ImagePullTemplate):
    """Which images to pull, and where."""

    images: list[str]
    """The images, as in containers; each once, 255 at most."""


class ImagePullJobStatus(ApiModel):
    """How far the job has come."""

    start_time: Time = ""
    """When the job was first worked on."""
    completion_time: Time = ""
    """When the job ended."""
    desired: Int32
    """Nodes that shall have the image."""
    active: Int32 = 0
    """Those of them that pull now, or wait for their turn to."""
    succeeded: Int32 = 0
    """Those of them that have it."""
    failed: Int32 = 0
    """Those of them that have given up."""
    message: str = ""
    """The same in a sentence."""
    failed_nodes: list[str] | None = None
    """The names of the nodes that have given up."""


class FailedImage(ApiModel):
    """An image that not every node could pull."""

    image_pull_job: str = ""
    """The ImagePullJob that knows more."""
    name: str = ""
    """The image."""
    message: str = ""
    """Where to look."""


class ImageListPullJobStatus(ApiModel):
    """How far the job has come."""

    start_time: Time = ""
    """When the job was first worked on."""
    completion_time: Time = ""
    """When the job ended."""
    desired: Int32
    """Images to pull."""
    active: Int32 = 0
    """Those of them that are being pulled."""
    completed: Int32 = 0
    """Those of them that every node has, or has given up."""
    succeeded: Int32 = 0
    """Those of them that every node has."""
    failed_image_statuses: list[FailedImage] | None = None
    """The images that some node has given up."""


class ImagePullJob(KubeObject):
    """ImagePullJob pulls an image on nodes before it is needed there."""

    spec: ImagePullJobSpec
    """What is wanted."""
    status: ImagePullJobStatus | None = None
    """What is observed."""


class ImageListPullJob(KubeObject):
    """ImageListPullJob pulls several images on nodes before they are needed there, by an ImagePullJob for each."""

    spec: ImageListPullJobSpec
    """What is wanted."""
    status: ImageListPullJobStatus | None = None
    """What is observed."""


class ObjectReference(ApiModel):
    """Another object."""

    schema_keywords: ClassVar[dict[str, Any]] = {MAP_TYPE: "atomic"}

    api_version: str = ""
    """Group and version of the object."""
    kind: str = ""
    """What kind of object it is."""
    namespace: str = ""
    """The namespace it is in."""
    name: str = ""
    """Its name."""
    uid: str = ""
    """Its uid."""
    resource_version: str = ""
    """Its resource version."""
    field_path: str = ""
    """The part of it that is meant."""


class PullSecretV1Alpha1(ApiModel):
    """A Secret with the credentials of registries."""

    namespace: str = ""
    """The namespace it is in."""
    name: str = ""
    """Its name."""


class PullSecret(PullSecretV1Alpha1):
    """A Secret with the credentials of registries."""

    mode: str = ""
    """batch: a copy that several jobs share, and that goes with the last of them."""


class NodeImageTag(ApiModel):
    """A tag, or a digest, to pull."""

    tag: str
    """The tag, or the digest."""
    created_at: Time = ""
    """When it was last asked for; filled in."""
    pull_policy: TagPullPolicy | None = None
    """How long and how often the node tries, and how long it remembers."""
    owner_references: list[ObjectReference] | None = None
    """Who asked for it. It goes with the last of them, and stays if nobody is named."""
    version: Int64 = 0
    """Grows each time it is asked for again."""
    image_pull_policy: str = ""
    """IfNotPresent leaves an image alone that the node has. Always, and nothing said, ask the registry."""


class _Entry(ApiModel):
    """What both versions say about one repository in the same words."""

    tags: list[NodeImageTag]
    """The tags to pull."""
    sandbox_config: SandboxConfig | None = None
    """What the runtime is told about the Pods the images are pulled for."""


class NodeImageEntry(_Entry):
    """The tags to pull of one repository."""

    pull_secrets: list[PullSecret] | None = None
    """The credentials to try."""


class NodeImageV1Alpha1Entry(_Entry):
    """The tags to pull of one repository."""

    pull_secrets: list[PullSecretV1Alpha1] | None = None
    """The credentials to try."""


class NodeImageSpec(ApiModel):
    """Which images the node shall have."""

    images: dict[str, NodeImageEntry] | None = None
    """By repository; 256 at most."""


class NodeImageV1Alpha1Spec(ApiModel):
    """Which images the node shall have."""

    images: dict[str, NodeImageV1Alpha1Entry] | None = None
    """By repository; 256 at most."""


class NodeImageTagStatus(ApiModel):
    """How far the pull of one tag has come."""

    tag: str
    """The tag, or the digest."""
    phase: str
    """Waiting, Pulling, Succeeded or Failed."""
    progress: Int32 = 0
    """How much has been pulled, in percent, where the runtime tells; 100 at the end."""
    start_time: Time = ""
    """When the pull began."""
    completion_time: Time = ""
    """When it ended."""
    version: Int64 = 0
    """The version in the spec that this is about."""
    image_id: str = Field(default="", alias="imageID")
    """The image the node has now."""
    message: str = ""
    """Why it failed."""


class NodeImageStatusEntry(ApiModel):
    """How far the pulls of one repository have come."""

    tags: list[NodeImageTagStatus]
    """One entry per tag."""


class SyncStatus(ApiModel):
    """How the first pull of a new node went."""

    sync_at: Time = ""
    """When it was."""
    status: str = ""
    """Succeeded or Failed."""
    message: str = ""
    """Why it failed."""


class NodeImageStatus(ApiModel):
    """How far the node has come."""

    desired: Int32
    """Tags the node shall have."""
    succeeded: Int32 = 0
    """Those of them it has."""
    failed: Int32 = 0
    """Those of them it has given up."""
    pulling: Int32 = 0
    """Those of them it pulls now."""
    waiting: Int32 = 0
    """Those of them that wait for their turn."""
    image_statuses: dict[str, NodeImageStatusEntry] | None = None
    """How far each has come, by repository."""
    first_sync_status: SyncStatus | None = None
    """Not used."""


class NodeImage(KubeObject):
    """NodeImage is what a node shall pull and how far it has come; there is one per node, of the same name."""

    spec: NodeImageSpec = Field(default_factory=NodeImageSpec)
    """What is wanted."""
    status: NodeImageStatus | None = None
    """What is observed."""


class NodeImageV1Alpha1(KubeObject):
    """NodeImage is what a node shall pull and how far it has come; there is one per node, of the same name."""

    spec: NodeImageV1Alpha1Spec = Field(default_factory=NodeImageV1Alpha1Spec)
    """What is wanted."""
    status: NodeImageStatus | None = None
    """What is observed."""
