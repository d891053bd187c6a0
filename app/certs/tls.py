"""The server's TLS context, whose certificate can be replaced while connections are open.

``ServingContext.listener`` is passed to the server once. Every handshake uses the current certificate, which
is replaced only by a complete and valid one. Established connections are kept.
"""

from __future__ import annotations

import contextlib
import os
import ssl
import tempfile
from collections.abc import Iterator

from app.certs.issue import CertificateError, check_pair


class ServingContext:
    """A listener's TLS context and the certificate it currently serves."""

    def __init__(self, cert: bytes, key: bytes, client_ca: bytes = b"") -> None:
        """Create the context. With ``client_ca``, the server requests client certificates.

        An invalid client certificate fails the handshake. A missing one does not: authorization is up to the endpoints.
        """
        self._client_ca = client_ca
        self._current = _server_context(cert, key, client_ca)
        self._pair = (cert, key)
        self.reloads = 0
        self.listener = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.listener.minimum_version = ssl.TLSVersion.TLSv1_2
        _ask_clients(self.listener, client_ca)
        # OpenSSL calls this for every handshake, even without SNI.
        self.listener.sni_callback = self._choose

    def replace(self, cert: bytes, key: bytes) -> None:
        """Serve another certificate from the next handshake on. If it is invalid, keep the current one and raise
        CertificateError."""
        self._current = _server_context(cert, key, self._client_ca)
        self._pair = (cert, key)
        self.reloads += 1

    def serves(self, cert: bytes, key: bytes) -> bool:
        """Return whether this certificate and key are currently served."""
        return self._pair == (cert, key)

    def _choose(self, connection: ssl.SSLObject, _name: str | None, _listener: ssl.SSLContext) -> None:
        connection.context = self._current


def _server_context(cert: bytes, key: bytes, client_ca: bytes) -> ssl.SSLContext:
    check_pair(cert, key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    with _as_file(cert) as cert_path, _as_file(key) as key_path:
        try:
            context.load_cert_chain(cert_path, key_path)
        except ssl.SSLError as error:
            raise CertificateError(f"serving certificate: rejected by OpenSSL: {error.reason or error}") from None
    _ask_clients(context, client_ca)
    return context


def _ask_clients(context: ssl.SSLContext, client_ca: bytes) -> None:
    """Request client certificates. Both contexts of a handshake need this: one requests them, one verifies them."""
    if not client_ca:
        return
    try:
        context.load_verify_locations(cadata=client_ca.decode("ascii"))
    except (ssl.SSLError, ValueError) as error:
        raise CertificateError(f"client CA: no certificates in PEM: {error}") from None
    context.verify_mode = ssl.CERT_OPTIONAL


@contextlib.contextmanager
def _as_file(content: bytes) -> Iterator[str]:
    """Yield a path to the content, because the ssl module reads only files.

    The file is in memory where the system supports it, so that private keys are not written to disk.
    """
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("certificate", os.MFD_CLOEXEC)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
            stream.flush()
            yield f"/proc/self/fd/{descriptor}"
        return
    with tempfile.NamedTemporaryFile() as stream:
        stream.write(content)
        stream.flush()
        yield stream.name
