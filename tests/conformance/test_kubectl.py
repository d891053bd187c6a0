"""Common kubectl commands print the same on the sandbox and on the real API server."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.cluster import binaries
from tests.cluster.controlplane import ControlPlane
from tests.conformance.kubectl import Kubectl, Said, served_sandbox
from tests.conformance.kubectl_scripts import BROKEN, SCRIPTS, Command

pytestmark = pytest.mark.controlplane


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    """A real API server without controllers, which would change objects between two commands."""
    program = binaries.ensure(binaries.KUBECTL)[binaries.KUBECTL]
    with ControlPlane(controller_manager=False) as control_plane:
        yield Kubectl(program, control_plane.kubeconfig, tmp_path_factory.mktemp("real"))


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    program = binaries.ensure(binaries.KUBECTL)[binaries.KUBECTL]
    folder: Path = tmp_path_factory.mktemp("sandbox")
    with served_sandbox(folder / "kubeconfig"):
        yield Kubectl(program, folder / "kubeconfig", folder)


def said(commands: Sequence[Command], sandbox: Kubectl, real: Kubectl) -> list[list[Said]]:
    with ThreadPoolExecutor(2) as both:
        return list(both.map(lambda server: server.script(commands), (sandbox, real)))


@pytest.mark.parametrize("script", SCRIPTS)
def test_kubectl_prints_the_same_on_both(script: str, real: Kubectl, sandbox: Kubectl) -> None:
    here, there = said(SCRIPTS[script], sandbox, real)
    assert here == there


@pytest.mark.parametrize("manifest", BROKEN)
@pytest.mark.parametrize("verb", ["apply", "create"])
def test_kubectl_reports_the_same_errors_on_both(verb: str, manifest: str, real: Kubectl, sandbox: Kubectl) -> None:
    commands = [Command((verb, "-f", "-"), BROKEN[manifest])]
    here, there = said(commands, sandbox, real)
    assert here == there
