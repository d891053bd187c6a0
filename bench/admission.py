"""Compare injection with an empty FastAPI route: ``python -m bench.admission [--pairs 5] [--seconds 8]``.

Both servers run with the same number of processes, the same TLS settings and the same load, in alternating pairs. The
medians are printed. The empty route only parses and allows the review. One SidecarSet with two containers, a volume and
environment variables matches a Pod with one container. A third server has 1,000 SidecarSets, of which only that one
matches the Pod.

With one connection, p50 may be at most 1.3 times and p99 at most twice that of the empty route, without a warm-up. On a
shared machine, the p50 of one server varies by half within seconds, so both servers run at once and are measured in
alternating turns of two seconds. The median ratio of neighboring turns is judged. If the hypervisor and other processes
used more than 2% of the processor time, the result is not judged.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Final

import orjson
import yaml

from bench.load import Load, free_port, run, wait_until_up

ROOT = Path(__file__).resolve().parent.parent


def sidecarset(name: str, app: str) -> dict[str, object]:
    """Return a SidecarSet with two containers, a volume and environment variables. It selects Pods by label ``app``."""
    return {
        "apiVersion": "apps.kruise.io/v1beta1",
        "kind": "SidecarSet",
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": {"app": app}},
            "volumes": [{"name": f"{name}-logs", "emptyDir": {}}],
            "containers": [
                {
                    "name": f"{name}-shipper",
                    "image": "registry.example/shipper:1",
                    "env": [{"name": "TARGET", "value": "collector.logging:4317"}],
                    "volumeMounts": [{"name": f"{name}-logs", "mountPath": "/var/log/app"}],
                },
                {
                    "name": f"{name}-metrics",
                    "image": "registry.example/metrics:1",
                    "podInjectPolicy": "AfterAppContainer",
                    "env": [{"name": "PORT", "value": "9100"}],
                    "ports": [{"name": "metrics", "containerPort": 9100}],
                },
            ],
        },
    }


def review() -> bytes:
    """Return the review that an API server sends when a Pod with one container is created."""
    token = {
        "name": "kube-api-access-x2x4z",
        "readOnly": True,
        "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web-0", "namespace": "shop", "labels": {"app": "web", "track": "stable"}},
        "spec": {
            "containers": [
                {
                    "name": "main",
                    "image": "nginx:1.25",
                    "env": [{"name": "A", "value": "1"}],
                    "resources": {
                        "limits": {"cpu": "500m", "memory": "256Mi"},
                        "requests": {"cpu": "200m", "memory": "256Mi"},
                    },
                    "ports": [{"containerPort": 80, "protocol": "TCP"}],
                    "volumeMounts": [token],
                    "terminationMessagePath": "/dev/termination-log",
                    "terminationMessagePolicy": "File",
                    "imagePullPolicy": "IfNotPresent",
                }
            ],
            "volumes": [
                {
                    "name": token["name"],
                    "projected": {
                        "sources": [
                            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                        ],
                        "defaultMode": 420,
                    },
                }
            ],
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst",
            "serviceAccountName": "default",
            "serviceAccount": "default",
            "securityContext": {},
            "schedulerName": "default-scheduler",
            "tolerations": [
                {
                    "key": f"node.kubernetes.io/{key}",
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": 300,
                }
                for key in ("not-ready", "unreachable")
            ],
            "priority": 0,
            "enableServiceLinks": True,
            "preemptionPolicy": "PreemptLowerPriority",
        },
        "status": {},
    }
    request = {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "requestKind": {"group": "", "version": "v1", "kind": "Pod"},
        "requestResource": {"group": "", "version": "v1", "resource": "pods"},
        "name": "web-0",
        "namespace": "shop",
        "operation": "CREATE",
        "userInfo": {"username": "admin", "groups": ["system:masters", "system:authenticated"]},
        "object": pod,
        "oldObject": None,
        "dryRun": False,
        "options": {
            "kind": "CreateOptions",
            "apiVersion": "meta.k8s.io/v1",
            "fieldManager": "kubectl-client-side-apply",
        },
    }
    return orjson.dumps({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request})


@contextmanager
def server(command: list[str], port: int) -> Iterator[str]:
    """Run a server process on loopback inside the context. Yields its base URL."""
    url = f"https://127.0.0.1:{port}"
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=said)
        try:
            try:
                wait_until_up(f"{url}/healthz", process)
            except SystemExit as end:
                said.seek(0)
                raise SystemExit(f"{end}:\n{said.read()[-4000:].decode('utf-8', 'replace')}") from None
            yield url
        finally:
            process.terminate()
            process.wait(20)


def serve(sets: int, workers: int, folder: Path) -> tuple[list[str], int]:
    """Return the command that serves ``sets`` SidecarSets, of which one matches, and its port."""
    policies = folder / f"sets-{sets}"
    policies.mkdir(exist_ok=True)
    objects = [sidecarset("s", "web"), *(sidecarset(f"other-{i}", f"other-{i}") for i in range(sets - 1))]
    (policies / "sets.yaml").write_text(yaml.safe_dump_all(objects))
    port = free_port()
    command = [sys.executable, "-m", "app.cli.main", "serve", "--policies", str(policies), "--port", str(port)]
    return [*command, "--workers", str(workers)], port


def empty(workers: int, certs: Path) -> tuple[list[str], int]:
    """Return the command that serves the empty route, and its port."""
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "bench.empty:app", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--loop", "uvloop", "--http", "httptools", "--no-access-log", "--log-level", "warning"]
    command += ["--ssl-certfile", str(certs / "tls.crt"), "--ssl-keyfile", str(certs / "tls.key")]
    return [*command, "--workers", str(workers)], port


def make_certificate(folder: Path) -> None:
    """Create a temporary RSA 2048 key, as in our certificates, and a certificate for the empty route."""
    options = ["-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
    files = ["-keyout", str(folder / "tls.key"), "-out", str(folder / "tls.crt")]
    subprocess.run(["openssl", "req", *options, *files], check=True, capture_output=True)


def row(name: str, loads: list[Load]) -> str:
    """Return a table row with the medians over the pairs."""
    return (
        f"| {name} | {median(load.per_second for load in loads):,.0f} | {median(load.p50 for load in loads):.2f} "
        f"| {median(load.p99 for load in loads):.2f} | {sum(load.failures for load in loads)} |"
    )


#: Maximum latency with one connection, as a multiple of the empty route's.
ALLOWED: Final = {"p50": 1.3, "p99": 2.0}
#: Maximum share of processor time used by other processes. Above it, the figures are not judged.
MAX_OTHERS: Final = 0.02
_PATH: Final = "/mutate-pod"
_EMPTY_ONE: Final = "empty route, 1 connection"
_ONE: Final = "injection, 1 connection"
#: Duration of one server's turn with one connection.
_TURN_SECONDS: Final = 2


class Others:
    """Share of the machine's processor time used by the hypervisor and other processes since this object was created.

    Children of this process count as other processes until they have been waited for.
    """

    def __init__(self) -> None:
        self._before = _ticks()

    def part(self) -> float:
        """Return the share, between 0 and 1."""
        others, all_of_it = (now - then for now, then in zip(_ticks(), self._before, strict=True))
        return others / all_of_it if all_of_it else 0.0


def _ticks() -> tuple[float, int]:
    """Return the processor ticks used by others, and all ticks."""
    # The fields are user, nice, system, idle, iowait, irq, softirq and steal.
    fields = Path("/proc/stat").read_text("ascii").partition("\n")[0].split()[1:9]
    times = [int(field) for field in fields]
    ours = sum(os.times()[:4]) * os.sysconf("SC_CLK_TCK")
    # Interrupts are excluded, because most of them are caused by the load itself.
    return times[0] + times[1] + times[2] + times[7] - ours, sum(times)


def verdict(empty_route: list[Load], ours: list[Load], others: float) -> tuple[str, int]:
    """Return a summary for one connection, and the exit code: 0 within the limits, 1 above a limit, 2 not judged."""
    ratios = {
        name: median(getattr(our, name) / getattr(base, name) for our, base in zip(ours, empty_route, strict=True))
        for name in ALLOWED
    }
    shown = ", ".join(f"{name} {ratio:.2f} (at most {ALLOWED[name]})" for name, ratio in ratios.items())
    text = f"one connection / empty route: {shown}; others {others:.1%}"
    if others > MAX_OTHERS:
        return f"{text}: not judged: other processes used too much CPU", 2
    too_slow = any(ratio > ALLOWED[name] for name, ratio in ratios.items())
    return (f"{text}: TOO SLOW", 1) if too_slow else (text, 0)


def main() -> None:
    """Run the alternating pairs and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=8)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--one", action="store_true", help="one connection only")
    options = parser.parse_args()
    body = review()
    results: dict[str, list[Load]] = {}
    others = Others()

    def measure(name: str, command: list[str], port: int) -> None:
        with server(command, port) as url:
            run(url + _PATH, body, connections=16, seconds=1)
            results.setdefault(name, []).append(run(url + _PATH, body, connections=16, seconds=options.seconds))

    def take_turns(folder: Path) -> None:
        with server(*empty(options.workers, folder)) as base, server(*serve(1, options.workers, folder)) as url:
            for _ in range(max(1, options.seconds // _TURN_SECONDS)):
                for name, each in ((_EMPTY_ONE, base), (_ONE, url)):
                    load = run(each + _PATH, body, connections=1, seconds=_TURN_SECONDS)
                    results.setdefault(name, []).append(load)

    with tempfile.TemporaryDirectory() as folder_name:
        folder = Path(folder_name)
        make_certificate(folder)
        for _ in range(options.pairs):
            if not options.one:
                measure("empty route, 16 connections", *empty(options.workers, folder))
                measure("injection, 16 connections", *serve(1, options.workers, folder))
                measure("injection, 1,000 sets, 16 connections", *serve(1000, options.workers, folder))
            take_turns(folder)
    print(f"medians of {options.pairs} alternating pairs, {options.workers} processes, {options.seconds} s each\n")
    print("| what | requests/s | p50 ms | p99 ms | failures |\n|---|---|---|---|---|")
    for name, loads in results.items():
        print(row(name, loads))
    text, code = verdict(results[_EMPTY_ONE], results[_ONE], others.part())
    print(f"\n{text}")
    sys.exit(code)


if __name__ == "__main__":
    main()
