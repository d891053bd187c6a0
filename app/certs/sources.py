"""Certificate sources: a Secret of our own, files, or another controller's Secret."""

from __future__ import annotations

import base64
import binascii
import logging
import os
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, Protocol

from app.certs.issue import (
    CA_COMMON_NAME,
    SECRET_KEYS,
    CertificateError,
    CertificateSet,
    check_pair,
    expiry,
    fault_of,
    issue,
)
from app.certs.rotation import (
    EXTRA_KEYS,
    Action,
    Observed,
    Rotation,
    StepTimer,
    blocks,
    carried_out,
    joined,
    judge_for,
    plan,
    unexpired,
)
from app.certs.rotation import read_rotation as read
from app.kube.client import Client, get_or_none
from app.kube.clock import Clock, TokenBucket
from app.kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from app.kube.resources import SECRETS


class CertificateSource(Protocol):
    """Source of the serving certificate, such as a Secret or a folder."""

    @property
    def bundle(self) -> bytes:
        """The CAs clients must trust, in PEM."""
        ...

    @property
    def next_step_in(self) -> float | None:
        """Return the seconds until ``ensure`` can take the next step, or None if no step is pending."""
        ...

    async def ensure(self, published: bytes = b"") -> CertificateSet:
        """Return the certificates to use now; ``published`` is the bundle that clients currently trust, in PEM."""
        ...

    def published(self, complete: bool) -> None:
        """Record whether the last check found the bundle in every webhook configuration and CRD."""
        ...


# Shared bundles, for sources through which replicas cannot coordinate. Replicas read new certificates from a folder or
# an external Secret at different times. Each replica adds its own CA to the published bundle and keeps the other CAs.
# After one rotation step, it removes any CA that it does not need; a replica that still needs the CA adds it back.

#: Default duration of a rotation step.
STEP_SECONDS: Final = 600.0


class UnannouncedSource:
    """Base class for such sources: each replica adds its own CA to the bundle that it publishes."""

    def __init__(self, clock: Clock, step_seconds: float = STEP_SECONDS) -> None:
        self._clock = clock
        self._step = step_seconds
        #: CAs of other replicas → monotonic time when each was first seen.
        self._others: dict[bytes, float] = {}
        #: The CAs to publish, in PEM.
        self.bundle = b""

    @property
    def next_step_in(self) -> float | None:
        """Return the seconds until an unused CA may be removed, or None if the bundle contains only ours."""
        if not self._others:
            return None
        return max(1.0, min(self._others.values()) + self._step - self._clock.monotonic())

    def published(self, complete: bool) -> None:
        """Do nothing: these sources have no steps to wait for."""

    def taken(self, found: CertificateSet, published: bytes) -> CertificateSet:
        """Return ``found`` after adding its CA to the bundle. ``published`` is the currently published bundle."""
        now = self._clock.monotonic()
        mine = blocks(found.ca_cert)
        there = unexpired(published, self._clock.now())
        self._others = {block: self._others.get(block, now) for block in there if block not in mine}
        kept = [block for block in there if block in mine or now - self._others[block] < self._step]
        # Keep the published order: replicas that put their own CA first would keep overwriting each other.
        self.bundle = joined(*kept, found.ca_cert)
        return found


# Certificates in a Secret shared by all replicas: the first replica issues them, and the others read them. rotation.py
# decides what to do; these classes read and write the Secret. A replica without write access uses ``SecretReader``.
# [MGR-32 … MGR-34]

logger = logging.getLogger(__name__)

#: Write conflicts to tolerate before reporting an error.
_ATTEMPTS: Final = 5
#: Limits of Secret writes (burst, and rate per second), in case two writers keep overwriting each other.
_WRITES_BURST: Final = 10
_WRITES_PER_SECOND: Final = 0.1
#: Seconds a reader waits for the controllers to publish a CA that was not announced in advance.
_PUBLISHING_SECONDS: Final = 10.0


