"""The faults of a case, and what must hold after each."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Final, TypeAlias

from app.kube.client import Client
from app.kube.errors import ApiError
from app.kube.resources import NODES, Resource
from tests.shells.world import (
    NAMESPACE,
    REST_SECONDS,
    SIBLINGS,
    TWIN_NAMESPACE,
    Fault,
    Running,
    Saved,
    Server,
    Target,
    World,
    Write,
    is_sibling,
)

Json = dict[str, Any]
#: Resources whose objects get another name if their own is taken.
SHARED_NAMES: Final = ("controllerrevisions",)
#: Virtual seconds in which a new process must make the writes it finds necessary.
RESTART_SECONDS: Final = 1.5
#: Virtual seconds between an edit and the next one.
OVERLAP_SECONDS: Final = 0.3
#: Keys reconciled at once where there are several workers.
WORKERS: Final = 3
#: Metadata that another writer adds to an object it changes.
OTHER_OWNER: Final = '{"apiVersion":"v1","kind":"Node","name":"node-a","uid":"U"}'
MARK: Final = '"shells.test/changed":"true"'
MARKS: Final = (f"{OTHER_OWNER},", OTHER_OWNER, f"{MARK},", f",{MARK}", MARK)
Edit: TypeAlias = Callable[[World], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Case:
    """One shell, the objects that exist at its start, and the edits that follow."""

    name: str
    start: Callable[[World, Client], Running]
    objects: Sequence[tuple[Resource, Json]]
    edits: Mapping[str, Edit]
    #: Permitted writes that no edit causes, and why.
    never: Mapping[str, str] = field(default_factory=dict)
    #: Runs the other actors of the cluster.
    beside: Callable[[World], None] = lambda _: None
    #: Writes that need no precondition, and why.
    unconditional: Mapping[str, str] = field(default_factory=dict)
    #: Whether a new process writes at startup, because some results are kept in memory only.
    restart_writes: bool = False
    #: Writes that depend on the live object, so they may also apply to another object of the same name.
    decided_live: Sequence[str] = ()
    #: Resources whose objects are replaced at the end by others of the same name.
    replaces: Sequence[Resource] = ()
    #: Edits of all objects of a watched resource that cannot occur, and why.
    fixed: Mapping[str, str] = field(default_factory=dict)
    #: Copies of its objects (of ``SIBLINGS``) that have an effect although they should be unusable, and why.
    counts: Mapping[str, str] = field(default_factory=dict)
    #: Places that remember deleted objects for a while, and why.
    keeps: Mapping[str, str] = field(default_factory=dict)
    #: Resources whose objects the garbage collector may delete before the controller does.
    collected: Sequence[str] = ("persistentvolumeclaims",)
    #: Caches whose delay changes the result, not only its time.
    decides_by_time: Sequence[str] = ()
    #: Whether the status is the shell's only memory, so that the result may differ once another writer removes it.
    relies_on_status: bool = False
    #: Results that depend on timing: a pattern for parts of the text of :func:`comparable`, or for all of it.
    ignored: str = "(?!)"
    #: Writes that a lagging cache may cause to be repeated, or made for an earlier object, and why;
    #: with ``again:``, only while everything is reconciled again or a cache is held.
    careless: Mapping[str, str] = field(default_factory=dict)
    #: Metadata of other writers that the shell does not keep, and why.
    overwrites: Mapping[str, str] = field(default_factory=dict)
    #: Seconds after which a lagging cache shows an event.
    lag: float = 2.0
    #: Faults that are reported or accepted instead of retried.
    final: Sequence[str] = ()
    #: Whether time alone causes writes.
    timed: bool = False
    #: Virtual seconds without any change after which the shell is idle.
    rest: float = REST_SECONDS


@dataclass(slots=True)
class Stage:
    """Records what a run without faults did in one stage, and the objects before and after."""

    name: str
    edit: Edit
    before: Saved
    after: Saved
    picture: Counter[str]
    writes: list[Write]
    reads: list[Write]
    effects: Counter[str]
    changes_nodes: bool = False


@dataclass(slots=True)
class Report:
    problems: list[str] = field(default_factory=list)
    #: Write → its preconditions, also by what it sets.
    writes: dict[str, str] = field(default_factory=dict)
    #: Request that failed, conflicted with another writer, or read a changed object → later writes of the same
    #: reconcile, with the conditions they set to True. After a failure, also its events; after a lost response, also
    #: its reads. While a resource is down, the number of requests; while an object is stuck, the number of others
    #: written.
    after_failure: dict[str, list[str]] = field(default_factory=dict)
    #: Without faults: how often each request and each call to the runtime was made, each event recorded, each counter
    #: incremented, and each controller run.
    done: Counter[str] = field(default_factory=Counter)
    #: Without faults: the writes of each reconcile, in order.
    orders: set[str] = field(default_factory=set)
    #: Without faults: the different writes and events.
    sent: list[str] = field(default_factory=list)
    runs: int = 0

    def as_json(self) -> Json:
        weakest = {what: self.writes[what.partition(":")[0]] for what in self.writes}
        stronger = {what: given for what, given in self.writes.items() if ":" not in what or given != weakest[what]}
        return {
            "writes": dict(sorted(stronger.items())),
            "after a failure": dict(sorted(self.after_failure.items())),
            "done": dict(sorted(self.done.items())),
            "orders": sorted(self.orders),
            "sent": self.sent,
        }


async def store(server: Server, resource: Resource, body: Json) -> None:
    """Create an object, with its status."""
    namespace = body["metadata"].get("namespace", NAMESPACE) if resource.namespaced else ""
    whole = {"apiVersion": resource.api_version, "kind": resource.kind, **body}
    made = await server.client.create(resource, whole, namespace)
    if "status" in body:
        name = made["metadata"]["name"]
        await server.client.patch(resource, name, {"status": body["status"]}, namespace, subresource="status")


def create(resource: Resource, body: Json) -> Edit:
    """Return an edit in which a user creates an object."""

    async def edit(world: World) -> None:
        await store(world.server, resource, body)

    return edit


def patch(resource: Resource, name: str, body: Json, **how: Any) -> Edit:
    """Return an edit in which a user changes an object."""

    async def edit(world: World) -> None:
        await world.server.client.patch(resource, name, body, NAMESPACE if resource.namespaced else "", **how)

    return edit


def delete(resource: Resource, name: str) -> Edit:
    """Return an edit in which a user deletes an object."""

    async def edit(world: World) -> None:
        await world.server.client.delete(resource, name, NAMESPACE if resource.namespaced else "")

    return edit


def vanish(resource: Resource, name: str) -> Edit:
    """Return an edit that removes an object at once."""

    async def edit(world: World) -> None:
        world.interfere("gone", Target.named(resource, NAMESPACE, name))

    return edit


def replace_all(resource: Resource) -> Edit:
    """Return an edit that recreates all objects of a resource under their names before any cache shows it."""

    async def edit(world: World) -> None:
        world.interfere_with_all("replaced", resource)
        world._replaced.clear()

    return edit


def vanish_all(resource: Resource) -> Edit:
    """Return an edit that removes all objects of a resource at once."""

    async def edit(world: World) -> None:
        world.interfere_with_all("gone", resource)

    return edit


class _FirstProblemError(Exception):
    """Ends a trial that stops at its first problem."""


class Trial:
    """All runs of a case. With ``recorded`` results, it ends at the first problem or deviation from them."""

    def __init__(self, server: Server, case: Case, base: Saved, recorded: Json | None = None) -> None:
        self.server, self.case, self.base = server, case, base
        self._recorded = recorded
        self.report = Report()
        self._ignored = re.compile(case.ignored)
        #: Requests that were tested while their resource was down.
        self._down: set[str] = set()
        #: The resources, except nodes, that the shell watches or lists, by name.
        self._read: dict[str, Resource | Target] = {}
        #: Writes, by what they set, that were tested with faults that need not be repeated in each stage.
        self._sites: set[tuple[str, str]] = set()

    async def run(self) -> Report:
        """Run the case without faults, then each stage with each fault."""
        with suppress(_FirstProblemError):
            stages = await self._calm()
            for number, stage in enumerate(stages):
                await self._again(stage, number)
            edits = stages[: len(self.case.edits)]
            for number, (stage, following) in enumerate(pairwise(edits)):
                await self._overlap(stage, following, number)
        return self.report

    def _world(self, seed: str, workers: int = 1) -> World:
        self.report.runs += 1
        world = World(self.server, self.case.start, self.case.beside, f"{self.case.name} {seed}", workers)
        world.decided_live = self.case.decided_live
        world.careless = self.case.careless
        return world

    # ---- without faults

    async def _calm(self) -> list[Stage]:
        self.server.restore(self.base)
        self.server.seed("objects")
        for resource, body in self.case.objects:
            await store(self.server, resource, body)
        world = self._world("calm")
        await world.settle(self.case.rest)
        edits = dict(self.case.edits)
        for resource in self.case.replaces:
            edits[f"{resource.plural} are replaced"] = replace_all(resource)
        stages = []
        self._note_preconditions(world)
        for name, edit in edits.items():
            saved = self.server.save()
            writes, reads, effects = len(world.writes), len(world.reads), world.effects.copy()
            nodes = self._nodes()
            self.server.seed(name)
            await edit(world)
            await world.settle(self.case.rest)
            stages.append(
                Stage(
                    name,
                    edit,
                    saved,
                    self.server.save(),
                    world.picture(self._ignored),
                    world.writes[writes:],
                    world.reads[reads:],
                    world.effects - effects,
                    self._nodes() != nodes,
                )
            )
        self._note_preconditions(world)
        self.report.done = Counter(one.signature for one in (*world.writes, *world.reads) if one.done) + world.effects
        self.report.done.update(event for _, event in world.events)
        self.report.done.update(f"reconcile {one.controller}" for one in world.passes)
        self.report.done.update(world.metrics())
        self.report.sent = world.sent()
        self._read = {one.resource.plural: one.resource for one, _ in world.running.stores}
        self._read |= {one.target.plural: one.target for one in world.reads if one.signature.startswith("LIST")}
        self._read.pop(NODES.plural, None)
        self._note_orders(world)
        self._failed("calm", world)
        await self._forgets(world)
        await world.stop()
        self._failed("end of calm", world)
        return stages

    async def _forgets(self, world: World) -> None:
        """Check that nothing about deleted objects is kept in memory."""
        gone = world.clear()
        await world.settle(self.case.rest)
        world.problems.clear()
        for place in world.remembered(gone):
            if place not in self.case.keeps:
                self._problem(f"end of calm: {place} remembers objects that are gone")

    def _note_orders(self, world: World) -> None:
        for one in world.passes:
            order = list(dict.fromkeys(write.signature for write in world.writes if write.of is one))
            if len(order) > 1:
                self.report.orders.add(" → ".join(order))

    def _note_preconditions(self, world: World) -> None:
        for write in world.writes:
            if write.signature.startswith("POST") and not write.target.subresource:
                continue
            for what in (write.signature, f"{write.signature}: {write.sets}"):
                known = self.report.writes.setdefault(what, write.preconditions)
                common = [one for one in known.split("+") if one in write.preconditions.split("+")]
                self.report.writes[what] = "+".join(common)
            if not write.preconditions and write.signature not in self.case.unconditional:
                self._problem(f"{write.signature} carries no precondition: {str(write.body)[:150]}")

    def _failed(self, during: str, world: World) -> None:
        for problem in world.problems:
            self._problem(f"{during}: {problem}")
        world.problems.clear()

    def _problem(self, text: str) -> None:
        if text not in self.report.problems:
            self.report.problems.append(text)
        if self._recorded is not None:
            raise _FirstProblemError

    def _compare_with_recorded(self) -> None:
        """Fail on the first result that differs from the recorded one. Missing results are only found at the end."""
        if (recorded := self._recorded) is None:
            return
        if self.report.done != recorded["done"]:
            self._problem(f"done is not as recorded: {dict(self.report.done.items() ^ recorded['done'].items())}")
        if self.report.sent != recorded["sent"]:
            self._problem(f"sent is not as recorded: {set(self.report.sent) ^ set(recorded['sent'])}")
        for what, followers in self.report.after_failure.items():
            if more := set(followers) - set(recorded["after a failure"].get(what, ())):
                self._problem(f"is not as recorded after {what}: {more}")

    # ---- with faults

    def _of_each_site(self, world: World) -> Iterator[tuple[Fault, str]]:
        """Yield further faults of each kind of write, some combined with a late cache."""
        names = {one.resource.plural: one.name for one, _ in world.running.stores}
        for write in world.writes:
            if (site := (write.signature, write.sets)) in self._sites:
                continue
            self._sites.add(site)
            yield write.fault("stuck"), ""
            if name := names.get(write.target.plural, ""):
                yield write.fault("lost"), name
            yield write.fault("crashed"), ""

    async def _again(self, stage: Stage, number: int) -> None:
        """Repeat the stage with a new shell, then with one shell per fault."""
        fresh = await self._repeat(stage, number, "fresh")
        if stage.edit is replace_all or stage.name.endswith("are replaced"):
            return  # the dependents are lost in any case
        for fault in _faults(fresh):
            await self._try(stage, number, fault)
        for write in _first_of_each(fresh.writes):
            if write.signature not in self._down:
                self._down.add(write.signature)
                await self._try(stage, number, write.fault("down"))
        for name in [watched.name for watched, _ in fresh.running.stores if watched.name in fresh.shown]:
            await self._repeat(stage, number, f"{name} are lagging", lagging=name)
            for how, given, kinds in (
                ("late", {"held": name}, ("replaced",)),
                ("lagging, everything is reconciled again", {"lagging": name, "nudged": True}, ("replaced", "changed")),
            ):
                late = await self._repeat(stage, number, f"{name} are {how}", **given)
                last = {read.signature: read for read in late.reads}
                reads = dict.fromkeys(
                    (one.signature, one.number) for one in (*_first_of_each(late.reads), *last.values())
                )
                for signature, read_number in reads:
                    for kind in kinds if signature.startswith("GET") else ():
                        fault = Fault(kind, signature, read_number)
                        await self._try(stage, number, fault, f"{name} are {how}, {fault}", **given)
        for write in _first_of_each(fresh.writes):
            others = {one.object for one in fresh.writes if one.signature == write.signature} - {write.object}
            if kind := "stuck" if others else "crashed" if write.target.subresource == "status" else "":
                await self._try(stage, number, write.fault(kind))
        for fault, held in self._of_each_site(fresh):
            await self._try(stage, number, fault, f"{fault}, {held} are late" if held else "", held=held)
        await self._repeat(stage, number, "a new leader", takeover=True)
        if any(one.signature.startswith("LIST") for one in fresh.reads):
            await self._repeat(stage, number, "lists in several pages", paged=True)
        for way in SIBLINGS:
            self.server.restore(stage.before)
            if way not in self.case.counts and self.server.add_siblings(way, self._read.values(), stage.after):
                beside = replace(stage, before=self.server.save())
                await self._repeat(beside, number, f"{way} siblings")
        await self._repeat(stage, number, "several workers", workers=WORKERS)
        shared = {one.resource for one, _ in fresh.running.stores if not one.resource.namespaced} - {NODES}
        if not shared and not stage.changes_nodes and not self.case.timed:
            await self._repeat(stage, number, "another namespace with the same objects", twins=True)
        await self._repeat(stage, number, "one event at a time", one_by_one=True)
        during = "one event at a time, everything is reconciled again"
        await self._repeat(stage, number, during, one_by_one=True, nudged=True)
        watched = {one.resource.plural: one.resource for one, _ in fresh.running.stores}
        for resource in watched.values():
            for what, all_of_them in (("replaced", replace_all(resource)), ("gone", vanish_all(resource))):
                if f"{resource.plural} are {what}" not in self.case.fixed:
                    await self._replace(stage, number, resource, what, all_of_them)

    async def _replace(self, stage: Stage, number: int, resource: Resource, what: str, all_of_them: Edit) -> None:
        """Replace or remove objects after the stage. What is remembered of the former ones must have no effect."""
        if not self.server.collection(resource).objects:
            return
        self.server.restore(stage.before)
        self.server.seed("start")
        world, saved, pictures = self._world(str(number)), stage.before, []
        edits: list[tuple[str, Edit]] = [(stage.name, stage.edit), (what, all_of_them)]
        for name, edit in edits:
            saved = self.server.save()
            self.server.seed(name)
            world.relisted = {one.name for one, _ in world.running.stores if name == what and one.resource == resource}
            await edit(world)
            await world.settle(self.case.rest)
        pictures.append(world.picture(self._ignored))
        await world.stop()
        self.server.restore(saved)
        world = self._world(str(number))
        world.relisted = {one.name for one, _ in world.running.stores if one.resource == resource}
        self.server.seed(what)
        await all_of_them(world)
        await world.settle(self.case.rest)
        pictures.append(world.picture(self._ignored))
        await world.stop()
        remembered, anew = pictures
        if remembered != anew:
            during = f"{stage.name}, {resource.plural} are {what} then"
            self._problem(f"{during}: memory matters: {_difference(anew - remembered, remembered - anew)}")
        await self._is_done(f"{stage.name}, {resource.plural} are {what} then")

    async def _overlap(self, stage: Stage, following: Stage, number: int) -> None:
        """Apply the following edit while this one is in progress; the caches show both results at once."""

        held = ""

        async def both(world: World) -> None:
            await stage.edit(world)
            world.deliver()
            await world.clock.sleep(OVERLAP_SECONDS)
            world.others_work()
            world.held, world.relisted = held, {held}
            with suppress(ApiError):  # its object may not exist yet
                await following.edit(world)

        name = f"{stage.name} and {following.name}"
        one = Stage(name, both, stage.before, stage.before, Counter(), [], [], Counter())
        calm = await self._repeat(one, number, "at once")
        self._note_orders(calm)
        for held in [watched.name for watched, _ in calm.running.stores if watched.name in calm.shown]:
            await self._repeat(one, number, f"at once, {held} are late")
        held = ""
        for fault in _faults(calm):
            if fault.kind == "lost" and fault.signature.startswith(("POST", "DELETE")):
                fault = replace(fault, then_refused=True)
            elif fault.kind != "refused":
                continue
            await self._try(one, number, fault)

    async def _try(self, stage: Stage, number: int, fault: Fault, what: str = "", **how: Any) -> None:
        """Repeat the stage with a fault, unless the case accepts it."""
        if f"{fault.kind}: {fault.signature}" not in self.case.final:
            await self._repeat(stage, number, what or str(fault), fault, **how)

    async def _repeat(
        self,
        stage: Stage,
        number: int,
        what: str,
        fault: Fault | None = None,
        held: str = "",
        lagging: str = "",
        one_by_one: bool = False,
        nudged: bool = False,
        workers: int = 1,
        twins: bool = False,
        paged: bool = False,
        takeover: bool = False,
    ) -> World:
        self.server.restore(stage.before)
        if twins:
            await self.server.add_twins()
        self.server.seed("start")
        world = self._world(str(number), workers)
        await world.settle(0.5)
        for write in (one for one in world.writes if one.done and not self.case.restart_writes):
            if not is_sibling(write.object.name):
                self._problem(f"{stage.name}, {what}: a restart writes {write.signature}")
        world.reset()
        world.fault, world.paged, world.crashed = fault, paged, takeover
        world.held, world.relisted = held, {held}
        world.lagging, world.lag = lagging, self.case.lag
        world.one_by_one, world.nudged = one_by_one, nudged
        self.server.seed(stage.name)
        await stage.edit(world)
        await world.settle(self.case.rest)
        during = f"{stage.name}, {what}"
        if world.unread:
            self._problem(f"{during}: {world.unread} lists are not read to their end")
        if crashed := world.crashed:
            await world.stop()
            world, effects = self._world(str(number)), world.effects
            await world.settle(self.case.rest)
            world.effects += effects
        for plural, what_is_gone in world.undone():
            if f"{what_is_gone} of {plural}" not in self.case.overwrites:
                self._problem(f"{during}: the {what_is_gone} that another writer added is gone from {plural}")
        for write in world.writes:
            if write.target.namespace == TWIN_NAMESPACE and write.changes:
                self._problem(f"{during}: {write.signature} {write.target.key}")
        if world.met is not None and fault is not None:
            self._judge(during, fault, world, world.met)
        self._note_preconditions(world)
        alike = fault is None or fault.kind not in ("replaced", "gone", "outrun")
        alike &= bool(stage.picture) and not (
            fault is not None and fault.kind == "wiped" and self.case.relies_on_status
        )
        alike &= not {what, held, lagging, f"late: {held}"}.intersection(self.case.decides_by_time)
        if alike:
            changed = fault is not None and fault.kind in ("changed", "contested")
            self._compare(during, stage, world, changed=changed, crashed=crashed)
        self._failed(during, world)
        self._compare_with_recorded()
        await world.stop()
        if not alike or not (paged or crashed or (fault is not None and fault.kind == "stuck")):
            await self._is_done(during)
        return world

    def _nodes(self) -> list[Json]:
        return [one.obj for one in self.server.collection(NODES).objects.values()]

    async def _is_done(self, during: str) -> None:
        """Check that a new process has nothing to do."""
        if self.case.restart_writes:
            return
        world = self._world("restarted")
        await world.settle(RESTART_SECONDS)
        for write in world.writes:
            if write.done and not is_sibling(write.object.name):
                self._problem(f"{during}: a restart writes {write.signature}: {str(write.body)[:200]}")
        self._failed(f"{during}, after a restart", world)
        await world.stop()

    def _judge(self, during: str, fault: Fault, world: World, met: Write) -> None:
        """Record what a reconcile wrote after the fault."""
        kind = fault.kind
        if kind == "stuck":
            others: dict[Target, None] = {}
            for one in world.writes[met.position + 1 :]:
                if one.signature == met.signature and one.done:
                    if one.object == met.object:
                        break
                    others[one.object] = None
            known = set(self.report.after_failure.get(f"stuck: {met.signature}", ()))
            self.report.after_failure[f"stuck: {met.signature}"] = sorted(known | {f"{len(others)} others"})
            return
        if kind == "down":
            sent = sum(one.signature == met.signature and one.status == met.status for one in world.writes)
            self.report.after_failure[f"down: {met.signature}"] = [f"{sent} requests"]
            return
        if met.of is None:
            return
        followers = [one.says for one in world.writes[met.position :] if one.of is met.of and one is not met]
        failed, read = kind in ("refused", "lost"), met.signature.startswith("GET")
        if failed:
            followers += [event for of, event in world.events[met.events :] if of is met.of]
        if kind == "lost":
            followers += [one.signature for one in world.reads if one.of is met.of and one.position > met.position]
        what = met.signature if kind == "refused" else f"{kind}: {met.signature}"
        if fault.then_refused:
            what = f"{kind}, then refused: {met.signature}"
        if failed or (followers and (kind in ("contested", "wiped") or (read and kind != "gone"))):
            known = set(self.report.after_failure.get(what, ()))
            self.report.after_failure[what] = sorted(known | set(followers))
        if not failed or met.signature.startswith("CALL"):
            return
        sent = world.reads if met in world.reads else world.writes
        retried = any(one.of is met.of and one.target == met.target and one is not met for one in sent)
        if kind == "refused" and not met.of.requeued and not retried:
            self._problem(f"{during}: the reconcile neither failed nor requeued: {met.of.result}")

    def _compare(self, during: str, stage: Stage, world: World, *, changed: bool, crashed: bool) -> None:
        wanted, found = stage.picture, world.picture(self._ignored)
        if changed:
            wanted, found = _unchanged(wanted), _unchanged(found)
        missing, more = wanted - found, found - wanted
        if missing or more:
            self._problem(f"{during}: the result differs: {_difference(missing, more)}")
            return
        if world.effects != stage.effects:
            self._problem(f"{during}: {dict(world.effects)} instead of {dict(stage.effects)}")
        if world.met is not None or crashed:
            return  # an object may be created twice after a failed write, as long as only one remains
        for verb in ("POST", "DELETE"):
            calm, now = self._made(stage.writes, verb), self._made(world.writes, verb)
            if calm == now:
                continue
            self._problem(f"{during}: {verb} {dict(now)} instead of {dict(calm)}")

    def _made(self, writes: Sequence[Write], verb: str) -> Counter[str]:
        done = [
            one
            for one in writes
            if one.changes and one.target.plural not in self.case.collected and not is_sibling(one.object.name)
        ]
        return Counter(one.signature for one in done if one.signature.startswith(verb))


def _unchanged(picture: Counter[str]) -> Counter[str]:
    """Return the counted objects without the metadata added by the other writer."""
    found: Counter[str] = Counter()
    for text, count in picture.items():
        for mark in MARKS:
            text = text.replace(mark, "")
        found[text.replace('"annotations":{},', "").replace(',"ownerReferences":[]', "")] += count
    return found


def _difference(missing: Counter[str], more: Counter[str]) -> str:
    if missing and more:
        one, other = next(iter(missing)), next(iter(more))
        at = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
        parts = (one[max(0, at - 80) : at + 80], other[max(0, at - 80) : at + 80])
        return f"...{parts[0]} | became | ...{parts[1]} ({len(missing)}, {len(more)})"
    return f"missing {[one[:120] for one in missing]}, too many {[one[:120] for one in more]}"


def _first_of_each(writes: Sequence[Write]) -> list[Write]:
    found: dict[str, Write] = {}
    for write in writes:
        found.setdefault(write.signature, write)
    return list(found.values())


def _faults(world: World) -> Iterator[Fault]:
    """Yield faults for the requests of a run: for the first of each signature, and some also for the first write of
    each shape and for the last write."""
    last = {write.signature: write for write in world.writes}
    shapes: dict[tuple[str, tuple[str, ...]], Write] = {}
    for write in world.writes:
        shapes.setdefault((write.signature, write.shape), write)
    for read in _first_of_each(world.reads):
        yield from map(read.fault, ("refused", *(("replaced", "changed", "gone") if read.target.name else ())))
    for call in _first_of_each(world.calls):
        yield from map(call.fault, ("refused", *(("ignored",) if call.signature == "CALL stop" else ())))
    for write in _first_of_each(world.writes):
        of_each_shape = [one.number for one in shapes.values() if one.signature == write.signature]
        for number in dict.fromkeys((*of_each_shape, last[write.signature].number)):
            yield Fault("refused", write.signature, number)
            if write.target.subresource == "status" and write.target.plural != "pods":
                yield Fault("wiped", write.signature, number)
        yield write.fault("lost")
        if write.target.name:
            yield write.fault("replaced")
            if write.signature.startswith(("PATCH", "PUT")):
                yield from map(write.fault, ("changed", "contested", "outrun"))
            elif "resourceVersion" in write.preconditions:
                yield write.fault("changed")
            yield write.fault("gone")
        elif write.target.plural not in SHARED_NAMES and "name" in ((write.body or {}).get("metadata") or {}):
            # An existing claim is used unless it is being deleted.
            yield write.fault("going" if write.target.plural == "persistentvolumeclaims" else "taken")
