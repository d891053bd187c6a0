"""The sandbox: a simulated cluster with the manager, and its live output."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any, Final

import yaml

from app.api import names
from app.kube.client import Client, PatchType
from app.kube.clock import Clock, SystemClock
from app.kube.errors import ApiError, KubeError
from app.kube.resources import CUSTOMRESOURCEDEFINITIONS, NAMESPACES, Resource
from app.manager.serving import StartError
from app.sandbox.apiserver.https import HttpsServer
from app.sandbox.apiserver.server import ApiServer
from app.sandbox.cluster import SimulatedCluster
from app.sandbox.kubelet.program import Pace
from app.sandbox.nodes import simulated_nodes
from app.sandbox.objects import ContainerStatus, Pod

# Runs the whole sandbox: API server over HTTPS, nodes, native controllers, and the manager in its own process. The
# manager is started as on any cluster, with the sandbox's kubeconfig: it creates its certificate, registers its
# webhooks and is called by the API server over HTTPS.

ZONES: Final = ("zone-a", "zone-b", "zone-c")
CAPACITY: Final[Mapping[str, str]] = {"cpu": "16", "memory": "64Gi", "pods": "1000", "ephemeral-storage": "100Gi"}
#: Delays that let users watch a rollout.
PACE: Final = Pace(pull=0.6, start=0.3, restart=0.3, stop=0.3)
HOST: Final = "127.0.0.1"
#: Maximum seconds until the manager is ready after its start, and until it has stopped.
READY_SECONDS: Final = 60.0
STOP_SECONDS: Final = 12.0
PROGRAM: Final = "import os, sys; from app.manager.run import main; sys.exit(main(sys.argv[1:], os.environ))"


@dataclass(frozen=True, slots=True)
class Options:
    """Command-line options."""

    kubeconfig: Path
    nodes: int = 3
    port: int = 0
    #: Additional flags for the manager.
    manager_flags: tuple[str, ...] = ()
    pace: Pace = PACE
    #: Python code that starts the manager.
    program: str = PROGRAM
    #: Objects to create at startup.
    samples: tuple[Mapping[str, Any], ...] = field(default_factory=tuple)
    #: Log file of the manager. None means a file next to the kubeconfig.
    log_file: Path | None = None

    @property
    def authority(self) -> Path:
        """Return the CA file, for curl."""
        return self.kubeconfig.with_name(f"{self.kubeconfig.stem}-ca.pem")

    @property
    def log(self) -> Path:
        """Return the manager's log file."""
        return self.log_file or self.kubeconfig.with_name(f"{self.kubeconfig.stem}-manager.log")


class Sandbox:
    """A running sandbox."""

    def __init__(
        self, options: Options, server: HttpsServer, api: ApiServer, client: Client, cluster: SimulatedCluster
    ):
        self.options = options
        self.server = server
        self.api = api
        self.client = client
        self.cluster = cluster


def check(kubeconfig: Path) -> None:
    """Raise StartError for problems that can be detected before startup, such as an invalid folder or another running
    sandbox."""
    folder = kubeconfig.parent
    if not folder.is_dir():
        raise StartError(f"--kubeconfig: folder {folder} does not exist")
    if not os.access(folder, os.W_OK):
        raise StartError(f"--kubeconfig: folder {folder} is not writable: name a file in another folder")
    if kubeconfig.is_dir():
        raise StartError(f"--kubeconfig: {kubeconfig} is a folder: name a file")
    if not kubeconfig.exists():
        return
    try:
        server = server_of(kubeconfig)
    except (OSError, ValueError, LookupError, TypeError, yaml.YAMLError):
        server = ""
    if not server.startswith(f"https://{HOST}:"):
        raise StartError(
            f"--kubeconfig: {kubeconfig} was not written by a sandbox and is left unchanged: name another file"
        )
    if answers(server):
        raise StartError(
            f"another sandbox is running at {server} (its kubeconfig is {kubeconfig}): "
            "stop it, or name another file with --kubeconfig"
        )


def server_of(kubeconfig: Path) -> str:
    """Return the server address in a sandbox's kubeconfig, or "" for other kubeconfigs. Raises if the file cannot be
    read or parsed."""
    document = yaml.safe_load(kubeconfig.read_text("utf-8"))
    [cluster] = document["clusters"]
    return str(cluster["cluster"]["server"]) if cluster["name"] == "sandbox" else ""


def answers(server: str) -> bool:
    """Return whether the address accepts connections."""
    port = server.rpartition(":")[2]
    with socket.socket() as probe:
        probe.settimeout(1)
        return port.isdigit() and probe.connect_ex((HOST, int(port))) == 0


