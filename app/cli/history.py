"""``pykruise rollout history`` and ``undo``: revisions that were recorded, and the way back to one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from app.cli.printing import Format, items, written
from app.slices.commands import CommandError, Recorded, table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from app.kube.client import Client
    from app.slices.commands import Commands

CHANGE_CAUSE = "kubernetes.io/change-cause"


async def history_text(
    client: Client, namespace: str, what: Sequence[str], number: int, output: Format = "text"
) -> str:
    """The table of revisions, or what one holds. Raises CommandError."""
    from app.cli.workloads import read

    commands, name = with_history(what)
    called = f"{commands.kind.kind} {name}"
    stored = await read(client, commands, namespace, name)
    revisions = await recorded(client, commands, stored)
    if number:
        found = revision(revisions, number, called)
        if not found.content:
            raise CommandError(f"{called}: ControllerRevision {found.name} holds no template")
        return written(dict(found.content), "json" if output == "json" else "yaml")
    if output != "text":
        return written(items([_data(one) for one in revisions], "RevisionList"), output)
    rows = [("REVISION", "NAME", "PODS", "ROLE", "CHANGE-CAUSE")]
    return table([*rows, *((str(one.number), one.name, str(one.pods), one.role, one.cause) for one in revisions)])


def _data(one: Recorded) -> dict[str, Any]:
    roles = [] if one.role == "-" else one.role.split(",")
    cause = "" if one.cause == "<none>" else one.cause
    return {"revision": one.number, "name": one.name, "pods": one.pods, "roles": roles, "changeCause": cause}


async def recorded(client: Client, commands: Commands, stored: Mapping[str, Any]) -> Sequence[Recorded]:
    """The revisions of an object, oldest first, whatever they hold."""
    from app.cli.workloads import owned
    from app.pods.predicates import is_active
    from app.pods.revisions import is_same_revision
    from app.pods.templates import recorded_template

    if commands.own_history is not None:
        return await commands.own_history.read(client, stored)
    own, status = await owned(client, stored), stored.get("status") or {}
    labels = [pod.metadata.labels.get("controller-revision-hash", "") for pod in own.pods if is_active(pod)]
    found = []
    for one in own.revisions:
        roles = [role for role in ("current", "update") if one.name == status.get(f"{role}Revision")]
        pods = sum(is_same_revision(label, one.name) for label in labels)
        cause = one.annotations.get(CHANGE_CAUSE, "<none>")
        content = recorded_template(one) or {}
        found.append(Recorded(one.number, one.name, pods, ",".join(roles) or "-", cause, content))
    return found


def with_history(what: Sequence[str]) -> tuple[Commands, str]:
    """The kind and name that are meant. Raises CommandError where there is no history."""
    from app.cli.workloads import wanted

    commands, name = wanted(what)
    if not commands.history:
        raise CommandError(f"{commands.kind.kind} {name}: records no revisions")
    return commands, name


def revision(revisions: Sequence[Recorded], number: int, called: str) -> Recorded:
    """The one with this number. Raises CommandError."""
    found = next((one for one in revisions if one.number == number), None)
    if found is None:
        known = ", ".join(str(one.number) for one in revisions) or "none"
        raise CommandError(f"{called}: there is no revision {number}; recorded: {known}")
    return found


async def undone(client: Client, namespace: str, what: Sequence[str], number: int, *, dry_run: bool = False) -> str:
    """What came of taking the content of an earlier revision again, in a line. Raises CommandError."""
    from app.cli.changes import changed, shown
    from app.cli.workloads import read

    commands, name = with_history(what)
    called = f"{commands.kind.kind} {name}"
    stored = await read(client, commands, namespace, name)
    revisions = await recorded(client, commands, stored)
    if not number and len(revisions) < 2:
        raise CommandError(f"{called}: there is no earlier revision to go back to")
    target = revision(revisions, number or revisions[-2].number, called)
    if not target.content:
        raise CommandError(f"{called}: ControllerRevision {target.name} holds no template")
    if target is revisions[-1]:
        return f"{shown(commands, name)}: revision {target.number} ({target.name}) is the newest already"
    own = commands.own_history
    changes = (
        own.undo(stored, target.content)
        if own is not None
        else [{"op": "replace", "path": "/spec/template", "value": target.content}]
    )
    said = f"rolled back to revision {target.number} ({target.name})"
    return await changed(client, commands, stored, changes, said, dry_run=dry_run)
