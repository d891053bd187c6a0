"""Counts: a process's metrics on its shared memory, and those of all processes of a replica as one text.

Every process writes every few seconds, so that little is lost with it, and when it is asked to, so that a scrape is
fresh. What was scraped is written down, so nobody sees a counter go back.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import Final

from prometheus_client import CollectorRegistry

from app.manager.exposition import Family, continued, families, merged, text
from app.manager.shared import Details, Life, Replica

logger = logging.getLogger(__name__)

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


#: How long a scrape waits for processes that are busy, stopped or gone.
GATHER_SECONDS: Final = 0.25
_LOOK_SECONDS: Final = 0.005


class Counts:
    """One process's view. What its predecessor in the same place counted is added: no counter goes back."""

    def __init__(self, replica: Replica, name: str, registry: CollectorRegistry) -> None:
        self._replica = replica
        self._name = name
        self._registry = registry
        before = replica.details[name].read()
        self._predecessor: list[Family] = before.families if before is not None else []
        self._debug: dict[str, list[str]] = {}

    def publish(self, debug: Mapping[str, list[str]]) -> None:
        """Show the others what was counted until now, and the lines of the debug pages."""
        self._debug = dict(debug)
        self._write(self._own())

    def _write(self, own: list[Family]) -> None:
        try:
            self._replica.details[self._name].write(Details(own, self._debug))
        except ValueError as error:
            logger.error("%s: metrics and debug pages are not shown: %s", self._name, error)  # noqa: TRY400

    async def gather(self) -> None:
        """Let the other processes write what they have now; who does not in time is shown as it was last."""
        before = {name: shared.version for name, shared in self._replica.details.items() if name != self._name}
        for name in before:
            self._replica.request_publication(name)
        deadline = time.monotonic() + GATHER_SECONDS
        while time.monotonic() < deadline:
            if all(self._replica.details[name].version != version for name, version in before.items()):
                return
            await asyncio.sleep(_LOOK_SECONDS)

    async def exposition(self) -> bytes:
        """The metrics of the replica as Prometheus scrapes them."""
        await self.gather()
        found: dict[str, list[Family]] = {}
        for name, shared in self._replica.details.items():
            details = shared.read()
            if name == self._name:
                found[name] = self._own()
                self._write(found[name])  # what was scraped once outlives us, so that no counter goes back
            elif details is not None:
                found[name] = details.families
        return text([*merged(found), *of_supervisor(self._replica)])

    def _own(self) -> list[Family]:
        return continued(families(self._registry), self._predecessor)


def of_supervisor(replica: Replica) -> list[Family]:
    """What the supervisor knows of the processes of its replica."""
    lives = [({"process": name}, shared.read() or Life()) for name, shared in replica.lives.items()]
    return [
        Family(
            "kruise_process_restarts",
            "How often a process was started again.",
            "counter",
            [("kruise_process_restarts_total", labels, life.restarts) for labels, life in lives],
        ),
        Family(
            "kruise_process_hangs",
            "How often a process gave no sign of life and was ended.",
            "counter",
            [("kruise_process_hangs_total", labels, life.hangs) for labels, life in lives],
        ),
        Family(
            "kruise_process_failing_seconds",
            "For how long a process has been ending again and again without getting going; 0 while it is well.",
            "gauge",
            [("kruise_process_failing_seconds", labels, life.failing_seconds(time.time())) for labels, life in lives],
        ),
    ]
