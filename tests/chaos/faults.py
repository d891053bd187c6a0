"""Faults: each breaks one thing under a constant load of Pod creations and reports the effects.

Two replicas share one address. The Pod webhook has failurePolicy Fail, so a Pod gets its sidecar or is rejected.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import yaml

from bench.admission import sidecarset
from bench.priority import take_precedence
from tests.chaos.load import Creations, Outcome, pod_creations
from tests.cluster.controlplane import ControlPlane, free_port
from tests.manager.replicas import Replica, configuration, election, published
from tests.scenarios.world import ROOT, SYSTEM_NAMESPACE, eventually, install

RATE: Final = 50
#: Other work on the machine must not look like a failure (bench/priority.py).
PRECEDENCE: Final = int(os.environ.get("BENCH_NICE", "0"))
#: Seconds until a killed replica runs again. A kubelet restarts it at once, but a new Pod takes longer.
AWAY_SECONDS: Final = 2.0
#: The chart's ``minReadySeconds``: a Deployment waits this long before it stops the next replica.
MIN_READY_SECONDS: Final = 3.0
HOSTS: Final = ("127.0.0.2", "127.0.0.3")


class Site:
    """A control plane, and two replicas behind one address."""

    def __init__(self, control_plane: ControlPlane, folder: Path, flags: Sequence[str] = ()) -> None:
        self.control_plane = control_plane
        self._folder = folder
        self._flags = flags
        self._port = free_port("127.0.0.1")
        self._ports = {host: (free_port(host), free_port(host)) for host in HOSTS}
        self._started = 0
        self.replicas: dict[str, Replica] = {}
        self.balancer_log = folder / "balancer.log"

    def start(self, host: str, python: Path | None = None) -> Replica:
        """Start a replica; ``python``: the interpreter of the installed version to run."""
        kubeconfig = self.control_plane.kubeconfig_for_service_account(SYSTEM_NAMESPACE, "kruise-manager")
        health, metrics = self._ports[host]
        command = [python or sys.executable, "-m", "app.cli.main", "manager", f"--kubeconfig={kubeconfig}"]
        # The balancer's URL is registered; each replica listens at the same port of its own address.
        command += ["--webhook-host=127.0.0.1", f"--webhook-bind-address={host}", f"--webhook-port={self._port}"]
        command += [f"--health-probe-addr={host}:{health}", f"--metrics-addr={host}:{metrics}"]
        # Long enough for a slow API server to see earlier writes.
        command += [f"--protection-log-path={self._folder}", "--certificate-rotation-step=6s"]
        command += [*election(), *self._flags]
        self._started += 1
        log = self._folder / f"manager-{host}-{self._started}.log"
        environment = os.environ | {"POD_NAMESPACE": SYSTEM_NAMESPACE}
        if python:
            environment.pop("PYTHONPATH", None)
        folder = self._folder if python else ROOT
        with log.open("wb") as output:
            process = subprocess.Popen(command, cwd=folder, stdout=output, stderr=output, env=environment)
        one = Replica(process, log, (self._port, health, metrics), host)
        self.replicas[host] = one
        return one

    def all_ready(self) -> bool:
        return all(one.ready() and len(one.processes()) == 3 for one in self.replicas.values())

    def leader(self) -> str | None:
        return next((host for host, one in self.replicas.items() if one.alive() and one.leads()), None)

    def stop(self, host: str) -> None:
        """Stop a replica as a Deployment does, once the others are known to be ready."""
        ready = time.monotonic()
        eventually(lambda: time.monotonic() - ready > MIN_READY_SECONDS, "others know that it is ready")
        one = self.replicas.pop(host)
        one.process.send_signal(signal.SIGTERM)
        assert one.process.wait(20) == 0, one.log.read_text()[-2000:]

    def kill(self, host: str) -> None:
        """Kill all processes of a replica at once, as if its container were killed."""
        one = self.replicas[host]
        pids = [*one.processes().values(), one.process.pid]
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        one.process.wait()

    def wait_until_ready(self) -> None:
        eventually(self.all_ready, f"all replicas are ready; logs are in {self._folder}", 90)
        eventually(self.leader, "one of them leads")

    @contextmanager
    def behind_one_address(self) -> Iterator[None]:
        """Inside the context, run the balancer. Replicas started in the context end with it."""
        places = [f"{host}:{self._port}:{health}" for host, (health, _) in self._ports.items()]
        command = [sys.executable, "-m", "tests.chaos.balancer", str(self._port), *places]
        with self.balancer_log.open("wb") as output:
            balancer = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output)
        try:
            yield
        finally:
            for one in self.replicas.values():
                one.process.send_signal(signal.SIGTERM)
            for one in self.replicas.values():
                one.process.wait(20)
            balancer.terminate()
            balancer.wait(10)


def first(control_plane: ControlPlane) -> None:
    """Raise the priority of the manager and the control plane, if requested."""
    take_precedence(PRECEDENCE, (process.pid for process in control_plane.run.processes.values()))


@contextmanager
def site(folder: Path) -> Iterator[Site]:
    """A control plane with both replicas and the SidecarSet that all Pods of the load match."""
    with ExitStack() as stack:
        control_plane = stack.enter_context(ControlPlane())
        first(control_plane)
        install(control_plane)
        made = Site(control_plane, folder)
        stack.enter_context(made.behind_one_address())
        for host in HOSTS:
            made.start(host)
        made.wait_until_ready()
        create_sidecarset(control_plane)
        yield made


def create_sidecarset(control_plane: ControlPlane) -> None:
    """Create the SidecarSet that all Pods of the load match."""
    manifest = yaml.safe_dump(sidecarset("s", "web"))
    eventually(
        lambda: control_plane.kubectl("apply", "-f", "-", stdin=manifest, check=False).returncode == 0,
        "the SidecarSet is admitted",
    )


@dataclass
class Report:
    """The result of one fault: outcomes of the creations, and times to recover."""

    fault: str
    creations: Creations
    #: Awaited event → seconds after the fault.
    recovered: dict[str, float] = field(default_factory=dict)

    def row(self) -> str:
        """Return a line of the table in bench/RESULTS.md."""
        made = self.creations
        counts = [len(made.attempts), *(made.count(outcome) for outcome in Outcome)]
        cells = [self.fault, *(f"{count:,}" for count in counts), f"{made.trouble_seconds():.1f}"]
        cells += [f"{made.longest_gap():.2f}", f"{1000 * made.p99():.0f}"]
        return (
            "| "
            + " | ".join(cells)
            + " | "
            + ", ".join(f"{what} {s:.1f} s" for what, s in self.recovered.items())
            + " |"
        )


DELETED: Final = "webhook configuration deleted"
#: After these faults, reviews in flight to the killed process are lost, and failurePolicy Fail rejects those Pods.
MAY_REFUSE: Final = (
    "kill -9 of a webhook process",
    "kill -9 of a replica",
    "kill -9 of the leading replica",
    "kill -9 and restart of the API server",
)
#: Minimum number of Pods with their sidecar, so that the other counts mean something.
MIN_INJECTED: Final = 50


def problems(report: Report) -> list[str]:
    """Return the outcomes that this fault does not allow."""
    fault, count = report.fault, report.creations.count
    found = []
    if count(Outcome.INJECTED) <= MIN_INJECTED:
        found.append(f"only {count(Outcome.INJECTED)} Pods have their sidecar")
    if fault != DELETED and count(Outcome.WITHOUT_SIDECAR):
        found.append(f"{count(Outcome.WITHOUT_SIDECAR)} Pods lack their sidecar")
    if fault not in MAY_REFUSE and count(Outcome.REFUSED):
        found.append(f"{count(Outcome.REFUSED)} Pods were refused")
    if "API server" not in fault and count(Outcome.NO_API_SERVER):
        found.append(f"the API server did not answer {count(Outcome.NO_API_SERVER)} times")
    return found


HEAD = (
    "| fault | creations | with sidecar | without | refused | no API server | first to last failure, s "
    "| longest time without a whole Pod, s | p99 ms | recovered after |\n"
    "|---|---|---|---|---|---|---|---|---|---|"
)


class _Watch:
    def __init__(self, report: Report) -> None:
        self._report = report
        self._began = time.monotonic()

    def until(self, look: Callable[[], object], what: str, seconds: float = 60.0) -> None:
        def calm() -> object:
            try:
                return look()
            except OSError:  # the process is not running at the moment
                return None

        eventually(calm, what, seconds)
        self._report.recovered[what] = time.monotonic() - self._began


def webhook_process(made: Site, watch: _Watch) -> None:
    one = made.replicas[HOSTS[0]]
    killed = one.signal("webhook-0", signal.SIGKILL)
    watch.until(lambda: one.processes().get("webhook-0", killed) != killed, "process ready")


def replica(made: Site, watch: _Watch) -> None:
    leader = made.leader()
    host = next(host for host in HOSTS if host != leader)
    _killed_and_back(made, watch, host)


def leader(made: Site, watch: _Watch) -> None:
    host = made.leader()
    assert host is not None
    made.kill(host)
    watch.until(lambda: made.leader() not in (None, host), "other leads")
    made.start(host)
    watch.until(made.all_ready, "replica ready")


def _killed_and_back(made: Site, watch: _Watch, host: str) -> None:
    made.kill(host)
    gone = time.monotonic()
    eventually(lambda: time.monotonic() - gone > AWAY_SECONDS, "it is not restarted yet")
    made.start(host)
    watch.until(made.all_ready, "replica ready")


def reconciler_of_the_leader(made: Site, watch: _Watch) -> None:
    host = made.leader()
    assert host is not None
    made.replicas[host].signal("reconciler", signal.SIGKILL)
    watch.until(lambda: made.leader() is None, "Lease noticed lost", 5)
    watch.until(made.leader, "one leads")


def certificate_rotation(made: Site, watch: _Watch) -> None:
    old = published(made.control_plane)
    made.control_plane.kubectl("delete", "secret", "kruise-webhook-certs", "-n", SYSTEM_NAMESPACE)
    watch.until(lambda: published(made.control_plane).count(b"BEGIN") == 2, "both CAs published")

    def finished() -> bool:
        now = published(made.control_plane)
        return now.count(b"BEGIN") == 1 and old.strip() not in now

    watch.until(finished, "new CA alone")


def api_server(made: Site, watch: _Watch) -> None:
    made.control_plane.restart_api_server()
    first(made.control_plane)
    watch.until(made.control_plane.is_ready, "API server ready")
    watch.until(made.all_ready, "replicas ready")
    watch.until(made.leader, "one leads")


def rolling_update(made: Site, watch: _Watch) -> None:
    """Send SIGTERM to each replica in turn, once the other is ready, as a Deployment does."""
    for host in HOSTS:
        made.stop(host)
        made.start(host)
        watch.until(made.all_ready, f"{host} replaced")


def webhook_configuration(made: Site, watch: _Watch) -> None:
    wanted = configuration(made.control_plane)
    made.control_plane.kubectl("delete", "mutatingwebhookconfiguration", wanted["metadata"]["name"])

    def back() -> bool:
        found = configuration(made.control_plane)
        return found is not None and found["webhooks"] == wanted["webhooks"]

    watch.until(back, "configuration back")


FAULTS: Final[dict[str, Callable[[Site, _Watch], None]]] = {
    "kill -9 of a webhook process": webhook_process,
    "kill -9 of a replica": replica,
    "kill -9 of the leading replica": leader,
    "kill -9 of the leader's reconciler": reconciler_of_the_leader,
    "rotation of the CA": certificate_rotation,
    "kill -9 and restart of the API server": api_server,
    "rolling update of both replicas": rolling_update,
    DELETED: webhook_configuration,
}


def run(made: Site, fault: str, *, before: float, after: float) -> Report:
    """Run a fault under load. The load starts ``before`` seconds before the fault and lasts at least ``after``
    seconds."""
    eventually(made.all_ready, "all is well before")
    eventually(made.leader, "a replica leads before")
    # Keep the Pods, because they are checked afterwards.
    with pod_creations(made.control_plane, RATE, delete=fault != DELETED) as creations:
        began = time.monotonic()
        report = Report(fault, creations)
        eventually(lambda: time.monotonic() - began >= before, "the load runs", before + 5)
        FAULTS[fault](made, _Watch(report))
        eventually(lambda: time.monotonic() - began >= before + after, "the load continues", after + 5)
    return report
