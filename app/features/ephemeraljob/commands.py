"""``pykruise debug pod/NAME``: adds a container to one Pod through an EphemeralJob and attaches to it. Also explains
EphemeralJobs."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from random import SystemRandom
from typing import Any, Final

from app.api import names
from app.api.webhooks import stored_model
from app.features.ephemeraljob.kind import EPHEMERAL_JOB
from app.features.ephemeraljob.plan import (
    MARK,
    Candidate,
    State,
    candidate,
    container_names,
    is_meant,
    next_step,
    recorded,
)
from app.features.ephemeraljob.reconcile import OWNER
from app.features.ephemeraljob.types import EphemeralJob
from app.framework.commands import Commands, Report, Stored, left_behind, report, table
from app.framework.options import Enabled
from app.framework.verbs import Call, Option, Verb
from app.kube.client import Client
from app.kube.clock import parsed_rfc3339
from app.kube.errors import CommandError, InterruptedCommandError, KubeError, NotFound, WrongCommandError
from app.kube.hashes import random_suffix
from app.kube.objects import Pod, decode_pod
from app.kube.resources import EVENTS, PODS
from app.kube.selector_query import SelectorError
from app.kube.selectors import compile_selector
from app.kube.text import one_line
from app.pods.predicates import is_active

Json = dict[str, Any]
POLL_SECONDS: Final = 0.5
#: Label by which the job selects the Pod; removed once the job has ended.
LABEL: Final = "pykruise.io/debug"
_ENDED: Final = ("Succeeded", "Failed", "Error")
_MAX_NAME: Final = 40
#: Reasons why a waiting container will never run.
_HOPELESS: Final = frozenset({"InvalidImageName", "CreateContainerConfigError", "ErrImageNeverPull"})
_LOOKS: Final = 20


def new_job(pod: str, call: Call, suffix: str) -> Json:
    """Return the EphemeralJob that adds one container to one Pod."""
    container: Json = {
        "name": call.text("name") or f"debug-{suffix}",
        "image": call.text("image"),
        "imagePullPolicy": "IfNotPresent",
        "terminationMessagePolicy": "File",
        "stdin": True,
        "tty": True,
    }
    if call.text("target"):
        container["targetContainerName"] = call.text("target")
    if call.arguments[1:] and call.arguments[0].count("/"):
        container |= {"command": list(call.arguments[1:]), "stdin": False, "tty": False}
    spec: Json = {
        "selector": {"matchLabels": {LABEL: suffix}},
        "replicas": 1,
        "parallelism": 1,
        "template": {"ephemeralContainers": [container]},
        "ttlSecondsAfterFinished": 600,
    }
    metadata = {"name": f"debug-{pod[:_MAX_NAME].strip('.-')}-{suffix}"}
    return {"apiVersion": OWNER.api_version, "kind": OWNER.kind, "metadata": metadata, "spec": spec}


async def debug(call: Call) -> int:
    """Add a container to the Pod, and attach to it if there is a terminal and kubectl."""
    words = call.arguments[:1] if call.arguments and "/" in call.arguments[0] else call.arguments
    name = Call(call.client, call.namespace, words, call.options, call.say).object_name("pod", "pods", "po")
    call.seconds("timeout")  # validate the command before creating anything
    if not call.text("image"):
        raise WrongCommandError(f"debug {call.arguments[0]}: --image is required")
    try:
        pod: Pod = await call.client.get(PODS, name, call.namespace, decode=decode_pod)
    except NotFound:
        raise CommandError(f"Pod {call.namespace}/{name}: not found; use -n to specify another namespace") from None
    there = [one.name for one in pod.spec.containers]
    if call.text("target") and call.text("target") not in there:
        raise CommandError(f"--target: Pod {name} has no container {call.text('target')}; it has {', '.join(there)}")
    taken = {*there, *(one.name for one in pod.spec.init_containers)}
    taken |= {one.name for one in pod.spec.ephemeral_containers}
    if call.text("name") in taken:
        raise CommandError(f"--name: Pod {name} already has a container {call.text('name')}; choose another name")
    suffix = random_suffix(SystemRandom())
    body = new_job(name, call, suffix)
    container = body["spec"]["template"]["ephemeralContainers"][0]["name"]
    job = body["metadata"]["name"]
    await call.client.create(OWNER, body, call.namespace, field_manager="pykruise", dry_run=True)
    if call.dry_run:
        call.say(f"EphemeralJob {call.namespace}/{job}: container {container} in Pod {name} (dry run)")
        return 0
    called = f"EphemeralJob {call.namespace}/{job}"
    try:
        await _label(call, pod, suffix)
        await call.client.create(OWNER, body, call.namespace, field_manager="pykruise")
        call.say(f"{called}: container {container} in Pod {name}")
        ended = await _begun(call, name, container, job)
    except asyncio.CancelledError:
        call.say(f"{called}: deleting")
        await _withdraw(call, pod, job)
        left = f"{container}, if already added, stays until the Pod is deleted"
        raise InterruptedCommandError(f"interrupted; {called} was deleted; {left}") from None
    except BaseException:
        await _withdraw(call, pod, job)
        raise
    stays = f"the job is deleted 10 minutes after {container} ends; remove the label: kubectl label pod {name} {LABEL}-"
    with left_behind(lambda: f"{called} and its container remain; {stays} -n {call.namespace}"):
        code: int | None = 0
        if ended:
            call.say(f"{container}: {ended}")
            code = 0 if ended == "exit code 0" else 1
        else:
            code = await _attach(call, name, container)
        if code is not None and await _is_over(call, job):
            await _label(call, pod, None)
    return code or 0


async def _is_over(call: Call, job: str) -> bool:
    """Return whether the job has ended. Waits briefly, because the kubelet reports the container's end with a delay."""
    for _ in range(_LOOKS):
        try:
            found: Json = await call.client.get(OWNER, job, call.namespace)
        except NotFound:
            return True
        if (found.get("status") or {}).get("completionTime"):
            return True
        await call.client.clock.sleep(POLL_SECONDS)
    return False


