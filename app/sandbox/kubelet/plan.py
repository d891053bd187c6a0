"""Plans the kubelet's next action on one Pod: status update, events, removal. Pure.

    todo = plan(pod, inputs, run)

``run`` is the node's in-memory state of the Pod's containers; after a restart it is None and is rebuilt from the
status. Keep the state in the result only once the status is written. Nothing here depends on OpenKruise kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import msgspec

from app.kube.clock import rfc3339
from app.sandbox.kubelet.containers import advance, holds_next_back, restarts, restored, stop_of
from app.sandbox.kubelet.program import CRASH, KILLED, NEVER, UNREADY, Behaviour, Pace, Scripts, behaviour_of
from app.sandbox.kubelet.runs import NEW, Context, Happened, Run, Stage
from app.sandbox.kubelet.status import Data, condition_patches, ended, environment, hindrance, nothing, printed, waiting
from app.sandbox.objects import Container, ContainerStatus, Pod

FINISHED: Final = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True)
class PodRun:
    """The node's in-memory state of one Pod: its init containers and containers, in the order of the spec."""

    inits: tuple[Run, ...] = ()
    containers: tuple[Run, ...] = ()
    #: By name, because ephemeral containers may be inserted at any position while the Pod runs.
    ephemerals: Mapping[str, Run] = field(default_factory=dict)
    #: The last value of the crash annotation that the kubelet has acted on.
    crashed: str = ""
    #: Whether the deletion event has been recorded.
    ending: bool = False


def _present(_image: str) -> bool:
    return False


_AT_ONCE: Final = Pace()


@dataclass(frozen=True, slots=True)
class PodInputs:
    """Inputs to a Pod's status besides the Pod and the kubelet's in-memory state."""

    host_ip: str
    pod_ip: str
    now: datetime
    config_maps: Data = nothing
    secrets: Data = nothing
    pace: Pace = _AT_ONCE
    scripts: Scripts | None = None
    #: Returns whether the image with this full name is on the node.
    has_image: Callable[[str], bool] = _present
    #: Containers ended by the runtime, with their exit codes.
    ended: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PodPlan:
    """Actions to take: patch the status, then remove the Pod or requeue it. Empty if nothing is needed."""

    #: Strategic merge patch for ``status``. If empty, nothing is written.
    status: Mapping[str, Any] = field(default_factory=dict)
    remove: bool = False
    #: Seconds until the Pod is requeued. Zero means that it is planned again only when it changes.
    again_after: float = 0.0
    run: PodRun | None = None
    events: Sequence[Happened] = ()
    #: Images that are now on the node.
    pulled: Sequence[str] = ()
    #: Whether the requested crash has happened, so that the annotation must be removed.
    clear_crash: bool = False


def plan(pod: Pod, inputs: PodInputs, run: PodRun | None = None) -> PodPlan:
    """Return the next action of the Pod's kubelet."""
    if run is None:
        run = _restored(pod, inputs.now.timestamp())
    if pod.metadata.deletion_timestamp is not None:
        return _plan_end(pod, pod.metadata.deletion_timestamp, inputs, run)
    if pod.status.phase in FINISHED:
        return _plan_finished(pod, inputs, run)
    return _Node(pod, inputs, run).plan()


def _restored(pod: Pod, now: float) -> PodRun:
    spec, status = pod.spec, pod.status
    inits = {one.name: one for one in status.init_container_statuses}
    mains = {one.name: one for one in status.container_statuses}
    added = {one.name: one for one in status.ephemeral_container_statuses}
    return PodRun(
        tuple(restored(one, inits.get(one.name), now) for one in spec.init_containers),
        tuple(restored(one, mains.get(one.name), now) for one in spec.containers),
        {one.name: restored(one, added.get(one.name), now) for one in spec.ephemeral_containers},
    )


