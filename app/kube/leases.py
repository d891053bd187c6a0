"""Leader election with Leases, so that only one of several replicas does the work.

The holder renews its Lease every ``retry_period``. A candidate that sees no renewal for ``lease_duration`` (by its own
monotonic clock, so clocks need not agree) takes over the Lease. A holder that has not renewed its Lease for
``renew_deadline`` stops before another candidate may start.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import uuid
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import datetime
from random import Random
from typing import Any

from app.kube.client import Client, get_or_none
from app.kube.clock import rfc3339_micro
from app.kube.concurrency import cancel
from app.kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from app.kube.objects import Lease, LeaseSpec, decode_lease
from app.kube.resources import LEASES

logger = logging.getLogger(__name__)

#: A waiting candidate retries after retry_period times a random factor from 1 to this, so that candidates do not run in
#: lockstep.
JITTER = 2.2


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """Durations in seconds; each must be longer than the next. The manager's ``--leader-election`` flags have these
    defaults."""

    lease_duration: float = 15.0
    renew_deadline: float = 10.0
    retry_period: float = 2.0

    def __post_init__(self) -> None:
        if not self.lease_duration > self.renew_deadline > self.retry_period > 0:
            raise ValueError(
                "leader election needs lease duration > renew deadline > retry period > 0, "
                f"not {self.lease_duration} s, {self.renew_deadline} s and {self.retry_period} s"
            )


class LeaderMetrics:
    """Hooks for metrics. This base class does nothing."""

    def leader(self, name: str, leading: bool) -> None: ...
    def slow_path(self, name: str) -> None: ...


class LeadershipLost(KubeError):
    """The lease could not be renewed in time; another candidate may hold it now."""


def identity(rng: Random) -> str:
    """Return the identity of a lease holder: ``<hostname>_<uuid>``. [MGR-24]"""
    return f"{socket.gethostname()}_{uuid.UUID(int=rng.getrandbits(128), version=4)}"


class LeaderElector:
    """One candidate for one Lease."""

    def __init__(
        self,
        client: Client,
        *,
        name: str,
        namespace: str,
        identity: str,
        rng: Random,
        times: LeaseTimes,
        release: bool = True,
        metrics: LeaderMetrics | None = None,
    ) -> None:
        self.name = name
        self.namespace = namespace
        self.identity = identity
        self._client = client
        self._clock = client.clock
        self._rng = rng
        self._times = times
        self._release_on_exit = release
        self._metrics = metrics if metrics is not None else LeaderMetrics()
        self._leading = False
        self._wake = asyncio.Event()
        #: The lease as last seen or written, and the monotonic time since which it has been unchanged.
        self._observed: Lease | None = None
        self._observed_at = 0.0
        #: The monotonic time at which the last successful write was sent; the server received it no earlier.
        self._renewed_at = 0.0

    @property
    def leading(self) -> bool:
        return self._leading

    @property
    def leader(self) -> str:
        """Return the holder of the lease when it was last seen; empty if none."""
        return (self._observed.spec.holder_identity or "") if self._observed is not None else ""

    async def run(self, lead: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Wait for the lease, then run ``lead`` while renewing it.

        Returns when ``lead`` does, and raises what ``lead`` raises. If the lease is lost, cancels ``lead`` and raises
        ``LeadershipLost``. In any case, including cancellation, ``run`` returns only after ``lead`` has ended, and
        releases the lease if so configured.
        """
        await self._acquire()
        self._set_leading(True)
        logger.info("lease %s/%s: %s is now the leader", self.namespace, self.name, self.identity)
        renewing = asyncio.create_task(self._renew(), name=f"lease {self.name}: renew")
        work = asyncio.create_task(lead(), name=f"lease {self.name}: lead")
        try:
            await asyncio.wait({renewing, work}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                raise LeadershipLost(
                    f"lease {self.namespace}/{self.name} was not renewed for {self._times.renew_deadline:.0f} s"
                ) from renewing.exception()
            work.result()
        finally:
            # Keep renewing until the work has stopped, so that another candidate does not start it meanwhile.
            await cancel(work)
            lost = renewing.done()
            await cancel(renewing)
            self._set_leading(False)
            if self._release_on_exit and not lost:
                await self._release()

    def _set_leading(self, leading: bool) -> None:
        self._leading = leading
        self._metrics.leader(self.name, leading)

    def wake(self) -> None:
        """Make a waiting candidate check the lease now, for example after a watch saw it change."""
        self._wake.set()

    async def _acquire(self) -> None:
        while True:
            self._wake.clear()
            if await self._try():
                return
            factor = 1 + self._rng.random() * (JITTER - 1)
            with contextlib.suppress(TimeoutError):
                await self._clock.wait_for(self._wake.wait(), self._times.retry_period * factor)

    async def _renew(self) -> None:
        """Keep renewing. Raises ``TimeoutError`` if no renewal succeeds within the deadline."""
        while True:
            await self._clock.sleep(self._times.retry_period)
            left = self._renewed_at + self._times.renew_deadline - self._clock.monotonic()
            await self._clock.wait_for(self._renew_once(), left)

    async def _renew_once(self) -> None:
        while not await self._try():
            await self._clock.sleep(self._times.retry_period)

    async def _try(self) -> bool:
        """Take or renew the lease. Returns False if another candidate holds it or the server is unavailable."""
        try:
            return await self._clock.wait_for(self._take_or_renew(), self._times.renew_deadline / 2)
        except (KubeError, TimeoutError) as error:
            logger.warning(
                "lease %s/%s: cannot be %s: %s",
                self.namespace,
                self.name,
                "renewed" if self._leading else "taken",
                str(error) or "no response in time",
            )
            return False

    async def _take_or_renew(self) -> bool:
        if self._leading and self._observed is not None and self.leader == self.identity and self._is_valid():
            try:
                await self._write(self._observed)  # in the common case, only one request
            except (Conflict, NotFound):
                self._metrics.slow_path(self.name)
            else:
                return True
        lease = await get_or_none(self._client, LEASES, self.name, self.namespace, decode=decode_lease)
        if lease is None:
            return await self._create()
        self._observe(lease)
        if self.leader not in ("", self.identity) and self._is_valid():
            return False
        try:
            await self._write(lease)
        except Conflict:
            return False  # another candidate was faster
        return True

    def _observe(self, lease: Lease) -> None:
        if self._observed is None or self._observed.spec != lease.spec:
            if lease.spec.holder_identity and lease.spec.holder_identity != self.leader:
                logger.info("lease %s/%s is held by %s", self.namespace, self.name, lease.spec.holder_identity)
            self._observed_at = self._clock.monotonic()
        self._observed = lease

    def _is_valid(self) -> bool:
        """Return whether a lease was observed and has not expired."""
        if self._observed is None:
            return False
        seconds = self._observed.spec.lease_duration_seconds or 0
        return self._clock.monotonic() < self._observed_at + seconds

    async def _create(self) -> bool:
        now, sent = self._clock.now(), self._clock.monotonic()
        body = {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {"name": self.name, "namespace": self.namespace},
            "spec": self._spec(now, now, 0),
        }
        try:
            lease = await self._client.create(LEASES, body, self.namespace, decode=decode_lease)
        except AlreadyExists:
            return False
        self._observe(lease)
        self._renewed_at = sent
        return True

    async def _write(self, seen: Lease) -> None:
        """Take or renew the lease. Raises ``Conflict`` if it has changed since it was seen."""
        now, sent = self._clock.now(), self._clock.monotonic()
        spec: LeaseSpec = seen.spec
        transitions = spec.lease_transitions or 0
        if spec.holder_identity == self.identity:
            body = self._spec(spec.acquire_time or now, now, transitions)
        else:
            body = self._spec(now, now, transitions + 1)
        await self._patch(seen, body)
        self._renewed_at = sent

    async def _patch(self, seen: Lease, spec: dict[str, Any]) -> None:
        # A patch preserves fields set by others; the resourceVersion makes it fail if another candidate took the lease.
        patch = {"metadata": {"resourceVersion": seen.metadata.resource_version}, "spec": spec}
        lease = await self._client.patch(LEASES, self.name, patch, self.namespace, decode=decode_lease)
        self._observe(lease)

    def _spec(self, acquired: datetime, renewed: datetime, transitions: int) -> dict[str, Any]:
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": max(1, round(self._times.lease_duration)),
            "acquireTime": rfc3339_micro(acquired),
            "renewTime": rfc3339_micro(renewed),
            "leaseTransitions": transitions,
        }

    async def _release(self) -> None:
        """Release the lease so that the next candidate can start at once. [MGR-124]"""
        if self._observed is None or self.leader != self.identity:
            return
        try:
            await self._clock.wait_for(self._give_back(self._observed), self._times.renew_deadline / 2)
        except (KubeError, TimeoutError) as error:
            logger.warning(
                "lease %s/%s could not be released; other candidates wait for it to expire: %s",
                self.namespace,
                self.name,
                str(error) or "no response in time",
            )

    async def _give_back(self, seen: Lease) -> None:
        now = rfc3339_micro(self._clock.now())
        spec = {"holderIdentity": "", "leaseDurationSeconds": 1, "acquireTime": now, "renewTime": now}
        try:
            await self._patch(seen, spec)
        except Conflict:
            # An interrupted renewal may have succeeded nevertheless.
            live = await self._client.get(LEASES, self.name, self.namespace, decode=decode_lease)
            if live.spec.holder_identity == self.identity:
                await self._patch(live, spec)
