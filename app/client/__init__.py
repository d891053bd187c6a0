"""The Python client: typed access to every kind, with and without asyncio. Import it as ``pykruise``.

import pykruise
from pykruise import CloneSet

with pykruise.Cluster() as cluster:
    for web in cluster.list(CloneSet, namespace="shop"):
        print(web.name, web.spec.replicas, web.status.ready_replicas if web.status else 0)
"""

from app.client.cluster import AsyncCluster, NotDoneError, rolled_out
from app.client.kinds import (
    AdvancedCronJob,
    BroadcastJob,
    CloneSet,
    ContainerRecreateRequest,
    DaemonSet,
    EphemeralJob,
    ImageListPullJob,
    ImagePullJob,
    KubeObject,
    NodeImage,
    NodePodProbe,
    PersistentPodState,
    PodProbeMarker,
    PodUnavailableBudget,
    ResourceDistribution,
    SidecarSet,
    StatefulSet,
    UnitedDeployment,
    WorkloadSpread,
)
from app.client.sync import Cluster
from app.kube.errors import AlreadyExists, ApiError, Conflict, Forbidden, Invalid, KubeError, NotFound
from app.kube.store import Change

__all__ = [
    "AdvancedCronJob",
    "AlreadyExists",
    "ApiError",
    "AsyncCluster",
    "BroadcastJob",
    "Change",
    "CloneSet",
    "Cluster",
    "Conflict",
    "ContainerRecreateRequest",
    "DaemonSet",
    "EphemeralJob",
    "Forbidden",
    "ImageListPullJob",
    "ImagePullJob",
    "Invalid",
    "KubeError",
    "KubeObject",
    "NodeImage",
    "NodePodProbe",
    "NotDoneError",
    "NotFound",
    "PersistentPodState",
    "PodProbeMarker",
    "PodUnavailableBudget",
    "ResourceDistribution",
    "SidecarSet",
    "StatefulSet",
    "UnitedDeployment",
    "WorkloadSpread",
    "rolled_out",
]
