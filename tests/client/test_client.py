"""The Python client: the guide's programs run on a sandbox, and errors are raised before any request."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Awaitable, Callable, Iterator
from importlib.resources import files
from pathlib import Path
from random import Random
from typing import Any

import orjson
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
from tests.kube.fakes import Connections, bookmark, event, json_response, listing, pieces

pytestmark = pytest.mark.behaviour("CLI-61")
ROOT = Path(__file__).resolve().parent.parent.parent
GUIDE = (ROOT / "docs" / "guides" / "python.md").read_text("utf-8")
PROGRAMS = re.findall(r"```python\n(.*?)```\nThis prints:\n```text\n(.*?)```", GUIDE, re.DOTALL)


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


async def test_waiting_returns_the_last_object(cluster: AsyncCluster) -> None:
    with pytest.raises(pykruise.NotDoneError, match=r"web: condition not met within 0.2 s; the object did not exist"):
        await cluster.wait_for(CloneSet, "web", lambda _: True, seconds=0.2)
    await cluster.create(example(definition(CloneSet)))
    with pytest.raises(pykruise.NotDoneError, match=r"its status was"):
        await cluster.wait_for(CloneSet, "web", pykruise.rolled_out, seconds=0.2)


WEB = example(definition(CloneSet))
GROUP = "/apis/apps.kruise.io/v1beta1"
CALLS: dict[str, tuple[Callable[[AsyncCluster], Awaitable[Any]], str, dict[str, str]]] = {
    "get": (lambda one: one.get(SidecarSet, "log", "ignored"), "GET sidecarsets/log", {}),
    "list": (lambda one: one.list(CloneSet, label_selector="a=b", field_selector="c=d"),
             "GET namespaces/default/clonesets", {"labelSelector": "a=b", "fieldSelector": "c=d"}),
    "list of all": (lambda one: one.list(CloneSet, "shop", all_namespaces=True), "GET clonesets", {}),
    "apply": (lambda one: one.apply(WEB | {"metadata": {"name": "web", "namespace": "bank"}}, force=True),
              "PATCH namespaces/bank/clonesets/web", {"fieldManager": "pykruise-client", "force": "true"}),
    "apply to": (lambda one: one.apply(WEB, "shop", dry_run=True),
                 "PATCH namespaces/shop/clonesets/web", {"fieldManager": "pykruise-client", "dryRun": "All"}),
    "create": (lambda one: one.create(WEB | {"metadata": {"name": "web", "namespace": "bank"}}, dry_run=True),
               "POST namespaces/bank/clonesets", {"fieldManager": "pykruise-client", "dryRun": "All"}),
    "patch": (lambda one: one.patch(CloneSet, "web", {}, dry_run=True),
              "PATCH namespaces/default/clonesets/web", {"fieldManager": "pykruise-client", "dryRun": "All"}),
    "delete": (lambda one: one.delete(CloneSet, "web"),
               "DELETE namespaces/default/clonesets/web", {"policy": "Background"}),
    "orphan": (lambda one: one.delete(CloneSet, "web", orphan=True),
               "DELETE namespaces/default/clonesets/web", {"policy": "Orphan"}),
}  # fmt: skip


@pytest.mark.parametrize("call", CALLS)
async def test_each_call_is_one_request(call: str) -> None:
    connections, (make, sent, expected) = Connections(), CALLS[call]
    connections.answers.append(listing(1) if "list" in call else json_response(200, WEB))
    async with AsyncCluster(transport=connections) as cluster:
        await make(cluster)
    (request,) = connections.requests
    options = {"policy": orjson.loads(request.body or b"")["propagationPolicy"]} if request.method == "DELETE" else {}
    assert f"{request.method} {request.path.removeprefix(f'{GROUP}/')}" == sent
    assert {key: value for key, value in request.query.items() if key != "limit"} | options == expected


async def test_a_slow_reader_sees_several_changes_of_an_object_as_one() -> None:
    def seen(type_: str, name: str, version: int) -> bytes:
        return event(type_, WEB | {"metadata": {"name": name, "namespace": "default", "resourceVersion": str(version)}})

    connections = Connections()
    changes = [seen("ADDED", "new", 3), seen("MODIFIED", "new", 4), seen("DELETED", "old", 5)]
    changes += [seen("ADDED", "brief", 6), seen("DELETED", "brief", 7), seen("ADDED", "last", 8)]
    connections.streams.append(
        pieces(seen("ADDED", "old", 1), bookmark(2, end_of_list=True) + b"".join(changes), then_hang=True)
    )
    async with AsyncCluster(transport=connections) as cluster, cluster.watch(CloneSet, label_selector="a=b") as found:
        read = []
        async for change in found:
            read.append((change.object.name, change.old is not None, change.new is not None))
            if change.object.name == "last":
                break
    assert read == [("new", False, True), ("last", False, True)]
    assert (connections.watches[0].query["labelSelector"], connections.open_streams) == ("a=b", 0)


async def test_an_unknown_object_is_refused_at_once(cluster: AsyncCluster) -> None:
    with pytest.raises(TypeError, match=r"v1 Pod: is not a pykruise kind"):
        await cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}})
    with pytest.raises(TypeError, match=r"use apps.kruise.io/v1beta1"):
        await cluster.apply({"apiVersion": "apps.kruise.io/v1alpha1", "kind": "SidecarSet", "metadata": {"name": "x"}})
    with pytest.raises(ValueError, match=r"metadata.name: is required"):
        await cluster.apply(SidecarSet())
    with pytest.raises(RuntimeError, match=r"inside its with block"):
        await AsyncCluster().get(CloneSet, "web")
