"""The Python client: the guide's programs on a sandbox, and what it rejects before any request."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from random import Random
from typing import Any

import pytest

import pykruise
from app.api.crd import manifest
from app.client.cluster import definition
from app.kube.client import Client
from app.kube.clock import SystemClock
from app.kube.resources import CUSTOMRESOURCEDEFINITIONS
from app.manager.apidocs import example
from app.manager.features import kinds
from app.sandbox.apiserver.server import ApiServer
from pykruise import AsyncCluster, CloneSet, SidecarSet

pytestmark = pytest.mark.behaviour("CLI-61")
ROOT = Path(__file__).resolve().parent.parent.parent
GUIDE = (ROOT / "docs" / "guides" / "python.md").read_text("utf-8")
PROGRAMS = re.findall(r"```python\n(.*?)```\nprints\n```text\n(.*?)```", GUIDE, re.DOTALL)


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("sandbox") / "kubeconfig"
    command = [sys.executable, "-m", "app.cli.entry", "sandbox", "--quiet", "--no-samples", "--kubeconfig", str(path)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert any("Ready" in line for line in process.stdout)
        yield path
    finally:
        process.terminate()
        process.communicate(timeout=120)


@pytest.mark.parametrize(("program", "printed"), PROGRAMS)
def test_the_programs_of_the_guide_print_the_documented_output(kubeconfig: Path, program: str, printed: str) -> None:
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig)}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120
    )
    assert (done.stdout, done.stderr) == (printed, "")


def test_the_guide_has_programs() -> None:
    assert len(PROGRAMS) == 2


def test_type_checkers_use_the_package() -> None:
    """PEP 561: without the marker file in the built package, type checkers treat everything as Any."""
    shipped = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]
    for package in ("app", "pykruise"):
        assert package in {name.rstrip("*") for name in shipped["packages"]["find"]["include"]}
        assert "py.typed" in shipped["package-data"][package]
        assert (files(package) / "py.typed").is_file()


def test_every_kind_can_be_imported() -> None:
    for kind in kinds():
        assert definition(getattr(pykruise, kind.kind)) is kind


@pytest.fixture
async def cluster() -> Any:
    api = ApiServer(clock=SystemClock(), rng=Random(1))
    client = Client(api.transport(), SystemClock())
    for kind in kinds():
        await client.create(CUSTOMRESOURCEDEFINITIONS, manifest(kind))
    async with AsyncCluster(transport=api.transport()) as found:
        while True:
            try:
                await found.list(CloneSet)
                break
            except pykruise.NotFound:
                await SystemClock().sleep(0.05)
        yield found
    api.close()


async def test_a_model_can_be_applied_and_read(cluster: AsyncCluster) -> None:
    written = CloneSet.model_validate(example(definition(CloneSet)))
    await cluster.apply(written)
    found = await cluster.get(CloneSet, "web")
    assert found.spec.replicas == 3
    assert found.spec.template["spec"]["containers"] == written.spec.template["spec"]["containers"]
    await cluster.apply(written, dry_run=True)
    await cluster.delete(CloneSet, "web")
    with pytest.raises(pykruise.NotFound):
        await cluster.get(CloneSet, "web")


async def test_waiting_returns_the_last_object(cluster: AsyncCluster) -> None:
    with pytest.raises(pykruise.NotDoneError, match=r"web: condition not met within 0.2 s; the object did not exist"):
        await cluster.wait_for(CloneSet, "web", lambda _: True, seconds=0.2)
    await cluster.create(example(definition(CloneSet)))
    with pytest.raises(pykruise.NotDoneError, match=r"its status was"):
        await cluster.wait_for(CloneSet, "web", pykruise.rolled_out, seconds=0.2)


async def test_an_unknown_object_is_refused_at_once(cluster: AsyncCluster) -> None:
    with pytest.raises(TypeError, match=r"v1 Pod: is not a pykruise kind"):
        await cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}})
    with pytest.raises(TypeError, match=r"use apps.kruise.io/v1beta1"):
        await cluster.apply({"apiVersion": "apps.kruise.io/v1alpha1", "kind": "SidecarSet", "metadata": {"name": "x"}})
    with pytest.raises(ValueError, match=r"metadata.name: is required"):
        await cluster.apply(SidecarSet())
    with pytest.raises(RuntimeError, match=r"inside its with block"):
        await AsyncCluster().get(CloneSet, "web")
