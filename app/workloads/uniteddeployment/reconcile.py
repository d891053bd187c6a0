"""The controller's reconcile: read the subsets' workloads, ask the plan, carry it out, report (UD-26 … UD-68)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from app.api import names
from app.api.gojson import GoTypeError, dumps_go
from app.api.uniteddeployment import UNITED_DEPLOYMENT, Subset, UnitedDeployment
from app.api.uniteddeployment.defaults import as_printed
from app.api.uniteddeployment.shares import ShareError
from app.api.uniteddeployment.types import (
    ADAPTIVE,
    DEPLOYMENT,
    RESCHEDULE_CRITICAL_SECONDS,
    STATEFUL_SET,
    TEMPLATES,
    UNSCHEDULABLE_SECONDS,
    template_of,
)
from app.kube.client import Client
from app.kube.controller import Result
from app.kube.errors import NotFound
from app.kube.events import EventRecorder
from app.kube.objects import ControllerRevision, Pod, decode_metadata
from app.kube.resources import DEPLOYMENTS, STATEFULSETS, ObjectKey, Resource
from app.kube.selectors import Selector, SelectorError, compile_selector, selector_text
from app.kube.statuses import KnownStatus, write_status
from app.kube.store import Change, Store
from app.pods.predicates import is_active, is_ready
from app.pods.revisions import Revision
from app.workloads.engine.conditions import status_patch
from app.workloads.engine.history import History
from app.workloads.engine.kind import OWNER
from app.workloads.engine.revisions import Content, Revisions
from app.workloads.uniteddeployment.plan import allocation
from app.workloads.uniteddeployment.plan.adaptive import Schedulability, pending_pods, schedulability
from app.workloads.uniteddeployment.plan.status import REQUIRED, Outcome, SubsetState, condition_of, status_of
from app.workloads.uniteddeployment.plan.subsets import (
    SubsetError,
    SubsetWorkload,
    Wanted,
    needs_update,
    wanted_workload,
)
from app.workloads.uniteddeployment.writer import KIND, SubsetWriter

logger = logging.getLogger(__name__)

#: The index of Pods by namespace and subset.
SUBSET: Final = "subset"
COALESCE_SECONDS: Final = 0.1
#: Seconds until a created workload that no cache shows is asked for.
BELIEF_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class Caches:
    """What is read. ``workloads``: those of subsets, by the template that they are made from."""

    united: Store[UnitedDeployment]
    pods: Store[Pod]
    revisions: Store[ControllerRevision]
    workloads: Mapping[str, Store[SubsetWorkload]]


@dataclass(slots=True)
class _State:
    """What is remembered of one object between reconciles."""

    uid: str
    #: Names of workloads that were created and no cache shows yet → when they were.
    created: dict[str, float] = field(default_factory=dict)
    status: KnownStatus | None = None


@dataclass(frozen=True, slots=True)
class _Plan:
    """What one reconcile goes by."""

    united: UnitedDeployment
    kind: str
    template: Mapping[str, Any]
    selector: Selector
    revisions: Revisions
    #: The workload of each subset that has one.
    existing: Mapping[str, SubsetWorkload]
    #: Workloads that nobody wants: of subsets that are gone, of other kinds, or a second one for a subset.
    surplus: Sequence[tuple[str, SubsetWorkload]]
    schedulable: Mapping[str, Schedulability]
    now: datetime

    @property
    def subsets(self) -> Sequence[Subset]:
        topology = self.united.spec.topology
        return (topology.subsets or ()) if topology is not None else ()


def resources(resource_of: Mapping[str, Resource]) -> Mapping[str, Resource]:
    """Template → where its workloads are; ``resource_of``: CloneSets and Advanced StatefulSets."""
    return {STATEFUL_SET: STATEFULSETS, DEPLOYMENT: DEPLOYMENTS, **resource_of}


class UnitedDeploymentReconciler:
    """Keeps the workloads of all UnitedDeployments."""

    def __init__(self, client: Client, caches: Caches, events: EventRecorder, kinds: Mapping[str, Resource]) -> None:
        self._client = client
        self._clock = client.clock
        self._caches = caches
        self._resources = kinds
        self._writer = SubsetWriter(client, events, kinds)
        self._history = History(client, caches.revisions, KIND)
        self._states: dict[ObjectKey, _State] = {}

    # ---- what changes concern

    def keys_for_united(self, change: Change[UnitedDeployment]) -> Iterable[ObjectKey]:
        """Itself, but for a change of its status alone."""
        old, new = change.old, change.new
        found = change.object
        if old is not None and new is not None and old.metadata.uid == new.metadata.uid:
            same = old.metadata.generation == new.metadata.generation and old.deleting == new.deleting
            if same and old.metadata.labels == new.metadata.labels:
                return ()
        return (ObjectKey(found.metadata.namespace, found.name),)

    def keys_for_workload(self, change: Change[SubsetWorkload]) -> Iterable[ObjectKey]:
        """The UnitedDeployment that manages it, or did until now."""
        keys: dict[ObjectKey, None] = {}
        for one in (change.old, change.new):
            reference = KIND.managing_reference(one.metadata) if one is not None else None
            if reference is not None and one is not None:
                keys[ObjectKey(one.metadata.namespace, reference.name)] = None
        return keys

    def keys_for_pod(self, change: Change[Pod]) -> Iterable[ObjectKey]:
        """UD-26: those whose revision the Pod carries."""
        metadata = change.object.metadata
        name, _, _ = metadata.labels.get(names.UNITED_REVISION_HASH, "").rpartition("-")
        key = ObjectKey(metadata.namespace, name)
        return (key,) if name and names.SUBSET_NAME in metadata.labels and key in self._caches.united else ()

    def keys_for_revision(self, change: Change[ControllerRevision]) -> Iterable[ObjectKey]:
        """Nobody; the history is told what the cache shows."""
        self._history.observe(change)
        return ()

    def coalesce_delay(self, change: Change[Any], key: ObjectKey) -> float:  # noqa: ARG002
        """How long a reconcile is put off that a workload or a Pod asks for."""
        return COALESCE_SECONDS

    # ---- one reconcile

    async def __call__(self, key: ObjectKey) -> Result | None:
        """Bring the subsets and the status of one UnitedDeployment up to date."""
        united = self._caches.united.by_key(key)
        if united is None:
            self._states.pop(key, None)
            return None
        if united.deleting:
            return None  # UD-27: what it owns goes with it
        state = self._states.get(key)
        if state is None or state.uid != united.metadata.uid:
            state = self._states[key] = _State(united.metadata.uid)
        if await self._awaits_creations(united, state):
            return Result(requeue_after=1.0)
        found = template_of(united.spec)
        try:
            selector = compile_selector(united.spec.selector)
            plan = await self._plan(united, state, found, selector) if found is not None else None
        except (SelectorError, GoTypeError) as error:
            logger.warning("UnitedDeployment %s is left alone: %s", key, error)
            return None
        if plan is None:
            return None
        return await self._carry_out(plan, state)

    async def _awaits_creations(self, united: UnitedDeployment, state: _State) -> bool:
        """UD-33: whether a workload that was created is not seen yet: another one for its subset must not be made."""
        now = self._clock.monotonic()
        for name, since in list(state.created.items()):
            seen = any(
                (name, united.metadata.namespace) and store.get(name, united.metadata.namespace) is not None
                for store in self._caches.workloads.values()
            )
            if seen or (now - since > BELIEF_SECONDS and not await self._exists(name, united.metadata.namespace)):
                del state.created[name]
        return bool(state.created)

    async def _exists(self, name: str, namespace: str) -> bool:
        for resource in self._resources.values():
            try:
                await self._client.get(resource, name, namespace, decode=decode_metadata)
            except NotFound:
                continue
            return True
        return False

    async def _plan(
        self, united: UnitedDeployment, state: _State, found: tuple[str, dict[str, Any]], selector: Selector
    ) -> _Plan:
        kind, template = found
        metadata = united.metadata
        content = content_of(united)
        status = self._present_status(united, state).status
        ordered = self._history.revisions(content, selector)
        revisions = await self._history.record(
            content, selector, ordered, str(status.get("currentRevision") or ""), int(status.get("collisionCount") or 0)
        )
        topology = united.spec.topology
        wanted = {one.name for one in (topology.subsets or ())} if topology is not None else set()
        existing: dict[str, SubsetWorkload] = {}
        surplus: list[tuple[str, SubsetWorkload]] = []
        for name in TEMPLATES:
            owned = [
                one
                for one in self._caches.workloads[name].by_index(OWNER, metadata.uid)
                if one.metadata.namespace == metadata.namespace and one.metadata.deletion_timestamp is None
            ]
            owned.sort(key=lambda one: (str(one.metadata.creation_timestamp or ""), one.metadata.name))
            for one in owned:
                if name == kind and one.subset in wanted and one.subset not in existing:
                    existing[one.subset] = one
                else:
                    surplus.append((name, one))
        now = self._clock.now()
        schedulable = self._schedulability(united, existing, selector, status, now)
        return _Plan(united, kind, template, selector, revisions, existing, surplus, schedulable, now)

    def _schedulability(
        self,
        united: UnitedDeployment,
        existing: Mapping[str, SubsetWorkload],
        selector: Selector,
        status: Mapping[str, Any],
        now: datetime,
    ) -> dict[str, Schedulability]:
        """UD-54, UD-55."""
        topology = united.spec.topology
        strategy = topology.schedule_strategy if topology is not None else None
        if strategy is None or strategy.type != ADAPTIVE:
            return {}
        given = strategy.adaptive
        critical = given.reschedule_critical_seconds if given is not None else None
        duration = given.unschedulable_duration if given is not None else None
        return {
            name: schedulability(
                condition_of(status, name),
                pending_pods(
                    self._pods(united, name, selector),
                    RESCHEDULE_CRITICAL_SECONDS if critical is None else critical,
                    now,
                ),
                UNSCHEDULABLE_SECONDS if duration is None else duration,
                now,
            )
            for name in existing
        }

    def _pods(self, united: UnitedDeployment, subset: str, selector: Selector) -> list[Pod]:
        """The Pods of a subset, whoever owns them."""
        found = self._caches.pods.by_index(SUBSET, f"{united.metadata.namespace}/{subset}")
        return [pod for pod in found if selector.matches(pod.metadata.labels)]

    async def _carry_out(self, plan: _Plan, state: _State) -> Result | None:
        united = plan.united
        adaptive = bool(plan.united.spec.topology and _is_adaptive(united))
        try:
            replicas = allocation.allocate(
                united.spec.replicas, [_allocated(one, plan) for one in plan.subsets], adaptive=adaptive
            ).replicas
        except ShareError as error:
            # UD-41
            self._writer.event(
                united,
                "Warning",
                "Failed SpecifySubsetReplicas",
                f"Specified subset replicas is ineffective: {error}",
            )
            await self._report(plan, state, {}, Outcome(error=str(error)))
            return Result(requeue=True)
        wanted, errors = self._wanted(plan, replicas)
        missing = [one for one in wanted.values() if one.name not in plan.existing]
        changed = [
            (plan.existing[one.name], one)
            for one in wanted.values()
            if one.name in plan.existing and needs_update(plan.kind, plan.existing[one.name], one)
        ]
        made, failed = await self._writer.create(united, plan.kind, missing)
        state.created.update(dict.fromkeys(made, self._clock.monotonic()))
        errors += failed
        errors += await self._writer.delete(united, plan.surplus)
        errors += await self._writer.update(united, plan.kind, changed)
        outcome = Outcome(bool(missing or plan.surplus), "; ".join(errors))
        await self._report(plan, state, wanted, outcome)
        await self._truncate(plan, state)
        if errors:
            return Result(requeue=True)
        times = [one.again for one in plan.schedulable.values() if one.again > 0]
        if adaptive and (missing or changed):
            times.append(float(RESCHEDULE_CRITICAL_SECONDS))  # its new Pods may turn out to be unschedulable
        return Result(requeue_after=min(times) + 0.001) if times else None

    def _wanted(self, plan: _Plan, replicas: Mapping[str, int]) -> tuple[dict[str, Wanted], list[str]]:
        spec = plan.united.spec
        manual = spec.update_strategy.manual_update if spec.update_strategy is not None else None
        partitions = (manual.partitions or {}) if manual is not None else {}
        wanted: dict[str, Wanted] = {}
        errors = []
        for subset in plan.subsets:
            count = replicas[subset.name]
            try:
                wanted[subset.name] = wanted_workload(
                    plan.kind,
                    plan.template,
                    spec.selector,
                    subset,
                    replicas=count,
                    partition=max(0, min(partitions.get(subset.name, 0), count)),  # UD-47
                    revision=plan.revisions.update.name,
                )
            except SubsetError as error:
                errors.append(str(error))
                self._writer.event(plan.united, "Warning", "FailedUpdateSubset", str(error))
        return wanted, errors

    # ---- status

    async def _report(self, plan: _Plan, state: _State, wanted: Mapping[str, Wanted], outcome: Outcome) -> None:
        united, metadata = plan.united, plan.united.metadata
        update = plan.revisions.update.name
        updated = ready = 0
        states = []
        for subset in plan.subsets:
            active = [pod for pod in self._pods(united, subset.name, plan.selector) if is_active(pod)]
            new = [pod for pod in active if pod.metadata.labels.get(names.UNITED_REVISION_HASH) == update]
            updated += len(new)
            ready += sum(map(is_ready, new))
            workload, one = plan.existing.get(subset.name), wanted.get(subset.name)
            found = plan.schedulable.get(subset.name)
            states.append(
                SubsetState(
                    subset.name,
                    one.replicas if one is not None else workload.replicas if workload is not None else 0,
                    one.partition if one is not None else 0,
                    workload.status.replicas if workload is not None else 0,
                    workload.status.ready_replicas if workload is not None else 0,
                    found.condition if found is not None else None,
                )
            )

        def difference(status: Mapping[str, Any]) -> dict[str, Any]:
            made = status_of(
                status,
                states,
                outcome,
                updated_revision=update,
                updated=updated,
                updated_ready=ready,
                collisions=plan.revisions.collision_count,
                selector=selector_text(united.spec.selector),
                generation=metadata.generation,
                now=plan.now,
            )
            return status_patch(status, made, required=REQUIRED)

        present = self._present_status(united, state)
        written = await write_status(self._client, UNITED_DEPLOYMENT.resource(), metadata, present, difference)
        if written is not None:
            state.status = written

    def _present_status(self, united: UnitedDeployment, state: _State) -> KnownStatus:
        """The status as we wrote it, until the cache shows something newer."""
        version = united.metadata.resource_version
        known = state.status
        if known is not None and known.version.isdigit() and version.isdigit() and int(known.version) >= int(version):
            return known
        return KnownStatus(united.status.to_dict() if united.status is not None else {}, version)

    async def _truncate(self, plan: _Plan, state: _State) -> None:
        """UD-44."""
        spec = plan.united.spec
        limit = 10 if spec.revision_history_limit is None else spec.revision_history_limit
        # As the status is by now: its write wakes nobody, so this is the last look after a roll-out.
        current = str(self._present_status(plan.united, state).status.get("currentRevision") or "")
        used: set[str] = {plan.revisions.update.name, current}
        used |= {one.metadata.labels.get(names.UNITED_REVISION_HASH, "") for one in plan.existing.values()}
        ordered: Sequence[Revision] = plan.revisions.ordered
        await self._history.truncate(content_of(plan.united), ordered, used, limit)


def content_of(united: UnitedDeployment) -> Content:
    """UD-42, UD-45: the template alone is recorded, as Go prints it."""
    metadata = united.metadata
    owner = KIND.owner(united.name, metadata.namespace, metadata.uid)
    shown = as_printed({"spec": {"template": united.spec.template.to_dict() if united.spec.template else {}}})
    whole = shown["spec"]["template"]
    for name in TEMPLATES:
        given = whole.get(name)
        if isinstance(given, dict):
            given["metadata"] = {"creationTimestamp": None, **(given.get("metadata") or {})}
            pod = (given.get("spec") or {}).get("template")
            if isinstance(pod, dict):
                pod["metadata"] = {"creationTimestamp": None, **(pod.get("metadata") or {})}
            scale = (given.get("spec") or {}).get("scaleStrategy")
            if isinstance(scale, dict) and scale.get("enablePVCReuse") is False:
                del scale["enablePVCReuse"]
    data = dumps_go({"spec": {"template": {**whole, "$patch": "replace"}}}, sort_keys=True).encode()
    found = template_of(united.spec)
    labels = (found[1].get("metadata") or {}).get("labels") or {} if found is not None else {}
    return Content(owner, data, dict(labels), {})


def _is_adaptive(united: UnitedDeployment) -> bool:
    topology = united.spec.topology
    strategy = topology.schedule_strategy if topology is not None else None
    return strategy is not None and strategy.type == ADAPTIVE


def _allocated(subset: Subset, plan: _Plan) -> allocation.Subset:
    workload, known = plan.existing.get(subset.name), plan.schedulable.get(subset.name)
    return allocation.Subset(
        subset.name,
        subset.replicas,
        subset.min_replicas,
        subset.max_replicas,
        exists=workload is not None,
        current=workload.replicas if workload is not None else 0,
        ready=workload.status.ready_replicas if workload is not None else 0,
        unschedulable=known is not None and known.unschedulable,
    )
