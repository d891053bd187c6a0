"""Packages that import a module when one of its names is asked for: a short command waits for none of the rest."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module


def names_from(package: str, modules: Mapping[str, Sequence[str]]) -> Callable[[str], object]:
    """A package's ``__getattr__``: its names, by the module below it that has them."""
    where = {name: module for module, names in modules.items() for name in names}

    def find(name: str) -> object:
        if name not in where:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found: object = getattr(import_module(f"{package}.{where[name]}"), name)
        setattr(sys.modules[package], name, found)
        return found

    return find
