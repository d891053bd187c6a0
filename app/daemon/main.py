"""The ``pykruise daemon`` command: start-up, and release of memory that only start-up needs. [KD-1 … KD-4]"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import gc
import logging
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Final

from app.daemon.agent import Agent
from app.daemon.credential_plugins import PluginConfigError, Plugins
from app.daemon.credentials import DockerConfig
from app.daemon.flags import UsageError, address, features, gates, options_of, without_effect
from app.daemon.metrics import HealthServer, Metrics
from app.kube import logs
from app.kube.client import Client
from app.kube.clock import SystemClock, TokenBucket
from app.kube.config import ClusterConfig, in_cluster, load_config, read_kubeconfig
from app.kube.errors import KubeError
from app.kube.http1 import PlainTransport

# Agents usually use a token or a certificate; the full loader is imported only for kubeconfigs with plugins.


async def cluster_config(kubeconfig: str, environ: Mapping[str, str]) -> ClusterConfig:
    """Load ``--kubeconfig`` or the usual in-cluster configuration. Raises ``ConfigError``. [KD-2]"""
    path = kubeconfig or environ.get("KUBECONFIG", "")
    if not path and environ.get("KUBERNETES_SERVICE_HOST"):
        return in_cluster(environ)
    if path and (found := read_kubeconfig(Path(path))) is not None:
        return found
    return await load_config(kubeconfig, environ=environ)


# About half of the agent's resident memory is file pages read once, during imports. The kernel keeps them mapped until
# memory is short; once unmapped, they are read back as needed.

logger = logging.getLogger(__name__)

_MADV_DONTNEED: Final = 4
_SMAPS: Final = Path("/proc/self/smaps")


def unmodified_mappings(smaps: str) -> Iterator[tuple[int, int]]:
    """Yield the address and length of each unmodified file mapping, whose pages can be reread from the file."""
    start = length = 0
    is_file = False
    for line in smaps.splitlines():
        name, _, rest = line.partition(" ")
        if not name.endswith(":"):
            fields = line.split()
            first, _, last = name.partition("-")
            start, length = int(first, 16), int(last, 16) - int(first, 16)
            # Read-only, private and backed by a file.
            is_file = len(fields) >= 6 and fields[1][1] == "-" and fields[1][3] == "p" and fields[5].startswith("/")
        elif is_file and name in ("Private_Dirty:", "Anonymous:", "Swap:", "Locked:") and rest.split()[0] != "0":
            is_file = False
        elif is_file and name == "VmFlags:":
            yield start, length


def give_back() -> None:
    """Release file pages that can be read again, and unused heap memory. Failures are ignored."""
    gc.collect()
    try:
        library = ctypes.CDLL(None, use_errno=True)
        madvise = library.madvise
        madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        for address, length in list(unmodified_mappings(_SMAPS.read_text("ascii", "replace"))):
            madvise(address, length, _MADV_DONTNEED)
        library.malloc_trim(0)
    except (OSError, AttributeError, ValueError) as error:
        logger.debug("cannot release memory: %s", error)


USER_AGENT: Final = "kruise-daemon"
_STOP_SECONDS: Final = 5.0
#: Seconds until memory is released. By then, caches are filled and every code path has run once.
_SETTLED_SECONDS: Final = 5.0


def main(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run until stopped. Returns exit code 1 after a failure, 2 for invalid arguments."""
    try:
        options = options_of(arguments)
    except UsageError as error:
        sys.stderr.write(f"pykruise: {error}\n")
        return 2
    logs.configure(options.logging_format, logs.level_for(options.v))
    if ignored := without_effect(options):
        logger.warning("accepted without effect: %s", ", ".join(ignored))
    # grpc logs its event loop on every call.
    logging.getLogger("grpc").setLevel(logging.WARNING)
    try:
        node = environ.get("NODE_NAME", "")
        if not node:
            raise UsageError("environment variable NODE_NAME is required: the name of the node the agent runs on")  # noqa: TRY301
        asyncio.run(_run(node, options, environ))
    except (UsageError, KubeError, PluginConfigError, OSError) as error:
        logger.error("%s", error)  # noqa: TRY400 - the message says what is wrong and what to do
        return 2 if isinstance(error, UsageError) else 1
    return 0


async def _run(node: str, options: argparse.Namespace, environ: Mapping[str, str]) -> None:
    try:
        from app.daemon.cri.client import connect
    except ImportError as error:
        raise UsageError(f"the node agent needs more packages ({error.name}): pip install 'pykruise[agent]'") from error
    host, port = address(options.addr)
    clock, chosen = SystemClock(), features(gates(options.feature_gates))
    metrics = Metrics()
    plugins = Plugins.load(options.plugin_config_file, options.plugin_bin_dir, clock, metrics.plugin_failed)
    transport = PlainTransport(await cluster_config(options.kubeconfig, environ), on_response=metrics.on_response)
    runtimes = await connect(options.socket_file)
    limiter = None
    if options.rest_config_qps > 0:
        limiter = TokenBucket(clock, qps=options.rest_config_qps, burst=max(1, options.rest_config_burst))
    client = Client(transport, clock, user_agent=USER_AGENT, limiter=limiter)
    agent = Agent(
        node,
        client,
        runtimes,
        Random(),
        keyrings=[DockerConfig.searched(options.docker_config, environ.get("HOME", "")), plugins],
        features=chosen,
        max_pulls=options.max_workers_for_pull_image,
        image_share=options.image_share_per_namespace,
        metrics=metrics,
    )
    server = await HealthServer(agent.failing, metrics.exposition, metrics.content_type).start(host, port)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    # Objects created at start-up live forever: exclude them from garbage collection.
    gc.collect()
    gc.freeze()
    asyncio.get_running_loop().call_later(_SETTLED_SECONDS, give_back)
    logger.info("node agent started: node=%s", node)
    working = asyncio.create_task(agent.run(), name="agent")
    stopping = asyncio.create_task(stop.wait(), name="stop")
    try:
        await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if working.done():
            working.result()  # raises the error that ended the agent
        working.cancel()
        await asyncio.wait((working,), timeout=_STOP_SECONDS)
    finally:
        server.close()
        for runtime in runtimes:
            await runtime.close()
        await transport.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
