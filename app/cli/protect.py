"""``pykruise protect`` and ``pykruise unprotect``: set and remove the deletion protection label."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.kinds import parts_of
from app.cli.terminal import Context, DryRun, Kubeconfig, Namespace, failed, words, write_answer
from app.kube.errors import CommandError, NotFound, describe

if TYPE_CHECKING:
    from app.features.deletionprotection.protected_kinds import ProtectedKind
    from app.kube.client import Client


_What = Annotated[list[str], words("KIND NAME, or KIND/NAME; KIND is Deployment, deploy, deployments.apps …")]


def protect(
    what: _What,
    namespace: Namespace = "",
    cascading: Annotated[
        bool, typer.Option("--cascading", help="Protect only while other objects depend on it")
    ] = False,
    dry_run: DryRun = False,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """Protect an object from deletion.

    By default, deletion is always denied; with --cascading, only while other objects depend on the object.
    """
    _command(what, namespace, "Cascading" if cascading else "Always", kubeconfig, context, dry_run=dry_run)


def unprotect(
    what: _What,
    namespace: Namespace = "",
    dry_run: DryRun = False,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """Remove an object's protection from deletion."""
    _command(what, namespace, "", kubeconfig, context, dry_run=dry_run)


def _command(what: list[str], namespace: str, value: str, kubeconfig: str, context: str, *, dry_run: bool) -> None:
    from app.features.deletionprotection.protected_kinds import load_table
    from app.framework.policies import PolicyError

    try:
        kind, name = parts_of(what)
        if not name:
            raise failed(f"{kind}: expected KIND NAME or KIND/NAME", 2)
        protected = wanted_kind(load_table(), kind, name, value)
    except (CommandError, PolicyError) as error:
        raise failed(str(error), 2) from None

    async def work(client: Client, where: str) -> str:
        return await set_protection(client, protected, name, where if protected.namespaced else "", value)

    write_answer(kubeconfig, context, namespace, work, dry_run=dry_run)


def wanted_kind(table: tuple[ProtectedKind, ...], kind: str, name: str, value: str) -> ProtectedKind:
    """Return the kind with this name. Raises CommandError if there is none, or if the value has no effect on it."""
    from app.features.deletionprotection.protected_kinds import Cascading, find_kind

    found = find_kind(table, kind)
    if found is None:
        known = ", ".join(row.full_name for row in table)
        raise CommandError(f"{kind} {name}: deletion protection does not cover this kind; it covers {known}")
    if value == "Cascading" and found.cascading is Cascading.NOTHING:
        raise CommandError(f"{found.kind} {name}: --cascading has no effect on this kind; omit it")
    return found


async def set_protection(client: Client, kind: ProtectedKind, name: str, namespace: str, value: str) -> str:
    """Write the label; an empty value removes it. Return a one-line summary. Raises CommandError or KubeError."""
    from app.api import names

    called = describe(kind.kind, namespace, name)
    try:
        metadata = (await client.get(kind.endpoint, name, namespace))["metadata"]
    except NotFound:
        hint = "; use -n to specify another namespace" if namespace else ""
        raise CommandError(f"{called}: not found{hint}") from None
    before = (metadata.get("labels") or {}).get(names.DELETE_PROTECTION, "")
    if before == value:
        return f"{called}: {_state(value)} already" if value else f"{called}: was not protected"
    labels = {names.DELETE_PROTECTION: value or None}
    body = {"metadata": {"uid": metadata["uid"], "labels": labels}}
    await client.patch(kind.endpoint, name, body, namespace, field_manager="pykruise")
    return f"{called}: {_state(value)}{f' (before: {before})' if before else ''}"


def _state(value: str) -> str:
    if not value:
        return "no longer protected"
    return "protected (Always)" if value == "Always" else "protected while other objects depend on it (Cascading)"
