"""Follower: manages the certificate of a replica that only serves reviews (``--controllers=false``).

The controllers write the certificate Secret, the webhook configurations and the CustomResourceDefinitions. This replica
reads the certificate, passes it to its listeners, and needs no permission to write any of these objects. [MGR-146]
All replicas track which CRDs are missing: a kind without its CRD is disabled.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any, Final

from app.certs.issue import CertificateError, CertificateSet, expiry
from app.certs.sources import CertificateSource
from app.kube.client import Client
from app.kube.clock import Backoff
from app.kube.errors import KubeError, NotFound
from app.kube.objects import decode_metadata
from app.kube.reflector import Reflector, ReflectorMetrics, watch_of_one
from app.kube.resources import CUSTOMRESOURCEDEFINITIONS, SECRETS
from app.manager.metrics import ManagerMetrics
from app.manager.shared_state import Certificate, SharedValue

logger = logging.getLogger(__name__)


class MissingDefinitions:
    """Tracks the names of CRDs that are not installed. Calls ``changed`` with all of them when this set changes."""

    def __init__(self, metrics: ManagerMetrics, changed: Callable[[Iterable[str]], None]) -> None:
        self._metrics = metrics
        self._changed = changed
        #: None until the first check.
        self._names: frozenset[str] | None = None

    def __len__(self) -> int:
        return len(self._names or ())

    def note(self, missing: frozenset[str]) -> None:
        """Log and count changes, and call ``changed``."""
        before = self._names or frozenset()
        for name in sorted(missing - before):
            logger.error(
                "CustomResourceDefinition %s is missing, so its kind is disabled; run kubectl apply -f deploy/crds/",
                name,
            )
        for name in sorted(before - missing):
            logger.info("CustomResourceDefinition %s is installed: its kind is enabled", name)
        for name in missing | before:
            self._metrics.missing_definitions.labels(name).set(name in missing)
        if missing != self._names:
            self._names = missing
            self._changed(missing)


#: Seconds between reads if no watch event arrives. [MGR-37]
SYNC_SECONDS: Final = 60.0
#: Maximum delay after a failure.
RETRY_CAP_SECONDS: Final = 15.0
#: Seconds between two reads while a CRD is missing.
MISSING_SECONDS: Final = 5.0


class Follower:
    """Keeps the listeners' certificate in sync with the Secret, and tracks disabled kinds."""

    def __init__(
        self,
        client: Client,
        certificates: CertificateSource,
        definitions: Sequence[str],
        metrics: ManagerMetrics,
        rng: Random,
        published: SharedValue[Certificate],
        *,
        absent_changed: Callable[[Iterable[str]], None] = lambda _: None,
    ) -> None:
        """Create a follower. ``definitions`` are the CustomResourceDefinitions that reviews need.

        ``absent_changed`` is called with the names of missing CustomResourceDefinitions whenever this set changes.
        """
        self._client = client
        self._certificates = certificates
        self._definitions = definitions
        self._missing = MissingDefinitions(metrics, absent_changed)
        self._metrics = metrics
        self._rng = rng
        self._published = published
        self._wake = asyncio.Event()

    def wake(self) -> None:
        self._wake.set()

    def watches(self, metrics: ReflectorMetrics, secret: tuple[str, str] | None) -> list[Reflector[Any]]:
        """Return the watch on the Secret (namespace, name), to be run as a task."""
        if secret is None:
            return []
        return [watch_of_one(self._client, SECRETS, secret, lambda _: self.wake(), self._rng, metrics, decode_metadata)]

    async def use_certificate(self) -> None:
        """Read the certificate and pass it to the listeners. Raises KubeError or CertificateError."""
        serve(self._published, self._certificates, await self._certificates.ensure(), self._metrics)

    async def look_for_definitions(self) -> None:
        """Update the set of CRDs that are not installed. Raises KubeError."""
        absent = set()
        for name in self._definitions:
            try:
                await self._client.get(CUSTOMRESOURCEDEFINITIONS, name, decode=bytes)
            except NotFound:
                absent.add(name)
        self._missing.note(frozenset(absent))

    async def run(self) -> None:
        """Follow the certificate until canceled. Failures are logged, counted and retried."""
        backoff = Backoff(self._rng, base=0.5, cap=RETRY_CAP_SECONDS)
        while True:
            self._wake.clear()
            try:
                await self.use_certificate()
                await self.look_for_definitions()
            except (KubeError, CertificateError) as error:
                self._metrics.certificate_errors.inc()
                logger.warning("cannot read the certificate or a CustomResourceDefinition: %s", error)
                delay = backoff.next()
            else:
                delay = MISSING_SECONDS if self._missing else SYNC_SECONDS
                delay = min(delay, self._certificates.next_step_in or delay)
                backoff.reset()
            try:
                await self._client.clock.wait_for(self._wake.wait(), delay)
            except TimeoutError:
                continue


def serve(
    published: SharedValue[Certificate],
    source: CertificateSource,
    certificates: CertificateSet,
    metrics: ManagerMetrics,
) -> None:
    """Pass a certificate to the listeners of this replica, and publish its expiry as a metric."""
    shared = Certificate(certificates.cert, certificates.key, source.bundle)
    metrics.certificate_expiry.set(expiry(certificates.cert).timestamp())
    if published.read() != shared:
        published.write(shared)
