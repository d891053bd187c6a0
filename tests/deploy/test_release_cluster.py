"""The Dockerfile's image and the chart, on nodes with real containers. The order of the tests matters."""

import base64
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from urllib.request import urlopen

import pytest

from app.certs.issue import issue
from deploy.release.__main__ import write_chart
from tests.chaos.load import Outcome, pod_creations
from tests.cli.pages import ROOT, line, shown
from tests.cli.reader import Reader, ports_of_the_documents
from tests.cluster import ourimage
from tests.cluster.cluster import RUN_NAME, Cluster, left_over
from tests.cluster.controlplane import wait_for_service_account
from tests.cluster.run import Run
from tests.deploy.release import NAMESPACE, Release
from tests.deploy.rendering import find, render
from tests.scenarios.test_deletion_protection import FORBIDDEN, LABEL, labeled, workload
from tests.scenarios.world import eventually

pytestmark = pytest.mark.cluster

CONFIGURATIONS = [
    (f"{kind}webhookconfiguration", f"kruise-{kind}-webhook-configuration") for kind in ("mutating", "validating")
]
NAMESPACE_MANIFEST = """
apiVersion: v1
kind: Namespace
metadata: {{name: web, labels: {{{label}}}}}
"""
SIDECAR_SET = {
    "apiVersion": "apps.kruise.io/v1beta1",
    "kind": "SidecarSet",
    "metadata": {"name": "log-shipper"},
    "spec": {
        "selector": {"matchLabels": {"app": "web"}},
        "containers": [{"name": "log-shipper", "image": "busybox:1.36", "command": ["sleep", "86400"]}],
    },
}


@pytest.fixture(scope="module")
def no_cluster() -> None:
    """Give this module its own cluster. The name makes it run before tests that share one (fixtures.py)."""
    if (run := Run.named(RUN_NAME)) is not None and not run.is_stale():
        pytest.fail("a cluster is up; this test starts and ends its own. First: python -m tests.cluster down")


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the sources before the last change of the image's inputs."""
    folder = tmp_path_factory.mktemp("before")
    ourimage.extract_before(folder)
    return folder


@pytest.fixture(scope="module")
def own_cluster(no_cluster: None, before: Path) -> Iterator[Cluster]:
    """Yield a cluster whose registry has our image under the name in the chart."""
    pod = find(render(), "Deployment", "kruise-controller-manager")["spec"]["template"]["spec"]
    image: str = pod["containers"][0]["image"]
    layout = ourimage.build()
    with Cluster() as cluster:
        untouched = cluster.run.before
        cluster.registry.add_layout(image, layout)
        cluster.registry.add_layout("registry.example/team/kruise-manager:v0.1.0", layout)  # as documented
        cluster.registry.add_layout(f"{image.rpartition(':')[0]}:before", ourimage.build(before))
        yield cluster
    assert left_over(untouched) == []


@pytest.fixture(scope="module")
def release(own_cluster: Cluster) -> Release:
    """Return the release, which is not installed yet."""
    return Release(own_cluster.kubectl, own_cluster.kubeconfig)


