"""Certificates that come from outside (gate EnableExternalCerts): read, checked, never made and never written (MGR-35).

Differs: their CA is written into webhook configurations and CRDs by us too; an injector that does it as well writes
the same.

The layout is cert-manager's, ``ca.crt``, ``tls.crt`` and ``tls.key``: in a Secret, or in a folder where one is mounted.
"""

from __future__ import annotations

import base64
import binascii
from pathlib import Path
from typing import Final

from app.certs.bundle import STEP_SECONDS, UnannouncedSource
from app.certs.issue import CertificateError, CertificateSet, check_pair, expiry
from app.kube.client import Client
from app.kube.clock import Clock
from app.kube.resources import SECRETS

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
