"""A replica of the manager: its real parts, with a given clock, seed and connection.

The two processes of a replica (admission and reconciling) are two groups of tasks. Killing one cancels its tasks at
their current await, and their later requests are not sent. The shared values survive, as they do in the supervisor's
memory.
"""

from __future__ import annotations

import asyncio
import logging
import tempfile
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import orjson

from app.certs.tls import ServingContext
from app.kube.client import Client
from app.kube.clock import Clock
from app.kube.leases import LeadershipLost
from app.manager.admission import Admission, Listeners
from app.manager.flags import parse_flags
from app.manager.process import CHECK_SECONDS, Part, Process
from app.manager.reconciler import Reconciler
from app.manager.serving import StartError
from app.manager.settings import Settings, read_settings
from app.manager.shared_state import Certificate, Replica, SharedValue
from tests.kit.asgi import posted
from tests.simulation.faults import FaultyTransport
from tests.simulation.streams import RandomByTask, Streams

logger = logging.getLogger(__name__)

T = TypeVar("T")
WEBHOOK, RECONCILER = "webhook-0", "reconciler"
ENVIRONMENT = {"POD_NAMESPACE": "kruise-system"}


class _Socket:
    def getsockname(self) -> tuple[str, int]:
        return ("127.0.0.1", 9443)


class SimulatedAdmission(Admission):
    """Admission without a socket: the simulation calls the ASGI application."""

    def listen(self, context: ServingContext) -> None:
        pass

    async def wait_for_check(self) -> None:
        """Wait like the real process, but skip checks that find nothing, which would take a tenth of a run."""
        board, clock = cast("_HeardBoard[Certificate]", self._process.replica.certificate), self._process.clock
        began = clock.monotonic()
        while board.version == self._certificate_seen:
            await board.written.wait()
        passed = clock.monotonic() - began
        await clock.sleep(CHECK_SECONDS * (1 + passed // CHECK_SECONDS) - passed)


class _HeardBoard(SharedValue[T]):
    """A shared value that signals writes, since all readers are in one process."""

    def __init__(self, kind: type[T], size: int) -> None:
        super().__init__(kind, size)
        self.written = asyncio.Event()

    def write(self, value: T) -> None:
        super().write(value)
        self.written.set()
        self.written.clear()


class _Process(Process):
    """A process that leaves the garbage collector alone."""

    def freeze(self) -> None:
        pass


class ServedCertificate(_HeardBoard[Certificate]):
    """The certificate that listeners serve; ``told`` is called whenever it changes."""

    def __init__(self, told: Callable[[], None]) -> None:
        super().__init__(Certificate, 2**20)
        self._told = told

    def write(self, value: Certificate) -> None:
        super().write(value)
        self._told()


class SimulatedProcess:
    """One process of a replica, restarted some time after it dies."""

    def __init__(self, name: str, replica: SimulatedReplica) -> None:
        self.name = name
        self.process: Process | None = None
        self.part: Part | None = None
        self._replica = replica
        self.transport: FaultyTransport | None = None
        self._life: asyncio.Task[None] | None = None

    @property
    def alive(self) -> bool:
        return self._life is not None

    @property
    def identity(self) -> str:
        """Return the process's identity in leader election; empty while it is dead."""
        elector = getattr(self.part, "_elector", None) if self._life is not None else None
        return elector.identity if elector is not None else ""

    def kill(self, when: str) -> None:
        if self._life is None:
            return
        logger.info("killing %s/%s %s", self._replica.name, self.name, when)
        life, self._life = self._life, None
        if self.transport is not None:
            self.transport.dead = True
        life.cancel()

    def stop(self) -> None:
        """Stop gracefully: the last requests still reach the API server."""
        if self.process is not None:
            self.process.stop.set()

    async def run(self) -> None:
        replica = self._replica
        while True:
            self._life = life = asyncio.create_task(self._live(), name=f"{replica.name}/{self.name}")
            try:
                await asyncio.wait({life})
            finally:
                life.cancel()
            self.process = self.part = None
            if not life.cancelled() and (error := life.exception()) is not None:
                replica.report_end(self.name, error)
            await replica.clock.sleep(replica.streams(f"{self.name} starts").choice((0.1, 1.0, 15.0)))

    async def _live(self) -> None:
        replica = self._replica
        self.transport = transport = replica.connect(self.name, lambda when: self.kill(when))
        process = _Process(
            self.name,
            replica.shared,
            replica.settings,
            ENVIRONMENT,
            self._parts,
            clock=replica.clock,
            rng=RandomByTask(f"{self.name} {replica.streams(self.name).random()}"),
        )
        self.process = process
        process.need("start", "starting")
        try:
            await process.work(Client(transport, replica.clock))
            process.tasks.raise_failure()
        finally:
            for task in process.tasks.all:
                task.cancel()
            await asyncio.gather(*process.tasks.all, return_exceptions=True)
            transport.dead = True

    def _parts(self, process: Process) -> Sequence[Part]:
        if self.name == WEBHOOK:
            listeners = Listeners(cast("Any", _Socket()), None, None)
            self.part = SimulatedAdmission(process, listeners, (WEBHOOK,), RECONCILER)
        else:
            self.part = Reconciler(process, process.settings.endpoint(9443), (WEBHOOK,))
        return (self.part,)


class SimulatedReplica:
    """Both processes of one replica. ``connect`` makes the faulty connection of a process, given a function that
    kills it; ``serves`` is called after each change of the certificate."""

    def __init__(
        self,
        name: str,
        clock: Clock,
        streams: Streams,
        connect: Callable[[str, Callable[[str], None]], FaultyTransport],
        gates: str = "",
        *,
        serves: Callable[[], None] = lambda: None,
    ) -> None:
        self.name = name
        self.clock = clock
        self.streams = streams
        self.connect = connect
        self.settings: Settings = read_settings(parse_flags([*FLAGS, f"{GATES}{gates}"]), ENVIRONMENT)
        self.shared = Replica((WEBHOOK, RECONCILER))
        self.shared.certificate = ServedCertificate(serves)
        self.webhook = SimulatedProcess(WEBHOOK, self)
        self.reconciler = SimulatedProcess(RECONCILER, self)

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self.webhook.run())
                tasks.create_task(self.reconciler.run())
        finally:
            self.shared.close()

    @property
    def leads(self) -> bool:
        """Return whether the replica believes that it holds the Lease. A dead process does not."""
        return self.reconciler.alive and self.shared.state(RECONCILER).leading

    @property
    def answers(self) -> bool:
        process = self.webhook.process
        return process is not None and self.shared.state(WEBHOOK).ready

    async def review(self, path: str, body: bytes) -> tuple[int, bytes]:
        """Return the status and body of the answer to a review. Raises OSError if the replica is dead or dies."""
        part = self.webhook.part
        if not isinstance(part, Admission):
            raise ConnectionRefusedError
        status, answer = await posted(part.app, path, body)
        if self.webhook.part is not part:
            raise ConnectionResetError
        return status, answer

    def report_end(self, process: str, error: BaseException) -> None:
        """Log the end of a process. Only a lost Lease or a start error may end one."""
        logger.info("%s/%s ended: %r", self.name, process, error)
        if not isinstance(error, LeadershipLost | StartError):
            logger.error("%s/%s failed", self.name, process, exc_info=error)


FLAGS = (
    "--enable-leader-election=true",
    "--leader-election-retry-period=4s",
    "--certificate-rotation-step=180s",
    f"--protection-log-path={tempfile.gettempdir()}",  # not standard output
)
GATES = "--feature-gates=PodWebhook=true"


def parsed(body: bytes) -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads(body)
    return found
