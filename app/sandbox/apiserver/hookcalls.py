"""Calling webhooks: over HTTPS, or in process where the simulation registered what answers for a URL."""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

import aiohttp
import orjson

from app.kube.clock import Clock
from app.sandbox.apiserver import golang

Json: TypeAlias = dict[str, Any]
#: Answers for a webhook server in process: path and body to HTTP status and body.
Local: TypeAlias = Callable[[str, bytes], Awaitable[tuple[int, bytes]]]

_MAX_ANSWER: Final = 16 * 2**20


class CallFailed(Exception):
    """No usable answer came; the text is as Kubernetes words it."""


@dataclass
class HookCaller:
    """Sends reviews. Services are reached where ``services`` says, or by ``local``, by ``name.namespace``."""

    clock: Clock
    #: ``name.namespace`` → host and port.
    services: dict[str, tuple[str, int]] = field(default_factory=dict)
    #: ``name.namespace``, or ``host:port`` of a URL → what answers in this process.
    local: dict[str, Local] = field(default_factory=dict)
    _sessions: dict[str, aiohttp.ClientSession] = field(default_factory=dict)
    _closing: set[asyncio.Task[None]] = field(default_factory=set)

    async def call(self, url: str, ca_bundle: str, review: Json, seconds: float) -> Json:
        """The answer to a review. Raises :class:`CallFailed`."""
        parts = urlsplit(url)
        body = orjson.dumps(review)
        shown = f'Post "{url}?timeout={int(seconds)}s"'
        name = _service_name(parts.hostname or "")
        try:
            local = self._local(url)
            if local is not None:
                status, answer = await self.clock.wait_for(local(parts.path, body), seconds)
            else:
                status, answer = await self._post(url, name, ca_bundle, body, seconds)
        except TimeoutError:
            raise CallFailed(f"failed to call webhook: {shown}: context deadline exceeded") from None
        except (aiohttp.ClientError, OSError) as error:
            raise CallFailed(f"failed to call webhook: {shown}: {_explained(error, parts.netloc)}") from None
        if status >= 300:
            raise CallFailed(f"failed to call webhook: {_server_said(status, answer)}")
        if not answer:
            media = "application/json; charset=utf-8"
            raise CallFailed(
                f"failed to call webhook: 0-length response with status code: {status} and content type: {media}"
            )
        try:
            found = orjson.loads(answer)
        except orjson.JSONDecodeError:
            # What is no JSON is read as YAML, in which any text is a text.
            raise CallFailed(f"failed to call webhook: {_not_an_object('string')}") from None
        if not isinstance(found, dict):
            raise CallFailed(f"failed to call webhook: {_not_an_object(golang.json_type(found))}")
        return found

    def is_local(self, url: str) -> bool:
        """Whether a hook answers in this process."""
        return self._local(url) is not None

    def _local(self, url: str) -> Local | None:
        parts = urlsplit(url)
        return self.local.get(_service_name(parts.hostname or "")) or self.local.get(parts.netloc)

    async def _post(self, url: str, service: str, ca_bundle: str, body: bytes, seconds: float) -> tuple[int, bytes]:
        parts = urlsplit(url)
        target, server_name = url, None
        if service:
            address = self.services.get(service)
            if address is None:
                raise OSError(f'service "{service.partition(".")[0]}" not found')
            target = f"https://{address[0]}:{address[1]}{parts.path}"
            server_name = parts.hostname
        session = self._session(ca_bundle)
        limits = aiohttp.ClientTimeout(total=seconds)
        async with session.post(
            target,
            data=body,
            params={"timeout": f"{int(seconds)}s"},
            headers={"Content-Type": "application/json", "Accept": "application/json, */*"},
            timeout=limits,
            server_hostname=server_name,
            allow_redirects=False,
        ) as answer:
            # A read gives what has arrived, which of a long answer is the beginning.
            found = bytearray()
            while len(found) < _MAX_ANSWER and (more := await answer.content.read(_MAX_ANSWER - len(found))):
                found += more
            return answer.status, bytes(found)

    def _session(self, ca_bundle: str) -> aiohttp.ClientSession:
        session = self._sessions.get(ca_bundle)
        if session is None:
            context = ssl.create_default_context(cadata=base64.b64decode(ca_bundle).decode() if ca_bundle else None)
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT
            connector = aiohttp.TCPConnector(ssl=context, limit=0)
            session = self._sessions[ca_bundle] = aiohttp.ClientSession(connector=connector, auto_decompress=False)
        return session

    def abandon(self) -> None:
        """Begin to close all connections: the loop they belong to does it as it goes on."""
        if self._sessions:
            closing = asyncio.get_running_loop().create_task(self.close(), name="sandbox: close webhook connections")
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Close all connections."""
        sessions, self._sessions = self._sessions, {}
        for session in sessions.values():
            await session.close()


def _not_an_object(found: str) -> str:
    words = f"json: cannot unmarshal {found} into Go value of type {golang.TYPE_META}"
    return f"couldn't get version/kind; json parse error: {words}"


def _service_name(host: str) -> str:
    parts = host.split(".")
    return f"{parts[0]}.{parts[1]}" if len(parts) == 3 and parts[2] == "svc" else ""


def _explained(error: Exception, address: str) -> str:
    if isinstance(error, aiohttp.ClientConnectorCertificateError | ssl.SSLError):
        return "tls: failed to verify certificate: x509: certificate signed by unknown authority"
    if isinstance(error, aiohttp.ClientConnectorError):
        if isinstance(error.os_error, ConnectionRefusedError):
            return f"dial tcp {address}: connect: connection refused"
        return f"dial tcp {address}: {error.os_error.strerror or error.os_error}"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "EOF"
    return str(error)


def _server_said(status: int, answer: bytes) -> str:
    try:
        found = orjson.loads(answer)
    except orjson.JSONDecodeError:
        found = None
    if isinstance(found, dict) and found.get("kind") == "Status":
        return str(found.get("message", ""))
    if status == 404:
        return "the server could not find the requested resource"
    if status == 503:
        return "the server is currently unable to handle the request"
    if status >= 500:
        return 'an error on the server ("unknown") has prevented the request from succeeding'
    if status == 400:
        return "the server rejected our request for an unknown reason"
    return f"the server responded with the status code {status} but did not return more information"
