"""Reports and repairs Pods that were created without their sidecars."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter

from app.features.cloneset.kind import CLONE_SET
from app.features.daemonset.kind import DAEMON_SET
from app.features.sidecarset.injection.selection import indexed
from app.features.sidecarset.plan.missed_pods import (
    REASON,
    Bypassed,
    Limits,
    Step,
    bypassed_pods,
    limits_of,
    missing_from,
    next_step,
    pod_patch,
)
from app.features.sidecarset.types import SidecarSet
from app.features.statefulset.kind import STATEFUL_SET
from app.kube.client import Client, get_or_none
from app.kube.controller import Result
from app.kube.errors import Conflict, KubeError, NotFound, TooManyRequests, message_of
from app.kube.events import EventRecorder, reference
from app.kube.jsonvalues import as_object
from app.kube.objects import Namespace, OwnerReference, Pod
from app.kube.quantities import IntOrPercentError
from app.kube.resources import DAEMONSETS, DEPLOYMENTS, PODS, REPLICASETS, STATEFULSETS, ObjectKey
from app.kube.selectors import Selector
from app.kube.statuses import patch_pod_status
from app.kube.store import Change, Store
from app.pods.predicates import BY_CONTROLLER, Owner, controller_of, is_active, owner_key, refers_to

# Report Pods that bypassed admission while the webhook was not registered. [MGR-123, SS-136]

logger = logging.getLogger(__name__)

#: Times of the two checks, in seconds after the webhook is registered again. By the time of the
#: first check, all API servers call the webhook; the second check finds Pods that a slow watch delivers later, or that
#: were created while there was no leader.
LOOKS: Final = (3.0, 15.0)
#: Times of further checks while the condition of a Pod could not be written.
RETRIES: Final = (60.0, 180.0)


def bypassed_counter(registry: CollectorRegistry) -> Counter:
    """Return the counter of Pods that bypassed admission."""
    return Counter(
        "kruise_bypassed_pods",
        "Number of Pods created without containers of a matching SidecarSet while the webhook was not registered.",
        registry=registry,
    )


class BypassReport:
    """Checks the cached Pods each time the webhook may have been missing. Only the leader caches Pods.

    ``reviewed`` selects the namespaces whose Pods are sent to the webhook; other Pods are not reported.
    """

    def __init__(
        self,
        client: Client,
        pods: Store[Pod],
        sets: Store[SidecarSet],
        namespaces: Store[Namespace],
        events: EventRecorder,
        counter: Counter,
        reviewed: Selector | None,
        leading: Callable[[], bool],
    ) -> None:
        self._client = client
        self._pods = pods
        self._sets = sets
        self._namespaces = namespaces
        self._index = indexed(sets)
        self._clock = client.clock
        self._events = events
        self._counter = counter
        self._leading = leading
        self._reviewed = reviewed
        self._since: datetime | None = None
        self._wake = asyncio.Event()
        #: UIDs of the Pods that the last check found. If the next check finds them again, they are not reported again.
        self._reported: frozenset[str] = frozenset()
        #: UIDs of those Pods whose condition could not be written. The next check tries again.
        self._unmarked: frozenset[str] = frozenset()

    def webhooks_registered(self, since: datetime) -> None:
        """Record that the webhook is registered again, and may have been missing since ``since``. Does not wait."""
        self._since = since if self._since is None else min(since, self._since)
        self._wake.set()

    async def run(self) -> None:
        """Check the Pods after each registration, until canceled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            since, self._since, waited = self._since, None, 0.0
            for seconds in (*LOOKS, *RETRIES):
                if seconds in RETRIES and not self._unmarked:
                    break
                await self._clock.sleep(seconds - waited)
                waited = seconds
                if since is not None and self._reviewed is not None and self._leading():
                    await self._report(self._found(since, self._reviewed))

    def _found(self, since: datetime, reviewed: Selector) -> Sequence[Bypassed]:
        created = {
            one.metadata.name: datetime.fromisoformat(one.metadata.creation_timestamp)
            for one in self._sets.list()
            if one.metadata.creation_timestamp
        }
        namespaces = {one.metadata.name: one.metadata.labels for one in self._namespaces.list()}
        return bypassed_pods(self._pods.list(), since, self._index, created, namespaces, reviewed)

    async def _report(self, found: Sequence[Bypassed]) -> None:
        new = [one for one in found if one.pod.metadata.uid not in self._reported]
        unmarked = [*new, *(one for one in found if one.pod.metadata.uid in self._unmarked)]
        self._reported = frozenset(one.pod.metadata.uid for one in found)
        for one in new:
            self._events.event(reference(PODS, one.pod), "Warning", REASON, one.message)
        if new:
            self._counter.inc(len(new))
            logger.warning("%d Pods were created without their sidecars while the webhook was not registered", len(new))
        self._unmarked = frozenset([one.pod.metadata.uid for one in unmarked if not await self._mark(one)])

    async def _mark(self, one: Bypassed) -> bool:
        """Write the Pod's condition. Return whether it need not be written again. A failure does not affect other
        Pods."""
        metadata = one.pod.metadata
        patch = pod_patch(one.pod, one.sets, self._clock.now())
        try:
            await patch_pod_status(self._client, one.pod, patch)
        except NotFound:
            return True  # the Pod was deleted
        except Conflict:
            return False  # it was replaced, or the API server gave up merging with changes of others
        except KubeError as error:
            logger.warning(
                "Pod %s/%s: cannot write its condition: %s",
                metadata.namespace,
                metadata.name,
                message_of(error),
            )
            return False
        return True


