"""A client for the cluster that kubectl would talk to, for one command."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

import typer

from app.cli.grammar import Context as Context
from app.cli.grammar import Kubeconfig as Kubeconfig
from app.cli.grammar import Namespace as Namespace
from app.cli.printing import complain
from app.kube.errors import CommandError as CommandError

if TYPE_CHECKING:
    from app.kube.client import Client
    from app.kube.config import ClusterConfig
    from app.kube.wire import Transport

T = TypeVar("T")


@asynccontextmanager
async def cluster(kubeconfig: str, context: str, *, dry_run: bool = False) -> AsyncIterator[tuple[Client, str]]:
    """A client, and the namespace of the context."""
    from app.kube.client import Client
    from app.kube.clock import SystemClock
    from app.kube.config import load_config

    config = await load_config(kubeconfig, context or None)
    transport = _transport(config)
    try:
        client = Client(transport, SystemClock(), user_agent="pykruise", dry_run=dry_run)
        yield client, config.namespace or "default"
    finally:
        await transport.close()


def _transport(config: ClusterConfig) -> Transport:
    """The way to the API server; the plain one, where it does, is there in a fifth of the time."""
    if config.proxy:
        from app.kube.transport import AiohttpTransport

        return AiohttpTransport(config)
    from app.kube.plainhttp import PlainTransport

    return PlainTransport(config)


def with_cluster(
    kubeconfig: str,
    context: str,
    namespace: str,
    work: Callable[[Client, str], Awaitable[T]],
    *,
    dry_run: bool = False,
) -> T:
    """Run ``work`` with a client and the namespace that is meant; what fails is told, and ends the command.

    ``dry_run``: nothing that the client writes is stored.
    """
    from app.kube.errors import ConfigError, KubeError, sentence

    async def run() -> T:
        async with cluster(kubeconfig, context, dry_run=dry_run) as (client, default):
            return await work(client, namespace or default)

    try:
        return asyncio.run(run())
    except BrokenPipeError:
        raise
    except CommandError as error:
        raise failed(str(error), error.exit_code) from None
    except ConfigError as error:
        raise failed(str(error), 2) from None
    except (KubeError, OSError) as error:
        raise failed(sentence(error)) from None


def failed(message: str, code: int = 1) -> typer.Exit:
    """Say why a command ends; the exception to raise. Exit code 1: it could not be done; 2: it was not understood."""
    complain(message)
    return typer.Exit(code)
