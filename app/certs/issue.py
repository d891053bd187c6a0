"""Issue and check certificates: a CA of our own and the serving certificate it signs.

Everything except key generation is pure. Names, lifetimes and Secret keys match OpenKruise's, so that either can use a
Secret the other created. [MGR-30 … MGR-34]
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

#: We issue ECDSA keys. A reused OpenKruise CA has an RSA key.
_Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey

CA_COMMON_NAME: Final = "webhook-cert-ca"
LIFETIME: Final = timedelta(days=3650)
#: A CA that is valid for at least another year is reused. [MGR-34]
CA_REUSE: Final = timedelta(days=365)
#: Certificates are backdated so that an API server whose clock is behind trusts a new one.
BACKDATED: Final = timedelta(hours=1)

#: Secret key → field. The certificate and its key each have two names, for older and newer readers. [MGR-32]
SECRET_KEYS: Final = {
    "ca-key.pem": "ca_key",
    "ca-cert.pem": "ca_cert",
    "key.pem": "key",
    "tls.key": "key",
    "cert.pem": "cert",
    "tls.crt": "cert",
}


class CertificateError(ValueError):
    """A certificate or key cannot be used. The message names the certificate or key and says why."""


@dataclass(frozen=True, slots=True)
class CertificateSet:
    """A CA and a serving certificate with their keys, all in PEM. ``ca_key`` is empty if the CA cannot sign again."""

    ca_cert: bytes
    cert: bytes
    key: bytes
    ca_key: bytes = b""

    def secret_data(self) -> dict[str, str]:
        """Return the ``data`` of the Secret, base64-encoded. [MGR-32]"""
        kept = {name: getattr(self, field) for name, field in SECRET_KEYS.items()}
        return {name: base64.b64encode(content).decode() for name, content in kept.items() if content}

    @property
    def without_ca_key(self) -> CertificateSet:
        """Return the set without the CA key, which a server does not need."""
        return replace(self, ca_key=b"")

    @property
    def ca_bundle(self) -> str:
        """The CA, encoded as in the caBundle of webhook configurations and CRDs."""
        return base64.b64encode(self.ca_cert).decode()


def from_secret_data(data: Mapping[str, str] | None) -> CertificateSet:
    """Read the set from a Secret's ``data``. Raises CertificateError naming a key that is missing or not base64."""
    fields: dict[str, bytes] = {}
    for name, field in SECRET_KEYS.items():
        encoded = (data or {}).get(name)
        if not encoded:
            continue
        try:
            fields.setdefault(field, base64.b64decode(encoded, validate=True))
        except (binascii.Error, ValueError) as error:
            raise CertificateError(f"{name}: is not base64: {error}") from None
    for name, field in (("ca-cert.pem", "ca_cert"), ("tls.crt", "cert"), ("tls.key", "key")):
        if field not in fields:
            raise CertificateError(f"{name}: is missing")
    return CertificateSet(**fields)


