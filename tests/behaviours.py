"""Which rules of docs/behaviours have a test: ``python -m tests.behaviours`` prints it, ``--check`` fails on a gap.

A rule stands in a page as "- `SS-42` sentence"; one that is not built yet starts its sentence with "*(waits: why)*".
A test names what it proves with ``@pytest.mark.behaviour("SS-42")``. The marks are read from the source: nothing runs.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RULE = re.compile(r"^- `(?P<id>[A-Z]+-[0-9A-Z]+[a-z]?)` (?:\*\(waits: (?P<why>[^)]+)\)\* )?(?P<text>.+)$")


@dataclass(frozen=True)
class Behaviour:
    """One rule: its id, its sentence, and why it waits ('' when it is built)."""

    id: str
    text: str
    waits: str


def behaviours(page: Path) -> Iterator[Behaviour]:
    """The rules of one page, in order."""
    for line in page.read_text("utf-8").splitlines():
        if found := RULE.match(line):
            yield Behaviour(found["id"], found["text"], found["why"] or "")


def proven(tests: Path) -> dict[str, set[str]]:
    """Rule id → tests (file::function) whose mark names it."""
    found: dict[str, set[str]] = defaultdict(set)
    for file in sorted(tests.rglob("*.py")):
        if "behaviour" in (source := file.read_text("utf-8")):
            for id_, where in _marks(ast.parse(source), file.relative_to(ROOT).as_posix()):
                found[id_].add(where)
    return found


def _marks(tree: ast.AST, where: str) -> Iterator[tuple[str, str]]:
    for node in ast.iter_child_nodes(tree):
        inner = (
            f"{where}::{node.name}"
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
            else where
        )
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "behaviour":
            yield from (
                (arg.value, where) for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)
            )
        yield from _marks(node, inner)


def main() -> int:
    """Print the table; with ``--check`` exit 1 if a built rule has no test or a test names an unknown rule."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="fail on a built rule without a test, or a mark without a rule"
    )
    parser.add_argument("--verbose", action="store_true", help="print the tests of each rule")
    options = parser.parse_args()
    tests = proven(ROOT / "tests")
    known: set[str] = set()
    missing: list[str] = []
    for page in sorted((ROOT / "docs" / "behaviours").glob("*.md")):
        rules = list(behaviours(page))
        if not rules:
            continue
        known.update(rule.id for rule in rules)
        tested = [rule for rule in rules if rule.id in tests]
        without = [rule for rule in rules if rule.id not in tests and not rule.waits]
        waiting = [rule for rule in rules if rule.waits and rule.id not in tests]
        missing += [rule.id for rule in without]
        print(
            f"{page.stem}: {len(rules)} rules, {len(tested)} with a test, {len(without)} without, {len(waiting)} wait"
        )
        for rule in tested if options.verbose else ():
            print(f"  ✓ {rule.id:8} {', '.join(sorted(tests[rule.id]))}")
        for rule in without:
            print(f"  ✗ {rule.id:8} {rule.text}")
        for rule in waiting:
            print(f"  … {rule.id:8} waits: {rule.waits}")
    unknown = sorted(set(tests) - known)
    for id_ in unknown:
        print(f"unknown rule {id_}: marked by {', '.join(sorted(tests[id_]))}, in no page of docs/behaviours")
    return 1 if options.check and (missing or unknown) else 0


if __name__ == "__main__":
    sys.exit(main())
