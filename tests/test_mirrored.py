"""tests/ mirrors app/: a module's tests are found by its name, or in one table."""

from __future__ import annotations

import pytest

from tests.behaviours import ROOT
from tests.mirrored import TABLE, Elsewhere, elsewhere, is_about, mirrored
from tests.of import modules

MODULES = [path for path in modules([ROOT / "app"]) if path.name != "__init__.py"]


def test_every_module_has_a_test_file_of_its_name_or_a_row_with_its_tests() -> None:
    lost = [path for path in MODULES if not mirrored(path).exists() and not any(elsewhere(path))]
    assert [mirrored(path).relative_to(ROOT).as_posix() for path in lost] == []


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row.tests}: {row.modules[0]}")
def test_rows_name_existing_tests_and_modules(row: Elsewhere) -> None:
    place = ROOT / "tests" / row.tests
    assert place.is_file() or any(place.glob("test_*.py"))
    for pattern in row.modules:
        assert any(is_about(pattern, path) for path in MODULES), pattern