def issue(hosts: tuple[str, ...], now: datetime, reuse_ca_of: CertificateSet | None = None) -> CertificateSet:
    """Issue a new serving certificate for hosts (DNS names or IP addresses; the first is the subject).

    It is signed by the CA of ``reuse_ca_of`` if that is usable and valid for another year, otherwise by a new CA.
    [MGR-34]
    """
    ca_key, ca_cert = _reusable_ca(reuse_ca_of, now) or _new_ca(now)
    key = _new_key()
    certificate = (
        x509.CertificateBuilder()
        .subject_name(_common_name(hosts[0]))
        .issuer_name(ca_cert.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(ca_cert.not_valid_before_utc)
        .not_valid_after(now + LIFETIME)
        .add_extension(x509.SubjectAlternativeName(_alternative_names(hosts)), critical=False)
        .add_extension(_key_usage(key_cert_sign=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    return CertificateSet(
        ca_cert=ca_cert.public_bytes(Encoding.PEM),
        cert=certificate.public_bytes(Encoding.PEM),
        key=_private_pem(key),
        ca_key=_private_pem(ca_key),
    )


class Condition(NamedTuple):
    """Condition of a certificate set."""

    #: Why the set cannot be served, or an empty string.
    fault: str
    #: Whether it expires so soon that it must be renewed.
    ending: bool = False
    #: Whether its CA may sign another certificate. [MGR-34]
    can_sign: bool = False


def fault_of(certificates: CertificateSet, hosts: tuple[str, ...], now: datetime, renew_before: timedelta) -> str:
    """Return why a set must be replaced, or an empty string if it is sound. [MGR-33]"""
    if fault := condition_of(certificates, hosts, now, renew_before).fault:
        return fault
    for name, held in _both(certificates):
        if held.not_valid_before_utc > now:
            return f"{name}: is not valid before {held.not_valid_before_utc:%Y-%m-%d %H:%M} UTC"
        if held.not_valid_after_utc <= now + renew_before:
            return f"{name}: expires at {held.not_valid_after_utc:%Y-%m-%d %H:%M} UTC"
    return ""


def condition_of(
    certificates: CertificateSet, hosts: tuple[str, ...], now: datetime, renew_before: timedelta
) -> Condition:
    """Return the condition of a set; ``ending`` is true if it expires within ``renew_before``.

    A certificate whose validity starts in the future is accepted: either our clock is behind or the issuer's was ahead,
    and API servers may already accept it.
    """
    try:
        certificate = check_pair(certificates.cert, certificates.key)
        authority = _load_certificate(certificates.ca_cert, "CA certificate")
    except CertificateError as error:
        return Condition(str(error))
    # A CA that expires within renew_before must not sign: its certificates would be renewed repeatedly.
    outlives = authority.not_valid_after_utc > now + renew_before
    can_sign = outlives and _reusable_ca(certificates, now) is not None
    if not _is_signed_by(certificates.cert, certificates.ca_cert):
        signer = authority.subject.rfc4514_string()
        return Condition(f"serving certificate: was not signed by the CA {signer}", ending=True, can_sign=can_sign)
    missing = [host for host in hosts if not _fits(certificate, host)]
    if missing:
        return Condition(f"serving certificate: is not valid for {', '.join(missing)}", ending=True, can_sign=can_sign)
    ends = min(held.not_valid_after_utc for _, held in _both(certificates))
    fault = "" if ends > now else f"serving certificate: expired at {ends:%Y-%m-%d %H:%M} UTC"
    return Condition(fault, ends <= now + renew_before, can_sign)


def _both(certificates: CertificateSet) -> tuple[tuple[str, x509.Certificate], tuple[str, x509.Certificate]]:
    return (
        ("serving certificate", _load_certificate(certificates.cert, "serving certificate")),
        ("CA certificate", _load_certificate(certificates.ca_cert, "CA certificate")),
    )


def check_pair(cert: bytes, key: bytes) -> x509.Certificate:
    """Return the certificate if the private key matches it. Raises CertificateError otherwise."""
    certificate = _load_certificate(cert, "serving certificate")
    _load_key(key, "private key")
    if not _belongs_to(key, cert):
        raise CertificateError("private key: does not belong to the serving certificate")
    return certificate


def expiry(cert: bytes) -> datetime:
    """Return when a PEM certificate expires. Raises CertificateError."""
    return _load_certificate(cert, "certificate").not_valid_after_utc


def _reusable_ca(certificates: CertificateSet | None, now: datetime) -> tuple[_Key, x509.Certificate] | None:
    if certificates is None:
        return None
    try:
        certificate = _load_certificate(certificates.ca_cert, "CA certificate")
        key = _load_key(certificates.ca_key, "CA key")
    except CertificateError:
        return None
    if not isinstance(key, _Key):
        return None
    sound = (
        _belongs_to(certificates.ca_key, certificates.ca_cert)
        and certificate.not_valid_before_utc <= now
        and certificate.not_valid_after_utc >= now + CA_REUSE
        and _is_ca(certificate)
    )
    return (key, certificate) if sound else None


def _new_ca(now: datetime) -> tuple[_Key, x509.Certificate]:
    key = _new_key()
    name = _common_name(CA_COMMON_NAME)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + LIFETIME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(_key_usage(key_cert_sign=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return key, certificate


def _new_key() -> ec.EllipticCurvePrivateKey:
    """Return a P-256 key. A handshake with it takes the server a twentieth of the time of one with RSA 2048."""
    return ec.generate_private_key(ec.SECP256R1())


def _common_name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])  # at most 64 characters (X.509)


def _alternative_names(hosts: tuple[str, ...]) -> list[x509.GeneralName]:
    # localhost is always included, for our own readiness check. [MGR-30]
    names: list[x509.GeneralName] = [x509.DNSName("localhost")]
    for host in hosts:
        address = _address(host)
        name = x509.IPAddress(address) if address else x509.DNSName(host)
        if name not in names:
            names.append(name)
    return names


def _fits(certificate: x509.Certificate, host: str) -> bool:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return False
    address = _address(host)
    if address is not None:
        return address in names.get_values_for_type(x509.IPAddress)
    wildcard = "*." + host.partition(".")[2]
    return any(name.lower() in (host.lower(), wildcard.lower()) for name in names.get_values_for_type(x509.DNSName))


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _is_ca(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return False


def _load_certificate(pem: bytes, what: str) -> x509.Certificate:
    try:
        return _read_certificate(pem)
    except ValueError:
        raise CertificateError(f"{what}: is not a PEM certificate") from None


def _load_key(pem: bytes, what: str) -> PrivateKeyTypes:
    try:
        return _checked_key(pem)
    except TypeError:
        raise CertificateError(f"{what}: is encrypted; provide it without a passphrase") from None
    except (ValueError, UnsupportedAlgorithm):
        raise CertificateError(f"{what}: is not a PEM private key") from None


@lru_cache(maxsize=16)
def _read_certificate(pem: bytes) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pem)


@lru_cache(maxsize=8)
def _checked_key(pem: bytes) -> PrivateKeyTypes:
    """Read a private key. The result is cached, because loading an RSA key checks its primes, which takes 50 ms."""
    return load_pem_private_key(pem, password=None)


@lru_cache(maxsize=16)
def _belongs_to(key: bytes, cert: bytes) -> bool:
    """Return whether a private key belongs to a certificate. Both must be valid PEM."""
    return _checked_key(key).public_key() == _read_certificate(cert).public_key()


@lru_cache(maxsize=16)
def _is_signed_by(cert: bytes, authority: bytes) -> bool:
    """Return whether ``cert`` names ``authority`` as its issuer and is signed by it. Both must be valid PEM."""
    try:
        _read_certificate(cert).verify_directly_issued_by(_read_certificate(authority))
    except (InvalidSignature, ValueError, TypeError):
        return False
    return True


def _private_pem(key: _Key) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _key_usage(*, key_cert_sign: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=key_cert_sign,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
