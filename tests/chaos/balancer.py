"""Acts as a Service for replicas on this machine: `python -m tests.chaos.balancer PORT HOST:PORT:HEALTH_PORT …`.

New connections are distributed over the ready replicas in turn, as kube-proxy does. A replica gets no new connections
once it reports that it is stopping, like a terminating Pod, or after FAILURES failed probes. Open connections are kept.
"""

import asyncio
import contextlib
import sys
from dataclasses import dataclass

import uvloop

LOOK_SECONDS = 0.5
FAILURES = 3


@dataclass
class Endpoint:
    host: str
    port: int
    health_port: int
    ready: bool = False
    failures: int = 0

    async def look(self) -> None:
        """Check readiness repeatedly, as long as the balancer runs."""
        while True:
            try:
                async with asyncio.timeout(2):
                    self._heard(await self._readiness())
            except (OSError, TimeoutError) as error:
                self._heard(repr(error).encode())
            await asyncio.sleep(LOOK_SECONDS)

    def _heard(self, answer: bytes) -> None:
        before = self.ready
        self.failures = 0 if b" 200 " in answer else self.failures + 1
        self.ready = not self.failures or (before and self.failures < FAILURES and b"shutting down" not in answer)
        if self.ready != before:
            print(f"{self.host}: {'ready' if self.ready else 'not ready'}: {answer[-200:]!r}", flush=True)

    async def _readiness(self) -> bytes:
        reader, writer = await asyncio.open_connection(self.host, self.health_port)
        try:
            writer.write(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            return await reader.read()
        finally:
            writer.close()


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError, RuntimeError):  # uvloop raises RuntimeError for a closed connection
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
        except (OSError, ZeroDivisionError) as error:
            print(f"connection failed: {error!r}", flush=True)
            writer.close()
            return
        await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer))

    async with await asyncio.start_server(connect, "127.0.0.1", port) as server:
        await server.serve_forever()
    await asyncio.gather(*looking)


if __name__ == "__main__":
    places = [argument.split(":") for argument in sys.argv[2:]]
    uvloop.run(main(int(sys.argv[1]), [Endpoint(host, int(port), int(health)) for host, port, health in places]))
