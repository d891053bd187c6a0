"""Packages that import a module when one of its names is asked for: a short command waits for none of the rest."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path


def names_from(package: str) -> Callable[[str], object]:
    """A package's ``__getattr__``: what it imports for type checkers, from the modules below it that have these names.

    They stand in the block ``if TYPE_CHECKING`` of its own source, and nowhere a second time.
    """
    where = {}
    source = ast.parse(Path(str(sys.modules[package].__file__)).read_text("utf-8"))
    for block in source.body:
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING":
            for node in block.body:
                if isinstance(node, ast.ImportFrom) and node.module:
                    where.update({alias.name: node.module for alias in node.names})

    def find(name: str) -> object:
        if name not in where:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found: object = getattr(import_module(where[name]), name)
        setattr(sys.modules[package], name, found)
        return found

    return find
