"""The board: the rows of every section, kept up to date by watches."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random
from typing import Any, Final, TypeVar

import orjson
from pydantic.alias_generators import to_camel

from app.dashboard.overview import (
    Node,
    Nodes,
    Overview,
    PodTotals,
    Workload,
    Workloads,
    overview_model,
    target_revision,
    workload,
)
from app.framework.commands import Commands
from app.framework.dashboard import SHOWN, DashboardSection, PodJudge, Stored
from app.framework.feature import Feature
from app.kube.client import Client
from app.kube.objects import Meta, Namespace, Pod, decode_metadata, decode_namespace, decode_pod
from app.kube.reflector import Reflector
from app.kube.resources import NAMESPACES, PODS, ObjectKey, Resource
from app.kube.store import Change, Store, key_of
from app.pods.predicates import Owner, is_active


class Lacking:
    """Records which objects (such as SidecarSets) each Pod is missing, as decided by a PodJudge."""

    def __init__(self, judge: PodJudge) -> None:
        self._judge = judge
        self._objects: dict[ObjectKey, tuple[str, ...]] = {}
        self._pods: dict[str, set[ObjectKey]] = {}

    def object_changed(self, name: str, stored: Stored | None) -> None:
        """Pass an added, changed or deleted (None) object to the judge. All Pods must then be judged again."""
        if stored is None:
            self._judge.remove(name)
        else:
            self._judge.update(stored)

    def judge(self, key: ObjectKey, pod: Pod | None, namespace_labels: Mapping[str, str] | None) -> Collection[str]:
        """Record the objects the Pod is missing: none if it was deleted or its namespace is unknown.

        Returns the objects whose set of Pods changed.
        """
        lacks: tuple[str, ...] = ()
        if pod is not None and namespace_labels is not None and is_active(pod):
            lacks = tuple(self._judge.lacking(pod, namespace_labels))
        before = self._objects.get(key, ())
        if lacks == before:
            return ()
        for name in before:
            self._pods[name].discard(key)
        for name in lacks:
            self._pods.setdefault(name, set()).add(key)
        if lacks:
            self._objects[key] = lacks
        else:
            self._objects.pop(key, None)
        return {*before, *lacks}

    def pods(self, name: str) -> Collection[ObjectKey]:
        return self._pods.get(name, ())


T = TypeVar("T")


def shown(rows: Collection[T], place: Callable[[T], Any]) -> dict[str, Any]:
    """Return the fields of a section with these rows, sorted by ``place``."""
    return {"total": len(rows), "more": max(0, len(rows) - SHOWN), "items": heapq.nsmallest(SHOWN, rows, key=place)}


class SectionRows:
    """Rows of one kind. ``lacking`` records the Pods that lack its objects; None for kinds without a judge."""

    def __init__(self, section: DashboardSection[Any], lacking: Lacking | None) -> None:
        self._section = section
        self._lacking = lacking
        self._objects: dict[ObjectKey, Stored] = {}
        #: Sort key and row.
        self._rows: dict[ObjectKey, tuple[Any, Any]] = {}
        self._stale: set[ObjectKey] = set()
        self._shown: dict[str, Any] | None = None

    def object_changed(self, key: ObjectKey, stored: Stored | None) -> None:
        """Record an added, changed or deleted (None) object."""
        self._shown = None
        if stored is None:
            self._objects.pop(key, None)
            self._rows.pop(key, None)
            self._stale.discard(key)
        else:
            self._objects[key] = stored
            self._stale.add(key)

    def mark_lacking(self, names: Iterable[str]) -> None:
        """Mark these cluster-scoped objects as stale, because the set of Pods that lack them changed."""
        for name in names:
            if (key := ObjectKey("", name)) in self._objects:
                self._stale.add(key)
                self._shown = None

    def shown(self) -> dict[str, Any]:
        if self._shown is None:
            for key in self._stale:
                pods = self._lacking.pods(key.name) if self._lacking is not None else ()
                row = self._section.row(self._objects[key], pods)
                self._rows[key] = self._section.place(row), row
            self._stale.clear()
            first = shown(self._rows.values(), lambda placed: placed[0])
            self._shown = {**first, "items": [row for _, row in first["items"]]}
        return self._shown


# The board holds the state of the cluster, which reflectors keep up to date, and sends changes to readers. A change
# marks the affected sections; a few times a second, the board recomputes the marked sections and sends those that
# changed. A slow reader gets the latest state of each section instead of a queue.

#: Seconds between updates.
PACE: Final = 0.25
#: Maximum number of Pods processed before other tasks run.
_BATCH: Final = 500


@dataclass(frozen=True, slots=True)
class Raw:
    """A stored object as a dict."""

    metadata: Meta
    stored: Mapping[str, Any]

    @property
    def uid(self) -> str:
        return self.metadata.uid or ""


def decode_raw(raw: bytes) -> Raw:
    """Decode an object from JSON. Raises DecodeError."""
    metadata = decode_metadata(raw).metadata
    stored = orjson.loads(raw)
    stored.get("metadata", {}).pop("managedFields", None)
    return Raw(metadata, stored)


class Reader:
    """A reader's queue: the latest JSON of each section that it has not received yet."""

    def __init__(self, first: Mapping[str, bytes]) -> None:
        self._pending: dict[str, bytes] = dict(first)
        self._wake = asyncio.Event()
        self._wake.set()

    def offer(self, section: str, payload: bytes) -> None:
        self._pending[section] = payload
        self._wake.set()

    async def next(self) -> tuple[str, bytes]:
        """Return the name and JSON of the next changed section."""
        while not self._pending:
            self._wake.clear()
            await self._wake.wait()
        section = next(iter(self._pending))
        return section, self._pending.pop(section)


