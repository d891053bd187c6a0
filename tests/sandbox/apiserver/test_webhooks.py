"""Connections to webhooks are closed with the server, and answers are read to the end."""

import asyncio
import gc
import warnings
from random import Random

import pytest

from app.kube.clock import SystemClock
from app.sandbox.apiserver.hooks import CallFailed
from app.sandbox.apiserver.server import ApiServer


async def test_webhook_connections_close_with_the_server() -> None:
    api = ApiServer(clock=SystemClock(), rng=Random(1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gc.collect()  # removes connections of other tests
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        with pytest.raises(CallFailed, match="connection refused"):
            await api.webhooks.call("https://127.0.0.1:1/x", "", {}, 5)
        await api.aclose()
        gc.collect()
    assert not [str(one.message) for one in seen]


async def test_a_long_chunked_response_is_read_completely() -> None:
    answer = b'{"response":{"uid":"u","allowed":true,"patch":"' + b"x" * 3_000_000 + b'"}}'

    async def answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(answer))
        writer.write(answer)
        await writer.drain()
        writer.close()

    api = ApiServer(clock=SystemClock(), rng=Random(1))
    async with await asyncio.start_server(answers, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        found = await api.webhooks.call(f"http://127.0.0.1:{port}/x", "", {}, 30)
        assert len(found["response"]["patch"]) == 3_000_000
        await api.aclose()
