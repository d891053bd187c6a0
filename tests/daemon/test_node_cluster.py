"""The agent with containerd, a kubelet and registries with and without credentials.

The tests take the part of the manager.
"""

from __future__ import annotations

import base64
import json
import subprocess
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.guides import on_a_node
from tests.cluster.cluster import Cluster
from tests.cluster.controlplane import wait_until_established
from tests.cluster.nodes import Node
from tests.daemon.front import GARBAGE, HANGING, PASSWORD, PRIVATE, SLOW, USER, AgentProcess, Front, front, until
from tests.daemon.node import request_body
from tests.deploy.rendering import ROOT, render

pytestmark = pytest.mark.cluster

NAMESPACE = "node-agent"
GROUP = "/apis/apps.kruise.io/v1beta1"
KINDS = ("nodeimages", "containerrecreaterequests", "nodepodprobes")


@dataclass
class World:
    cluster: Cluster
    node: Node
    agent: AgentProcess
    registry: Front
    log: Path
    credentials: Path

    def request(self, method: str, path: str, body: Any = None) -> Any:
        status, answer = self.cluster.control_plane.request(method, path, body)
        assert status < 300, (method, path, answer)
        return answer

    def apply(self, *documents: Any) -> None:
        self.cluster.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(documents))

    # ---- images

    def pull_has_begun(self) -> bool:
        """Return whether the slow registry was asked for a blob."""
        return any(name == SLOW and "/blobs/" in path for name, path in self.registry.asked)

    def pull(self, image: str, name: str, **more: Any) -> None:
        """Request only this image in the NodeImage."""
        policy = {"timeoutSeconds": 20, "backoffLimit": 2, "ttlSecondsAfterFinished": 600, **more.pop("policy", {})}
        tag = {"tag": name, "createdAt": "2026-01-01T00:00:00Z", "pullPolicy": policy, **more.pop("tag", {})}
        path = f"{GROUP}/nodeimages/{self.node.name}"
        self.specify(path, {"images": {image: {"tags": [tag], **more}}})

    def specify(self, path: str, spec: dict[str, Any]) -> None:
        """Write a spec while the agent may write the status."""

        def written() -> bool:
            current = self.request("GET", path)
            status, answer = self.cluster.control_plane.request("PUT", path, {**current, "spec": spec})
            assert status in (200, 409), answer
            return status == 200

        until(written, f"{path} is written", 10)

    def pulled(self, image: str, tag: str, seconds: float = 60, version: int = 0) -> dict[str, Any]:
        """Wait for the pull of a version of the tag to end, and return the status of the tag."""

        def look() -> dict[str, Any] | None:
            status = self.request("GET", f"{GROUP}/nodeimages/{self.node.name}").get("status", {})
            for entry in status.get("imageStatuses", {}).get(image, {}).get("tags", ()):
                if entry["tag"] == tag and entry.get("version", 0) == version and entry.get("completionTime"):
                    return dict(entry)
            return None

        found = until(look, f"{image}:{tag} is pulled; {self.log.read_text()[-1500:]}", seconds)
        assert isinstance(found, dict)
        return found

    # ---- Pods

    def pod(self, name: str, *containers: dict[str, Any], **more: Any) -> dict[str, Any]:
        """Create a Pod on the node and wait until it runs."""
        plain = {"image": "nginx:1.25", "imagePullPolicy": "IfNotPresent"}
        spec = {"nodeName": self.node.name, "terminationGracePeriodSeconds": 5, **more.pop("spec", {})}
        spec["containers"] = [{**plain, **one} for one in containers]
        metadata = {"name": name, "namespace": NAMESPACE, **more}
        self.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
        self.until_ready(name)
        return self.get_pod(name)

    def get_pod(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.request("GET", f"/api/v1/namespaces/{NAMESPACE}/pods/{name}")
        return found

    def until_ready(self, name: str) -> None:
        self.cluster.kubectl("wait", "-n", NAMESPACE, "--for=condition=Ready", f"pod/{name}", "--timeout=60s")

    def enter(self, pod: str, container: str, line: str) -> bool:
        """Run a shell command in a container and return whether it succeeded."""
        command = ("exec", "-n", NAMESPACE, pod, "-c", container, "--", "sh", "-c", line)
        return self.cluster.kubectl(*command, check=False).returncode == 0

    def end(self, who: str) -> None:
        """Kill the agent or containerd with SIGKILL and restart it."""
        if who == "agent":
            self.agent.kill()
            self.agent.start()
        else:
            self.node.restart_containerd()

    def container(self, pod: str, name: str) -> dict[str, Any]:
        statuses = self.get_pod(pod)["status"]["containerStatuses"]
        return next(one for one in statuses if one["name"] == name)

    # ---- requests

    def recreate(self, pod: dict[str, Any], *containers: str, name: str, **strategy: Any) -> None:
        """Create a request as defaulted by the manager's webhook."""
        body = request_body(pod, containers, name, self.node.name, **{"terminationGracePeriodSeconds": 10} | strategy)
        self.request("POST", f"{GROUP}/namespaces/{NAMESPACE}/containerrecreaterequests", body)

    def request_status(self, name: str) -> dict[str, Any]:
        path = f"{GROUP}/namespaces/{NAMESPACE}/containerrecreaterequests/{name}"
        status: dict[str, Any] = self.request("GET", path).get("status", {})
        return status

    def complete(self, pod: str, *containers: str, name: str) -> None:
        def look() -> bool:
            status = self.request_status(name)
            if status.get("phase") == "Completed":
                return True
            snapshot = [
                {key: entry[key] for key in ("name", "ready", "restartCount", "containerID")}
                for entry in self.get_pod(pod)["status"]["containerStatuses"]
                if entry["name"] in containers and entry.get("containerID")
            ]
            if status.get("phase") and snapshot != status.get("containerStatusSnapshot"):
                self.cluster.kubectl(
                    *("patch", "-n", NAMESPACE, "--subresource=status", "--type=merge"),
                    *(f"containerrecreaterequests.v1beta1.apps.kruise.io/{name}",),
                    *("-p", json.dumps({"status": {"containerStatusSnapshot": snapshot}})),
                )
            return False

        until(look, f"{name} is completed: {self.request_status(name)}; {self.log.read_text()[-1500:]}", 60)

    # ---- probes

    def probe(self, *pods: dict[str, Any]) -> None:
        path = f"/apis/apps.kruise.io/v1alpha1/nodepodprobes/{self.node.name}"
        self.specify(path, {"podProbes": list(pods)})

    def probed(self) -> dict[str, str]:
        path = f"/apis/apps.kruise.io/v1alpha1/nodepodprobes/{self.node.name}"
        return {
            state["name"]: f"{state['state']}:{state.get('message', '').strip()}"
            for pod in self.request("GET", path).get("status", {}).get("podProbeStatuses", ())
            for state in pod["probeStates"]
        }


@pytest.fixture(scope="module")
def kubeconfig(cluster: Cluster) -> Iterator[Path]:
    """Return a kubeconfig of the agent's identity with only the chart's permissions."""
    for kind in KINDS:
        cluster.kubectl("apply", "--server-side", "-f", str(ROOT / "deploy" / "crds" / f"apps.kruise.io_{kind}.yaml"))
    wait_until_established(cluster.kubectl, *(f"crd/{kind}.apps.kruise.io" for kind in KINDS))
    chart = [one for one in render() if "daemon" in one["metadata"]["name"] and one["kind"] != "DaemonSet"]
    spaces = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in ("kruise-system", NAMESPACE)
    ]
    for one in [*spaces, *chart]:
        cluster.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump(one))
    yield cluster.control_plane.kubeconfig_for_service_account("kruise-system", "kruise-daemon")
    cluster.kubectl("delete", "namespace", NAMESPACE, "kruise-daemon-config", "--wait=false")
    cluster.kubectl("delete", *(f"crd/{kind}.apps.kruise.io" for kind in KINDS), "--wait=false")


