"""CI exercises every part of the program on a real cluster when it changes."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from tests import selection
from tests.selection import ROOT, SHARED, area, areas_of_test


def _about() -> set[str]:
    """Return the areas that some test on a real cluster covers."""
    marked = (
        path
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        if "controlplane" in path.read_text("utf-8") or "world: World" in path.read_text("utf-8")
    )
    return {one for path in marked for one in areas_of_test(path.relative_to(ROOT).as_posix())}


def test_every_area_of_the_program_selects_a_test_on_a_real_cluster() -> None:
    areas = {area(path) for path in (ROOT / "app").rglob("*.py") if path.name != "__init__.py"}
    assert areas - _about() - SHARED.keys() == set()
    assert SHARED.keys() - areas == set(), "areas that no longer exist"


def test_core_and_nightly_name_existing_tests() -> None:
    assert all((ROOT / "tests" / f"{name}.py").exists() for name in selection.NIGHTLY_ONLY)
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


@pytest.fixture
def changed(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    found: set[str] = set()
    monkeypatch.setattr(selection, "NIGHTLY", False)
    monkeypatch.setattr(selection, "changed_areas", lambda: frozenset(found))
    return found


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("app/features/cloneset/plan/update.py", "cloneset"),
        ("tests/features/cloneset/test_plan.py", "cloneset"),
        ("app/kube/client.py", "kube"),
        ("app/workloads/engine.py", "workloads"),
    ],
)
def test_an_area_is_the_folder_of_a_kind_or_a_top_level_folder(path: str, expected: str) -> None:
    assert area(Path(path)) == expected


def test_a_change_selects_its_area_and_a_tenth_of_the_rest(changed: set[str]) -> None:
    changed.add("cloneset")
    names = [str(number) for number in range(1000)]
    assert all(selection.selected(name, ["cloneset"]) for name in names)
    assert 50 < sum(selection.selected(name, ["daemonset"]) for name in names) < 200


def test_a_wide_change_selects_by_rotation_only(changed: set[str]) -> None:
    changed.update(str(number) for number in range(selection.WIDE))
    assert 50 < sum(selection.selected(str(number), ["1"]) for number in range(1000)) < 200


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
        name, marks = (
            path.relative_to(ROOT).as_posix(),
            set(re.findall(r"pytest\.mark\.(\w+)", path.read_text("utf-8"))),
        )
        folders = []
        if marks >= {"controlplane", "alone"}:
            folders.append(controlplane["controlplane and alone"])
        if "cluster" in marks:
            how = "alone" if "alone" in marks else "not alone"
            folders.append(cluster[f"cluster and {how}"])
        assert all(any(name.startswith(f"{folder}/") for folder in found) for found in folders), name
