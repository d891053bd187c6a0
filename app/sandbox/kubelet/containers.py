"""Life cycle of a simulated Pod's containers. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from app.kube.images import parse_image
from app.sandbox.kubelet.program import KILLED, NEVER, Behaviour, hook_of
from app.sandbox.kubelet.runs import NEW, PASSED, Context, Kind, Moved, Run, Stage, asked, back_off, first, probe_of
from app.sandbox.kubelet.status import ended, full_name, running, waiting
from app.sandbox.objects import Container, ContainerStatus, Pod

#: Seconds for which the status shows the error of a failed pull before the back-off.
ERROR_SHOWN_SECONDS: Final = 1.0


def pull(ctx: Context, container: Container, run: Run, status: ContainerStatus) -> Moved:
    """Start the pull, unless the image is on the node."""
    image = container.image
    if parse_image(image) is None:
        message = (
            f'Failed to apply default image tag "{image}": couldn\'t parse image name "{image}": invalid reference'
        )
        ctx.record_event(container, "InspectFailed", f"{message} format", warning=True)
        run = Run(Stage.BAD_IMAGE, image=image, crashes=run.crashes)
        return run, waiting(container, status, "InvalidImageName", f"{message} format")
    failures = run.pull_failures if run.image == image else 0
    if container.image_pull_policy != "Always" and ctx.has_image(full_name(image)):
        ctx.record_event(container, "Pulled", f'Container image "{image}" already present on machine')
        run = msgspec.structs.replace(run, stage=Stage.CONFIGURING, image=image, pull_failures=0)
    elif container.image_pull_policy == "Never":
        message = f'Container image "{image}" is not present with pull policy of Never'
        ctx.record_event(container, "ErrImageNeverPull", message, warning=True)
        run = Run(Stage.BAD_IMAGE, image=image, crashes=run.crashes)
        return run, waiting(container, status, "ErrImageNeverPull", message)
    else:
        ctx.record_event(container, "Pulling", f'Pulling image "{image}"')
        run = msgspec.structs.replace(
            run, stage=Stage.PULLING, image=image, pull_failures=failures, until=ctx.now + _pull_seconds(ctx, container)
        )
    return run, waiting(container, status, "ContainerCreating")


def _pull_seconds(ctx: Context, container: Container) -> float:
    seconds = ctx.behave(container).script.pull_seconds
    return ctx.pace.pull if seconds is None else seconds


def pulling(ctx: Context, container: Container, run: Run, status: ContainerStatus) -> Moved:
    """Finish the pull, or show why it failed."""
    if run.image != container.image:
        return Run(crashes=run.crashes), status
    if ctx.now < run.until:
        ctx.wait_until(run.until)
        return None
    error = ctx.behave(container).pull_error
    if not error:
        seconds = f"{_pull_seconds(ctx, container):g}s"
        ctx.pulled.append(full_name(run.image))
        text = (
            f'Successfully pulled image "{run.image}" in {seconds} ({seconds} including waiting). Image size: 0 bytes'
        )
        ctx.record_event(container, "Pulled", text)
        return msgspec.structs.replace(run, stage=Stage.CONFIGURING, pull_failures=0), status
    message = f'failed to pull and unpack image "{full_name(run.image)}": {error}'
    ctx.record_event(container, "Failed", f'Failed to pull image "{run.image}": {message}', warning=True)
    ctx.record_event(container, "Failed", "Error: ErrImagePull", warning=True)
    run = msgspec.structs.replace(
        run, stage=Stage.PULL_FAILED, pull_failures=run.pull_failures + 1, until=ctx.now + ERROR_SHOWN_SECONDS
    )
    return run, waiting(container, status, "ErrImagePull", message)


def pull_failed(ctx: Context, container: Container, run: Run, status: ContainerStatus) -> Moved:
    """Start the back-off once the error has been shown for a while."""
    if run.image != container.image:
        return Run(crashes=run.crashes), status
    if ctx.now < run.until:
        ctx.wait_until(run.until)
        return None
    error = status.state.waiting.message if status.state.waiting is not None else ""
    message = f'Back-off pulling image "{run.image}"'
    ctx.record_event(container, "BackOff", message)
    ctx.record_event(container, "Failed", "Error: ImagePullBackOff", warning=True)
    until = run.until - ERROR_SHOWN_SECONDS + back_off(run.pull_failures)
    run = msgspec.structs.replace(run, stage=Stage.PULL_BACK_OFF, until=until)
    return run, waiting(container, status, "ImagePullBackOff", f"{message}: ErrImagePull: {error}")


def pull_back_off(ctx: Context, container: Container, run: Run, status: ContainerStatus) -> Moved:
    """Retry the pull when the back-off ends or the image changes."""
    if run.image != container.image:
        return Run(crashes=run.crashes), status
    if ctx.now < run.until:
        ctx.wait_until(run.until)
        return None
    return msgspec.structs.replace(run, stage=Stage.NEW), status


def bad_image(_ctx: Context, container: Container, run: Run, status: ContainerStatus) -> Moved:
    """Wait for the image to change."""
    return (Run(crashes=run.crashes), status) if run.image != container.image else None


# A container passes through these stages: pull, wait for its configuration, start, run with probes, stop, and end or
# restart. ``advance`` moves it on until it must wait for a deadline or a change. Times are seconds on the node's clock.

#: A container that ran for this long starts again without a back-off.
CALM_SECONDS: Final = 600.0
#: Maximum number of moves without a wait. More moves indicate a bug.
_MOST_MOVES: Final = 100
_CHANGED: Final = "Container {} definition changed, will be restarted"


def advance(ctx: Context, container: Container, run: Run, status: ContainerStatus) -> tuple[Run, ContainerStatus]:
    """Advance the container as far as possible. Records the next wake-up time in ``ctx``."""
    for _ in range(_MOST_MOVES):
        moved = _MOVES[run.stage](ctx, container, run, status)
        if moved is None:
            return run, status
        run, status = moved
    raise RuntimeError(f"container {container.name} of Pod {ctx.pod.metadata.name} does not settle: {run.stage}")


def holds_next_back(run: Run) -> bool:
    """Return whether the next container must wait for this one; the kubelet starts containers one by one."""
    return run.stage in (Stage.PULLING, Stage.STARTING)


def restored(container: Container, status: ContainerStatus | None, now: float) -> Run:
    """Rebuild a container's state from its status after a node restart."""
    if status is None:
        return NEW
    if status.state.terminated is not None:
        return Run(Stage.ENDED, image=status.image)
    began = status.state.running.started_at if status.state.running is not None else None
    if began is not None:
        since = began.timestamp()
        startup = first(container.startup_probe, since, now, result=False) if not status.started else PASSED
        readiness = first(container.readiness_probe, since, now, result=status.ready)
        liveness = first(container.liveness_probe, since, now, result=True)
        return Run(Stage.RUNNING, since, image=status.image, startup=startup, readiness=readiness, liveness=liveness)
    last, reason = status.last_state.terminated, status.state.waiting.reason if status.state.waiting else ""
    if reason == "CrashLoopBackOff" and last is not None and last.finished_at is not None:
        crashes = max(1, status.restart_count)
        until = last.finished_at.timestamp() + back_off(crashes)
        return Run(Stage.CRASH_BACK_OFF, until=until, image=status.image, crashes=crashes + 1)
    return NEW