@pytest.fixture(scope="module")
def world(cluster: Cluster, kubeconfig: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    node = cluster.nodes[0]
    log = tmp_path_factory.mktemp("agent") / "log"
    log.touch()
    for version, kind, plural in (
        ("v1beta1", "NodeImage", "nodeimages"),
        ("v1alpha1", "NodePodProbe", "nodepodprobes"),
    ):
        body = {"apiVersion": f"apps.kruise.io/{version}", "kind": kind, "metadata": {"name": node.name}, "spec": {}}
        status, _ = cluster.control_plane.request("POST", f"/apis/apps.kruise.io/{version}/{plural}", body)
        assert status in (201, 409)
    credentials = tmp_path_factory.mktemp("credentials")
    provider = {
        "name": "provider",
        "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
        "matchImages": ["*.example"],
        "defaultCacheDuration": "1h",
    }
    config = {"apiVersion": "kubelet.config.k8s.io/v1", "kind": "CredentialProviderConfig", "providers": [provider]}
    (credentials / "providers.yaml").write_text(yaml.safe_dump(config))
    (credentials / "provider").write_text(f"#!/bin/sh\nexec cat {credentials}/answer\n")
    (credentials / "provider").chmod(0o755)
    flags = (
        f"--docker-config={credentials}",
        f"--image-credential-provider-config={credentials}/providers.yaml",
        f"--image-credential-provider-bin-dir={credentials}",
    )
    agent = AgentProcess(node, kubeconfig, log, *flags)
    with front(cluster) as registry:
        agent.start()
        try:
            yield World(cluster, node, agent, registry, log, credentials)
        finally:
            agent.stop()


@pytest.mark.behaviour("IMG-100")
def test_an_image_is_pulled_by_digest(world: World) -> None:
    world.cluster.registry.add("shop/app:1")
    path = f"http://{world.cluster.registry.address}/v2/shop/app/manifests/1"
    accept = "application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json"
    request = urllib.request.Request(path, headers={"Accept": accept}, method="HEAD")
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=120) as answer:
        digest = answer.headers["Docker-Content-Digest"]
    world.pull("shop/app", digest, tag={"imagePullPolicy": "Always"})
    assert world.pulled("shop/app", digest)["phase"] == "Succeeded"


