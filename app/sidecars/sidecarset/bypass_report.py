"""Telling of Pods that came past admission while our webhook was not registered (MGR-123, SS-136)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final

from prometheus_client import CollectorRegistry, Counter

from app.api.sidecarset import SidecarSet
from app.kube.client import Client, PatchType
from app.kube.errors import Conflict, KubeError, NotFound, message_of
from app.kube.events import EventRecorder, reference
from app.kube.objects import Namespace, Pod
from app.kube.resources import PODS
from app.kube.selectors import Selector
from app.kube.store import Store
from app.sidecars.sidecarset.bypassed import REASON, Bypassed, bypassed_pods
from app.sidecars.sidecarset.plan.missed import pod_patch
from app.sidecars.sidecarset.selection import indexed

logger = logging.getLogger(__name__)

#: When the Pods are looked through, in seconds after the webhook is registered again: once all API servers know it,
#: and once more for Pods that a slow watch showed later, or that were there while nobody led.
LOOKS: Final = (3.0, 15.0)


def bypassed_counter(registry: CollectorRegistry) -> Counter:
    """The counter of such Pods."""
    return Counter(
        "kruise_bypassed_pods",
        "Pods without containers of a SidecarSet that selects them, created while the webhook was not registered.",
        registry=registry,
    )


class BypassReport:
    """Looks through the cached Pods after each time the webhook may have been away. Only who leads has them cached.

    ``reviewed``: the namespaces whose Pods are to have their sidecars; Pods that nobody is to send are no loss.
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
        #: Pods (by uid) of the last look, which the next may see again.
        self._reported: frozenset[str] = frozenset()

    def webhooks_registered(self, since: datetime) -> None:
        """The webhook is registered, and may not have been since then. Does not wait."""
        self._since = since if self._since is None else min(since, self._since)
        self._wake.set()

    async def run(self) -> None:
        """Look whenever there is a reason, until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            since, self._since, waited = self._since, None, 0.0
            for seconds in LOOKS:
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
        self._reported = frozenset(one.pod.metadata.uid for one in found)
        for one in new:
            self._events.event(reference(PODS, one.pod), "Warning", REASON, one.message)
        if new:
            self._counter.inc(len(new))
            logger.warning("%d Pods were created without their sidecars while the webhook was not registered", len(new))
        for one in new:
            await self._mark(one)

    async def _mark(self, one: Bypassed) -> None:
        """Note on the Pod what it lacks, for whoever looks later. One that cannot be marked stops no other."""
        metadata = one.pod.metadata
        patch = pod_patch(one.pod, one.sets, self._clock.now())
        try:
            await self._client.patch(
                PODS, metadata.name, patch, metadata.namespace, kind=PatchType.STRATEGIC, subresource="status"
            )
        except (NotFound, Conflict):
            return  # it is gone
        except KubeError as error:
            logger.warning("Pod %s/%s: not marked: %s", metadata.namespace, metadata.name, message_of(error))
