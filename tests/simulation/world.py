"""One run: a control plane in memory, three nodes, two replicas of the manager, and a script, all on virtual time."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from functools import cache, partial
from random import Random
from typing import Any, cast

from app.api.crd import manifest
from app.kube.client import Client
from app.kube.resources import (
    CUSTOMRESOURCEDEFINITIONS,
    NAMESPACES,
    PODS,
)
from app.kube.transport import Request
from app.kube.virtualtime import run as run_virtually
from app.manager.slices import kinds
from app.sandbox.apiserver import ApiServer
from app.sandbox.kubelet import Pace
from app.sandbox.nodes import Nodes, simulated_nodes
from app.sidecars.sidecarset import slice as sidecarset
from tests.simulation import clonesets, invariants, mishaps, passes, plan, unseen
from tests.simulation.checks import Checks
from tests.simulation.claims import ClaimPromises, Volumes
from tests.simulation.clocks import WallClock
from tests.simulation.faults import (
    CALM,
    CUT_OFF,
    DRIZZLE,
    SQUALL,
    TIMEOUT_SECONDS,
    CountingTransport,
    FaultyTransport,
    Weather,
    weather,
)
from tests.simulation.focus import FOCUSES, Focus
from tests.simulation.history import History
from tests.simulation.hooks import Hooks
from tests.simulation.keys import keys_by_seed
from tests.simulation.listed import CLONE_SETS as LISTED
from tests.simulation.listed import listed
from tests.simulation.process import errors_logged, no_collector
from tests.simulation.promises import Promises, Spec
from tests.simulation.replicas import WEBHOOK, SimulatedReplica, parsed
from tests.simulation.rest import Rest
from tests.simulation.runs import Outcome, Run
from tests.simulation.script import (
    HASTE_SECONDS,
    NAMESPACE,
    PATIENCE,
    Action,
    blind_script,
    calm_script,
    drizzle_script,
)
from tests.simulation.streams import RandomByTask, Streams
from tests.simulation.users import CLONE_SETS, SIDECAR_SETS, SYSTEM, Users
from tests.simulation.versions import AttentiveTransport
from tests.simulation.workloads import SUBJECTS, Judge, JudgeOfReviews, Subject

Json = dict[str, Any]

SERVICE = "kruise-webhook-service.kruise-system"
MANAGER = "system:serviceaccount:kruise-system:kruise-manager"
#: How long everything may take to come to rest after the last action, and how long it must then stay quiet.
REST_SECONDS = 480.0
#: And how long a change of the CA may take.
ROTATION_SECONDS = 900.0
QUIET_SECONDS = 130.0
#: For how long a leader tries to renew its Lease.
RENEWAL_SECONDS = 10.0
#: How long the status of a SidecarSet may be untrue with nothing going wrong: caches are filled, failures tried again.
LAG_SECONDS = 30.0


def simulate(run: Run, *, replicas: int | None = None, to_first: bool = False) -> Outcome:
    """Run it from beginning to end, in virtual time; or only up to the first thing that breaks."""
    subject = SUBJECTS[run.about] if run.about else None
    folders = subject.folders if subject is not None else LISTED
    with (
        listed(folders),
        keys_by_seed(run.seed),
        errors_logged() as errors,
        no_collector(),
        passes.forgotten(),
    ):
        began = time.process_time()
        world = World(run, errors, run.replicas if replicas is None else replicas, subject)
        seconds = run_virtually(world.run(to_first=to_first))
    history = world.history
    broken, last = tuple(history.broken), tuple(history.last)
    cpu = time.process_time() - began
    return Outcome(run, broken, history.digest, history.count, seconds, last, cpu, world.most_pods)


class World:
    """The parts of one run, and what is checked of them."""

    def __init__(self, run: Run, errors: list[str], replicas: int, subject: Subject | None) -> None:
        self._subject = subject
        self._judge: Judge | None = subject.judge() if subject is not None else None
        self._judge_of_reviews = cast("JudgeOfReviews", self._judge) if hasattr(self._judge, "reviewed") else None
        self._run = run
        self._number = replicas
        self.history = History()
        self.clock = WallClock()
        self._errors = errors
        self._streams = Streams(f"world {run.seed}")
        self._storm = weather(Random(f"weather {run.seed}")).without(*run.without)
        self._now: Weather = CALM
        #: The process that has no trouble with the API server, of all replicas.
        self._spared = ""
        self._plan = run.plan
        self._script = run.script
        self._lag = invariants.Lag(LAG_SECONDS)
        #: Until when something that went wrong may hold up the managers.
        self._troubled_until = 0.0
        self._promises = Promises()
        self._claims = ClaimPromises(self._promises)
        self._busy: set[asyncio.Task[None]] = set()

    @property
    def most_pods(self) -> int:
        """How many Pods there were at once."""
        return self._checks.most_pods

    # ---- the run

    async def run(self, *, to_first: bool = False) -> float:
        """From an empty cluster to rest. Returns the virtual seconds it took."""
        self.api = ApiServer(clock=self.clock, rng=RandomByTask(f"api {self._run.seed}"))
        self.admin = Client(self.api.transport(), self.clock)
        self.api.webhooks.local[SERVICE] = self._review
        await self._install()
        self.replicas = [self._replica(number) for number in range(self._number)]
        self._rest = Rest(self.api, self.replicas, self.clock, self._claims, self._promises.came_back, self._judge)
        self._hooks = Hooks(self.admin, Random(f"hooks {self._run.seed}"))
        self._volumes = Volumes(self.admin)
        self._users = Users(self.api, self.admin, self.history, self.replicas, self._streams("users"))
        self._users.subject = self._subject
        self._checks = Checks(
            self.api,
            self.history,
            self._rest,
            self._users,
            self._promises,
            self._claims,
            self._hooks,
            self._volumes,
        )
        self._checks.judge = self._judge
        self.api.on_write(self._checks.wrote)
        nodes = Nodes(
            Client(self.api.transport("system:nodes"), self.clock),
            simulated_nodes(3),
            rng=RandomByTask(f"nodes {self._run.seed}"),
            bind=True,
            pace=_pace(Random(f"pace {self._run.seed}")),
            heartbeat_seconds=3600.0,  # nobody here takes a node for dead
        )
        background = [asyncio.create_task(nodes.run(), name="nodes")]
        background += [asyncio.create_task(replica.run(), name=replica.name) for replica in self.replicas]
        story = asyncio.create_task(self._story(), name="story")
        if to_first:
            self.history.told = story.cancel
        try:
            await asyncio.wait({story})
        finally:
            ending = (*background, *self._busy, *self._hooks.tasks, *self._volumes.tasks)
            for task in ending:
                task.cancel()
            await asyncio.gather(*ending, return_exceptions=True)
            self.api.close()
        if not story.cancelled():
            story.result()
        for error in self._errors:
            self.history.breaks(self.clock.monotonic(), error)
        return self.clock.monotonic()

    async def _story(self) -> None:
        try:
            await self._until(self._rest.in_place, "the webhooks are registered")
            if self._run.focus:
                await self._focused(FOCUSES[self._run.focus])
                await self._quiet()
                return
            await self._follow_script()
            await self._come_to_rest()
            if self._subject is not None:
                await self._mishaps_of(self._subject)
                await self._quiet()
                return
            phases = {plan.TROUBLE: self._trouble, plan.CALM: self._calm, plan.MISHAPS: self._mishaps}
            for name in self._plan.phases:
                await phases[name]()
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
                self.api.transport(MANAGER), self._revision, lambda: self._checks.calm, self._wasted
            )
            now = partial(self._weather_of, process)
            return AttentiveTransport(
                server, self.clock, streams, now, kill, self._frozen, self._start, breaks=self._breaks
            )

        gates = "".join(f",{gate}=true" for gate in (self._subject.gates if self._subject is not None else ()))
        return SimulatedReplica(
            name,
            self.clock,
            Streams(f"{name} {self._run.seed}"),
            connect,
            gates,
            serves=lambda: self._checks.check_trust(),
        )

    def _weather_of(self, process: str) -> Weather:
        now = self.clock.monotonic()
        if now < self._users.cut_off_until:
            return CUT_OFF
        if process == self._spared:
            return CALM
        if self._now is CALM or not self._users.squalls:
            return self._now
        squalls = {fault: SQUALL for fault, until in self._users.squalls.items() if now < until}
        return replace(self._now, **squalls).without(*self._run.without) if squalls else self._now

    def _frozen(self, resource: str) -> float:
        return 0.0 if self._now is CALM else self._users.frozen.get(resource, 0.0)

    def _revision(self) -> int:
        return self.api.core.storage.revision

    def _breaks(self, sentence: str) -> None:
        self.history.breaks(self.clock.monotonic(), sentence)

    def _wasted(self, request: Request) -> None:
        self._breaks(f"{request.method} {request.path} changes nothing")

    async def _follow_script(self) -> None:
        self._now = self._storm
        await self._carry_out(self._script, self._plan.seconds)

    async def _carry_out(self, script: Sequence[Action], seconds: float) -> None:
        began = self.clock.monotonic()
        for action in script:
            await self.clock.sleep(began + action.at - self.clock.monotonic())
            self._start(self._users.do(action))
        await self.clock.sleep(began + seconds - self.clock.monotonic())

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._busy.add(task)
        task.add_done_callback(self._busy.discard)

    async def _come_to_rest(self) -> None:
        self._clears_up(TIMEOUT_SECONDS)
        await self._until(lambda: not self._busy and not self._hooks.tasks, "the users are answered")
        await self._until(self._rest.in_place, "the webhooks are registered again")
        await self._until_done(self._rest.pods_to_do)
        await self._until_done(self._rest.at_rest, ROTATION_SECONDS)

    async def _trouble(self) -> None:
        """With one thing that goes wrong and hardly anything that happens besides, all comes to rest the same: requests
        are refused now and then, or the managers are blind to one kind of object for a while."""
        clones = sorted(name for name, found in self._rest.stored(CLONE_SETS).items() if found["spec"]["replicas"])
        rng = Random(f"trouble {self._run.seed}")
        if not clones:
            return
        blind = rng.random() < 0.5
        if blind:
            self._now = Weather(lost_answer=rng.choice((0.0, 0.3, 0.3))).without(*self._run.without)
            acts = [*blind_script(rng, clones)]
        else:
            self._now = Weather(**{rng.choice(DRIZZLE): 0.25}).without(*self._run.without)
            acts = [drizzle_script(rng, clones)]
        for action in acts:
            await self.clock.sleep(action.at)
            await asyncio.create_task(self._users.do(action))
        if blind:  # only so long are answers lost: nobody could lead for long else
            await self.clock.sleep(max(0.0, 0.0, *self._users.frozen.values()) - self.clock.monotonic())
            self._now = CALM
        await self._until_done(self._rest.to_settle)
        self._now = CALM
        await self.clock.sleep(RENEWAL_SECONDS)  # whoever could not renew the Lease ends only now
        await self._until_done(self._rest.to_settle)

    async def _calm(self) -> None:
        """With nothing going wrong whatever users do is dealt with at once, and without a write too many."""
        await self.clock.sleep(self._held_up_until - self.clock.monotonic())
        rng = Random(f"calm {self._run.seed}")
        there = {resource.plural: sorted(self._rest.stored(resource)) for resource in (SIDECAR_SETS, CLONE_SETS)}
        there["pods"] = sorted(name for name, found in self._rest.stored(PODS).items() if _is_bare(found))
        # Where there is no Pod, the newest revision is the one that all have (CS-73).
        staffed = sorted(name for name, found in self._rest.stored(CLONE_SETS).items() if found["spec"]["replicas"])
        names = (there["sidecarsets"], there["pods"], there["clonesets"], staffed)
        acts = [*calm_script(rng, *names, number=self._plan.calm_acts)]
        for action, after in zip(acts, [*acts[1:], None], strict=True):
            await self.clock.sleep(action.at)
            # Pods marked in the same breath as a roll-out: the pass may know of the one and mark them once more.
            self._checks.calm = "marked" not in action.arguments
            await asyncio.create_task(self._users.do(action))
            if after is not None and after.at < HASTE_SECONDS:
                continue
            await self._until_done(self._rest.to_settle, PATIENCE[action.what], every=0.5)
            await self.clock.sleep(2.0)
            self._checks.calm = False

    async def _mishaps(self) -> None:
        """One thing at a time goes wrong for some seconds: soon after it all is well."""
        await self.clock.sleep(self._held_up_until - self.clock.monotonic())
        rng, other = Random(f"mishaps {self._run.seed}"), Random(f"unseen {self._run.seed}")
        for number in range(self._plan.mishaps):
            there = self._there()
            one = mishaps.mishap(rng, there, number)
            await self._befall(unseen.mishap(other, there, number) or one)
        clones = [
            mishaps.Staffed(name, found["spec"]["replicas"], revives=clonesets.revives(found))
            for name, found in sorted(self._rest.stored(CLONE_SETS).items())
            if found["spec"]["replicas"]
        ]
        if aimed := mishaps.aimed(Random(f"aimed {self._run.seed}"), clones):
            await self._befall(aimed)
        await self.clock.sleep(LAG_SECONDS)  # what nobody waits for may be done still

    async def _focused(self, focus: Focus) -> None:
        """One thing time after time, on what it needs."""
        for act in focus.first(Random(f"first {self._run.seed}")):
            await self._users.do(act)
        await self._until_done(self._rest.to_settle)
        for number in range(focus.rounds):
            one = focus.round(Random(f"round {number} {self._run.seed}"), self._there(), number)
            if one is None:
                continue
            if focus.calm:
                self._now, self._checks.calm = one.weather, True
                await self._carry_out(one.acts, one.seconds)
                await self._until_done(self._rest.to_settle, max(PATIENCE[act.what] for act in one.acts), every=0.5)
                await self.clock.sleep(2.0)
                self._now, self._checks.calm = CALM, False
            else:
                await self._befall(one)
        await self.clock.sleep(LAG_SECONDS)

    async def _mishaps_of(self, subject: Subject) -> None:
        """One thing at a time goes wrong for some seconds with what the run is about."""
        await self.clock.sleep(self._held_up_until - self.clock.monotonic())
        for number in range(self._plan.mishaps + 1):
            rng = Random(f"mishap {number} {self._run.seed}")
            await self._befall(subject.mishap(rng, sorted(self._rest.stored(subject.resource)), number))
        await self.clock.sleep(LAG_SECONDS)  # what nobody waits for may be done still

    async def _befall(self, one: mishaps.Mishap) -> None:
        self._lag.excuse()  # what was untrue before the last one may be so again by now
        self._now = one.weather.without(*self._run.without)
        self._spared = "" if one.admission_too else WEBHOOK
        whom = f" for all but {self._spared}" if self._spared else ""
        self.history.say(f"{self.clock.monotonic():10.3f} -- {one.seconds} s of {self._now.text}{whom}")
        await self._carry_out(one.acts, one.seconds)
        self._clears_up(one.hangs)
        await self._until(lambda: not self._busy and not self._hooks.tasks, "the users are answered")
        await self._until_done(self._rest.to_settle, one.patience, every=1.0)

    def _there(self) -> mishaps.There:
        """What a mishap may befall."""
        clones = {name: Spec.of(found) for name, found in sorted(self._rest.stored(CLONE_SETS).items())}
        return mishaps.There(
            sorted(self._rest.stored(SIDECAR_SETS)),
            sorted(found["metadata"]["name"] for found in self._rest.stored(PODS).values() if _is_bare(found)),
            [*clones],
            [name for name, spec in clones.items() if spec.replicas and spec.policy != "ReCreate"],
            [name for name, spec in clones.items() if spec.replicas and spec.claims and spec.reuse],
            {name: spec.replicas for name, spec in clones.items() if spec.claims and not spec.reuse},
            {name: spec.replicas for name, spec in clones.items() if spec.replicas},
        )

    def _clears_up(self, hangs: float) -> None:
        """Nothing goes wrong any more. ``hangs``: how long a request may wait in vain."""
        self._now, self._spared = CALM, ""
        self._troubled_until = max(self._troubled_until, self.clock.monotonic() + hangs)

    async def _quiet(self) -> None:
        await self._until(lambda: not self._volumes.tasks, "claims on their way out are gone")
        before = Counter(self._checks.writes)
        await self.clock.sleep(QUIET_SECONDS)
        rests = self._subject is None or not self._subject.goes_on
        written = self._checks.writes - before if rests else Counter[str]()
        for sentence in (*self._rest.at_rest(), *invariants.quiet(written, QUIET_SECONDS)):
            self.history.breaks(self.clock.monotonic(), sentence)

    async def _until(self, holds: Callable[[], object], what: str) -> None:
        await self._until_done(lambda: [] if holds() else [what])

    async def _until_done(
        self, to_do: Callable[[], list[str]], seconds: float = REST_SECONDS, every: float = 5.0
    ) -> None:
        """Wait until nothing is left to do, and look in such intervals. Raises TimeoutError that says what is left."""
        seconds *= self._run.patience
        deadline = self.clock.monotonic() + seconds
        while left := to_do():
            self._look_at_lag()
            if self.clock.monotonic() > deadline:
                raise TimeoutError(f"not within {seconds:.0f} s: {'; '.join(left)}")
            await self.clock.sleep(every)

    @property
    def _held_up_until(self) -> float:
        """Until when something that went wrong may hold up the managers."""
        return max(self._troubled_until, self._users.cut_off_until, *self._users.frozen.values())

    def _look_at_lag(self) -> None:
        at = self.clock.monotonic()
        held_up = self._held_up_until
        if self._now != CALM or at < held_up or not self._rest.in_place():
            self._lag.excuse()
            return
        for sentence in self._lag.longer(at, self._rest.sets_to_do()):
            self.history.breaks(at, sentence)

    # ---- reviews

    def _bookkeeping_failed(self, replica: SimulatedReplica) -> int:
        """How many requests of its admission came to nothing that were about what stands beside the workload."""
        beside, transport = (self._subject.beside if self._subject is not None else None), replica.webhook.transport
        return transport.failed[beside.resource.plural] if beside is not None and transport is not None else 0

    async def _review(self, path: str, body: bytes) -> tuple[int, bytes]:
        """What the Service does with a review: one of the replicas that are ready answers, if it lives long enough."""
        ready = [replica for replica in self.replicas if replica.answers]
        if not ready:
            raise ConnectionRefusedError
        rng = self._streams(f"review {path}")
        replica = ready[rng.randrange(len(ready))]
        self._checks.check_trust()
        await self.clock.sleep(rng.expovariate(1000.0))
        process = replica.webhook.process
        sets = (
            process.caches.stores(sidecarset.SIDECAR_SETS).list()
            if process is not None and path == "/mutate-pod" and self._subject is None
            else ()
        )
        known = [one.to_dict() for one in sets]
        began, failed = self.clock.monotonic(), self._bookkeeping_failed(replica)
        status, answer = await replica.review(path, body)
        if self._judge_of_reviews is not None and status == 200:
            seconds, failures = self.clock.monotonic() - began, self._bookkeeping_failed(replica) - failed
            for sentence in self._judge_of_reviews.reviewed(seconds, path, parsed(answer)["response"], failures):
                self._breaks(sentence)
        if known and status == 200:
            self._checks.check_injection(parsed(body)["request"], parsed(answer)["response"], known)
        return status, answer


@cache
def _definition(name: str) -> Json:
    return next(manifest(kind) for kind in kinds() if kind.crd_name == name)


def _pace(rng: Random) -> Pace:
    """Nodes that are as fast or as slow as this."""
    return Pace(
        start=rng.choice((0.0, 0.0, 1.0, 3.0)), restart=rng.choice((0.0, 1.0, 3.0)), stop=rng.choice((0.0, 1.0))
    )


def _is_bare(obj: Json) -> bool:
    return obj["metadata"].get("namespace") == NAMESPACE and not obj["metadata"].get("ownerReferences")