@asynccontextmanager
async def sandbox(options: Options, *, clock: Clock | None = None) -> AsyncIterator[Sandbox]:
    """Run a sandbox without the manager; :func:`with_manager` adds it. Raises StartError."""
    check(options.kubeconfig)
    clock = clock if clock is not None else SystemClock()
    rng = Random()
    api = ApiServer(clock=clock, rng=rng)
    async with HttpsServer.start(api, host=HOST, port=options.port) as server:
        client = Client(api.transport(), clock, user_agent="pykruise-sandbox")
        nodes = simulated_nodes(options.nodes, zones=ZONES, capacity=CAPACITY)
        authority = server.certificates.ca_cert.decode()
        cluster = SimulatedCluster(client, nodes, rng=rng, pace=options.pace, authority=authority, agents=True)
        api.subresources.logs = _logs(cluster)
        files = {options.kubeconfig: server.kubeconfig(), options.authority: authority}
        written(files)
        working: asyncio.Task[None] | None = None
        try:
            await cluster.register()
            working = asyncio.create_task(cluster.work(), name="sandbox: nodes and controllers")
            yield Sandbox(options, server, api, client, cluster)
        finally:
            if working is not None:
                working.cancel()
                await asyncio.gather(working, return_exceptions=True)
            for path in files:
                path.unlink(missing_ok=True)


def written(files: Mapping[Path, str]) -> None:
    """Write each file atomically, readable only by its owner. Raises StartError."""
    try:
        for path, text in files.items():
            beside = path.with_name(f"{path.name}.new")
            beside.touch(0o600)
            beside.write_text(text, "utf-8")
            beside.replace(path)
    except OSError as error:
        raise StartError(f"--kubeconfig: {error.filename} cannot be written: {error.strerror}") from None


def _logs(cluster: SimulatedCluster) -> Any:
    async def logs(namespace: str, pod: str, container: str, query: Mapping[str, str]) -> bytes:
        previous = query.get("previous") in ("true", "1")
        try:
            text = cluster.nodes.kubelets.log(namespace, pod, container, previous=previous)
        except LookupError as error:
            return f"{error.args[0]}\n".encode()
        lines = text.splitlines(keepends=True)
        if (tail := query.get("tailLines", "")).isdigit():
            lines = lines[len(lines) - min(int(tail), len(lines)) :]
        return "".join(lines).encode()

    return logs


async def prepare(client: Client) -> None:
    """Create the CRDs, the manager's namespace and the namespace of pull secrets."""
    from app.api import crd  # half of all modules, and not needed to start the API server
    from app.manager.features import kinds

    for manifest in crd.manifests(kinds()).values():
        name = manifest["metadata"]["name"]
        await client.patch(CUSTOMRESOURCEDEFINITIONS, name, manifest, kind=PatchType.APPLY, field_manager="sandbox")
    for name in (names.MANAGER_NAMESPACE, names.DAEMON_CONFIG_NAMESPACE):
        await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})


@asynccontextmanager
async def with_manager(running: Sandbox, *, install: bool = True) -> AsyncIterator[None]:
    """Run the manager in a sandbox until it is ready. Raises StartError if it fails to start.

    ``install`` is False if a manager has run in this sandbox before.
    """
    if install:
        await prepare(running.client)
    options = running.options
    webhook, health = _free_port(), _free_port()
    flags = [
        f"--kubeconfig={options.kubeconfig}",
        f"--webhook-host={HOST}",
        f"--webhook-port={webhook}",
        f"--health-probe-addr={HOST}:{health}",
        "--metrics-addr=0",
        "--webhook-processes=0",
        "--enable-leader-election=false",
        *options.manager_flags,
    ]
    environment = os.environ | {"POD_NAMESPACE": names.MANAGER_NAMESPACE}
    with options.log.open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            options.program,
            *flags,
            stdout=log,
            stderr=log,
            env=environment,
            start_new_session=True,
        )
    keep_log = True
    try:
        await _until_ready(process, f"http://{HOST}:{health}/readyz", options.log)
        keep_log = False
        await load(running.client, options.samples)
        yield
    finally:
        if process.returncode is None:
            process.terminate()
            try:
                await asyncio.wait_for(process.wait(), STOP_SECONDS)
            except TimeoutError:
                process.kill()
                await process.wait()
        if not keep_log:  # kept after a failed start, whose error refers to it
            options.log.unlink(missing_ok=True)


