"""Where certificates come from: a Secret of ours, files, or another controller's bundle."""

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
    unexpired,
)
from app.certs.rotation import (
    EXTRA_KEYS,
    Action,
    Observed,
    Rotation,
    blocks,
    carried_out,
    joined,
    judge_for,
    maker_for,
    plan,
)
from app.certs.rotation import read_rotation as read
from app.kube.client import Client, get_or_none
from app.kube.clock import Clock, TokenBucket
from app.kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from app.kube.resources import SECRETS


class CertificateSource(Protocol):
    """Where the serving certificate comes from: a Secret, a folder."""

    @property
    def bundle(self) -> bytes:
        """The CAs clients must trust, PEM."""
        ...

    @property
    def next_step_in(self) -> float | None:
        """Seconds until ``ensure`` may have more to do than reading; None: not known."""
        ...

    async def ensure(self, published: bytes = b"") -> CertificateSet:
        """The certificates to use now; ``published`` is what clients are told to trust, PEM."""
        ...

    def published(self, complete: bool) -> None:
        """Whether the bundle was seen in place everywhere just now."""
        ...


# Bundles without a protocol: what replicas publish when nobody tells them what the others serve.
#
# Where certificates come from a folder or from somebody else, replicas learn of new ones at different times. Each
# makes sure that its own CA is in the published bundle and leaves the others' there; a CA that this replica does not
# need is taken out when it has stood there for as long as a step of a rotation takes. Who still needs it puts it back.

#: How long a step of a rotation is left to reach everybody, unless told otherwise: a CA that this replica does not need
#: is left there for as long.
STEP_SECONDS: Final = 600.0


class SharedBundle:
    """The bundle as one replica would have it."""

    def __init__(self, clock: Clock, step_seconds: float = STEP_SECONDS) -> None:
        self._clock = clock
        self._step = step_seconds
        #: CAs that are not ours, and since when (monotonic) they have been there.
        self._others: dict[bytes, float] = {}
        self.text = b""

    def update(self, own: bytes, published: bytes) -> None:
        """Our CA, and what stands in the bundle that clients are told to trust at present, both PEM."""
        now = self._clock.monotonic()
        mine = blocks(own)
        there = blocks(unexpired(published, self._clock.now()))
        self._others = {block: self._others.get(block, now) for block in there if block not in mine}
        kept = [block for block in there if block in mine or now - self._others[block] < self._step]
        # In the order that is there: replicas that put their own first would never agree.
        self.text = joined(*kept, own)

    @property
    def next_step_in(self) -> float | None:
        """Seconds until a CA may be taken out; None: there is only ours."""
        if not self._others:
            return None
        return max(1.0, min(self._others.values()) + self._step - self._clock.monotonic())


class UnannouncedSource:
    """What all sources have in common where nobody tells us what the other replicas took from there."""

    def __init__(self, clock: Clock, step_seconds: float = STEP_SECONDS) -> None:
        self._clock = clock
        self._bundle = SharedBundle(clock, step_seconds)

    @property
    def bundle(self) -> bytes:
        """The CAs to publish, PEM."""
        return self._bundle.text

    @property
    def next_step_in(self) -> float | None:
        """When a CA nobody needs any more may be taken out."""
        return self._bundle.next_step_in

    def published(self, complete: bool) -> None:
        """Nothing depends on it."""

    def taken(self, found: CertificateSet, published: bytes) -> CertificateSet:
        """The set that is served from now on; its CA goes into the bundle."""
        self._bundle.update(found.ca_cert, published)
        return found


# Certificates in a Secret, shared by all replicas: the first makes them, the others read them (MGR-32 … MGR-34).
#
# What to do is decided in rotation.py; here the Secret is read and written. A replica without the right to write it
# reads it only (``SecretReader``).

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


# Certificates in a folder: what standalone mode makes on the fly, and what somebody may put there instead.
#
# A folder holds ``tls.crt``, ``tls.key`` (readable by us alone) and ``ca-cert.pem`` for clients. The CA's own key is
# thrown away once it has signed: when the certificate ends, both are made again.