@pytest.mark.behaviour("KD-36", "KD-37", "KD-38", "KD-94")
def test_an_image_that_requires_a_pull_secret_is_pulled(world: World) -> None:
    world.cluster.registry.add("team/app:1")
    image = f"{PRIVATE}/team/app"
    world.pull(image, "1", policy={"backoffLimit": 0})
    refused = world.pulled(image, "1")
    assert refused["phase"] == "Failed", refused
    for version, password, phase in ((1, "wrong-word", "Failed"), (2, PASSWORD, "Succeeded")):
        auth = base64.b64encode(f"{USER}:{password}".encode()).decode()
        config = json.dumps({"auths": {"*.example": {"auth": auth}}})
        metadata = {"name": "pull-1", "namespace": "kruise-daemon-config"}
        kind = "kubernetes.io/dockerconfigjson"
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": kind}
        world.apply({**secret, "stringData": {".dockerconfigjson": config}})
        secrets = [{"namespace": "kruise-daemon-config", "name": "pull-1"}]
        world.pull(image, "1", tag={"version": version}, policy={"backoffLimit": 0}, pullSecrets=secrets)
        entry = world.pulled(image, "1", version=version)
        assert entry["phase"] == phase, entry
    everything = world.log.read_text() + world.cluster.kubectl("get", "events,nodeimages", "-A", "-o", "yaml").stdout
    for word in (PASSWORD, "wrong-word", base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()):
        assert word not in everything


