"""Registration: certificates in place, the API server told to call us and to convert through us, and kept that way.

Each sync makes sure of the certificate, of the conversion webhook of every CRD of ours and, once the caches are filled,
of both webhook configurations. It runs at the start and every minute after that; what drifted is repaired and counted,
and never makes a ready replica unready (MGR-36, D-18).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from random import Random
from typing import Any, Final, Protocol

from app.admission.configurations import (
    MUTATING_NAME,
    VALIDATING_NAME,
    Endpoint,
    conversion_patch,
    mutating_configuration,
    updated,
    validating_configuration,
)
from app.api.kind import KindDefinition
from app.certs.context import ServingContext
from app.certs.issue import CertificateError, CertificateSet, expiry
from app.kube.admission import Webhook
from app.kube.backoff import Backoff
from app.kube.client import Client
from app.kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from app.kube.resources import (
    CUSTOMRESOURCEDEFINITIONS,
    MUTATINGWEBHOOKCONFIGURATIONS,
    VALIDATINGWEBHOOKCONFIGURATIONS,
    Resource,
)
from app.manager.metrics import ManagerMetrics

logger = logging.getLogger(__name__)

#: MGR-37: how often everything is looked at although nothing seems to have happened.
SYNC_SECONDS: Final = 60.0
#: The longest wait after a failure.
RETRY_CAP_SECONDS: Final = 15.0
#: How often a missing CRD is looked for.
MISSING_SECONDS: Final = 1.0


class CertificateSource(Protocol):
    """Where the serving certificate comes from: a Secret, a folder."""

    async def ensure(self) -> CertificateSet:
        """The certificates to use now."""
        ...


class Registration:
    """Keeps the API server's side of admission as declared."""

    def __init__(
        self,
        client: Client,
        certificates: CertificateSource,
        endpoint: Endpoint,
        webhooks: Sequence[Webhook],
        kinds: Sequence[KindDefinition],
        metrics: ManagerMetrics,
        rng: Random,
    ) -> None:
        self._client = client
        self._clock = client.clock
        self._certificates = certificates
        self._endpoint = endpoint
        self._webhooks = webhooks
        self._kinds = kinds
        self._metrics = metrics
        self._backoff = Backoff(rng, base=0.5, cap=RETRY_CAP_SECONDS)
        self._missing: frozenset[str] = frozenset()
        self._wake = asyncio.Event()
        self._may_register = False
        #: Set once the API server was seen to have all CRDs of ours.
        self.defined = asyncio.Event()
        #: Set once both configurations were seen in place.
        self.registered = asyncio.Event()
        self.current: CertificateSet | None = None
        self.context: ServingContext | None = None

    @property
    def missing_definitions(self) -> frozenset[str]:
        """The CRDs of ours that the API server does not have."""
        return self._missing

    def allow_registration(self) -> None:
        """The caches are filled: reviews can be judged, so the API server may send them."""
        self._may_register = True
        self._wake.set()

    def look_again(self) -> None:
        """Something of ours changed: sync now."""
        self._wake.set()

    async def run(self) -> None:
        """Sync for ever. Failures are logged, counted and tried again."""
        while True:
            self._wake.clear()
            try:
                await self.sync()
            except (KubeError, CertificateError) as error:
                self._metrics.registration_failures.inc()
                logger.warning("registering webhooks failed: %s", error)
                delay = self._backoff.next()
            else:
                delay = MISSING_SECONDS if self._missing else SYNC_SECONDS
                self._backoff.reset()
            try:
                await self._clock.wait_for(self._wake.wait(), delay)
            except TimeoutError:
                continue

    async def sync(self) -> None:
        """Look at everything once and repair it. Raises KubeError or CertificateError."""
        await self.use_certificate()
        await self.sync_conversions()
        if self._may_register:
            await self.sync_configurations()
            self.registered.set()

    async def use_certificate(self) -> None:
        """Take the certificate in force into use; established connections go on."""
        certificates = await self._certificates.ensure()
        if certificates == self.current:
            return
        try:
            if self.context is None:
                self.context = ServingContext(certificates.cert, certificates.key)
            else:
                self.context.replace(certificates.cert, certificates.key)
        except CertificateError:
            self._metrics.certificate_errors.inc()
            raise
        self.current = certificates
        self._metrics.certificate_reads.inc()
        self._metrics.certificate_expiry.set(expiry(certificates.cert).timestamp())

    # ---- CustomResourceDefinitions

    async def sync_conversions(self) -> None:
        """MGR-52: every CRD of ours that wants a conversion webhook converts through us."""
        missing = set()
        for kind in self._kinds:
            try:
                await self._sync_conversion(kind.crd_name)
            except NotFound:
                missing.add(kind.crd_name)
        if missing and missing != self._missing:
            for name in sorted(missing):
                logger.error(
                    "CustomResourceDefinition %s is not installed: kubectl apply -f deploy/crds/ (trying again)", name
                )
        elif self._missing and not missing:
            logger.info("all CustomResourceDefinitions are installed")
        self._missing = frozenset(missing)
        if not missing:
            self.defined.set()

    async def _sync_conversion(self, name: str) -> None:
        definition = await self._client.get(CUSTOMRESOURCEDEFINITIONS, name)
        patch = conversion_patch(definition, self._endpoint, self._ca_bundle)
        if patch is None:
            return
        try:
            await self._client.patch(CUSTOMRESOURCEDEFINITIONS, name, patch)
        except Conflict:
            logger.info("CustomResourceDefinition %s changed meanwhile, looking again", name)
            self._wake.set()
            return
        self._repaired(f"CustomResourceDefinition {name}")

    # ---- webhook configurations

    async def sync_configurations(self) -> None:
        """Both configurations are as declared; made where they are missing."""
        await self._sync_configuration(
            MUTATINGWEBHOOKCONFIGURATIONS,
            MUTATING_NAME,
            mutating_configuration(self._webhooks, self._endpoint, self._ca_bundle),
        )
        await self._sync_configuration(
            VALIDATINGWEBHOOKCONFIGURATIONS,
            VALIDATING_NAME,
            validating_configuration(self._webhooks, self._endpoint, self._ca_bundle),
        )

    async def _sync_configuration(self, resource: Resource, name: str, desired: dict[str, Any]) -> None:
        try:
            live = await self._client.get(resource, name)
        except NotFound:
            try:
                await self._client.create(resource, desired)
            except AlreadyExists:
                self._wake.set()
                return
        else:
            body = updated(live, desired)
            if body is None:
                return
            try:
                await self._client.replace(resource, name, body)
            except Conflict:
                self._wake.set()
                return
        self._repaired(f"{resource.kind} {name}")

    def _repaired(self, what: str) -> None:
        if self.registered.is_set():
            self._metrics.registration_repairs.labels(what).inc()
            logger.warning("%s was changed or deleted by somebody else: repaired", what)
        else:
            logger.info("%s is in place", what)

    @property
    def _ca_bundle(self) -> str:
        if self.current is None:
            raise CertificateError("there is no certificate yet")
        return self.current.ca_bundle