# ---- before the start


def _configuring(ctx: Context, container: Container, run: Run, status: ContainerStatus) -> Moved:
    """Wait for the ConfigMap and Secret keys that the container's environment needs. [PM-145]"""
    if run.image != container.image:
        return Run(crashes=run.crashes), status
    if hindrance := ctx.hindrance(container):
        stopped = waiting(container, status, "CreateContainerConfigError", hindrance)
        if stopped != status:
            ctx.record_event(container, "Failed", f"Error: {hindrance}", warning=True)
        return (run, stopped) if stopped != status else None
    behaviour = ctx.behave(container)
    has_run = status.last_state.terminated is not None
    seconds = behaviour.script.start_seconds
    if seconds is None:
        seconds = ctx.pace.restart if has_run else ctx.pace.start
    hook = container.lifecycle.post_start if container.lifecycle is not None else None
    if hook is not None and hook.exec is not None:
        seconds += hook_of(hook.exec.command).ends
    run = msgspec.structs.replace(run, stage=Stage.STARTING, until=ctx.now + seconds)
    return run, waiting(container, status, "ContainerCreating")


def _starting(ctx: Context, container: Container, run: Run, status: ContainerStatus) -> Moved:
    if ctx.now < run.until:
        ctx.wait_until(run.until)
        return None
    behaviour = ctx.behave(container)
    ctx.record_event(container, "Created", f"Created container: {container.name}")
    ctx.record_event(container, "Started", f"Started container {container.name}")
    now = ctx.now
    startup = probe_of(container, Kind.STARTUP, behaviour)
    run = msgspec.structs.replace(
        run,
        stage=Stage.RUNNING,
        since=now,
        until=NEVER,
        why="",
        startup=first(startup, now, now, result=False),
        readiness=first(probe_of(container, Kind.READINESS, behaviour), now, now, result=False),
        liveness=first(container.liveness_probe, now, now, result=True),
    )
    status = running(ctx.pod, container, status, now)
    hook = container.lifecycle.post_start if container.lifecycle is not None else None
    if hook is not None and hook.exec is not None and hook_of(hook.exec.command).code != 0:
        ctx.record_event(container, "FailedPostStartHook", "PostStartHook failed", warning=True)
        return msgspec.structs.replace(run, stage=Stage.STOPPING, until=now, code=KILLED), status
    return run, status


