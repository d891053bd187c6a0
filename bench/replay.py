"""Proxy an API server and add synthetic Pods: ``python -m bench.replay --server … --ca … --pods 10000``.

Forwards all requests to a real API server except watches of all Pods. These return synthetic Pods of 7.8 kB, whose
readiness changes at the rate set by ``POST /replay?rate=N``. A manager can thus cache ten thousand Pods, and be kept
busy, on a machine that could not run them. Prints its port.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import uvloop
from aiohttp import ClientSession, ClientTimeout, TCPConnector, web

from bench.podsample import pod_json
from tests.cluster.controlplane import ControlPlane

ROOT = Path(__file__).resolve().parent.parent
#: Batches of changes sent per second, similar to a busy API server's watch cache.
PORTIONS = 50
_HOP = frozenset(("host", "connection", "transfer-encoding", "content-length", "content-encoding", "accept-encoding"))


class _Replay:
    """The synthetic Pods, each in two versions: ready and not ready."""

    def __init__(self, pods: int) -> None:
        ready = [pod_json(number, number + 1) for number in range(pods)]
        unready = [_unready(raw, number + 1, pods + number + 1) for number, raw in enumerate(ready)]
        self._count = pods
        self._added = [b'{"type":"ADDED","object":%s}\n' % raw for raw in ready]
        self._changes = [b'{"type":"MODIFIED","object":%s}\n' % raw for raw in (*unready, *ready)]
        self.rate = 0
        self.sent = 0

    async def watch(self, request: web.Request, response: web.StreamResponse) -> None:
        """Send all Pods, a bookmark, then changes until the client disconnects."""
        await response.prepare(request)
        if "sendInitialEvents" in request.query:
            for begin in range(0, self._count, 100):
                await response.write(b"".join(self._added[begin : begin + 100]))
            end = {"k8s.io/initial-events-end": "true"}
            await response.write(_bookmark(self._count or 1, end))
        position, owed = 0, 0.0
        while True:
            began = time.perf_counter()
            if self._changes:
                owed += self.rate / PORTIONS
                number = int(owed)
                owed -= number
                if number:
                    await response.write(b"".join(self._next(position, number)))
                    position = (position + number) % len(self._changes)
                    self.sent += number
            await asyncio.sleep(max(0.001, began + 1 / PORTIONS - time.perf_counter()) if self.rate else 0.2)

    def _next(self, position: int, number: int) -> list[bytes]:
        found = self._changes[position : position + number]
        return found if len(found) == number else found + self._changes[: number - len(found)]


def _bookmark(version: int, annotations: dict[str, str]) -> bytes:
    metadata = {"resourceVersion": str(version), "annotations": annotations}
    event = {"type": "BOOKMARK", "object": {"kind": "Pod", "apiVersion": "v1", "metadata": metadata}}
    return json.dumps(event).encode() + b"\n"


def _unready(raw: bytes, version: int, new_version: int) -> bytes:
    changed = raw.replace(b'"resourceVersion":"%d"' % version, b'"resourceVersion":"%d"' % new_version, 1)
    for kind in (b"Ready", b"ContainersReady"):
        changed = changed.replace(b'"status":"True","type":"%s"' % kind, b'"status":"False","type":"%s"' % kind, 1)
    return changed


async def _serve(options: argparse.Namespace) -> None:
    replay = _Replay(options.pods)
    tls = ssl.create_default_context(cafile=options.ca)
    connector = TCPConnector(ssl=tls, limit=0)
    async with ClientSession(connector=connector, timeout=ClientTimeout(total=None), auto_decompress=False) as session:

        async def pass_on(request: web.Request) -> web.StreamResponse:
            headers = {name: value for name, value in request.headers.items() if name.lower() not in _HOP}
            body = await request.read()
            url = options.server + request.raw_path
            response = web.StreamResponse()
            # Clients disconnect at the end of a benchmark.
            with contextlib.suppress(ConnectionError):
                async with session.request(request.method, url, headers=headers, data=body or None) as answer:
                    response.set_status(answer.status)
                    response.content_type = answer.content_type
                    await response.prepare(request)
                    async for chunk in answer.content.iter_any():
                        await response.write(chunk)
            return response

        async def pods(request: web.Request) -> web.StreamResponse:
            if "watch" not in request.query:
                return await pass_on(request)
            response = web.StreamResponse(headers={"Content-Type": "application/json"})
            with contextlib.suppress(ConnectionError):
                await replay.watch(request, response)
            return response

        async def steer(request: web.Request) -> web.Response:
            replay.rate = int(request.query.get("rate", replay.rate))
            return web.json_response({"sent": replay.sent})

        app = web.Application(client_max_size=2**26)
        app.router.add_get("/api/v1/pods", pods)
        app.router.add_post("/replay", steer)
        app.router.add_route("*", "/{path:.*}", pass_on)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        print(runner.addresses[0][1], flush=True)
        await asyncio.Event().wait()


@dataclass(frozen=True, slots=True)
class Front:
    """The proxy with synthetic Pods. ``server`` is its URL."""

    server: str

    def replay(self, rate: int) -> int:
        """Set the rate of changes per second. Returns the number of changes sent so far."""
        request = urllib.request.Request(f"{self.server}/replay?rate={rate}", method="POST")
        with urllib.request.urlopen(request, timeout=10) as answer:
            return int(json.load(answer)["sent"])


@contextmanager
def front(control_plane: ControlPlane, pods: int) -> Iterator[Front]:
    """Run the proxy for a control plane in its own process inside the context."""
    command = [sys.executable, "-m", "bench.replay", f"--server={control_plane.server}"]
    command += [f"--ca={control_plane.ca_file}", f"--pods={pods}"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield Front(f"http://127.0.0.1:{int(process.stdout.readline())}")
    finally:
        process.terminate()
        process.wait(10)


def command() -> None:
    """Serve until terminated."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", required=True, help="URL of the real API server")
    parser.add_argument("--ca", required=True, help="its certificate authority")
    parser.add_argument("--pods", type=int, default=10_000)
    uvloop.run(_serve(parser.parse_args()))


if __name__ == "__main__":
    command()
