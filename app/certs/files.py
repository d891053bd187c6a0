"""Certificates in a folder: what standalone mode makes on the fly, and what somebody may put there instead.

A folder holds ``tls.crt``, ``tls.key`` (readable by us alone) and ``ca-cert.pem`` for clients. The CA's own key is
thrown away once it has signed: when the certificate ends, both are made again.
"""

from __future__ import annotations

import os
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from app.certs.bundle import UnannouncedSource
from app.certs.issue import CA_COMMON_NAME, CertificateError, CertificateSet, check_pair, expiry, fault_of, issue
from app.kube.clock import Clock

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
