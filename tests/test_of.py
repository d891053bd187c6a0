"""Every module of the app finds its tests."""

from __future__ import annotations

import pytest

from tests.behaviours import ROOT
from tests.of import found_for, importers, modules, name_of, own


def test_every_module_has_tests_or_tested_importers() -> None:
    within = (path for path in modules([ROOT / "app"]) if path.name != "__init__.py")
    assert [name_of(path) for path in within if not found_for(path)] == []


@pytest.mark.parametrize(
    ("module", "test"),
    [
        ("kube/store.py", "tests/kube/test_store.py"),  # by its name
        ("pods/disruption_budget.py", "tests/workloads/test_writer.py"),  # by its import
        (  # by a rule
            "features/cloneset/writes.py",
            "tests/features/cloneset/test_reconcile.py::test_a_released_pod_keeps_its_name_and_is_replaced_under_another",
        ),
    ],
)
def test_a_module_finds_its_tests(module: str, test: str) -> None:
    assert test in list(own(ROOT / "app" / module))


def test_a_module_without_tests_uses_those_of_its_importers() -> None:
    path = ROOT / "app/sandbox/apiserver/typecheck.py"
    assert not list(own(path))
    assert importers("app")[name_of(path)]
    assert found_for(path)
