"""Which rules of docs/behaviours have a test: ``python -m tests.behaviours`` prints it, ``--check`` fails on a gap.

A page lists a rule as "- `SS-42` sentence". The sentence starts with "*(waits: why)*" if the rule is not built yet, and
with "*(reason)*" if it only explains others. Each id is defined once, and every id that tests mark or code cites is
defined. A test names the rules that it proves with ``@pytest.mark.behaviour("SS-42")``. The marks are read from the
source: nothing runs.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RULE = re.compile(
    r"^- `(?P<id>[A-Z]+-[0-9A-Z]+[a-z]?)` (?:\*\(waits: (?P<why>[^)]+)\)\* |(?P<reason>\*\(reason\)\* ))?(?P<text>.+)$"
)
#: Text in code that looks like a rule's id.
CITED = re.compile(r"\b(?P<prefix>[A-Z]{1,4})-[0-9]+[a-z]?\b")


@dataclass(frozen=True)
class Behaviour:
    """One rule: its id, its sentence, and why it waits ('' if it is implemented)."""

    id: str
    text: str
    waits: str
    reason: bool = False


def behaviours(page: Path) -> Iterator[Behaviour]:
    for line in page.read_text("utf-8").splitlines():
        if found := RULE.match(line):
            yield Behaviour(found["id"], found["text"], found["why"] or "", found["reason"] is not None)


def proven(tests: Path) -> dict[str, set[str]]:
    """Return the tests (file::function) that each rule's mark names."""
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


def cited(code: Path, prefixes: Iterable[str]) -> dict[str, set[str]]:
    """Return the files of the code that cite each rule with one of these prefixes."""
    known, found = set(prefixes), defaultdict(set)
    for file in sorted(code.rglob("*.py")):
        for match in CITED.finditer(file.read_text("utf-8")):
            if match["prefix"] in known:
                found[match[0]].add(file.relative_to(code.parent).as_posix())
    return found


def mistakes(
    pages: Mapping[str, Sequence[Behaviour]],
    tests: Mapping[str, Collection[str]],
    citations: Mapping[str, Collection[str]],
) -> list[str]:
    """Return errors of rules (by page), marks and citations (by id)."""
    defined: dict[str, Behaviour] = {}
    where: dict[str, str] = {}
    found = []
    for page, rules in pages.items():
        for rule in rules:
            if rule.id in defined:
                found.append(f"rule {rule.id} is defined twice: in {where[rule.id]} and in {page}")
            defined[rule.id], where[rule.id] = rule, page
    for id_, rule in defined.items():
        marked = ", ".join(sorted(tests.get(id_, ())))
        if not marked and not rule.waits and not rule.reason:
            found.append(f"rule {id_} has no test and is not marked *(waits: why)*")
        if marked and rule.waits:
            found.append(f"rule {id_} waits for {rule.waits}, but is marked as proven by {marked}")
    for id_ in sorted(tests.keys() - defined.keys()):
        found.append(f"unknown rule {id_}: marked by {', '.join(sorted(tests[id_]))}, in no page of docs/behaviours")
    for id_ in sorted(citations.keys() - defined.keys()):
        found.append(f"unknown rule {id_}: cited in {', '.join(sorted(citations[id_]))}, in no page of docs/behaviours")
    return found


def main() -> int:
    """Print the table; with ``--check`` return 1 if rules, marks and citations do not match."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail if rules, marks and citations do not match")
    parser.add_argument("--verbose", action="store_true", help="print the tests of each rule")
    options = parser.parse_args()
    tests = proven(ROOT / "tests")
    pages = {page.stem: list(behaviours(page)) for page in sorted((ROOT / "docs" / "behaviours").glob("*.md"))}
    for page, rules in pages.items():
        _print_page(page, [rule for rule in rules if not rule.reason], tests, verbose=options.verbose)
    prefixes = {rule.id.partition("-")[0] for rules in pages.values() for rule in rules}
    found = mistakes(pages, tests, cited(ROOT / "app", prefixes))
    print("\n".join(found), end="\n" if found else "")
    return 1 if options.check and found else 0


def _print_page(page: str, rules: Sequence[Behaviour], tests: Mapping[str, Collection[str]], *, verbose: bool) -> None:
    if not rules:
        return
    tested = [rule for rule in rules if rule.id in tests]
    without = [rule for rule in rules if rule.id not in tests and not rule.waits]
    waiting = [rule for rule in rules if rule.waits and rule.id not in tests]
    print(f"{page}: {len(rules)} rules, {len(tested)} with a test, {len(without)} without, {len(waiting)} wait")
    for rule in tested if verbose else ():
        print(f"  ✓ {rule.id:8} {', '.join(sorted(tests[rule.id]))}")
    for rule in without:
        print(f"  ✗ {rule.id:8} {rule.text}")
    for rule in waiting:
        print(f"  … {rule.id:8} waits: {rule.waits}")


if __name__ == "__main__":
    sys.exit(main())
