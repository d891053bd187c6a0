"""A cluster with the manager, as a user at a terminal sees it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from tests.cluster.controlplane import ControlPlane, free_port, wait_until_established
from tests.cluster.errors import ClusterError
from tests.deadline import Deadline

ROOT = Path(__file__).resolve().parent.parent.parent
SYSTEM_NAMESPACE = "kruise-system"
#: Maximum number of characters of objects, events and log lines in the report of a failed test.
_FINDINGS = 20_000
Found = TypeVar("Found")


NGINX = '[{name: main, image: "nginx:1.25"}]'


def workload(
    kind: str,
    *fields: str,
    name: str = "web",
    app: str = "",
    labels: str = "",
    version: str = "apps.kruise.io/v1beta1",
    pod: Sequence[str] = (),
    grace: int = 1,
    containers: str = NGINX,
) -> str:
    """Return the manifest of a workload. ``fields`` and ``pod``: lines of its spec and of its Pods' spec; ``app``: the
    value of its Pods' label ``app``, by default ``name``."""
    app = app or name
    spec, pod_spec = "".join(f"  {line}\n" for line in fields), "".join(f"      {line}\n" for line in pod)
    return f"""
apiVersion: {version}
kind: {kind}
metadata: {{name: {name}, labels: {{{labels}}}}}
spec:
{spec}  selector: {{matchLabels: {{app: {app}}}}}
  template:
    metadata: {{labels: {{app: {app}}}}}
    spec:
      terminationGracePeriodSeconds: {grace}
{pod_spec}      containers: {containers}
"""


def pod(*fields: str, name: str = "web", labels: str = "", grace: int = 1, containers: str = NGINX) -> str:
    """Return the manifest of a Pod; ``fields`` are lines of its spec."""
    spec = "".join(f"  {line}\n" for line in fields)
    return f"""
apiVersion: v1
kind: Pod
metadata: {{name: {name}, labels: {{{labels}}}}}
spec:
  terminationGracePeriodSeconds: {grace}
{spec}  containers: {containers}
"""


_AUTOSCALER = """
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {{name: web}}
spec:
  minReplicas: {least}
  maxReplicas: {most}
  scaleTargetRef: {{apiVersion: apps.kruise.io/v1beta1, kind: {kind}, name: web}}
  metrics:
  - type: Resource
    resource: {{name: cpu, target: {{type: Utilization, averageUtilization: 50}}}}
"""


class Kubectl(Protocol):
    def __call__(
        self, *arguments: str, stdin: str | None = None, check: bool = True
    ) -> subprocess.CompletedProcess[str]: ...


