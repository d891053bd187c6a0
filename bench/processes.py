"""Measure the processes of a replica: ``python -m bench.processes [memory] [busy] [count] [deletes]``.

``memory``: startup time, and the proportional set size of all processes, idle and with 10,000 Pods in the caches.
``busy``: latency at 2,000 reviews per second, alternating between an idle reconciler and one that uses 90% of a core.
``count``: the same load and the maximum load with 1, 2 and 4 webhook processes.
``deletes``: webhook calls that the API server makes when unprotected objects are deleted.

All use a real API server with synthetic Pods (bench/replay.py). The load generator runs on the same machine.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import yaml

from bench.admission import review, sidecarset
from bench.load import run as flood
from bench.priority import take_precedence
from bench.rate import Interval, constant
from bench.replay import Front, front
from bench.replica import MeasuredReplica, replica
from tests.cluster.controlplane import ControlPlane
from tests.scenarios.world import eventually, install

PODS = 10_000
RATE = 2_000
#: Target CPU use of the busy reconciler, as a share of one core, and its tolerance.
BUSY, NEAR = 0.9, 0.05
#: Niceness of this session and the control plane's, to reduce interference from other processes. It takes effect only
#: if the benchmark has its own session (``setsid -w python -m bench.processes``).
PRECEDENCE = int(os.environ.get("BENCH_NICE", "0"))
#: Name of the SidecarSet that is recorded as injected in the synthetic Pods.
POD_SET = "log-agent"


@contextmanager
def cluster() -> Iterator[tuple[ControlPlane, Path]]:
    """Run a control plane with our CRDs. Yields it and a temporary folder."""
    with ControlPlane(controller_manager=True) as control_plane, tempfile.TemporaryDirectory() as folder:
        take_precedence(PRECEDENCE, (process.pid for process in control_plane.run.processes.values()))
        install(control_plane)
        yield control_plane, Path(folder)


def apply_sets(control_plane: ControlPlane) -> None:
    """Create a SidecarSet to inject and the SidecarSet of the synthetic Pods. The manager must be running."""
    sets = [sidecarset("s", "web"), sidecarset(POD_SET, "no-pod-that-is-created")]
    control_plane.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(sets))


def shown_memory(one: MeasuredReplica) -> str:
    """Return the total memory and that of each process."""
    found = one.memory()
    return f"{sum(found.values()):.0f} MiB (" + ", ".join(f"{name} {size:.0f}" for name, size in found.items()) + ")"


def wait_for_pods(one: MeasuredReplica) -> None:
    """Wait until all Pods are in the reconciler's cache."""
    eventually(lambda: str(PODS) in one.page(one.health_port, "debug/caches"), "all Pods are in the cache")
    time.sleep(2)  # until memory that only the initial list needed is freed


def memory(starts: int) -> None:
    """Measure startup time and memory."""
    with cluster() as (control_plane, folder):
        with front(control_plane, 0) as empty:
            times = []
            for number in range(starts):
                with replica(control_plane, empty.server, folder) as one:
                    times.append(one.seconds_to_ready)
                    if number == starts - 1:
                        time.sleep(5)
                        print(f"| memory (PSS), idle, 2 webhook processes | {shown_memory(one)} |")
            again = ", ".join(f"{seconds:.2f}" for seconds in times[1:])
            print(f"| ready after start, first on a cluster; again | {times[0]:.2f} s; {again} s |")
        with front(control_plane, PODS) as full, replica(control_plane, full.server, folder) as one:
            apply_sets(control_plane)
            wait_for_pods(one)
            print(f"| memory (PSS), {PODS:,} Pods in the caches | {shown_memory(one)} |")


def share(one: MeasuredReplica, seconds: float) -> dict[str, float]:
    """Return process name → share of one core used during the next ``seconds``."""
    before, began = one.cpu(), time.perf_counter()
    time.sleep(seconds)
    elapsed = time.perf_counter() - began
    return {name: (used - before[name]) / elapsed for name, used in one.cpu().items()}


def keep_busy(one: MeasuredReplica, source: Front, rate: int) -> int:
    """Find and keep the rate of Pod changes at which the reconciler uses 90% of a core. Returns the rate."""
    for _ in range(6):
        began, sent = time.perf_counter(), source.replay(rate)
        used = share(one, 1.5)["reconciler"]
        took, sent = time.perf_counter() - began, source.replay(rate) - sent
        if abs(used - BUSY) <= NEAR:
            break
        # Scale the rate achieved, not the rate requested, which a busy machine may not reach.
        rate = max(200, int(sent / took * min(2.0, BUSY / max(used, 0.05))))
    return rate


def settle(one: MeasuredReplica) -> None:
    """Wait until the reconciler has processed all changes."""
    for _ in range(10):
        if share(one, 0.5)["reconciler"] < NEAR:
            return


