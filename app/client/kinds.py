"""The models of all kinds, in the version that is stored, and where each is served."""

from __future__ import annotations

from functools import cache

from app.api.advancedcronjob import AdvancedCronJob
from app.api.broadcastjob import BroadcastJob
from app.api.cloneset import CloneSet
from app.api.containerrecreate import ContainerRecreateRequest
from app.api.daemonset import DaemonSet
from app.api.ephemeraljob import EphemeralJob
from app.api.imagepull import ImageListPullJob, ImagePullJob, NodeImage
from app.api.kind import KindDefinition
from app.api.model import KubeObject
from app.api.persistentpodstate import PersistentPodState
from app.api.podprobe import NodePodProbe, PodProbeMarker
from app.api.podunavailablebudget import PodUnavailableBudget
from app.api.resourcedistribution import ResourceDistribution
from app.api.sidecarset import SidecarSet
from app.api.statefulset import StatefulSet
from app.api.uniteddeployment import UnitedDeployment
from app.api.workloadspread import WorkloadSpread
from app.manager.slices import kinds

__all__ = [
    "AdvancedCronJob",
    "BroadcastJob",
    "CloneSet",
    "ContainerRecreateRequest",
    "DaemonSet",
    "EphemeralJob",
    "ImageListPullJob",
    "ImagePullJob",
    "KubeObject",
    "NodeImage",
    "NodePodProbe",
    "PersistentPodState",
    "PodProbeMarker",
    "PodUnavailableBudget",
    "ResourceDistribution",
    "SidecarSet",
    "StatefulSet",
    "UnitedDeployment",
    "WorkloadSpread",
    "definition",
]


@cache
def definition(model: type[KubeObject]) -> KindDefinition:
    """The kind whose stored version is this model. Raises TypeError for another class."""
    found = next((kind for kind in kinds() if kind.hub.model is model), None)
    if found is None:
        raise TypeError(f"{model.__name__} is no kind of pykruise, or not the version that is stored")
    return found
