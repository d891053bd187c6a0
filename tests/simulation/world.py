"""One run: a control plane in memory, three nodes, replicas of the manager, and a script, all in virtual time.

The subject (``workloads``) provides the kinds and their judges; this module depends on no kind.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from functools import cache, partial
from random import Random
from typing import Any

from app.api.crd import manifest
from app.kube.client import Client
from app.kube.resources import CUSTOMRESOURCEDEFINITIONS, NAMESPACES
from app.kube.wire import Request
from app.manager.features import kinds
from app.sandbox.apiserver.server import ApiServer
from app.sandbox.kubelet.program import Pace
from app.sandbox.nodes import Nodes, simulated_nodes
from tests.kit.virtualtime import run as run_virtually
from tests.simulation import invariants, passes
from tests.simulation.checks import Checks
from tests.simulation.clocks import WallClock
from tests.simulation.faults import (
    CALM,
    CUT_OFF,
    SQUALL,
    TIMEOUT_SECONDS,
    CountingTransport,
    FaultyTransport,
    Weather,
    weather,
)
from tests.simulation.history import History
from tests.simulation.hooks import Hooks
from tests.simulation.incidents import Focus, Incident
from tests.simulation.keys import keys_by_seed
from tests.simulation.listed import listed
from tests.simulation.plan import Plan
from tests.simulation.process import errors_logged, no_collector
from tests.simulation.replicas import WEBHOOK, SimulatedReplica
from tests.simulation.rest import Rest
from tests.simulation.runs import Outcome, Run
from tests.simulation.script import NAMESPACE, Action
from tests.simulation.streams import RandomByTask, Streams
from tests.simulation.users import SYSTEM, Users
from tests.simulation.versions import AttentiveTransport
from tests.simulation.volumes import Volumes
from tests.simulation.workloads import SUBJECTS
from tests.simulation.workloads.judge import Review
from tests.simulation.workloads.subject import RunContext

Json = dict[str, Any]

SERVICE = "kruise-webhook-service.kruise-system"
MANAGER = "system:serviceaccount:kruise-system:kruise-manager"
NODE_AGENT = "system:serviceaccount:kruise-system:kruise-daemon"
#: Seconds within which everything must settle after the last action.
REST_SECONDS = 480.0
#: Seconds within which a change of the CA must complete.
ROTATION_SECONDS = 900.0
#: Seconds at the end during which nothing may be written.
QUIET_SECONDS = 130.0
#: How long a status may be wrong without faults, while caches fill and failures are retried.
LAG_SECONDS = 30.0


def simulate(run: Run, *, replicas: int | None = None, to_first: bool = False) -> Outcome:
    """Simulate a run in virtual time, up to the first violation if ``to_first``."""
    with (
        listed(SUBJECTS[run.about].folders),
        keys_by_seed(run.seed),
        errors_logged() as errors,
        no_collector(),
        passes.observed(),
    ):
        began = time.process_time()
        world = World(run, errors, run.replicas if replicas is None else replicas)
        seconds = run_virtually(world.run(to_first=to_first))
    history = world.history
    broken, last = tuple(history.broken), tuple(history.last)
    cpu = time.process_time() - began
    return Outcome(run, broken, history.digest, history.count, seconds, last, cpu, world.most_pods)


class World:
    """The parts of one run."""

    def __init__(self, run: Run, errors: list[str], replicas: int) -> None:
        self._subject = SUBJECTS[run.about]
        self._judge = self._subject.judge()
        self._run = run
        self._number = replicas
        self.history = History()
        self.clock = WallClock()
        self._errors = errors
        self._streams = Streams(f"world {run.seed}")
        self._storm = weather(Random(f"weather {run.seed}")).without(*run.without)
        #: The current faults.
        self.weather: Weather = CALM
        #: The process that has no faults in any replica.
        self._spared = ""
        self.plan: Plan = run.plan
        self._script = run.script
        self._lag = invariants.Lag(LAG_SECONDS)
        #: Time until which a past fault may delay the managers.
        self._faults_until = 0.0
        self._busy: set[asyncio.Task[None]] = set()

    @property
    def seed(self) -> int:
        return self._run.seed

    @property
    def without(self) -> Sequence[str]:
        return self._run.without

    @property
    def most_pods(self) -> int:
        return self.checks.most_pods

    # ---- the run

    async def run(self, *, to_first: bool = False) -> float:
        """Run from an empty cluster to rest; return the virtual seconds it took."""
        self.api = ApiServer(clock=self.clock, rng=RandomByTask(f"api {self._run.seed}"))
        self.admin = Client(self.api.transport(), self.clock)
        self.api.webhooks.local[SERVICE] = self._review
        await self._install()
        self.replicas = [self._replica(number) for number in range(self._number)]
        self.rest = Rest(self.api, self.replicas, self.clock, self._judge)
        self._hooks = Hooks(self.admin, Random(f"hooks {self._run.seed}"))
        self._volumes = Volumes(self.admin)
        registered = simulated_nodes(3)
        nodes = Nodes(
            Client(self.api.transport("system:nodes"), self.clock),
            registered,
            rng=RandomByTask(f"nodes {self._run.seed}"),
            bind=True,
            pace=_pace(Random(f"pace {self._run.seed}")),
            heartbeat_seconds=3600.0,  # no controller evicts Pods of silent nodes
        )
        make = self._subject.actor
        actor = make(self._run_context(nodes, [node.name for node in registered])) if make is not None else None
        user_actions = {**self._subject.user_actions, **(actor.user_actions if actor is not None else {})}
        self.users = Users(self.api, self.admin, self.history, self.replicas, self._streams("users"), user_actions)
        parts = (self.rest, self.users, self._judge, self._hooks, self._volumes)
        self.checks = Checks(self.api, self.history, *parts)
        self.api.on_write(self.checks.wrote)
        background = [asyncio.create_task(nodes.run(), name="nodes")]
        background += [asyncio.create_task(replica.run(), name=replica.name) for replica in self.replicas]
        if actor is not None:
            background.append(asyncio.create_task(actor.run(), name="company"))  # the name selects a random stream
        scenario = asyncio.create_task(self._scenario(), name="story")
        if to_first:
            self.history.told = scenario.cancel
        try:
            await asyncio.wait({scenario})
        finally:
            ending = (*background, *self._busy, *self._hooks.tasks, *self._volumes.tasks)
            for task in ending:
                task.cancel()
            await asyncio.gather(*ending, return_exceptions=True)
            self.api.close()
        if not scenario.cancelled():
            scenario.result()
        for error in self._errors:
            self.history.breaks(self.clock.monotonic(), error)
        return self.clock.monotonic()

    async def _scenario(self) -> None:
        try:
            await self._until(self.rest.in_place, "the webhooks are registered")
            if self._run.focus:
                await self._focused(self._subject.focuses[self._run.focus])
            else:
                await self._follow_script()
                await self._come_to_rest()
                await self._subject.after_storm(self)
            await self._quiet()
        except TimeoutError as late:
            self.history.breaks(self.clock.monotonic(), str(late))

    async def _install(self) -> None:
        for kind in kinds():
            await self.admin.create(CUSTOMRESOURCEDEFINITIONS, _definition(kind.crd_name))
        for name in (SYSTEM, NAMESPACE):
            await self.admin.create(NAMESPACES, {"metadata": {"name": name}})

    def _replica(self, number: int) -> SimulatedReplica:
        name = f"replica-{number}"

        def connect(process: str, kill: Callable[[str], None]) -> FaultyTransport:
            streams = Streams(f"{name} {process} {self._run.seed}")
            server = CountingTransport(
                self.api.transport(MANAGER), self._revision, lambda: self.checks.calm, self._wasted
            )
            now = partial(self._weather_of, process)
            return AttentiveTransport(
                server, self.clock, streams, now, kill, self._frozen, self._start, breaks=self._breaks
            )

        gates = "".join(f",{gate}=true" for gate in self._subject.gates)
        return SimulatedReplica(
            name,
            self.clock,
            Streams(f"{name} {self._run.seed}"),
            connect,
            gates,
            serves=lambda: self.checks.check_trust(),
        )

    def _run_context(self, nodes: Nodes, names: Sequence[str]) -> RunContext:
        def connect(process: str, kill: Callable[[str], None]) -> FaultyTransport:
            streams, now = Streams(f"{process} {self._run.seed}"), partial(self._weather_of, process)
            server = self.api.transport(NODE_AGENT)
            return FaultyTransport(server, self.clock, streams, now, kill, self._frozen, self._start)

        def say(text: str) -> None:
            self.history.say(f"{self.clock.monotonic():10.3f} -- {text}")

        return RunContext(
            self._run.seed, self.admin, nodes, names, self._judge, connect, self._start, say, self._breaks
        )

    def _weather_of(self, process: str) -> Weather:
        now = self.clock.monotonic()
        if now < self.users.cut_off_until:
            return CUT_OFF
        if process == self._spared:
            return CALM
        if self.weather is CALM or not self.users.squalls:
            return self.weather
        squalls = {fault: SQUALL for fault, until in self.users.squalls.items() if now < until}
        return replace(self.weather, **squalls).without(*self._run.without) if squalls else self.weather

    def _frozen(self, resource: str) -> float:
        return 0.0 if self.weather is CALM else self.users.frozen.get(resource, 0.0)

    def _revision(self) -> int:
        return self.api.core.storage.revision

    def _breaks(self, sentence: str) -> None:
        self.history.breaks(self.clock.monotonic(), sentence)

    def _wasted(self, request: Request) -> None:
        self._breaks(f"{request.method} {request.path} changes nothing")

    async def _follow_script(self) -> None:
        self.weather = self._storm
        await self._carry_out(self._script, self.plan.seconds)

    async def _carry_out(self, script: Sequence[Action], seconds: float) -> None:
        began = self.clock.monotonic()
        for action in script:
            await self.clock.sleep(began + action.at - self.clock.monotonic())
            self._start(self.users.do(action))
        await self.clock.sleep(began + seconds - self.clock.monotonic())

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._busy.add(task)
        task.add_done_callback(self._busy.discard)
        return task

    async def _come_to_rest(self) -> None:
        self._clears_up(TIMEOUT_SECONDS)
        await self._until(lambda: not self._busy and not self._hooks.tasks, "the users are answered")
        await self._until(self.rest.in_place, "the webhooks are registered again")
        await self.until_done(self.rest.pods_to_do)
        await self.until_done(self.rest.at_rest, ROTATION_SECONDS)

    async def _focused(self, focus: Focus) -> None:
        for act in focus.first(Random(f"first {self._run.seed}")):
            await self.users.do(act)
        await self.until_done(self.rest.to_settle)
        for number in range(focus.rounds):
            one = focus.round(Random(f"round {number} {self._run.seed}"), self.rest, number)
            if one is None:
                continue
            if focus.calm:
                self.weather, self.checks.calm = one.weather, True
                await self._carry_out(one.acts, one.seconds)
                await self.until_done(
                    self.rest.to_settle, max(self.users.seconds_for(act.what) for act in one.acts), every=0.5
                )
                await self.clock.sleep(2.0)
                self.weather, self.checks.calm = CALM, False
            else:
                await self.run_incident(one)
        await self.wait_for_laggards()

    async def run_incident(self, one: Incident) -> None:
        """Run an incident, and wait until everything has settled."""
        self._lag.excuse()
        self.weather = one.weather.without(*self._run.without)
        self._spared = "" if one.admission_too else WEBHOOK
        whom = f" for all but {self._spared}" if self._spared else ""
        self.history.say(f"{self.clock.monotonic():10.3f} -- {one.seconds} s of {self.weather.text}{whom}")
        await self._carry_out(one.acts, one.seconds)
        self._clears_up(one.hangs)
        await self._until(lambda: not self._busy and not self._hooks.tasks, "the users are answered")
        await self.until_done(self.rest.to_settle, one.seconds_to_settle(self.users.seconds_for), every=1.0)

    def _clears_up(self, hangs: float) -> None:
        """End the faults. ``hangs``: how long a request may still hang."""
        self.weather, self._spared = CALM, ""
        self._faults_until = max(self._faults_until, self.clock.monotonic() + hangs)

    async def _quiet(self) -> None:
        await self._until(lambda: not self._volumes.tasks, "claims are released")
        # A controller may still wait for the answer to a request sent before the faults ended.
        await self.sleep_until_unhindered()
        before = Counter(self.checks.writes)
        await self.clock.sleep(QUIET_SECONDS)
        written = self.checks.writes - before if not self._subject.goes_on else Counter[str]()
        for sentence in (*self.rest.at_rest(), *invariants.quiet(written, QUIET_SECONDS)):
            self.history.breaks(self.clock.monotonic(), sentence)

    async def _until(self, holds: Callable[[], object], what: str) -> None:
        await self.until_done(lambda: [] if holds() else [what])

    async def until_done(
        self, to_do: Callable[[], list[str]], seconds: float = REST_SECONDS, every: float = 5.0
    ) -> None:
        """Wait until nothing is left to do. Raises TimeoutError that says what is left."""
        seconds *= self._run.deadline_factor
        deadline = self.clock.monotonic() + seconds
        while left := to_do():
            self._look_at_lag()
            if self.clock.monotonic() > deadline:
                raise TimeoutError(f"not within {seconds:.0f} s: {'; '.join(left)}")
            await self.clock.sleep(every)

    async def sleep_until_unhindered(self) -> None:
        """Wait until no past fault can delay the managers."""
        await self.clock.sleep(self._held_up_until - self.clock.monotonic())

    async def wait_for_laggards(self) -> None:
        await self.clock.sleep(LAG_SECONDS)

    @property
    def _held_up_until(self) -> float:
        """Return the time until which a past fault may delay the managers."""
        return max(self._faults_until, self.users.cut_off_until, *self.users.frozen.values())

    def _look_at_lag(self) -> None:
        at = self.clock.monotonic()
        held_up = self._held_up_until
        if self.weather != CALM or at < held_up or not self.rest.in_place():
            self._lag.excuse()
            return
        for sentence in self._lag.longer(at, self._judge.overdue()):
            self.history.breaks(at, sentence)

    # ---- reviews

    def _bookkeeping_failed(self, replica: SimulatedReplica) -> int:
        """Return how many requests that the replica's admission sent for the workload's related object failed."""
        transport = replica.webhook.transport
        return transport.failed[self._subject.books] if self._subject.books and transport is not None else 0

    async def _review(self, path: str, body: bytes) -> tuple[int, bytes]:
        """Let one of the ready replicas answer a review, as the Service does."""
        ready = [replica for replica in self.replicas if replica.answers]
        if not ready:
            raise ConnectionRefusedError
        rng = self._streams(f"review {path}")
        replica = ready[rng.randrange(len(ready))]
        self.checks.check_trust()
        await self.clock.sleep(rng.expovariate(1000.0))
        process = replica.webhook.process
        known = self._judge.known_to(process.caches, path) if process is not None else ()
        began, failed = self.clock.monotonic(), self._bookkeeping_failed(replica)
        status, answer = await replica.review(path, body)
        if status == 200:
            seconds, failures = self.clock.monotonic() - began, self._bookkeeping_failed(replica) - failed
            for sentence in self._judge.reviewed(Review(path, body, answer, seconds, failures, known)):
                self._breaks(sentence)
        return status, answer


@cache
def _definition(name: str) -> Json:
    return next(manifest(kind) for kind in kinds() if kind.crd_name == name)


def _pace(rng: Random) -> Pace:
    return Pace(
        start=rng.choice((0.0, 0.0, 1.0, 3.0)), restart=rng.choice((0.0, 1.0, 3.0)), stop=rng.choice((0.0, 1.0))
    )
