"""Measure how strangers at the webhook port slow down others: ``python -m bench.strangers [--seconds 15]``.

Pods are created one by one on a real API server, with and without strangers that post forged SidecarSet reviews as fast
as they are answered. The API server connects from 127.0.0.1, the strangers from 127.0.0.2. All run on this machine;
``--pace`` makes each stranger pause between two reviews.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import ssl
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from pathlib import Path
from statistics import median
from urllib.parse import urlsplit

import orjson

from bench.admission import sidecarset
from tests.cluster.controlplane import ControlPlane
from tests.scenarios.world import eventually, manager

NAMES = 100
PODS = "/api/v1/namespaces/default/pods"
_PATH = "/validate-apps-kruise-io-sidecarset"


def forged(number: int) -> bytes:
    """Return an HTTP request with a forged review of a new SidecarSet."""
    name = f"forged-{number % NAMES}"
    metadata = {"name": name, "uid": str(uuid.uuid4()), "generation": 1}
    set_ = {**sidecarset(name, name), "metadata": metadata}
    kind = {"group": "apps.kruise.io", "version": "v1beta1", "kind": "SidecarSet"}
    resource = {"group": "apps.kruise.io", "version": "v1beta1", "resource": "sidecarsets"}
    request = {"uid": "u", "kind": kind, "resource": resource, "name": name, "operation": "CREATE", "object": set_}
    body = orjson.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})
    head = f"POST {_PATH} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def _stranger(host: str, port: int, number: int, pace: float, answers: Counter[str]) -> None:
    tls = ssl._create_unverified_context()
    while True:
        try:
            reader, writer = await asyncio.open_connection(host, port, ssl=tls, local_addr=("127.0.0.2", 0))
            while True:
                number += 1
                writer.write(forged(number))
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
                body = await reader.readexactly(length)
                answers["allowed" if b'"allowed":true' in body else head[9:12].decode()] += 1
                await asyncio.sleep(pace)
        except (OSError, EOFError, ValueError):
            answers["connection ended"] += 1
            await asyncio.sleep(0.05)


async def attack(url: str, connections: int, pace: float) -> None:
    """Post forged reviews until standard input is closed, then count the responses by result."""
    host, port = urlsplit(url).hostname or "", urlsplit(url).port or 0
    answers: Counter[str] = Counter()
    tasks = [asyncio.create_task(_stranger(host, port, number, pace, answers)) for number in range(connections)]
    await asyncio.to_thread(sys.stdin.read)
    for task in tasks:
        task.cancel()
    print(dict(answers))


def created(api: ControlPlane, seconds: float, prefix: str) -> tuple[list[float], Counter[int], int]:
    """Create Pods. Returns the milliseconds of each creation, the HTTP statuses, and how many Pods have sidecars."""
    where = urlsplit(api.server)
    connection = http.client.HTTPSConnection(
        where.hostname or "", where.port, context=ssl.create_default_context(cafile=str(api.ca_file)), timeout=60
    )
    headers = {"Authorization": f"Bearer {api.token}", "Content-Type": "application/json"}
    took: list[float] = []
    statuses: Counter[int] = Counter()
    injected = number = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        number += 1
        pod = {
            "metadata": {"name": f"{prefix}-{number}", "labels": {"app": "web"}},
            "spec": {"containers": [{"name": "main", "image": "nginx:1"}]},
        }
        start = time.perf_counter()
        connection.request("POST", PODS, orjson.dumps(pod), headers)
        answer = connection.getresponse()
        body = answer.read()
        took.append((time.perf_counter() - start) * 1000)
        statuses[answer.status] += 1
        injected += b'"s-shipper"' in body
        time.sleep(0.02)
    connection.request("DELETE", PODS, orjson.dumps({"gracePeriodSeconds": 0}), headers)
    connection.getresponse().read()
    return took, statuses, injected


def main() -> None:
    """Run the benchmark and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--connections", type=int, default=24)
    parser.add_argument("--pace", type=float, default=0, help="milliseconds between two reviews of a connection")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--attack", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.attack:
        asyncio.run(attack(options.attack, options.connections, options.pace / 1000))
        return
    print("| strangers | Pods | p50 ms | p90 ms | longest ms | statuses | injected |\n|---|---|---|---|---|---|---|")
    with ControlPlane() as api, tempfile.TemporaryDirectory() as folder, manager(api, Path(folder)) as addresses:
        assert api.request("POST", "/apis/apps.kruise.io/v1beta1/sidecarsets", sidecarset("s", "web"))[0] == 201
        account = "/api/v1/namespaces/default/serviceaccounts/default"
        eventually(lambda: api.request("GET", account)[0] == 200, "Pods can be created", 30)
        created(api, 3, "warm")
        for number in range(options.rounds):
            row("none", *created(api, options.seconds, f"calm-{number}"))
            command = [sys.executable, "-m", "bench.strangers", "--attack", addresses["webhook"]]
            command += ["--connections", str(options.connections), "--pace", str(options.pace)]
            with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as strangers:
                time.sleep(2)
                row(f"{options.connections}", *created(api, options.seconds, f"busy-{number}"))
                said, _ = strangers.communicate()
            print(f"<!-- strangers' answers: {said.strip()} -->", flush=True)


def row(strangers: str, took: list[float], statuses: Counter[int], injected: int) -> None:
    """Print one row of the table."""
    ordered = sorted(took)
    print(
        f"| {strangers} | {len(took)} | {median(took):.1f} | {ordered[int(len(took) * 0.9)]:.1f} | {ordered[-1]:.0f} "
        f"| {dict(statuses)} | {injected} |",
        flush=True,
    )


if __name__ == "__main__":
    main()
