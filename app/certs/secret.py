"""Certificates in a Secret, shared by all replicas: the first makes them, the others read them (MGR-32 … MGR-34).

What to do is decided in rotation.py; here the Secret is read and written. A replica without the right to write it reads
it only (``SecretReader``).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from app.certs.bundle import STEP_SECONDS
from app.certs.issue import SECRET_KEYS, CertificateError, CertificateSet, unexpired
from app.certs.rotation import EXTRA_KEYS, Action, Observed, Rotation, blocks, carried_out, judge_for, maker_for, plan
from app.certs.rotation import read_rotation as read
from app.kube.client import Client
from app.kube.clock import Clock
from app.kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from app.kube.lookup import get_or_none
from app.kube.ratelimit import TokenBucket
from app.kube.resources import SECRETS

logger = logging.getLogger(__name__)

#: How often another replica may be faster than us before something else must be wrong.
_ATTEMPTS: Final = 5
#: Writes of the Secret at once, and per second after that: somebody who undoes them all is not fought for ever.
_WRITES_BURST: Final = 10
_WRITES_PER_SECOND: Final = 0.1
#: Seconds a reader leaves the controllers to publish a CA that was not announced before its certificate.
_PUBLISHING_SECONDS: Final = 10.0


class SecretCertificates:
    """The serving certificate kept in one Secret."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        *,
        namespace: str,
        name: str,
        hosts: tuple[str, ...],
        renew_before: timedelta,
        step_seconds: float = STEP_SECONDS,
    ) -> None:
        self._client = client
        self._clock = clock
        self._namespace = namespace
        self._name = name
        self._hosts = hosts
        self._renew_before = renew_before
        self._step_seconds = step_seconds
        self._writes = TokenBucket(clock, qps=_WRITES_PER_SECOND, burst=_WRITES_BURST)
        self._held: Rotation | None = None
        #: The rotation whose bundle was seen in place everywhere, and since when (monotonic).
        self._in_place: Rotation | None = None
        self._in_place_since = 0.0

    @property
    def bundle(self) -> bytes:
        """The CAs to publish, PEM."""
        return self._held.bundle if self._held is not None else b""

    def published(self, complete: bool) -> None:
        """Told after each look at all places that carry the bundle, whether it stood in all of them."""
        if not complete:
            self._in_place = None
        elif self._in_place != self._held:
            self._in_place, self._in_place_since = self._held, self._clock.monotonic()

    @property
    def next_step_in(self) -> float | None:
        """Seconds until the next step of a rotation may be due; None: none is going on."""
        held = self._held
        if held is None or (held.next is None and not held.previous_ca):
            return None
        if self._in_place != held:
            return self._step_seconds
        return max(0.0, self._in_place_since + self._step_seconds - self._clock.monotonic())

    async def ensure(self, published: bytes = b"") -> CertificateSet:
        """The certificates to serve now, made, renewed or brought one step further where they need it.

        ``published`` are the CAs that clients are told to trust at present, PEM: where nothing of the Secret can be
        used, they stay trusted, for replicas we do not know of may serve what they have signed.

        Raises KubeError if the API server does not let us.
        """
        for _ in range(_ATTEMPTS):
            live: Mapping[str, Any] | None = await get_or_none(self._client, SECRETS, self._name, self._namespace)
            try:
                self._held = await self._one_step(live, published)
            except (AlreadyExists, Conflict):
                continue  # another replica was faster: take what it made
            return self._held.current
        raise KubeError(
            f"Secret {self._namespace}/{self._name}: changed by somebody else {_ATTEMPTS} times in a row; "
            "is another program writing it?"
        )

    async def _one_step(self, live: Mapping[str, Any] | None, published: bytes) -> Rotation:
        now = self._clock.now()
        observed = self._observed(live, unexpired(published, now))
        step = plan(observed, judge_for(self._hosts, now, self._renew_before))
        if step.action is Action.KEEP and observed.stored is not None:
            return observed.stored
        if not self._writes.try_take():
            if self._held is None:
                raise KubeError(f"Secret {self._namespace}/{self._name}: somebody undoes what we write: {step.why}")
            return self._held
        # MGR-147: a key that signs is used once and kept nowhere. The next certificate comes with a CA of its own.
        made = carried_out(step.action, observed, maker_for(self._hosts, now)).without_ca_keys
        await self._write(live, made)
        level = logging.INFO if live is None and observed.held is None else logging.WARNING
        why = f" ({step.why})" if step.why else ""
        logger.log(level, "Secret %s/%s: %s%s", self._namespace, self._name, step.action, why)
        return made

    def _observed(self, live: Mapping[str, Any] | None, published: bytes) -> Observed:
        stored: Rotation | None = None
        fault = ""
        if live is not None:
            try:
                stored = read(live.get("data"))
            except CertificateError as error:
                fault = str(error)
        settled = (
            stored is not None
            and stored == self._in_place
            and self._clock.monotonic() >= self._in_place_since + self._step_seconds
        )
        return Observed(live is not None, stored, self._held, settled, fault, published)

    async def _write(self, live: Mapping[str, Any] | None, made: Rotation) -> None:
        data = made.secret_data()
        if live is not None:
            # The resourceVersion of what was read goes along: of two replicas, one wins.
            foreign = {
                key: value
                for key, value in (live.get("data") or {}).items()
                if key not in EXTRA_KEYS | SECRET_KEYS.keys()
            }
            body = {**live, "data": {**foreign, **data}}
            await self._client.replace(SECRETS, self._name, body, self._namespace)
            return
        body = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": self._name, "namespace": self._namespace},
            "type": "Opaque",
            "data": data,
        }
        try:
            await self._client.create(SECRETS, body, self._namespace)
        except NotFound as error:
            raise KubeError(
                f"namespace {self._namespace} does not exist: kubectl create namespace {self._namespace}, "
                f"or kubectl apply -f deploy/rbac.yaml"
            ) from error


