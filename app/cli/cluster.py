"""A client for the cluster that kubectl would talk to, for one command."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from app.kube.errors import CommandError as CommandError
from app.manager import logging as manager_logging

if TYPE_CHECKING:
    from app.kube.client import Client

T = TypeVar("T")

Namespace = Annotated[str, typer.Option("--namespace", "-n", help="Default: the namespace of the context")]
Kubeconfig = Annotated[str, typer.Option("--kubeconfig", help="kubeconfig file")]
Context = Annotated[str, typer.Option("--context", help="Context of the kubeconfig")]


@asynccontextmanager
async def cluster(kubeconfig: str, context: str) -> AsyncIterator[tuple[Client, str]]:
    """A client, and the namespace of the context."""
    from app.kube.client import Client
    from app.kube.clock import SystemClock
    from app.kube.config import load_config
    from app.kube.transport import AiohttpTransport

    config = await load_config(kubeconfig, context or None)
    transport = AiohttpTransport(config)
    try:
        yield Client(transport, SystemClock(), user_agent="pykruise"), config.namespace or "default"
    finally:
        await transport.close()


def with_cluster(kubeconfig: str, context: str, namespace: str, work: Callable[[Client, str], Awaitable[T]]) -> T:
    """Run ``work`` with a client and the namespace that is meant; what fails is told, and ends the command."""
    from app.kube.errors import KubeError

    async def run() -> T:
        async with cluster(kubeconfig, context) as (client, default):
            return await work(client, namespace or default)

    try:
        return asyncio.run(run())
    except (CommandError, KubeError, OSError) as error:
        manager_logging.fatal(str(error))
        raise typer.Exit(1) from None
