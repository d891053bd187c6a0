"""Pod readiness controller: sets the initial conditions of Pods."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from app.framework.feature import ControllerContext, Reconciling
from app.framework.watched import PODS
from app.kube.client import Client
from app.kube.controller import Result, Watch
from app.kube.errors import Conflict, NotFound
from app.kube.expectations import ResourceVersionExpectations
from app.kube.objects import Pod
from app.kube.resources import ObjectKey
from app.kube.statuses import patch_pod_status
from app.kube.store import Change, Store, key_of
from app.pods.readiness import InitialMetadata, initial_condition, needs_condition

#: Seconds after which a Pod is reconciled again if the watch has not delivered its newer version.
RECHECK_DELAY = 1.0
#: Seconds to wait for the kubelet to report a newly bound Pod.
KUBELET_FIRST = 0.5


class PodReadinessReconciler:
    """Sets the initial conditions of Pods that have the readiness gate."""

    def __init__(self, client: Client, pods: Store[Pod], workloads: Sequence[InitialMetadata] = ()) -> None:
        self._client = client
        self._workloads = workloads
        self._clock = client.clock
        self._pods = pods
        self._written = ResourceVersionExpectations(client.clock)

    def keys_for_pod(self, change: Change[Pod]) -> Iterable[ObjectKey]:
        """Return the Pod's key if the Pod waits for the condition. [PM-60]"""
        if change.new is None:
            self._written.forget(change.object.metadata.uid)
            return ()
        if needs_condition(change.new):
            waits = self._initial_metadata(change.new, self._clock.now()) is None
            return () if waits else (key_of(change.new),)
        self._written.observe(change.new.metadata)
        return ()

    def delay(self, change: Change[Pod], _key: ObjectKey) -> float:
        """Return the delay before the write to a newly bound Pod. The kubelet reports a Pod as soon as it receives it,
        and a concurrent write makes the API server retry one of the two. The delayed write still precedes the report
        that the containers are ready."""
        pod = change.new
        return KUBELET_FIRST if pod is not None and pod.spec.node_name and pod.status.start_time is None else 0.0

    def _initial_metadata(self, pod: Pod, now: datetime) -> Mapping[str, Any] | None:
        for workload in self._workloads:
            found = workload(pod, now)
            if found is None or found:
                return found
        return {}

    async def __call__(self, key: ObjectKey) -> Result | None:
        """Write one patch before the containers can be ready, so that the kubelet takes the condition into
        account."""
        pod = self._pods.by_key(key)
        if pod is None or not needs_condition(pod) or self._written.unsatisfied(pod.metadata) is not None:
            return None
        now = self._clock.now()
        more = self._initial_metadata(pod, now)
        if more is None:
            return None
        patch = initial_condition(pod, now)
        if more:
            patch = {**patch, "metadata": {**patch["metadata"], **more}}
        try:
            written = await patch_pod_status(self._client, pod, patch)
        except NotFound:
            return None
        except Conflict:
            # Another writer was faster, and may have set the condition. The watch will deliver the newer Pod.
            return Result(requeue_after=RECHECK_DELAY)
        self._written.expect(written.metadata)
        return None


NAME: Final = "pod-readiness-controller"


def pod_readiness_controller(context: ControllerContext) -> Reconciling:
    """Return the Pod readiness controller."""
    pods = context.stores(PODS)
    reconciler = PodReadinessReconciler(context.client, pods, context.provided(InitialMetadata))
    return Reconciling(reconciler, [Watch(pods, reconciler.keys_for_pod, reconciler.delay)])
