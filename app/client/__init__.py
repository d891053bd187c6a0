"""The Python client: typed access to every kind, with and without asyncio. Import it as ``pykruise``.

import pykruise
from pykruise import CloneSet

with pykruise.Cluster() as cluster:
    for web in cluster.list(CloneSet, namespace="shop"):
        print(web.name, web.spec.replicas, web.status.ready_replicas if web.status else 0)
"""

from app.api.model import KubeObject
from app.client import kinds
from app.client.cluster import AsyncCluster, NotDoneError, rolled_out
from app.client.kinds import *  # noqa: F403 - the models of all kinds, generated
from app.client.sync import Cluster
from app.kube.errors import AlreadyExists, ApiError, Conflict, Forbidden, Invalid, KubeError, NotFound
from app.kube.store import Change

__all__ = [
    "AlreadyExists",
    "ApiError",
    "AsyncCluster",
    "Change",
    "Cluster",
    "Conflict",
    "Forbidden",
    "Invalid",
    "KubeError",
    "KubeObject",
    "NotDoneError",
    "NotFound",
    "rolled_out",
]
__all__ += kinds.__all__