# Evict Pods that lack their sidecars, one by one, if gate RepairMissedPods is enabled [SS-137]. The reconcile key
# identifies a workload by its namespace and UID, as in its Pods' owner references. The API server and our webhook check
# each eviction against the applicable budgets; a refused eviction is retried later.

NAME: Final = "sidecarset-repair"
EVICTED: Final = "EvictedForSidecars"
NOT_REPAIRED: Final = "SidecarsNotRepaired"
#: Seconds until a workload is checked again: while waiting for a budget or other Pods, and if it cannot be repaired.
RETRY: Final = 5.0
SLOW_RETRY: Final = 300.0

#: Workloads whose Pods may be replaced, by group and kind. Recreated Pods of other workloads, such as Jobs, would
#: repeat their work.
_RESOURCES: Final = {
    (one.group, one.kind): one
    for one in (
        *(DEPLOYMENTS, REPLICASETS, STATEFULSETS, DAEMONSETS),
        *(kind.resource() for kind in (CLONE_SET, STATEFUL_SET, DAEMON_SET)),
    )
}

#: Returns whether any set that the Pod's condition names would inject the Pod if it were created now.
StillMissing = Callable[[Pod], bool]


class Repair:
    """Replaces Pods that lack sidecars. ``still`` returns whether a new Pod would get the sidecars that this one lacks.

    ``pods`` must have index :data:`app.pods.predicates.BY_CONTROLLER`.
    """

    def __init__(self, client: Client, pods: Store[Pod], events: EventRecorder, still: StillMissing) -> None:
        self._client = client
        self._pods = pods
        self._events = events
        self._still = still
        #: The owner_key of each workload with Pods that lack sidecars. Changes to Pods of other workloads are ignored.
        self._concerned: set[str] = set()

    def keys_for_pod(self, change: Change[Pod]) -> Iterable[ObjectKey]:
        """Return the Pod's workload if any Pod of that workload lacks sidecars."""
        metadata = change.object.metadata
        owner = metadata.controller
        if owner is None:
            return ()
        key = owner_key(owner, metadata.namespace)
        if change.new is not None and missing_from(change.new):
            self._concerned.add(key)
        return (ObjectKey(metadata.namespace, key),) if key in self._concerned else ()

    async def __call__(self, key: ObjectKey) -> Result | None:
        """Evict the next Pod of one workload, if allowed."""
        owned = self._pods.by_index(BY_CONTROLLER, key.name)
        pods = [pod for pod in owned if is_active(pod)]
        missed = sorted((pod for pod in pods if missing_from(pod) and self._still(pod)), key=lambda p: p.metadata.name)
        if not missed:
            self._concerned.discard(key.name)
            return None
        step = await self._step(key.namespace, pods, missed)
        if step.left:
            self._events.event(reference(PODS, missed[0]), "Warning", NOT_REPAIRED, f"not replaced: {step.left}")
            return Result(requeue_after=SLOW_RETRY)
        if step.evict is not None:
            await self._evict(step.evict)
        return Result(requeue_after=RETRY)

    async def _step(self, namespace: str, pods: Sequence[Pod], missed: Sequence[Pod]) -> Step:
        owner = missed[0].metadata.controller
        try:
            limits = await self._limits(namespace, owner) if owner is not None else None
        except IntOrPercentError as error:
            return Step(left=f"the limits of its workload cannot be read: {error}")
        if limits is None:
            return Step(left="its workload was deleted, or is of an unsupported kind; delete the Pod yourself")
        return next_step(pods, missed, limits)

    async def _evict(self, pod: Pod) -> None:
        metadata = pod.metadata
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": metadata.name, "namespace": metadata.namespace},
            "deleteOptions": {"preconditions": {"uid": metadata.uid}},
        }
        try:
            await self._client.create(PODS, body, metadata.namespace, name=metadata.name, subresource="eviction")
        except (NotFound, TooManyRequests) as error:
            logger.debug("Pod %s/%s: not evicted now: %s", metadata.namespace, metadata.name, message_of(error))
            return
        sets = ", ".join(missing_from(pod))
        text = f"evicted, so that its workload recreates it with the containers of SidecarSet {sets}"
        self._events.event(reference(PODS, pod), "Normal", EVICTED, text)

    async def _limits(self, namespace: str, owner: OwnerReference) -> Limits | None:
        """Return the limits of the workload that creates the Pods. For a ReplicaSet, its Deployment's maxUnavailable
        applies. Raises KubeError."""
        found = await self._workload(namespace, owner)
        if found is None:
            return None
        if (owner.group, owner.kind) == ("apps", "ReplicaSet"):
            above = _controller(found)
            deployment = await self._workload(namespace, above) if above is not None else None
            if deployment is not None and above is not None:
                # During a rollout, the Deployment's Pods belong to several ReplicaSets; count only those of this one.
                allowed = limits_of(above.group, above.kind, deployment).max_unavailable
                return Limits(limits_of(owner.group, owner.kind, found).replicas, allowed)
        return limits_of(owner.group, owner.kind, found)

    async def _workload(self, namespace: str, owner: OwnerReference) -> Mapping[str, Any] | None:
        resource = _RESOURCES.get((owner.group, owner.kind))
        if resource is None:
            return None
        found: Mapping[str, Any] | None = await get_or_none(self._client, resource, owner.name, namespace)
        if found is None:
            return None
        uid = str((found.get("metadata") or {}).get("uid") or "")
        named = Owner(resource.api_version, resource.kind, owner.name, namespace, uid)
        return found if refers_to(owner, namespace, named) else None


def _controller(obj: Mapping[str, Any]) -> OwnerReference | None:
    references = as_object(obj.get("metadata")).get("ownerReferences")
    return controller_of(references) if isinstance(references, list) else None