# ---- running


def _running(ctx: Context, container: Container, run: Run, status: ContainerStatus) -> Moved:
    behaviour = ctx.behave(container)
    if container.name in ctx.crash and container.name not in ctx.crashed:
        ctx.crashed.append(container.name)
        return _ends(ctx, run, status, ctx.now, ctx.crash[container.name])
    if ctx.now >= run.since + behaviour.ends:
        return _ends(ctx, run, status, run.since + behaviour.ends, behaviour.code)
    if status.image != full_name(container.image):
        return _stop(ctx, container, run, status, _CHANGED)
    if _resize_restarts(container, status):
        return _stop(ctx, container, run, status, "Container {} resize requires restart")
    ctx.wait_until(run.since + behaviour.ends)
    probed = _probed(ctx, container, run, behaviour)
    if not probed.liveness.result:
        ctx.record_event(container, "Unhealthy", "Liveness probe failed: ", warning=True)
        return _stop(ctx, container, probed, status, "Container {} failed liveness probe, will be restarted")
    if not probed.startup.result and probed.startup.next == NEVER:
        ctx.record_event(container, "Unhealthy", "Startup probe failed: ", warning=True)
        return _stop(ctx, container, probed, status, "Container {} failed startup probe, will be restarted")
    started = probed.startup.result
    ready = started and probed.readiness.result and container.name not in ctx.unready
    if probed.readiness.streak and not probed.readiness.last and run.readiness.last != probed.readiness.last:
        ctx.record_event(container, "Unhealthy", "Readiness probe failed: ", warning=True)
    requests = container.resources.get("requests") or None
    if (status.ready, status.started, status.resources) != (ready, started, container.resources):
        status = msgspec.structs.replace(
            status, ready=ready, started=started, resources=container.resources, allocated_resources=requests
        )
        return probed, status
    return (probed, status) if probed != run else None


def _probed(ctx: Context, container: Container, run: Run, behaviour: Behaviour) -> Run:
    """Run the probes that are due. Readiness and liveness probes wait for the startup probe."""
    startup, readiness, liveness = run.startup, run.readiness, run.liveness
    if startup is PASSED and readiness is PASSED and liveness is PASSED:
        return run
    if not startup.result and container.startup_probe is not None:
        startup = asked(container.startup_probe, Kind.STARTUP, behaviour, startup, run.since, ctx.now)
        ctx.wait_until(startup.next)
        if startup.result:
            readiness = msgspec.structs.replace(readiness, next=max(readiness.next, ctx.now))
            liveness = msgspec.structs.replace(liveness, next=max(liveness.next, ctx.now))
    if startup.result:
        probe = probe_of(container, Kind.READINESS, behaviour)
        if probe is not None:
            readiness = asked(probe, Kind.READINESS, behaviour, readiness, run.since, ctx.now)
            ctx.wait_until(readiness.next)
        if container.liveness_probe is not None:
            liveness = asked(container.liveness_probe, Kind.LIVENESS, behaviour, liveness, run.since, ctx.now)
            ctx.wait_until(liveness.next)
    return msgspec.structs.replace(run, startup=startup, readiness=readiness, liveness=liveness)


def _resize_restarts(container: Container, status: ContainerStatus) -> bool:
    """Return whether the resize policy requires a restart for the changed resources."""
    old, new = status.resources or {}, container.resources
    if old == new:
        return False
    for policy in container.resize_policy:
        if policy.restart_policy != "RestartContainer":
            continue
        name = policy.resource_name
        if any(old.get(part, {}).get(name) != new.get(part, {}).get(name) for part in ("requests", "limits")):
            return True
    return False


# ---- end of a run