def context(pod: Pod, inputs: PodInputs, crash: Mapping[str, int] | None = None) -> Context:
    """Return the Pod and its inputs as a Context for its containers."""
    namespace = pod.metadata.namespace
    inits = {one.name for one in pod.spec.init_containers}

    def behave(container: Container) -> Behaviour:
        env: Mapping[str, str] = {}
        if container.command or container.args:
            addresses = (inputs.pod_ip, inputs.host_ip)
            env = environment(pod, container, inputs.config_maps, inputs.secrets, addresses)
        return behaviour_of(pod, container, env, inputs.scripts, init=container.name in inits)

    return Context(
        pod=pod,
        now=inputs.now.timestamp(),
        pace=inputs.pace,
        behave=behave,
        hindrance=lambda container: hindrance(container, namespace, inputs.config_maps, inputs.secrets),
        has_image=inputs.has_image,
        unready=_names(pod.metadata.annotations.get(UNREADY, "")),
        crash=crash or {},
    )


def _names(text: str) -> frozenset[str]:
    return frozenset(name.strip() for name in text.split(",") if name.strip())


class _Node:
    """The containers of one Pod, advanced as far as possible."""

    def __init__(self, pod: Pod, inputs: PodInputs, run: PodRun) -> None:
        self._pod = pod
        self._inputs = inputs
        self._run = run
        asked = pod.metadata.annotations.get(CRASH, "")
        self._crash_now = asked if asked != run.crashed else ""
        self._ctx = context(pod, inputs, {**dict.fromkeys(_names(self._crash_now), KILLED), **inputs.ended})

    def plan(self) -> PodPlan:
        pod, ctx = self._pod, self._ctx
        init_runs, inits = self._init_containers()
        initialized = [_lets_next_begin(c, s) for c, s in zip(pod.spec.init_containers, inits, strict=True)]
        runs, statuses = self._containers(all(initialized))
        phase = self._phase(initialized, inits, statuses)
        added_runs, added = self._ephemeral_containers(phase == "Running")
        if phase in FINISHED:
            init_runs, inits = self._sidecars_end(init_runs, inits)
            added = [ended(status, ctx.now, KILLED) for status in added]
        patch = status_patch(pod, self._inputs, phase, inits, statuses)
        if tuple(added) != pod.status.ephemeral_container_statuses:
            patch["ephemeralContainerStatuses"] = [printed(status) for status in added]
        conditions = condition_patches(pod, initialized, inits, statuses, self._inputs.now, phase)
        if conditions:
            patch["conditions"] = conditions
        if patch or pod.status.observed_generation < pod.metadata.generation:
            patch["observedGeneration"] = pod.metadata.generation
        return PodPlan(
            patch,
            again_after=0.0 if ctx.next == NEVER else max(0.001, ctx.next - ctx.now),
            run=PodRun(tuple(init_runs), tuple(runs), added_runs, self._crash_now or self._run.crashed),
            events=ctx.events,
            pulled=ctx.pulled,
            clear_crash=bool(self._crash_now),
        )

    def _init_containers(self) -> tuple[list[Run], list[ContainerStatus]]:
        """Run init containers in sequence. The next one starts when this one has completed or, if it is a sidecar, has
        started."""
        blocked = False
        runs: list[Run] = []
        statuses: list[ContainerStatus] = []
        known = {status.name: status for status in self._pod.status.init_container_statuses}
        for container, run in zip(self._pod.spec.init_containers, self._run.inits, strict=True):
            status = known.get(container.name)
            if blocked and run.stage is Stage.NEW:
                status = waiting(container, status, "PodInitializing")
            else:
                run, status = self._step(container, run, status)
                if container.restart_policy != "Always" and status.state.terminated is not None:
                    status = _with_ready(status, ready=status.state.terminated.exit_code == 0)
                blocked = blocked or not _lets_next_begin(container, status)
            runs.append(run)
            statuses.append(status)
        return runs, statuses

    def _containers(self, initialized: bool) -> tuple[list[Run], list[ContainerStatus]]:
        """Start the containers of an initialized Pod, each after the previous one has started or failed to start."""
        busy = False
        runs: list[Run] = []
        statuses: list[ContainerStatus] = []
        known = {status.name: status for status in self._pod.status.container_statuses}
        has_inits = bool(self._pod.spec.init_containers)
        for container, run in zip(self._pod.spec.containers, self._run.containers, strict=True):
            status = known.get(container.name)
            if not initialized and run.stage is Stage.NEW:
                status = waiting(container, status, "PodInitializing")
            elif busy and run.stage is Stage.NEW:
                reason = "PodInitializing" if has_inits else "ContainerCreating"
                status = waiting(container, status, reason)
            else:
                run, status = self._step(container, run, status)
                busy = busy or holds_next_back(run)
            runs.append(run)
            statuses.append(status)
        return runs, statuses

    def _ephemeral_containers(self, begins: bool) -> tuple[dict[str, Run], list[ContainerStatus]]:
        """Start each ephemeral container once. Nothing waits for them, and they are never ready."""
        runs: dict[str, Run] = {}
        statuses: list[ContainerStatus] = []
        known = {status.name: status for status in self._pod.status.ephemeral_container_statuses}
        for container in self._pod.spec.ephemeral_containers:
            run, status = self._run.ephemerals.get(container.name, NEW), known.get(container.name)
            if not begins and run.stage is Stage.NEW:
                status = waiting(container, status, "PodInitializing")
            else:
                run, status = self._step(container, run, status)
                status = _with_ready(status, ready=False)
            runs[container.name] = run
            statuses.append(status)
        return runs, statuses

    def _step(self, container: Container, run: Run, status: ContainerStatus | None) -> tuple[Run, ContainerStatus]:
        fresh = status if status is not None else ContainerStatus(container.name, container.image)
        return advance(self._ctx, container, run, fresh)

    def _phase(
        self, initialized: Sequence[bool], inits: Sequence[ContainerStatus], statuses: Sequence[ContainerStatus]
    ) -> str:
        """Return the phase as the kubelet's getPhase does: a container that has never run keeps the Pod Pending."""
        pod = self._pod
        for container, status in zip(pod.spec.init_containers, inits, strict=True):
            ended_badly = status.state.terminated is not None and status.state.terminated.exit_code != 0
            if ended_badly and not restarts(pod, container, status):
                return "Failed"
        if not all(initialized) and all(_never_ran(status) for status in statuses):
            return "Pending"
        over = [
            status.state.terminated
            for container, status in zip(pod.spec.containers, statuses, strict=True)
            if status.state.terminated is not None and not restarts(pod, container, status)
        ]
        if len(over) == len(statuses):
            return "Succeeded" if all(one.exit_code == 0 for one in over) else "Failed"
        return "Pending" if any(_never_ran(status) for status in statuses) else "Running"

    def _sidecars_end(
        self, runs: list[Run], statuses: list[ContainerStatus]
    ) -> tuple[list[Run], list[ContainerStatus]]:
        """Stop the sidecars of a Pod whose containers have completed."""
        now = self._ctx.now
        return runs, [
            ended(status, now, stop_of(self._ctx, container)[1])
            for container, status in zip(self._pod.spec.init_containers, statuses, strict=True)
        ]