@pytest.mark.behaviour("KD-36", "KD-107", "KD-108")
def test_an_image_that_requires_credentials_of_the_node_is_pulled(world: World) -> None:
    world.cluster.registry.add("team/node:1")
    image = f"{PRIVATE}/team/node"
    docker, answer = world.credentials / "config.json", world.credentials / "answer"
    response = {
        "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
        "kind": "CredentialProviderResponse",
        "cacheKeyType": "Registry",
    }

    def pulled(version: int) -> str:
        world.pull(image, "1", tag={"version": version}, policy={"backoffLimit": 0})
        return str(world.pulled(image, "1", version=version)["phase"])

    def config(password: str) -> str:
        auth = base64.b64encode(f"{USER}:{password}".encode()).decode()
        return json.dumps({"auths": {f"https://{PRIVATE}/v2/": {"auth": auth}}})

    try:
        # The plugin fails to respond.
        docker.write_text(config("wrong-word"))
        assert pulled(0) == "Failed"
        assert "credential provider provider: exited with code 1" in world.log.read_text()
        # The kubelet tries the credentials of plugins after those of the file.
        answer.write_text(json.dumps({**response, "auth": {PRIVATE: {"username": USER, "password": PASSWORD}}}))
        assert pulled(1) == "Succeeded"
        answer.write_text("no answer")
        docker.write_text(config(PASSWORD))
        assert pulled(2) == "Succeeded"
    finally:
        docker.unlink(missing_ok=True)
        answer.unlink(missing_ok=True)
    assert PASSWORD not in world.log.read_text()


@pytest.mark.behaviour("KD-34", "KD-80")
@pytest.mark.parametrize("registry", [HANGING, GARBAGE, "unknown.invalid:1"])
def test_a_pull_from_an_unusable_registry_fails_with_a_message(world: World, registry: str) -> None:
    image = f"{registry}/team/app"
    world.pull(image, "9", policy={"timeoutSeconds": 3, "backoffLimit": 0})
    entry = world.pulled(image, "9", 30)
    assert entry["phase"] == "Failed", entry
    assert entry["message"]


@pytest.mark.behaviour("KD-17", "KD-31")
def test_an_agent_killed_during_a_pull_completes_it_later(world: World) -> None:
    world.cluster.registry.add("team/slow:1")
    world.registry.open.clear()
    image = f"{SLOW}/team/slow"
    world.pull(image, "1", policy={"timeoutSeconds": 60})
    until(world.pull_has_begun, "the pull has begun")
    world.agent.kill()
    world.agent.start()
    world.registry.open.set()
    assert world.pulled(image, "1")["phase"] == "Succeeded"


@pytest.mark.behaviour("KD-16", "KD-34")
def test_a_pull_survives_a_restart_of_containerd(world: World) -> None:
    world.cluster.registry.add("team/slow:2")
    world.registry.open.clear()
    world.registry.asked.clear()
    image = f"{SLOW}/team/slow"
    world.pull(image, "2", policy={"timeoutSeconds": 60, "backoffLimit": 0})
    until(world.pull_has_begun, "the pull has begun")
    world.node.restart_containerd()
    world.registry.asked.clear()
    until(world.pull_has_begun, "the pull has begun again")
    world.registry.open.set()
    assert world.pulled(image, "2", 90)["phase"] == "Succeeded"


@pytest.mark.behaviour("KD-17", "KD-51", "CRR-37")
def test_an_agent_killed_during_a_hook_restarts_the_container_once(world: World) -> None:
    slow = "echo >> /tmp/begun; while [ ! -e /tmp/answer ]; do sleep 0.1; done"
    hook = {"preStop": {"exec": {"command": ["sh", "-c", slow]}}}
    pod = world.pod("hooked", {"name": "app", "lifecycle": hook})
    world.recreate(pod, "app", name="restart-hooked", forceRecreate=True, terminationGracePeriodSeconds=600)
    until(lambda: world.enter("hooked", "app", "test $(wc -l < /tmp/begun) = 1"), "the hook has begun")
    world.agent.kill()
    world.agent.start()
    until(lambda: world.enter("hooked", "app", "test $(wc -l < /tmp/begun) = 2"), "the hook has begun again")
    until(lambda: world.enter("hooked", "app", "touch /tmp/answer"), "the hook ends")
    world.complete("hooked", "app", name="restart-hooked")
    world.until_ready("hooked")
    assert world.container("hooked", "app")["restartCount"] == 1


