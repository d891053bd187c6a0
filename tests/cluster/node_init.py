"""The first process of a node: sets up the node's file system, starts containerd and kubelet, reaps processes.

It runs as process 1 in new namespaces (mounts, processes, network, host name, IPC). When it ends, the kernel ends
every process of the node and removes its mounts and interfaces, so nothing is left behind. It uses only the standard
library and takes the path of a JSON file. Lines on standard input tell it when to continue:

    network   the cable (eth0) is plugged in: set up addresses, start containerd
    kubelet   the API server answers: start kubelet

It ends, and the node with it, when containerd or kubelet ends; but containerd is restarted if the file
`restart-containerd` exists next to the JSON file.
"""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any


def main(path: str) -> None:
    config = json.loads(Path(path).read_text())
    socket.sethostname(config["name"])
    make_mounts(config["mounts"])
    wait_for("network")
    set_up_network(config["address"], config["gateway"])
    started = {start(config["containerd"], config["environment"]): "containerd"}
    wait_for("kubelet")
    started[start(config["kubelet"], config["environment"])] = "kubelet"
    asked = Path(path).with_name("restart-containerd")
    while reap_until_one_of(started) == "containerd" and asked.exists():
        asked.unlink()
        started[start(config["containerd"], config["environment"])] = "containerd"


def make_mounts(mounts: dict[str, str]) -> None:
    """Mount folders of the node where programs require a path, such as /run."""
    # Mounts may propagate between Pods and the node, but not to the machine.
    run("mount", "--make-rshared", "/")
    for target, source in mounts.items():
        run("mount", "--bind", source, target)


def set_up_network(address: str, gateway: str) -> None:
    run("ip", "link", "set", "lo", "up")
    run("ip", "address", "add", address, "peer", gateway, "dev", "eth0")
    run("ip", "link", "set", "eth0", "up")
    run("ip", "route", "add", "default", "via", gateway)
    settings = Path("/proc/sys/net/ipv4")
    settings.joinpath("ip_forward").write_text("1")
    # There is only one route; ICMP redirects from the machine, which point back to the node, would be wrong.
    settings.joinpath("conf/all/accept_redirects").write_text("0")


def start(process: dict[str, Any], environment: dict[str, str]) -> int:
    """Start one of the node's two programs and return its process id."""
    with Path(process["log"]).open("ab") as log:
        child = subprocess.Popen(process["argv"], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)
    return child.pid


def wait_for(word: str) -> None:
    line = sys.stdin.readline().strip()
    if line != word:
        sys.exit(f"expected {word!r} on standard input, got {line!r}")


def reap_until_one_of(started: dict[int, str]) -> str:
    """Reap processes until one of `started` ends; return which one."""
    while True:
        pid, status = os.wait()
        if pid in started:
            name = started.pop(pid)
            print(f"{name} ended with {os.waitstatus_to_exitcode(status)}", file=sys.stderr)
            return name


def run(*command: str) -> None:
    subprocess.run(command, check=True)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    main(sys.argv[1])
