"""Telling of Pods that came past admission while our webhook was not registered (MGR-123)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Final

from app.admission.pod import MUTATE_POD
from app.kube.admission import Webhook
from app.kube.clock import Clock
from app.kube.events import EventRecorder, reference
from app.kube.resources import PODS
from app.kube.selectors import Selector, compile_selector
from app.manager.caches import Caches
from app.manager.metrics import ManagerMetrics
from app.sidecars.sidecarset.bypassed import REASON, Bypassed, bypassed_pods

logger = logging.getLogger(__name__)

#: How long after the webhook is registered again all API servers have noticed, and our cache shows the last such Pod.
SETTLE_SECONDS: Final = 3.0


def reviewed_namespaces(webhooks: Iterable[Webhook]) -> Selector | None:
    """The namespaces whose new Pods are sent to us, given what is registered; None: no Pod is (PW-4)."""
    return next((compile_selector(one.namespace_selector) for one in webhooks if one.name == MUTATE_POD.name), None)


class BypassReport:
    """Looks through the cached Pods after each time the webhook may have been away. Only who leads has them cached.

    ``reviewed``: the namespaces whose Pods are to have their sidecars; Pods that nobody is to send are no loss.
    """

    def __init__(
        self,
        caches: Caches,
        clock: Clock,
        events: EventRecorder,
        metrics: ManagerMetrics,
        reviewed: Selector | None,
        leading: Callable[[], bool],
    ) -> None:
        self._caches = caches
        self._clock = clock
        self._events = events
        self._metrics = metrics
        self._leading = leading
        self._reviewed = reviewed
        self._since: datetime | None = None
        self._wake = asyncio.Event()
        #: Pods (by uid) of the last look, which the next may see again.
        self._told: frozenset[str] = frozenset()

    def look(self, since: datetime) -> None:
        """The webhook is registered, and may not have been since then. Does not wait."""
        self._since = since if self._since is None else min(since, self._since)
        self._wake.set()

    async def run(self) -> None:
        """Look whenever there is a reason, until cancelled."""
        while True:
            await self._wake.wait()
            await self._clock.sleep(SETTLE_SECONDS)
            self._wake.clear()
            since, self._since = self._since, None
            if since is not None and self._reviewed is not None and self._leading():
                self._report(self._found(since, self._reviewed))

    def _found(self, since: datetime, reviewed: Selector) -> Sequence[Bypassed]:
        caches = self._caches
        created = {
            one.metadata.name: datetime.fromisoformat(one.metadata.creation_timestamp)
            for one in caches.sidecarsets.list()
            if one.metadata.creation_timestamp
        }
        namespaces = {one.metadata.name: one.metadata.labels for one in caches.namespaces.list()}
        return bypassed_pods(caches.pods.list(), since, caches.index, created, namespaces, reviewed)

    def _report(self, found: Sequence[Bypassed]) -> None:
        new = [one for one in found if one.pod.metadata.uid not in self._told]
        self._told = frozenset(one.pod.metadata.uid for one in found)
        for one in new:
            self._events.event(reference(PODS, one.pod), "Warning", REASON, one.message)
        if new:
            self._metrics.bypassed_pods.inc(len(new))
            logger.warning("%d Pods were created without their sidecars while the webhook was not registered", len(new))
