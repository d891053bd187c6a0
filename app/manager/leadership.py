"""Leadership: of several replicas one reconciles, and all of them answer reviews (MGR-22).

Where one process does everything, who loses the Lease stops reconciling, goes on answering, and stands for election
again. Where reconciling has a process of its own, that ends, and a new one stands for election: nothing of the old term
can live on in it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from app.kube.leases import LeaderElector, LeadershipLost

logger = logging.getLogger(__name__)


class Work(Protocol):
    """A controller: runs until stopped, and finishes what is ready first."""

    async def run(self) -> None: ...
    def stop(self) -> None: ...


class Reconciling:
    """Runs controllers, made anew for each term of leadership; always, where there is no ``elector``.

    ``took_over`` is told when a term begins. With ``one_term`` a lost Lease is raised as ``LeadershipLost``.
    """

    def __init__(
        self,
        make: Callable[[], Sequence[Work]],
        elector: LeaderElector | None,
        took_over: Callable[[], None] = lambda: None,
        *,
        one_term: bool = False,
    ) -> None:
        self._make = make
        self._elector = elector
        self._took_over = took_over
        self._one_term = one_term
        self._stopping = asyncio.Event()
        self._at_work: Sequence[Work] = ()

    async def run(self) -> None:
        """Reconcile while leading, until ``stop``; the Lease is given back when the work has ended."""
        while not self._stopping.is_set():
            try:
                await (self._term() if self._elector is None else self._stand(self._elector))
            except LeadershipLost as lost:
                if self._one_term:
                    raise
                logger.warning("no longer leading, reviews are answered as before: %s", lost)

    def stop(self) -> None:
        """Take no more work; ``run`` returns when the rest is done."""
        self._stopping.set()
        for controller in self._at_work:
            controller.stop()

    async def _stand(self, elector: LeaderElector) -> None:
        candidacy = asyncio.create_task(elector.run(self._term), name="candidacy")
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait({candidacy, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if candidacy.done() or elector.leading:
                await candidacy
        finally:
            for task in (candidacy, stopping):
                task.cancel()
            await asyncio.gather(candidacy, stopping, return_exceptions=True)

    async def _term(self) -> None:
        self._took_over()
        self._at_work = controllers = self._make()
        if self._stopping.is_set():
            return
        try:
            async with asyncio.TaskGroup() as tasks:
                for controller in controllers:
                    tasks.create_task(_patiently(controller))
        finally:
            self._at_work = ()


async def _patiently(controller: Work) -> None:
    """A controller whose caches are not filled (a right is missing) waits on, and is no reason to stop the others."""
    while True:
        try:
            return await controller.run()
        except TimeoutError as error:
            logger.error("%s: waiting on", error)  # noqa: TRY400 - it says all there is
