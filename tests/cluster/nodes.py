"""The nodes: each is a containerd and a kubelet in their own namespaces, much like a small machine.

A node has its own mounts (/run/containerd/containerd.sock, /var/lib/kubelet and /var/log are the node's), its own
processes, and its own network with one address. Pods on the host network of different nodes do not collide, and
everything that belongs to a node ends with its first process (node_init.py).
"""

import json
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cluster import binaries, cgroups, network, packages, process
from tests.cluster.errors import ClusterError
from tests.cluster.images import PAUSE
from tests.cluster.paths import SOURCE
from tests.cluster.process import ProcessId
from tests.cluster.run import Run

# Fixed paths that programs write to; each node has its own directories there.
_OWN_FOLDERS = ("/run", "/var/log", "/var/lib/kubelet", "/var/lib/cni")
_NAMESPACES = ("--mount", "--pid", "--net", "--uts", "--ipc")


@dataclass(slots=True)
class Node:
    run: Run
    name: str
    index: int
    _steps: int | None = None  # the write end of the pipe to node_init.py

    @property
    def directory(self) -> Path:
        return self.run.directory / self.name

    @property
    def address(self) -> str:
        return network.node_address(self.index)

    @property
    def zone(self) -> str:
        """Return the node's topology.kubernetes.io/zone: zone-a, zone-b, zone-c, zone-a and so on."""
        return f"zone-{'abc'[self.index % 3]}"

    @property
    def cri_socket(self) -> Path:
        """Return containerd's socket on the machine; on the node it is /run/containerd/containerd.sock."""
        return self.directory / "run" / "containerd" / "containerd.sock"

    @property
    def first_process(self) -> ProcessId:
        children = self.run.processes[self.name].children()
        if not children:
            raise ClusterError(f"node {self.name} is not running; its log: {self.run.log(self.name)}")
        return children[0]

    def enter_command(self, *command: str) -> list[str]:
        """Return the command that runs `command` on the node, as if from a login there."""
        wanted = [f"--{kind}" for kind in ("mount", "pid", "net", "uts", "ipc")]
        return ["nsenter", f"--target={self.first_process.pid}", *wanted, "--", *command]

    def restart_containerd(self) -> None:
        """Kill containerd and restart it, as a service manager would; its containers keep running."""
        self.directory.joinpath("restart-containerd").touch()
        configured = self.directory / "containerd.toml"
        for child in self.first_process.children():
            command = Path(f"/proc/{child.pid}/cmdline").read_bytes().split(b"\0")
            if str(configured).encode() in command:
                os.kill(child.pid, signal.SIGKILL)
                return
        raise ClusterError(f"node {self.name} runs no containerd")

    def launch(self, kubelet: Path, kubeconfig: Path, registry: str) -> None:
        """Start the node up to containerd, without waiting for it."""
        self.directory.mkdir()
        cgroups.create(f"{self.run.cgroup}/{self.name}")
        mounts = {target: self._own_folder(target) for target in _OWN_FOLDERS}
        config = {
            "name": self.name,
            "address": self.address,
            "gateway": network.HOST_ADDRESS,
            "mounts": mounts,
            "environment": os.environ | {"PATH": packages.search_path()},
            "containerd": {"argv": self._containerd(registry), "log": str(self.run.log(f"{self.name}-containerd"))},
            "kubelet": {
                "argv": self._kubelet(kubelet, kubeconfig),
                "log": str(self.run.log(f"{self.name}-kubelet")),
            },
        }
        path = self._write("node.json", json.dumps(config, indent=2))
        # unshare waits for the node's first process, and kills it if unshare itself is killed.
        unshare = ["unshare", *_NAMESPACES, "--fork", "--kill-child", "--mount-proc", "--"]
        reading, self._steps = os.pipe()
        self.run.start(self.name, [*unshare, sys.executable, "-I", SOURCE / "node_init.py", path], stdin=reading)
        os.close(reading)
        alive = self.run.watched(self.name)
        process.wait_until(lambda: self.run.processes[self.name].children(), f"{self.name} has begun", alive=alive)
        network.add_node(self.name, self.index, self.first_process.pid)
        self._go_on("network")

    def is_containerd_ready(self) -> bool:
        return self.cri_socket.exists()

    def start_kubelet(self) -> None:
        """Start the kubelet, once the API server and this node's containerd are ready."""
        self._go_on("kubelet")
        if self._steps is not None:
            os.close(self._steps)
            self._steps = None

    def _go_on(self, step: str) -> None:
        if self._steps is None:
            raise ClusterError(f"node {self.name} has already been started")
        os.write(self._steps, f"{step}\n".encode())

    def _own_folder(self, target: str) -> str:
        """Return a new folder of the node to mount at `target`. Creates `target` on the machine if it is missing."""
        for folder in reversed([Path(target), *Path(target).parents]):
            if not folder.exists():
                folder.mkdir()
                self.run.folders.append(folder)
        source = self.directory / Path(target).name
        source.mkdir()
        return str(source)

    def _containerd(self, registry: str) -> list[str]:
        hosts = self.directory / "registry" / "_default"
        hosts.mkdir(parents=True)
        url = f"http://{registry}"
        hosts.joinpath("hosts.toml").write_text(
            f'server = "{url}"\n[host."{url}"]\n  capabilities = ["pull", "resolve"]\n'
        )
        cni = self.directory / "cni-conf"
        cni.mkdir()
        cni.joinpath("10-bridge.conflist").write_text(json.dumps(self._cni(), indent=2))
        config = _CONTAINERD_CONFIG.format(
            root=self.directory / "containerd",
            opt=self.directory / "opt",
            pause=PAUSE.reference,
            plugins=packages.cni_plugins(),
            cni=cni,
            registry=self.directory / "registry",
            runc=packages.program(packages.RUNC),
        )
        return [str(packages.program(packages.CONTAINERD)), "--config", str(self._write("containerd.toml", config))]

    def _cni(self) -> dict[str, Any]:
        ranges = [[{"subnet": network.pod_range(self.index)}]]
        bridge = {
            "type": "bridge",
            "bridge": "cni0",
            "isGateway": True,
            "hairpinMode": True,
            "ipam": {"type": "host-local", "ranges": ranges, "routes": [{"dst": "0.0.0.0/0"}]},
        }
        ports = {"type": "portmap", "capabilities": {"portMappings": True}}
        return {"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge, ports]}

    def _kubelet(self, kubelet: Path, kubeconfig: Path) -> list[str]:
        resolv = self._write("resolv.conf", "options ndots:5\n")
        config = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self.run.cgroup}/{self.name}",
            "failCgroupV1": False,
            "failSwapOn": False,
            "enforceNodeAllocatable": [],
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "resolvConf": str(resolv),
            "volumePluginDir": str(self.directory / "volume-plugins"),
            "serializeImagePulls": False,
            "registryPullQPS": 0,
            "eventRecordQPS": 0,
            "kubeAPIQPS": 200,
            "kubeAPIBurst": 400,
            "imageGCHighThresholdPercent": 100,
            "evictionHard": {"memory.available": "50Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        }
        path = self._write("kubelet.json", json.dumps(config, indent=2))
        labels = {"topology.kubernetes.io/zone": self.zone, "topology.kubernetes.io/region": "region-1"}
        return [
            str(kubelet),
            f"--config={path}",
            f"--kubeconfig={kubeconfig}",
            f"--hostname-override={self.name}",
            f"--node-ip={self.address}",
            f"--node-labels={','.join(f'{name}={value}' for name, value in labels.items())}",
            "--root-dir=/var/lib/kubelet",
            "--cert-dir=/var/lib/kubelet/pki",
            "--v=2",
            *self._runtime_flags(),
        ]

    def _runtime_flags(self) -> list[str]:
        """Return flags for kubelets before 1.27, whose configuration has no `containerRuntimeEndpoint`."""
        if binaries.minor_version() >= 27:
            return []
        return ["--container-runtime=remote", "--container-runtime-endpoint=unix:///run/containerd/containerd.sock"]

    def _write(self, name: str, text: str) -> Path:
        path = self.directory / name
        path.write_text(text)
        return path


# restrict_oom_score_adj: without CAP_SYS_RESOURCE, a process may not lower a container's score below its own, and
# every Pod sandbox would fail.
_CONTAINERD_CONFIG = """\
version = 2
root = "{root}"
state = "/run/containerd"
disabled_plugins = ["io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs"]

[grpc]
  address = "/run/containerd/containerd.sock"

[plugins."io.containerd.internal.v1.opt"]
  path = "{opt}"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{plugins}"
    conf_dir = "{cni}"
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "{registry}"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      BinaryName = "{runc}"
"""
