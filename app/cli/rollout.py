"""``pykruise rollout``: look at the roll-out of a CloneSet, hold it, let it go on, take it back, start it anew."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.cluster import CommandError, Context, Kubeconfig, Namespace, with_cluster

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from app.api.cloneset import CloneSet
    from app.kube.client import Client
    from app.pods.revisions import Revision

POLL_SECONDS = 1.0
CHANGE_CAUSE = "kubernetes.io/change-cause"
RESTARTED_AT = "kubectl.kubernetes.io/restartedAt"
_BAR = 30

rollout = typer.Typer(help="Look at and steer the roll-out of a CloneSet.", no_args_is_help=True)
_What = Annotated[
    list[str], typer.Argument(help="cloneset NAME, or cloneset/NAME", show_default=False, metavar="cloneset NAME")
]


def register(app: typer.Typer) -> None:
    """Add the group."""
    app.add_typer(rollout, name="rollout")


# ---- status


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a roll-out is: Pods at the update revision and available, of as many as the partition wants there."""

    updated: int
    available: int
    expected: int
    done: bool
    failed: str
    text: str

    def line(self) -> str:
        """The progress bar and the sentence behind it."""
        part = min(self.available, self.expected) / self.expected if self.expected else 1.0
        full = round(part * _BAR)
        return f"[{'#' * full}{'.' * (_BAR - full)}] {part:4.0%}  {self.text}"


def progress_of(cloneset: CloneSet) -> Progress:
    """What the status says about the roll-out. Pure."""
    from app.api.cloneset.types import ON_DELETE

    status, spec = cloneset.status, cloneset.spec
    replicas = 1 if spec.replicas is None else spec.replicas
    if status is None or status.observed_generation < cloneset.metadata.generation:
        return Progress(0, 0, replicas, False, "", "waiting for the change to be seen")
    expected = status.expected_updated_replicas
    updated, available = status.updated_replicas, status.updated_available_replicas
    counts = f"{updated} of {expected} Pods updated, {available} available"
    rolling = spec.update_strategy.rolling_update
    late = next((one for one in status.conditions or () if one.type == "Progressing" and one.status == "False"), None)
    complete = updated >= expected and available >= expected and status.replicas == replicas
    failed = ""
    if complete:
        kept = replicas - expected
        counts += f"; the partition keeps {kept} at the old revision" if kept > 0 else ""
    elif late is not None:
        failed = late.message or late.reason
    elif spec.update_strategy.type == ON_DELETE:
        counts += "; OnDelete: Pods are updated when somebody deletes them"
    elif rolling is not None and rolling.paused and updated < expected:
        counts += f"; paused: pykruise rollout resume cloneset {cloneset.name}"
    elif status.replicas != replicas:
        counts += f"; {status.replicas} Pods for {replicas} replicas"
    failures = [
        one.message for one in status.conditions or () if one.type.startswith("Failed") and one.status == "True"
    ]
    if failures and not complete:
        counts += f"; {failures[0]}"
    return Progress(updated, available, expected, complete, failed, counts)


