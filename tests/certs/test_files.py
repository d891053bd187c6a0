"""Certificates in a folder: created, renewed, and never overwritten if they are not ours."""

import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from app.certs.issue import CertificateError, CertificateSet, fault_of, issue
from app.certs.sources import FileCertificates, ensure_files
from tests.kit.certificates import self_signed
from tests.kit.virtualtime import EPOCH, VirtualClock
from tests.kube.fakes import virtual

NOW = datetime(2026, 1, 2, tzinfo=UTC)
HOSTS = ("localhost", "127.0.0.1")
RENEW = timedelta(days=30)


def test_an_empty_folder_gets_a_pair_without_the_authority_key(tmp_path: Path) -> None:
    made = ensure_files(tmp_path / "certs", HOSTS, NOW, RENEW)
    assert fault_of(made, HOSTS, NOW, RENEW) == ""
    assert sorted(file.name for file in (tmp_path / "certs").iterdir()) == ["ca-cert.pem", "tls.crt", "tls.key"]
    assert stat.S_IMODE((tmp_path / "certs/tls.key").stat().st_mode) == 0o600
    assert made.ca_key == b""


@virtual
async def test_existing_certificates_are_reused(tmp_path: Path) -> None:
    made, later = [
        await FileCertificates(tmp_path, HOSTS, VirtualClock(EPOCH + timedelta(days=days)), RENEW).ensure()
        for days in (0, 300)
    ]
    assert later == made


def test_our_certificates_are_renewed_before_expiry_and_on_host_changes(tmp_path: Path) -> None:
    made = ensure_files(tmp_path, HOSTS, NOW, RENEW)
    renewed = ensure_files(tmp_path, HOSTS, NOW + timedelta(days=3650 - 29), RENEW)
    assert renewed.cert != made.cert
    wider = ensure_files(tmp_path, (*HOSTS, "example.test"), NOW + timedelta(days=3650 - 29), RENEW)
    assert fault_of(wider, ("example.test",), NOW + timedelta(days=3650 - 29), RENEW) == ""


def test_certificates_of_the_user_are_served_until_they_expire_and_never_replaced(tmp_path: Path) -> None:
    cert, key = self_signed(rsa.generate_private_key(public_exponent=65537, key_size=2048))
    (tmp_path / "tls.crt").write_bytes(cert)
    (tmp_path / "tls.key").write_bytes(key)
    now = datetime.now(UTC)
    assert ensure_files(tmp_path, HOSTS, now, RENEW) == CertificateSet(ca_cert=cert, cert=cert, key=key)
    with pytest.raises(CertificateError, match=r"tls.crt: expired at .*: replace it and .*tls.key"):
        ensure_files(tmp_path, HOSTS, now + timedelta(days=2), RENEW)
    assert (tmp_path / "tls.crt").read_bytes() == cert


@pytest.mark.parametrize(("present", "missing"), [("tls.crt", "tls.key"), ("tls.key", "tls.crt")])
def test_an_incomplete_pair_is_refused_with_both_files(tmp_path: Path, present: str, missing: str) -> None:
    ensure_files(tmp_path, HOSTS, NOW, RENEW)
    (tmp_path / missing).unlink()
    with pytest.raises(CertificateError) as refused:
        ensure_files(tmp_path, HOSTS, NOW, RENEW)
    assert str(refused.value) == (
        f"{tmp_path / missing}: is missing, but {tmp_path / present} exists: add it, "
        f"or remove {tmp_path / present} to have a new pair created"
    )


def test_a_key_of_another_certificate_is_refused_without_overwriting(tmp_path: Path) -> None:
    ensure_files(tmp_path, HOSTS, NOW, RENEW)
    (tmp_path / "tls.key").write_bytes(issue(HOSTS, NOW).key)
    before = (tmp_path / "tls.crt").read_bytes()
    with pytest.raises(CertificateError, match=r"tls.crt and .*tls.key: private key: does not belong"):
        ensure_files(tmp_path, HOSTS, NOW, RENEW)
    assert (tmp_path / "tls.crt").read_bytes() == before


@pytest.mark.parametrize(
    "content", [b"", b"garbage", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
)
def test_an_unusable_file_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    ensure_files(tmp_path, HOSTS, NOW, RENEW)
    (tmp_path / "tls.crt").write_bytes(content)
    with pytest.raises(CertificateError, match=r"tls.crt and .*: serving certificate: is not a PEM certificate"):
        ensure_files(tmp_path, HOSTS, NOW, RENEW)


def test_an_unreadable_file_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "tls.crt").mkdir()
    with pytest.raises(CertificateError, match=r"tls.crt: cannot be read: Is a directory"):
        ensure_files(tmp_path, HOSTS, NOW, RENEW)


def test_a_folder_that_cannot_be_created_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CertificateError, match=r"file/certs: cannot be created|Not a directory"):
        ensure_files(tmp_path / "file" / "certs", HOSTS, NOW, RENEW)
