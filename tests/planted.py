"""Planted faults: small edits that break the code, which a test must notice.

A fault names a function (``AdvancedCronJobReconciler._start``) and statements or an expression in it, before and after.
Both are compared as syntax trees, so a fault survives reformatting and a move to another module. It must match
exactly one place below ``app/``. ``python -m tests.planted FILE NAME MODULE ARGUMENTS`` runs a module, such as pytest,
with a fault planted.
"""

from __future__ import annotations

import ast
import runpy
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent


class PlantError(Exception):
    """A fault does not match exactly one place."""


@dataclass(frozen=True, slots=True)
class Edit:
    """One replacement in the function ``within`` (class and function names joined by dots; empty: module level)."""

    within: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Fault:
    """A named set of edits; ``options`` holds the other fields of its entry."""

    name: str
    says: str
    edits: tuple[Edit, ...]
    options: Mapping[str, Any]


def load(path: Path) -> tuple[Fault, ...]:
    """Return the faults of a YAML file, in its order."""
    found = []
    for name, entry in yaml.safe_load(path.read_text()).items():
        edits = tuple(Edit(edit["in"], edit["old"], edit["new"]) for edit in entry.pop("edits"))
        found.append(Fault(name, entry.pop("says", ""), edits, entry))
    return tuple(found)


def planted(fault: Fault, root: Path = ROOT) -> dict[Path, str]:
    """Return the new text of each file that the fault changes. Raises PlantError."""
    trees: dict[Path, ast.Module] = {}
    for edit in fault.edits:
        places = [place for path in _candidates(edit, root) for place in _places(path, edit, trees)]
        if len(places) != 1:
            raise PlantError(f"{fault.name}: {len(places)} places match in {edit.within or 'a module'}: {edit.old}")
        path, tree, replace = places[0]
        replace()
        trees[path] = tree
    return {path: ast.unparse(ast.fix_missing_locations(tree)) for path, tree in trees.items()}


def _candidates(edit: Edit, root: Path) -> Iterator[Path]:
    names = edit.within.split(".") if edit.within else []
    words = {node.id for node in ast.walk(ast.parse(edit.old)) if isinstance(node, ast.Name)}
    for path in _sources(root):
        text = _text(path)
        if all(word in text for word in words) and all(
            f"def {name}(" in text or f"def {name}[" in text or f"class {name}" in text for name in names
        ):
            yield path


@cache
def _sources(root: Path) -> Sequence[Path]:
    return sorted((root / "app").rglob("*.py"))


@cache
def _text(path: Path) -> str:
    return path.read_text("utf-8")


def _places(path: Path, edit: Edit, trees: Mapping[Path, ast.Module]) -> Iterator[tuple[Path, ast.Module, Any]]:
    tree = trees[path] if path in trees else ast.parse(_text(path))
    old, new = ast.parse(edit.old).body, ast.parse(edit.new or "pass").body
    expressions = all(len(code) == 1 and isinstance(code[0], ast.Expr) for code in (old, new))
    for scope in _scopes(tree, edit.within.split(".") if edit.within else []):
        for node in _nodes(scope):
            found = _expressions(node, old, new) if expressions else _statements(node, old, new)
            for replace in found:
                yield path, tree, replace


def _scopes(node: ast.AST, names: Sequence[str]) -> Iterator[ast.AST]:
    if not names:
        yield node
        return
    for child in ast.walk(node):
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and child.name == names[0]:
            yield from _scopes(child, names[1:])


def _nodes(scope: ast.AST) -> Iterator[ast.AST]:
    if isinstance(scope, ast.Module):  # functions qualify the names inside them
        yield scope
        for statement in scope.body:
            if not isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                yield from ast.walk(statement)
        return
    yield from ast.walk(scope)


def _statements(node: ast.AST, old: Sequence[ast.stmt], new: Sequence[ast.stmt]) -> Iterator[Any]:
    wanted = [ast.dump(one) for one in old]
    for field in ("body", "orelse", "finalbody"):
        body = getattr(node, field, None)
        if not isinstance(body, list):
            continue
        dumps = [ast.dump(one) for one in body]
        for start in range(len(body) - len(wanted) + 1):
            if dumps[start : start + len(wanted)] == wanted:
                yield lambda body=body, start=start: body.__setitem__(slice(start, start + len(wanted)), new)


def _expressions(node: ast.AST, old: Sequence[Any], new: Sequence[Any]) -> Iterator[Any]:
    wanted, value = ast.dump(old[0].value), new[0].value
    for field, child in ast.iter_fields(node):
        if isinstance(child, ast.expr) and ast.dump(child) == wanted:
            yield lambda field=field: setattr(node, field, value)
        elif isinstance(child, list):
            for index, one in enumerate(child):
                if isinstance(one, ast.expr) and ast.dump(one) == wanted:
                    yield lambda child=child, index=index: child.__setitem__(index, value)


def plant(fault: Fault) -> None:
    """Give the functions that the fault changes their new code, in this process. Raises PlantError."""
    for path, text in planted(fault).items():
        module, code = import_module(".".join(_module(path))), compile(text, str(path), "exec")
        for edit in fault.edits:
            function, new = _function(module, code, edit.within.split("."))
            function.__code__ = new


def _function(found: Any, code: CodeType, names: Sequence[str]) -> tuple[Any, CodeType]:
    """Return the outermost function on the way to a name, and its new code."""
    for name in names:
        found = vars(found)[name]
        code = next(one for one in code.co_consts if isinstance(one, CodeType) and one.co_name == name)
        found = getattr(found, "fget", None) or getattr(found, "__func__", None) or found
        if isinstance(found, FunctionType):
            return found, code
    raise PlantError(f"{'.'.join(names)} is no function")


def _module(path: Path) -> tuple[str, ...]:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return parts[:-1] if parts[-1] == "__init__" else parts


def main() -> None:
    """Run a module with a fault planted."""
    path, name, module, *arguments = sys.argv[1:]
    (fault,) = (one for one in load(Path(path)) if one.name == name)
    plant(fault)
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
