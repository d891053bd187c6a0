"""``pykruise dashboard``: a local web page about the cluster."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.terminal import Context, Kubeconfig, with_cluster, write
from app.kube.errors import CommandError
from app.manager.features import features

if TYPE_CHECKING:
    from app.kube.client import Client


def dashboard(
    port: Annotated[int, typer.Option(min=0, max=65535, metavar="N", help="Local port; 0 selects a free one")] = 8900,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """Show the cluster on a live web page.

    The page shows workloads and their rollouts, Pods, sidecars, budgets and WorkloadSpreads. The command reads with the
    permissions of the kubeconfig and writes nothing. Press Ctrl-C to stop it.
    """
    with_cluster(kubeconfig, context, "", lambda client, _: serve(client, port))


async def serve(client: Client, port: int) -> None:
    """Serve until interrupted. Raises CommandError if the port is in use, KubeError if the cluster is unreachable."""
    from random import Random

    import uvicorn

    from app.dashboard.board import board_of
    from app.dashboard.pages import create_dashboard
    from app.kube.concurrency import cancel
    from app.kube.resources import NAMESPACES
    from app.manager.serving import StartError, bind

    try:
        listener = bind("127.0.0.1", port, "--port")
    except StartError as error:
        raise CommandError(str(error)) from None
    with listener:
        await client.list_page(NAMESPACES, limit=1)  # fail early if the cluster is unreachable
        board = board_of(client, features(), Random())
        config = uvicorn.Config(
            create_dashboard(board), lifespan="off", log_config=None, access_log=False, timeout_graceful_shutdown=1
        )
        following = asyncio.create_task(board.run())
        write(f"http://127.0.0.1:{listener.getsockname()[1]}/ shows the cluster; press Ctrl-C to stop")
        try:
            await uvicorn.Server(config).serve([listener])
        finally:
            await cancel(following)
