"""Which tests are about a module: ``python -m tests.of app/features/cloneset/writes.py`` prints them.

A test is about a module if it has its name and place, if ``tests/mirrored.py`` says so, if it imports it, or if its
mark names a rule that the module cites. A module without any is tested through those that import it: then theirs are
printed, or else those of its folder. For a package it prints those of all its modules.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

from tests.behaviours import CITED, ROOT, proven
from tests.mirrored import elsewhere

Importers = Mapping[str, frozenset[Path]]


@cache
def by_rule() -> Mapping[str, frozenset[str]]:
    """Return the tests (file::function) that each rule's mark names."""
    return {id_: frozenset(found) for id_, found in proven(ROOT / "tests").items()}


@cache
def importers(folder: str) -> Importers:
    """Return the files below a folder that import each module (``app.kube.store``), or something of it."""
    found: dict[str, set[Path]] = defaultdict(set)
    for file in sorted((ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                modules = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            else:
                continue
            for module in modules:
                found[module].add(file)
    return {module: frozenset(files) for module, files in found.items()}


def name_of(path: Path) -> str:
    """Return a module's dotted name, such as ``app.kube.store``."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def own(path: Path) -> Iterator[str]:
    """Return the tests of one module itself: files, or functions in them."""
    below = ROOT / "tests" / path.relative_to(ROOT / "app").parent
    by_name = (below / f"test_{path.stem}.py", below.with_name(f"test_{path.stem}.py"))
    by_table = (ROOT / "tests" / row.tests for row in elsewhere(path))
    by_import = (one for one in importers("tests").get(name_of(path), ()) if one.name.startswith("test_"))
    yield from sorted(
        one.relative_to(ROOT).as_posix() for one in {*filter(Path.is_file, (*by_name, *by_table)), *by_import}
    )
    rules = {found[0] for found in CITED.finditer(path.read_text("utf-8"))}
    yield from sorted({one for rule in rules for one in by_rule().get(rule, ())})


def found_for(path: Path) -> list[str]:
    """Those of a module; where it has none, those of the modules that import it, or import one of these; where there
    are none either, those of its folder."""
    seen, level = {path}, [path]
    while level:
        if found := list(dict.fromkeys(test for one in level for test in own(one))):
            return found
        above = {one for module in level for one in importers("app").get(name_of(module), ())}
        level = sorted(above - seen)
        seen |= above
    # Imported by a name in a list, or under another one.
    folder = ROOT / "tests" / path.relative_to(ROOT / "app").parent
    return [one.relative_to(ROOT).as_posix() for one in sorted(folder.glob("test_*.py"))]


def modules(paths: Iterable[Path]) -> Iterator[Path]:
    """Return the given modules, and those in given folders."""
    for path in paths:
        yield from sorted(path.rglob("*.py")) if path.is_dir() else [path]


def main() -> int:
    """Print the tests; return 1 if there are none."""
    parser = argparse.ArgumentParser(prog="python -m tests.of", description=__doc__)
    parser.add_argument("paths", nargs="+", type=Path, help="modules or packages below app/")
    paths = [path.resolve() for path in parser.parse_args().paths]
    found = dict.fromkeys(test for path in modules(paths) for test in found_for(path))
    print("\n".join(found) or "no test is about this")
    return 0 if found else 1


if __name__ == "__main__":
    sys.exit(main())
