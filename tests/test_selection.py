"""CI exercises every part of the program on a real cluster when it changes."""

from __future__ import annotations

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
