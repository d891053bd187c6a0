"""``pykruise prepare-uninstall``: stop the manager and take its webhooks away, before its objects are deleted."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from app.cli.cluster import failed
from app.kube import logs


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(name="prepare-uninstall")(prepare_uninstall)


def prepare_uninstall(
    namespace: Annotated[
        str,
        typer.Option(
            "--namespace",
            "-n",
            metavar="NAME",
            help="Namespace of the manager; default: $POD_NAMESPACE, or kruise-system",
        ),
    ] = "",
    kubeconfig: Annotated[str, typer.Option("--kubeconfig", metavar="FILE", help="kubeconfig file")] = "",
    context: Annotated[str, typer.Option("--context", metavar="NAME", help="Context of the kubeconfig")] = "",
) -> None:
    """Stop the manager and remove its webhooks.

    Refused while workloads of ours exist. helm uninstall runs it by itself. Exit code 1: refused, here or by the API
    server.
    """
    import asyncio

    from app.api import names
    from app.kube.errors import ConfigError, KubeError, sentence
    from app.manager.uninstall import UninstallRefusedError

    logs.configure("text", logs.level_for(2))
    try:
        where = namespace or os.environ.get("POD_NAMESPACE") or names.MANAGER_NAMESPACE
        asyncio.run(_with_cluster(where, kubeconfig, context))
    except ConfigError as error:
        raise failed(str(error), 2) from None
    except (UninstallRefusedError, KubeError) as error:
        raise failed(sentence(error)) from None


async def _with_cluster(namespace: str, kubeconfig: str, context: str) -> None:
    from app.kube.client import Client
    from app.kube.clock import SystemClock
    from app.kube.config import load_config
    from app.kube.transport import AiohttpTransport
    from app.manager.slices import workloads
    from app.manager.uninstall import prepare_uninstall as prepare

    transport = AiohttpTransport(await load_config(kubeconfig, context or None))
    try:
        await prepare(Client(transport, SystemClock(), user_agent="pykruise"), namespace, workloads())
    finally:
        await transport.close()
