"""The board: what is known of the cluster, kept by reflectors, and told to whoever looks as it changes.

A change marks what it concerns; a few times a second what is marked is worked out anew, and sections that differ are
sent. A reader that is slow gets the latest state of each section, never a queue.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random
from typing import Any, Final, Protocol

import orjson

from app.api.podunavailablebudget import POD_UNAVAILABLE_BUDGET
from app.api.sidecarset import SIDECAR_SET
from app.api.workloadspread import WORKLOAD_SPREAD
from app.dashboard import sections
from app.dashboard.model import Budgets, Nodes, Overview, SidecarSets, Spreads, Workload, Workloads
from app.dashboard.podtotals import PodTotals
from app.kube.client import Client
from app.kube.objects import Meta, Namespace, Pod, decode_metadata, decode_namespace, decode_pod
from app.kube.reflector import Reflector
from app.kube.resources import NAMESPACES, PODS, ObjectKey, Resource
from app.kube.store import Change, Store, key_of
from app.pods.predicates import is_active
from app.sidecars.sidecarset.bypassed import lacking_sets
from app.sidecars.sidecarset.selection import SidecarSetIndex
from app.slices.commands import Commands

#: Seconds between two looks at what changed.
PACE: Final = 0.25
#: Pods looked through before others get their turn.
_BATCH: Final = 500


@dataclass(frozen=True, slots=True)
class Raw:
    """An object as it is stored."""

    metadata: Meta
    stored: Mapping[str, Any]

    @property
    def uid(self) -> str:
        """The object's uid."""
        return self.metadata.uid or ""


def decode_raw(raw: bytes) -> Raw:
    """An object from JSON. Raises DecodeError."""
    metadata = decode_metadata(raw).metadata
    stored = orjson.loads(raw)
    stored.get("metadata", {}).pop("managedFields", None)
    return Raw(metadata, stored)


class Sent(Protocol):
    """One reader: the latest JSON of each section it has not got yet."""

    async def next(self) -> tuple[str, bytes]:
        """The name of a section, and its JSON."""
        ...


class _Reader:
    def __init__(self, first: Mapping[str, bytes]) -> None:
        self._pending: dict[str, bytes] = dict(first)
        self._wake = asyncio.Event()
        self._wake.set()

    def offer(self, section: str, payload: bytes) -> None:
        self._pending[section] = payload
        self._wake.set()

    async def next(self) -> tuple[str, bytes]:
        while not self._pending:
            self._wake.clear()
            await self._wake.wait()
        section = next(iter(self._pending))
        return section, self._pending.pop(section)