@rollout.command()
def status(
    what: _What,
    namespace: Namespace = "",
    watch: Annotated[bool, typer.Option("--watch/--no-watch", "-w", help="Wait until it is done")] = True,
    timeout: Annotated[float, typer.Option(help="Give up after so many seconds; 0: never")] = 0.0,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """Show how far the roll-out is, until it is done. Exit code 1: it failed or took too long."""

    async def work(client: Client, where: str) -> bool:
        return await show_status(client, where, what, watch=watch, give_up=timeout)

    raise typer.Exit(0 if with_cluster(kubeconfig, context, namespace, work) else 1)


async def show_status(client: Client, namespace: str, what: list[str], *, watch: bool, give_up: float) -> bool:
    """Print the progress as it changes; whether the roll-out is done, or nobody wants to wait."""
    from app.cli.clonesets import parsed, read_cloneset, wanted_name

    name = wanted_name(what)
    deadline = client.clock.monotonic() + give_up if give_up else float("inf")
    live, last = sys.stdout.isatty(), ""
    while True:
        progress = progress_of(parsed(await read_cloneset(client, namespace, name)))
        line = progress.line()
        if line != last:
            _print_over(line, live, last)
            last = line
        if progress.done or progress.failed or not watch:
            break
        if client.clock.monotonic() >= deadline:
            print("\n" * live + f"CloneSet {namespace}/{name}: not rolled out within {give_up:g} s")
            return False
        await client.clock.sleep(POLL_SECONDS)
    if live:
        print()
    if progress.failed:
        print(f"CloneSet {namespace}/{name}: {progress.failed}")
        return False
    if progress.done:
        print(f'cloneset "{name}" successfully rolled out')
    return True


def _print_over(line: str, live: bool, before: str) -> None:
    if live:
        sys.stdout.write("\r" + line.ljust(len(before)))
        sys.stdout.flush()
    else:
        print(line, flush=True)


# ---- history


@rollout.command()
def history(
    what: _What,
    namespace: Namespace = "",
    revision: Annotated[int, typer.Option(help="Show the template of this revision")] = 0,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """List the recorded revisions, or show one."""

    async def work(client: Client, where: str) -> str:
        return await history_text(client, where, what, revision)

    print(with_cluster(kubeconfig, context, namespace, work))


async def history_text(client: Client, namespace: str, what: list[str], number: int) -> str:
    """The table of revisions, or one template as YAML. Raises CommandError."""
    import yaml

    from app.cli.clonesets import parsed, read_cloneset, surroundings, wanted_name
    from app.pods.predicates import is_active
    from app.pods.revisions import is_same_revision

    owner = parsed(await read_cloneset(client, namespace, wanted_name(what)))
    around = await surroundings(client, owner)
    if number:
        found = _revision(around.revisions, number, owner.name)
        return yaml.safe_dump(_template(found, owner.name), sort_keys=False).rstrip()
    recorded = owner.status
    labels = [pod.metadata.labels.get("controller-revision-hash", "") for pod in around.pods if is_active(pod)]
    rows = [("REVISION", "NAME", "PODS", "ROLE", "CHANGE-CAUSE")]
    for one in around.revisions:
        roles = []
        if recorded is not None and one.name == recorded.current_revision:
            roles.append("current")
        if recorded is not None and one.name == recorded.update_revision:
            roles.append("update")
        pods = sum(is_same_revision(label, one.name) for label in labels)
        cause = one.annotations.get(CHANGE_CAUSE, "<none>")
        rows.append((str(one.number), one.name, str(pods), ",".join(roles) or "-", cause))
    return table(rows)


def _revision(revisions: Any, number: int, name: str) -> Revision:
    found: Revision | None = next((one for one in revisions if one.number == number), None)
    if found is None:
        known = ", ".join(str(one.number) for one in revisions) or "none"
        raise CommandError(f"CloneSet {name}: there is no revision {number}; there are {known}")
    return found


def _template(revision: Revision, name: str) -> Mapping[str, Any]:
    from app.pods.templates import recorded_template

    found = recorded_template(revision)
    if found is None:
        raise CommandError(f"CloneSet {name}: ControllerRevision {revision.name} holds no template")
    return found


def table(rows: Sequence[tuple[str, ...]]) -> str:
    """Columns as kubectl prints them."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


# ---- changes


@rollout.command()
def undo(
    what: _What,
    namespace: Namespace = "",
    to_revision: Annotated[int, typer.Option("--to-revision", help="Default: the one before the newest")] = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Change nothing")] = False,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """Take the template of an earlier revision again."""

    async def work(client: Client, where: str) -> str:
        return await undone(client, where, what, to_revision, dry_run=dry_run)

    print(with_cluster(kubeconfig, context, namespace, work))


async def undone(client: Client, namespace: str, what: list[str], number: int, *, dry_run: bool) -> str:
    """What came of it, in a line. Raises CommandError."""
    from app.cli.clonesets import RESOURCE, parsed, read_cloneset, surroundings, wanted_name
    from app.kube.client import PatchType

    name = wanted_name(what)
    stored = await read_cloneset(client, namespace, name)
    revisions = (await surroundings(client, parsed(stored))).revisions
    if not number and len(revisions) < 2:
        raise CommandError(f"CloneSet {name}: there is no earlier revision to go back to")
    target = _revision(revisions, number or revisions[-2].number, name)
    template = _template(target, name)
    if target is revisions[-1]:
        return f"cloneset.apps.kruise.io/{name}: revision {target.number} ({target.name}) is the newest already"
    operations = [
        {"op": "test", "path": "/metadata/resourceVersion", "value": stored["metadata"]["resourceVersion"]},
        {"op": "replace", "path": "/spec/template", "value": template},
    ]
    await client.patch(
        RESOURCE, name, operations, namespace, kind=PatchType.JSON, dry_run=dry_run, field_manager="pykruise"
    )
    return f"cloneset.apps.kruise.io/{name} rolled back to revision {target.number} ({target.name}){_dry(dry_run)}"


def _dry(dry_run: bool) -> str:
    return " (dry run)" if dry_run else ""


@rollout.command()
def restart(what: _What, namespace: Namespace = "", kubeconfig: Kubeconfig = "", context: Context = "") -> None:
    """Replace all Pods by new ones, step by step."""

    async def work(client: Client, where: str) -> str:
        return await restarted(client, where, what)

    print(with_cluster(kubeconfig, context, namespace, work))


async def restarted(client: Client, namespace: str, what: list[str]) -> str:
    """What came of it, in a line."""
    from app.api import names
    from app.api.cloneset.types import RECREATE, ROLLING_UPDATE
    from app.cli.clonesets import RESOURCE, parsed, read_cloneset, surroundings, wanted_name
    from app.kube.clock import rfc3339
    from app.kube.resources import PODS
    from app.pods.predicates import is_active

    name = wanted_name(what)
    owner = parsed(await read_cloneset(client, namespace, name))
    strategy = owner.spec.update_strategy
    rolling = strategy.rolling_update
    if rolling is not None and rolling.paused:
        raise CommandError(f"CloneSet {name}: is paused; pykruise rollout resume cloneset {name}")
    if strategy.type == ROLLING_UPDATE and (rolling is None or rolling.pod_update_policy in ("", RECREATE)):
        annotations = {RESTARTED_AT: rfc3339(client.clock.now())}
        patch = {"spec": {"template": {"metadata": {"annotations": annotations}}}}
        await client.patch(RESOURCE, name, patch, namespace, field_manager="pykruise")
        return f"cloneset.apps.kruise.io/{name} restarted"
    # An annotation alone would be updated in place, and nothing would restart: each Pod is asked to be replaced (U-13).
    pods = [pod for pod in (await surroundings(client, owner)).pods if is_active(pod)]
    for pod in pods:
        body = {"metadata": {"uid": pod.metadata.uid, "labels": {names.SPECIFIED_DELETE: "true"}}}
        await client.patch(PODS, pod.metadata.name, body, namespace, field_manager="pykruise")
    return f"cloneset.apps.kruise.io/{name} restarted: {len(pods)} Pods will be replaced as maxUnavailable allows"


@rollout.command()
def pause(what: _What, namespace: Namespace = "", kubeconfig: Kubeconfig = "", context: Context = "") -> None:
    """Hold the roll-out: no further Pod is updated."""
    _pause(what, namespace, kubeconfig, context, paused=True)


@rollout.command()
def resume(what: _What, namespace: Namespace = "", kubeconfig: Kubeconfig = "", context: Context = "") -> None:
    """Let a paused roll-out go on."""
    _pause(what, namespace, kubeconfig, context, paused=False)


def _pause(what: list[str], namespace: str, kubeconfig: str, context: str, *, paused: bool) -> None:
    async def work(client: Client, where: str) -> str:
        return await set_paused(client, where, what, paused=paused)

    print(with_cluster(kubeconfig, context, namespace, work))


async def set_paused(client: Client, namespace: str, what: list[str], *, paused: bool) -> str:
    """What came of it, in a line. Raises CommandError."""
    from app.cli.clonesets import RESOURCE, read_cloneset, wanted_name

    name = wanted_name(what)
    spec: Mapping[str, Any] = (await read_cloneset(client, namespace, name))["spec"]
    strategy = spec.get("updateStrategy") or {}
    if strategy.get("type") == "OnDelete":
        raise CommandError(f"CloneSet {name}: OnDelete has no roll-out to pause or resume")
    if bool((strategy.get("rollingUpdate") or {}).get("paused")) == paused:
        return f"cloneset.apps.kruise.io/{name} {'is paused already' if paused else 'is not paused'}"
    patch = {"spec": {"updateStrategy": {"rollingUpdate": {"paused": paused}}}}
    await client.patch(RESOURCE, name, patch, namespace, field_manager="pykruise")
    return f"cloneset.apps.kruise.io/{name} {'paused' if paused else 'resumed'}"
