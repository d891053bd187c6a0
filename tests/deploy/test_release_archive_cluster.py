"""An operator follows the documentation to install a release from its files, on nodes with real containers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from deploy.release import __main__ as release
from tests.cli.pages import BLOCK, ROOT, line
from tests.cli.reader import Reader
from tests.cluster import packages
from tests.cluster.cluster import Cluster
from tests.deploy.test_release_cluster import no_cluster  # noqa: F401

PAGE = "docs/installing.md"

pytestmark = [pytest.mark.cluster, pytest.mark.alone]


@pytest.mark.usefixtures("no_cluster")
def test_an_operator_installs_a_release_and_a_first_sidecar_set(tmp_path: Path) -> None:
    packages.ensure_installed("skopeo")
    reader = Reader(tmp_path)
    work = tmp_path / "work"
    work.mkdir()
    reader.folder = tmp_path / "dist"
    reader.folder.mkdir()
    release.build(reader.folder, work, "HEAD", "https://files.example")
    manifest = next(block[2] for block in BLOCK.finditer((ROOT / PAGE).read_text()) if "kind: SidecarSet" in block[2])
    (reader.folder / "sidecarset.yaml").write_text(manifest)
    with Cluster() as cluster:
        reader.administers(cluster.kubeconfig)
        checked = reader.does(line("docs/installing.md", "sha256sum"))
        assert "FAILED" not in checked
        # The nodes pull all images from this cluster's registry, which has no certificate.
        load = line("docs/installing.md", "skopeo copy").replace("registry.example", cluster.registry.address)
        reader.does(load.replace("--all", "--all --dest-tls-verify=false"))
        reader.does(line("docs/installing.md", "helm install"), seconds=180)
        assert len(re.findall(r"1/1 +Running", reader.does(line("docs/installing.md", "kubectl get pods")))) >= 2
        reader.does(line("docs/installing.md", "kubectl apply -f sidecarset.yaml"))
        reader.does(line("docs/installing.md", "kubectl run web"))
        reader.does(line("docs/installing.md", "kubectl wait"))
        assert re.search(r"web +2/2 +Running", reader.does(line("docs/installing.md", "kubectl get pod web")))
        agents = cluster.kubectl(
            "rollout", "status", "-n", "kruise-system", "daemonset/kruise-daemon", "--timeout=120s"
        )
        assert "successfully rolled out" in agents.stdout
