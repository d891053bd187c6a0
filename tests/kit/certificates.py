"""Certificates that our own code did not issue."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


def certificate(
    key: Key,
    name: str,
    *,
    issuer: str = "",
    signer: Key | None = None,
    ca: bool = False,
    start: datetime | None = None,
    days: int = 1,
) -> x509.Certificate:
    """Return a certificate from a day before ``start``, by default now. Names are written as ``O=group,CN=user``."""
    start = start or datetime.now(UTC)
    subject, by = x509.Name.from_rfc4514_string(name), x509.Name.from_rfc4514_string(issuer or name)
    return (
        x509.CertificateBuilder(by, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(start - timedelta(days=1))
        .not_valid_after(start + timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        .sign(signer or key, hashes.SHA256())
    )


def pem_of(key: Key) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def self_signed(key: Key | None = None) -> tuple[bytes, bytes]:
    """Return a certificate that is valid for a day, and its key."""
    key = key or ec.generate_private_key(ec.SECP256R1())
    return certificate(key, "CN=ours").public_bytes(Encoding.PEM), pem_of(key)