async def _until_ready(process: asyncio.subprocess.Process, url: str, log: Path) -> None:
    end = asyncio.get_running_loop().time() + READY_SECONDS
    while asyncio.get_running_loop().time() < end:
        if process.returncode is not None:
            raise StartError(f"the manager exited with code {process.returncode}: {_last_line(log)}")
        if await asyncio.to_thread(_is_ready, url):
            return
        await asyncio.sleep(0.05)
    raise StartError(f"the manager was not ready within {READY_SECONDS:.0f} s; see its log {log}")


def _last_line(log: Path) -> str:
    return " ".join(log.read_text("utf-8", "replace").strip().splitlines()[-1:])


def _is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:  # noqa: S310 - our own process, on loopback
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError, ssl.SSLError):
        return False


async def load(client: Client, objects: Sequence[Mapping[str, Any]]) -> None:
    """Apply the initial objects. Raises a StartError that names the rejected object."""
    for manifest in sorted(objects, key=lambda one: one["kind"] != "Namespace"):
        resource = await _resource_of(client, manifest)
        metadata = manifest["metadata"]
        namespace = metadata.get("namespace", "default") if resource.namespaced else ""
        try:
            await client.patch(
                resource, metadata["name"], manifest, namespace, kind=PatchType.APPLY, field_manager="sandbox"
            )
        except KubeError as error:
            raise StartError(f"{manifest['kind']} {metadata['name']}: {error}") from None


async def _resource_of(client: Client, manifest: Mapping[str, Any]) -> Resource:
    """Return the resource of a manifest's kind, from discovery."""
    group, _, version = str(manifest["apiVersion"]).rpartition("/")
    path = f"/apis/{group}/{version}" if group else f"/api/{version}"
    listing: dict[str, Any] = {}
    with contextlib.suppress(ApiError):
        listing = yaml.safe_load(await client.raw(path))
    for one in listing.get("resources", ()):
        if one["kind"] == manifest["kind"] and "/" not in one["name"]:
            return Resource(group, version, one["name"], one["kind"], one["namespaced"])
    raise StartError(f"{manifest['kind']} {manifest['metadata']['name']}: no kind {manifest['kind']} in {path}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


#: Maximum number of Pods shown.
MOST_ROWS = 30
_LONG_AGO = datetime.min.replace(tzinfo=UTC)


def containers(pod: Pod) -> str:
    """Return the containers' states, init containers first: ``log-shipper ready · main ContainerCreating``. Completed
    init containers are omitted."""
    statuses = {one.name: one for one in (*pod.status.init_container_statuses, *pod.status.container_statuses)}
    named = [*pod.spec.init_containers, *pod.spec.containers]
    shown = []
    for container in named:
        status = statuses.get(container.name)
        is_init = container in pod.spec.init_containers and container.restart_policy != "Always"
        if is_init and status is not None and status.state.terminated is not None and status.ready:
            continue
        shown.append(f"{container.name} {state(status)}")
    return " · ".join(shown)


def state(status: ContainerStatus | None) -> str:
    """Return a container's state in one or two words."""
    if status is None:
        return "waiting"
    restarts = f" (restarts: {status.restart_count})" if status.restart_count else ""
    if status.state.running is not None:
        return ("ready" if status.ready else "running") + restarts
    if status.state.terminated is not None:
        return f"{status.state.terminated.reason} {status.state.terminated.exit_code}{restarts}"
    reason = status.state.waiting.reason if status.state.waiting is not None else "waiting"
    return reason + restarts


def phase(pod: Pod) -> str:
    """Return the Pod's phase, or Terminating, Unschedulable or Ready."""
    if pod.metadata.deletion_timestamp is not None:
        return "Terminating"
    if any(one.type == "PodScheduled" and one.status == "False" for one in pod.status.conditions):
        return "Unschedulable"
    if any(one.type == "Ready" and one.status == "True" for one in pod.status.conditions):
        return "Ready"
    return pod.status.phase or "Pending"


def rows(pods: Iterable[Pod]) -> list[tuple[str, str, str, str]]:
    """Return the name, node, phase and containers of the newest Pods, sorted by name."""
    ordered = sorted(
        pods, key=lambda pod: (pod.metadata.creation_timestamp is not None, pod.metadata.creation_timestamp)
    )
    found = [
        (f"{pod.metadata.namespace}/{pod.metadata.name}", pod.spec.node_name, phase(pod), containers(pod))
        for pod in ordered[-MOST_ROWS:]
    ]
    return sorted(found)


def line(pod: Pod, *, gone: bool = False) -> str:
    """Return one line describing a Pod change."""
    name = f"{pod.metadata.namespace}/{pod.metadata.name}"
    return f"{name}: gone" if gone else f"{name} on {pod.spec.node_name or 'no node'}: {phase(pod)} [{containers(pod)}]"
