"""What the engine asks of a workload's spec and of the feature gates, in the words of the plans. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Generic, Protocol, TypeVar

from app.api.in_place import InPlaceUpdateStrategy
from app.kube.selectors import Selector
from app.pods.lifecycle import Lifecycle
from app.workloads.engine.kind import Owner
from app.workloads.engine.revisions import Content


class UpdatePolicy(StrEnum):
    """How a Pod gets to another revision."""

    RECREATE = "ReCreate"
    IN_PLACE_IF_POSSIBLE = "InPlaceIfPossible"
    IN_PLACE_ONLY = "InPlaceOnly"

    @classmethod
    def of(cls, text: str) -> UpdatePolicy:
        """By its name; ReCreate for what admission refuses."""
        return cls(text) if text in tuple(cls) else cls.RECREATE


@dataclass(frozen=True, slots=True)
class EngineGates:
    """The feature gates that work alike in all workloads; a workload adds its own in a subclass."""

    #: Pods have the label pod-template-hash beside that of their revision.
    template_hash: bool = True
    #: Pods carry the bare hash of their revision, not its name.
    short_hash: bool = False
    #: An update in place bears the bare hash of its revision, not its name (PM-20).
    update_hash: bool = False
    #: An update in place is shown as states of the Pod's lifecycle (PM-55).
    lifecycle_states: bool = True
    #: A change of the claim templates replaces Pods.
    recreate_on_claim_change: bool = False
    #: Budgets are asked before a Pod is updated.
    budget: bool = False
    env_from_metadata: bool = True
    vertical_scaling: bool = False
    #: Pods get the readiness gate KruisePodReady.
    ready_gate: bool = True
    #: Images are pulled ahead of an update in place, by ImagePullJobs.
    pre_download: bool = False
    #: Pods are created with an account of who manages which field.
    managed_fields: bool = False


def shared_gates(enabled: Callable[[str], bool]) -> dict[str, bool]:
    """The fields of EngineGates that one gate sets for all workloads; ``enabled`` takes a gate's name."""
    return {
        "budget": enabled("PodUnavailableBudgetUpdateGate"),
        "env_from_metadata": enabled("InPlaceUpdateEnvFromMetadata"),
        "vertical_scaling": enabled("InPlaceWorkloadVerticalScaling"),
        # CS-138
        "pre_download": enabled("PreDownloadImageForInPlaceUpdate") and enabled("KruiseDaemon"),
        "ready_gate": enabled("PodWebhook"),
        "managed_fields": enabled("CloneSetPodManagedFields") or not enabled("PodWebhook"),
    }


class WorkloadSettings(Protocol):
    """What the engine reads of a workload's settings; frozen, resolved once per generation."""

    @property
    def lifecycle(self) -> Lifecycle | None: ...
    @property
    def min_ready_seconds(self) -> int: ...
    @property
    def update_policy(self) -> UpdatePolicy | None:
        """None: the spec has no block that says how Pods are updated."""
        ...

    @property
    def grace_seconds(self) -> int | None:
        """How long a Pod stays out of service before it is changed in place; None: the spec says nothing of it."""
        ...

    @property
    def history_limit(self) -> int:
        """How many old revisions are kept."""
        ...

    @property
    def gates(self) -> EngineGates: ...


Settings = TypeVar("Settings", bound=WorkloadSettings, covariant=True)


@dataclass(frozen=True, slots=True)
class ImagePullSettings:
    """What the spec says of images that are pulled ahead; None: nothing."""

    parallelism: int | str | None = None
    timeout_seconds: int | None = None
    min_updated_ready: int | None = None

    @classmethod
    def of(cls, strategy: InPlaceUpdateStrategy | None) -> ImagePullSettings:
        """What a strategy of updates in place says."""
        if strategy is None:
            return NO_IMAGE_PULL_SETTINGS
        return cls(
            strategy.image_pre_download_parallelism,
            strategy.image_pre_download_timeout_seconds,
            strategy.image_pre_download_min_updated_ready_pods,
        )


NO_IMAGE_PULL_SETTINGS: Final = ImagePullSettings()


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedSpec(Generic[Settings]):
    """A workload at one generation, worked out once and then only read. ``spec`` is its JSON form."""

    settings: Settings
    selector: Selector
    owner: Owner
    spec: Mapping[str, Any]
    content: Content
    image_pulls: ImagePullSettings = NO_IMAGE_PULL_SETTINGS

    @property
    def template(self) -> Mapping[str, Any]:
        """The Pod template."""
        found: Mapping[str, Any] = self.spec.get("template") or {}
        return found

    @property
    def claim_templates(self) -> Sequence[Mapping[str, Any]]:
        """The volumeClaimTemplates."""
        return self.spec.get("volumeClaimTemplates") or ()

    @property
    def selector_labels(self) -> Mapping[str, str]:
        """The matchLabels of the selector."""
        return (self.spec.get("selector") or {}).get("matchLabels") or {}
