"""Keep our webhooks and CRD conversions registered, with our address and CA.

Each sync reads every object that contains our address or CA, advances a certificate rotation if needed, and updates
what differs. A sync runs every minute and when one of these objects changes. Drift is repaired and counted, but never
makes a ready replica unready. Syncs run in one process of every replica with controllers; other replicas follow the
certificate (follower.py). [MGR-36]
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from random import Random
from typing import Any, Final, Literal, TypeAlias, TypedDict, TypeVar

import msgspec

from app.admission.configurations import (
    CONFIGURATIONS,
    MUTATING_NAME,
    Endpoint,
    conversion_patch,
    match_conditions_dropped,
    mutating_configuration,
    release_patch,
    unknown_entries,
    updated,
    validating_configuration,
    without_match_conditions,
)
from app.api.kind import KindDefinition
from app.certs.issue import CertificateError, CertificateSet
from app.certs.rotation import blocks
from app.certs.sources import CertificateSource
from app.kube.admission import Webhook
from app.kube.client import Client
from app.kube.clock import Backoff, TokenBucket
from app.kube.errors import AlreadyExists, Conflict, Forbidden, Invalid, KubeError, NotFound, TransportError
from app.kube.objects import decode_metadata
from app.kube.reflector import Reflector, ReflectorMetrics, watch_of_one
from app.kube.resources import (
    CUSTOMRESOURCEDEFINITIONS,
    SECRETS,
    Resource,
)
from app.manager.follower import RETRY_CAP_SECONDS, SYNC_SECONDS, MissingDefinitions, serve
from app.manager.metrics import ManagerMetrics
from app.manager.shared_state import Certificate, SharedValue

logger = logging.getLogger(__name__)

T = TypeVar("T")


def trusted_for_us(definitions: Iterable[Mapping[str, Any]], configurations: Iterable[Mapping[str, Any]]) -> bytes:
    """Return all CAs that the API server trusts for our webhooks, in PEM. Unreadable bundles are skipped."""
    configs = [
        ((definition.get("spec") or {}).get("conversion") or {}).get("webhook", {}).get("clientConfig")
        for definition in definitions
    ]
    for configuration in configurations:
        configs += [entry.get("clientConfig") for entry in configuration.get("webhooks") or []]
    found: dict[bytes, None] = {}
    for bundle in dict.fromkeys((config or {}).get("caBundle") or "" for config in configs):
        with contextlib.suppress(binascii.Error, ValueError):
            found[base64.b64decode(bundle, validate=True)] = None
    return b"".join(found)


def carries(configuration: Mapping[str, Any] | None, authority: bytes) -> bool:
    """Return whether all entries of a configuration trust certificates signed by ``authority`` (PEM)."""
    entries = (configuration or {}).get("webhooks") or []
    wanted = frozenset(blocks(authority))
    for entry in entries:
        try:
            bundle = base64.b64decode((entry.get("clientConfig") or {}).get("caBundle") or "", validate=True)
        except (binascii.Error, ValueError):
            return False
        if not wanted <= set(blocks(bundle)):
            return False
    return True


class Attempts:
    """Collects failures, so that an object that cannot be read or written (for example, for lack of permission) does
    not block the others.

    A connection failure is raised at once.
    """

    def __init__(self) -> None:
        self.failures: list[Exception] = []
        #: Whether a write conflicted; if so, an object is not in the desired state yet.
        self.overtaken = False

    @property
    def may_succeed(self) -> bool:
        """Return whether a retry may soon succeed: after a conflict, or a failure other than a missing permission."""
        return self.overtaken or not all(isinstance(failure, Forbidden) for failure in self.failures)

    async def result(self, attempt: Awaitable[T]) -> T | None:
        """Return the result of the attempt, or None if it failed. Raises NotFound and TransportError."""
        try:
            return await attempt
        except (NotFound, TransportError):
            raise
        except (KubeError, CertificateError) as error:
            self.failures.append(error)
            return None

    def raise_first(self) -> None:
        """Raise the first failure and log the others."""
        for error in self.failures[1:]:
            logger.warning("registering webhooks failed: %s", error)
        if self.failures:
            raise self.failures[0]


#: Seconds between checks for CRDs while none is installed.
MISSING_SECONDS: Final = 1.0
#: Limits on repairs of one object (burst, and rate per second), so that two conflicting writers do not overload the API
#: server. A rotation writes every object three times, regardless of the number of kinds.
REPAIRS_BURST: Final = 10
REPAIRS_PER_SECOND: Final = 0.1
#: Seconds the leader keeps an entry it does not declare, because a terminating replica may still serve it. [MGR-120]
KEEP_UNKNOWN_SECONDS: Final = 60.0


class _DefinitionSpec(TypedDict, total=False):
    conversion: dict[str, Any]


class _Definition(TypedDict):
    """The managed part of a CustomResourceDefinition; the schemas are a hundred times larger."""

    metadata: dict[str, Any]
    spec: _DefinitionSpec


#: Resource, name and content of a webhook configuration; the content is None if it does not exist.
_Configuration: TypeAlias = tuple[Resource, str, dict[str, Any] | None]
_decode_definition: Final = msgspec.json.Decoder(_Definition).decode


class Registration:
    """Keeps webhook configurations and CRD conversions as declared.

    Listeners take the certificate from ``published``. ``may_have_been_away`` is called after the mutating configuration
    was restored or changed, with the time at which it was last known to be in place. When
    the set of CRDs that are not installed changes, ``absent_changed`` is called with their names.
    """

    def __init__(
        self,
        client: Client,
        certificates: CertificateSource,
        endpoint: Endpoint,
        webhooks: Sequence[Webhook],
        kinds: Sequence[KindDefinition],
        metrics: ManagerMetrics,
        rng: Random,
        published: SharedValue[Certificate],
        *,
        leading: Callable[[], bool] = lambda: True,
        may_have_been_away: Callable[[datetime], None] = lambda _: None,
        absent_changed: Callable[[Iterable[str]], None] = lambda _: None,
    ) -> None:
        self._client = client
        self.clock = client.clock
        self._certificates = certificates
        self._endpoint = endpoint
        self._webhooks = webhooks
        self._kinds = kinds
        self._metrics = metrics
        self._published = published
        self._leading = leading
        self._may_have_been_away = may_have_been_away
        self._rng = rng
        self._backoff = Backoff(rng, base=0.5, cap=RETRY_CAP_SECONDS)
        objects = len(kinds) + len(CONFIGURATIONS)
        self._repairs = TokenBucket(self.clock, qps=REPAIRS_PER_SECOND * objects, burst=REPAIRS_BURST * objects)
        self._missing = MissingDefinitions(metrics, absent_changed)
        self._wake = asyncio.Event()
        self._may_register = False
        #: The mutating configuration (uid, generation) that was last found in place, and when.
        self._in_place: tuple[str, int] | None = None
        self._in_place_at = self.clock.now()
        #: Whether the API server supports our matchConditions (Kubernetes 1.29 and later).
        self._takes_match_conditions = True
        #: (configuration, entry) → monotonic time at which the leader first found that the entry is not declared.
        self._unknown_since: dict[tuple[str, str], float] = {}
        #: Set once one of our CRDs has been found.
        self.defined = asyncio.Event()
        #: Set once both configurations are in place.
        self.registered = asyncio.Event()
        self.current: CertificateSet | None = None

    def allow_registration(self) -> None:
        """Allow registration once the caches are filled and reviews can be answered."""
        self._may_register = True
        self._wake.set()

    def wake(self) -> None:
        self._wake.set()

    def watches(self, metrics: ReflectorMetrics, secret: tuple[str, str] | None) -> list[Reflector[Any]]:
        """Return one watch per managed object, to be run as tasks. [MGR-37, MGR-123]

        ``secret`` is the namespace and name of the certificate Secret.
        """
        watched: list[tuple[Resource, str, str]] = [
            *((resource, "", name) for resource, name in CONFIGURATIONS),
            *((CUSTOMRESOURCEDEFINITIONS, "", kind.crd_name) for kind in self._kinds),
        ]
        if secret is not None:
            watched.append((SECRETS, *secret))
        return [
            watch_of_one(
                self._client, resource, (namespace, name), lambda _: self.wake(), self._rng, metrics, decode_metadata
            )
            for resource, namespace, name in watched
        ]

    async def run(self) -> None:
        """Sync until canceled. Failures are logged, counted and retried."""
        while True:
            self._wake.clear()
            try:
                await self.sync()
            except (KubeError, CertificateError) as error:
                self._metrics.registration_failures.inc()
                logger.warning("registering webhooks failed: %s", error)
                delay = self._backoff.next()
            else:
                delay = self._calm_seconds() if self.defined.is_set() else MISSING_SECONDS
                self._backoff.reset()
            try:
                await self.clock.wait_for(self._wake.wait(), delay)
            except TimeoutError:
                continue

    def _calm_seconds(self) -> float:
        """Return the seconds until the next sync if nothing changes; fewer if a rotation step is due earlier."""
        step = self._certificates.next_step_in
        return SYNC_SECONDS if step is None else max(0.1, min(step, SYNC_SECONDS))

    async def sync(self) -> None:
        """Check all managed objects once and repair them. Raises KubeError or CertificateError.

        The objects are read before the certificates and written with their resourceVersion. If another replica has
        advanced and published the certificates meanwhile, our write conflicts and cannot remove that replica's CA.
        """
        attempts = Attempts()
        definitions, configurations, certificates = await self._read(attempts)
        complete = self._may_register
        for name, definition in definitions.items():
            complete &= bool(await attempts.result(self._sync_definition(name, definition, attempts)))
        known = 0
        for resource, name, live in configurations if self._may_register else ():
            done = await attempts.result(self._sync_configuration(resource, name, live, attempts))
            complete &= bool(done)
            known += done is not None
        trusted = self._may_register or all(carries(live, certificates.ca_cert) for _, _, live in configurations)
        if trusted and not attempts.may_succeed:
            # Clients must trust the CA before they receive the new certificate, so the bundles are written first.
            self._serve(certificates)
        self._certificates.published(complete and not attempts.failures)
        if len(self._missing) < len(self._kinds):
            self.defined.set()  # CRDs that we have no permission to read count as installed.
        if known == len(CONFIGURATIONS):
            self.registered.set()  # A CRD that cannot be written does not block reviews.
        attempts.raise_first()

    async def use_certificate(self) -> None:
        """Obtain the certificate, and pass it to the listeners if they have none.

        Listeners that outlived the previous process already serve a trusted certificate; ``sync`` keeps it current.
        """
        await self._read(Attempts())

    async def _read(
        self, attempts: Attempts
    ) -> tuple[dict[str, _Definition], Sequence[_Configuration], CertificateSet]:
        definitions = await self._read_definitions(attempts)
        configurations = await self._read_configurations(attempts)
        published = trusted_for_us(definitions.values(), (live for _, _, live in configurations if live is not None))
        certificates = await self._certificates.ensure(published)
        if self._published.read() is None:
            self._serve(certificates)  # Nothing is listening yet; webhooks are registered only once something is.
        return definitions, configurations, certificates

    def _serve(self, certificates: CertificateSet) -> None:
        self.current = certificates
        serve(self._published, self._certificates, certificates, self._metrics)

    # ---- CustomResourceDefinitions

    async def _read_definitions(self, attempts: Attempts) -> dict[str, _Definition]:
        """Return the installed CRDs of kinds with several versions. Missing ones are logged once. [MGR-52]"""
        found: dict[str, _Definition] = {}
        absent: set[str] = set()
        for kind in self._kinds:
            reading = self._client.get(CUSTOMRESOURCEDEFINITIONS, kind.crd_name, decode=_decode_definition)
            try:
                # A kind with one version needs no conversion, so a missing permission to read its CRD is ignored.
                definition = await (attempts if len(kind.versions) > 1 else Attempts()).result(reading)
            except NotFound:
                absent.add(kind.crd_name)
                continue
            if definition is not None and len(kind.versions) > 1:
                found[kind.crd_name] = definition
        self._missing.note(frozenset(absent))
        return found

    async def _sync_definition(self, name: str, definition: _Definition, attempts: Attempts) -> bool:
        """Make the CRD use our conversion webhook. Returns whether it already did."""
        patch = conversion_patch(definition, self._endpoint, self._ca_bundle)
        what = f"CustomResourceDefinition {name}"
        if patch is not None:
            await self._repairs.take()
            try:
                definition = await self._client.patch(CUSTOMRESOURCEDEFINITIONS, name, patch, decode=_decode_definition)
            except Conflict:
                logger.info("%s changed meanwhile, retrying", what)
                return self._overtaken(attempts)
            self._repaired(what)
        await self._release(name, definition)
        return patch is None

    async def _release(self, name: str, definition: _Definition) -> None:
        """Give up ownership of fields that the shipped CRDs set, so that users can apply them. Best effort.
        [MGR-142]"""
        patch = release_patch(definition)
        if patch is None:
            return
        await self._repairs.take()
        try:
            await self._client.patch(CUSTOMRESOURCEDEFINITIONS, name, patch, decode=bytes)
        except KubeError as error:  # such as a conflict or a missing permission: retry with the next sync
            logger.info("CustomResourceDefinition %s: cannot release ownership of its conversion: %s", name, error)

    # ---- webhook configurations

    async def _read_configurations(self, attempts: Attempts) -> list[_Configuration]:
        found: list[_Configuration] = []
        for resource, name in CONFIGURATIONS:
            try:
                live = await attempts.result(self._client.get(resource, name))
            except NotFound:
                found.append((resource, name, None))
                continue
            if live is not None:
                found.append((resource, name, live))
        return found

    async def _sync_configuration(
        self, resource: Resource, name: str, live: dict[str, Any] | None, attempts: Attempts
    ) -> bool:
        """Make the configuration match its declaration. Returns whether it already did."""
        make = mutating_configuration if name == MUTATING_NAME else validating_configuration
        desired = make(self._webhooks, self._endpoint, self._ca_bundle)
        if not self._takes_match_conditions:
            desired = without_match_conditions(desired)
        what = f"{resource.kind} {name}"
        body: dict[str, Any] | None
        try:
            if live is None:
                await self._repairs.take()
                body, stored = desired, await self._client.create(resource, desired)
            else:
                leading = self._leading()
                prune = leading and self._unknown_long_enough(name, unknown_entries(live, desired))
                body = updated(live, desired, leading=leading, prune=prune)
                if body is None:
                    if name == MUTATING_NAME:
                        self._seen_in_place(live["metadata"])
                    return True
                await self._repairs.take()
                stored = await self._client.replace(resource, name, body)
        except Invalid as error:
            if not self._takes_match_conditions or "matchConditions" not in str(error):
                raise
            return self._leave_out_match_conditions(attempts)
        except (AlreadyExists, Conflict):
            return self._overtaken(attempts)
        if match_conditions_dropped(body, stored):
            return self._leave_out_match_conditions(attempts)
        self._repaired(what)
        if live is not None and prune and (removed := unknown_entries(live, desired)):
            # We own the entire configuration with our name. [MGR-140]
            logger.warning("%s: removed entries that are not served here: %s", what, ", ".join(sorted(removed)))
        return False

    def _leave_out_match_conditions(self, attempts: Attempts) -> bool:
        self._takes_match_conditions = False
        logger.warning(
            "the API server does not support matchConditions (Kubernetes 1.29 and later do): webhooks are "
            "registered without them and called for more requests; restart the manager after upgrading Kubernetes"
        )
        return self._overtaken(attempts)

    def _overtaken(self, attempts: Attempts) -> Literal[False]:
        """Request another sync at once."""
        attempts.overtaken = True
        self._wake.set()
        return False

    def _seen_in_place(self, metadata: Mapping[str, Any]) -> None:
        """Record that the configuration is in place. If it was deleted or changed since the last check, some
        requests may have bypassed it. [MGR-123]"""
        seen = (str(metadata.get("uid", "")), int(metadata.get("generation", 0)))
        before, since = self._in_place, self._in_place_at
        self._in_place, self._in_place_at = seen, self.clock.now()
        if before not in (None, seen):
            self._may_have_been_away(since)

    def _unknown_long_enough(self, configuration: str, unknown: frozenset[str]) -> bool:
        now = self.clock.monotonic()
        self._unknown_since = {
            key: since for key, since in self._unknown_since.items() if key[0] != configuration or key[1] in unknown
        }
        since = [self._unknown_since.setdefault((configuration, entry), now) for entry in sorted(unknown)]
        return all(now - first >= KEEP_UNKNOWN_SECONDS for first in since)

    def _repaired(self, what: str) -> None:
        if self.registered.is_set():
            self._metrics.registration_repairs.labels(what).inc()
            logger.warning("restored %s", what)
        else:
            logger.info("%s is in place", what)

    @property
    def _ca_bundle(self) -> str:
        return base64.b64encode(self._certificates.bundle).decode()
