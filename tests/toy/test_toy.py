"""A folder and one line in the list of features make the toy kind known everywhere."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.kube.errors import Invalid
from app.kube.resources import EVENTS, NAMESPACES, PODS
from app.manager import features
from app.sandbox.kubelet.program import Pace
from app.sandbox.run import PROGRAM, Options, Sandbox, sandbox, with_manager
from tests.cluster.controlplane import free_port
from tests.kit.cluster import Waiting
from tests.toy.widget.kind import WIDGET

ROOT = Path(__file__).parents[2]
FOLDER = "tests.toy.widget"
#: The line that lists the toy kind.
LINE = f"from app.manager import features as features; features.FOLDERS.append({FOLDER!r}); "
WIDGETS = WIDGET.resource()


@pytest.fixture
def listed() -> Iterator[None]:
    features.FOLDERS.append(FOLDER)
    features.features.cache_clear()
    yield
    features.FOLDERS.remove(FOLDER)
    features.features.cache_clear()


def python(program: str) -> subprocess.CompletedProcess[str]:
    """Run a Python program with the toy kind in the list of features."""
    return subprocess.run([sys.executable, "-c", LINE + program], cwd=ROOT, capture_output=True, text=True, check=False)


def printed(program: str) -> Any:
    """Return the JSON that a program prints."""
    found = python(program)
    assert found.returncode == 0, found.stderr
    return json.loads(found.stdout)


@pytest.fixture(scope="module")
def files() -> dict[str, str]:
    """Return the contents of the generated files."""
    made: dict[str, str] = printed("import json; from app.generate.__main__ import files; print(json.dumps(files()))")
    return made


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("deploy/crds/toys.kruise.io_widgets.yaml", ["name: widgets.toys.kruise.io", "Number of Pods. Defaults to 1."]),
        ("deploy/rbac.yaml", ["toys.kruise.io", "- widgets/status"]),
        ("deploy/chart/templates/generated/roles.yaml", ["- widgets/status"]),
        ("deploy/chart/templates/generated/uninstall-roles.yaml", ["- widgets"]),
        ("deploy/chart/templates/generated/crd-widgets.toys.kruise.io.yaml", ["kind: Widget"]),
        ("docs/reference/flags.md", ["`--widget-workers`"]),
        ("docs/reference/feature-gates.md", ["| Widgets | false | Ours | Widgets are reconciled |"]),
        ("docs/reference/webhooks.md", ["| mwidget.kb.io |", "| vwidget.kb.io |"]),
        ("policies/protected-kinds.yaml", ["kind: Widget", "resource: widgets"]),
    ],
)
def test_generated_files_include_the_toy_kind(files: dict[str, str], file: str, words: list[str]) -> None:
    for word in words:
        assert word in files[file]


def test_the_verb_of_the_toy_kind_is_a_command() -> None:
    program = "from app.cli.main import main; import sys; sys.argv = ['pykruise', {!r}]; main()"
    for word, said in (("--help", "Give a Widget another color."), ("paint", "missing argument 'NAME COLOR")):
        found = python(program.format(word))
        assert said in found.stdout + found.stderr


def test_the_dashboard_has_a_section_for_widgets() -> None:
    program = (
        "import json; from app.dashboard.overview import overview_model; from app.dashboard.pages import page_with\n"
        "kinds = [one for declared in features.features() for one in declared.dashboard()]\n"
        "row = kinds[-1].row({'metadata': {'name': 'a'}, 'spec': {'color': 'blue'}}, ())\n"
        "overview = overview_model(kinds)\n"
        "print(json.dumps([page_with(kinds), row.shown.message, 'widgets' in overview.model_fields]))"
    )
    page, message, known = printed(program)
    assert '<ul id="widgets">' in page
    assert (message, known) == ("blue", True)


class Toys(Waiting):
    """A sandbox with Widgets; must be used in its event loop."""

    def __init__(self, running: Sandbox, metrics: int) -> None:
        self.client, self.clock = running.client, running.client.clock
        self._metrics = metrics

    async def owned(self) -> dict[str, str]:
        """Return the UIDs of the Pods that have owners, by name."""
        pods = [one["metadata"] for one in (await self.client.list(PODS, "default")).items]
        return {one["name"]: one["uid"] for one in pods if one.get("ownerReferences")}

    async def pods(self) -> list[str]:
        return sorted(await self.owned())

    async def counted(self) -> int:
        """Return the number of Pods in the status."""
        return int(((await self.client.get(WIDGETS, "a", "default")).get("status") or {}).get("pods", -1))

    async def events(self) -> int:
        found = (await self.client.list(EVENTS, "default")).items
        return sum(one["reason"] == "PodCreated" and one["involvedObject"]["kind"] == "Widget" for one in found)

    async def metric(self, name: str) -> float:
        """Return the value of a metric, from /metrics."""
        url = f"http://127.0.0.1:{self._metrics}/metrics"
        text = await asyncio.to_thread(lambda: urllib.request.urlopen(url, timeout=5).read().decode())
        return sum(float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(name))


async def test_the_sandbox_serves_validates_reconciles_and_counts_widgets(
    tmp_path: Path, listed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))))
    port = free_port("127.0.0.1")
    flags = ("--feature-gates=Widgets=true", f"--metrics-addr=127.0.0.1:{port}", "--widget-workers=2")
    pace = Pace(pull=0, start=0, restart=0, stop=0)
    options = Options(tmp_path / "kubeconfig", manager_flags=flags, program=LINE + PROGRAM, pace=pace)
    async with sandbox(options) as running:
        toys, client = Toys(running, port), running.client
        async with with_manager(running):
            made = await client.create(WIDGETS, widget("a", color="blue"), "default")
            assert made["spec"] == {"color": "blue", "replicas": 1}
            with pytest.raises(
                Invalid, match=r'spec\.color: Unsupported value: "green": supported values: "blue", "red"'
            ):
                await client.create(WIDGETS, widget("b", color="green"), "default")
            await client.patch(WIDGETS, "a", {"spec": {"replicas": 3}}, "default")
            await toys.becomes(toys.pods, ["a-0", "a-1", "a-2"], 120)
            await toys.becomes(toys.counted, 3, 120)
            assert await toys.metric('controller_runtime_reconcile_total{controller="widget-controller"') > 0
            assert (
                await toys.metric('controller_runtime_max_concurrent_reconciles{controller="widget-controller"}') == 2
            )
            assert await toys.metric("toy_pods_created_total") == 3
            await toys.becomes(toys.events, 3, 120)
        uids = await toys.owned()
        async with with_manager(running, install=False):
            await client.patch(WIDGETS, "a", {"spec": {"replicas": 2}}, "default")
            await toys.becomes(toys.pods, ["a-0", "a-1"], 120)
            await toys.becomes(toys.counted, 2, 120)
            assert await toys.metric("toy_pods_created_total") == 0
        assert (await toys.owned()).items() <= uids.items()
        namespaces = (await client.list(NAMESPACES)).items
        assert len(namespaces) == len({one["metadata"]["name"] for one in namespaces})


def widget(name: str, **spec: Any) -> dict[str, Any]:
    """Return the manifest of a Widget."""
    return {"apiVersion": WIDGETS.api_version, "kind": WIDGETS.kind, "metadata": {"name": name}, "spec": spec}
