"""One manager with all its processes against a real API server."""

import base64
import json
import os
import re
import signal
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen
from typing import Any

from app.admission.configurations import MUTATING_NAME, VALIDATING_NAME
from tests.cluster.controlplane import ControlPlane, free_port
from tests.scenarios.world import SYSTEM_NAMESPACE, eventually, running

#: Seconds within which an event must be noticed: far below the periodic sync of a minute (MGR-37).
AT_ONCE = 10.0
REVIEW = (Path(__file__).parent.parent / "fixtures" / "pod-create.json").read_bytes()


class Replica:
    def __init__(self, process: Popen[bytes], log: Path, ports: tuple[int, int, int], host: str = "127.0.0.1") -> None:
        self.process = process
        self.log = log
        self.host = host
        self.port, self.health, self.metrics_port = ports

    def alive(self) -> bool:
        return self.process.poll() is None

    def ready(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()[-4000:]
        try:
            return self.page(self.health, "readyz") == "ok"
        except OSError:
            return False

    def fault(self) -> str:
        """Return why the replica is not ready; empty if it is ready or does not answer."""
        try:
            self.page(self.health, "readyz")
        except urllib.error.HTTPError as error:
            return str(error.read().decode())
        except OSError:
            pass
        return ""

    def page(self, port: int, path: str) -> str:
        # Debug pages accept this host name only, at any loopback address.
        request = urllib.request.Request(f"http://{self.host}:{port}/{path}", headers={"Host": "localhost"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return str(answer.read().decode())

    def processes(self) -> dict[str, int]:
        """Return the process ids by name once they are ready."""
        found = re.findall(r"^(\S+) +process (\d+), ready", self.page(self.health, "debug/processes"), re.M)
        return {name: int(pid) for name, pid in found}

    def metric(self, series: str) -> float:
        text = self.page(self.metrics_port, "metrics")
        found = [line for line in text.splitlines() if line.startswith(series + " ")]
        return float(found[0].rpartition(" ")[2]) if found else 0.0

    def leads(self) -> bool:
        return self.metric("kruise_manager_is_leader") == 1.0

    def review(self, ca_bundle: bytes) -> None:
        """Send one review on its own connection, which must be trusted by the published CA bundle."""
        context = ssl.create_default_context(cadata=ca_bundle.decode())
        request = urllib.request.Request(
            f"https://localhost:{self.port}/mutate-pod", REVIEW, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60, context=context) as answer:
            assert json.load(answer)["response"]["allowed"]

    def signal(self, name: str, number: signal.Signals) -> int:
        """Send a signal to one process and return its id."""
        pid = self.processes()[name]
        os.kill(pid, number)
        return pid


def election(seconds: int = 4, *, name: str = "kruise-manager") -> tuple[str, ...]:
    """Return the flags for a Lease of this duration."""
    return (
        f"--leader-election-id={name}",
        f"--leader-election-lease-duration={seconds}s",
        f"--leader-election-renew-deadline={seconds * 3 // 4}s",
        "--leader-election-retry-period=1s",
    )


@contextmanager
def replica(
    control_plane: ControlPlane,
    folder: Path,
    *flags: str,
    by_service: bool = False,
    ready: bool = True,
    kubeconfig: Path | None = None,
) -> Iterator[Replica]:
    """Run a manager, by default with the generated permissions, and wait until it is ready, unless told otherwise.
    With ``by_service`` it is registered and bound like one of several replicas, and takes reviews for 3 s more when it
    stops."""
    if kubeconfig is None:
        kubeconfig = control_plane.kubeconfig_for_service_account(SYSTEM_NAMESPACE, "kruise-manager")
    ports = (free_port("127.0.0.1"), free_port("127.0.0.1"), free_port("127.0.0.1"))
    arguments = [
        "app.cli.main",
        "manager",
        f"--kubeconfig={kubeconfig}",
        # Replicas share one address only behind a Service, which does not exist here, so the API server calls none of
        # them.
        "--webhook-bind-address=127.0.0.1" if by_service else "--webhook-host=127.0.0.1",
        f"--webhook-port={ports[0]}",
        f"--health-probe-addr=127.0.0.1:{ports[1]}",
        f"--metrics-addr=127.0.0.1:{ports[2]}",
        f"--protection-log-path={folder}",
        *flags,
    ]
    log = folder / f"manager-{ports[0]}.log"
    with running(arguments, log, POD_NAMESPACE=SYSTEM_NAMESPACE) as process:
        started = Replica(process, log, ports)
        if ready:
            eventually(started.ready, f"the manager is ready; its log is {log}", 90)
        yield started


def configuration(control_plane: ControlPlane, kind: str = "mutating") -> dict[str, Any] | None:
    name = MUTATING_NAME if kind == "mutating" else VALIDATING_NAME
    path = f"/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations/{name}"
    status, body = control_plane.request("GET", path)
    assert status in (200, 404)
    return body if status == 200 else None


def published(control_plane: ControlPlane) -> bytes:
    found = configuration(control_plane)
    return base64.b64decode(found["webhooks"][0]["clientConfig"]["caBundle"])