class SecretCertificates:
    """Serving certificate stored in a Secret."""

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
        self._writes = TokenBucket(clock, qps=_WRITES_PER_SECOND, burst=_WRITES_BURST)
        self._held: Rotation | None = None
        self._step = StepTimer(step_seconds)

    @property
    def bundle(self) -> bytes:
        """The CAs to publish, in PEM."""
        return self._held.bundle if self._held is not None else b""

    def published(self, complete: bool) -> None:
        """Record whether the last check found the bundle in every webhook configuration and CRD."""
        self._step.record(self._held if complete else None, self._clock.monotonic())

    @property
    def next_step_in(self) -> float | None:
        """Return the seconds until the next rotation step may run, or None if no rotation is in progress."""
        held = self._held
        if held is None or (held.next is None and not held.previous_ca):
            return None
        return self._step.seconds_left(held, self._clock.monotonic())

    async def ensure(self, published: bytes = b"") -> CertificateSet:
        """Return the certificates to serve now, after issuing or renewing them or advancing a rotation where needed.

        ``published`` is the bundle that clients currently trust, in PEM. If the Secret is unusable, these CAs stay
        trusted, because other replicas may serve certificates signed by them.

        Raises KubeError if the API server rejects a request.
        """
        for _ in range(_ATTEMPTS):
            live: Mapping[str, Any] | None = await get_or_none(self._client, SECRETS, self._name, self._namespace)
            try:
                self._held = await self._one_step(live, published)
            except (AlreadyExists, Conflict):
                continue  # Another replica wrote first: read its result.
            return self._held.current
        raise KubeError(
            f"Secret {self._namespace}/{self._name}: {_ATTEMPTS} write conflicts in a row; "
            "is another program writing to it?"
        )

    async def _one_step(self, live: Mapping[str, Any] | None, published: bytes) -> Rotation:
        now = self._clock.now()
        observed = self._observed(live, joined(*unexpired(published, now)))
        step = plan(observed, judge_for(self._hosts, now, self._renew_before))
        if step.action is Action.KEEP and observed.stored is not None:
            return observed.stored
        if not self._writes.try_take():
            if self._held is None:
                raise KubeError(f"Secret {self._namespace}/{self._name}: our writes are being reverted: {step.why}")
            return self._held
        # A signing key is used once and never stored, so the next certificate comes with its own CA. [MGR-147]
        made = carried_out(
            step.action, observed, lambda reuse: issue(self._hosts, now, reuse_ca_of=reuse)
        ).without_ca_keys
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
        settled = not self._step.seconds_left(stored, self._clock.monotonic())
        return Observed(live is not None, stored, self._held, settled, fault, published)

    async def _write(self, live: Mapping[str, Any] | None, made: Rotation) -> None:
        data = made.secret_data()
        if live is not None:
            # Write with the resourceVersion that was read, so that only one of two concurrent writes succeeds.
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
    """Serving certificate in a Secret that the controllers write."""

    def __init__(self, client: Client, clock: Clock, *, namespace: str, name: str, hosts: tuple[str, ...]) -> None:
        self._client = client
        self._clock = clock
        self._namespace = namespace
        self._name = name
        self._hosts = hosts
        self._held: Rotation | None = None
        #: The stored set if its CA was never announced, and the monotonic time from which it may be served.
        self._waiting: tuple[Rotation, float] | None = None

    @property
    def bundle(self) -> bytes:
        """The CAs that clients trust, in PEM."""
        return self._held.bundle if self._held is not None else b""

    @property
    def next_step_in(self) -> float | None:
        """Return the seconds until a pending set may be served."""
        if self._waiting is None:
            return None
        return max(0.1, self._waiting[1] - self._clock.monotonic())

    def published(self, complete: bool) -> None:
        """Do nothing: a reader does not publish bundles."""

    async def ensure(self, published: bytes = b"") -> CertificateSet:  # noqa: ARG002
        """Return the set to serve now. While the Secret is missing or damaged, the last valid set stays in use.

        Raises KubeError if the Secret cannot be read, and CertificateError if it contains no usable set.
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
                    f"Secret {self._namespace}/{self._name}: {fault}; it is written by the controllers "
                    "(`pykruise manager --webhooks=false`): check that they are running"
                )
            logger.warning(
                "Secret %s/%s: %s; the previous certificate stays in use", self._namespace, self._name, fault
            )
            self._waiting = None
            return self._held.current
        if self._held is None or self._may_replace(self._held, stored):
            self._held, self._waiting = stored, None
        return self._held.current

    def _may_replace(self, held: Rotation, stored: Rotation) -> bool:
        """Return whether the API server has had time to trust the CA: it was announced, or has been published for some
        seconds."""
        if set(blocks(stored.current.ca_cert)) <= set(blocks(held.bundle)):
            return True
        now = self._clock.monotonic()
        if self._waiting is None or self._waiting[0] != stored:
            self._waiting = (stored, now + _PUBLISHING_SECONDS)
        return now >= self._waiting[1]


# Certificates in a folder, created on demand in standalone mode or provided by the user. The folder contains
# ``tls.crt``, ``tls.key`` (mode 0600) and ``ca-cert.pem`` for clients. The CA key is discarded after signing, so both
# certificates are replaced together on expiry.

CERT_FILE: Final = "tls.crt"
KEY_FILE: Final = "tls.key"
CA_FILE: Final = "ca-cert.pem"


class FileCertificates(UnannouncedSource):
    """Serving certificate stored in a folder."""

    def __init__(self, folder: Path, hosts: tuple[str, ...], clock: Clock, renew_before: timedelta) -> None:
        super().__init__(clock)
        self._folder = folder
        self._hosts = hosts
        self._renew_before = renew_before

    async def ensure(self, published: bytes = b"") -> CertificateSet:
        """Return the certificates to use now. Raises CertificateError."""
        found = ensure_files(self._folder, self._hosts, self._clock.now(), self._renew_before)
        return self.taken(found, published)


def ensure_files(folder: Path, hosts: tuple[str, ...], now: datetime, renew_before: timedelta) -> CertificateSet:
    """Return the certificates in a folder. Missing ones are created, and ours are renewed before they expire.

    Raises CertificateError naming the file for an incomplete or mismatched pair: the user provided it, so it is not
    overwritten.
    """
    cert_path, key_path = folder / CERT_FILE, folder / KEY_FILE
    cert, key, ca_cert = (_read(folder / name) for name in (CERT_FILE, KEY_FILE, CA_FILE))
    if cert is None and key is None:
        return _make(folder, hosts, now)
    if cert is None or key is None:
        there, missing = (cert_path, key_path) if key is None else (key_path, cert_path)
        raise CertificateError(
            f"{missing}: is missing, but {there} exists: add it, or remove {there} to have a new pair created"
        )
    try:
        certificate = check_pair(cert, key)
    except CertificateError as error:
        raise CertificateError(f"{cert_path} and {key_path}: {error}") from None
    found = CertificateSet(ca_cert=ca_cert or cert, cert=cert, key=key)
    ours = any(CA_COMMON_NAME in name.value for name in certificate.issuer if isinstance(name.value, str))
    if ours and fault_of(found, hosts, now, renew_before):
        return _make(folder, hosts, now)
    if expiry(cert) <= now:
        raise CertificateError(f"{cert_path}: expired at {expiry(cert):%Y-%m-%d %H:%M} UTC: replace it and {key_path}")
    return found


def _make(folder: Path, hosts: tuple[str, ...], now: datetime) -> CertificateSet:
    made = issue(hosts, now)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CertificateError(f"{folder}: cannot be created: {error.strerror}") from None
    # Write the key first, so that a reader that finds the new certificate also finds its key.
    _write(folder / KEY_FILE, made.key, 0o600)
    _write(folder / CERT_FILE, made.cert, 0o644)
    _write(folder / CA_FILE, made.ca_cert, 0o644)
    return CertificateSet(ca_cert=made.ca_cert, cert=made.cert, key=made.key)


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CertificateError(f"{path}: cannot be read: {error.strerror}") from None


def _write(path: Path, content: bytes, mode: int) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        with os.fdopen(descriptor, "wb") as stream:
            os.fchmod(descriptor, mode)
            stream.write(content)
        temporary.replace(path)
    except OSError as error:
        raise CertificateError(f"{path}: cannot be written: {error.strerror}") from None


# Externally managed certificates (gate EnableExternalCerts): read and checked, never issued or written. The layout is
# cert-manager's (``ca.crt``, ``tls.crt``, ``tls.key``), in a Secret or in a folder where it is mounted. [MGR-35]
# Unlike OpenKruise, we also write the CA into webhook configurations and CRDs; a CA injector writes the same value.

_KEYS: Final = ("ca.crt", "tls.crt", "tls.key")
#: File names of the CA: cert-manager's and ours.
_CA_FILES: Final = ("ca.crt", "ca-cert.pem")


class ExternalSecret(UnannouncedSource):
    """Secret managed by another controller, such as cert-manager."""

    def __init__(
        self, client: Client, clock: Clock, *, namespace: str, name: str, step_seconds: float = STEP_SECONDS
    ) -> None:
        super().__init__(clock, step_seconds)
        self._client = client
        self._namespace = namespace
        self._name = name

    async def ensure(self, published: bytes = b"") -> CertificateSet:
        """Return the certificates to serve now. Raises KubeError, or CertificateError naming the invalid key."""
        live = await self._client.get(SECRETS, self._name, self._namespace)
        where = f"Secret {self._namespace}/{self._name}"
        data = live.get("data") or {}
        try:
            contents = [base64.b64decode(data.get(name, ""), validate=True) for name in _KEYS]
        except (binascii.Error, ValueError) as error:
            raise CertificateError(f"{where}: is not base64: {error}") from None
        return self.taken(checked(where, self._clock, *contents), published)


class ExternalFolder(UnannouncedSource):
    """Folder where an externally managed Secret is mounted."""

    def __init__(self, folder: Path, clock: Clock, step_seconds: float = STEP_SECONDS) -> None:
        super().__init__(clock, step_seconds)
        self._folder = folder

    async def ensure(self, published: bytes = b"") -> CertificateSet:
        """Return the certificates to serve now. Raises CertificateError naming the invalid file."""
        try:
            # The kubelet replaces a mounted Secret atomically through one symbolic link. Resolving that link once
            # yields files that match.
            folder = (self._folder / "..data").resolve(strict=True)
        except OSError:
            folder = self._folder
        ca_file = next((name for name in _CA_FILES if (folder / name).exists()), _CA_FILES[0])
        contents = []
        for name in (ca_file, *_KEYS[1:]):
            try:
                contents.append((folder / name).read_bytes())
            except OSError as error:
                raise CertificateError(f"{self._folder / name}: cannot be read: {error.strerror}") from None
        return self.taken(checked(str(self._folder), self._clock, *contents), published)


def checked(where: str, clock: Clock, ca_cert: bytes, cert: bytes, key: bytes) -> CertificateSet:
    """Return the set if it can be served. Raises CertificateError otherwise."""
    for name, content in zip(_KEYS, (ca_cert, cert, key), strict=True):
        if not content:
            raise CertificateError(f"{where}: {name}: is missing")
    try:
        check_pair(cert, key)
        ends = expiry(cert)
        expiry(ca_cert)
    except CertificateError as error:
        raise CertificateError(f"{where}: {error}") from None
    if ends <= clock.now():
        raise CertificateError(f"{where}: tls.crt: expired at {ends:%Y-%m-%d %H:%M} UTC; its owner must renew it")
    return CertificateSet(ca_cert=ca_cert, cert=cert, key=key)