async def _withdraw(call: Call, pod: Pod, job: str) -> None:
    """Delete the job and the label, and ignore errors so that the original error is reported."""
    with suppress(KubeError):
        await call.client.delete(OWNER, job, call.namespace)
    with suppress(KubeError):
        await _label(call, pod, None)


async def _label(call: Call, pod: Pod, value: str | None) -> None:
    body = {"metadata": {"uid": pod.metadata.uid, "labels": {LABEL: value}}}
    await call.client.patch(PODS, pod.metadata.name, body, call.namespace, field_manager="pykruise")


async def _begun(call: Call, pod: str, container: str, job: str) -> str:
    """Wait for the container. Return '' once it runs, or its exit code if it has already ended. Raises CommandError."""
    shown, until = "", call.client.clock.monotonic() + call.seconds("timeout")
    while call.client.clock.monotonic() < until:
        found: Json = await call.client.get(PODS, pod, call.namespace)
        statuses = (found.get("status") or {}).get("ephemeralContainerStatuses") or ()
        state = next((one.get("state") or {} for one in statuses if one["name"] == container), {})
        if "running" in state:
            return ""
        if "terminated" in state:
            return f"exit code {state['terminated'].get('exitCode', 0)}"
        why = (state.get("waiting") or {}).get("reason") or ""
        if why in _HOPELESS:
            hint = state["waiting"].get("message") or "use another image"
            raise CommandError(f"{container} in Pod {pod} cannot run: {why}: {hint}")
        if why and why != shown:
            shown = why
            call.say(f"{container}: {why}")
        try:
            made: Json = await call.client.get(OWNER, job, call.namespace)
        except NotFound:
            raise CommandError(f"EphemeralJob {call.namespace}/{job}: was deleted") from None
        status = made.get("status") or {}
        if status.get("phase") in _ENDED:
            messages = [one["message"] for one in status.get("conditions") or () if one.get("message")]
            raise CommandError(f"EphemeralJob {call.namespace}/{job}: {status['phase']}: {'; '.join(messages)}")
        await call.client.clock.sleep(POLL_SECONDS)
    why = f"{container} is not running after {call.number('timeout')} s"
    raise CommandError(f"EphemeralJob {call.namespace}/{job}: {why}: {shown or await _refusal(call, job)}")


async def _refusal(call: Call, job: str) -> str:
    """Return why no container was added, as recorded in the manager's events."""
    query = f"involvedObject.kind={OWNER.kind},involvedObject.name={job}"
    events = (await call.client.list(EVENTS, call.namespace, field_selector=query)).items
    found = [str(one.get("message")) for one in events if one.get("reason") == "CreateFailed"]
    return found[-1] if found else "no container was added; is the manager running?"


async def _attach(call: Call, pod: str, container: str) -> int | None:
    """Attach with kubectl and return its exit code. Without a terminal or kubectl, print the command and return
    None."""
    kubeconfig, context = call.connection
    command = ["kubectl", "attach", "-it", pod, "-c", container, "-n", call.namespace]
    command += [f"--kubeconfig={kubeconfig}"] if kubeconfig else []
    command += [f"--context={context}"] if context else []
    if call.flag("no-attach") or not sys.stdin.isatty() or shutil.which("kubectl") is None:
        call.say(f"attach with: {' '.join(command)}")
        return None
    process = await asyncio.create_subprocess_exec(*command)
    return await process.wait()


async def plan(client: Client, stored: Stored, enabled: Enabled) -> str:  # noqa: ARG001
    """Return the Pods that have containers of the job, and the Pods that would get them next if the job were stored."""
    return "\n".join((await _planned(client, stored))[0])


