"""What the architecture page and docstrings promise about modules, beyond `make contracts`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from app.manager.features import FOLDERS, features
from tests.of import name_of

ROOT = Path(__file__).parent.parent
MODULES = sorted((ROOT / "app").rglob("*.py"))
#: Modules that no pure module and no module of a plan imports.
IMPURE = ("app.kube.client", "app.kube.clock", "app.kube.transport", "asyncio", "random", "secrets", "time")
#: Pure functions of these modules.
FORMATS = ("app.kube.clock.rfc3339", "app.kube.clock.parsed_rfc3339", "app.kube.clock.rfc3339_micro")


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def is_pure(path: Path) -> bool:
    """Return whether it calls itself pure or is part of a plan."""
    if path == ROOT / "app/cli/plan.py":  # the command
        return False
    if path.stem == "plan" or "plan" in path.parent.parts:
        return True
    called = re.compile(r"(^|\s)Pure\.(\s|$)")
    return bool(called.search(path.read_text("utf-8")) and called.search(ast.get_docstring(tree_of(path)) or ""))


def imported(tree: ast.Module) -> Iterator[str]:
    """Return what it imports at run time."""
    nodes = list(ast.iter_child_nodes(tree))
    while nodes:
        node = nodes.pop()
        for_types = isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        nodes += node.orelse if for_types else ast.iter_child_nodes(node)
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def is_impure(module: str) -> bool:
    return module not in FORMATS and any(module == one or module.startswith(f"{one}.") for one in IMPURE)


def test_pure_modules_import_no_client_clock_or_randomness() -> None:
    pure, found = 0, []
    for path in MODULES:
        if not is_pure(path):
            continue
        pure += 1
        if wrong := sorted(filter(is_impure, imported(tree_of(path)))):
            found.append(f"{name_of(path)}: {', '.join(wrong)}")
    assert pure > 50
    assert found == []


def test_the_page_names_every_package() -> None:
    page = (ROOT / "docs/architecture.md").read_text("utf-8")
    packages = [path.name for path in (ROOT / "app").iterdir() if (path / "__init__.py").exists()]
    assert [name for name in packages if f"`app/{name}`" not in page] == []


@pytest.mark.parametrize(
    "folder", sorted(path.parent for path in (ROOT / "app").glob("features/*/feature.py")), ids=str
)
def test_every_feature_is_listed_under_its_folder_name(folder: Path) -> None:
    assert name_of(folder / "__init__.py") in FOLDERS
    assert folder.name in {one.name for one in features()}


def calls(name: str, *allowed: str) -> list[str]:
    """Return where a function is called, except in allowed modules."""
    return [
        f"{name_of(path)}:{node.lineno}"
        for path in MODULES
        if name_of(path) not in allowed and f"{name}(" in path.read_text("utf-8")
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == name
    ]


def test_commands_print_only_through_the_escaping_function() -> None:
    """Output through rich is escaped where it is printed; help texts are our own. [CLI-22]"""
    assert calls("print", "app.cli.terminal", "app.manager.run") == []
    assert calls("sys.stdout.write") == calls("typer.echo") == []


def test_every_program_logs_through_the_escaping_formatter() -> None:
    """Log lines quote untrusted text: images, runtimes, objects."""
    assert calls("logging.basicConfig") == []
