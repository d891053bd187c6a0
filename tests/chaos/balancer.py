"""What a Service does, for replicas on this machine: `python -m tests.chaos.balancer PORT HOST:PORT:HEALTH_PORT …`.

Connections go in turn to the replicas whose `/readyz` said yes when it was last asked, as kube-proxy sends them to
ready endpoints; a replica that is gone is noticed by the next look and not before. Connections stay where they are.
"""

import asyncio
import contextlib
import sys
from dataclasses import dataclass

import uvloop

LOOK_SECONDS = 0.5


@dataclass
class Endpoint:
    host: str
    port: int
    health_port: int
    ready: bool = False

    async def look(self) -> None:
        """Ask whether it is ready, for as long as the balancer lives."""
        while True:
            try:
                async with asyncio.timeout(2):
                    self.ready = await self._says_ready()
            except (OSError, TimeoutError):
                self.ready = False
            await asyncio.sleep(LOOK_SECONDS)

    async def _says_ready(self) -> bool:
        reader, writer = await asyncio.open_connection(self.host, self.health_port)
        try:
            writer.write(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            return b" 200 " in await reader.readline()
        finally:
            writer.close()


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError, RuntimeError):  # RuntimeError: uvloop's word for a connection that is gone
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    with contextlib.suppress(OSError, RuntimeError):
        writer.close()


async def main(port: int, endpoints: list[Endpoint]) -> None:
    turn = 0
    looking = [asyncio.create_task(endpoint.look()) for endpoint in endpoints]

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal turn
        ready = [endpoint for endpoint in endpoints if endpoint.ready]
        turn += 1
        try:
            chosen = ready[turn % len(ready)]
            far_reader, far_writer = await asyncio.open_connection(chosen.host, chosen.port)
        except (OSError, ZeroDivisionError):
            writer.close()
            return
        await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer))

    async with await asyncio.start_server(connect, "127.0.0.1", port) as server:
        await server.serve_forever()
    await asyncio.gather(*looking)


if __name__ == "__main__":
    places = [argument.split(":") for argument in sys.argv[2:]]
    uvloop.run(main(int(sys.argv[1]), [Endpoint(host, int(port), int(health)) for host, port, health in places]))