class SecretReader:
    """The serving certificate in a Secret that the controllers write."""

    def __init__(self, client: Client, clock: Clock, *, namespace: str, name: str, hosts: tuple[str, ...]) -> None:
        self._client = client
        self._clock = clock
        self._namespace = namespace
        self._name = name
        self._hosts = hosts
        self._held: Rotation | None = None
        #: A set under a CA that was never announced, and when (monotonic) it may be served.
        self._waiting: tuple[Rotation, float] | None = None

    @property
    def bundle(self) -> bytes:
        """The CAs that clients trust, PEM."""
        return self._held.bundle if self._held is not None else b""

    @property
    def next_step_in(self) -> float | None:
        """Seconds until a set that waits may be served."""
        if self._waiting is None:
            return None
        return max(0.1, self._waiting[1] - self._clock.monotonic())

    def published(self, complete: bool) -> None:
        """Nothing depends on it."""

    async def ensure(self, published: bytes = b"") -> CertificateSet:  # noqa: ARG002
        """Return the set to serve now. A sound set is served on while the Secret is missing or damaged.

        Raises KubeError if the Secret cannot be read, CertificateError if it holds nothing that can be served.
        """
        live: Mapping[str, Any] | None = await get_or_none(self._client, SECRETS, self._name, self._namespace)
        try:
            stored = read(live.get("data") if live is not None else None)
            fault = judge_for(self._hosts, self._clock.now(), timedelta())(stored.current).fault
        except CertificateError as error:
            stored, fault = None, str(error)
        if stored is None or fault:
            if self._held is None:
                raise CertificateError(
                    f"Secret {self._namespace}/{self._name}: {fault}; it is written by the controllers, "
                    "`pykruise manager --webhooks=false`: see whether they run"
                )
            logger.warning("Secret %s/%s: %s; the former certificate is served", self._namespace, self._name, fault)
            return self._held.current
        if self._may_serve(stored):
            self._held, self._waiting = stored, None
        return self._held.current if self._held is not None else stored.current

    def _may_serve(self, stored: Rotation) -> bool:
        """Whether the API server had time to trust the CA: announced before, or seen some seconds ago."""
        held = self._held
        if held is None or set(blocks(stored.current.ca_cert)) <= set(blocks(held.bundle)):
            return True
        now = self._clock.monotonic()
        if self._waiting is None or self._waiting[0] != stored:
            self._waiting = (stored, now + _PUBLISHING_SECONDS)
        return now >= self._waiting[1]
