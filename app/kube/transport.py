"""Transport based on aiohttp: sends requests and receives bytes. Retries and API semantics belong to the client."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import aiohttp
from yarl import URL

from app.kube.config import ClusterConfig
from app.kube.errors import RequestInfo, TransportError
from app.kube.wire import OnResponse, Request, Response, Stream, ignore_response

#: Request no compression: inside a cluster, decompressing lists costs more than it saves.
_HEADERS = {"Accept-Encoding": "identity"}
_FAILURES = (aiohttp.ClientError, TimeoutError, OSError)
_CONNECT_SECONDS: Final = 10.0
_REQUEST_SECONDS: Final = 60.0


class AiohttpTransport:
    """HTTP/1.1 with persistent connections in one aiohttp session, created on first use in the current event loop."""

    def __init__(self, config: ClusterConfig, *, on_response: OnResponse = ignore_response) -> None:
        self.config = config
        self._on_response = on_response
        self._base = config.host
        self._host = URL(config.host).authority
        self._session: aiohttp.ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def request(self, request: Request) -> Response:
        """Send a request and read the whole response. Rejected credentials are renewed once.

        Requests from other threads are run on the event loop that owns the connections.
        """
        owner = self._owner()
        if owner is not asyncio.get_running_loop() and owner.is_running():
            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self.request(request), owner))
        response = await self._request(request)
        if response.status == 401:
            before = await self.config.authorization()
            await self.config.renew()
            if await self.config.authorization() != before:
                response = await self._request(request)
        return response

    def _owner(self) -> asyncio.AbstractEventLoop:
        """Return the event loop that owns all connections: the first one to use them."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        return self._loop

    async def _request(self, request: Request) -> Response:
        answered = False
        try:
            answer = await self._send(request, _REQUEST_SECONDS if request.timeout is None else request.timeout)
            answered = True
            # Reading the body returns the connection to the pool, or closes it on failure, so no context manager is
            # needed.
            return Response(answer.status, answer.headers, await answer.read())
        except _FAILURES as error:
            raise self._failed(request, error, answered=answered) from error

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Stream]:
        """Send a request and yield the response as it arrives. Works only in the loop that owns the connections."""
        self._owner()
        answered = False
        try:
            async with await self._send(request, request.timeout) as answer:
                answered = True
                if answer.status == 401:
                    await self.config.renew()  # the caller retries after its back-off
                # iter_any yields everything received: under load one chunk contains many events.
                yield Stream(answer.status, answer.headers, answer.content.iter_any())
        except _FAILURES as error:
            raise self._failed(request, error, answered=answered) from error

    async def _send(self, request: Request, seconds: float | None) -> aiohttp.ClientResponse:
        """Return the response head. The body must be read within ``seconds``. Raises one of _FAILURES."""
        config = self.config
        # Set every header that aiohttp would add; otherwise it copies all headers to find the missing ones.
        headers = {**_HEADERS, **request.headers}
        if authorization := await config.authorization():
            headers["Authorization"] = authorization
        typed = request.body is None or "Content-Type" in headers
        answer = await self._sessions().request(
            request.method,
            URL(self._base + request.target, encoded=True),
            data=request.body,
            headers=headers,
            skip_auto_headers=None if typed else ("Content-Type",),  # send no Content-Type unless one is set
            timeout=aiohttp.ClientTimeout(total=seconds, sock_connect=_CONNECT_SECONDS),
            proxy=config.proxy,
            server_hostname=config.server_name,
            allow_redirects=False,
        )
        self._on_response(str(answer.status), request.method, self._host)
        return answer

    def _failed(self, request: Request, error: Exception, *, answered: bool) -> TransportError:
        """Return the TransportError for a connection or read error, with its request."""
        if not answered:
            self._on_response("<error>", request.method, self._host)
        return TransportError(RequestInfo(request.method, request.target), self._explain(error))

    def _explain(self, error: Exception) -> str:
        where = f"{self._base} ({self.config.source})" if self.config.source else self._base
        if isinstance(error, aiohttp.ClientConnectorCertificateError | ssl.SSLError):
            return f"the certificate of {where} is not trusted: {error}; check certificate-authority"
        if isinstance(error, aiohttp.ClientSSLError):
            return f"cannot establish a TLS connection to {where}: {error}"
        if isinstance(error, aiohttp.ClientConnectorError):
            reason = os.strerror(error.os_error.errno) if error.os_error.errno else str(error.os_error)
            return f"cannot connect to {where}: {reason}; is the API server running?"
        if isinstance(error, TimeoutError):
            return f"no response from {where} in time"
        return f"connection to {where} failed: {type(error).__name__}: {error}"

    def _sessions(self) -> aiohttp.ClientSession:
        if self._session is None:
            ssl_context = self.config.ssl_context
            connector = aiohttp.TCPConnector(
                ssl=ssl_context if ssl_context is not None else True,
                limit=0,  # watches hold connections; the rate limiter bounds writes
                keepalive_timeout=90,
            )
            self._session = aiohttp.ClientSession(
                connector=connector,
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),
                read_bufsize=2**20,
            )
        return self._session

    async def close(self) -> None:
        """Close all connections. Cancel readers of streams first: they may not notice that their stream is closed."""
        if self._session is not None:
            session, self._session = self._session, None
            await session.close()
            await asyncio.sleep(0)  # let the sockets' close callbacks run