def _place_of_workload(row: Workload) -> tuple[bool, str, str, str]:
    """Sort completed rollouts last."""
    return row.state == "done", row.kind, row.namespace, row.name


def _place_of_node(node: Node) -> tuple[int, str]:
    """Sort nodes with unready Pods first."""
    return -(node.pods.not_ready + node.pods.pending), node.name


class Board:
    """Live state of the cluster. ``workloads`` are the kinds with rollouts, ``kinds`` the sections of all others."""

    def __init__(
        self, client: Client, workloads: Sequence[Commands], kinds: Sequence[DashboardSection[Any]], rng: Random
    ) -> None:
        self._client = client
        self._rng = rng
        self._pods: Store[Pod] = Store()
        self._namespaces: Store[Namespace] = Store()
        shown = (*(one.kind for one in kinds), *(one.kind for one in workloads))
        self._stores: dict[Resource, Store[Raw]] = {kind.resource(): Store() for kind in shown}
        self.sections = tuple(kinds)
        self.model = overview_model(kinds)
        #: The Pods that lack objects of a section, by section name.
        self._lacking = {one.name: Lacking(one.judge()) for one in kinds if one.judge is not None}
        self._section_rows = {one.name: SectionRows(one, self._lacking.get(one.name)) for one in kinds}
        self._totals = PodTotals()
        self._rows: dict[str, Workload] = {}
        #: By UID of a workload: the commands of its kind, and the workload.
        self._known: dict[str, tuple[Commands, Raw]] = {}
        self._stale_rows: set[str] = set()
        self._judge_again = False
        self._wake = asyncio.Event()
        self._sent: dict[str, bytes] = {}
        self._readers: set[Reader] = set()
        self._subscribe(workloads)

    # ---- changes

    def _subscribe(self, workloads: Sequence[Commands]) -> None:
        self._pods.subscribe(self._pod_changed)
        self._namespaces.subscribe(lambda _: self._mark_pods())
        for section in self.sections:
            self._stores[section.kind.resource()].subscribe(self._section_follower(section))
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

    def _section_follower(self, section: DashboardSection[Any]) -> Callable[[Change[Raw]], None]:
        lacking, rows = self._lacking.get(section.name), self._section_rows[section.name]

        def changed(change: Change[Raw]) -> None:
            rows.object_changed(key_of(change.object), change.new.stored if change.new else None)
            if lacking is not None:
                lacking.object_changed(change.object.metadata.name, change.new.stored if change.new else None)
                self._mark_pods()
            self._wake.set()

        return changed

    def _mark_pods(self) -> None:
        self._judge_again = True
        self._wake.set()

    def _judge(self, key: ObjectKey, pod: Pod | None) -> None:
        """Record the objects the Pod is missing."""
        namespace = self._namespaces.get(key.namespace)
        labels = namespace.metadata.labels if namespace is not None else None
        for name, lacking in self._lacking.items():
            self._section_rows[name].mark_lacking(lacking.judge(key, pod, labels))

    # ---- current state

    def overview(self) -> Overview:
        others = {name: rows.shown() for name, rows in self._section_rows.items()}
        return self.model(workloads=self._shown_workloads(), nodes=self._shown_nodes(), **others)

    def _shown_workloads(self) -> Workloads:
        for uid in self._stale_rows:
            if uid in self._known:
                commands, raw = self._known[uid]
                revisions = self._totals.revisions(
                    Owner.of(commands.kind.resource(), raw.metadata), target_revision(raw.stored)
                )
                self._rows[uid] = workload(commands, raw.stored, revisions)
        self._stale_rows.clear()
        return Workloads(**shown(self._rows.values(), _place_of_workload))

    def _shown_nodes(self) -> Nodes:
        return Nodes(pods=self._totals.total, **shown(self._totals.nodes(), _place_of_node))

    # ---- readers

    @asynccontextmanager
    async def reader(self) -> AsyncIterator[Reader]:
        """Register a reader. It first receives all sections, then each section that changes."""
        made = Reader(self._sent or self._payloads())
        self._readers.add(made)
        try:
            yield made
        finally:
            self._readers.discard(made)

    def _payloads(self) -> dict[str, bytes]:
        found = self.overview()
        return {
            to_camel(field): getattr(found, field).model_dump_json(by_alias=True).encode()
            for field in self.model.model_fields
        }

    async def run(self) -> None:
        """Watch the cluster and notify readers until canceled."""
        async with asyncio.TaskGroup() as group:
            for reflector in self._reflectors():
                group.create_task(reflector.run())
            group.create_task(self._publish())

    async def until_ready(self) -> None:
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
            if self._judge_again:
                self._judge_again = False
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


def board_of(client: Client, features: Sequence[Feature], rng: Random) -> Board:
    """Return a board of everything that these features show."""
    workloads = [one for declared in features for one in declared.commands() if one.progress is not None]
    return Board(client, workloads, [one for declared in features for one in declared.dashboard()], rng)
