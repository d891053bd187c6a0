"""The TLS side of the server: a context whose certificate can be changed while connections stand.

``ServingContext.listener`` is handed to the server once. Each handshake asks for the current certificate, so a new one
is complete before anybody sees it and a bad one never replaces a good one. Established connections go on.
"""

from __future__ import annotations

import contextlib
import os
import ssl
import tempfile
from collections.abc import Iterator

from app.certs.issue import CertificateError, check_pair


class ServingContext:
    """A listener's TLS context and the certificate it serves now."""

    def __init__(self, cert: bytes, key: bytes, client_ca: bytes = b"") -> None:
        """With ``client_ca`` clients are asked for a certificate, and a wrong one ends the handshake. None at all does
        not: what may be asked without one is not decided here."""
        self._client_ca = client_ca
        self._current = _server_context(cert, key, client_ca)
        self._pair = (cert, key)
        self.reloads = 0
        self.listener = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.listener.minimum_version = ssl.TLSVersion.TLSv1_2
        _ask_clients(self.listener, client_ca)
        # OpenSSL asks during every handshake, also when the client names no server.
        self.listener.sni_callback = self._choose

    def replace(self, cert: bytes, key: bytes) -> None:
        """Serve another certificate from the next handshake on. Raises CertificateError and keeps the old one."""
        self._current = _server_context(cert, key, self._client_ca)
        self._pair = (cert, key)
        self.reloads += 1

    def serves(self, cert: bytes, key: bytes) -> bool:
        """Whether this very pair is served now."""
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
            raise CertificateError(f"serving certificate: OpenSSL refuses it: {error.reason or error}") from None
    _ask_clients(context, client_ca)
    return context


def _ask_clients(context: ssl.SSLContext, client_ca: bytes) -> None:
    """On both contexts of a handshake: one says whether, the other by whom."""
    if not client_ca:
        return
    try:
        context.load_verify_locations(cadata=client_ca.decode("ascii"))
    except (ssl.SSLError, ValueError) as error:
        raise CertificateError(f"client CA: no certificates in PEM: {error}") from None
    context.verify_mode = ssl.CERT_OPTIONAL


@contextlib.contextmanager
def _as_file(content: bytes) -> Iterator[str]:
    """A path that holds the content: the ssl module reads files only. In memory where the system can, so no key of
    ours lies on a disk."""
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