def stop_of(ctx: Context, container: Container) -> tuple[float, int]:
    """Return the seconds the container takes to stop, including its hook, and its exit code. ``NEVER`` means that it
    runs until killed."""
    seconds, code = term_of(ctx, container)
    hook = container.lifecycle.pre_stop if container.lifecycle is not None else None
    if hook is not None and hook.exec is not None:
        seconds += hook_of(hook.exec.command).ends
    return seconds, code


def term_of(ctx: Context, container: Container) -> tuple[float, int]:
    """Return the seconds the container takes to exit after SIGTERM, and its exit code. ``NEVER`` means that it ignores
    the signal."""
    behaviour = ctx.behave(container)
    if behaviour.program.on_term is None:
        return NEVER, KILLED
    seconds = behaviour.script.stop_seconds
    return ctx.pace.stop if seconds is None else seconds, behaviour.program.on_term


def _stop(ctx: Context, container: Container, run: Run, status: ContainerStatus, why: str) -> Moved:
    """Ask the container to stop, and kill it after the Pod's grace period."""
    ctx.record_event(container, "Killing", why.format(container.name))
    seconds, code = stop_of(ctx, container)
    grace = float(ctx.pod.spec.termination_grace_period_seconds)
    if seconds > grace:
        seconds, code = grace, KILLED
    return msgspec.structs.replace(run, stage=Stage.STOPPING, until=ctx.now + seconds, code=code, why=why), status


def _stopping(ctx: Context, _container: Container, run: Run, status: ContainerStatus) -> Moved:
    if ctx.now < run.until:
        ctx.wait_until(run.until)
        return None
    return _ends(ctx, run, status, run.until, run.code)


def _ends(ctx: Context, run: Run, status: ContainerStatus, when: float, code: int) -> Moved:
    calm = when - run.since >= CALM_SECONDS
    run = msgspec.structs.replace(run, stage=Stage.ENDED, until=NEVER, crashes=0 if calm else run.crashes)
    return run, ended(status, min(when, ctx.now), code)


def _after_end(ctx: Context, container: Container, run: Run, status: ContainerStatus) -> Moved:
    """Restart the container at once or after the back-off, if the restart policy requires it."""
    if run.why == _CHANGED:
        return NEW, status  # regardless of the restart policy; the new image has no back-off
    if not restarts(ctx.pod, container, status):
        return None
    finished = ctx.now
    if run.crashes > 0:
        seconds = back_off(run.crashes)
        name = f"{ctx.pod.metadata.name}_{ctx.pod.metadata.namespace}({ctx.pod.metadata.uid})"
        text = f"restarting failed container={container.name} pod={name}"
        ctx.record_event(container, "BackOff", f"Back-off {text}", warning=True)
        run = msgspec.structs.replace(
            run, stage=Stage.CRASH_BACK_OFF, until=finished + seconds, crashes=run.crashes + 1
        )
        return run, waiting(container, status, "CrashLoopBackOff", f"back-off {_duration(seconds)} {text}")
    run = msgspec.structs.replace(run, stage=Stage.NEW, crashes=run.crashes + 1)
    return run, status


def _crash_back_off(ctx: Context, container: Container, run: Run, status: ContainerStatus) -> Moved:
    if full_name(run.image) != full_name(container.image):
        return Run(), status
    if ctx.now < run.until:
        ctx.wait_until(run.until)
        return None
    return msgspec.structs.replace(run, stage=Stage.NEW), status


def restarts(pod: Pod, container: Container, status: ContainerStatus) -> bool:
    """Return whether an ended container must be restarted."""
    terminated = status.state.terminated
    if terminated is None or any(one is container for one in pod.spec.ephemeral_containers):
        return False
    if container.restart_policy == "Always":
        return True
    is_init = any(one is container for one in pod.spec.init_containers)
    if pod.spec.restart_policy == "Always" and not is_init:
        return True
    return pod.spec.restart_policy != "Never" and terminated.exit_code != 0


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"


_MOVES: Final[Mapping[Stage, Callable[[Context, Container, Run, ContainerStatus], Moved]]] = {
    Stage.NEW: pull,
    Stage.PULLING: pulling,
    Stage.PULL_FAILED: pull_failed,
    Stage.PULL_BACK_OFF: pull_back_off,
    Stage.BAD_IMAGE: bad_image,
    Stage.CONFIGURING: _configuring,
    Stage.STARTING: _starting,
    Stage.RUNNING: _running,
    Stage.STOPPING: _stopping,
    Stage.ENDED: _after_end,
    Stage.CRASH_BACK_OFF: _crash_back_off,
}
