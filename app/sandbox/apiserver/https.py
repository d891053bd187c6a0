"""Serves the API over HTTPS: an ASGI application on uvicorn with its own certificate and kubeconfig.

    async with HttpsServer.start(api, port=0) as server:
        Path("kubeconfig").write_text(server.kubeconfig())

There is no authentication or authorization. A bearer token names the user; requests without a token act as the admin.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qsl

import yaml

from app.certs.issue import CertificateSet, issue
from app.kube.wire import Response
from app.manager.limits import Limits
from app.manager.serving import Server, bind
from app.sandbox.apiserver.access import user_of
from app.sandbox.apiserver.bodies import MAX_BODY
from app.sandbox.apiserver.requests import Call, User
from app.sandbox.apiserver.server import ApiServer
from app.sandbox.apiserver.watching import Watcher

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]

ADMIN: Final = User()
_HOSTS: Final = ("localhost", "127.0.0.1", "kubernetes", "kubernetes.default", "kubernetes.default.svc")


class Application:
    """The ASGI application."""

    def __init__(self, api: ApiServer) -> None:
        self._api = api
        self._users: dict[str, User] = {}

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            return
        call = self._call(scope, await _body(receive))
        answer = await self._api.serve(call)
        if isinstance(answer, Watcher):
            await _stream(answer, receive, send)
            return
        await send({"type": "http.response.start", "status": answer.status, "headers": _raw_headers(answer)})
        await send({"type": "http.response.body", "body": answer.body if call.method != "HEAD" else b""})

    def _call(self, scope: Message, body: bytes) -> Call:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        query = scope["query_string"]
        pairs = dict(parse_qsl(query.decode("latin-1"), keep_blank_values=True)) if query else {}
        path = scope["raw_path"].decode("latin-1").partition("?")[0] if scope.get("raw_path") else scope["path"]
        return Call(scope["method"], path, pairs, headers, body, self._user(headers.get("authorization", "")))

    def _user(self, authorization: str) -> User:
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or not token:
            return ADMIN
        user = self._users.get(token)
        if user is None:
            user = self._users[token] = user_of(token.strip())
        return user


async def _body(receive: Receive) -> bytes:
    """Read the whole body. If it is too large, keep only enough for the server to reject it."""
    message = await receive()
    if not message.get("more_body"):
        return bytes(message.get("body", b""))
    parts = [message.get("body", b"")]
    size = len(parts[0])
    while message.get("more_body"):
        message = await receive()
        part = message.get("body", b"")
        size += len(part)
        if size <= MAX_BODY + 1:
            parts.append(part)
        elif sum(map(len, parts)) <= MAX_BODY:
            parts.append(part[: MAX_BODY + 1])
    return b"".join(parts)


def _raw_headers(answer: Response) -> list[tuple[bytes, bytes]]:
    headers = [(name.lower().encode("latin-1"), value.encode("utf-8")) for name, value in answer.headers.items()]
    return [*headers, (b"content-length", str(len(answer.body)).encode())]


async def _stream(watcher: Watcher, receive: Receive, send: Send) -> None:
    """Send events until the watch ends or the client disconnects."""
    gone = asyncio.ensure_future(_disconnected(receive, watcher))
    try:
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        # The empty chunk sends the headers: clients consider the watch established once they have received them.
        await send({"type": "http.response.body", "body": b"", "more_body": True})
        async for piece in watcher.chunks():
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
    finally:
        gone.cancel()
        watcher.close()


async def _disconnected(receive: Receive, watcher: Watcher) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    watcher.close()


class HttpsServer:
    """A listening API server."""

    def __init__(self, host: str, port: int, certificates: CertificateSet) -> None:
        self.host = host
        self.port = port
        self.certificates = certificates

    @property
    def url(self) -> str:
        """Return the URL, such as ``https://127.0.0.1:6443``."""
        return f"https://{self.host}:{self.port}"

    def kubeconfig(self, user: str = "system:admin") -> str:
        """Return a kubeconfig for this server, as YAML."""
        cluster = {
            "server": self.url,
            "certificate-authority-data": base64.b64encode(self.certificates.ca_cert).decode(),
        }
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "sandbox", "cluster": cluster}],
            "users": [{"name": user, "user": {"token": user}}],
            "contexts": [{"name": "sandbox", "context": {"cluster": "sandbox", "user": user, "namespace": "default"}}],
            "current-context": "sandbox",
        }
        return yaml.safe_dump(document, sort_keys=False)

    @classmethod
    @asynccontextmanager
    async def start(
        cls, api: ApiServer, *, host: str = "127.0.0.1", port: int = 0, flag: str = "--port"
    ) -> AsyncIterator[HttpsServer]:
        """Listen inside the context. Port 0 picks a free port. Raises a ``StartError`` that names ``flag`` if binding
        fails."""
        sock = bind(host, port, flag)
        found = cls(host, sock.getsockname()[1], issue((host, *_HOSTS), api.core.clock.now()))
        api.documents.served_at(f"{host}:{found.port}")
        # kubectl exec requests a WebSocket and expects an HTTP error.
        limits = Limits(ignores_upgrades=True)
        server = Server(Application(api), tls=_context(found.certificates), limits=limits, port="API server")
        # The socket is already listening: clients that connect early wait until the server runs.
        running = asyncio.create_task(server.serve(sockets=[sock]), name="sandbox: HTTPS")
        try:
            yield found
        finally:
            await api.aclose()
            server.stop()
            await asyncio.gather(running, return_exceptions=True)
            sock.close()


def _context(certificates: CertificateSet) -> ssl.SSLContext:
    """Build the TLS context. ``ssl`` loads certificates only from files, so write them to a temporary file."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    with tempfile.TemporaryDirectory() as folder:
        pem = Path(folder, "tls.pem")
        pem.touch(0o600)
        pem.write_bytes(certificates.cert + certificates.key)
        context.load_cert_chain(pem)
    return context
