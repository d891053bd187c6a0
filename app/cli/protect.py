"""``pykruise protect`` and ``pykruise unprotect``: the label of deletion protection, written and taken away."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from app.manager import logging as manager_logging

if TYPE_CHECKING:
    from app.kube.client import Client
    from app.protection.deletion.table import ProtectedKind


class ProtectError(Exception):
    """The command cannot do what it was asked; the message says what to do instead."""


_Kind = Annotated[str, typer.Argument(help="Deployment, deploy, deployments.apps …", show_default=False)]
_Name = Annotated[str, typer.Argument(help="Name of the object", show_default=False)]
_Namespace = Annotated[str, typer.Option("--namespace", "-n", help="Default: the namespace of the context")]
_Kubeconfig = Annotated[str, typer.Option("--kubeconfig", help="kubeconfig file")]
_Context = Annotated[str, typer.Option("--context", help="Context of the kubeconfig")]


def register(app: typer.Typer) -> None:
    """Add both commands."""
    app.command()(protect)
    app.command()(unprotect)


def protect(
    kind: _Kind,
    name: _Name,
    namespace: _Namespace = "",
    cascading: Annotated[bool, typer.Option("--cascading", help="Protected only while it has live dependants")] = False,
    kubeconfig: _Kubeconfig = "",
    context: _Context = "",
) -> None:
    """Protect an object from deletion: always, or with --cascading as long as something depends on it."""
    _command(kind, name, namespace, "Cascading" if cascading else "Always", kubeconfig, context)


def unprotect(
    kind: _Kind,
    name: _Name,
    namespace: _Namespace = "",
    kubeconfig: _Kubeconfig = "",
    context: _Context = "",
) -> None:
    """Let an object be deleted again."""
    _command(kind, name, namespace, "", kubeconfig, context)


def _command(kind: str, name: str, namespace: str, value: str, kubeconfig: str, context: str) -> None:
    import asyncio

    from app.kube.errors import KubeError
    from app.protection.deletion.table import TableError, load_table

    try:
        protected = wanted_kind(load_table(), kind, name, value)
        print(asyncio.run(_with_cluster(protected, name, namespace, value, kubeconfig, context)))
    except (ProtectError, KubeError, TableError) as error:
        manager_logging.fatal(str(error))
        raise typer.Exit(1) from None


def wanted_kind(table: tuple[ProtectedKind, ...], kind: str, name: str, value: str) -> ProtectedKind:
    """The row a person means. Raises ProtectError where there is none, or where the value protects nothing."""
    from app.protection.deletion.table import Cascading, find_kind

    found = find_kind(table, kind)
    if found is None:
        known = ", ".join(row.full_name for row in table)
        raise ProtectError(f"{kind} {name}: deletion protection knows no such kind; it knows {known}")
    if value == "Cascading" and found.cascading is Cascading.NOTHING:
        raise ProtectError(f"{found.kind} {name}: --cascading protects nothing on this kind; leave it out")
    return found


async def _with_cluster(
    kind: ProtectedKind, name: str, namespace: str, value: str, kubeconfig: str, context: str
) -> str:
    from app.kube.client import Client
    from app.kube.clock import SystemClock
    from app.kube.config import load_config
    from app.kube.transport import AiohttpTransport

    config = await load_config(kubeconfig, context or None)
    transport = AiohttpTransport(config)
    try:
        client = Client(transport, SystemClock(), user_agent="pykruise")
        where = (namespace or config.namespace or "default") if kind.namespaced else ""
        return await set_protection(client, kind, name, where, value)
    finally:
        await transport.close()


async def set_protection(client: Client, kind: ProtectedKind, name: str, namespace: str, value: str) -> str:
    """Write the label (an empty value: take it away); what came of it, in a line. Raises ProtectError or KubeError."""
    from app.api import names
    from app.kube.errors import NotFound, describe

    called = describe(kind.kind, namespace, name)
    try:
        metadata = (await client.get(kind.endpoint, name, namespace))["metadata"]
    except NotFound:
        hint = "; name another namespace with -n" if namespace else ""
        raise ProtectError(f"{called}: not found{hint}") from None
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
    return "protected (Always)" if value == "Always" else "protected while something depends on it (Cascading)"