CERT_FILE: Final = "tls.crt"
KEY_FILE: Final = "tls.key"
CA_FILE: Final = "ca-cert.pem"


class FileCertificates(UnannouncedSource):
    """The certificates of a folder as a source to be asked again and again."""

    def __init__(self, folder: Path, hosts: tuple[str, ...], clock: Clock, renew_before: timedelta) -> None:
        super().__init__(clock)
        self._folder = folder
        self._hosts = hosts
        self._renew_before = renew_before

    async def ensure(self, published: bytes = b"") -> CertificateSet:
        """The certificates to use now. Raises CertificateError."""
        found = ensure_files(self._folder, self._hosts, self._clock.now(), self._renew_before)
        return self.taken(found, published)


def ensure_files(folder: Path, hosts: tuple[str, ...], now: datetime, renew_before: timedelta) -> CertificateSet:
    """The certificates of a folder, made if there are none, renewed if they are ours and run out.

    Raises CertificateError naming the file: a pair that is half there or does not belong together was put there by
    somebody, and is not overwritten.
    """
    cert_path, key_path = folder / CERT_FILE, folder / KEY_FILE
    cert, key, ca_cert = (_read(folder / name) for name in (CERT_FILE, KEY_FILE, CA_FILE))
    if cert is None and key is None:
        return _make(folder, hosts, now)
    if cert is None or key is None:
        there, missing = (cert_path, key_path) if key is None else (key_path, cert_path)
        raise CertificateError(
            f"{missing}: is missing, but {there} exists: put it beside, or remove {there} to have a new pair made"
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
        raise CertificateError(f"{folder}: cannot be made: {error.strerror}") from None
    # The key first: a reader that finds the new certificate finds its key too.
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


# Certificates that come from outside (gate EnableExternalCerts): read, checked, never made and never written (MGR-35).
#
# Differs: their CA is written into webhook configurations and CRDs by us too; an injector that does it as well writes
# the same.
#
# The layout is cert-manager's, ``ca.crt``, ``tls.crt`` and ``tls.key``: in a Secret, or in a folder where one is
# mounted.

_KEYS: Final = ("ca.crt", "tls.crt", "tls.key")
#: What the CA is called in a folder: by cert-manager, and by us.
_CA_FILES: Final = ("ca.crt", "ca-cert.pem")


class ExternalSecret(UnannouncedSource):
    """A Secret that somebody else keeps, such as cert-manager."""

    def __init__(
        self, client: Client, clock: Clock, *, namespace: str, name: str, step_seconds: float = STEP_SECONDS
    ) -> None:
        super().__init__(clock, step_seconds)
        self._client = client
        self._namespace = namespace
        self._name = name

    async def ensure(self, published: bytes = b"") -> CertificateSet:
        """The certificates to serve now. Raises KubeError, and CertificateError naming the key at fault."""
        live = await self._client.get(SECRETS, self._name, self._namespace)
        where = f"Secret {self._namespace}/{self._name}"
        data = live.get("data") or {}
        try:
            contents = [base64.b64decode(data.get(name, ""), validate=True) for name in _KEYS]
        except (binascii.Error, ValueError) as error:
            raise CertificateError(f"{where}: is not base64: {error}") from None
        return self.taken(checked(where, self._clock, *contents), published)


class ExternalFolder(UnannouncedSource):
    """A folder where somebody else's Secret is mounted."""

    def __init__(self, folder: Path, clock: Clock, step_seconds: float = STEP_SECONDS) -> None:
        super().__init__(clock, step_seconds)
        self._folder = folder

    async def ensure(self, published: bytes = b"") -> CertificateSet:
        """The certificates to serve now. Raises CertificateError naming the file at fault."""
        try:
            # A mounted Secret is swapped as a whole, by one symbolic link: resolve it once, and all three fit.
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
    """A set that can be served. Raises CertificateError."""
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
        raise CertificateError(
            f"{where}: tls.crt: expired at {ends:%Y-%m-%d %H:%M} UTC: whoever keeps it must renew it"
        )
    return CertificateSet(ca_cert=ca_cert, cert=cert, key=key)
