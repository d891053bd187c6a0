"""A cluster with real containers: a control plane, nodes, kube-proxy and an image registry. Needs root.

    with Cluster() as cluster:
        cluster.kubectl("run", "web", "--image=nginx:1.25")

Only one can run at a time, because it uses names and addresses of the whole machine (see network.py).
"""

import os
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from tests.cluster import binaries, cgroups, credentials, network, packages
from tests.cluster import run as runs
from tests.cluster.controlplane import LOOPBACK, ControlPlane, free_port
from tests.cluster.credentials import Identity
from tests.cluster.errors import ClusterError
from tests.cluster.images import DEFAULT_IMAGES
from tests.cluster.nodes import Node
from tests.cluster.paths import locked, runs_dir
from tests.cluster.process import wait_until
from tests.cluster.recording import RECORDING
from tests.cluster.registry import PROCESS as REGISTRY_PROCESS
from tests.cluster.registry import Registry
from tests.cluster.run import Run

RUN_NAME = "cluster"
_CGROUP = "pykruise"


class Cluster:
    """A control plane and nodes. A context manager; also usable with `start()` and `stop()`.

    `nodes`: the number of nodes; 0 means only a control plane on loopback, which needs no root. `detached`: it outlives
    this process, until `stop()`. `api_server_args`: more flags.
    """

    def __init__(self, *, nodes: int = 3, api_server_args: Sequence[str] = (), detached: bool = False) -> None:
        if not 0 <= nodes <= network.MAX_NODES:
            raise ClusterError(f"nodes must be between 0 and {network.MAX_NODES}, got {nodes}")
        self._node_names = [f"node-{index}" for index in range(nodes)]
        self._detached = detached
        self._run: Run | None = None
        self._control_plane_arguments: dict[str, Any] = {
            "identities": [*map(Identity.node, self._node_names), *([credentials.PROXY] if nodes else [])],
            "api_server_args": api_server_args,
            "audit_policy": RECORDING,
            "scheduler": True,
            "address": network.HOST_ADDRESS if nodes else LOOPBACK,
        }

    @classmethod
    def running(cls) -> "Cluster | None":
        """Return the cluster that is up on this machine, if any."""
        run = Run.named(RUN_NAME)
        if run is None or run.is_stale() or "nodes" not in run.facts:
            return None
        if os.environ.get("KUBERNETES") and run.facts["kubernetes"] != binaries.kubernetes_version():
            version = run.facts["kubernetes"]
            raise ClusterError(f"a cluster of Kubernetes {version} is up; first: python -m tests.cluster down")
        found = cls(nodes=len(run.facts["nodes"]))
        found._attach(run)
        return found

    def _attach(self, run: Run) -> None:
        self._run = run
        self.control_plane = ControlPlane.of_run(run)
        self.nodes = [Node(run, name, index) for index, name in enumerate(run.facts["nodes"])]
        self.registry = Registry(run.facts["registry"])

    @property
    def run(self) -> Run:
        if self._run is None:
            raise ClusterError("the cluster has not been started: use it as a context manager, or call start()")
        return self._run

    @property
    def kubeconfig(self) -> Path:
        return self.control_plane.kubeconfig

    def kubectl(
        self, *arguments: str, stdin: str | None = None, check: bool = True
    ) -> "subprocess.CompletedProcess[str]":
        return self.control_plane.kubectl(*arguments, stdin=stdin, check=check)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start everything and wait until Pods can run on every node."""
        kubernetes = [binaries.ETCD, binaries.API_SERVER, binaries.CONTROLLER_MANAGER, binaries.SCHEDULER]
        if self._node_names:
            if os.geteuid() != 0:
                raise ClusterError("nodes with real containers need root; without it: up --no-nodes")
            packages.ensure()
            kubernetes += [binaries.KUBELET, binaries.PROXY]
        commands = binaries.ensure(*kubernetes)
        self._run = Run.create(RUN_NAME, detached=self._detached)
        try:
            self.control_plane = ControlPlane(run=self.run, **self._control_plane_arguments)
            self.nodes = [Node(self.run, name, index) for index, name in enumerate(self._node_names)]
            if self.nodes:
                self._prepare_machine()
            self.control_plane.launch()
            self.registry = Registry("")
            if self.nodes:
                self._launch_nodes(commands)
            self.control_plane.wait_until_ready()
            if self.nodes:
                self._complete_nodes(commands)
            version = binaries.kubernetes_version()
            self.run.facts.update({"nodes": self._node_names, "registry": self.registry.address, "kubernetes": version})
            self.run.complete()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop everything and undo all changes to the machine."""
        run, self._run = self.run, None
        with locked(runs_dir() / "lock"):
            run.destroy()

    def _prepare_machine(self) -> None:
        self.run.before = network.observe()
        self.run.cgroup = _CGROUP
        self.run.save()
        network.set_up()

    def _launch_nodes(self, commands: Mapping[str, Path]) -> None:
        """While the API server starts, start what does not need it: the registry, images, the nodes' containerds."""
        self.registry = Registry.launch(self.run, f"{network.HOST_ADDRESS}:{free_port(network.HOST_ADDRESS)}")
        kubelet = commands[binaries.KUBELET]
        watched = self.run.watched(binaries.API_SERVER, binaries.ETCD)
        wait_until(self.control_plane.has_certificate, "the API server has its certificate", alive=watched)
        for node in self.nodes:
            kubeconfig = self.control_plane.kubeconfig_for(Identity.node(node.name))
            node.launch(kubelet, kubeconfig, self.registry.address)
        wait_until(self.registry.is_ready, "the registry answers", alive=self.run.watched(REGISTRY_PROCESS))
        self.registry.add(*DEFAULT_IMAGES)

    def _complete_nodes(self, commands: Mapping[str, Path]) -> None:
        """Start what needs the API server, and wait until it is ready."""
        proxy = [
            f"--kubeconfig={self.control_plane.kubeconfig_for(credentials.PROXY)}",
            "--proxy-mode=iptables",
            # One kube-proxy serves all nodes, which route ClusterIPs to the machine. Answers must return the same way,
            # even between two Pods of a node, so each connection gets the machine's address as its source.
            "--masquerade-all",
            f"--hostname-override={self.nodes[0].name}",  # the node must exist
            "--bind-address=127.0.0.1",
            "--healthz-bind-address=",
            "--metrics-bind-address=",
            "--conntrack-max-per-core=0",  # keeps the machine's limits
            "--conntrack-tcp-timeout-established=0s",
            "--conntrack-tcp-timeout-close-wait=0s",
            "--iptables-localhost-nodeports=false",
        ]
        for node in self.nodes:
            watched = self.run.watched(node.name)
            wait_until(node.is_containerd_ready, f"containerd of {node.name} listens", alive=watched)
            node.start_kubelet()
        self.run.start(binaries.PROXY, [commands[binaries.PROXY], *proxy], environment=self._host_environment())
        watched = self.run.watched(*self._node_names, binaries.PROXY, binaries.CONTROLLER_MANAGER, binaries.SCHEDULER)
        wait_until(self._nodes_are_ready, "all nodes are Ready", alive=watched)
        wait_until(_kubernetes_service_answers, "ClusterIPs are served by kube-proxy", alive=watched)

    def _host_environment(self) -> dict[str, str]:
        return os.environ | {"PATH": packages.search_path()}

    def _nodes_are_ready(self) -> bool:
        status, answer = self.control_plane.request("GET", "/api/v1/nodes")
        if status != 200:
            return False
        ready = [
            node["metadata"]["name"]
            for node in answer["items"]
            for condition in node["status"].get("conditions", ())
            if condition["type"] == "Ready" and condition["status"] == "True"
        ]
        return sorted(ready) == sorted(self._node_names)


def _kubernetes_service_answers() -> bool:
    try:
        with socket.create_connection((network.KUBERNETES_SERVICE, 443), timeout=1):
            return True
    except OSError:
        return False


def take_down() -> list[str]:
    """Stop the cluster on this machine, or clean up after a crashed one; return what is left."""
    with locked(runs_dir() / "lock"):
        run = Run.named(RUN_NAME)
        if run is None:
            return []
        if run.owner is not None and not run.is_stale():
            raise ClusterError(f"the cluster belongs to the running process {run.owner.pid} and ends with it")
        before = run.before
        run.destroy()
    return left_over(before)


def left_over(before: network.Before | None) -> list[str]:
    """Return what a cluster has left on this machine; nothing after `stop()`. `before`: its `run.before`."""
    found = [str(path) for path in (runs_dir() / RUN_NAME).glob("*")]
    found += [f"mount {point}" for point in runs.mounts_below(runs_dir() / RUN_NAME)]
    found += [f"control group {group}" for group in cgroups.left_over(_CGROUP)]
    return found + (network.left_over(before) if before else [])
