"""CI exercises every part of the program on a real cluster when it changes."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from tests import selection
from tests.selection import FEW, LIMIT, ROOT, SHARED, area, areas_of_test, few, on_a_cluster


def _about() -> set[str]:
    """Return the areas that some test on a real cluster covers."""
    files = (path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py") if on_a_cluster(path))
    return {one for file in files for one in areas_of_test(file)}


def test_every_area_of_the_program_selects_a_test_on_a_real_cluster() -> None:
    areas = {area(path) for path in (ROOT / "app").rglob("*.py") if path.name != "__init__.py"} | {"deploy", "policies"}
    assert areas - _about() - SHARED.keys() == set()
    assert SHARED.keys() - areas == set(), "areas that no longer exist"
    assert {one for others in SHARED.values() for one in others} - _about() == set()


def test_only_files_with_tests_on_a_real_cluster_count_as_such() -> None:
    counted = ["scenarios/test_cloneset.py", "kube/test_real_apiserver.py", "daemon/test_node_cluster.py"]
    others = ["certs/test_rotation.py", "scenarios/world.py", "test_gone.py", "deploy/test_release_files.py"]
    assert [name for name in (*counted, *others) if on_a_cluster(ROOT / "tests" / name)] == counted


def test_core_and_nightly_name_existing_tests() -> None:
    modules = (*selection.NIGHTLY_ONLY, *selection.LONG)
    assert all((ROOT / "tests" / f"{name}.py").exists() for name in modules)
    text = "\n".join(path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    for name in selection.CORE:
        assert (ROOT / "tests" / f"{name}.py").exists() or f"def {name}(" in text, name


@pytest.mark.parametrize(
    ("nodeid", "expected"),
    [
        ("tests/manager/test_manager_controlplane.py::test_any", True),
        ("tests/scenarios/test_cloneset.py::test_the_image_of_all_pods_changes_in_place[simulated-nodes]", True),
        ("tests/scenarios/test_cloneset.py::test_changes_the_image_in_place_too[simulated-nodes]", False),
    ],
)
def test_core_has_whole_files_and_single_tests(nodeid: str, expected: bool) -> None:
    assert selection.is_core(nodeid) is expected


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("app/features/cloneset/plan/update.py", "cloneset"),
        ("tests/features/cloneset/test_plan.py", "cloneset"),
        ("app/kube/client.py", "kube"),
        ("app/workloads/engine.py", "workloads"),
        ("deploy/chart/values.yaml", "deploy"),
    ],
)
def test_an_area_is_the_folder_of_a_kind_or_a_top_level_folder(path: str, expected: str) -> None:
    assert area(Path(path)) == expected


@pytest.fixture(autouse=True)
def _at_one_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "_commit", lambda: "c0ffee")


def _scenarios(kind: str, count: int) -> set[str]:
    return {f"tests/scenarios/test_{kind}.py::test_{number}" for number in range(count)}


@pytest.fixture
def changed(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    found: set[str] = set()
    monkeypatch.setattr(selection, "changed_areas", lambda: frozenset(found))
    return found


def test_a_change_selects_the_tests_about_it_and_a_part_of_the_others(changed: set[str]) -> None:
    changed.add("cloneset")
    about, others = _scenarios("cloneset", 10), _scenarios("daemonset", 1000)
    found = selection.selected(about | others, 200)
    assert about <= found
    assert 20 < len(found & others) < 100


def test_of_more_tests_than_there_is_time_for_only_a_part_runs(changed: set[str]) -> None:
    changed.add("cloneset")
    assert 200 < len(selection.selected(_scenarios("cloneset", 1000), 5000)) < 450


def test_a_changed_test_runs(changed: set[str]) -> None:
    file = "tests/kube/test_real_apiserver.py"
    names = {f"{file}::test_a", f"{file}::test_b"}
    assert selection.selected(names, LIMIT * 4) == set()
    changed.add(file)
    assert selection.selected(names, LIMIT * 4) == names


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("app/features/cloneset/feature.py", {"cloneset"}),
        ("app/workloads/engine.py", {"workloads", "cloneset", "daemonset", "statefulset", "uniteddeployment"}),
        ("deploy/chart/values.yaml", {"deploy"}),
        ("policies/protected-kinds.yaml", {"policies", "deploy", "deletionprotection"}),
        ("tests/scenarios/test_cloneset.py", {"tests/scenarios/test_cloneset.py"}),
        ("tests/features/cloneset/test_plan.py", set()),
    ],
)
def test_a_commit_changes_what_its_files_are_about(
    path: str, expected: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selection, "_git", lambda *_: f"\0abc\n\n{path}\n\0def\n\n{path}")
    assert selection.changed_areas.__wrapped__() == expected


def test_of_many_changed_areas_those_of_many_commits_are_chosen() -> None:
    everything = frozenset(map(str, range(30)))
    assert few({"a": frozenset("12"), "b": frozenset("23")}) == {"1", "2", "3"}
    assert len(few({str(number): everything for number in range(20)})) == FEW
    focused = {f"commit {number}": frozenset([str(number % (FEW - 1))]) for number in range(50)}
    assert {*map(str, range(FEW - 1))} <= few({**focused, "all": everything})


def _collected(target: str) -> dict[str, list[str]]:
    """Return the folders in which a target of the Makefile runs tests, by their marks."""
    environment = {name: value for name, value in os.environ.items() if name != "MAKEFLAGS"}
    done = subprocess.run(["make", "-n", target], cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    commands = [shlex.split(line.partition("||")[0]) for line in done.stdout.splitlines() if "pytest" in line]
    found: dict[str, list[str]] = {}
    for words in commands:
        found.setdefault(words[words.index("-m") + 1], []).extend(w for w in words if w.startswith("tests/"))
    return found


def test_no_test_on_a_real_cluster_is_left_out_by_its_make_target() -> None:
    controlplane, cluster = _collected("test-controlplane"), _collected("test-cluster")
    assert controlplane["controlplane and not alone"] == []  # everywhere
    for path in (ROOT / "tests").rglob("test_*.py"):
        name = path.relative_to(ROOT).as_posix()
        marks = set(re.findall(r"pytest\.mark\.(\w+)", path.read_text("utf-8")))
        folders = []
        if marks >= {"controlplane", "alone"}:
            folders.append(controlplane["controlplane and alone"])
        if "cluster" in marks:
            how = "alone" if "alone" in marks else "not alone"
            folders.append(cluster[f"cluster and {how}"])
        assert all(any(name.startswith(f"{folder}/") for folder in found) for found in folders), name