def busy(pairs: int, seconds: float, per_second: int) -> None:
    """Measure latency with an idle and with a busy reconciler."""
    body = review()
    idle, loaded, used = [], [], []
    with (
        cluster() as (control_plane, folder),
        front(control_plane, PODS) as source,
        replica(control_plane, source.server, folder) as one,
    ):
        apply_sets(control_plane)
        wait_for_pods(one)
        constant(one.url, body, rate=per_second, seconds=1)
        rate = 4000
        for _ in range(pairs):
            idle.append(constant(one.url, body, rate=per_second, seconds=seconds))
            rate = keep_busy(one, source, rate)
            before, began = one.cpu(), time.perf_counter()
            loaded.append(constant(one.url, body, rate=per_second, seconds=seconds))
            elapsed = time.perf_counter() - began
            used.append({name: (cpu - before[name]) / elapsed for name, cpu in one.cpu().items()})
            source.replay(0)
            settle(one)
    print(f"reconciler busy: {rate} changes of Pods per s; cores used, medians: " + _shares(used))
    print(HEAD)
    print(row("reconciler idle", idle))
    print(row("reconciler busy", loaded))
    print(f"p99 busy / idle: {median(i.p99 for i in loaded) / median(i.p99 for i in idle):.2f}")


def _shares(used: list[dict[str, float]]) -> str:
    return ", ".join(f"{name} {median(one[name] for one in used):.0%}" for name in used[0])


HEAD = (
    "\n| what | reviews/s | p50 ms | p99 ms | p99.9 ms | longest ms | failures | generator late, p99 ms |\n"
    "|---|---|---|---|---|---|---|---|"
)


def row(name: str, found: list[Interval]) -> str:
    """Return a table row: the medians over the pairs, and the total number of failures."""
    cells = [f"{median(i.per_second for i in found):,.0f}"]
    for field in ("p50", "p99", "p999", "longest"):
        cells.append(f"{median(getattr(i, field) for i in found):.2f}")
    cells += [str(sum(i.failures for i in found)), f"{median(i.late_p99 for i in found):.2f}"]
    return f"| {name} | " + " | ".join(cells) + " |"


def count(pairs: int, seconds: float) -> None:
    """Measure throughput and memory with 1, 2 and 4 webhook processes."""
    body = review()
    held: dict[int, list[Interval]] = {1: [], 2: [], 4: []}
    most: dict[int, list[float]] = {1: [], 2: [], 4: []}
    sizes: dict[int, float] = {}
    with cluster() as (control_plane, folder), front(control_plane, 0) as source:
        for _ in range(pairs):
            for number in held:
                with replica(control_plane, source.server, folder, f"--webhook-processes={number}") as one:
                    apply_sets(control_plane)
                    constant(one.url, body, rate=RATE, seconds=1)
                    held[number].append(constant(one.url, body, rate=RATE, seconds=seconds))
                    most[number].append(flood(one.url, body, connections=16, seconds=int(seconds)).per_second)
                    sizes[number] = sum(one.memory().values())
    print(HEAD)
    for number, found in held.items():
        print(row(f"{number} webhook processes", found))
    for number, rates in most.items():
        print(f"{number} webhook processes: at most {median(rates):,.0f} reviews per s; {sizes[number]:.0f} MiB PSS")


def deletes(number: int) -> None:
    """Count webhook calls for deletions, using the API server's metrics."""
    with cluster() as (control_plane, folder), replica(control_plane, control_plane.server, folder) as one:
        names = [f"c{index}" for index in range(number)]
        objects = [
            {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}}
            for name in names
        ]
        objects += [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in names]
        control_plane.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(objects))
        before, ours = _calls(control_plane), _reviews(one)
        control_plane.kubectl("delete", "service", "--wait=false", *names)
        control_plane.kubectl("delete", "namespace", "--wait=false", *names)
        after = _calls(control_plane)
        called = {name: after[name] - before.get(name, 0) for name in after if after[name] != before.get(name, 0)}
        print(
            f"{number} Services and {number} Namespaces deleted, none protected; calls per webhook: {called or 'none'}"
        )
        print(f"reviews that reached us: {_reviews(one) - ours:.0f}")
        control_plane.kubectl("create", "namespace", "kept")
        control_plane.kubectl("label", "namespace", "kept", "policy.kruise.io/delete-protection=Always")
        refused = control_plane.kubectl("delete", "namespace", "kept", check=False)
        last = _calls(control_plane)
        called = {name: last[name] - after.get(name, 0) for name in last if last[name] != after.get(name, 0)}
        print(f"one protected Namespace (exit code {refused.returncode}): calls per webhook: {called}")


def _calls(control_plane: ControlPlane) -> dict[str, int]:
    """Return the number of calls for deletions by webhook, from the API server's metrics."""
    _, text = control_plane.request("GET", "/metrics")
    found: dict[str, int] = {}
    for line in str(text).splitlines():
        if line.startswith("apiserver_admission_webhook_request_total{") and 'operation="DELETE"' in line:
            name = line.split('name="', 1)[1].split('"', 1)[0]
            found[name] = found.get(name, 0) + int(float(line.rpartition(" ")[2]))
    return found


def _reviews(one: MeasuredReplica) -> float:
    text = one.page(one.metrics_port, "metrics")
    lines = [line for line in text.splitlines() if line.startswith("controller_runtime_webhook_requests_total{")]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


def main() -> None:
    """Run the named benchmarks, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="*", choices=["memory", "busy", "count", "deletes", []])
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rate", type=int, default=RATE, help="reviews per second beside the reconciler")
    options = parser.parse_args()
    wanted = options.what or ["memory", "busy", "count", "deletes"]
    if "memory" in wanted:
        memory(4)
    if "busy" in wanted:
        busy(options.pairs, options.seconds, options.rate)
    if "count" in wanted:
        count(max(1, options.pairs // 2), options.seconds)
    if "deletes" in wanted:
        deletes(20)


if __name__ == "__main__":
    main()