class Board:
    """``workloads``: the kinds that have a roll-out, with what the command line knows of them."""

    def __init__(self, client: Client, workloads: Sequence[Commands], rng: Random) -> None:
        self._client = client
        self._rng = rng
        self._pods: Store[Pod] = Store()
        self._namespaces: Store[Namespace] = Store()
        shown = (SIDECAR_SET, POD_UNAVAILABLE_BUDGET, WORKLOAD_SPREAD, *(one.kind for one in workloads))
        self._stores: dict[Resource, Store[Raw]] = {kind.resource(): Store() for kind in shown}
        self._sets = self._stores[SIDECAR_SET.resource()]
        self._budgets = self._stores[POD_UNAVAILABLE_BUDGET.resource()]
        self._spreads = self._stores[WORKLOAD_SPREAD.resource()]
        self._totals = PodTotals()
        self._index = SidecarSetIndex()
        #: The sets that a Pod lacks, and the Pods that lack a set.
        self._lacks: dict[ObjectKey, tuple[str, ...]] = {}
        self._lacking: dict[str, set[ObjectKey]] = {}
        self._rows: dict[str, Workload] = {}
        #: uid of a workload → its kind's commands and its key.
        self._known: dict[str, tuple[Commands, Raw]] = {}
        self._stale_rows: set[str] = set()
        self._sets_changed = False
        self._wake = asyncio.Event()
        self._sent: dict[str, bytes] = {}
        self._readers: set[_Reader] = set()
        self._subscribe(workloads)

    # ---- what changes

    def _subscribe(self, workloads: Sequence[Commands]) -> None:
        self._pods.subscribe(self._pod_changed)
        self._namespaces.subscribe(lambda _: self._mark_sets())
        self._sets.subscribe(self._set_changed)
        for store in (self._budgets, self._spreads):
            store.subscribe(lambda _: self._wake.set())
        for commands in workloads:
            self._stores[commands.kind.resource()].subscribe(self._follower(commands))

    def _follower(self, commands: Commands) -> Callable[[Change[Raw]], None]:
        def changed(change: Change[Raw]) -> None:
            old, new = change.old, change.new
            if old is not None and (new is None or new.uid != old.uid):
                self._known.pop(old.uid, None)
                self._rows.pop(old.uid, None)
            if new is not None:
                self._known[new.uid] = commands, new
                self._stale_rows.add(new.uid)
            self._wake.set()

        return changed

    def _pod_changed(self, change: Change[Pod]) -> None:
        uid = self._totals.observe(change)
        if uid in self._known:
            self._stale_rows.add(uid)
        self._judge(key_of(change.object), change.new)
        self._wake.set()

    def _set_changed(self, change: Change[Raw]) -> None:
        if change.new is not None:
            self._index.update(change.new.stored)
        else:
            self._index.remove(change.object.metadata.name)
        self._mark_sets()

    def _mark_sets(self) -> None:
        self._sets_changed = True
        self._wake.set()

    def _judge(self, key: ObjectKey, pod: Pod | None) -> None:
        """Note which sets the Pod lacks."""
        namespace = self._namespaces.get(key.namespace)
        lacks: tuple[str, ...] = ()
        if pod is not None and namespace is not None and is_active(pod):
            lacks = tuple(lacking_sets(pod, self._index, namespace.metadata.labels))
        before = self._lacks.get(key, ())
        if lacks == before:
            return
        for name in before:
            self._lacking[name].discard(key)
        for name in lacks:
            self._lacking.setdefault(name, set()).add(key)
        if lacks:
            self._lacks[key] = lacks
        else:
            self._lacks.pop(key, None)

    # ---- what is shown

    def overview(self) -> Overview:
        """Everything, as it is now."""
        return Overview(
            workloads=self._shown_workloads(),
            nodes=self._shown_nodes(),
            sidecar_sets=self._shown_sets(),
            budgets=self._shown_budgets(),
            spreads=Spreads(**sections.shown(sections.spread(one.stored) for one in self._spreads.list())),
        )

    def _shown_workloads(self) -> Workloads:
        for uid in self._stale_rows:
            if uid in self._known:
                commands, raw = self._known[uid]
                revisions = self._totals.revisions(uid, sections.target_revision(raw.stored))
                self._rows[uid] = sections.workload(commands, raw.stored, revisions)
        self._stale_rows.clear()
        ordered = sorted(self._rows.values(), key=lambda row: (row.state == "done", row.kind, row.namespace, row.name))
        return Workloads(**sections.shown(ordered))

    def _shown_nodes(self) -> Nodes:
        return Nodes(pods=self._totals.total, **sections.shown(self._totals.nodes()))

    def _shown_sets(self) -> SidecarSets:
        rows = [sections.sidecar_set(one.stored, self._lacking.get(one.metadata.name, ())) for one in self._sets.list()]
        return SidecarSets(**sections.shown(sorted(rows, key=lambda row: (-row.lacking, row.name))))

    def _shown_budgets(self) -> Budgets:
        rows = [sections.budget(one.stored) for one in self._budgets.list()]
        return Budgets(**sections.shown(sorted(rows, key=lambda row: (row.allowed > 0, row.namespace, row.name))))

    # ---- telling

    @asynccontextmanager
    async def reader(self) -> AsyncIterator[Sent]:
        """Somebody who looks: first everything, then what changes."""
        made = _Reader(self._sent or self._payloads())
        self._readers.add(made)
        try:
            yield made
        finally:
            self._readers.discard(made)

    def _payloads(self) -> dict[str, bytes]:
        found = self.overview()
        fields = {name: getattr(found, field) for field, name in _SECTIONS.items()}
        return {name: section.model_dump_json(by_alias=True).encode() for name, section in fields.items()}

    async def run(self) -> None:
        """Follow the cluster and tell readers, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for reflector in self._reflectors():
                group.create_task(reflector.run())
            group.create_task(self._publish())

    async def until_ready(self) -> None:
        """Return once Pods and namespaces are known."""
        await self._pods.wait_until_ready()
        await self._namespaces.wait_until_ready()

    def _reflectors(self) -> Iterable[Reflector[Any]]:
        yield Reflector(self._client, NAMESPACES, self._namespaces, decode=decode_namespace, rng=self._rng)
        yield Reflector(self._client, PODS, self._pods, decode=decode_pod, rng=self._rng)
        for resource, store in self._stores.items():
            yield Reflector(self._client, resource, store, decode=decode_raw, rng=self._rng)

    async def _publish(self) -> None:
        clock = self._client.clock
        while True:
            await self._wake.wait()
            await clock.sleep(PACE)
            self._wake.clear()
            if self._sets_changed:
                self._sets_changed = False
                await self._judge_all()
            for section, payload in self._payloads().items():
                if self._sent.get(section) != payload:
                    self._sent[section] = payload
                    for reader in self._readers:
                        reader.offer(section, payload)

    async def _judge_all(self) -> None:
        for number, pod in enumerate(list(self._pods.list())):
            self._judge(key_of(pod), pod)
            if number % _BATCH == _BATCH - 1:
                await self._client.clock.sleep(0)


#: Fields of the overview, and what the events of their sections are called.
_SECTIONS: Final = {
    "workloads": "workloads",
    "nodes": "nodes",
    "sidecar_sets": "sidecarSets",
    "budgets": "budgets",
    "spreads": "spreads",
}
