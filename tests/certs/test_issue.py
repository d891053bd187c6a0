"""Issuing certificates, checking them, and storing them in a Secret."""

import base64
import ipaddress
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from app.certs.issue import CertificateError, CertificateSet, check_pair, fault_of, from_secret_data, issue
from tests.kit.certificates import certificate

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
HOST = "kruise-webhook-service.kruise-system.svc"
RENEW = timedelta(days=180)
MADE = issue((HOST,), NOW)
OTHER = issue((HOST,), NOW)
#: A name that is too long for a subject, in a namespace with the longest name.
LONG = f"kruise-webhook-service.{'n' * 63}.svc"


def parsed(pem: bytes) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pem)


@pytest.mark.behaviour("MGR-30")
def test_subject_and_alternative_names_are_the_service_and_localhost() -> None:
    served = parsed(MADE.cert)
    assert served.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value == HOST
    names = served.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost", HOST]


@pytest.mark.behaviour("MGR-30")
def test_an_address_is_an_ip_alternative_name() -> None:
    names = parsed(issue(("10.1.2.3",), NOW).cert).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.IPAddress) == [ipaddress.ip_address("10.1.2.3")]
    assert names.get_values_for_type(x509.DNSName) == ["localhost"]


@pytest.mark.behaviour("MGR-31")
def test_certificates_use_elliptic_curves_and_are_valid_for_ten_years() -> None:
    authority, served = parsed(MADE.ca_cert), parsed(MADE.cert)
    assert authority.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value == "webhook-cert-ca"
    assert authority.issuer == authority.subject == served.issuer
    served.verify_directly_issued_by(authority)
    for one in (authority, served):
        key = one.public_key()
        assert isinstance(key, ec.EllipticCurvePublicKey)
        assert key.curve.name == "secp256r1"
        assert one.not_valid_after_utc == NOW + timedelta(days=3650)
    assert served.not_valid_before_utc == authority.not_valid_before_utc < NOW
    usage = served.extensions.get_extension_for_class(x509.KeyUsage).value
    assert (usage.digital_signature, usage.key_encipherment, usage.key_cert_sign) == (True, False, False)
    extended = served.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(extended) == [ExtendedKeyUsageOID.SERVER_AUTH]


