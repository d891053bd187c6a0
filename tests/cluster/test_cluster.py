"""The test cluster: both levels start, work like a real cluster, and leave nothing behind."""

import json
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster, left_over, take_down
from tests.cluster.controlplane import ControlPlane
from tests.cluster.paths import SOURCE
from tests.cluster.process import ProcessId, wait_until
from tests.cluster.run import Run

TWO_CONTAINERS = """
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  containers:
  - {name: web, image: "nginx:1.25", ports: [{containerPort: 80}]}
  - {name: helper, image: "busybox:1.36", command: [sleep, "3600"]}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80}]}
"""


@pytest.mark.controlplane
def test_the_api_server_requires_its_token(control_plane: ControlPlane) -> None:
    assert control_plane.request("GET", "/readyz") == (200, "ok")
    assert control_plane.request("GET", "/readyz", token="")[0] == 401
    assert control_plane.request("GET", "/readyz", token="guessed")[0] == 401


@pytest.mark.controlplane
def test_kubectl_has_the_version_of_the_server(control_plane: ControlPlane) -> None:
    versions = json.loads(control_plane.kubectl("version", "--output=json").stdout)
    assert versions["clientVersion"]["gitVersion"] == versions["serverVersion"]["gitVersion"]


@pytest.mark.controlplane
def test_a_killed_owner_leaves_no_process_and_the_next_start_removes_its_folder() -> None:
    code = (
        "import sys, time\n"
        "from tests.cluster.controlplane import LOOPBACK, ControlPlane\n"
        "started = ControlPlane(controller_manager=False)\n"
        "started.start()\n"
        "print(started.directory, flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=SOURCE.parents[1]
    ) as owner:
        directory = Path(owner.stdout.readline().strip())
        processes = Run.load(directory).processes
        assert sorted(processes) == ["etcd", "kube-apiserver"]
        assert all(process.is_alive() for process in processes.values())
        owner.send_signal(signal.SIGKILL)
    wait_until(lambda: not any(process.is_alive() for process in processes.values()), "all have ended", deadline=10)
    with ControlPlane(controller_manager=False):
        assert not directory.exists()


@pytest.mark.cluster
@pytest.mark.usefixtures("no_cluster")
def test_up_and_down_on_the_command_line_leave_nothing_behind() -> None:
    def command(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "tests.cluster", *arguments], cwd=SOURCE.parents[1], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "export KUBECONFIG=" in command("up", "--nodes=1")
    cluster = Cluster.running()
    before = cluster.run.before
    cluster.kubectl("apply", "-f", "-", stdin=TWO_CONTAINERS)
    cluster.kubectl("wait", "--for=condition=Ready", "pod/web", "--timeout=60s")
    processes = [*cluster.run.processes.values(), *_descendants(cluster.nodes[0].first_process)]
    assert len(processes) > len(cluster.run.processes) + 5  # containerd, kubelet, shim, pause and two containers
    assert command("kubeconfig").strip() == str(cluster.kubeconfig)
    assert "NOT READY" not in command("status")
    assert left_over(before)  # otherwise the empty result below would prove nothing
    assert command("down") == "nothing is left\n"
    assert left_over(before) == []
    assert [process for process in processes if process.is_alive()] == []
    assert command("down") == "nothing is left\n"


@pytest.mark.cluster
@pytest.mark.usefixtures("no_cluster")
def test_the_next_start_cleans_up_after_a_crash() -> None:
    code = (
        "import time\n"
        "from tests.cluster.cluster import Cluster\n"
        "cluster = Cluster(nodes=1)\n"
        "cluster.start()\n"
        "cluster.kubectl('run', 'web', '--image=nginx')\n"
        "cluster.kubectl('wait', '--for=condition=Ready', 'pod/web', '--timeout=60s')\n"
        "print('up', flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=SOURCE.parents[1]
    ) as owner:
        assert owner.stdout.readline() == "up\n"
        crashed = Cluster.running()
        processes = [*crashed.run.processes.values(), *_descendants(crashed.nodes[0].first_process)]
        owner.send_signal(signal.SIGKILL)
    wait_until(lambda: not any(process.is_alive() for process in processes), "all of it has ended", deadline=20)
    with Cluster(nodes=1) as cluster:
        assert cluster.kubectl("get", "pods", "--output=name").stdout == ""
        before = cluster.run.before
        assert before is not None
        assert before == crashed.run.before
    assert left_over(before) == []
    assert take_down() == []


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    name = f"test-{time.time_ns()}"
    cluster.kubectl("create", "namespace", name)
    path = f"/api/v1/namespaces/{name}/serviceaccounts/default"
    wait_until(lambda: cluster.control_plane.request("GET", path)[0] == 200, f"{name} has its service account")
    yield name
    cluster.kubectl("delete", "namespace", name, "--wait=false")


@pytest.mark.cluster
def test_three_nodes_are_ready_in_three_zones(cluster: Cluster) -> None:
    nodes = json.loads(cluster.kubectl("get", "nodes", "--output=json").stdout)["items"]
    zones = {node["metadata"]["name"]: node["metadata"]["labels"]["topology.kubernetes.io/zone"] for node in nodes}
    assert zones == {"node-0": "zone-a", "node-1": "zone-b", "node-2": "zone-c"}


@pytest.mark.cluster
def test_a_pod_of_two_containers_runs_and_its_service_answers_from_the_machine(
    cluster: Cluster, namespace: str
) -> None:
    cluster.kubectl("apply", f"--namespace={namespace}", "-f", "-", stdin=TWO_CONTAINERS)
    cluster.kubectl("wait", "--for=condition=Ready", "pod/web", f"--namespace={namespace}", "--timeout=60s")
    pod = json.loads(cluster.kubectl("get", "pod/web", f"--namespace={namespace}", "--output=json").stdout)
    assert pod["status"]["phase"] == "Running"
    assert [status["ready"] for status in pod["status"]["containerStatuses"]] == [True, True]
    image = cluster.kubectl("exec", "web", f"--namespace={namespace}", "-c=helper", "--", "cat", "/etc/image").stdout
    assert image == "busybox:1.36\n"
    service = cluster.kubectl("get", "svc/web", f"--namespace={namespace}", "-o=jsonpath={.spec.clusterIP}").stdout
    wait_until(lambda: _page(f"http://{service}/") == "nginx:1.25\n", "the Service answers", deadline=15)
    # A Pod also reaches its own Service, through the node and the machine's kube-proxy.
    wget = ["timeout", "5", "wget", "-q", "-O-", f"http://{service}/"]
    assert cluster.kubectl("exec", "web", f"--namespace={namespace}", "-c=helper", "--", *wget).stdout == "nginx:1.25\n"


def _page(url: str) -> str:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""


def _descendants(process: ProcessId) -> list[ProcessId]:
    return [process, *(found for child in process.children() for found in _descendants(child))]