class World:
    """A cluster as one test sees it: its namespace, and cluster-wide objects that are deleted with it."""

    def __init__(
        self,
        kubectl: Kubectl,
        namespace: str,
        *,
        real_containers: bool,
        autoscales: bool,
        kubeconfig: Path,
        logs: Path | None = None,
    ) -> None:
        self.kubectl = kubectl
        self.kubeconfig = kubeconfig
        self.namespace = namespace
        self.real_containers = real_containers
        #: Whether a controller acts on HorizontalPodAutoscalers, as in Kubernetes.
        self.autoscales = autoscales
        #: The folder with the logs of the manager and the node agents.
        self.logs = logs

    def findings(self) -> str:
        """Return the objects of the namespace, and the log lines about it, for the report of a failure."""
        kinds = "pods,jobs,containerrecreaterequests"
        objects = self.kubectl("get", kinds, "-n", self.namespace, "-o", "yaml", check=False).stdout
        events = self.kubectl("get", "events", "-n", self.namespace, check=False).stdout
        lines = [
            f"{log.stem}: {line}"
            for log in sorted(self.logs.glob("*.log") if self.logs is not None else ())
            for line in log.read_text(errors="replace").splitlines()
            if self.namespace in line or " ERROR " in line
        ]
        return "\n".join(text[:_FINDINGS] for text in (objects, events, "\n".join(lines)))

    def apply(self, manifest: str, *, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run kubectl apply in the test's namespace; ``$ns`` in the text stands for it."""
        text = manifest.replace("$ns", self.namespace)
        return self.kubectl("apply", "-n", self.namespace, "-f", "-", stdin=text, check=check)

    def create(self, manifest: str) -> subprocess.CompletedProcess[str]:
        text = manifest.replace("$ns", self.namespace)
        return self.kubectl("create", "-n", self.namespace, "-f", "-", stdin=text, check=False)

    def get(self, kind: str, name: str, namespace: str | None = None) -> dict[str, Any]:
        """Return one object as JSON; fails if it does not exist."""
        text = self.kubectl("get", kind, name, "-n", namespace or self.namespace, "-o", "json").stdout
        found: dict[str, Any] = json.loads(text)
        return found

    def observed(self, kind: str, name: str, **wanted: int) -> dict[str, Any] | None:
        """Return one object if its status is about its current spec and has these values."""
        found = self.get(kind, name)
        status = found.get("status", {})
        ok = status.get("observedGeneration") == found["metadata"]["generation"]
        return found if ok and all(status.get(key, 0) == value for key, value in wanted.items()) else None

    def nodes(self) -> list[str]:
        return sorted(one["metadata"]["name"] for one in self.list("nodes"))

    def pods(self, *arguments: str) -> list[dict[str, Any]]:
        """Return the Pods that are not terminating."""
        return [pod for pod in self.list("pods", *arguments) if "deletionTimestamp" not in pod["metadata"]]

    def uids(self, *arguments: str) -> dict[str, str]:
        """Return the UIDs of the Pods that are not terminating, by name."""
        return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in self.pods(*arguments)}

    def messages(self, reason: str, *, about: str = "") -> set[str]:
        """Return the messages of the events with this reason, or only of those ``about`` one object."""
        selector = f"reason={reason}" + (f",involvedObject.name={about}" if about else "")
        return {event["message"] for event in self.list("events", f"--field-selector={selector}")}

    def list(self, kind: str, *arguments: str, namespace: str | None = None) -> list[dict[str, Any]]:
        text = self.kubectl("get", kind, "-n", namespace or self.namespace, "-o", "json", *arguments).stdout
        items: list[dict[str, Any]] = json.loads(text)["items"]
        return items

    def patch(self, kind: str, name: str, body: Any, *arguments: str, check: bool = True) -> str:
        """Change an object by JSON-Patch operations or a merge patch; return what kubectl reports as an error."""
        how = "json" if isinstance(body, list) else "merge"
        arguments = ("-n", self.namespace, f"--type={how}", "-p", json.dumps(body), *arguments)
        return self.kubectl("patch", kind, name, *arguments, check=check).stderr

    def autoscale(self, kind: str, *, least: int, most: int, wanted: int) -> None:
        """Apply an autoscaler for an object named web. Where no controller acts on it, write what one would."""
        if self.autoscales:
            self.apply(_AUTOSCALER.format(kind=kind, least=least, most=most))
        else:
            self.patch(kind, "web", {"spec": {"replicas": wanted}}, "--subresource=scale")

    def evict(self, name: str, *, dry_run: bool = False) -> subprocess.CompletedProcess[str]:
        options = {"deleteOptions": {"dryRun": ["All"]}} if dry_run else {}
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}, **options}
        path = f"/api/v1/namespaces/{self.namespace}/pods/{name}/eviction"
        return self.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(eviction), check=False)

    def columns(self, kind: str, name: str) -> Sequence[str]:
        """Return the cells that kubectl prints for one object."""
        return self.kubectl("get", kind, name, "-n", self.namespace, "--no-headers").stdout.split()

    def pykruise(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a pykruise command in the test's namespace, without checking its exit code."""
        end = arguments.index("--") if "--" in arguments else len(arguments)
        where = ("-n", self.namespace, f"--kubeconfig={self.kubeconfig}")
        command = [sys.executable, "-m", "app.cli.main", *arguments[:end], *where, *arguments[end:]]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=180)

    def pod_is_ready(self, name: str) -> dict[str, Any] | None:
        """Return the Pod once all its containers run and it is Ready."""
        pod = self.get("pod", name)
        return pod if is_ready(pod) else None


@contextmanager
def own_namespace(
    started: Any, *, real_containers: bool, autoscales: bool, logs: Path | None = None
) -> Iterator[World]:
    """A namespace for the test, deleted afterwards with its objects."""
    kubectl: Kubectl = partial(started.kubectl)
    namespace = f"t-{uuid.uuid4().hex[:8]}"
    labels = {"team": namespace}
    manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels}}
    kubectl("apply", "-f", "-", stdin=json.dumps(manifest))
    yield World(
        kubectl,
        namespace,
        real_containers=real_containers,
        autoscales=autoscales,
        kubeconfig=started.kubeconfig,
        logs=logs,
    )
    kubectl("delete", "sidecarset", "-l", f"team={namespace}", "--wait=false", check=False)
    kubectl("delete", "namespace", namespace, "--wait=false", check=False)