def _never_ran(status: ContainerStatus) -> bool:
    state = status.state
    return state.running is None and state.terminated is None and status.last_state.terminated is None


def _lets_next_begin(container: Container, status: ContainerStatus) -> bool:
    if container.restart_policy == "Always":
        return status.started is True
    return status.state.terminated is not None and status.state.terminated.exit_code == 0


def _with_ready(status: ContainerStatus, *, ready: bool) -> ContainerStatus:
    return msgspec.structs.replace(status, ready=ready) if status.ready is not ready else status


def status_patch(
    pod: Pod,
    inputs: PodInputs,
    phase: str,
    inits: Sequence[ContainerStatus],
    statuses: Sequence[ContainerStatus],
) -> dict[str, Any]:
    """Return the status fields that differ from the API server's, except conditions."""
    old = pod.status
    patch: dict[str, Any] = {}
    if old.phase != phase:
        patch["phase"] = phase
    if old.start_time is None:
        ip = inputs.host_ip if pod.spec.host_network else inputs.pod_ip
        patch["startTime"] = rfc3339(inputs.now)
        patch |= {"hostIP": inputs.host_ip, "hostIPs": [{"ip": inputs.host_ip}], "podIP": ip, "podIPs": [{"ip": ip}]}
    if tuple(statuses) != old.container_statuses:
        patch["containerStatuses"] = [printed(status) for status in statuses]
    if tuple(inits) != old.init_container_statuses:
        patch["initContainerStatuses"] = [printed(status) for status in inits]
    return patch