@pytest.mark.behaviour("MGR-31", "MGR-34")
def test_an_rsa_authority_can_sign() -> None:
    """OpenKruise leaves such a CA behind. Clients that trust it must keep trusting the served certificates."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    authority = certificate(key, "CN=webhook-cert-ca", ca=True, start=NOW, days=3650)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
    left = CertificateSet(authority.public_bytes(Encoding.PEM), b"", b"", pem)
    made = issue(("host",), NOW, reuse_ca_of=left)
    assert made.ca_cert == left.ca_cert
    parsed(made.cert).verify_directly_issued_by(authority)
    assert fault_of(made, ("host",), NOW, timedelta(days=180)) == ""


@pytest.mark.behaviour("MGR-32")
def test_a_secret_stores_each_part_under_both_names() -> None:
    data = MADE.secret_data()
    assert sorted(data) == ["ca-cert.pem", "ca-key.pem", "cert.pem", "key.pem", "tls.crt", "tls.key"]
    assert data["tls.crt"] == data["cert.pem"]
    assert data["tls.key"] == data["key.pem"]
    assert base64.b64decode(data["ca-cert.pem"]) == MADE.ca_cert
    assert from_secret_data(data) == MADE
    # Either name is sufficient.
    assert from_secret_data({name: data[name] for name in data if not name.startswith("tls")}) == MADE
    assert base64.b64decode(MADE.ca_bundle) == MADE.ca_cert


@pytest.mark.behaviour("MGR-33")
@pytest.mark.parametrize(
    ("data", "message"),
    [
        (None, "ca-cert.pem: is missing"),
        ({}, "ca-cert.pem: is missing"),
        ({**MADE.secret_data(), "tls.key": "", "key.pem": ""}, "tls.key: is missing"),
        ({**MADE.secret_data(), "ca-cert.pem": "%%%"}, "ca-cert.pem: is not base64"),
    ],
)
def test_an_incomplete_secret_is_refused_with_the_missing_key(data: dict | None, message: str) -> None:
    with pytest.raises(CertificateError, match=message):
        from_secret_data(data)


@pytest.mark.behaviour("MGR-33")
@pytest.mark.parametrize(
    ("certificates", "hosts", "now", "fault"),
    [
        (MADE, (HOST,), NOW, ""),
        (MADE, ("localhost", HOST), NOW, ""),
        (issue((LONG,), NOW), (LONG,), NOW, ""),
        (issue(("*.Kruise-System.svc",), NOW), (HOST,), NOW, ""),
        (MADE, ("elsewhere.svc",), NOW, "serving certificate: is not valid for elsewhere.svc"),
        (MADE, ("10.0.0.1",), NOW, "serving certificate: is not valid for 10.0.0.1"),
        (MADE, (HOST,), NOW + timedelta(days=3650 - 180), "serving certificate: expires at 2035-12-31 03:04 UTC"),
        (
            issue((HOST,), NOW + timedelta(days=3000), reuse_ca_of=MADE),
            (HOST,),
            NOW + timedelta(days=3650 - 180),
            "CA certificate: expires at 2035-12-31 03:04 UTC",
        ),
        (MADE, (HOST,), NOW - timedelta(days=1), "serving certificate: is not valid before 2026-01-02 02:04 UTC"),
        *(
            (replace(MADE, **changed), (HOST,), NOW, fault)
            for changed, fault in (
                ({"key": OTHER.key}, "private key: does not belong to the serving certificate"),
                ({"ca_cert": OTHER.ca_cert}, "serving certificate: was not signed by the CA CN=webhook-cert-ca"),
                ({"cert": b"garbage"}, "serving certificate: is not a PEM certificate"),
                ({"key": b"garbage"}, "private key: is not a PEM private key"),
                ({"ca_cert": b"garbage"}, "CA certificate: is not a PEM certificate"),
            )
        ),
    ],
)
def test_defects_of_a_certificate_set_are_reported(
    certificates: CertificateSet, hosts: tuple[str, ...], now: datetime, fault: str
) -> None:
    assert fault_of(certificates, hosts, now, RENEW) == fault


@pytest.mark.behaviour("MGR-34")
def test_a_valid_authority_is_reused_for_at_least_a_year() -> None:
    renewed = issue((HOST, "127.0.0.1"), NOW + timedelta(days=3650 - 366), reuse_ca_of=MADE)
    assert renewed.ca_cert == MADE.ca_cert
    assert renewed.ca_key == MADE.ca_key
    assert renewed.cert != MADE.cert
    late = issue((HOST,), NOW + timedelta(days=3650 - 364), reuse_ca_of=MADE)
    assert late.ca_cert != MADE.ca_cert


@pytest.mark.behaviour("MGR-34")
@pytest.mark.parametrize(
    "broken",
    [
        replace(MADE, ca_key=OTHER.ca_key),
        replace(MADE, ca_key=b""),
        replace(MADE, ca_cert=b"garbage"),
        # A certificate that must not sign others.
        replace(MADE, ca_cert=MADE.cert, ca_key=MADE.key),
        issue((HOST,), NOW + timedelta(days=2)),
    ],
    ids=["other key", "no key", "garbage", "no authority", "from the future"],
)
def test_an_invalid_authority_is_replaced(broken: CertificateSet) -> None:
    renewed = issue((HOST,), NOW, reuse_ca_of=broken)
    assert fault_of(renewed, (HOST,), NOW, RENEW) == ""
    assert renewed.ca_cert != broken.ca_cert


def test_an_encrypted_key_is_refused_with_a_hint() -> None:
    locked = load_pem_private_key(MADE.key, None).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")
    )
    with pytest.raises(CertificateError, match="private key: is encrypted; provide it without a passphrase"):
        check_pair(MADE.cert, locked)