@pytest.fixture(scope="module")
def reader(own_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Reader:
    """Return a user who enters the documented commands."""
    found = Reader(tmp_path_factory.mktemp("reader"))
    found.administers(own_cluster.kubeconfig)
    # The chart of a release, and the folder of a clone.
    write_chart(found.folder, ROOT, "0.1.0", 0)
    (found.folder / "deploy").symlink_to(ROOT / "deploy")
    return found


def pods(release: Release) -> dict[str, str]:
    """Return the nodes of the manager's Pods by name, including terminating Pods."""
    found = release.get("pods", "-n", NAMESPACE, "-l", "control-plane=controller-manager")["items"]
    return {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in found}


def roll_out(release: Release, *settings: str) -> None:
    """Upgrade to these values, and wait until no old replica answers."""
    old = pods(release)
    release.upgrade(*(f"--set={setting}" for setting in settings), "--wait", "--timeout=180s")
    eventually(lambda: not pods(release).keys() & old.keys(), "the old replicas have ended")
    eventually(lambda: leader(release) in pods(release), "one of the new replicas leads", seconds=20)
    assert len(pods(release)) == 2


def leader(release: Release) -> str:
    """Return the name of the leading Pod."""
    holder: str = release.get("lease", "-n", NAMESPACE, "kruise-manager")["spec"]["holderIdentity"]
    return holder.partition("_")[0]


def registered(release: Release, configuration: tuple[str, str]) -> dict[str, int]:
    """Return the size of the CA bundle of each entry of a configuration."""
    webhooks = release.get(*configuration).get("webhooks", ())
    return {webhook["name"]: len(webhook["clientConfig"].get("caBundle", "")) for webhook in webhooks}


def containers_of_new_pod(release: Release, name: str) -> list[str]:
    """Return the containers of a new Pod that the SidecarSet selects."""
    release.kubectl("run", name, "--image=nginx:1.25", "--labels=app=web")
    return [container["name"] for container in release.get("pod", name)["spec"]["containers"]]


@pytest.mark.usefixtures("no_cluster")
def test_the_image_contains_only_the_program_and_needs_no_privileges() -> None:
    made = ourimage.configuration(ourimage.build())
    assert made["User"] == "65534:65534"
    assert (made["Entrypoint"], made["Cmd"]) == (["pykruise"], ["manager"])
    files = ourimage.files(ourimage.build())
    assert any(name.endswith("/site-packages/app/manager/run.py") for name in files)
    pip = ("/site-packages/pip/", "/dist-packages/pip/", "/ensurepip/", "bin/pip")
    unwanted = (*pip, "/app/sandbox/", "/site-packages/cel/")
    assert not [name for name in files if any(part in f"/{name}" for part in unwanted)]


@pytest.mark.behaviour("MGR-90", "MGR-91", "MGR-22", "MGR-24", "PW-28")
def test_two_replicas_on_two_nodes_become_ready(release: Release, reader: Reader) -> None:
    reader.does(line("docs/installing.md", "helm install"), seconds=180)
    listed = reader.does(line("docs/installing.md", "kubectl get pods")).splitlines()
    managers = [row.split() for row in listed if row.startswith("kruise-controller-manager-")]
    assert [row[1:4] for row in managers] == [["1/1", "Running", "0"]] * 2
    assert len(set(pods(release).values())) == 2
    assert leader(release) in pods(release)


@pytest.mark.behaviour("KD-1", "KD-4", "KD-80")
def test_every_node_has_its_agent(release: Release) -> None:
    release.kubectl("rollout", "status", "-n", NAMESPACE, "daemonset/kruise-daemon", "--timeout=180s")
    found = release.get("pods", "-n", NAMESPACE, "-l", "control-plane=daemon")["items"]
    nodes = release.get("nodes")["items"]
    assert {one["spec"]["nodeName"] for one in found} == {node["metadata"]["name"] for node in nodes}
    for one in found:
        (status,) = one["status"]["containerStatuses"]
        assert (status["ready"], status["restartCount"]) == (True, 0)
        log = release.kubectl("logs", "-n", NAMESPACE, one["metadata"]["name"]).stdout
        assert f"node agent started: node={one['spec']['nodeName']}" in log
        assert "forbidden" not in log


def test_webhooks_are_registered_through_the_service_with_one_authority(release: Release) -> None:
    bundles = set()
    for configuration in CONFIGURATIONS:
        for webhook in release.get(*configuration)["webhooks"]:
            service = webhook["clientConfig"]["service"]
            expected = ("kruise-webhook-service", NAMESPACE, 443)
            assert (service["name"], service["namespace"], service["port"]) == expected
            bundles.add(webhook["clientConfig"]["caBundle"])
    secret = release.get("secret", "-n", NAMESPACE, "kruise-webhook-certs")["data"]
    assert bundles == {secret["ca-cert.pem"]}


def test_a_pod_gets_its_sidecar_and_both_containers_run(release: Release) -> None:
    release.apply(SIDECAR_SET)
    assert "log-shipper" in containers_of_new_pod(release, "web-1")
    release.kubectl("wait", "--for=condition=Ready", "pod/web-1", "--timeout=60s")
    row = release.kubectl("get", "pod", "web-1", "--no-headers").stdout.split()
    assert row[1:3] == ["2/2", "Running"]
    eventually(
        lambda: release.get("sidecarset", "log-shipper")["status"].get("readyPods") == 1, "the set counts the Pod"
    )


@pytest.mark.parametrize("kind", ["Deployment", "Namespace"])
def test_protected_objects_are_not_deleted(release: Release, kind: str) -> None:  # U-90
    namespace = NAMESPACE_MANIFEST.format(label=labeled("Always"))
    release.kubectl("apply", "-f", "-", stdin=namespace if kind == "Namespace" else workload(kind, "Always", 1))
    try:
        refused = release.kubectl("delete", kind, "web", "--wait=false", check=False)
        assert refused.returncode != 0
        assert f"{FORBIDDEN}Always" in refused.stderr
        if kind == "Namespace":
            release.kubectl("label", kind, "web", "--overwrite", f"{LABEL}=Cascading")
            wait_for_service_account(release.kubectl, "web")
            release.kubectl("run", "-n", "web", "busy", "--image=nginx:1.25")
            refused = release.kubectl("delete", kind, "web", "--wait=false", check=False)
            assert f"{FORBIDDEN}Cascading and active pods >0" in refused.stderr
    finally:
        release.kubectl("label", kind, "web", f"{LABEL}-", check=False)
    release.kubectl("delete", kind, "web", "--wait=false")


def test_older_versions_are_converted_through_the_service(release: Release) -> None:
    found = release.get("sidecarsets.v1alpha1.apps.kruise.io", "log-shipper")
    assert found["apiVersion"] == "apps.kruise.io/v1alpha1"


@pytest.mark.behaviour("MGR-85")
def test_an_upgrade_with_the_same_values_changes_nothing(release: Release, reader: Reader) -> None:
    versions, names = release.versions(), pods(release)
    reader.does(line("docs/installing.md", "helm upgrade"))
    assert release.versions() == versions
    assert pods(release) == names


def test_the_documented_debugging_commands_work(reader: Reader) -> None:
    assert "webhooks registered" in reader.does(line("docs/operations.md", "kubectl logs"))
    forward = line("docs/operations.md", "kubectl port-forward").removesuffix(" &")
    with ports_of_the_documents(), reader.leaves_running(forward) as forwarding:
        forwarding.says("Forwarding from 127.0.0.1:8000")
        forwarding.says("Forwarding from 127.0.0.1:8080")
        assert reader.does(line("docs/operations.md", "curl localhost:8000/readyz")).endswith("ok")
        assert "reconciler" in reader.does(line("docs/operations.md", "curl localhost:8000/debug/processes"))
        queues = reader.does(line("docs/operations.md", "curl localhost:8000/debug/queues"))
        assert "cloneset" in queues or "does not hold the Lease" in queues
        assert "SidecarSets" in reader.does(line("docs/operations.md", "curl localhost:8000/debug/caches"))
        # Any replica may answer, and it may not have decided anything yet.
        decisions = reader.does(line("docs/operations.md", "curl localhost:8000/debug/decisions"))
        assert ".kb.io" in decisions or "nothing yet" in decisions
        assert "kruise_" in reader.does(line("docs/operations.md", "curl localhost:8080/metrics"))


def test_the_dashboard_is_available_through_the_api_server(release: Release, reader: Reader) -> None:
    old = pods(release)
    reader.does(line("docs/guides/dashboard.md", "helm upgrade"), seconds=180)
    eventually(lambda: not pods(release).keys() & old.keys(), "the old replicas have ended")
    page = shown("docs/guides/dashboard.md", "kubectl -n kruise-system port-forward")
    with ports_of_the_documents(), reader.leaves_running(page.command) as forwarding:
        assert forwarding.says("Forwarding from 127.0.0.1") == page.printed
        with urlopen("http://127.0.0.1:8900/api/overview", timeout=120) as answer:
            assert json.load(answer)["nodes"]["pods"] > 0


@pytest.mark.behaviour("MGR-43", "MGR-100", "MGR-40")
def test_switching_a_gate_off_affects_only_its_feature(release: Release) -> None:
    before = {configuration: registered(release, configuration) for configuration in CONFIGURATIONS}
    roll_out(release, "featureGates=PodWebhook=false")
    expected = {name: size for name, size in before[CONFIGURATIONS[0]].items() if name != "mpod.kb.io"}
    eventually(lambda: registered(release, CONFIGURATIONS[0]) == expected, "the Pod webhook is dropped", seconds=120)
    guards = ("vpod.kb.io", "vpodeviction.kb.io")
    kept = {name: size for name, size in before[CONFIGURATIONS[1]].items() if name not in guards}
    eventually(lambda: registered(release, CONFIGURATIONS[1]) == kept, "so are the guards of Pods", seconds=120)
    assert containers_of_new_pod(release, "web-2") == ["web-2"]
    roll_out(release, "featureGates=")
    eventually(lambda: registered(release, CONFIGURATIONS[0]) == before[CONFIGURATIONS[0]], "it is back", seconds=120)
    assert "log-shipper" in containers_of_new_pod(release, "web-3")


def test_external_certificates_are_served(release: Release) -> None:
    made = issue((f"kruise-webhook-service.{NAMESPACE}.svc",), datetime.now(UTC))
    files = {"ca.crt": made.ca_cert, "tls.crt": made.cert, "tls.key": made.key}
    data = {name: base64.b64encode(content).decode() for name, content in files.items()}
    metadata = {"name": "certs-of-others", "namespace": NAMESPACE}
    release.apply({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data})
    roll_out(
        release,
        "featureGates=EnableExternalCerts=true",
        "externalCerts.secretName=certs-of-others",
        "manager.extraArgs={--certificate-rotation-step=5s}",
    )

    def trusted() -> set[str]:
        found = [webhook for configuration in CONFIGURATIONS for webhook in release.get(*configuration)["webhooks"]]
        return {webhook["clientConfig"]["caBundle"] for webhook in found}

    assert "log-shipper" in containers_of_new_pod(release, "web-5")
    eventually(lambda: trusted() == {made.ca_bundle}, "their authority alone is trusted", seconds=120)
    assert "log-shipper" in containers_of_new_pod(release, "web-6")


def test_an_uninstall_leaves_nothing_behind_and_pods_can_be_created(release: Release, reader: Reader) -> None:
    reader.does(line("docs/installing.md", "helm uninstall kruise --wait"), seconds=200)
    assert left_behind(release) == []
    assert containers_of_new_pod(release, "web-4") == ["web-4"]


def left_behind(release: Release) -> list[str]:
    """Return all cluster-scoped objects with ``kruise`` in their names, which objects of other tests do not have."""
    listable = ["api-resources", "--namespaced=false", "--verbs=list", "-o", "name"]
    kinds = release.kubectl(*listable).stdout.split()
    return [
        line
        for kind in kinds
        for line in release.kubectl("get", kind, "-o", "name", check=False).stdout.split()
        if "kruise" in line
    ]


@pytest.mark.behaviour("MGR-100", "MGR-101")
def test_an_upgrade_keeps_state_and_refuses_no_pod(release: Release, own_cluster: Cluster, before: Path) -> None:
    """Upgrade from the previous chart and image while 50 Pods a second are created with failure policy Fail."""
    chart = str(before / "deploy" / "chart")
    release.helm("install", "kruise", chart, "--set=manager.image.tag=before", "--wait", "--timeout=120s")
    release.apply(SIDECAR_SET)
    old = pods(release)
    with pod_creations(own_cluster.control_plane, 50, sidecar="log-shipper", dry_run=True) as creations:
        eventually(lambda: creations.count(Outcome.INJECTED) > 50, "the load runs")
        release.upgrade("--reset-values", "--wait", "--timeout=300s")
        eventually(lambda: not pods(release).keys() & old.keys(), "the old replicas have ended")
    assert creations.count(Outcome.INJECTED) == len(creations.attempts), creations.messages()
    eventually(lambda: leader(release) in pods(release), "one of the new replicas leads", seconds=30)
    assert len(pods(release)) == 2
    containers = release.get("pods", "-n", NAMESPACE)["items"][0]["spec"]["containers"]
    assert containers[0]["image"].endswith(":v0.1.0")
    release.uninstall("--timeout=180s")
    assert left_behind(release) == []
