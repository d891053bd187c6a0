"""Pages other than the guides, followed as printed: the README, a review, the sandbox, the dashboard, the takeover.

Commands that need real containers are in tests/deploy/test_release_cluster.
"""

from __future__ import annotations

import json
import re
import shutil
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import openkruise
from tests.cli.pages import ROOT, line, shown
from tests.cli.reader import Reader, clone, ports_of_the_documents, sandboxed
from tests.cluster.controlplane import ControlPlane, wait_for_service_account
from tests.manager.test_moving_over_controlplane import create
from tests.scenarios.world import eventually, running

pytestmark = pytest.mark.controlplane
NODES = ("app.sandbox.nodes", "--nodes", "3", "--bind", "--kubeconfig")


@pytest.fixture
def ports() -> Iterator[None]:
    with ports_of_the_documents():
        yield


@pytest.fixture
def cloned(tmp_path: Path) -> Reader:
    reader = Reader(tmp_path)
    reader.folder = clone(tmp_path / "pykruise")
    return reader


def test_the_readme_leads_to_a_workload_in_a_sandbox(cloned: Reader) -> None:
    with cloned.leaves_running(line("README.md", "make sandbox")) as sandbox:
        sandbox.says("Ready. Press Ctrl-C to stop.")
        exported = line("README.md", "export KUBECONFIG")
        for one in (
            shown("README.md", "kubectl create -f"),
            shown("README.md", "pykruise rollout status"),
            shown("README.md", "pykruise set image"),
            shown("README.md", "pykruise explain"),
        ):
            said = cloned.does(f"{exported}; {one.command}")
            assert said.strip()
            # The output of a rollout depends on timing.
            assert one.printed.splitlines()[-1:] in (said.splitlines()[-1:], [])
        sandbox.ends()
    # Only the requested output: no warning, and no trace of a requested end.
    assert not [said for said in sandbox.text.splitlines() if re.search(r"(?i)warn|error|traceback", said)]
    assert not list(cloned.folder.glob("sandbox*"))


def test_the_readme_leads_to_a_manager_beside_a_cluster(tmp_path: Path, cloned: Reader, ports: None) -> None:
    home = tmp_path / "home"
    (home / ".kube").mkdir(parents=True)
    cloned.environment |= {"HOME": str(home)}
    del cloned.environment["KUBECONFIG"]
    with ControlPlane() as started, running([*NODES, str(started.kubeconfig)], tmp_path / "nodes.log"):
        shutil.copy(started.kubeconfig, home / ".kube" / "config")
        cloned.does(line("README.md", "kubectl apply --server-side -f deploy/rbac.yaml"))
        cloned.does(line("README.md", "kubectl apply --server-side -f deploy/crds"))
        with cloned.leaves_running(line("README.md", ".venv/bin/pykruise manager")) as manager:
            manager.says("webhooks registered")
            eventually(lambda: answers("http://127.0.0.1:8000/readyz") == b"ok", "the manager is ready")
            cloned.does(line("README.md", "kubectl apply -f"))
            cloned.does(line("README.md", "kubectl run"))
            table = shown("README.md", "kubectl get sidecarset")

            def as_shown() -> bool:
                said = cloned.does(table.command)
                return ageless(said) == ageless(table.printed)

            eventually(as_shown, "the table is the one of the page")
            assert manager.ends() == 0
        assert "Traceback" not in manager.text


def test_a_typed_review_shows_its_answer(cloned: Reader, ports: None) -> None:
    with cloned.leaves_running(line("docs/a-review.md", "make serve")) as service:
        service.says("serving https://")
        eventually(lambda: "loaded " in service.text, "the policies are there")
        answer = json.loads(cloned.does(line("docs/a-review.md", "curl").replace("curl ", "curl --silent ", 1)))
        assert answer["response"]["allowed"] is True
        assert answer["response"]["patch"]
    said = cloned.does(line("docs/a-review.md", ".venv/bin/pykruise review"))
    assert "log-shipper" in said
    assert "SS-" in said


def test_the_sandbox_page_can_be_typed(cloned: Reader, ports: None) -> None:
    for command, ready in (
        (line("docs/sandbox.md", "make sandbox"), "Ready. Press"),
        (line("docs/sandbox.md", "pykruise sandbox --nodes 10"), "Ready. Press"),
    ):
        with cloned.leaves_running(command) as sandbox:
            sandbox.says(ready)
            sandbox.ends()
        assert not list(cloned.folder.glob("*.kubeconfig"))
    cloned.does(line("docs/sandbox.md", "pykruise sandbox --detach"))
    cloned.does(line("docs/sandbox.md", "pykruise sandbox --wait"))
    cloned.does(line("docs/sandbox.md", "pykruise sandbox --stop"))
    assert not list(cloned.folder.glob("sandbox*"))


