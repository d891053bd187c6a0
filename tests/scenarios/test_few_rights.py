"""Read-only commands of a user with few permissions, on a real API server."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.scenarios import levels
from tests.scenarios.conftest import LEVELS
from tests.scenarios.test_cloneset import CLONE_SET, status_is
from tests.scenarios.world import ROOT, World, eventually

# The sandbox has no authorization.
pytestmark = pytest.mark.parametrize("world", LEVELS[1:2], indirect=True)
OTHERS = "SidecarSet, StatefulSet, DaemonSet, UnitedDeployment"


class Reader:
    """A ServiceAccount that may get, list and watch some resources in the test's namespace."""

    def __init__(self, world: World, name: str, *resources: str) -> None:
        self.namespace = world.namespace
        where = ("-n", world.namespace)
        world.kubectl("create", "serviceaccount", name, *where)
        world.kubectl("create", "role", name, *where, "--verb=get,list,watch", f"--resource={','.join(resources)}")
        account = f"--serviceaccount={world.namespace}:{name}"
        world.kubectl("create", "rolebinding", name, *where, f"--role={name}", account)
        self.kubeconfig = levels.simulated_nodes().kubeconfig_for_service_account(world.namespace, name)
        may = ("auth", "can-i", "list", resources[-1], *where, f"--as=system:serviceaccount:{world.namespace}:{name}")
        eventually(lambda: world.kubectl(*may, check=False).returncode == 0, "the rights are known")

    def types(self, *words: str, namespace: str = "") -> subprocess.CompletedProcess[str]:
        """Run a pykruise command with its output in a pipe."""
        command = [sys.executable, "-m", "app.cli.main", *words, f"--kubeconfig={self.kubeconfig}"]
        command += [] if "-A" in words else ["-n", namespace or self.namespace]
        ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=180)
        assert "Traceback" not in ended.stderr
        return ended

    def sees(self, *words: str) -> str:
        ended = self.types(*words)
        assert (ended.returncode, ended.stderr) == (0, "")
        return ended.stdout

    def is_refused(self, *words: str, namespace: str = "") -> str:
        ended = self.types(*words, namespace=namespace)
        assert (ended.returncode, ended.stdout) == (1, "")
        (line,) = ended.stderr.splitlines()
        return line


@pytest.mark.behaviour("CLI-13", "CLI-14", "CLI-17", "CLI-24")
def test_a_user_of_one_namespace_sees_its_clonesets_and_which_kinds_are_missing(world: World, tmp_path: Path) -> None:
    world.apply(CLONE_SET)
    eventually(lambda: status_is(world, replicas=3, availableReplicas=3), "3 Pods are available")
    reader = Reader(world, "reader", "clonesets.apps.kruise.io")
    done = "3 of 3 Pods updated, 3 available"

    ended = reader.types("rollout", "status")
    assert ended.returncode == 1
    (row,) = ended.stdout.splitlines()[1:]
    assert row.split()[:4] == [world.namespace, "CloneSet", "web", "done"]
    assert ended.stderr == f"pykruise: not shown, because you are not allowed to list them: {OTHERS}\n"
    ended = reader.types("rollout", "status", "-o", "json")
    said = {one["kind"]: one["message"] for one in json.loads(ended.stdout)["items"]}
    assert said["CloneSet"] == done
    assert all('cannot list resource "' in said[kind] for kind in OTHERS.split(", "))
    everywhere = reader.is_refused("rollout", "status", "-A")
    assert everywhere.endswith("UnitedDeployment in all namespaces; use -n to specify one")
    assert "at the cluster scope" in reader.is_refused("rollout", "status", "cloneset", "-A")
    assert "in the namespace" in reader.is_refused("rollout", "status", "cloneset", namespace="default")

    assert done in reader.sees("rollout", "status", "cloneset")
    assert 'cloneset "web" successfully rolled out' in reader.sees("rollout", "status", "cloneset", "web")
    lines = reader.sees("explain", "cloneset", "web").splitlines()
    assert lines[0] == f"CloneSet {world.namespace}/web: {done}"
    assert lines[1].startswith("the rest was not checked: refused: pods is forbidden")
    assert 'cannot list resource "pods"' in reader.is_refused("plan", "cloneset", "web")
    assert 'cannot get resource "pods"' in reader.is_refused("explain", "pod", "web-0")
    wanted = tmp_path / "wanted.yaml"
    wanted.write_text(CLONE_SET.replace("$ns", world.namespace))
    refused = reader.is_refused("plan", "-f", str(wanted))
    assert 'cannot patch resource "clonesets"' in refused
    assert refused.endswith("(a dry run stores nothing, but requires write permission)")


@pytest.mark.behaviour("CLI-17", "CLI-24")
def test_a_user_who_may_read_pods_gets_plans_and_explanations(world: World) -> None:
    world.apply(CLONE_SET)
    eventually(lambda: status_is(world, replicas=3, availableReplicas=3), "3 Pods are available")
    reader = Reader(world, "viewer", "pods", "controllerrevisions.apps", "clonesets.apps.kruise.io")
    pod = world.list("pods")[0]["metadata"]["name"]
    assert pod in reader.sees("explain", "cloneset", "web")
    said = reader.sees("explain", "pod", pod)
    assert said.startswith(f"Pod {world.namespace}/{pod} of CloneSet web")
    assert "SidecarSet: not checked: refused: sidecarsets.apps.kruise.io is forbidden" in said
    assert "no Pods are affected" in reader.sees("plan", "cloneset", "web")
    assert reader.sees("rollout", "history", "cloneset", "web").splitlines()[1].split()[0] == "1"
