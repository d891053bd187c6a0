"""TLS over a real socket, with a certificate that changes under open connections."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from app.certs.issue import CertificateError, issue
from app.certs.tls import ServingContext
from tests.kit.certificates import self_signed

NOW = datetime.now(UTC)
FIRST = issue(("127.0.0.1",), NOW)
SECOND = issue(("127.0.0.1",), NOW)


@asynccontextmanager
async def listening(context: ServingContext) -> AsyncIterator[int]:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(line)
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0, ssl=context.listener)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def connect(
    port: int, ca: bytes | None = None, name: str = "127.0.0.1", newest: ssl.TLSVersion | None = None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, bytes]:
    """Connect, and return the server's certificate in PEM."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if ca is None:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    else:
        context.load_verify_locations(cadata=ca.decode())
    if newest is not None:
        # Old versions must be enabled explicitly.
        context.minimum_version, context.maximum_version = ssl.TLSVersion.MINIMUM_SUPPORTED, newest
        context.set_ciphers("ALL:@SECLEVEL=0")
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=name)
    shown = writer.get_extra_info("ssl_object").getpeercert(True)
    return reader, writer, ssl.DER_cert_to_PEM_cert(shown).encode()


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1"], ids=["a name", "an address: nothing is named"])
async def test_clients_that_trust_the_authority_connect_by_name_and_by_address(name: str) -> None:
    async with listening(ServingContext(FIRST.cert, FIRST.key)) as port:
        _, writer, shown = await connect(port, FIRST.ca_cert, name)
        assert shown == FIRST.cert
        assert writer.get_extra_info("ssl_object").version() == "TLSv1.3"
        writer.close()


@pytest.mark.behaviour("MGR-36")
async def test_certificate_rotation_keeps_open_connections() -> None:
    context = ServingContext(FIRST.cert, FIRST.key)
    async with listening(context) as port:
        reader, writer, _ = await connect(port, FIRST.ca_cert)
        context.replace(SECOND.cert, SECOND.key)
        _, newer, shown = await connect(port, SECOND.ca_cert, "localhost")
        assert shown == SECOND.cert
        writer.write(b"still here\n")
        assert await reader.readline() == b"still here\n"
        writer.close()
        newer.close()
        assert context.reloads == 1


async def test_a_certificate_with_another_key_type_replaces_the_old_one() -> None:
    context = ServingContext(FIRST.cert, FIRST.key)
    pair = self_signed(rsa.generate_private_key(public_exponent=65537, key_size=2048))
    context.replace(*pair)
    async with listening(context) as port:
        for newest in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            _, writer, shown = await connect(port, newest=newest)
            assert shown == pair[0]
            writer.close()


@pytest.mark.parametrize(
    ("cert", "key", "message"),
    [
        (SECOND.cert, FIRST.key, "private key: does not belong to the serving certificate"),
        (b"", SECOND.key, "serving certificate: is not a PEM certificate"),
        (SECOND.cert, b"", "private key: is not a PEM private key"),
    ],
)
async def test_a_bad_certificate_never_replaces_a_good_one(cert: bytes, key: bytes, message: str) -> None:
    context = ServingContext(FIRST.cert, FIRST.key)
    with pytest.raises(CertificateError, match=message):
        context.replace(cert, key)
    async with listening(context) as port:
        _, writer, shown = await connect(port, FIRST.ca_cert)
        assert shown == FIRST.cert
        writer.close()


async def test_tls_before_1_2_is_refused() -> None:
    async with listening(ServingContext(FIRST.cert, FIRST.key)) as port:
        with pytest.raises((ssl.SSLError, ConnectionResetError)), pytest.warns(DeprecationWarning, match="TLSv1_1"):
            await connect(port, newest=ssl.TLSVersion.TLSv1_1)