async def _planned(client: Client, stored: Stored) -> tuple[list[str], list[str]]:
    """Return a line for each targeted Pod, and suggested actions. Raises CommandError or KubeError."""
    name = stored["metadata"]["name"]
    job = stored_model(EPHEMERAL_JOB, EphemeralJob, stored, stored)
    try:
        selector = compile_selector(job.spec.selector)
    except SelectorError as error:
        raise CommandError(f"EphemeralJob {name}: spec.selector: {error}") from None
    metadata = job.metadata
    record = recorded(metadata.annotations.get(names.EPHEMERAL_JOB_BEGUN, ""))
    containers = container_names(job)
    there: Sequence[Pod] = (await client.list(PODS, metadata.namespace, decode=decode_pod)).items
    found = [candidate(pod, selector, metadata.uid, containers) for pod in there]
    pods = [one for one in found if is_meant(one, record)]
    now = client.clock.now()
    started = parsed_rfc3339(job.status.start_time) if job.status is not None else None
    passed = (now - started).total_seconds() if started is not None else 0.0
    step = next_step(job, pods, passed, record)
    head = f"EphemeralJob {metadata.namespace}/{name}: {step.phase}, targets {step.match} of {len(pods)} matching Pods"
    todo = _suggestions(pods, containers)
    if job.status is not None and job.status.completion_time:
        return [head, "the job has ended; no more containers are added"], todo
    if not pods:
        todo.append("label a Pod so that spec.selector matches it: no Pod matches now")
    coming = {pod.metadata.uid for pod in step.inject}
    rows: list[tuple[str, ...]] = []
    for one in sorted(pods, key=lambda one: one.pod.metadata.name):
        pod, absent = one.pod, one.state is State.ABSENT
        rows.append(
            (
                pod.metadata.name,
                "-" if absent else str(one.state),
                "add" if pod.metadata.uid in coming else "-",
                _why_not(pod, containers) if absent and pod.metadata.uid not in coming else "-",
            )
        )
    notes = [f"{type_}: {message}" for type_, _, message in step.conditions if message]
    shown = table([("POD", "CONTAINERS", "ACTION", "BECAUSE"), *rows])
    return [head, *shown.split("\n"), *map(one_line, notes)], todo


def _suggestions(pods: Sequence[Candidate], containers: frozenset[str]) -> list[str]:
    """Return suggested actions for containers that failed or cannot be added."""
    found: list[str] = []
    for one in pods:
        metadata = one.pod.metadata
        taken = _taken(one.pod, containers) if one.state is State.ABSENT else ""
        if taken:
            found.append(f"choose another container name: Pod {metadata.name} already has a container {taken}")
        elif one.state is State.FAILED:
            found.append(f"kubectl logs -n {metadata.namespace} {metadata.name} -c {min(containers)}")
    return found


def _taken(pod: Pod, containers: frozenset[str]) -> str:
    """Return the name of a container that both the Pod and the job have, or ''."""
    return min((one.name for one in pod.spec.ephemeral_containers if one.name in containers), default="")


def _why_not(pod: Pod, containers: frozenset[str]) -> str:
    if taken := _taken(pod, containers):
        return f"its container {taken} was not added by this job"
    if not is_active(pod):
        return "it has ended or is being deleted"
    return "spec.replicas, parallelism or paused prevents it, or the job has ended"


async def explain_object(client: Client, stored: Stored, enabled: Enabled) -> Report:  # noqa: ARG001
    """Explain the state of the job and its next step, and suggest actions."""
    status: Mapping[str, Any] = stored.get("status") or {}
    counts = ", ".join(f"{status.get(name, 0)} {name}" for name in ("match", "running", "succeeded", "failed"))
    phase = one_line(f"status: {status.get('phase') or 'none yet'}: {counts}")
    planned, todo = await _planned(client, stored)
    return report([*planned, phase], todo)


async def explain_any(client: Client, pod: Pod, enabled: Enabled) -> Sequence[str]:  # noqa: ARG001
    """Explain which of a Pod's ephemeral containers belong to jobs."""
    marked = {
        one.name: env.value
        for one in pod.spec.ephemeral_containers
        for env in one.env
        if env.name == MARK and env.value
    }
    if not marked:
        return []
    jobs = {
        one["metadata"]["uid"]: one["metadata"]["name"]
        for one in (await client.list(OWNER, pod.metadata.namespace)).items
    }
    return [
        f"ephemeral container {name}: added by EphemeralJob {jobs[uid]}"
        if uid in jobs
        else f"ephemeral container {name}: added by a former EphemeralJob; it stays until the Pod is deleted"
        for name, uid in sorted(marked.items())
    ]


DEBUG: Final = Verb(
    "debug",
    "Add a debug container to a running Pod. Creates an EphemeralJob and attaches to the container.",
    "pod/NAME [-- COMMAND]",
    (
        Option("image", "Image of the container", takes="IMAGE"),
        Option("target", "Share the process namespace of this container", short="c", takes="CONTAINER"),
        Option("name", "Name of the container; random by default", takes="NAME"),
        Option("timeout", "Maximum time to wait for the container to run, such as 5m", default="120", takes="DURATION"),
        Option("no-attach", "Only print the command to attach", flag=True),
    ),
    debug,
)
COMMANDS: Final = Commands(
    EPHEMERAL_JOB, plan=plan, explain_object=explain_object, explain_any=explain_any, paused_at=("spec",), history=False
)
