"""The ``pykruise daemon`` command: options, start-up, and release of memory that only start-up needs."""

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
from typing import Any, Final, NoReturn

from app.daemon.agent import Agent, Features
from app.daemon.credential_plugins import PluginConfigError, Plugins
from app.daemon.credentials import DockerConfig
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
    if path and os.pathsep not in path and (found := read_kubeconfig(Path(path))) is not None:
        return found
    return await load_config(kubeconfig, environ=environ)


# About half of the agent's resident memory is file pages read once, during imports. The kernel keeps them mapped until
# memory is short; once unmapped, they are read back as needed.

logger = logging.getLogger(__name__)

_MADV_DONTNEED: Final = 4
_SMAPS: Final = Path("/proc/self/smaps")


def unmodified_mappings(smaps: str) -> Iterator[tuple[int, int]]:
    """Return the address and length of each file mapping without modified pages. Its pages can be read from the file
    again."""
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


# The command ``pykruise daemon`` runs the agent of its node. [KD-1 … KD-4]

USER_AGENT: Final = "kruise-daemon"
_STOP_SECONDS: Final = 5.0
#: Seconds until memory is released. By then, caches are filled and every code path has run once.
_SETTLED_SECONDS: Final = 5.0
_BOOLEANS: Final = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}
_LOGS: Final = "accepted for compatibility with OpenKruise; logs always go to standard error"


class UsageError(Exception):
    """Invalid command line or environment."""


class _Parser(argparse.ArgumentParser):
    """Argument parser that reports errors in one line, like all commands."""

    def error(self, message: str) -> NoReturn:
        """Raise :class:`UsageError`."""
        raise UsageError(f"{message} (pykruise daemon --help lists all)")


def parser() -> argparse.ArgumentParser:
    """Return a parser for the flags of OpenKruise's agent and --kubeconfig."""
    found = _Parser(prog="pykruise daemon", description="Run the node agent.", allow_abbrev=False)
    flag = found.add_argument
    flag("--kubeconfig", default="", help="path to a kubeconfig file; defaults to the service account of the Pod")
    flag("--addr", default=":10221", help="address that serves /healthz and /metrics")
    flag(
        "--socket-file",
        default="",
        help="container runtime socket, relative to /hostvarrun; detected by default",
    )
    flag(
        "--max-workers-for-pull-image",
        "--max-concurrency",
        type=int,
        default=-1,
        help="maximum number of concurrent image pulls; unlimited by default",
    )
    flag(
        "--image-share-per-namespace",
        type=int,
        choices=range(1, 101),
        metavar="PERCENT",
        default=100,
        help="percentage of --max-workers-for-pull-image (if 4 or more) that jobs in one namespace may use",
    )
    flag(
        "--plugin-config-file",
        "--image-credential-provider-config",
        default="/kruise/CredentialProviderPlugin.yaml",
        help="CredentialProviderConfig file, or a directory of such files; no providers if it is missing",
    )
    flag(
        "--plugin-bin-dir",
        "--image-credential-provider-bin-dir",
        default="/kruise/plugins",
        help="directory of the credential provider programs",
    )
    flag(
        "--docker-config",
        default="/var/lib/kubelet",
        help="docker config.json, or a directory to search for it before the kubelet's other paths",
    )
    flag(
        "--rest-config-qps", type=float, default=0.0, help="requests per second to the API server; unlimited by default"
    )
    flag("--rest-config-burst", type=int, default=0, help="burst of requests to the API server above that rate")
    flag("--feature-gates", default="", help="A=true,B=false")
    flag(
        "--enable-pprof",
        nargs="?",
        const="true",
        default="true",
        help="accepted for compatibility; has no effect",
    )
    flag("--pprof-addr", default=":10222", help="accepted for compatibility; has no effect")
    flag("--v", "-v", type=int, default=0, help="log verbosity; 5 and above log everything")
    flag("--logging-format", choices=("text", "json"), default="text", help="log format: text or json")
    for name, is_boolean in logs.FLAGS_WITHOUT_EFFECT.items():
        flag(f"--{name}", nargs="?" if is_boolean else None, const="true" if is_boolean else None, help=_LOGS)
    return found


def flags() -> list[tuple[list[str], Any, str]]:
    """Return names, default and help of every flag, by name."""
    actions = [action for action in parser()._actions if action.dest != "help"]
    return sorted((list(action.option_strings), action.default, action.help or "") for action in actions)


def options_of(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse a command line. Raises :class:`UsageError`."""
    return parser().parse_args(logs.own_flags(arguments))


def without_effect(options: argparse.Namespace) -> list[str]:
    """Return the flags that were given and have no effect."""
    names = sorted(logs.FLAGS_WITHOUT_EFFECT)
    return [f"--{name}" for name in names if getattr(options, name.replace("-", "_")) is not None]


def gates(text: str) -> dict[str, bool]:
    """Parse --feature-gates. Raises :class:`UsageError`."""
    found = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, _, value = part.partition("=")
        if value.lower() not in _BOOLEANS or not name:
            raise UsageError(f"--feature-gates: {part!r} is not NAME=true or NAME=false")
        found[name.strip()] = _BOOLEANS[value.lower()]
    return found


def features(given: Mapping[str, bool]) -> Features:
    """Return the features that the gates leave on. A gate that is not given follows its group; groups default to on.
    [KD-3]"""
    default = given.get("AllBeta", True)
    watches_pods = given.get("DaemonWatchingPod", default)
    return Features(
        probes=given.get("PodProbeMarkerGate", default),
        pods=watches_pods,
        env_from_metadata=watches_pods and given.get("InPlaceUpdateEnvFromMetadata", default),
    )


def address(text: str) -> tuple[str, int]:
    """Parse ``:10221`` or ``127.0.0.1:10221`` into host and port. Raises :class:`UsageError`."""
    host, colon, port = text.rpartition(":")
    if not (colon and port.isascii() and port.isdigit() and int(port) < 65536):
        raise UsageError(f"--addr: {text!r} is not an address such as :10221")
    return host.strip("[]"), int(port)


def main(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run until stopped. Returns exit code 1 if start-up failed, 2 for invalid arguments."""
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