def test_the_dashboard_starts_shows_its_page_and_ends(tmp_path: Path, ports: None) -> None:
    page = shown("docs/guides/dashboard.md", "pykruise dashboard")
    with sandboxed(tmp_path, "--no-samples") as reader:
        with reader.leaves_running(page.command) as dashboard:
            assert dashboard.says("shows the cluster") == page.printed
            address = page.printed.split()[0]
            assert b"<title>pykruise</title>" in answers(address)
            cloneset = ROOT / "docs" / "guides" / "examples" / "cloneset.yaml"
            reader.does(f"kubectl create -f {cloneset}")

            def shown_at() -> set[str]:
                nodes = json.loads(answers(f"{address}api/overview"))["nodes"]["items"]
                return {one["name"] for one in nodes if one["pods"]["ready"]}

            eventually(lambda: shown_at() == {"node1", "node2", "node3"}, "the page has the Pods")
            assert dashboard.ends() == 130
        assert dashboard.text.strip() == page.printed


def test_the_takeover_page_can_be_typed(tmp_path: Path, cloned: Reader) -> None:
    """Take over and back, then with Helm, and finally follow the recovery steps of the installation page."""
    with ControlPlane() as started, running([*NODES, str(started.kubeconfig)], tmp_path / "nodes.log"):
        cloned.administers(started.kubeconfig)
        kubectl = started.kubectl
        kubectl("create", "namespace", "kruise-system")
        kubectl("label", "namespace", "kruise-system", "control-plane=openkruise")
        wait_for_service_account(kubectl, "kruise-system")
        installed = [one for one in openkruise.installed() if one["metadata"]["name"] != "default"]
        create(started, *installed, openkruise.deployment())
        record = ("create", "secret", "generic", "-n", "kruise-system", "sh.helm.release.v1.kruise.v1")
        kubectl(*record)
        kubectl("label", "secret", "-n", "kruise-system", record[-1], "owner=helm", "name=kruise")

        def image() -> str:
            path = "jsonpath={.spec.template.spec.containers[0].image}"
            return kubectl("get", "deployment", "-n", "kruise-system", "kruise-controller-manager", "-o", path).stdout

        theirs = image()
        look = line("docs/moving-over.md", "pykruise takeover --image registry.example/team/kruise-manager:v0.1.0")
        take = line(
            "docs/moving-over.md", "pykruise takeover --image registry.example/team/kruise-manager:v0.1.0 --yes"
        )
        assert "Nothing was changed; --yes applies the steps." in cloned.does(look)
        assert image() == theirs
        assert "Done. --back restores the previous installation." in cloned.does(take)
        assert image() == look.rpartition(" ")[2]
        assert "Done." in cloned.does(line("docs/moving-over.md", "pykruise takeover --back --yes"))
        assert image() == theirs

        cloned.does(take)
        forget = line("docs/moving-over.md", "kubectl delete secret")
        said = cloned.does(forget.replace("NAMESPACE", "kruise-system").replace("RELEASE", "kruise"))
        assert record[-1] in said
        assert "STATUS: deployed" in cloned.does(line("docs/moving-over.md", "helm upgrade --install"))
        assert image().startswith("registry.example/team/kruise-manager:")
        kubectl("create", "namespace", "shop")
        bound = cloned.does(line("docs/installing.md", "kubectl create rolebinding"))
        assert "created" in bound
        kubectl("get", "clusterrole", "kruise-manager-pull-secrets-role")

        cloned.does(line("docs/installing.md", "kubectl scale"))
        cloned.does(line("docs/installing.md", "kubectl delete mutatingwebhookconfiguration"))
        cloned.does(line("docs/installing.md", "helm uninstall kruise --no-hooks"))
        left = json.loads(kubectl("get", "crd", "-o", "json").stdout)["items"]
        assert [one["metadata"]["name"] for one in left if "deletionTimestamp" not in one["metadata"]] == []


def answers(address: str) -> bytes:
    """Return the answer at a local address; empty if nothing listens there."""
    try:
        with urllib.request.urlopen(address, timeout=120) as answer:
            found: bytes = answer.read()
            return found
    except OSError:
        return b""


def ageless(table: str) -> list[list[str]]:
    """Return the words of a table without its last column."""
    return [row.split()[:-1] for row in table.splitlines() if row.strip()]