def eventually(look: Callable[[], Found | None], what: str, seconds: float = 60.0) -> Found:
    """Return the first true result of ``look``; after the deadline fail with ``what`` and the last error."""
    deadline = Deadline(seconds)
    last: object = None
    while not deadline.passed():
        try:
            found = look()
        except (AssertionError, ClusterError, LookupError) as failure:
            last = failure  # for a moment, an object that a controller recreates is missing, or a field is not set yet
        else:
            if found:
                return found
            last = found
        time.sleep(0.1)
    raise AssertionError(f"not within {seconds:.0f} s: {what}; last seen: {last!r}")


def printed(
    process: subprocess.Popen[bytes], log: Path, look: Callable[[str], Found | None], what: str, seconds: float = 60.0
) -> Found:
    """Return the first true result of ``look`` on the output of a process; fail at once if the process has ended."""

    def found() -> Found | None:
        code = process.poll()  # before reading, or its last words would be missed
        text = log.read_text("utf-8", "replace")
        result = look(text)
        if not result and code is not None:
            raise RuntimeError(f"the process ended with code {code} before: {what}\n{text}")
        return result

    return eventually(found, what, seconds)


def is_ready(pod: dict[str, Any]) -> bool:
    conditions = {one["type"]: one["status"] for one in pod.get("status", {}).get("conditions", [])}
    return conditions.get("Ready") == "True"


def restarts(pod: dict[str, Any]) -> dict[str, int]:
    return {one["name"]: one["restartCount"] for one in pod["status"].get("containerStatuses", [])}


def in_order(items: Sequence[dict[str, Any]]) -> list[str]:
    return [item["name"] for item in items]


@contextmanager
def running(arguments: Sequence[str], log: Path, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a pykruise process inside the context, with its output in ``log``; stop it with SIGTERM."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", *arguments],
            cwd=ROOT,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=os.environ | environment,
        )
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise AssertionError(
                    f"{arguments[0]} did not stop within 20 s of SIGTERM:\n{log.read_text()}"
                ) from None


def install(started: ControlPlane, *, gates: bool = True, root: Path = ROOT) -> Path:
    """Install CRDs, namespace and permissions as generated in the tree ``root`` (with ``gates`` those of all gates);
    return the kubeconfig of the manager's service account."""
    deploy = root / "deploy"
    started.kubectl("apply", "-f", str(deploy / "rbac.yaml"))
    if gates:
        started.kubectl("apply", "-f", str(deploy / "rbac-gates"))
    started.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(deploy / "crds"))
    wait_until_established(started.kubectl, "-f", str(deploy / "crds"))
    return started.kubeconfig_for_service_account(SYSTEM_NAMESPACE, "kruise-manager")


@contextmanager
def manager(started: ControlPlane, folder: Path, *flags: str) -> Iterator[dict[str, str]]:
    """Run the manager on this machine with its generated permissions until it is ready; yield its addresses."""
    folder.mkdir(parents=True, exist_ok=True)
    kubeconfig = install(started)
    webhook, health, metrics = free_port("127.0.0.1"), free_port("127.0.0.1"), free_port("127.0.0.1")
    arguments = [
        "app.cli.main",
        "manager",
        f"--kubeconfig={kubeconfig}",
        "--webhook-host=127.0.0.1",
        f"--webhook-port={webhook}",
        f"--health-probe-addr=127.0.0.1:{health}",
        f"--metrics-addr=127.0.0.1:{metrics}",
        *flags,
    ]
    log = folder / "manager.log"
    with running(arguments, log, POD_NAMESPACE=SYSTEM_NAMESPACE) as process:
        ready = f"http://127.0.0.1:{health}/readyz"

        def is_ready() -> bool:
            assert process.poll() is None, f"the manager ended with {process.returncode}:\n{log.read_text()[-4000:]}"
            try:
                with urllib.request.urlopen(ready, timeout=2) as answer:
                    return bool(answer.status == 200)
            except (urllib.error.URLError, OSError):
                return False

        eventually(is_ready, f"the manager is ready; its log is {log}", 90)
        yield {
            "webhook": f"https://127.0.0.1:{webhook}",
            "health": f"http://127.0.0.1:{health}",
            "metrics": f"http://127.0.0.1:{metrics}/metrics",
            "log": str(log),
            "pid": str(process.pid),
        }