#: Ignores SIGTERM, and records that it was sent.
STUBBORN = ["sh", "-c", "trap 'touch /tmp/told' TERM; while true; do sleep 0.1; done"]
HOOK = {"preStop": {"exec": {"command": ["sh", "-c", "touch /tmp/told; sleep 2"]}}}


@pytest.mark.behaviour("KD-16", "KD-17", "KD-50", "KD-51", "CRR-37", "CRR-42")
@pytest.mark.parametrize(
    ("who", "hook"),
    [
        pytest.param("agent", None, id="the agent, while it waits for the container"),
        pytest.param("containerd", None, id="containerd, while the container ends"),
        pytest.param("containerd", HOOK, id="containerd, within the hook"),
    ],
)
def test_a_container_restarts_once_whichever_process_is_killed_in_the_meantime(
    world: World, who: str, hook: dict[str, Any] | None
) -> None:
    name = f"stubborn-{who}{'-hook' if hook else ''}"
    app = {"name": "app", "image": "busybox:1.36", "command": STUBBORN, **({"lifecycle": hook} if hook else {})}
    pod = world.pod(name, app, {"name": "side", "image": "busybox:1.36", "command": ["sleep", "100000"]})
    side = world.container(name, "side")["containerID"]
    world.recreate(pod, "app", name=name, terminationGracePeriodSeconds=6)
    until(lambda: world.enter(name, "app", "test -e /tmp/told"), "the container is being ended")
    world.end(who)
    world.complete(name, "app", name=name)
    assert [state["phase"] for state in world.request_status(name)["containerRecreateStates"]] == ["Succeeded"]
    world.until_ready(name)
    assert world.container(name, "app")["restartCount"] == 1
    assert (world.container(name, "side")["containerID"], world.container(name, "side")["restartCount"]) == (side, 0)


@pytest.mark.behaviour("KD-16", "KD-17", "KD-63")
@pytest.mark.parametrize("who", ["agent", "containerd"])
def test_a_probe_interrupted_by_a_restart_is_repeated(world: World, who: str) -> None:
    name = f"asked-{who}"
    pod = world.pod(name, {"name": "main", "image": "busybox:1.36", "command": ["sleep", "100000"]})
    slow = "echo >> /tmp/begun; while [ ! -e /tmp/answer ]; do sleep 0.1; done; cat /tmp/answer"
    probe = {"exec": {"command": ["sh", "-c", slow]}, "periodSeconds": 1, "timeoutSeconds": 120}
    identity = {"name": name, "namespace": NAMESPACE, "uid": pod["metadata"]["uid"], "IP": pod["status"]["podIP"]}
    world.probe({**identity, "probes": [{"name": "ppm#slow", "containerName": "main", "probe": probe}]})
    until(lambda: world.enter(name, "main", "test $(wc -l < /tmp/begun) = 1"), "the probe has begun")
    world.end(who)
    until(lambda: world.enter(name, "main", "test $(wc -l < /tmp/begun) = 2"), "the probe has begun again")
    assert world.probed() == {"ppm#slow": "Unknown:"}
    until(lambda: world.enter(name, "main", "echo idle > /tmp/answer"), "it is answered")
    until(lambda: world.probed() == {"ppm#slow": "Succeeded:idle"}, f"the result is reported: {world.probed()}")
    world.probe()