def _plan_end(pod: Pod, deletion: datetime, inputs: PodInputs, run: PodRun) -> PodPlan:
    """Plan the deletion of a Pod: stop its containers, report their end if finalizers keep the Pod, and remove it."""
    ctx = context(pod, inputs)
    grace = pod.metadata.deletion_grace_period_seconds or 0
    # The timestamp is the end of the grace period.
    elapsed = grace + (inputs.now - deletion).total_seconds()
    stops = _stops(ctx, pod)
    remaining = min(max((seconds for seconds, _ in stops.values()), default=0.0), grace) - elapsed
    if not run.ending:
        for status in pod.status.container_statuses:
            if status.state.running is not None:
                ctx.events.append(Happened("Normal", "Killing", f"Stopping container {status.name}", status.name))
    run = PodRun(run.inits, run.containers, run.ephemerals, run.crashed, ending=True)
    if remaining > 0:
        return PodPlan(again_after=remaining, run=run, events=ctx.events)
    patch: dict[str, Any] = {}
    if pod.metadata.finalizers and pod.status.phase not in FINISHED:
        patch = _ended_patch(pod, inputs, {name: code if s <= grace else KILLED for name, (s, code) in stops.items()})
    # With a grace period of zero the API server deletes the Pod itself, once its finalizers are gone.
    return PodPlan(patch, remove=grace > 0 or not pod.metadata.finalizers, run=run, events=ctx.events)


def _plan_finished(pod: Pod, inputs: PodInputs, run: PodRun) -> PodPlan:
    """Plan a Pod with a final phase. If another client has set the phase, containers may still run and are stopped."""
    statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    if not any(one.state.running is not None for one in statuses):
        return PodPlan(run=run)
    ctx = context(pod, inputs)
    grace = float(pod.spec.termination_grace_period_seconds)
    for status in pod.status.container_statuses:
        if status.state.running is not None:
            ctx.events.append(Happened("Normal", "Killing", f"Stopping container {status.name}", status.name))
    codes = {name: code if seconds <= grace else KILLED for name, (seconds, code) in _stops(ctx, pod).items()}
    patch = _ended_patch(pod, inputs, codes, pod.status.phase)
    return PodPlan(patch, run=run, events=ctx.events)


def _stops(ctx: Context, pod: Pod) -> dict[str, tuple[float, int]]:
    """Return when each container ends after the Pod is stopped, and its exit code. Sidecars are stopped last."""
    running = {
        status.name
        for status in (*pod.status.init_container_statuses, *pod.status.container_statuses)
        if status.state.running is not None
    }
    found = {one.name: stop_of(ctx, one) for one in pod.spec.containers if one.name in running}
    so_far = max((seconds for seconds, _ in found.values()), default=0.0)
    for one in reversed(pod.spec.init_containers):
        if one.name in running:
            seconds, code = stop_of(ctx, one)
            so_far += seconds
            found[one.name] = (so_far, code)
    return found


def _ended_patch(pod: Pod, inputs: PodInputs, codes: Mapping[str, int], phase: str = "") -> dict[str, Any]:
    now = inputs.now.timestamp()
    statuses = [ended(one, now, codes.get(one.name, 0)) for one in pod.status.container_statuses]
    inits = [ended(one, now, codes.get(one.name, 0)) for one in pod.status.init_container_statuses]
    ends = [one.state.terminated for one in statuses if one.state.terminated is not None]
    phase = phase or ("Succeeded" if all(one.exit_code == 0 for one in ends) else "Failed")
    patch = status_patch(pod, inputs, phase, inits, statuses)
    patch["conditions"] = condition_patches(pod, [True] * len(inits), inits, statuses, inputs.now, phase)
    return patch
