"""Kept connections against a server on loopback that says, byte for byte, what the test wants."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from app.kube.connections import BrokenError, Connections

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Server:
    """Answers each request by ``answer(number of the connection, head)``; None closes the connection instead."""

    def __init__(self, answer: Callable[[int, bytes], Awaitable[bytes | None]]) -> None:
        self.answer = answer
        self.requests: list[tuple[int, bytes]] = []
        self.connections = 0
        self.ended = asyncio.Event()

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        number = self.connections
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                self.requests.append((number, head))
                answer = await self.answer(number, head)
                if answer is None:
                    break
                writer.write(answer)
                if b"Connection: close" in answer:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.ended.set()
            writer.close()


async def using(server: Server, test: Callable[[Connections], Awaitable[None]]) -> None:
    listening = await asyncio.start_server(server.talk, "127.0.0.1", 0)
    async with listening:
        connections = Connections("http://{}:{}/proxied".format(*listening.sockets[0].getsockname()), None, None, 5.0)
        try:
            await test(connections)
        finally:
            await connections.close()


async def get(connections: Connections, method: str = "GET", limit: float = 10.0) -> tuple[int, bytes]:
    status, _, body = await connections.request(method, "/x", [("Accept", "a")], None, limit)
    return status, body


async def test_many_at_once_share_few_connections_and_each_gets_its_own_answer() -> None:
    async def echo(_: int, head: bytes) -> bytes:
        target = head.split(b" ")[1]
        return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(target), target)

    server = Server(echo)

    async def test(connections: Connections) -> None:
        async def worker(name: int) -> None:
            for turn in range(30):
                answer = await connections.request("GET", f"/{name}/{turn}", [], None, 10.0)
                assert answer[2] == f"/proxied/{name}/{turn}".encode()

        await asyncio.gather(*(worker(name) for name in range(8)))

    await using(server, test)
    assert server.connections <= 8


@pytest.mark.parametrize(("method", "again"), [("GET", True), ("PATCH", False), ("POST", False)])
async def test_what_meets_a_closing_connection_is_sent_again_only_if_that_is_harmless(method: str, again: bool) -> None:
    async def once_each(_: int, head: bytes) -> bytes | None:
        return OK if head.startswith(b"PUT") or len(server.requests) > 2 else None

    server = Server(once_each)

    async def test(connections: Connections) -> None:
        assert await get(connections, "PUT") == (200, b"ok")
        if again:
            assert await get(connections, method) == (200, b"ok")
        else:
            with pytest.raises(BrokenError):
                await get(connections, method)

    await using(server, test)
    assert len(server.requests) == (3 if again else 2)


async def test_a_body_may_end_with_its_connection() -> None:
    async def until_the_end(_: int, _head: bytes) -> bytes:
        return b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nall of it"

    async def test(connections: Connections) -> None:
        assert await get(connections) == (200, b"all of it")
        assert await get(connections) == (200, b"all of it")

    await using(Server(until_the_end), test)


async def test_what_is_announced_is_no_answer() -> None:
    async def announced(_: int, _head: bytes) -> bytes:
        return b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + OK

    async def test(connections: Connections) -> None:
        assert await get(connections) == (200, b"ok")

    await using(Server(announced), test)


async def test_who_stops_waiting_gives_the_connection_up() -> None:
    async def never(_: int, _head: bytes) -> bytes:
        await asyncio.Event().wait()
        raise AssertionError

    async def test(connections: Connections) -> None:
        with pytest.raises(TimeoutError):
            await get(connections, limit=0.02)
        waiting = asyncio.ensure_future(get(connections))
        while server.connections < 2:
            await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        server.answer = answered
        assert await get(connections) == (200, b"ok")

    async def answered(_: int, _head: bytes) -> bytes:
        return OK

    server = Server(never)
    await using(server, test)
    assert server.connections == 3


async def test_a_line_break_never_gets_into_the_head() -> None:
    async def never(_: int, _head: bytes) -> bytes:
        raise AssertionError

    async def test(connections: Connections) -> None:
        with pytest.raises(ValueError, match="line break"):
            await connections.request("GET", "/x", [("A", "b\r\nC: d")], None, 1.0)

    await using(Server(never), test)