@pytest.mark.behaviour("KD-2", "KD-4", "KD-10")
def test_commands_of_the_guide_work_on_a_node(world: World, kubeconfig: Path, tmp_path: Path) -> None:
    lines = on_a_node(ROOT / "docs" / "guides" / "node-agent.md")
    (start,) = (line for line in lines if line.startswith("NODE_NAME="))
    tmp_path.joinpath("agent.kubeconfig").symlink_to(kubeconfig)
    world.agent.kill()
    try:
        world.agent.start(start, tmp_path)
        for line in lines:
            if line != start:
                typed = world.node.enter_command("bash", "-c", line.replace("NODE", "127.0.0.1"))
                answer = partial(subprocess.run, typed, capture_output=True, text=True, check=False, timeout=120)
                wanted = "ok" if line.endswith("healthz") else "workqueue_depth"
                until(lambda answer=answer, wanted=wanted: wanted in answer().stdout, f"{line} answers: {answer()}")
        told = world.log.read_text().rpartition("node agent started: node=")[2]
        assert told.startswith(world.node.name)
        world.agent.kill()
    finally:
        world.agent.start()


@pytest.mark.behaviour("KD-60", "KD-63", "KD-64", "KD-90")
def test_probes_of_every_kind_report_their_result(world: World) -> None:
    pod = world.pod("probed", {"name": "main"})

    def probe(number: int, **what: Any) -> dict[str, Any]:
        return {"name": f"ppm#{number}", "containerName": "main", "probe": {"periodSeconds": 1, **what}}

    wanted = {
        "name": "probed",
        "namespace": NAMESPACE,
        "uid": pod["metadata"]["uid"],
        "IP": pod["status"]["podIP"],
        "probes": [
            probe(0, exec={"command": ["cat", "/tmp/state"]}),
            probe(1, httpGet={"path": "/", "port": 80, "scheme": "HTTP"}),
            probe(2, tcpSocket={"port": 80}),
            probe(3, tcpSocket={"port": 81}),
            probe(4, exec={"command": ["sleep", "100"]}, timeoutSeconds=1),
            probe(5, exec={"command": ["/no/such/program"]}),
        ],
    }
    world.probe(wanted)

    def states(first: str) -> bool:
        found = world.probed()
        kinds = [state.partition(":")[0] for state in found.values()]
        return kinds[:5] == [first, "Succeeded", "Succeeded", "Failed", "Failed"]

    until(lambda: states("Failed"), f"probed: {world.probed()}")
    assert "timed out" in world.probed()["ppm#4"]
    until(lambda: "no such file" in world.probed()["ppm#5"], f"a command that cannot run is reported: {world.probed()}")
    assert world.probed()["ppm#5"].startswith("Unknown:")
    world.cluster.kubectl("exec", "-n", NAMESPACE, "probed", "--", "sh", "-c", "echo idle > /tmp/state")
    until(lambda: states("Succeeded"), f"probed: {world.probed()}")
    assert world.probed()["ppm#0"] == "Succeeded:idle"
    world.agent.kill()
    world.cluster.kubectl("exec", "-n", NAMESPACE, "probed", "--", "rm", "/tmp/state")
    world.agent.start()
    until(lambda: states("Failed"), f"probed again: {world.probed()}")
    world.node.restart_containerd()
    world.cluster.kubectl("wait", "--for=condition=Ready", f"node/{world.node.name}", "--timeout=60s")

    def write() -> bool:
        command = ("exec", "-n", NAMESPACE, "probed", "--", "sh", "-c", "echo again > /tmp/state")
        return world.cluster.kubectl(*command, check=False).returncode == 0

    until(write, "containers can be entered again")
    until(lambda: world.probed()["ppm#0"] == "Succeeded:again", f"probed after containerd's restart: {world.probed()}")
    world.probe()


def test_the_agent_needs_little_memory(world: World, record_property: Any) -> None:
    world.agent.kill()
    world.agent.start()
    until(lambda: world.agent.resident <= 45, "it gives memory back")
    record_property("resident_mib", world.agent.resident)
