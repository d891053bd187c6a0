"""The manager against a real API server: from an empty cluster to registered webhooks, through a restart."""

import base64
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.certs.issue import from_secret_data
from tests.cluster.controlplane import ControlPlane, free_port
from tests.manager.replicas import Replica, replica
from tests.scenarios.world import eventually

pytestmark = pytest.mark.controlplane
DEPLOY = Path(__file__).parent.parent.parent / "deploy"

SET = """
apiVersion: apps.kruise.io/v1alpha1
kind: SidecarSet
metadata: {name: agent, labels: {apps.kruise.io/sidecarset-custom-version: blue}}
spec:
  namespace: default
  selector: {matchLabels: {app: web}}
  containers: [{name: agent, image: "agent:1"}]
"""


#: CRDs of a kind that reviews need, and of one with a single version.
MISSING = {"apps.kruise.io_workloadspreads.yaml", "apps.kruise.io_ephemeraljobs.yaml"}


def get(control_plane: ControlPlane, *arguments: str) -> Any:
    return json.loads(control_plane.kubectl("get", *arguments, "-o", "json").stdout)


@pytest.mark.behaviour(
    "MGR-2",
    "MGR-3",
    "MGR-20",
    "MGR-30",
    "MGR-32",
    "MGR-41",
    "MGR-42",
    "MGR-52",
    "MGR-100",
    "MGR-103",
    "MGR-148",
    "CLI-60",
)
def test_works_from_an_empty_cluster_through_a_restart(empty: ControlPlane, tmp_path: Path) -> None:
    with replica(empty, tmp_path, ready=False, kubeconfig=empty.kubeconfig) as first:
        # Nothing is installed yet: the manager reports what is missing, and waits.
        eventually(lambda: "namespace kruise-system does not exist" in first.log.read_text(), "the namespace is named")
        empty.kubectl("apply", "-f", str(DEPLOY / "rbac.yaml"))
        eventually(lambda: "sidecarsets.apps.kruise.io is missing" in first.log.read_text(), "the CRD is named")
        assert "caches: not filled yet" in first.fault()
        for file in sorted((DEPLOY / "crds").iterdir()):
            if file.name not in MISSING:
                empty.kubectl("apply", "--server-side", "-f", str(file))
        eventually(first.ready, "the manager is ready without two of its kinds")
        eventually(lambda: disabled(first) == len(MISSING), "both are named")

        def applied() -> bool:
            # Between writing its URL and releasing the field, the manager owns it, and the apply is a conflict.
            return empty.kubectl("apply", "--server-side", "-f", str(DEPLOY / "crds"), check=False).returncode == 0

        eventually(applied, "the other CRDs are applied")
        eventually(lambda: disabled(first) == 0, "the kinds are on")
        assert first.log.read_text().count("ephemeraljobs.apps.kruise.io is missing") == 1
        made = check_registration(empty, first.port)
        check_both_versions(empty)
        log = first.log.read_text()
        assert log.index("webhooks registered") < log.index("SidecarSet agent: recorded revision 1 as")
    assert first.process.returncode == 0, first.log.read_text()
    assert "Traceback" not in first.log.read_text()

    dashboard = f"127.0.0.1:{free_port('127.0.0.1')}"
    pages = [f"--dashboard-addr={dashboard}", "--webhook-docs"]
    with replica(empty, tmp_path, *pages, kubeconfig=empty.kubeconfig) as second:
        check_pages(second, dashboard)
        # The certificate is that of the Secret; only the port differs.
        assert check_registration(empty, second.port) == made
    assert second.process.returncode == 0, second.log.read_text()


def disabled(manager: Replica) -> int | None:
    """Return the number of kinds that a ready manager reports as disabled."""
    try:
        return manager.page(manager.health, "readyz?verbose").count("its kind is disabled")
    except OSError:
        return None


def check_pages(manager: Replica, dashboard: str) -> None:
    """The dashboard sends every section, and the webhooks have documentation pages."""
    told = set()
    with httpx.stream("GET", f"http://{dashboard}/api/events", timeout=120) as answer:
        for line in answer.iter_lines():
            told.add(line.removeprefix("event: ") if line.startswith("event: ") else "")
            if len(told - {""}) == 5:
                break
    assert told - {""} == {"workloads", "nodes", "sidecarSets", "budgets", "spreads"}
    assert httpx.get(f"https://127.0.0.1:{manager.port}/docs", verify=False).status_code == 200


def check_registration(control_plane: ControlPlane, port: int) -> bytes:
    """Check everything that registration leaves on the API server; return the CA."""
    secret = get(control_plane, "secret", "kruise-webhook-certs", "-n", "kruise-system")
    certificates = from_secret_data(secret["data"])
    bundle = base64.b64encode(certificates.ca_cert).decode()
    for kind in ("mutating", "validating"):
        configuration = get(control_plane, f"{kind}webhookconfiguration", f"kruise-{kind}-webhook-configuration")
        for entry in configuration["webhooks"]:
            assert entry["clientConfig"]["caBundle"] == bundle
            assert entry["clientConfig"]["url"].startswith(f"https://127.0.0.1:{port}/")
    converting = {"caBundle": bundle, "url": f"https://127.0.0.1:{port}/convert"}

    def converts() -> bool:
        crd = get(control_plane, "crd", "sidecarsets.apps.kruise.io")
        return bool(crd["spec"]["conversion"]["webhook"]["clientConfig"] == converting)

    eventually(converts, "the definition, applied once more just now, leads to the manager again")
    return certificates.ca_cert


def check_both_versions(control_plane: ControlPlane) -> None:
    """A SidecarSet written in the older version is defaulted, stored in the newer one, and readable in both."""

    def is_converted() -> bool:
        # For a moment, the API server may still send conversions to the Service of the applied definition.
        return control_plane.kubectl("apply", "-f", "-", stdin=SET, check=False).returncode == 0

    eventually(is_converted, "the API server accepts the older version")
    newer = get(control_plane, "sidecarset.v1beta1.apps.kruise.io", "agent")
    assert newer["spec"]["namespaceSelector"] == {"matchLabels": {"kubernetes.io/metadata.name": "default"}}
    assert newer["spec"]["customVersion"] == "blue"
    assert newer["spec"]["updateStrategy"]["type"] == "RollingUpdate"
    older = get(control_plane, "sidecarset.v1alpha1.apps.kruise.io", "agent")
    assert older["spec"]["namespace"] == "default"
    refused = control_plane.kubectl("apply", "-f", "-", stdin=SET.replace('"agent:1"', '""'), check=False)
    assert refused.returncode == 1
    assert 'admission webhook "vsidecarset.kb.io" denied the request: ' in refused.stderr
    assert "spec.containers[0].image: Required value" in refused.stderr
    control_plane.kubectl("delete", "sidecarset", "agent")
