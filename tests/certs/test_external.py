"""External certificates: read from a Secret or a mounted folder, checked, never written."""

import base64
from datetime import timedelta
from pathlib import Path

import pytest

from app.certs.issue import CertificateError, CertificateSet, issue
from app.certs.sources import ExternalFolder, ExternalSecret, UnannouncedSource
from app.kube.client import Client
from tests.certs.test_sources import PATH, secret
from tests.kit.virtualtime import EPOCH, VirtualClock
from tests.kube.fakes import virtual
from tests.manager.memory import MemoryApi

ONE, TWO = issue(("a",), EPOCH), issue(("a",), EPOCH)
NAMES = ("ca.crt", "tls.crt", "tls.key")


def contents(made: CertificateSet) -> dict[str, bytes]:
    return dict(zip(NAMES, (made.ca_cert, made.cert, made.key), strict=True))


def stored(files: dict[str, bytes]) -> MemoryApi:
    return MemoryApi(objects={PATH: secret({name: base64.b64encode(text).decode() for name, text in files.items()})})


def source(api: MemoryApi, clock: VirtualClock | None = None) -> ExternalSecret:
    clock = clock or VirtualClock()
    return ExternalSecret(Client(api, clock), clock, namespace="kruise-system", name="kruise-webhook-certs")


@pytest.mark.behaviour("MGR-35")
@virtual
async def test_a_cert_manager_secret_is_read_and_never_written() -> None:
    api = stored(contents(ONE))
    reading = source(api)
    found = await reading.ensure()
    assert (found.cert, found.key, reading.bundle) == (ONE.cert, ONE.key, ONE.ca_cert)
    api.objects = stored(contents(TWO)).objects
    assert (await reading.ensure()).cert == TWO.cert
    assert {request.method for request in api.requests} == {"GET"}


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "Secret kruise-system/kruise-webhook-certs: ca.crt: is missing"),
        ({**contents(ONE), "tls.key": b""}, "tls.key: is missing"),
        ({**contents(ONE), "tls.key": TWO.key}, "private key: does not belong to the serving certificate"),
        ({**contents(ONE), "tls.crt": b"garbage"}, "serving certificate: is not a PEM certificate"),
        ({**contents(ONE), "ca.crt": b"garbage"}, "certificate: is not a PEM certificate"),
    ],
)
@virtual
async def test_unusable_certificates_are_named(files: dict[str, bytes], message: str) -> None:
    with pytest.raises(CertificateError, match=message):
        await source(stored(files)).ensure()


@virtual
async def test_an_expired_external_certificate_is_reported() -> None:
    clock = VirtualClock(EPOCH + timedelta(days=4000))
    with pytest.raises(CertificateError, match=r"tls.crt: expired at .* its owner must renew it"):
        await source(stored(contents(ONE)), clock).ensure()


@virtual
@pytest.mark.behaviour("MGR-35")
async def test_a_mounted_folder_is_read_atomically_and_followed(tmp_path: Path) -> None:
    for version, made in (("..1", ONE), ("..2", TWO)):
        (tmp_path / version).mkdir()
        for name, text in contents(made).items():
            (tmp_path / version / name).write_bytes(text)
    (tmp_path / "..data").symlink_to("..1")

    reading = ExternalFolder(tmp_path, VirtualClock())
    assert (await reading.ensure()).cert == ONE.cert
    (tmp_path / "..new").symlink_to("..2")
    (tmp_path / "..new").replace(tmp_path / "..data")  # as a kubelet does
    assert (await reading.ensure()).cert == TWO.cert
    (tmp_path / "..2" / "tls.key").unlink()
    with pytest.raises(CertificateError, match=r"tls.key: cannot be read: No such file"):
        await reading.ensure()


@virtual
@pytest.mark.behaviour("MGR-35")
async def test_replicas_with_different_authorities_agree_on_one_bundle() -> None:
    one, two = (UnannouncedSource(VirtualClock()) for _ in range(2))
    unusable = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    expired = issue(("a",), EPOCH - timedelta(days=4000)).ca_cert
    one.taken(ONE, published=expired)
    two.taken(TWO, published=unusable + expired + one.bundle)
    assert two.bundle == ONE.ca_cert + TWO.ca_cert
    one.taken(ONE, published=two.bundle)
    assert one.bundle == two.bundle
