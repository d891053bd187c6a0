"""Creates Pods at a constant rate and records their outcomes: with or without the sidecar, refused, or no answer."""

import asyncio
import json
import ssl
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise

from aiohttp import ClientError, ClientSession, ClientTimeout, TCPConnector

from tests.cluster.controlplane import ControlPlane

NAMESPACE = "default"
SIDECAR = "s-shipper"


class Outcome(StrEnum):
    INJECTED = "injected"
    WITHOUT_SIDECAR = "without sidecar"
    REFUSED = "refused"
    NO_API_SERVER = "no API server"


@dataclass(frozen=True, slots=True)
class Creation:
    """One attempt: the monotonic time of the answer, the duration and the outcome."""

    at: float
    seconds: float
    outcome: Outcome
    message: str = ""


@dataclass
class Creations:
    attempts: list[Creation] = field(default_factory=list)

    def count(self, outcome: Outcome) -> int:
        return sum(one.outcome is outcome for one in self.attempts)

    def longest_gap(self) -> float:
        """Return the longest time between two successful creations, in seconds."""
        good = sorted(one.at for one in self.attempts if one.outcome is Outcome.INJECTED)
        return max((after - before for before, after in pairwise(good)), default=float("inf"))

    def trouble_seconds(self) -> float:
        """Return the seconds from the first failed attempt to the last."""
        bad = [one.at for one in self.attempts if one.outcome is not Outcome.INJECTED]
        return max(bad) - min(bad) if bad else 0.0

    def p99(self) -> float:
        taken = sorted(one.seconds for one in self.attempts if one.outcome is Outcome.INJECTED)
        return taken[int(len(taken) * 0.99)] if taken else 0.0

    def messages(self) -> Counter[str]:
        return Counter(one.message[:200] for one in self.attempts if one.message)


def _pod(name: str) -> bytes:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "main", "image": "nginx:1.25"}]},
    }
    return json.dumps(pod).encode()


class _Creator:
    def __init__(self, control_plane: ControlPlane, rate: int, sidecar: str, *, delete: bool, dry_run: bool) -> None:
        self._url = f"{control_plane.server}/api/v1/namespaces/{NAMESPACE}/pods"
        self._query = "?dryRun=All" if dry_run else ""
        self._sidecar = sidecar
        self._headers = {"Authorization": f"Bearer {control_plane.token}", "Content-Type": "application/json"}
        self._tls = ssl.create_default_context(cafile=str(control_plane.ca_file))
        self._rate = rate
        self._delete = delete and not dry_run
        self.stop = threading.Event()
        self.creations = Creations()

    def run(self) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:
        connector, limit = TCPConnector(ssl=self._tls, limit=0), ClientTimeout(total=40)
        async with ClientSession(headers=self._headers, connector=connector, timeout=limit) as session:
            began, number = time.monotonic(), 0
            async with asyncio.TaskGroup() as tasks:
                while not self.stop.is_set():
                    tasks.create_task(self._one(session, f"load-{began:.0f}-{number}"))
                    number += 1
                    await asyncio.sleep(max(0.0, began + number / self._rate - time.monotonic()))

    async def _one(self, session: ClientSession, name: str) -> None:
        began = time.monotonic()
        outcome, message = await self._create(session, name)
        now = time.monotonic()
        self.creations.attempts.append(Creation(now, now - began, outcome, message))
        if outcome is Outcome.INJECTED and self._delete:
            try:
                async with session.delete(f"{self._url}/{name}?gracePeriodSeconds=0") as answer:
                    await answer.read()
            except (ClientError, OSError, TimeoutError):
                return  # the API server is down; a leftover Pod does no harm

    async def _create(self, session: ClientSession, name: str) -> tuple[Outcome, str]:
        try:
            async with session.post(self._url + self._query, data=_pod(name)) as answer:
                body = await answer.json(content_type=None)
        except (ClientError, OSError, TimeoutError, ValueError) as error:
            return Outcome.NO_API_SERVER, type(error).__name__
        if answer.status == 201:
            names = [container["name"] for container in body["spec"]["containers"]]
            return (Outcome.INJECTED if self._sidecar in names else Outcome.WITHOUT_SIDECAR), ""
        message = str(body.get("message", body) if isinstance(body, dict) else body)
        return (Outcome.REFUSED if "webhook" in message else Outcome.NO_API_SERVER), message


@contextmanager
def pod_creations(
    control_plane: ControlPlane, rate: int = 50, *, sidecar: str = SIDECAR, delete: bool = True, dry_run: bool = False
) -> Iterator[Creations]:
    """Run the load inside the context; the result is complete afterwards. With ``dry_run``, nothing is stored."""
    creator = _Creator(control_plane, rate, sidecar, delete=delete, dry_run=dry_run)
    thread = threading.Thread(target=creator.run, name="load")
    thread.start()
    try:
        yield creator.creations
    finally:
        creator.stop.set()
        thread.join()
