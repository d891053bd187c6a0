"""Runs a manager replica and measures its startup time and the CPU and memory of its processes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.controlplane import ControlPlane, free_port
from tests.scenarios.world import SYSTEM_NAMESPACE

ROOT = Path(__file__).resolve().parent.parent
LOOPBACK = "127.0.0.1"
READY_SECONDS = 40.0
_TICK = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class MeasuredReplica:
    """A ready replica."""

    process: subprocess.Popen[bytes]
    log: Path
    port: int
    health_port: int
    metrics_port: int
    #: Seconds from the start of the command until ``/readyz`` succeeded.
    seconds_to_ready: float

    @property
    def url(self) -> str:
        """Return the URL of the webhook for Pods."""
        return f"https://{LOOPBACK}:{self.port}/mutate-pod"

    def page(self, port: int, path: str) -> str:
        """Return a page of the health probe port or the metrics port."""
        with urllib.request.urlopen(f"http://{LOOPBACK}:{port}/{path}", timeout=10) as answer:
            return str(answer.read().decode())

    def metric(self, series: str) -> float:
        """Return the value of a series in ``/metrics``, or zero if it does not exist."""
        found = re.search(rf"^{re.escape(series)} (\S+)$", self.page(self.metrics_port, "metrics"), re.M)
        return float(found[1]) if found else 0.0

    def processes(self) -> dict[str, int]:
        """Return name → ID of the processes, including the supervisor."""
        found = {"supervisor": self.process.pid}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                name, _, rest = stat.read_text().partition(" (")[2].rpartition(")")
            except OSError:  # the process has exited
                continue
            if int(rest.split()[1]) == self.process.pid:
                found[name] = int(stat.parent.name)
        return dict(sorted(found.items()))

    def memory(self) -> dict[str, float]:
        """Return process name → proportional set size in MiB."""
        found = {}
        for name, pid in self.processes().items():
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
            found[name] = int(re.search(r"^Pss:\s+(\d+) kB", rollup, re.M)[1]) / 1024  # type: ignore[index]
        return found

    def cpu(self) -> dict[str, float]:
        """Return process name → seconds of CPU used so far."""
        found = {}
        for name, pid in self.processes().items():
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            found[name] = (int(fields[11]) + int(fields[12])) / _TICK
        return found


@contextmanager
def replica(control_plane: ControlPlane, server: str, folder: Path, *flags: str) -> Iterator[MeasuredReplica]:
    """Run a replica inside the context, with its generated roles. It reaches the control plane at ``server``."""
    kubeconfig = _kubeconfig(control_plane, server, folder)
    ports = [free_port(LOOPBACK) for _ in range(3)]
    command = [sys.executable, "-m", "app.cli.main", "manager", f"--kubeconfig={kubeconfig}"]
    command += ["--webhook-host=127.0.0.1", f"--webhook-port={ports[0]}", f"--protection-log-path={folder}"]
    command += [f"--health-probe-addr=127.0.0.1:{ports[1]}", f"--metrics-addr=127.0.0.1:{ports[2]}", *flags]
    log = folder / f"manager-{ports[0]}.log"
    with log.open("wb") as output:
        began = time.perf_counter()
        process = subprocess.Popen(
            command, cwd=ROOT, stdout=output, stderr=output, env=os.environ | {"POD_NAMESPACE": SYSTEM_NAMESPACE}
        )
    try:
        _wait_until_ready(process, f"http://{LOOPBACK}:{ports[1]}/readyz", log)
        yield MeasuredReplica(process, log, ports[0], ports[1], ports[2], time.perf_counter() - began)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)


def _wait_until_ready(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise SystemExit(f"bench: the manager ended with code {process.returncode}:\n{log.read_text()[-4000:]}")
        try:
            with urllib.request.urlopen(url, timeout=2):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.01)
    raise SystemExit(f"bench: the manager was not ready within {READY_SECONDS:g} s:\n{log.read_text()[-4000:]}")


def _kubeconfig(control_plane: ControlPlane, server: str, folder: Path) -> Path:
    own = control_plane.kubeconfig_for_service_account(SYSTEM_NAMESPACE, "kruise-manager")
    config = json.loads(own.read_text())
    config["clusters"][0]["cluster"]["server"] = server
    if server.startswith("http:"):
        config["clusters"][0]["cluster"].pop("certificate-authority", None)
    path = folder / "kubeconfig"
    path.touch(mode=0o600)
    path.write_text(json.dumps(config))
    return path
